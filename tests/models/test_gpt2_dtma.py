"""Mixture of Attention: the gate, its exact start from GPT2-DT, the penalty of GPT2-P, the Markov statistic."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from conftest import make_agent, random_batch
from pydantic import ValidationError
from torch import nn

from agentzoo.agent import Agent
from agentzoo.errors import ConfigError
from agentzoo.models._gated_dt import GatedDT
from agentzoo.models._language_dt import LanguageDT
from agentzoo.models.clip_dt import CLIPDTConfig
from agentzoo.models.clip_dtma import CLIPDTMAConfig
from agentzoo.models.dtma import DTMAConfig
from agentzoo.models.gpt2_dt import GPT2DTConfig
from agentzoo.models.gpt2_dtma import GPT2DTMAConfig
from agentzoo.models.gpt2_p import GPT2P, GPT2PConfig
from agentzoo.nn.base import ModelConfig, parameter_count
from agentzoo.nn.gate import Gate
from agentzoo.nn.language.cotraining import Language
from agentzoo.nn.language.pretrained import load_backbone
from agentzoo.nn.markov import head_matrix, layer_statistics, markov_statistics, rule_threshold
from agentzoo.recipe import DataConfig, EvalConfig, Recipe, TrainConfig, load_recipe
from agentzoo.research.analysis.head_report import markov_report
from agentzoo.research.bench import dtma as benchmark
from agentzoo.research.pretrain.networks import new_language_model
from agentzoo.training.log import read_log
from agentzoo.training.loop import train
from agentzoo.training.optim import make_optimizer
from models.cases import coin_episodes

SMALL: dict[str, Any] = {"embed_dim": 16, "n_layers": 3, "n_heads": 4}
PAIRS = [(GPT2DTConfig, GPT2DTMAConfig), (CLIPDTConfig, CLIPDTMAConfig), (GPT2DTConfig, DTMAConfig)]


def gated(config: ModelConfig | None = None) -> GatedDT:
    found = make_agent(model=config or GPT2DTMAConfig(**SMALL)).model
    assert isinstance(found, GatedDT)
    return found


def with_random_gates(model: GatedDT) -> GatedDT:
    rng = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for gate in gates_of(model):
            gate.weight.normal_(std=0.5, generator=rng)
            gate.bias.normal_(std=0.5, generator=rng)
    return model


def gates_of(model: GatedDT) -> list[Gate]:
    found = [attention.gate for attention in model.attentions]
    assert all(gate is not None for gate in found)
    return found  # type: ignore[return-value]


def hidden_by_layer(model: LanguageDT, batch: Any) -> list[torch.Tensor]:
    found: list[torch.Tensor] = []
    handles = [
        block.register_forward_hook(lambda _, __, out: found.append(out.detach())) for block in model.backbone.blocks
    ]
    model(batch)
    for handle in handles:
        handle.remove()
    return found


# -- the gate ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("plain", "with_gates"), PAIRS)
def test_fresh_gates_change_nothing(plain: Any, with_gates: Any) -> None:
    agent = make_agent(model=plain(**SMALL))
    ours, peer = gated(with_gates(**SMALL)), agent.model
    assert isinstance(peer, LanguageDT)
    assert set(ours.state_dict()) - set(peer.state_dict()) == {
        f"backbone.blocks.{i}.attn.gate.{part}" for i in range(3) for part in ("weight", "bias")
    }
    batch = random_batch(agent.config.io, [4, 2, 3])
    with torch.no_grad():
        pairs = zip(hidden_by_layer(ours, batch), hidden_by_layer(peer, batch), strict=True)
        assert [torch.allclose(a, b, atol=1e-6, rtol=0) for a, b in pairs] == [True] * 3
        torch.testing.assert_close(ours.act(batch), peer.act(batch), atol=1e-6, rtol=0)
        with_random_gates(ours)
        assert not torch.allclose(ours.act(batch), peer.act(batch), atol=1e-4)


def test_fresh_gates_of_the_paper_damp_every_head() -> None:
    ours, paper = gated(), gated(GPT2DTMAConfig(**SMALL, gate_scale="paper"))
    tokens, heads = torch.randn(2, 5, 16), torch.randn(2, 4, 5, 4)
    torch.testing.assert_close(gates_of(ours)[0](heads, tokens), heads)
    torch.testing.assert_close(gates_of(paper)[0](heads, tokens), heads / 4)


def test_gates_sum_to_one_and_differ_from_token_to_token() -> None:
    gate = gates_of(with_random_gates(gated()))[1]
    weights = gate.weights(torch.randn(2, 7, 16))
    assert weights.shape == (2, 7, 4)
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, 7))
    assert float(weights.detach().std(dim=1).min()) > 1e-3


def test_a_gate_shut_by_its_bias_equals_a_head_set_to_zero() -> None:
    """And the rest renormalized, which are computed here by hand."""
    model = with_random_gates(gated())
    attention = model.attentions[1]
    tokens = torch.randn(2, 6, 16)
    gate = gates_of(model)[1]
    with torch.no_grad():
        before = gate.weights(tokens)
        merged: list[torch.Tensor] = []
        handle = attention.proj.register_forward_hook(lambda _, args, __: merged.append(args[0]))
        attention(tokens)
        kept = merged[0].unflatten(-1, (4, 4)).clone()  # (B, L, N, h), weighed by `before`
        kept[:, :, 2] = 0.0
        expected = attention.proj((kept / (1 - before[..., 2])[..., None, None]).flatten(2))
        gate.bias[2] = -1e9
        got = attention(tokens)
    handle.remove()
    torch.testing.assert_close(got, expected, atol=1e-6, rtol=1e-5)


def test_gates_read_the_normalized_tokens_of_the_queries() -> None:
    model = with_random_gates(gated())
    attention = model.attentions[0]
    tokens = torch.randn(1, 6, 16)
    with torch.no_grad():
        torch.testing.assert_close(attention(tokens, slice(1, None, 3)), attention(tokens)[:, 1::3])


def test_a_network_with_one_head_has_nothing_to_weigh() -> None:
    with pytest.raises(ValidationError, match="the gate of a single head is always 1"):
        DTMAConfig(n_heads=1)
    with pytest.raises(ValidationError):
        DTMAConfig.model_validate({"backbone": "gpt2"})  # that would be gpt2-dtma


def test_gates_are_computed_in_float32_under_autocast() -> None:
    gate = gates_of(with_random_gates(gated()))[0]
    tokens = torch.randn(2, 5, 16)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        weights = gate.weights(tokens)
        heads = gate(torch.randn(2, 4, 5, 4).bfloat16(), tokens)
    assert weights.dtype == torch.float32
    assert heads.dtype == torch.bfloat16
    torch.testing.assert_close(weights, gate.weights(tokens))


@pytest.mark.parametrize("config", [DTMAConfig(**SMALL), CLIPDTMAConfig(**SMALL)])
def test_trained_gates_keep_the_promises_of_the_contract(config: ModelConfig) -> None:
    """The contract tests see fresh gates, which are constant."""
    agent = make_agent(model=config)
    assert isinstance(agent.model, GatedDT)
    model = with_random_gates(agent.model)
    batch = random_batch(agent.config.io, [1, 4, 2])
    hidden = ~batch.valid
    obs, actions = batch.observations.clone(), batch.actions.clone()
    obs[hidden], actions[hidden] = 1e3, 7.0
    actions[torch.arange(3), batch.valid.sum(1) - 1] = -5.0
    with torch.no_grad():
        got = model.act(replace(batch, observations=obs, actions=actions))
        torch.testing.assert_close(got, model.act(batch), atol=1e-6, rtol=0)


def test_parameter_counts_of_the_paper() -> None:
    def of_gates(n_layers: int, dim: int, heads: int) -> int:
        with torch.device("meta"):
            return sum(parameter_count(Gate(dim, heads, 1.0)) for _ in range(n_layers))

    assert of_gates(12, 768, 12) == 110_736
    assert of_gates(12, 512, 8) == 49_248
    assert of_gates(3, 128, 1) == 387
    io = make_agent(model=GPT2DTConfig()).config.io
    with torch.device("meta"):
        sizes: dict[str, Any] = {"embed_dim": 768, "n_layers": 12, "n_heads": 12, "activation": "gelu_new"}
        more = parameter_count(GatedDT(GPT2DTMAConfig(**sizes), io)) - parameter_count(
            LanguageDT(GPT2DTConfig(**sizes), io)
        )
    assert more == 110_736


# -- training ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("adaptation", ["full", "frozen", "part", "ln_only", "lora"])
def test_gates_learn_whatever_of_the_blocks_does_and_never_decay(adaptation: Any) -> None:
    model = gated(GPT2DTMAConfig(**SMALL, adaptation=adaptation, backbone_lr=0.1, gate_scale="heads"))
    gates = {name for name, _ in model.named_parameters() if ".gate." in name}
    assert len(gates) == 6
    for name in gates:
        assert model.get_parameter(name).requires_grad
        assert not model.decays(name)
        assert model.lr_scale(name) == 1.0
    config = TrainConfig(steps=1, weight_decay=0.5, lr=1e-2)
    optimizer = make_optimizer(model, config)
    group_of = {id(p): group for group in optimizer.param_groups for p in group["params"]}
    assert {group_of[id(model.get_parameter(name))]["weight_decay"] for name in gates} == {0.0}
    assert model.lr_scale("backbone.blocks.0.up.weight") == 0.1


def recipe(model: ModelConfig, steps: int = 8) -> Recipe:
    return Recipe(
        agent_id="gpt2-dtma-test",
        model=model,
        data=DataConfig(dataset="coins", context=2, rtg_scale=1.0),
        train=TrainConfig(steps=steps, batch_size=8, warmup_steps=2, checkpoint_every=4, log_every=2, lr=1e-2),
        eval=EvalConfig(env="tests/Counting-v0", target_return=1.0, every=0),
    )


def test_a_training_logs_what_the_gates_of_the_first_layer_do(tmp_path: Path) -> None:
    train(recipe(DTMAConfig(**SMALL)), tmp_path, coin_episodes(), device="cpu")
    rows = read_log(tmp_path)
    for row in rows:
        means = [float(row[f"gate_{head}"]) for head in range(4)]
        assert sum(means) == pytest.approx(1.0, abs=1e-4)
        assert float(row["loss"]) == pytest.approx(float(row["action_mse"]), rel=1e-4)  # gates are no term
    assert [float(rows[-1][f"gate_{head}"]) for head in range(4)] != [0.25] * 4


def test_the_logged_gates_are_those_of_the_windows_and_not_of_the_text_beside_them() -> None:
    config = GPT2DTMAConfig(**SMALL, backbone="not-read", lm_weight=0.2, dropout=0.0, embed_dropout=0.0)
    model = with_random_gates(gated(config))
    batch = random_batch(make_agent().config.io, [4, 2])
    model.loss(batch)
    alone = torch.stack(list(model.figures().values()))
    text = torch.randint(20, (3, 13))  # twelve tokens to go on from, as many as a window has
    model.language = Language(None, torch.randn(20, 16), torch.randn(12, 16), text)
    assert "language" in model.loss(batch)
    torch.testing.assert_close(torch.stack(list(model.figures().values())), alone)


BACKBONE: dict[str, Any] = {"embed_dim": 128, "n_layers": 2, "n_heads": 2}


@pytest.fixture
def backbone(tmp_path: Path) -> str:
    """A GPT-2 whose first layer has one Markov head by construction: head 1's keys are its queries."""
    torch.manual_seed(0)
    model = new_language_model(20, 128, 2, 2, 16, "relu")
    with torch.no_grad():
        qkv = model.transformer.h[0].attn.c_attn.weight  # (D, 3D): q0 q1 k0 k1 v0 v1
        qkv[:, 192:256] = qkv[:, 64:128]
    model.save_pretrained(tmp_path / "gpt2")
    return str(tmp_path / "gpt2")


