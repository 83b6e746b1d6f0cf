"""Gates and step sizes: what is reported is recomputed here another way, or known by construction."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from conftest import SMALL, make_agent, newest_steps, random_batch

from agentzoo.agent import Agent
from agentzoo.errors import ConfigError
from agentzoo.models.dm import DMConfig
from agentzoo.models.dtma import DTMAConfig
from agentzoo.nn.mamba import Mamba
from agentzoo.research.analysis import (
    gate_curve,
    gate_report,
    markov_report,
    memory_report,
    r_markov,
)
from agentzoo.research.analysis.layers import attention_layers, layer_inputs
from agentzoo.store.files import LOG
from research.inspect_cases import SIZES, windows_of

# -- gates -------------------------------------------------------------------------------------------------------------


def gated() -> Agent:
    agent = make_agent(model=DTMAConfig(**SIZES))
    rng = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, parameter in agent.model.named_parameters():
            if ".gate." in name:
                parameter.normal_(std=0.5, generator=rng)
    return agent


def test_gates_are_averaged_over_real_tokens_and_split_by_kind() -> None:
    agent = gated()
    windows = windows_of(agent, [4, 2])
    found = gate_report(agent, windows, heads=[1, 3])
    layer = attention_layers(agent.model)[0]
    tokens = layer_inputs(agent.model, windows, [layer])[0]
    assert layer.gate is not None
    with torch.no_grad():
        weights = layer.gate.weights(tokens)
    real = torch.cat([weights[0], weights[1, :6]])
    assert found.mean[0] == [pytest.approx(float(v), abs=1e-5) for v in real.mean(0)]
    for place, kind in enumerate(("return-to-go", "observation", "action")):
        alike = torch.cat([weights[0, place::3], weights[1, place:6:3]])
        assert found.by_kind[kind][0] == [pytest.approx(float(v), abs=1e-5) for v in alike.mean(0)]
    assert found.g_markov == pytest.approx(found.mean[0][1] + found.mean[0][3])
    assert found.uniform == 0.5
    junk = replace(windows, observations=torch.where(windows.valid[..., None], windows.observations, 1e3))
    assert gate_report(agent, junk, [1, 3]).mean[0] == [pytest.approx(v, abs=1e-5) for v in found.mean[0]]


def test_fresh_gates_are_uniform() -> None:
    agent = make_agent(model=DTMAConfig(**SIZES))
    found = gate_report(agent, windows_of(agent), [0])
    assert found.g_markov == pytest.approx(0.25)
    assert found.mean == [[pytest.approx(0.25)] * 4] * 2
    chosen = markov_report(agent).counted().heads
    assert gate_report(agent, windows_of(agent)).heads == list(chosen)


def test_gates_are_counted_in_numbers_and_shares() -> None:
    """d·N + N a layer; with frozen blocks they are more of what is trained."""
    for adaptation in ("full", "frozen"):
        agent = make_agent(model=DTMAConfig(**SIZES, adaptation=adaptation))
        found = gate_report(agent, windows_of(agent))
        total = sum(parameter.numel() for parameter in agent.model.parameters())
        dim = SIZES["embed_dim"]
        assert found.numbers == 2 * (4 * dim + 4)
        assert found.of_all == pytest.approx(found.numbers / total)
        assert (found.of_trained > 1.3 * found.of_all) is (adaptation == "frozen")


def test_gates_of_shorter_windows_are_relative_to_the_shortest() -> None:
    agent = make_agent(model=DTMAConfig(**SIZES), context=25)
    rng = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, parameter in agent.model.named_parameters():
            if ".gate." in name:
                parameter.normal_(std=0.5, generator=rng)
    windows = random_batch(agent.config.io, [25, 25, 7])
    found = gate_report(agent, windows, [1])
    assert list(found.by_context) == [10, 20, 25]
    assert found.by_context[20] == pytest.approx(gate_report(agent, newest_steps(windows, 20), [1]).g_markov)
    assert found.by_context[20] != pytest.approx(found.g_markov, abs=1e-4)
    assert list(gate_report(agent, windows, [1], [3, 40]).by_context) == [3, 25]
    assert found.r_markov()[10] == 100.0
    assert found.r_markov()[25] == pytest.approx(100 * found.g_markov / found.by_context[10])
    assert gate_report(gated(), windows_of(gated()), [1]).r_markov() == {}
    short = random_batch(agent.config.io, [12, 5, 11])  # of an agent that acts on 12 of its 25 steps
    found = gate_report(agent, short, [1])
    assert (found.context, list(found.by_context)) == (12, [10, 12])


def test_gates_of_windows_none_of_which_is_whole() -> None:
    """The network cuts a piece of 256 windows to the longest of them: here the first to 2 of 4 steps."""
    agent = gated()
    windows = windows_of(agent, [2] * 256 + [4])
    short, whole = windows.map(lambda part: part[:256]), windows.map(lambda part: part[256:])
    of_short, of_whole = (gate_report(agent, some, [1]).g_markov for some in (short, whole))
    assert of_short == pytest.approx(gate_report(agent, newest_steps(short, 2), [1]).g_markov)
    assert of_short != pytest.approx(of_whole, abs=1e-4)
    both = (512 * of_short + 4 * of_whole) / 516  # real steps
    assert gate_report(agent, windows, [1]).g_markov == pytest.approx(both)


def test_gates_are_asked_only_of_networks_that_have_them() -> None:
    with pytest.raises(ConfigError, match="has no gates"):
        gate_report(make_agent(), windows_of(make_agent()), [0])
    with pytest.raises(ConfigError, match="heads 0 to 3, got \\[4\\]"):
        gate_report(gated(), windows_of(gated()), [4])


def test_r_markov_of_the_published_table() -> None:
    g = {10: 0.397, 20: 0.310, 30: 0.234, 40: 0.188, 50: 0.167}
    found = r_markov(g)
    assert [round(found[k], 1) for k in (10, 20, 30, 40, 50)] == [100.0, 78.1, 58.9, 47.4, 42.1]
    with pytest.raises(ConfigError, match="context 10"):
        r_markov({20: 0.3})


def test_a_gate_curve_is_the_mean_of_markov_and_of_other_heads(tmp_path: Path) -> None:
    (tmp_path / LOG).write_text("step,loss,gate_0,gate_1,gate_2\n10,1,0.2,0.5,0.3\n20,1,0.1,0.8,0.1\n")
    found = gate_curve(tmp_path, [1])
    assert (found.steps, found.counted, found.others) == ([10, 20], [0.5, 0.8], [0.25, 0.1])
    assert found.gates == [[0.2, 0.1], [0.5, 0.8], [0.3, 0.1]]
    assert gate_curve(tmp_path, [0, 1]).counted == [pytest.approx(0.35), pytest.approx(0.45)]
    for heads in ([], [0, 1, 2], [3]):
        with pytest.raises(ConfigError, match="gates of 3 heads"):
            gate_curve(tmp_path, heads)
    (tmp_path / LOG).write_text("step,loss\n10,1\n")
    with pytest.raises(ConfigError, match="has no gates; families with gates end in 'dtma'"):
        gate_curve(tmp_path, [0])


# -- memory ------------------------------------------------------------------------------------------------------------


def test_memory_length_of_a_block_whose_step_size_is_known() -> None:
    """With W_dt = 0 every token has Δ = softplus(bias); the slowest of states 1, 2, 3, 4 fades in 1/Δ tokens."""
    agent = make_agent(model=DMConfig(embed_dim=16, n_layers=1, state_size=4))
    blocks = [block for block in agent.model.modules() if isinstance(block, Mamba)]
    with torch.no_grad():
        for block in blocks:
            block.dt_proj.weight.zero_()
            block.dt_proj.bias.fill_(math.log(math.expm1(0.05)))
            block.A_log.copy_(torch.arange(1.0, 5.0).log().repeat(block.inner, 1))
    found = memory_report(agent, windows_of(agent))
    assert len(found.blocks) == len(blocks) == 2
    for one in found.blocks:
        assert one.step_size == [pytest.approx(0.05, rel=1e-4)] * 3
        assert one.tokens == [pytest.approx(20.0, rel=1e-4)] * 3
        assert one.spread == pytest.approx(0.0, abs=1e-6)
    assert found.context_tokens == 12
    with torch.no_grad():
        blocks[0].dt_proj.weight.normal_()
    assert memory_report(agent, windows_of(agent)).blocks[0].spread > 0.01


def test_memory_counts_tokens_of_a_step_and_no_padding() -> None:
    """A fine branch that reads one summary a step remembers three times as many tokens as it reads."""
    agent = make_agent(model=DMConfig(embed_dim=16, n_layers=1, state_size=4, gather="summary"))
    with torch.no_grad():
        for block in agent.model.modules():
            if isinstance(block, Mamba):
                block.dt_proj.bias.fill_(math.log(math.expm1(0.05)))
                block.dt_proj.weight.zero_()
                block.A_log.copy_(torch.arange(1.0, 5.0).log().repeat(block.inner, 1))
    found = memory_report(agent, windows_of(agent)).blocks
    assert [round(one.tokens[1]) for one in found] == [20, 60]
    with torch.no_grad():
        for block in agent.model.modules():
            if isinstance(block, Mamba):
                block.dt_proj.weight.normal_()
    short = windows_of(agent, [2, 2, 2])
    cut = short.map(lambda part: part[:, :2])  # the same without its padding
    for padded, plain in zip(memory_report(agent, short).blocks, memory_report(agent, cut).blocks, strict=True):
        assert padded.tokens == pytest.approx(plain.tokens, rel=1e-5)
        assert padded.spread == pytest.approx(plain.spread, rel=1e-5)


def test_only_mamba_has_step_sizes() -> None:
    agent = make_agent(model=SMALL["dt"])
    with pytest.raises(ConfigError, match="'dt' network has no Mamba blocks"):
        memory_report(agent, windows_of(agent))
