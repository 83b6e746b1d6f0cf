"""GPT2-P: the penalty that holds down the gates of Markov heads."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from conftest import make_agent, random_batch
from pydantic import ValidationError

from agentzoo.errors import ConfigError
from agentzoo.models.dtma import DTMAConfig
from agentzoo.models.gpt2_dtma import GPT2DTMAConfig
from agentzoo.models.gpt2_p import GPT2P, GPT2PConfig
from agentzoo.nn.base import ModelConfig
from agentzoo.nn.language.pretrained import load_backbone
from agentzoo.nn.markov import layer_statistics
from agentzoo.recipe import load_recipe
from agentzoo.research.analysis.head_report import markov_report
from agentzoo.training.log import read_log
from agentzoo.training.loop import train
from models.cases import coin_episodes
from models.gated_cases import BACKBONE, SMALL, gated, gates_of, recipe, with_random_gates

# -- the penalty of GPT2-P ---------------------------------------------------------------------------------------------


def test_the_penalty_is_what_the_gates_give_to_the_named_heads() -> None:
    config = GPT2PConfig(**SMALL, markov_heads=(0, 2), penalty_weight=0.5, dropout=0.0, embed_dropout=0.0)
    model = with_random_gates(gated(config))
    batch = random_batch(make_agent().config.io, [4, 2])
    seen: list[torch.Tensor] = []
    handle = model.attentions[0].register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    terms = model.loss(batch)
    handle.remove()
    weights = gates_of(model)[0].weights(seen[0])  # (2, 12, 4)
    real = torch.cat([weights[0], weights[1, :6]])  # by hand: four steps of three tokens, and two
    expected = 0.5 * (real[:, 0].mean() + real[:, 2].mean())
    torch.testing.assert_close(terms["penalty"], expected)
    torch.testing.assert_close(torch.stack(list(model.figures().values())), real.mean(0))


def test_the_penalty_moves_only_gates_of_its_own_layer_and_what_feeds_them() -> None:
    model = with_random_gates(gated(GPT2PConfig(**SMALL, markov_heads=(1,))))
    model.loss(random_batch(make_agent().config.io, [4, 2]))["penalty"].backward()
    grads = [gate.weight.grad for gate in gates_of(model)]
    assert grads[0] is not None
    assert float(grads[0].abs().max()) > 0
    assert all(grad is None or not grad.any() for grad in grads[1:])
    assert model.backbone.get_parameter("blocks.0.up.weight").grad is None


def test_a_penalty_lowers_the_gates_of_its_heads(tmp_path: Path) -> None:
    def last_gate(config: ModelConfig, folder: Path) -> float:
        train(recipe(config, steps=60), folder, coin_episodes(), device="cpu")
        return float(read_log(folder)[-1]["gate_1"])

    sizes: dict[str, Any] = {**SMALL, "dropout": 0.0}
    held = last_gate(GPT2PConfig(**sizes, markov_heads=(1,), penalty_weight=1.0), tmp_path / "held")
    free = last_gate(DTMAConfig(**sizes), tmp_path / "free")
    assert held < 0.5 * free


def test_a_penalty_of_the_last_layer_counts_the_tokens_that_layer_reads() -> None:
    model = with_random_gates(gated(GPT2PConfig(**SMALL, markov_heads=(0,), penalty_layers=(2,), penalty_weight=1.0)))
    terms = model.loss(random_batch(make_agent().config.io, [4, 2]))
    assert 0.0 < float(terms["penalty"].detach()) < 1.0


def test_markov_heads_are_found_in_the_backbone(backbone: str) -> None:
    model = gated(GPT2PConfig(**BACKBONE, backbone=backbone, adaptation="lora"))
    assert isinstance(model, GPT2P)
    assert model.penalized == {}
    model.begin_training(fresh=True)
    assert model.penalized == {0: (1,)}


def test_a_training_notes_what_the_backbones_heads_are(backbone: str) -> None:
    """So that gates are counted for the same heads however training went."""
    made = GPT2DTMAConfig(**BACKBONE, backbone=backbone)
    pinned = made.pinned()
    assert pinned.markov_at_start is not None
    assert [share for share, _ in pinned.markov_at_start].index(1.0) == 1
    found = layer_statistics(load_backbone(backbone).blocks["blocks.0.attn.qkv.weight"], BACKBONE["n_heads"])
    assert [ratio for _, ratio in pinned.markov_at_start] == [pytest.approx(one.ratio, abs=1e-3) for one in found]
    assert pinned.backbone_sha256 is not None
    assert pinned.pinned() == pinned == GPT2DTMAConfig.model_validate_json(pinned.model_dump_json())
    assert pinned.unpinned() == made
    assert DTMAConfig(**SMALL).pinned() == DTMAConfig(**SMALL)


def test_a_head_with_one_entry_below_zero_is_not_noted_as_all_positive() -> None:
    """Of 2,048 entries, so that the share rounds to 1."""
    dim = 2048
    query = torch.rand(dim, dim, generator=torch.Generator().manual_seed(0))
    key = query.clone()
    key[: dim // 2, 0] *= -1.0  # of the first head
    blocks = {"blocks.0.attn.qkv.weight": torch.cat((query, key, query))}
    backbone: Any = SimpleNamespace(blocks=blocks, sha256=lambda: "0" * 64)
    noted = GPT2DTMAConfig(embed_dim=dim, n_heads=2).records_of(backbone)["markov_at_start"]
    assert [share for share, _ in noted] == [0.999, 1.0]


def test_the_recipe_of_gpt2_p_holds_down_the_head_of_lm_mini_that_is_nearest_to_markov() -> None:
    model = load_recipe("gpt2-p-hopper-medium").model
    assert isinstance(model, GPT2PConfig)
    assert markov_report("lm-mini").counted()[:2] == (model.markov_heads, "nearest")


def test_a_penalty_without_markov_heads_is_refused_before_training(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"layer 0 has no Markov head to penalize: ratios .* Name the heads"):
        train(recipe(GPT2PConfig(**SMALL)), tmp_path, coin_episodes(), device="cpu")


@pytest.mark.parametrize(
    ("fields", "problem"),
    [({"markov_heads": (4,)}, "below n_heads 4"), ({"penalty_layers": (3,)}, "below n_layers 3")],
)
def test_a_penalty_of_heads_that_are_not_there_is_refused(fields: Any, problem: str) -> None:
    with pytest.raises(ValidationError, match=problem):
        GPT2PConfig(**SMALL, **fields)
