"""A Decision Mamba's step in NumPy gives the numbers of its step in PyTorch, whatever happens to its weights."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from conftest import change_in_place, move
from decision_mamba_cases import SMALL, A, S, make_batch, make_io, make_model, play
from torch import Tensor

from agentzoo.models import decision_mamba
from agentzoo.models.decision_mamba import DecisionMamba, DMConfig, Memory
from agentzoo.nn import mamba_numpy
from agentzoo.nn.recurrent import reset_rows

known = pytest.mark.parametrize("gather", ["step", "causal3"])


@pytest.fixture
def both(monkeypatch: pytest.MonkeyPatch) -> Any:
    """`step` of a model in NumPy and in PyTorch from the same memory; fails where the first does not run in NumPy."""

    def step(model: DecisionMamba, memory: Memory, *now: Tensor) -> list[tuple[Tensor, Memory]]:
        assert model._steps_in_numpy(memory, len(now[0]))
        found = model.step(memory, *now)
        with monkeypatch.context() as patch:
            patch.setattr(decision_mamba, "MOST_ENVS", 0)
            return [found, model.step(memory, *now)]

    return step


def inputs(n: int, t: int, g: torch.Generator, discrete: bool = False, obs: int = S, actions: int = A) -> Any:
    box = torch.rand(n, actions, generator=g) * 2 - 1
    action = torch.randint(4, (n,), generator=g) if discrete else box
    return torch.rand(n, generator=g), torch.randn(n, obs, generator=g), action, torch.full((n,), t)


@pytest.mark.parametrize("n", [1, 3])
def test_a_thousand_steps_of_the_small_preset_are_those_of_pytorch(n: int) -> None:
    """Each goes on from its own memory; an episode ends every 300 steps in one environment."""
    torch.manual_seed(0)
    model = DecisionMamba(DMConfig(), make_io()).eval()
    twin = copy.deepcopy(model)
    twin._steps_in_numpy = lambda *_: False  # type: ignore[method-assign]
    ours = theirs = model.initial_state(n)
    g, worst = torch.Generator().manual_seed(1), 0.0
    for t in range(1000):
        fresh = torch.arange(n) == (t // 300 % n if t % 300 == 0 else n)
        ours, theirs = reset_rows(ours, fresh), reset_rows(theirs, fresh)
        now = inputs(n, t, g)
        (found, ours), (wanted, theirs) = model.step(ours, *now), twin.step(theirs, *now)
        worst = max(worst, float((found - wanted).abs().max()))
    assert worst < 1e-5
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, other, atol=1e-5, rtol=1e-5)


@known
@pytest.mark.parametrize("discrete", [False, True], ids=["box", "discrete"])
def test_equal_to_rounding_with_resets_in_the_middle(both: Any, gather: str, discrete: bool) -> None:
    """In float64, where a wrong formula cannot hide; weights and biases all differ from their starting values."""
    model = make_model(discrete=discrete, gather=gather, max_ep_len=9).eval()
    memory, g = model.initial_state(3), torch.Generator().manual_seed(2)
    for t in range(12):  # beyond the timestep table too
        memory = reset_rows(memory, torch.tensor([t == 4, False, t == 7]))
        now = [value.double() if value.is_floating_point() else value for value in inputs(3, t, g, discrete)]
        kept = [tensor.clone() for tensor in memory]
        (found, after), (wanted, expected) = both(model, memory, *now)
        torch.testing.assert_close(found, wanted, atol=1e-10, rtol=1e-10)
        for mine, other in zip(after, expected, strict=True):
            torch.testing.assert_close(mine, other, atol=1e-10, rtol=1e-10)
        assert all(torch.equal(a, b) for a, b in zip(kept, memory, strict=True))
        memory = after


def test_far_out_activations_are_finite_and_silent(both: Any, recwarn: pytest.WarningsRecorder) -> None:
    model = make_model().eval()
    with torch.no_grad():
        for block in (model.layers[0].coarse, model.layers[0].fine):
            block.in_proj.weight.mul_(1e5)
    now = [v.double() if v.is_floating_point() else v for v in inputs(1, 0, torch.Generator().manual_seed(3))]
    (found, _), (wanted, _) = both(model, model.initial_state(1), *now)
    torch.testing.assert_close(found, wanted)
    assert not recwarn.list


def load(model: DecisionMamba) -> None:
    model.load_state_dict(make_model(seed=5).state_dict())


def load_others(model: DecisionMamba) -> None:
    model.load_state_dict(make_model(seed=6).state_dict(), assign=True)


def train(model: DecisionMamba) -> None:
    optimizer = torch.optim.AdamW(model.train().parameters(), lr=0.1, fused=True)
    torch.autograd.backward(torch.stack(list(model.loss(make_batch()).values())).sum())
    optimizer.step()
    model.eval()


def train_without_saying(model: DecisionMamba) -> None:
    """In eval mode, as a user may who wants no dropout."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, fused=True)
    torch.autograd.backward(torch.stack(list(model.loss(make_batch()).values())).sum())
    optimizer.step()


@pytest.mark.parametrize("change", [change_in_place, load, load_others, move, train, train_without_saying])
def test_new_weights_act_at_once(change: Any) -> None:
    model, batch = make_model().eval(), make_batch()
    before = play(model, batch)[0]
    change(model)
    wanted = model.decode_actions(model(batch)).detach()
    assert not torch.allclose(before, wanted, atol=1e-3)
    assert torch.allclose(play(model, batch)[0], wanted, atol=1e-10)


def test_copies_act_with_their_own_weights() -> None:
    model, batch = make_model().eval(), make_batch()
    before = play(model, batch)[0]
    other = copy.deepcopy(model)
    change_in_place(other)
    assert torch.equal(play(model, batch)[0], before)
    assert torch.allclose(play(other, batch)[0], other.decode_actions(other(batch)), atol=1e-10)


def test_what_it_does_not_know_is_left_to_pytorch() -> None:
    few = mamba_numpy.MOST_ENVS
    assert make_model().eval()._steps_in_numpy(make_model().initial_state(1), few)
    for changes in ({"use_fine": False}, {"gather": "summary"}, {"fusion": "release"}, {"action_head": "tanh_linear"}):
        model = DecisionMamba(DMConfig(**{**SMALL, **changes}), make_io()).eval()
        assert not model._steps_in_numpy(model.initial_state(1), 1), changes
    model = make_model().eval()
    assert not model._steps_in_numpy(model.initial_state(few + 1), few + 1)
    assert not model._steps_in_numpy(model.initial_state(1, dtype=torch.float32), 1)
    assert not model.train()._steps_in_numpy(model.initial_state(1), 1)
    half = make_model().bfloat16().eval()
    assert not half._steps_in_numpy(half.initial_state(1), 1)


def test_activations_by_hand() -> None:
    x = np.linspace(-30, 30, 61, dtype=np.float32)
    for mine, theirs in ((mamba_numpy.silu, torch.nn.functional.silu), (mamba_numpy.gelu, torch.nn.functional.gelu)):
        np.testing.assert_allclose(mine(x), theirs(torch.from_numpy(x)).numpy(), atol=1e-6)