def test_blocks_come_from_the_backbone_and_gates_start_at_zero(backbone: str) -> None:
    sizes: dict[str, Any] = {**BACKBONE, "backbone": backbone}
    ours, peer = gated(GPT2DTMAConfig(**sizes)), make_agent(model=GPT2DTConfig(**sizes)).model
    for model in (ours, peer):
        model.begin_training(fresh=True)
    blocks = load_backbone(backbone).blocks
    assert all(torch.equal(ours.backbone.state_dict()[name], value) for name, value in blocks.items())
    assert all(not parameter.any() for gate in gates_of(ours) for parameter in gate.parameters())
    batch = random_batch(make_agent().config.io, [4, 3])
    with torch.no_grad():
        torch.testing.assert_close(ours.act(batch), peer.act(batch), atol=1e-6, rtol=0)


def test_saved_gates_are_loaded(tmp_path: Path) -> None:
    agent = make_agent(model=GPT2DTMAConfig(**SMALL))
    assert isinstance(agent.model, GatedDT)
    with_random_gates(agent.model)
    loaded = Agent.from_pretrained(agent.save_pretrained(tmp_path / "saved")).model
    assert isinstance(loaded, GatedDT)
    assert all(torch.equal(a.weight, b.weight) for a, b in zip(gates_of(loaded), gates_of(agent.model), strict=True))
    assert loaded.config.origin().gate_scale == "heads"


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


