"""Online Decision Transformer: densities and entropies checked by numerical integration, learning, sampling."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from conftest import make_agent, random_batch

from agentzoo.data.episodes import Episodes
from agentzoo.data.windows import WindowSampler
from agentzoo.models.odt import ODT, Normal, ODTConfig
from agentzoo.recipe import load_recipe
from agentzoo.types import ActionSpec, IOSpec, ObservationSpec

SMALL = ODTConfig(embed_dim=16, n_layers=1, dropout=0.0)


def one(mean: float, std: float, squashed: bool = True) -> Normal:
    numbers = (torch.tensor([value], dtype=torch.float64) for value in (mean, math.log(std)))
    return Normal(*numbers, squashed)


@pytest.mark.parametrize(("mean", "std"), [(0.0, 0.5), (0.7, 0.2), (-1.5, 1.0)])
def test_the_density_is_one_in_all_and_its_entropy_is_what_integration_gives(mean: float, std: float) -> None:
    """In x the integrals have smooth, light-tailed integrands: da = (1 - tanh(x)^2) dx."""
    x = torch.linspace(mean - 10 * std, mean + 10 * std, 200_001, dtype=torch.float64)
    action = torch.tanh(x)
    inside = action.abs() < 1 - 1e-6
    log_p = one(mean, std).log_prob(action.unsqueeze(-1))
    weight = (log_p.exp() * (1 - action.square()))[inside] * (x[1] - x[0])
    assert float(weight.sum()) == pytest.approx(1.0, abs=1e-4)
    by_hand = float(-(weight * log_p[inside]).sum())
    assert float(one(mean, std).entropy()) == pytest.approx(by_hand, abs=2e-3)


def test_an_unbounded_action_has_the_entropy_of_a_normal_number() -> None:
    assert float(one(3.0, 2.0, squashed=False).entropy()) == pytest.approx(0.5 * math.log(2 * math.pi * math.e * 4.0))
    assert float(one(3.0, 2.0, squashed=False).log_prob(torch.tensor([3.0]))) == pytest.approx(
        -math.log(2.0 * math.sqrt(2 * math.pi))
    )


def two_sided_episodes() -> Episodes:
    """One-step episodes whose action is +1.2 or -1.2 at even odds, of a space of -2 to 2: x is +-0.693."""
    rng = np.random.default_rng(0)
    return Episodes(
        dataset="coins",
        observation=ObservationSpec(size=1, shapes=((1,),)),
        action=ActionSpec(kind="box", size=1, low=(-2.0,), high=(2.0,)),
        observations=np.ones((400, 1), dtype=np.float32),
        actions=(1.2 * np.repeat([-1.0, 1.0], 200)[rng.permutation(400)])[:, None].astype(np.float32),
        rewards=np.zeros(400),
        lengths=np.ones(400, dtype=int),
        terminated=np.ones(400, dtype=bool),
    )


def trained(floor: float) -> ODT:
    data = two_sided_episodes()
    torch.manual_seed(0)
    config = SMALL.model_copy(update={"entropy_floor": floor})
    model = ODT(config, IOSpec(observation=data.observation, action=data.action, context=1))
    sampler, generator = WindowSampler(data, 1, 1.0), torch.Generator().manual_seed(0)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(500):
        optimizer.zero_grad()
        torch.stack(list(model.loss(sampler.sample(64, generator)).values())).sum().backward()
        optimizer.step()
    return model.eval()


def normal_of(model: ODT) -> Normal:
    batch = WindowSampler(two_sided_episodes(), 1, 1.0).at(torch.tensor([0]))
    with torch.no_grad():
        return model._normal(model._output(batch, slice(1, None, 3))[:, 0])


def test_training_finds_the_likeliest_distribution_where_the_floor_is_low() -> None:
    """The best normal distribution of x = +-atanh(0.6) has mean 0 and standard deviation atanh(0.6) = 0.693."""
    found = normal_of(trained(floor=-5.0))
    assert float(found.mean) == pytest.approx(0.0, abs=0.1)
    assert float(found.log_std.exp()) == pytest.approx(math.atanh(0.6), abs=0.07)


def test_a_floor_above_that_entropy_is_kept() -> None:
    free, held = (float(normal_of(trained(floor)).entropy()) for floor in (-5.0, 0.68))
    assert free < 0.66
    assert held == pytest.approx(0.68, abs=0.012)  # the most there can be is log 2 = 0.693, the uniform distribution's


def test_the_temperature_learns_from_its_own_term_alone() -> None:
    model = trained(floor=-1.0)
    batch = WindowSampler(two_sided_episodes(), 1, 1.0).at(torch.arange(8))
    terms = model.loss(batch)
    for name, moves in (("action_nll", False), ("entropy_bonus", False), ("temperature", True)):
        (found,) = torch.autograd.grad(terms[name], [model.log_temperature], retain_graph=True, allow_unused=True)
        assert (found is not None) is moves
    entropy = float(normal_of(model).entropy())
    assert float(terms["temperature"]) == pytest.approx(float(model.log_temperature.exp()) * (entropy + 1.0), rel=1e-4)
    assert not model.decays("log_temperature")


def test_predict_samples_around_its_mode() -> None:
    agent = make_agent(model=SMALL)
    obs = np.zeros((500, agent.config.io.observation.size), dtype=np.float32)
    starts, rewards = np.ones(500, dtype=bool), np.zeros(500)
    sure, _ = agent.predict(obs, None, starts, deterministic=True, reward=rewards)
    agent.set_random_seed(0)
    drawn, _ = agent.predict(obs, None, starts, reward=rewards)
    assert len(np.unique(sure, axis=0)) == 1
    assert len(np.unique(drawn, axis=0)) > 400
    space = agent.config.io.action
    assert np.median(drawn, axis=0) == pytest.approx(sure[0], abs=0.25 * (space.high[0] - space.low[0]))  # type: ignore[index]


def test_a_deterministic_action_uses_no_random_number() -> None:
    agent = make_agent(model=SMALL)
    obs = np.zeros(agent.config.io.observation.size, dtype=np.float32)
    start = np.array([True])
    agent.set_random_seed(0)
    drawn, _ = agent.predict(obs, None, start, reward=0.0)
    agent.set_random_seed(0)
    agent.predict(obs, None, start, deterministic=True, reward=0.0)
    again, _ = agent.predict(obs, None, start, reward=0.0)
    np.testing.assert_array_equal(again, drawn)


def test_the_recipe_of_odt_is_dts_with_another_network() -> None:
    ours, theirs = load_recipe("odt-hopper-medium"), load_recipe("dt-hopper-medium")
    assert (ours.data, ours.train, ours.eval) == (theirs.data, theirs.train, theirs.eval)


def test_a_density_is_float32_under_autocast() -> None:
    """Near 2, bfloat16 has steps of .016, more than twice the smallest standard deviation."""
    agent = make_agent(model=SMALL)
    model = agent.model
    assert isinstance(model, ODT)
    with torch.no_grad():
        model.predict_action.weight.zero_()
        model.predict_action.bias.copy_(torch.tensor([2.007, 2.007, -10.0, -10.0]))
    batch = random_batch(agent.config.io, [4, 4, 4])
    batch = replace(batch, actions=(2.0 * torch.tanh(torch.tensor([2.007, 2.007]))).expand(3, 4, 2))
    plain = float(model.loss(batch)["action_nll"])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert float(model.loss(batch)["action_nll"]) == pytest.approx(plain, abs=1e-3)
