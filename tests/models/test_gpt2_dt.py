"""GPT2-DT and CLIP-DT: what is trained, what language adds to the loss, and what a finished agent holds."""

from __future__ import annotations

import json
import math
import shutil
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import make_agent, random_batch
from pydantic import ValidationError
from safetensors.torch import save_file
from torch.nn.functional import cross_entropy

from agentzoo.agent import Agent
from agentzoo.config import AgentConfig
from agentzoo.errors import AgentzooError, CheckpointError, ConfigError, TrainingError
from agentzoo.models._language_config import PRESETS
from agentzoo.models._language_dt import LanguageDT, stretch
from agentzoo.models.clip_dt import CLIPDTConfig
from agentzoo.models.gpt2_dt import GPT2DTConfig
from agentzoo.nn.base import parameter_count
from agentzoo.nn.language.cotraining import TEXT_VARIABLE, read_token_chunks
from agentzoo.nn.language.gpt2 import LanguageBackbone
from agentzoo.nn.language.kmeans import cosine_loss, decay, spherical_kmeans
from agentzoo.nn.language.lora import LoRALinear
from agentzoo.nn.language.pretrained import load_backbone
from agentzoo.nn.tokens import timestep_table
from agentzoo.recipe import DataConfig, EvalConfig, Recipe, TrainConfig, load_recipe
from agentzoo.research.pretrain.lm import train_language_model, write_language_model
from agentzoo.research.pretrain.settings import LM_SIZES
from agentzoo.store.tensors import read_tensors
from agentzoo.training.finetune import finetune_recipe, start_from
from agentzoo.training.log import read_log
from agentzoo.training.loop import Hooks, build_model, train
from agentzoo.training.optim import make_optimizer
from agentzoo.types import ActionSpec, IOSpec, ObservationSpec
from models.test_learning import coin_episodes

WIDTH = {"embed_dim": 16, "n_layers": 2, "n_heads": 2}


@pytest.fixture(scope="module")
def lm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A language model of 20 updates in a zoo, beside the text it was trained on."""
    root = tmp_path_factory.mktemp("language")
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


@pytest.fixture
def zoo(lm: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("AGENTZOO_ZOO", str(lm / "zoo"))
    monkeypatch.setenv(TEXT_VARIABLE, str(lm / "text"))
    return lm


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
        train=TrainConfig(steps=steps, batch_size=8, warmup_steps=2, checkpoint_every=4, log_every=2, lr=1e-2),
        eval=EvalConfig(env="tests/Counting-v0", target_return=1.0, every=0),
    )


def started(model: Any) -> LanguageDT:
    found = make_agent(model=model).model
    assert isinstance(found, LanguageDT)
    found.begin_training(fresh=True)
    return found


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
    layer = LoRALinear(6, rank=2, alpha=4.0, dropout=0.0)
    x = torch.randn(5, 6)
    plain = torch.nn.Linear(6, 18)
    plain.load_state_dict(layer.state_dict())
    torch.testing.assert_close(layer(x), plain(x))  # B starts at zero
    torch.nn.init.normal_(layer.lora_b)
    update = torch.cat([layer.lora_b[i] @ layer.lora_a[i] for i in range(3)])
    torch.testing.assert_close(layer(x), plain(x) + 2.0 * x @ update.T)
    plain.load_state_dict(layer.state_dict())
    torch.testing.assert_close(layer(x), plain(x), atol=1e-5, rtol=0)
    again = LoRALinear(6, rank=2, alpha=4.0, dropout=0.0)
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


# -- language losses -------------------------------------------------------------------------------------------------


def test_cosine_loss_by_hand() -> None:
    tokens = torch.tensor([[[3.0, 0.0], [0.0, 2.0], [-1.0, -1.0]]])
    centroids = torch.tensor([[5.0, 0.0], [1.0, 1.0]])
    valid = torch.tensor([[True, True, False]])
    # nearest: (3,0) is the first's direction: 1; (0,2) against (1,1): cos 45°
    assert float(cosine_loss(tokens, centroids, valid)) == pytest.approx(-(1 + math.sqrt(0.5)) / 2)
    assert float(cosine_loss(7 * tokens, 0.1 * centroids, valid)) == pytest.approx(-(1 + math.sqrt(0.5)) / 2)
    assert float(cosine_loss(centroids[None] * 2, centroids, torch.ones(1, 2, dtype=torch.bool))) == pytest.approx(-1)


def test_cosine_loss_is_in_float32_under_autocast() -> None:
    """Of 3,700 tokens bfloat16 counts 3,696."""
    tokens, centroids = torch.randn(37, 100, 8), torch.randn(5, 8)
    valid = torch.ones(37, 100, dtype=torch.bool)
    plain = cosine_loss(tokens, centroids, valid)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(cosine_loss(tokens, centroids, valid), plain)
        half = cosine_loss(tokens.bfloat16(), centroids, valid)
    assert half.dtype == torch.float32
    assert torch.equal(half, cosine_loss(tokens.bfloat16().float(), centroids, valid))


@pytest.mark.parametrize(("step", "weight"), [(0, 0.99331), (2500, 0.5), (4999, 0.00671), (5000, 0.0), (10**6, 0.0)])
def test_language_weights_fall_as_published(step: int, weight: float) -> None:
    assert decay(step, 5000) == pytest.approx(weight, abs=5e-6)
    assert decay(step, None) == 1.0


def test_kmeans_finds_separate_directions() -> None:
    torch.manual_seed(0)
    directions = torch.eye(4, 6)
    points = (directions.repeat_interleave(25, 0) + 0.05 * torch.randn(100, 6)) * (torch.rand(100, 1) * 9 + 0.1)
    found = spherical_kmeans(points, 4, torch.Generator().manual_seed(0))
    nearest = (found @ directions.T).max(dim=1)
    assert sorted(nearest.indices.tolist()) == [0, 1, 2, 3]
    assert nearest.values.min() > 0.99
    torch.testing.assert_close(found.norm(dim=1), torch.ones(4))
    assert torch.equal(found, spherical_kmeans(points, 4, torch.Generator().manual_seed(0)))
    alone = torch.nn.functional.normalize(points.reshape(4, 25, 6)[0], dim=-1).mean(0)  # of the first cluster's rows
    torch.testing.assert_close(found[nearest.indices.tolist().index(0)], alone / alone.norm(), atol=1e-5, rtol=0)


def test_kmeans_starts_far_apart() -> None:
    """Of twenty narrow clusters none is left out, which Lloyd's rounds could not mend."""
    torch.manual_seed(0)
    directions = torch.eye(20)
    points = directions.repeat_interleave(5, 0) + 1e-3 * torch.randn(100, 20)
    found = spherical_kmeans(points, 20, torch.Generator().manual_seed(0))
    assert (found @ directions.T).amax(0).min() > 0.99