def test_a_penalty_without_markov_heads_says_so_before_training(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"layer 0 has no Markov head to penalize: ratios .* Name the heads"):
        train(recipe(GPT2PConfig(**SMALL)), tmp_path, coin_episodes(), device="cpu")


@pytest.mark.parametrize(
    ("fields", "problem"),
    [({"markov_heads": (4,)}, "below n_heads 4"), ({"penalty_layers": (3,)}, "below n_layers 3")],
)
def test_a_penalty_of_heads_that_are_not_there_is_refused(fields: Any, problem: str) -> None:
    with pytest.raises(ValidationError, match=problem):
        GPT2PConfig(**SMALL, **fields)


# -- Markov matrices ---------------------------------------------------------------------------------------------------


def test_markov_statistics_of_matrices_worked_out_by_hand() -> None:
    near_identity = torch.eye(64).double() + 0.01
    found = markov_statistics(near_identity)
    assert found.ratio == pytest.approx(101.0)
    assert found.is_markov(8.0)
    assert not found.is_markov(101.5)
    assert not markov_statistics(-near_identity).positive
    assert not markov_statistics(-near_identity).is_markov()
    nearly = near_identity.clone()
    nearly[5, 5] = 0.0  # condition (i) wants every entry above zero
    assert markov_statistics(nearly).positive_share == pytest.approx(63 / 64)
    assert not markov_statistics(nearly).is_markov()
    two = torch.tensor([[3.0, -1.0], [2.0, 1.0]]).double()
    assert markov_statistics(two) == (1.0, pytest.approx(2.0 / 1.5))


