"""Mixture of Attention: the gate, its exact start from GPT2-DT, and what it does while training."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import make_agent, random_batch
from pydantic import ValidationError

from agentzoo.agent import Agent
from agentzoo.models._gated_dt import GatedDT
from agentzoo.models._language_dt import LanguageDT
from agentzoo.models.clip_dt import CLIPDTConfig
from agentzoo.models.clip_dtma import CLIPDTMAConfig
from agentzoo.models.dtma import DTMAConfig
from agentzoo.models.gpt2_dt import GPT2DTConfig
from agentzoo.models.gpt2_dtma import GPT2DTMAConfig
from agentzoo.nn.base import ModelConfig, parameter_count
from agentzoo.nn.gate import Gate
from agentzoo.nn.language.cotraining import Language
from agentzoo.nn.language.pretrained import load_backbone
from agentzoo.recipe import TrainConfig
from agentzoo.research.bench import dtma as benchmark
from agentzoo.training.log import read_log
from agentzoo.training.loop import train
from agentzoo.training.optim import make_optimizer
from models.cases import coin_episodes
from models.gated_cases import BACKBONE, SMALL, gated, gates_of, recipe, with_random_gates

PAIRS = [(GPT2DTConfig, GPT2DTMAConfig), (CLIPDTConfig, CLIPDTMAConfig), (GPT2DTConfig, DTMAConfig)]


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
def test_gates_learn_in_every_adaptation_and_never_decay(adaptation: Any) -> None:
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


@pytest.mark.slow
def test_the_benchmark_times_both_tasks() -> None:
    figures = benchmark.run(1)
    assert [one.figure for one in figures] == [
        f"{what} {task}{runtime}"
        for task in ("hopper", "pointmaze")
        for what, runtime in (("train_step", ""), ("action", ""), ("action", ", onnx"))
    ]
    assert all(one.ratio == one.ours / one.peer > 0.0 for one in figures)