def test_a_centroid_without_rows_begins_again_at_the_row_farthest_from_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = torch.tensor([[1.0, 0.0], [0.99, 0.05], [0.98, 0.1], [0.0, 1.0], [-1.0, 0.2]])
    monkeypatch.setattr("agentzoo.nn.language.kmeans._plus_plus", lambda points, *_: points[[0, 0, 3]].clone())
    found = spherical_kmeans(rows, 3, torch.Generator())
    points = torch.nn.functional.normalize(rows, dim=-1)
    assert (points @ found.T).amax(1).min() > 0.99  # the last row, too


def test_the_loss_is_the_weighted_sum_of_its_parts(zoo: Path) -> None:
    """At update 4 of 8 both language weights are half; the text part is transformers' own loss of the same chunk."""
    from transformers import GPT2LMHeadModel

    model = started(chibit(dropout=0.0, attention_dropout=0.0, embed_dropout=0.0, cosine_weight=0.1, lm_weight=0.2))
    assert model.language is not None
    batch = random_batch(model.io, [4, 2, 3])
    model.begin_step(4, 12)
    torch.manual_seed(5)
    terms = model.loss(batch)
    assert list(terms) == ["action_mse", "cosine", "language"]
    torch.manual_seed(5)
    text = model.language.text
    assert text is not None
    ids = text[torch.randint(len(text), (2,))].long()
    peer = GPT2LMHeadModel.from_pretrained(zoo / "zoo" / "lm-tiny").eval()
    with torch.no_grad():
        logits = peer(input_ids=ids[:, :-1]).logits
        nats = float(cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten()))
        unit = torch.nn.functional.normalize(model._inputs(batch), dim=-1)
        near = (unit @ model.language.centroids.T).amax(-1)  # type: ignore[union-attr, operator]
        cosine = -float(near[batch.valid.repeat_interleave(3, dim=1)].mean())
    assert terms["language"].item() == pytest.approx(0.2 * 0.5 * nats, rel=1e-5)
    assert terms["cosine"].item() == pytest.approx(0.1 * 0.5 * cosine, rel=1e-5)
    assert cosine < -0.2
    model.begin_step(8, 12)
    assert [v.item() for v in model.loss(batch).values()][1:] == [0.0, 0.0]


