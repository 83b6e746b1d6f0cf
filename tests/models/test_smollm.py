"""SmolLM-DT and SmolLM-DTMA: everything that other language agents do, on the blocks of a Llama."""

from __future__ import annotations

import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import LLAMA, make_agent, random_batch
from pydantic import ValidationError

from agentzoo.agent import Agent
from agentzoo.errors import ConfigError
from agentzoo.hub.card import card_text
from agentzoo.models._language_dt import LanguageDT
from agentzoo.models.gpt2_dt import GPT2DTConfig
from agentzoo.models.smollm_dt import SmolLMDTConfig
from agentzoo.models.smollm_dtma import SmolLMDTMAConfig
from agentzoo.nn.base import parameter_count
from agentzoo.nn.language.backbone import LanguageBackbone
from agentzoo.nn.language.pretrained import load_backbone
from agentzoo.nn.markov import head_matrix, layer_statistics
from agentzoo.recipe import Recipe, load_recipe
from agentzoo.research.analysis.head_report import markov_report, random_network
from agentzoo.research.analysis.importance import head_importance
from agentzoo.research.analysis.layers import attention_layers
from agentzoo.research.analysis.maps import attention_maps, mean_looks
from agentzoo.research.tiny_gguf import TINY, write_tiny_gguf
from agentzoo.store.files import sha256
from agentzoo.store.tensors import read_tensors
from agentzoo.training.log import read_log
from agentzoo.training.loop import train
from models.cases import coin_episodes
from models.language_cases import recipe

SIZES: dict[str, Any] = {
    **{name: value for name, value in TINY._asdict().items() if value is not None and name != "architecture"},
    "n_layers": 1,
    "timestep_rank": 4,
}


@pytest.fixture
def backbone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    path = tmp_path / "tiny.gguf"
    write_tiny_gguf(path)
    (tmp_path / "text.txt").write_text("ab cd a b abcd a " * 200)
    monkeypatch.setenv("AGENTZOO_TEXT", str(tmp_path / "text.txt"))
    return str(path)


def test_the_first_layers_of_the_file_are_the_agent_s(backbone: str) -> None:
    agent = make_agent(model=SmolLMDTConfig(**SIZES, backbone=backbone))
    model = agent.model
    assert isinstance(model, LanguageDT)
    model.begin_training(fresh=True)
    found = load_backbone(backbone)
    state = model.backbone.state_dict()
    assert all(torch.equal(value, found.blocks[name]) for name, value in state.items())
    assert len(model.backbone.blocks) == 1 < found.sizes.n_layers


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"adaptation": "lora", "n_layers": 2},
        {"adaptation": "frozen", "start": "shuffled"},
        {"cosine_weight": 0.1, "lm_weight": 0.2, "lm_chunk": 8, "centroids": 4},
    ],
    ids=["whole", "lora", "frozen", "language"],
)
@pytest.mark.parametrize("kind", [SmolLMDTConfig, SmolLMDTMAConfig])
def test_a_run_trains_and_pins_the_file_it_began_with(
    kind: type[SmolLMDTConfig], fields: dict[str, Any], backbone: str, tmp_path: Path
) -> None:
    model = kind(**{**SIZES, "backbone": backbone, **fields})
    train(recipe(model, steps=6), tmp_path / "run", coin_episodes(), device="cpu")
    kept = Recipe.from_json((tmp_path / "run" / "train_config.json").read_text(), "kept").model
    assert kept.model_dump()["backbone_sha256"] == sha256(Path(backbone))
    rows = read_log(tmp_path / "run")
    assert [row["step"] for row in rows] == ["2", "4", "6"]
    assert all(math.isfinite(float(row["loss"])) for row in rows)
    tensors, _ = read_tensors(tmp_path / "run" / "model.safetensors")
    assert not any("language" in name or "lora" in name for name in tensors)
    found = load_backbone(backbone)
    moved = not torch.equal(tensors["backbone.blocks.0.attn.qkv.weight"], found.blocks["blocks.0.attn.qkv.weight"])
    assert moved == (fields.get("adaptation") != "frozen" or "start" in fields)


