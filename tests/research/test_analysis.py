"""The instruments: what they report is recomputed here another way, or known by construction."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from conftest import ClosingEnv, make_agent, newest_steps, random_batch
from pydantic import ValidationError

from agentzoo.errors import ConfigError, ShapeError
from agentzoo.models.bc import BCConfig
from agentzoo.models.dm import DMConfig
from agentzoo.models.dt import DTConfig
from agentzoo.models.dtma import DTMAConfig
from agentzoo.models.gpt2_dt import GPT2DTConfig
from agentzoo.models.unimask import UniMaskConfig
from agentzoo.nn.markov import head_matrix, markov_statistics
from agentzoo.research.analysis import (
    attention_maps,
    decision_windows,
    head_importance,
    markov_report,
)
from agentzoo.research.analysis.agent_windows import fullest, thinned
from agentzoo.research.analysis.head_report import MarkovHead, MarkovReport, untrained
from agentzoo.research.analysis.layers import attention_layers, layer_inputs
from agentzoo.research.analysis.maps import mean_looks
from research.inspect_cases import CAUSAL, MASKED, SIZES, windows_of

ATTENTION = {**CAUSAL, "unimask": MASKED}


# -- windows -----------------------------------------------------------------------------------------------------------


def test_decision_windows_are_those_the_agent_saw() -> None:
    """Acting on them again gives the actions that were taken, which the next windows hold."""
    agent = make_agent()
    found = decision_windows(agent, episodes=2, seed=0)
    one = decision_windows(agent, episodes=1, seed=0)
    assert found.shape[0] > one.shape[0] >= 7
    with torch.no_grad():
        acted = agent.model.act(one).clamp(-2, 2)
    for t in range(1, one.shape[0]):
        before = min(t, 3) - 1  # the place of step t-1 in the window of step t
        torch.testing.assert_close(one.actions[t, before], acted[t - 1], atol=1e-5, rtol=1e-5)
    assert one.timesteps[-1].tolist() == list(range(one.shape[0] - 4, one.shape[0]))
    rewards = torch.arange(one.shape[0]).float()  # the environment pays 1, 2, 3, ...
    spent = torch.cumsum(rewards, 0)
    assert one.returns_to_go[-1, -1] == pytest.approx((50.0 - float(spent[-1])) / 10.0)
    assert decision_windows(agent, episodes=2, most=5).shape[0] == 5
    assert thinned(found, 3).timesteps[-1].tolist() == found.timesteps[-1].tolist()
    assert fullest(found).valid.all()


def test_decision_windows_of_an_agent_with_a_shorter_history() -> None:
    """As in acting: acting on them again gives the actions that were taken."""
    agent = make_agent()
    agent.history = 2
    found = decision_windows(agent, episodes=1)
    assert int(found.valid.sum(1).max()) == 2
    last = found.actions[torch.arange(len(found.valid)), found.valid.sum(1) - 1]
    with torch.no_grad():
        torch.testing.assert_close(agent.model.act(found).clamp(-2, 2), last, atol=1e-5, rtol=1e-5)
    assert int(decision_windows(agent, episodes=1, whole=True).valid.sum(1).max()) == 4


def test_decision_windows_of_an_agent_that_samples_are_of_sampled_actions() -> None:
    agent = make_agent("CartPole-v1", sampled=True)
    sampled, again = (decision_windows(agent, episodes=2).actions for _ in range(2))
    assert torch.equal(sampled, again)
    agent.recipe = None  # evaluated with the most likely actions
    best = decision_windows(agent, episodes=2).actions
    assert best.shape != sampled.shape or not torch.equal(best, sampled)


def test_windows_that_take_too_much_memory_are_thinned_while_playing(monkeypatch: pytest.MonkeyPatch) -> None:
    agent = make_agent()
    every = decision_windows(agent, episodes=1)
    row = every.observations[0].nbytes
    monkeypatch.setattr("agentzoo.research.analysis.agent_windows.MAX_BYTES", 3 * row)
    few = decision_windows(agent, episodes=1)
    assert 2 <= len(few.valid) <= 3
    steps = few.timesteps.gather(1, few.valid.sum(1, keepdim=True) - 1).flatten()
    assert len(set(steps.diff().tolist())) == 1  # evenly spaced
    assert steps[0] == 0


def test_many_episodes_are_played_in_few_environments(monkeypatch: pytest.MonkeyPatch) -> None:
    agent = make_agent("tests/Closing-v0")
    every = decision_windows(agent, episodes=5)
    opened: list[int] = []
    reset = ClosingEnv.reset

    def counted(env: ClosingEnv, **options: Any) -> Any:
        opened.append(len(env.open))
        return reset(env, **options)

    monkeypatch.setattr(ClosingEnv, "reset", counted)
    monkeypatch.setattr("agentzoo.research.analysis.agent_windows.MAX_ENVS", 2)
    few = decision_windows(agent, episodes=5)
    assert opened == [2] * 5
    assert sorted(few.observations.flatten(1).tolist()) == sorted(every.observations.flatten(1).tolist())
    with pytest.raises(ConfigError, match="one seed has 10,000 episodes, got 10,001"):
        decision_windows(agent, episodes=10_001)
    assert len(opened) == 5


def test_looks_of_a_masked_agent_whose_windows_are_short() -> None:
    agent = make_agent(model=UniMaskConfig(embed_dim=16, ffn_dim=16, n_heads=2, n_layers=2))
    windows = random_batch(agent.config.io, [3, 2])
    looks = mean_looks(agent, windows, causal=False)
    assert len(looks) == 2 * 2  # layers, heads
    assert all(0.0 < one.on_its_step < 1.0 for one in looks)


def test_the_mean_distance_of_a_masked_network_leaves_out_its_padding() -> None:
    """What a head gives to the empty steps after the window made it look nearer than it does."""
    agent = make_agent(model=UniMaskConfig(embed_dim=16, ffn_dim=16, n_heads=2, n_layers=2), context=8)
    window = random_batch(agent.config.io, [3])
    maps = attention_maps(agent, window)
    assert min(layer[:, 2, :3].sum(-1).min() for layer in maps) < 0.5  # the rest is on the padding
    for one in mean_looks(agent, window, causal=False):
        row = maps[one.layer][one.head, 2, :3].astype(float)
        assert one.steps_back == pytest.approx((2 * row[0] + row[1]) / row.sum(), abs=1e-6)
        assert one.on_itself == pytest.approx(row[2], abs=1e-6)


def test_windows_of_a_recurrent_agent_are_windows_too() -> None:
    agent = make_agent(model=DMConfig(embed_dim=16, n_layers=2, state_size=4, acting="recurrent"))
    assert decision_windows(agent, episodes=1).shape[1] == 4
    assert agent.acting == "recurrent"
    with pytest.raises(ConfigError, match="at least one episode"):
        decision_windows(agent, episodes=0)


def test_the_newest_steps_of_windows() -> None:
    windows = windows_of(make_agent(), [4, 3, 1])
    found = newest_steps(windows, 2)
    assert found.valid.tolist() == [[True, True], [True, True], [True, False]]
    for name in ("observations", "actions", "returns_to_go", "timesteps"):
        before, after = getattr(windows, name), getattr(found, name)
        assert torch.equal(after[0], before[0, 2:4])
        assert torch.equal(after[1], before[1, 1:3])
        assert torch.equal(after[2, :1], before[2, :1])
        assert not after[2, 1].any()
    assert torch.equal(newest_steps(windows, 9).observations, windows.observations)


# -- attention maps ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ATTENTION)
def test_maps_rebuild_what_each_layer_computes(name: str) -> None:
    """Weights times values through the output projection must be the layer's own output, computed by the network."""
    agent = make_agent(model=ATTENTION[name])
    window = windows_of(agent, [4])
    maps = attention_maps(agent, window)
    layers = attention_layers(agent.model)
    inputs = layer_inputs(agent.model, window, layers)
    assert len(maps) == 2
    for layer, weights, x in zip(layers, maps, inputs, strict=True):
        length = 4 if name == "unimask" else 12
        assert weights.shape == (4, length, length)
        np.testing.assert_allclose(weights.sum(-1), 1.0, atol=1e-5)
        if layer.causal:
            assert not np.triu(weights[0], 1).any()
        with torch.no_grad():
            values = torch.nn.functional.linear(x, layer.qkv, layer.bias).chunk(3, dim=-1)[2]
            heads = torch.from_numpy(weights) @ values[0].unflatten(-1, (4, 4)).transpose(0, 1)  # (H, L, h)
            module: Any = layer.module
            if layer.gate is not None:
                heads = layer.gate(heads[None], x)[0]
            merged = heads.transpose(0, 1).flatten(1)
            if layer.causal:
                torch.testing.assert_close(module.proj(merged), module(x)[0], atol=1e-5, rtol=1e-4)
            else:
                expected = module.self_attn(x)[0]
                torch.testing.assert_close(module.self_attn.out_proj(merged), expected, atol=1e-5, rtol=1e-4)