def test_language_losses_reach_the_input_maps_and_the_token_table(zoo: Path) -> None:
    """The gradient of the token table, which is read from and compared with, is transformers' own."""
    from transformers import GPT2LMHeadModel

    model: Any = started(chibit(dropout=0.0, attention_dropout=0.0, embed_dropout=0.0, lm_decay_steps=None))
    terms = model.loss(random_batch(model.io, [4, 2, 3]))
    terms["cosine"].backward()
    assert model.embed_obs.weight.grad.any()

    model.language.text = model.language.text[:1]  # so that it is known which chunk is drawn
    model.loss(random_batch(model.io, [4, 2, 3]))["language"].backward()
    ids = model.language.text.long()
    peer = GPT2LMHeadModel.from_pretrained(zoo / "zoo" / "lm-tiny").eval()
    logits = peer(input_ids=ids[:, :-1]).logits
    cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten()).backward()
    expected = model.config.lm_weight * peer.transformer.wte.weight.grad
    torch.testing.assert_close(model.language.tokens.grad, expected, atol=1e-6, rtol=1e-4)


def test_text_passes_the_dropout_of_inputs(zoo: Path) -> None:
    model = started(chibit(dropout=0.0, attention_dropout=0.0, embed_dropout=0.5))
    assert model.language is not None
    assert model.language.text is not None
    model.language.text = model.language.text[:1]  # the same chunk is drawn each time
    batch = random_batch(model.io, [4, 2])

    def nats(seed: int) -> float:
        torch.manual_seed(seed)
        return float(model.loss(batch)["language"].detach())

    model.train()
    assert nats(0) != nats(1)
    model.eval()
    assert nats(0) == nats(1)


def test_centroids_are_of_the_token_table(zoo: Path) -> None:
    model = started(chibit(lm_weight=0.0))
    assert model.language is not None
    assert model.language.tokens is None
    found = load_backbone("lm-tiny")
    rows = torch.nn.functional.normalize(found.tokens, dim=-1)
    centroids = model.language.centroids
    assert centroids is not None
    assert centroids.shape == (12, 16)
    assert (rows @ centroids.T).amax(1).mean() > (rows @ torch.nn.functional.normalize(torch.randn(12, 16)).T).amax(
        1
    ).mean()


def test_text_is_what_the_language_model_was_trained_on(zoo: Path) -> None:
    model = started(chibit())
    assert model.language is not None
    assert model.language.text is not None
    from agentzoo.nn.language.tokenizer import load_tokenizer

    said = load_tokenizer(zoo / "zoo" / "lm-tiny" / "tokenizer.json").decode(model.language.text.flatten().tolist())
    whole = (zoo / "text" / "a.txt").read_text()
    assert "dog" not in said  # the validation file
    assert 0.85 * len(whole) < len(said) < 0.9 * len(whole) + 100  # without its held-out end