def test_tied_gaussian_queries_and_keys_give_the_ratio_of_theory() -> None:
    w = torch.randn(768, 64, generator=torch.Generator().manual_seed(0)).double()
    found = markov_statistics(w @ w.T)
    assert found.positive
    assert 9.0 < found.ratio < 11.0
    assert found.ratio == pytest.approx(math.sqrt(math.pi * 64 / 2), rel=0.05)
    other = torch.randn(768, 64, generator=torch.Generator().manual_seed(1)).double()
    untied = markov_statistics(w @ other.T)
    assert untied.ratio == pytest.approx(1.0, rel=0.1)
    assert not untied.positive


def test_heads_are_cut_from_the_fused_weight_as_the_network_cuts_them() -> None:
    """A head is Markov here exactly where its queries are its keys."""
    rng = torch.Generator().manual_seed(0)
    q, k, v = torch.randn(3, 768, 768, generator=rng)
    k[64:128] = q[64:128]
    found = layer_statistics(torch.cat((q, k, v)), 12)
    assert [one.is_markov() for one in found] == [head == 1 for head in range(12)]
    layer = nn.Linear(768, 3 * 768, bias=False)
    with torch.no_grad():
        layer.weight.copy_(torch.cat((q, k, v)))
        x = torch.randn(5, 768, generator=rng)
        asked, known, _ = layer(x).chunk(3, dim=-1)
        scores = asked[:, 64:128] @ known[:, 64:128].T
        matrix = head_matrix(layer.weight, 12, 1).float()
        torch.testing.assert_close(x @ matrix @ x.T, scores, rtol=1e-3, atol=1e-1)


def test_thresholds_of_the_papers_rule() -> None:
    assert rule_threshold(64) == pytest.approx(5.14, abs=0.01)
    assert rule_threshold(768) == pytest.approx(7.64, abs=0.01)
    assert rule_threshold(512) == pytest.approx(7.24, abs=0.01)


PUBLISHED = (3.91, 23.61, 3.36, 7.63, 6.54, 29.67, 1.87, 2.41, 3.25, 15.37, 23.70, 1.39)  # early version, Table 2


@pytest.mark.network
def test_gpt2_has_the_published_markov_heads() -> None:
    found = layer_statistics(load_backbone("gpt2").blocks["blocks.0.attn.qkv.weight"], 12)
    assert [head for head, one in enumerate(found) if one.is_markov()] == [1, 5, 10]
    assert [one.ratio for one in found] == [pytest.approx(ratio, rel=0.05) for ratio in PUBLISHED]


@pytest.mark.network
def test_clip_has_no_markov_head_in_its_first_layer() -> None:
    clip = load_backbone("openai/clip-vit-base-patch32", "refs/pr/15")  # where its safetensors are
    found = layer_statistics(clip.blocks["blocks.0.attn.qkv.weight"], 8)
    assert not any(one.is_markov() for one in found)


@pytest.mark.slow
def test_the_benchmark_times_both_tasks() -> None:
    figures = benchmark.run(1)
    assert [one.figure for one in figures] == [
        f"{what} {task}{runtime}"
        for task in ("hopper", "pointmaze")
        for what, runtime in (("train_step", ""), ("action", ""), ("action", ", onnx"))
    ]
    assert all(one.ratio == one.ours / one.peer > 0.0 for one in figures)