def test_a_finished_agent_needs_neither_its_backbone_nor_what_reads_it(backbone: str, tmp_path: Path) -> None:
    agent = make_agent(model=SmolLMDTMAConfig(**SIZES, backbone=backbone, adaptation="lora"))
    agent.model.begin_training(fresh=True)
    folder = agent.save_pretrained(tmp_path / "agent")
    Path(backbone).unlink()
    code = (
        "import sys; from agentzoo.agent import Agent; import numpy as np; "
        f"agent = Agent.from_pretrained({str(folder)!r}); "
        "print(*agent.predict(np.ones(3, np.float32), deterministic=True)[0].tolist()); "
        "print([m for m in ('transformers', 'gguf', 'tokenizers') if m in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    action, modules = ran.stdout.strip().split("\n")
    expected, _ = agent.predict(np.ones(3, np.float32), deterministic=True)
    np.testing.assert_allclose([float(one) for one in action.split()], expected, atol=1e-5)
    assert modules == "[]"


def test_another_file_than_the_recipe_was_made_with_is_refused(backbone: str) -> None:
    config = SmolLMDTConfig(**SIZES, backbone=backbone).pinned()
    write_tiny_gguf(Path(backbone), seed=1)
    model = make_agent(model=config).model
    with pytest.raises(ConfigError, match=r"has sha256 .* the recipe was made with"):
        model.begin_training(fresh=True)


def test_a_llama_is_for_its_own_families(backbone: str) -> None:
    model = make_agent(model=GPT2DTConfig(backbone=backbone)).model
    with pytest.raises(ConfigError, match="is of architecture 'llama'; train an agent of family smollm-dt, "):
        model.begin_training(fresh=True)


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"n_kv_heads": 4}, "n_kv_heads 4 must divide n_heads 6"),
        ({"embed_dim": 30}, "rotary positions need heads of even size"),
        ({"start": "shuffled"}, "start=shuffled shuffles a backbone's weights"),
        ({"positions": "own"}, "only gpt2 has a position table"),
    ],
)
def test_settings_that_do_not_fit_together_are_refused(fields: dict[str, Any], says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        SmolLMDTConfig(**{**LLAMA, **fields})


def test_the_recipe_s_network_is_smollm2_s_first_three_layers() -> None:
    config = load_recipe("smollm-dt-hopper-medium").model
    assert isinstance(config, SmolLMDTConfig)
    with torch.device("meta"):
        assert parameter_count(LanguageBackbone(config.sizes())) == 10_620_864


def test_hidden_steps_change_nothing_to_the_last_bit() -> None:
    agent = make_agent(model=SmolLMDTConfig(**LLAMA), context=6)
    batch = random_batch(agent.config.io, [2, 6])
    noisy = replace(batch, observations=torch.where(batch.valid[..., None], batch.observations, torch.tensor(9.0)))
    with torch.no_grad():
        assert torch.equal(agent.model.act(batch), agent.model.act(noisy))


def test_fresh_gates_change_nothing() -> None:
    plain, gated = (make_agent(model=kind(**LLAMA)) for kind in (SmolLMDTConfig, SmolLMDTMAConfig))
    batch = random_batch(plain.config.io, [4, 2, 3])
    with torch.no_grad():
        torch.testing.assert_close(gated.model.act(batch), plain.model.act(batch), atol=1e-6, rtol=0)
    with pytest.raises(ValidationError, match="the gate of a single head is always 1"):
        SmolLMDTMAConfig(**{**LLAMA, "n_heads": 1, "n_kv_heads": 1})


def test_a_markov_report_takes_the_rotation_into_account() -> None:
    """At distance d the score of a query q and a key k is q A k, A as reported."""
    network = random_network(TINY._replace(n_layers=1))
    (layer,) = attention_layers(network)
    tokens = torch.randn(1, 9, 32, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        scores = layer.scores(tokens)[0] * 8**0.5
        for distance in (0, 3):
            assert layer.rotary is not None
            turn = layer.rotary.matrix(distance, 8)
            for head in range(4):
                matrix = head_matrix(layer.qkv, 4, head, turn).float()
                expected = tokens[0, 8] @ matrix @ tokens[0, 8 - distance]
                torch.testing.assert_close(scores[head, 8, 8 - distance], expected, atol=1e-5, rtol=1e-4)
    here, back = (markov_report(network, distance=distance) for distance in (0, 3))
    assert [one.ratio for one in here.heads] == [one.ratio for one in layer_statistics(layer.qkv, 4)]
    assert here.heads != back.heads
    assert back.counted_in() == ", rotated as for keys 3 tokens back"
    assert back.matrix() == "W_q R(3) W_k^T"


def test_heads_that_share_keys_matter_each_for_themselves() -> None:
    agent = make_agent(model=SmolLMDTConfig(**LLAMA))
    found = head_importance(agent, random_batch(agent.config.io, [4, 4, 4]))
    assert len(found.mean) == 2
    assert all(len(row) == 6 == len(set(row)) for row in found.mean)


def test_a_card_names_the_model_and_its_file(tmp_path: Path) -> None:
    named = SmolLMDTConfig(**LLAMA, backbone="smollm2-135m-instruct")
    card = card_text(make_agent(model=named).save_pretrained(tmp_path / "a"))
    assert "started as the first 2 layers of SmolLM2-135M-Instruct (4-bit file), which had learned" in card
    other = SmolLMDTConfig(**LLAMA, backbone="smollm2-135m-instruct", start="shuffled")
    card = card_text(make_agent(model=other).save_pretrained(tmp_path / "b"))
    assert "the entries of each matrix shuffled so that no language is left" in card
    loaded = Agent.from_pretrained(tmp_path / "b").config
    assert isinstance(loaded.model, SmolLMDTConfig)
    assert loaded.license == "apache-2.0"  # SmolLM2's
    assert make_agent(model=SmolLMDTConfig(**LLAMA)).config.license == "mit"


@pytest.mark.parametrize("name", ["smollm-dt", "smollm-dtma"])
@pytest.mark.parametrize("task", ["hopper-medium", "hopper-medium-replay", "pointmaze-medium"])
def test_twins_differ_in_their_backbone_only(name: str, task: str) -> None:
    one, twin = load_recipe(f"{name}-{task}"), load_recipe(f"{name}-{task}-scratch")
    assert {field for field, value in one.model if getattr(twin.model, field) != value} == {"backbone"}
    assert (one.data, one.train, one.eval) == (twin.data, twin.train, twin.eval)


def test_looks_are_means_of_the_attention_maps_of_the_longest_windows() -> None:
    agent = make_agent(model=SmolLMDTConfig(**LLAMA))
    windows = random_batch(agent.config.io, [4, 2, 4])
    found = mean_looks(agent, windows, causal=True)
    maps = [attention_maps(agent, windows.map(lambda part: part[i : i + 1])) for i in (0, 2)]  # noqa: B023
    rows = np.mean([[layer[:, 10] for layer in one] for one in maps], axis=0)  # (layers, heads, tokens)
    for one in found:
        row = rows[one.layer, one.head]
        assert one.on_itself == pytest.approx(row[10], abs=1e-6)
        assert one.on_its_step == pytest.approx(row[9:].sum(), abs=1e-6)
        assert one.steps_back == pytest.approx((row * (3 - np.arange(12) // 3)).sum(), abs=1e-5)
    assert len(found) == 12