def test_text_is_known_by_what_it_holds(zoo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A renamed file is still the one that was trained on; another one of its name is not."""
    text = tmp_path / "text"
    text.mkdir()
    shutil.copy(zoo / "text" / "a.txt", text / "b.txt")
    (text / "a.txt").write_text("a dog saw the cat\n" * 90)
    monkeypatch.setenv(TEXT_VARIABLE, str(text))
    found = load_backbone("lm-tiny")
    monkeypatch.setenv(TEXT_VARIABLE, str(zoo / "text"))
    wanted = read_token_chunks(found, 16)
    monkeypatch.setenv(TEXT_VARIABLE, str(text))
    assert torch.equal(read_token_chunks(found, 16), wanted)
    (text / "b.txt").unlink()
    with pytest.warns(UserWarning, match="none of the 1 files of .* is one that backbone 'lm-tiny' was trained on"):
        read_token_chunks(found, 16)


def test_text_that_is_not_all_there_is_said(zoo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(zoo / "zoo" / "lm-tiny", tmp_path / "lm")
    record = json.loads((tmp_path / "lm" / "corpus.json").read_text())
    record["training"].append({"name": "lost.txt", "bytes": 3, "sha256": "0" * 64})
    (tmp_path / "lm" / "corpus.json").write_text(json.dumps(record))
    with pytest.warns(UserWarning, match=r"was trained on 2 files, of which .* has 1: lost\.txt will not be read"):
        read_token_chunks(load_backbone(str(tmp_path / "lm")), 16)


def test_a_run_goes_on_with_the_text_it_began_with(zoo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = tmp_path / "text"
    text.mkdir()
    shutil.copy(zoo / "text" / "a.txt", text)
    monkeypatch.setenv(TEXT_VARIABLE, str(text))
    made = recipe(chibit(), steps=8)

    def interrupt(step: int) -> None:
        if step == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(made, tmp_path / "run", coin_episodes(), hooks=Hooks(on_step=interrupt), device="cpu")
    (text / "a.txt").write_text("the cat sat on a dog\n" * 300)
    with (
        pytest.warns(UserWarning, match="none of the 1 files"),
        pytest.raises(CheckpointError, match=r"began with other text than \$AGENTZOO_TEXT names now"),
    ):
        train(made, tmp_path / "run", coin_episodes(), device="cpu")
    shutil.copy(zoo / "text" / "a.txt", text)
    train(made, tmp_path / "run", coin_episodes(), device="cpu")


def test_a_checkpoints_own_end_of_text_is_known(zoo: Path, tmp_path: Path) -> None:
    """Of a tokenizer whose documents end with another word than GPT-2's; without any, co-training is refused."""
    shutil.copytree(zoo / "zoo" / "lm-tiny", tmp_path / "lm")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        path = tmp_path / "lm" / name
        path.write_text(path.read_text().replace("<|endoftext|>", "</s>"))
    renamed, first = (read_token_chunks(load_backbone(name), 16) for name in (str(tmp_path / "lm"), "lm-tiny"))
    assert torch.equal(renamed, first)
    settings = json.loads((tmp_path / "lm" / "config.json").read_text())
    (tmp_path / "lm" / "config.json").write_text(json.dumps({**settings, "eos_token_id": None}))
    with pytest.raises(CheckpointError, match=r"lm.: the tokenizer has no '<\|endoftext\|>' .*model\.lm_weight=0"):
        read_token_chunks(load_backbone(str(tmp_path / "lm")), 16)


def test_a_head_of_its_own_is_not_mistaken_for_the_token_table(
    zoo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(zoo / "zoo", tmp_path / "zoo")
    monkeypatch.setenv("AGENTZOO_ZOO", str(tmp_path / "zoo"))
    path = tmp_path / "zoo" / "lm-tiny" / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "tie_word_embeddings": False}))
    with pytest.raises(ConfigError, match=r"has a head of its own .* --set model.lm_weight=0"):
        started(chibit())
    started(chibit(lm_weight=0.0))


@pytest.mark.parametrize("positions", ["own", "fresh"])
def test_every_parameter_has_a_gradient_after_the_language_losses_have_faded(positions: Any, zoo: Path) -> None:
    """Several processes would wait for those that have none."""
    model = started(chibit(lm_decay_steps=2, cosine_decay_steps=2, positions=positions)).train()
    model.begin_step(5, 10)
    terms = model.loss(random_batch(model.io, [4, 2]))
    assert [terms[name].item() for name in ("language", "cosine")] == [0.0, 0.0]
    torch.stack(list(terms.values())).sum().backward()
    assert [name for name, p in model.named_parameters() if p.grad is None] == []


def test_cotraining_goes_on_learning_the_text(zoo: Path, tmp_path: Path) -> None:
    made = recipe(chibit(lm_decay_steps=None, cosine_decay_steps=None, lm_weight=1.0, dropout=0.0), steps=40)
    train(made, tmp_path, coin_episodes(), device="cpu")
    rows = read_log(tmp_path)
    assert float(rows[-1]["language"]) < 0.7 * float(rows[0]["language"])
    assert float(rows[-1]["cosine"]) < float(rows[0]["cosine"])


@pytest.mark.parametrize("positions", ["own", "fresh"])
def test_a_run_with_language_stopped_and_resumed_equals_the_uninterrupted_one(
    positions: Any, zoo: Path, tmp_path: Path
) -> None:
    made = recipe(chibit(positions=positions))
    assert_resumes_exactly(made, tmp_path)


def test_a_low_rank_run_stopped_and_resumed_equals_the_uninterrupted_one(zoo: Path, tmp_path: Path) -> None:
    assert_resumes_exactly(recipe(config(adaptation="lora")), tmp_path)


def assert_resumes_exactly(made: Recipe, folder: Path) -> None:
    def stop(step: int) -> None:
        if step == 6:
            raise KeyboardInterrupt

    train(made, folder / "whole", coin_episodes(), device="cpu")
    with pytest.raises(KeyboardInterrupt):
        train(made, folder / "cut", coin_episodes(), hooks=Hooks(on_step=stop), device="cpu")
    train(made, folder / "cut", coin_episodes(), device="cpu")
    whole, _ = read_tensors(folder / "whole" / "model.safetensors")
    again, _ = read_tensors(folder / "cut" / "model.safetensors")
    assert whole.keys() == again.keys()
    assert all(torch.equal(whole[name], again[name]) for name in whole)