def test_a_low_temperature_sharpens_a_map() -> None:
    agent = make_agent(model=DTConfig(**SIZES))
    window = windows_of(agent, [4])
    plain, sharp = (attention_maps(agent, window, t)[0] for t in (1.0, 0.1))
    assert (sharp.max(-1) >= plain.max(-1) - 1e-6).all()
    assert float(sharp.max(-1).mean()) > float(plain.max(-1).mean()) + 0.05
    with pytest.raises(ShapeError, match="one window at a positive temperature, got 4"):
        attention_maps(agent, windows_of(agent))


# -- head importance ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ATTENTION)
def test_importance_is_how_far_the_action_moves(name: str) -> None:
    agent = make_agent(model=ATTENTION[name])
    windows = windows_of(agent)
    before = {key: value.clone() for key, value in agent.model.state_dict().items()}
    found = head_importance(agent, windows)
    assert all(torch.equal(value, before[key]) for key, value in agent.model.state_dict().items())
    layer = attention_layers(agent.model)[1]
    with torch.no_grad():
        whole = agent.model.act(windows)
        layer.output[:, 8:12] = 0.0  # head 2 of four heads of four numbers
        moved = (agent.model.act(windows) - whole).norm(dim=1).double()
    assert found.mean[1][2] == pytest.approx(float(moved.mean()), rel=1e-4)
    assert found.standard_error[1][2] == pytest.approx(float(moved.std()) / 2.0, rel=1e-3)
    assert found.mean[1][2] > 1e-6
    assert found.decisions == 4


