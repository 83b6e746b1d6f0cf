"""GPT2-DT and CLIP-DT: what comes from the backbone, and what is trained."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import make_agent, random_batch

from agentzoo.models._language_dt import stretch
from agentzoo.models.clip_dt import CLIPDTConfig
from agentzoo.models.gpt2_dt import GPT2DTConfig
from agentzoo.nn.base import parameter_count
from agentzoo.nn.language.backbone import LanguageBackbone
from agentzoo.nn.language.lora import LoRALinear
from agentzoo.nn.language.pretrained import load_backbone
from agentzoo.nn.tokens import timestep_table
from agentzoo.recipe import TrainConfig
from agentzoo.training.loop import build_model, train
from agentzoo.training.optim import make_optimizer
from models.cases import coin_episodes
from models.language_cases import chibit, config, recipe, started

# -- what comes from the backbone ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["lm-tiny", "zoo/lm-tiny", "folder"])
def test_blocks_and_positions_are_the_backbones(name: str, zoo: Path) -> None:
    found = load_backbone(str(zoo / "zoo" / "lm-tiny"))
    name = str(zoo / "zoo" / "lm-tiny") if name == "folder" else name
    model = started(config(backbone=name, positions="own", max_ep_len=32))
    state = model.backbone.state_dict()
    assert state.keys() == found.blocks.keys()
    assert all(torch.equal(state[key], found.blocks[key]) for key in state)
    assert found.positions is not None
    assert torch.equal(model.embed_timestep.weight, found.positions)


def test_a_twin_from_scratch_has_the_same_size_and_other_weights(zoo: Path) -> None:
    pretrained, scratch = started(config()), started(config(backbone=None))
    assert parameter_count(pretrained) == parameter_count(scratch)
    key = "backbone.blocks.1.up.weight"
    assert not torch.allclose(pretrained.state_dict()[key], scratch.state_dict()[key], atol=1e-3)
    for name in ("embed_obs.up.weight", "embed_timestep.weight", "predict_action.2.weight"):  # same seed, same start
        assert torch.equal(pretrained.state_dict()[name], scratch.state_dict()[name])


def test_blocks_of_chibit_have_the_published_size() -> None:
    """596 thousand numbers (arXiv:2201.12122); GPT-2 small 85.06 million."""
    with torch.device("meta"):
        assert parameter_count(LanguageBackbone(GPT2DTConfig().sizes())) == 595_072
        gpt2 = GPT2DTConfig(embed_dim=768, n_layers=12, n_heads=12, activation="gelu_new")
        assert parameter_count(LanguageBackbone(gpt2.sizes())) == 85_056_000
        clip = CLIPDTConfig(embed_dim=512, n_layers=12, n_heads=8)
        assert parameter_count(LanguageBackbone(clip.sizes())) == 37_829_632


def test_short_position_tables_are_repeated_without_their_first_rows() -> None:
    table = torch.arange(5.0)[:, None]
    assert stretch(table, 3).flatten().tolist() == [0, 1, 2]
    assert stretch(table, 12).flatten().tolist() == [0, 1, 2, 3, 4, 2, 3, 4, 2, 3, 4, 2]


@pytest.mark.parametrize(("maps", "head"), [("linear", "mlp"), ("mlp", "linear")])
def test_input_maps_and_heads(maps: Any, head: Any) -> None:
    agent = make_agent(model=config(input_maps=maps, head=head))
    model: Any = agent.model
    batch = random_batch(agent.config.io, [4, 2])
    with torch.no_grad():
        x = batch.returns_to_go[..., None]
        if maps == "mlp":
            h = x @ model.embed_return.up.weight.T + model.embed_return.up.bias
            expected = torch.nn.functional.gelu(h) @ model.embed_return.mix.weight.T
            expected = expected + model.embed_return.mix.bias + h
            torch.testing.assert_close(model.embed_return(x), expected)
        model.predict_action[-1].bias.fill_(3.0) if head == "mlp" else model.predict_action.bias.fill_(3.0)
        out = model(batch)
    assert bool((out.abs() <= 1).all()) == (head == "linear")  # tanh or none


def test_a_tied_head_is_the_action_map_transposed() -> None:
    fields = {"input_maps": "linear", "head": "linear", "tie_action_head": True}
    agent = make_agent(model=config(**fields))
    model: Any = agent.model
    assert not any(name.startswith("predict_action") for name, _ in model.named_parameters())
    batch = random_batch(agent.config.io, [4])
    with torch.no_grad():
        time = model.embed_timestep(batch.timesteps).repeat_interleave(3, dim=1)
        hidden = model.backbone(model._inputs(batch) + time)[:, 1::3]
        torch.testing.assert_close(model(batch), torch.tanh(hidden @ model.embed_action.weight))


def test_a_timestep_table_of_low_rank() -> None:
    agent = make_agent(model=config(backbone=None, timestep_rank=3))
    model: Any = agent.model
    with torch.no_grad():
        table = model.embed_timestep(torch.arange(agent.config.model.max_ep_len))
    rows, spread = (parameter.detach() for parameter in model.embed_timestep.parameters())
    torch.testing.assert_close(table, rows @ spread.T)
    assert int(torch.linalg.matrix_rank(table)) == 3
    assert 0.5 < float(table.std()) < 2.0  # a full table is drawn with a deviation of 1


def test_timestep_tables_are_as_wide_as_asked() -> None:
    torch.manual_seed(0)
    for rank in (None, 16):
        table = timestep_table(2000, 64, rank, std=0.02)
        assert float(table(torch.arange(2000)).detach().std()) == pytest.approx(0.02, rel=0.1)


def test_fresh_blocks_are_as_wide_as_gpt2s() -> None:
    """N(0, 0.02²), and where a branch ends narrower by the root of how many branches there are: 16 of 8 layers."""
    torch.manual_seed(0)
    for name, parameter in LanguageBackbone(GPT2DTConfig(embed_dim=128, n_layers=8).sizes()).named_parameters():
        if parameter.ndim == 2:
            expected = 0.02 / 4 if name.endswith(("proj.weight", "down.weight")) else 0.02
            assert float(parameter.detach().std()) == pytest.approx(expected, rel=0.05), name


def test_each_dropout_has_its_own_probability() -> None:
    settings = {"dropout": 0.1, "attention_dropout": 0.2, "embed_dropout": 0.3, "lora_dropout": 0.4}
    model: Any = make_agent(model=config(adaptation="lora", **settings)).model
    assert model.embed_dropout.p == 0.3
    for block in model.backbone.blocks:
        assert (block.dropout.p, block.attn.attn_dropout.p, block.attn.qkv.lora_dropout.p) == (0.1, 0.2, 0.4)


# -- what is trained -------------------------------------------------------------------------------------------------

MAPS = {"embed_return", "embed_obs", "embed_action", "embed_ln", "embed_timestep", "predict_action"}


MOVED: dict[str, Callable[[str], bool]] = {
    "full": lambda name: True,
    "frozen": lambda name: False,
    "part": lambda name: ".up." in name or ".down." in name,
    "ln_only": lambda name: "ln_" in name,
    "lora": lambda name: "attn.qkv" in name,  # the bias, and the weight as it is saved: merged
}


@pytest.mark.parametrize("adaptation", sorted(MOVED))
def test_adaptation_says_which_tensors_change(adaptation: Any, zoo: Path, tmp_path: Path) -> None:
    """Of the blocks; the maps around them are always trained."""
    model = config(adaptation=adaptation)
    before = build_model(recipe(model), coin_episodes())
    before.begin_training(fresh=True)
    start = {name: value.clone() for name, value in before.state_dict().items()}
    state = train(recipe(model, steps=10), tmp_path, coin_episodes(), device="cpu").state_dict()
    moved = {name for name, value in start.items() if not torch.equal(value, state[name])}
    blocks = {name.removeprefix("backbone.") for name in start if name.startswith("backbone.")}
    assert {name for name in blocks if f"backbone.{name}" in moved} == {*filter(MOVED[adaptation], blocks)}
    assert {name.split(".")[0] for name in moved} - {"backbone"} == MAPS
    assert "lora" not in "".join(state)


def test_low_rank_updates_merge_into_a_plain_layer() -> None:
    torch.manual_seed(0)
    layer = LoRALinear(6, (6, 2, 2), rank=2, alpha=4.0, dropout=0.0)
    x = torch.randn(5, 6)
    plain = torch.nn.Linear(6, 10)
    plain.load_state_dict(layer.state_dict())
    torch.testing.assert_close(layer(x), plain(x))  # B starts at zero
    torch.nn.init.normal_(layer.lora_b)
    update = torch.cat([b @ a for a, b in zip(layer.lora_a, layer.lora_b.split((6, 2, 2)), strict=True)])
    torch.testing.assert_close(layer(x), plain(x) + 2.0 * x @ update.T)
    plain.load_state_dict(layer.state_dict())
    torch.testing.assert_close(layer(x), plain(x), atol=1e-5, rtol=0)
    again = LoRALinear(6, (6, 2, 2), rank=2, alpha=4.0, dropout=0.0)
    again.load_state_dict(layer.state_dict())
    torch.testing.assert_close(again(x), layer(x), atol=1e-5, rtol=0)


def test_low_rank_sizes_are_those_of_lamo() -> None:
    """884,736 numbers in A and B and 27,648 biases for GPT-2 small at rank 16 (spec, section 6)."""
    big = GPT2DTConfig(embed_dim=768, n_layers=12, n_heads=12, adaptation="lora")
    with torch.device("meta"):
        from agentzoo.registry import get_family

        model = get_family("gpt2-dt").model(big, make_agent(model=config()).config.io)
    trained = [(n, p.numel()) for n, p in model.named_parameters() if p.requires_grad and n.startswith("backbone.")]
    assert sum(size for name, size in trained if "lora_" in name) == 884_736
    assert sum(size for name, size in trained if "lora_" not in name) == 27_648


def test_the_backbone_has_its_own_rate_and_decay(zoo: Path, tmp_path: Path) -> None:
    model = started(config(backbone_lr=0.1, backbone_decays=False))
    groups = make_optimizer(model, TrainConfig(weight_decay=0.3)).param_groups
    found = {(g["weight_decay"], g["scale"]): sum(p.numel() for p in g["params"]) for g in groups}
    assert found == {
        (0.3, 1.0): parameter_count(model) - parameter_count(model.backbone),
        (0.0, 0.1): parameter_count(model.backbone),
    }
    own = started(chibit(backbone_lr=0.1, backbone_decays=False, cosine_weight=0.0, lm_weight=0.0))
    groups = make_optimizer(own, TrainConfig(weight_decay=0.3)).param_groups
    theirs = sum(p.numel() for g in groups if g["scale"] == 0.1 for p in g["params"])
    assert theirs == parameter_count(own.backbone) + parameter_count(own.embed_timestep)
    assert {(g["weight_decay"], g["scale"]) for g in groups} == {(0.3, 1.0), (0.0, 0.1)}
    # Adam's first step moves every weight by about its rate, whatever the gradient
    made = recipe(config(backbone_lr=0.1, backbone_decays=False), steps=1)
    made = made.replace(train=made.train.model_copy(update={"warmup_steps": 0, "weight_decay": 0.0}))
    state = train(made, tmp_path, coin_episodes(), device="cpu").state_dict()
    fresh = started(config()).state_dict()
    moved = (state["backbone.blocks.0.up.weight"] - fresh["backbone.blocks.0.up.weight"]).abs()
    assert moved.max() == pytest.approx(1e-3, rel=1e-3)