# -- finished agents -------------------------------------------------------------------------------------------------

ALONE = """
import sys, socket, json
class Refused(Exception): pass
class NoLibraries:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("transformers", "tokenizers", "peft"):
            raise Refused(name)
sys.meta_path.insert(0, NoLibraries())
def no_network(*a, **k): raise Refused("network")
socket.socket.connect = socket.getaddrinfo = no_network
for library in ("transformers", "tokenizers"):
    try: __import__(library)
    except Refused: continue
    raise SystemExit(library + " could be imported")
import numpy as np
from agentzoo import Agent
agent = Agent.from_pretrained(sys.argv[1])
actions, state = [], None
for step in range(5):
    action, state = agent.predict(np.full(3, step / 10, np.float32), state, deterministic=True, reward=1.0)
    actions.append(action.tolist())
print(json.dumps(actions))
"""


@pytest.mark.parametrize("fields", [{}, {"adaptation": "lora"}, None])
def test_a_finished_agent_needs_neither_transformers_nor_network_nor_backbone(
    fields: dict[str, Any] | None, zoo: Path, tmp_path: Path
) -> None:
    model = chibit() if fields is None else config(**fields)
    agent = make_agent(model=model)
    agent.model.begin_training(fresh=True)
    for layer in agent.model.modules():
        if isinstance(layer, LoRALinear):
            torch.nn.init.normal_(layer.lora_b, std=0.1)
    folder = agent.save_pretrained(tmp_path / "agent")
    found, _ = read_tensors(folder / "model.safetensors")
    assert not any("language" in name or "lora" in name for name in found)
    environment = {"PATH": "/usr/bin", "AGENTZOO_ZOO": str(tmp_path / "nothing"), "HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", ALONE, str(folder)], capture_output=True, text=True, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    actions, state = [], None
    for step in range(5):
        obs = np.full(3, step / 10, np.float32)
        action, state = agent.predict(obs, state, deterministic=True, reward=1.0)
        actions.append(action)
    np.testing.assert_allclose(json.loads(done.stdout), actions, atol=1e-5)


def test_a_fine_tune_needs_no_backbone(zoo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = recipe(chibit())
    trained = train(made, tmp_path / "run", coin_episodes(), device="cpu")
    agent = Agent(trained, AgentConfig.of(made, trained.io), made)
    agent = Agent.from_pretrained(agent.save_pretrained(tmp_path / "agent"))
    monkeypatch.setenv("AGENTZOO_ZOO", str(tmp_path / "nothing"))
    monkeypatch.delenv(TEXT_VARIABLE)
    again = finetune_recipe(agent, "coins", None, 4, "keep")
    start = start_from(agent, again, coin_episodes())
    assert torch.equal(start.state_dict()["embed_ln.weight"], trained.state_dict()["embed_ln.weight"])
    train(again, tmp_path / "tuned", coin_episodes(), start=start, device="cpu")
    assert "language" not in read_log(tmp_path / "tuned")[0]


@pytest.mark.parametrize("before", ["full", "lora"])
@pytest.mark.parametrize("adaptation", ["full", "frozen", "part", "ln_only", "lora"])
def test_a_fine_tune_starts_as_the_agent_it_goes_on_from(adaptation: Any, before: Any) -> None:
    made = recipe(config(backbone=None, adaptation=before))
    model = build_model(made, coin_episodes()).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter))
    base = Agent(model, AgentConfig.of(made, model.io), made)
    again = finetune_recipe(base, "coins", None, 4, "keep").override([f"model.adaptation={adaptation}"])
    start = start_from(base, again, coin_episodes()).eval()
    there, taken = model.state_dict(), start.state_dict()
    assert there.keys() == taken.keys()
    assert all(torch.equal(there[name], taken[name]) for name in there)
    batch = random_batch(model.io, [2, 1])
    torch.testing.assert_close(start(batch), model(batch))


def test_low_rank_updates_count_as_they_are_saved() -> None:
    plain, low_rank = (
        parameter_count(build_model(recipe(config(backbone=None, adaptation=adaptation)), coin_episodes()))
        for adaptation in ("full", "lora")
    )
    assert plain == low_rank