def test_a_head_whose_output_goes_nowhere_does_not_matter() -> None:
    agent = make_agent(model=DTConfig(**SIZES))
    layers = attention_layers(agent.model)
    with torch.no_grad():
        layers[0].output[:, 4:8] = 0.0
    found = head_importance(agent, windows_of(agent))
    assert found.mean[0][1] == 0.0
    assert min(found.mean[0][0], found.mean[0][2], found.mean[0][3]) > 0.0


def test_silencing_ends_with_its_block_even_after_an_error() -> None:
    layer = attention_layers(make_agent(model=DTConfig(**SIZES)).model)[0]
    before = layer.output.clone()
    with layer.without_head(1):
        assert not layer.output[:, 4:8].any()
        assert layer.output[:, :4].any()
    assert torch.equal(layer.output, before)
    with pytest.raises(ZeroDivisionError), layer.without_head(1):
        _ = 1 / 0
    assert torch.equal(layer.output, before)


# -- Markov report -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["dt", "gpt2", "lora"])
def test_a_markov_head_is_found_where_it_was_put(name: str) -> None:
    sizes: dict[str, Any] = {"embed_dim": 128, "n_layers": 2, "n_heads": 2}
    config = (
        DTConfig(**sizes) if name == "dt" else GPT2DTConfig(**sizes, adaptation="lora" if name == "lora" else "full")
    )
    agent = make_agent(model=config)
    with torch.no_grad():
        weight = next(p for n, p in agent.model.named_parameters() if n.endswith("blocks.1.attn.qkv.weight"))
        weight[192:256] = weight[64:128]  # rows of the keys of head 1 = rows of its queries
    found = markov_report(agent)
    assert [(one.layer, one.head) for one in found.heads if one.markov] == [(1, 1)]
    assert found.markov_heads(1) == [1]
    assert found.markov_heads() == []
    assert found.heads[3].ratio == pytest.approx(math.sqrt(math.pi * 64 / 2), rel=0.1)
    assert found.head_size == 64
    assert "sqrt(pi h / 2) = 10.0" in found.scale()
    assert not any(one.markov for one in markov_report(agent, threshold=20.0).heads)


def test_a_low_rank_update_counts_as_part_of_the_weight() -> None:
    agent = make_agent(model=GPT2DTConfig(**SIZES, adaptation="lora"))
    before = markov_report(agent).heads[0].ratio
    with torch.no_grad():
        for name, parameter in agent.model.named_parameters():
            if name.endswith("lora_b"):
                parameter.normal_()
    assert markov_report(agent).heads[0].ratio != pytest.approx(before, rel=1e-3)


