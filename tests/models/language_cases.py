"""Small networks whose blocks come from a language model of a few updates."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from conftest import make_agent

from agentzoo.models._language_config import PRESETS
from agentzoo.models._language_dt import LanguageDT
from agentzoo.models.gpt2_dt import GPT2DTConfig
from agentzoo.recipe import DataConfig, EvalConfig, Recipe, TrainConfig
from agentzoo.research.pretrain.lm import train_language_model, write_language_model
from agentzoo.research.pretrain.settings import LM_SIZES

WIDTH = {"embed_dim": 16, "n_layers": 2, "n_heads": 2}


def language_model(root: Path) -> Path:
    """A language model of 20 updates in a zoo, beside the text it was trained on."""
    (root / "text").mkdir()
    (root / "text" / "a.txt").write_text("the cat sat on a mat and saw another cat that sat there too\n" * 300)
    (root / "text" / "valid.txt").write_text("a dog saw the cat\n" * 80)
    changes = [f"{k}={v}" for k, v in WIDTH.items()] + ["vocab_size=280", "context=32", "steps=20", "held_out=0.1"]
    settings = LM_SIZES["chibi"].override(
        [*changes, "warmup_steps=2", "log_every=10", "evaluate_every=10", "checkpoint_every=10"]
    )
    task = train_language_model(settings, root / "run", [root / "text"], [root / "text" / "valid.txt"])
    write_language_model(task, root / "run", root / "zoo" / "lm-tiny", "a test")
    return root


def config(**fields: Any) -> GPT2DTConfig:
    return GPT2DTConfig(**{**WIDTH, "backbone": "lm-tiny", **fields})


def chibit(**fields: Any) -> GPT2DTConfig:
    small = {"max_ep_len": 32, "centroids": 12, "lm_chunk": 16, "cosine_decay_steps": 8, "lm_decay_steps": 8}
    return config(**{**PRESETS["wikipedia"], **small, **fields})


def recipe(model: Any, steps: int = 12) -> Recipe:
    return Recipe(
        agent_id="gpt2-dt-test",
        model=model,
        data=DataConfig(dataset="coins", context=2, rtg_scale=1.0),
        train=TrainConfig(
            steps=steps, batch_size=8, warmup_steps=2, checkpoint_every=4, log_every=2, lr=1e-2, precision="fp32"
        ),
        eval=EvalConfig(env="tests/Counting-v0", target_return=1.0, every=0),
    )


def started(model: Any) -> LanguageDT:
    found = make_agent(model=model).model
    assert isinstance(found, LanguageDT)
    found.begin_training(fresh=True)
    return found