# -- errors ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"n_heads": 3}, "must divide"),
        ({"tie_action_head": True}, "needs input_maps and head to be linear"),
        ({"backbone": None, "cosine_weight": 0.1}, "without a backbone there is no language"),
        ({"rotary_dim": 4}, "rotary_dim is what gptj has"),
        ({"architecture": "gptj"}, "rotary_dim is what gptj has"),
        ({"architecture": "imagegpt", "lm_weight": 0.1}, "co-training needs a language model"),
        ({"architecture": "imagegpt", "positions": "own"}, "only gpt2 has a position table"),
        ({"lm_weight": 0.1, "positions": "own", "max_ep_len": 100}, "longer than the position table"),
        ({"positions": "own", "timestep_rank": 8}, "timestep_rank is for fresh positions"),
    ],
)
def test_settings_that_do_not_fit_together_are_refused(fields: dict[str, Any], says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        config(**fields)


def test_positions_of_clip_are_refused() -> None:
    with pytest.raises(ValidationError, match="only gpt2 has a position table"):
        CLIPDTConfig(**WIDTH, positions="own")


@pytest.mark.parametrize(
    ("what", "error", "says"),
    [
        ("not staged", CheckpointError, "is not in the local zoo .*agentzoo research pretrain"),
        ("no tokenizer", CheckpointError, "has no tokenizer.json.*--set model.lm_weight=0"),
        ("other tokenizer", CheckpointError, "its table holds 280: they do not belong together"),
        ("no text", ConfigError, r"set \$AGENTZOO_TEXT"),
        ("long chunk", ConfigError, "longer than the 32 positions .*--set model.lm_chunk=32"),
    ],
)
def test_what_keeps_language_out_is_said(
    what: str, error: type[AgentzooError], says: str, zoo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from agentzoo.nn.language.tokenizer import save_tokenizer, train_tokenizer

    shutil.copytree(zoo / "zoo", tmp_path / "zoo")
    monkeypatch.setenv("AGENTZOO_ZOO", str(tmp_path / "zoo"))
    if what == "not staged":
        shutil.rmtree(tmp_path / "zoo" / "lm-tiny")
    if what == "no tokenizer":
        (tmp_path / "zoo" / "lm-tiny" / "tokenizer.json").unlink()
    if what == "other tokenizer":
        other = train_tokenizer([(zoo / "text" / "a.txt").read_text()], 290)
        save_tokenizer(other, tmp_path / "zoo" / "lm-tiny", 32)
    if what == "no text":
        monkeypatch.delenv(TEXT_VARIABLE)
    changes = {"lm_chunk": 40, "positions": "fresh"} if what == "long chunk" else {}
    with pytest.raises(error, match=says):
        started(chibit(**changes))


def test_a_backbone_that_is_nowhere_is_said_without_a_network(tmp_path: Path) -> None:
    code = "from agentzoo.nn.language.pretrained import load_backbone; load_backbone('someone/no-such-model')"
    environment = {"PATH": "/usr/bin", "HF_HUB_OFFLINE": "1", "HOME": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False)
    assert "HubError: backbone someone/no-such-model could not be fetched from the Hub: It is not in the" in done.stderr
    assert "--set model.backbone=null" in done.stderr


# -- recipes ---------------------------------------------------------------------------------------------------------


def test_recipes_fit_the_backbones_they_name() -> None:
    """Sizes of a recipe and of what `agentzoo research pretrain` makes are written in two places."""
    from agentzoo.research.pretrain.settings import CLIP_MINI

    for agent_id, size in (
        ("chibit-hopper-medium", LM_SIZES["chibi"]),
        ("gpt2-dt-hopper-medium-replay", LM_SIZES["mini"]),
    ):
        model = load_recipe(agent_id).model
        assert isinstance(model, GPT2DTConfig)
        assert model.backbone == size.name
        for name in ("embed_dim", "n_layers", "n_heads", "activation"):
            assert getattr(model, name) == getattr(size, name)
        assert model.lm_chunk <= size.context
    clip = load_recipe("clip-dt-hopper-medium").model
    assert isinstance(clip, CLIPDTConfig)
    assert clip.backbone == CLIP_MINI.name
    assert (clip.embed_dim, clip.n_layers, clip.n_heads) == (CLIP_MINI.embed_dim, CLIP_MINI.n_layers, CLIP_MINI.n_heads)


def test_every_recipe_makes_an_agent_that_can_be_staged() -> None:
    """Of Walker2d's sizes, the largest; masked agents of DoorKey read other observations and are tiny."""
    from agentzoo.hub.stage import MAX_BYTES
    from agentzoo.registry import get_family, recipe_table

    action = ActionSpec(kind="box", size=6, low=(-1.0,) * 6, high=(1.0,) * 6)
    io = IOSpec(observation=ObservationSpec(size=17, shapes=((17,),)), action=action, context=50)
    too_large = {}
    for name, recipe in recipe_table().items():
        if "doorkey" in name:
            continue
        model = get_family(recipe.model.family).model(recipe.model, io)
        size = 2 * parameter_count(model)  # as float16, beside the file's header
        too_large.update({name: size} if size > MAX_BYTES - 20_000 else {})
    assert not too_large


@pytest.mark.parametrize("kind", ["medium", "medium-replay"])
@pytest.mark.parametrize("name", ["chibit", "gpt2-dt"])
def test_twins_differ_in_language_only(name: str, kind: str) -> None:
    one, twin = load_recipe(f"{name}-hopper-{kind}"), load_recipe(f"{name}-hopper-{kind}-scratch")
    changed = {field for field, value in one.model if getattr(twin.model, field) != value}
    assert changed == ({"backbone", "cosine_weight", "lm_weight"} if name == "chibit" else {"backbone"})
    assert (one.data, one.train, one.eval) == (twin.data, twin.train, twin.eval)


@pytest.mark.parametrize(
    ("change", "fields"),
    [
        ("no-cosine", {"cosine_weight"}),
        ("no-lm", {"lm_weight"}),
        ("random-positions", {"positions"}),
        ("frozen", {"adaptation"}),
        ("no-language", {"cosine_weight", "lm_weight"}),
    ],
)
def test_ablations_change_what_they_say(change: str, fields: set[str]) -> None:

    whole, cut = load_recipe("chibit-hopper-medium"), load_recipe(f"chibit-hopper-medium-{change}")
    assert {field for field, value in whole.model if getattr(cut.model, field) != value} == fields


def test_language_models_in_the_zoo_are_no_agents(zoo: Path) -> None:
    from agentzoo.errors import UnknownNameError
    from agentzoo.hub.zoo import list_agents
    from agentzoo.store.locate import staged_agents, staged_backbones

    assert (zoo / "zoo" / "lm-tiny" / "config.json").is_file()
    assert staged_agents() == {}
    assert list(staged_backbones()) == ["lm-tiny"]
    assert list_agents() == []
    with pytest.raises(UnknownNameError, match="no agent 'zoo/lm-tiny'"):
        Agent.from_pretrained("zoo/lm-tiny")


# -- on the shelf ----------------------------------------------------------------------------------------------------


def test_large_agents_are_stored_as_float16_and_act_nearly_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from agentzoo.hub import stage

    agent = make_agent(model=config(backbone=None))
    agent.model.obs_mean.fill_(1234.567)  # float16 would make it 1235
    folder = agent.save_pretrained(tmp_path)
    size = (folder / "model.safetensors").stat().st_size
    stage.as_float16(folder)
    assert (folder / "model.safetensors").stat().st_size < 0.6 * size
    loaded = Agent.from_pretrained(folder)
    assert torch.equal(loaded.model.obs_mean, agent.model.obs_mean)
    batch = random_batch(agent.config.io, [4, 2])
    with torch.no_grad():
        torch.testing.assert_close(loaded.model.act(batch), agent.model.act(batch), atol=0.02, rtol=0)
        assert not torch.equal(loaded.model.act(batch), agent.model.act(batch))
    with pytest.raises(CheckpointError, match=r"as float16, a staged agent may take 1,000.*--max-mb"):
        stage.as_float16(folder, 1000)


@pytest.mark.parametrize(
    ("backbone", "says"), [("lm-tiny", "started as those of `lm-tiny`"), (None, "it has learned nothing of language")]
)
def test_a_card_says_where_the_blocks_come_from(backbone: str | None, says: str, tmp_path: Path) -> None:
    from agentzoo.hub.card import card_text

    agent = make_agent(model=config(backbone=backbone))
    card = card_text(agent.save_pretrained(tmp_path))
    assert says in card
    assert "A GPT-2 Decision Transformer agent" in card
    assert "Can Wikipedia Help Offline Reinforcement Learning?" in card


def test_a_card_says_what_was_learned_and_how_the_recipe_departs_from_a_preset() -> None:
    """No path of somebody's disk gets onto a card."""
    found = chibit(backbone="/home/me/secret/lm-mine").origin()
    assert (found.backbone, found.learned, found.adaptation) == ("lm-mine", "language", "full")
    assert found.losses == (
        ("similarity to clusters of its word vectors", 0.1, 8),
        ("the next words of text", 0.2, 8),
    )
    assert (found.preset, found.departures) == ("wikipedia", ("max_ep_len=32",))
    assert chibit().environment() == {TEXT_VARIABLE: "TEXTS"}
    mini = load_recipe("gpt2-dt-hopper-medium").model
    assert mini.origin()[4:6] == ("markov", ("input_maps=linear", "head=linear", "timestep_rank=64"))
    assert mini.environment() == {}
    twin = load_recipe("chibit-hopper-medium-scratch").model.origin()
    assert (twin.backbone, twin.preset, twin.departures) == (None, "wikipedia", ())
    tied = config(input_maps="linear", head="linear", tie_action_head=True).origin()
    assert (tied.preset, tied.departures) == ("markov", ("input_maps=linear", "head=linear", "tie_action_head=True"))
    pixels = GPT2DTConfig(backbone="openai/imagegpt-small", architecture="imagegpt").origin()
    assert (pixels.backbone, pixels.learned) == ("openai/imagegpt-small", "pictures, pixel by pixel")
    clip = load_recipe("clip-dt-hopper-medium").model.origin()
    assert clip is not None
    assert "which sentences belong to which pictures" in clip.learned


def test_presets_are_set_by_name() -> None:
    made = load_recipe("gpt2-dt-hopper-medium")
    lamo = made.override(["model.preset=lamo", "model.lora_rank=4"]).model
    assert isinstance(lamo, GPT2DTConfig)
    assert (lamo.input_maps, lamo.head, lamo.adaptation, lamo.backbone_lr) == ("mlp", "mlp", "lora", 0.1)
    assert (lamo.lora_rank, lamo.embed_dim, lamo.timestep_rank) == (4, 256, None)
    wikipedia = made.override(["model.preset=wikipedia"]).model
    assert isinstance(wikipedia, GPT2DTConfig)
    assert (wikipedia.positions, wikipedia.timestep_rank) == ("own", None)
    with pytest.raises(ConfigError, match=r"family 'gpt2-dt' has no preset 'wiki'; known: markov, lamo, wikipedia"):
        made.override(["model.preset=wiki"])
    with pytest.raises(ConfigError, match=r"family 'dt' has no preset 'lamo'; it has none"):
        load_recipe("dt-hopper-medium").override(["model.preset=lamo"])


def test_a_run_keeps_to_the_backbone_it_began_with(zoo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody improves the language model and stages it under the same name."""
    shutil.copytree(zoo / "zoo", tmp_path / "zoo")
    monkeypatch.setenv("AGENTZOO_ZOO", str(tmp_path / "zoo"))
    trained = recipe(config(), steps=4)
    train(trained, tmp_path / "run", coin_episodes(), device="cpu")
    pinned = Recipe.from_json((tmp_path / "run" / "train_config.json").read_text(), "the run's")
    assert isinstance(pinned.model, GPT2DTConfig)
    assert pinned.model.backbone_sha256 == load_backbone("lm-tiny").sha256()
    assert pinned.model == trained.pinned().model != trained.model
    train(trained, tmp_path / "run", coin_episodes(), device="cpu")  # goes on

    weights = tmp_path / "zoo" / "lm-tiny" / "model.safetensors"
    tensors, _ = read_tensors(weights)
    tensors["transformer.h.0.mlp.c_fc.bias"] += 1.0
    save_file(tensors, weights, {"format": "pt"})
    with pytest.raises(TrainingError, match=r"model.backbone_sha256: '[0-9a-f]{64}' there"):
        train(trained, tmp_path / "run", coin_episodes(), device="cpu")
    with pytest.raises(ConfigError, match=r"backbone 'lm-tiny' has sha256 .*--set model.backbone_sha256=null"):
        train(pinned, tmp_path / "run", coin_episodes(), device="cpu")


def test_windows_longer_than_language_models_saw_are_warned_of() -> None:
    for context, warns in ((341, False), (342, True)):  # 1,023 and 1,026 tokens
        model = make_agent(model=config(backbone=None), context=context).model
        with warnings.catch_warnings(record=True) as heard:
            warnings.simplefilter("always")
            model.begin_training(fresh=True)
        assert [f"data.context={context} makes windows of" in str(one.message) for one in heard] == [True] * warns


def test_a_recipe_whose_backbone_does_not_fit_claims_no_folder(zoo: Path, tmp_path: Path) -> None:
    """So that the same command, corrected as the error says, runs."""
    with pytest.raises(ConfigError, match=r"--set model\.embed_dim=16"):
        train(recipe(config(embed_dim=32)), tmp_path / "run", coin_episodes(), device="cpu")
    train(recipe(config(), steps=2), tmp_path / "run", coin_episodes(), device="cpu")
    assert (tmp_path / "run" / "model.safetensors").exists()