def test_the_gain_of_the_norm_can_be_folded_in() -> None:
    agent = make_agent(model=DTConfig(**SIZES))
    plain = markov_report(agent)
    assert markov_report(agent, fold_ln_gain=True).heads == plain.heads  # fresh gains are 1
    gain = agent.model.get_parameter("backbone.blocks.0.ln_1.weight")
    with torch.no_grad():
        gain[0] = 100.0
    folded = markov_report(agent, fold_ln_gain=True)
    assert folded.heads[0].ratio != pytest.approx(plain.heads[0].ratio, rel=0.01)
    matrix = head_matrix(attention_layers(agent.model)[0].qkv, 4, 0)
    on_both_sides = gain.detach().double().diag() @ matrix @ gain.detach().double().diag()
    assert folded.heads[0].ratio == pytest.approx(markov_statistics(on_both_sides).ratio)
    assert folded.heads[4:] == plain.heads[4:]  # the other layer has its own norm
    assert markov_report(agent).heads == plain.heads


def test_an_untrained_twin_reads_observations_the_same_and_leaves_the_generator_alone() -> None:
    agent = make_agent()
    agent.model.obs_mean.fill_(3.0)
    agent.model.obs_std.fill_(2.0)
    torch.manual_seed(4)
    expected = torch.rand(1)
    torch.manual_seed(4)
    twin = untrained(agent, seed=1)
    assert torch.equal(torch.rand(1), expected)
    assert torch.equal(twin.model.obs_mean, agent.model.obs_mean)
    assert torch.equal(twin.model.obs_std, agent.model.obs_std)
    weights = [one.model.get_parameter("backbone.blocks.0.up.weight") for one in (agent, twin)]
    assert not torch.allclose(*weights)


def a_report(*heads: tuple[float, float]) -> MarkovReport:
    """Of one layer with these positive shares and ratios."""
    found = [
        MarkovHead(0, i, share == 1.0, share, ratio, share == 1.0 and ratio > 8)
        for i, (share, ratio) in enumerate(heads)
    ]
    return MarkovReport("x", 8.0, 5.8, 128, 64, [*found, MarkovHead(1, 0, True, 1.0, 99.0, True)])


def test_without_a_markov_head_the_nearest_is_counted_and_called_that() -> None:
    some = a_report((1.0, 9.0), (0.5, 20.0), (1.0, 8.5))
    assert some.counted()[:3] == ((0, 2), "markov", False)
    assert some.counted([2, 0])[:2] == ((0, 2), "markov")
    assert some.counted([2])[:2] == ((2,), "named")
    assert some.counted().words() == "Markov heads 0, 2"
    assert some.counted([2]).words() == "head 2, as named"
    none = a_report((0.9, 3.0), (0.9, 7.0), (1.0, 6.0), (0.0, 12.0))
    assert none.counted()[:2] == ((1,), "nearest")  # head 3 has a higher ratio, on a diagonal of negative numbers
    assert none.counted().words() == "head 1, nearest to Markov (ratio 7.00, r = 8)"
    assert a_report((0.1, 3.0), (0.0, 7.0)).counted()[:2] == ((1,), "nearest")


def test_heads_are_counted_by_what_they_were_when_training_began() -> None:
    now = a_report((1.0, 9.0), (0.5, 20.0), (1.0, 8.5), (1.0, 2.0))
    weak = DTMAConfig(**SIZES, markov_at_start=((0.5, 1.0), (0.6, 1.1), (0.4, 1.2), (0.5, 0.9)))
    strong = DTMAConfig(**SIZES, markov_at_start=((1.0, 8.1), (0.6, 1.1), (0.9, 11.0), (0.5, 0.9)))
    assert now.counted(model=DTMAConfig(**SIZES)) == now.counted()
    assert now.counted(model=weak)[:4] == ((1,), "nearest", True, 1.1)
    assert now.counted(model=weak).words() == "head 1, nearest to Markov when training began (ratio 1.10, r = 8)"
    assert now.counted(model=strong).words() == "Markov head 0 when training began"
    assert now.counted([0, 2], strong).words() == "heads 0, 2, as named"
    assert now._replace(fold_ln_gain=True).counted(model=weak) == now.counted()
    with pytest.raises(ValidationError, match="markov_at_start has 1 entries for 4 heads"):
        DTMAConfig(**SIZES, markov_at_start=((1.0, 8.1),))


def test_reports_of_heads_refuse_a_network_without_attention() -> None:
    agent = make_agent(model=BCConfig(embed_dim=16))
    for look in (markov_report, lambda a: head_importance(a, windows_of(a))):
        with pytest.raises(ConfigError, match="'bc' network has no attention layers"):
            look(agent)
