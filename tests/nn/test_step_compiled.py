"""A Decision Mamba's step in C gives the numbers of its step in PyTorch, whatever happens to its weights."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from conftest import change_in_place
from decision_mamba_cases import SMALL, A, S, make_batch, make_io, make_model, play
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from agentzoo.models.decision_mamba import DecisionMamba, DMConfig, Memory
from agentzoo.nn.native import compiled
from agentzoo.nn.prepared import forget_prepared
from agentzoo.nn.recurrent import reset_rows

pytestmark = pytest.mark.skipif(compiled.library() is None, reason="there is no C compiler here")

VARIANTS: list[dict[str, Any]] = [
    {"gather": "step"},
    {"gather": "causal3"},
    {"use_fine": False},
    {"embed_dim": 20, "expand": 1, "state_size": 5, "conv_width": 1},  # no multiple of the vectors' width
    {"embed_dim": 9, "expand": 3, "state_size": 1, "conv_width": 6},
]


def make_single(**changes: Any) -> DecisionMamba:
    """In float32, or PyTorch does it."""
    model = make_model(**changes).float().eval()
    assert model._steps_in_c(model.initial_state(1))
    return model


def inputs(n: int, t: int, g: torch.Generator, discrete: bool = False) -> list[Tensor]:
    box = torch.rand(n, A, generator=g) * 2 - 1
    action = torch.randint(4, (n,), generator=g) if discrete else box
    return [torch.rand(n, generator=g), torch.randn(n, S, generator=g), action, torch.full((n,), t)]


def exactly(values: Any) -> list[Tensor]:
    return [value.double() if value.is_floating_point() else value for value in values]


@pytest.mark.parametrize("n", [1, 3])
def test_a_thousand_steps_of_the_small_preset_are_those_of_pytorch(n: int) -> None:
    """Each goes on from its own memory; an episode ends every 300 steps in one environment."""
    torch.manual_seed(0)
    model = DecisionMamba(DMConfig(), make_io()).eval()
    twin = copy.deepcopy(model)
    twin._steps_in_c = lambda _: False  # type: ignore[method-assign]
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


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda v: "-".join(str(x) for x in v.values()))
@pytest.mark.parametrize("discrete", [False, True], ids=["box", "discrete"])
def test_equal_to_float64_with_resets_in_the_middle(variant: dict[str, Any], discrete: bool) -> None:
    """Eleven environments are more than are done at once; weights and biases all differ from their starting values."""
    n = 11
    exact = make_model(discrete=discrete, max_ep_len=9, **variant).eval()
    model = make_single(discrete=discrete, max_ep_len=9, **variant)
    ours, wanted, g = model.initial_state(n), exact.initial_state(n), torch.Generator().manual_seed(2)
    for t in range(12):  # beyond the timestep table too
        fresh = (torch.arange(n) % 4 == 1) & (t in (4, 7))
        ours, wanted = reset_rows(ours, fresh), reset_rows(wanted, fresh)
        now = inputs(n, t, g, discrete)
        kept = [tensor.clone() for tensor in ours]
        (action, after), (right, wanted) = model.step(ours, *now), exact.step(wanted, *exactly(now))
        for mine, other in ((action, right), *zip(after, wanted, strict=True)):
            torch.testing.assert_close(mine, other, atol=2e-5, rtol=2e-5, check_dtype=False)
        assert all(torch.equal(a, b) for a, b in zip(kept, ours, strict=True))
        ours = after


@settings(max_examples=10, deadline=None)
@given(n=st.integers(1, 40), threads=st.integers(1, 3))
def test_a_batch_is_its_environments_one_by_one(n: int, threads: int) -> None:
    model, g = make_single(), torch.Generator().manual_seed(n)
    now, before = inputs(n, 5, g), torch.get_num_threads()
    memory = Memory(*(torch.randn(t.shape, generator=g) for t in model.initial_state(n)[:3]), torch.arange(n) % 3)
    torch.set_num_threads(threads)
    try:
        action, after = model.step(memory, *now)
    finally:
        torch.set_num_threads(before)
    for i in range(n):
        alone, own = model.step(Memory(*(t[i : i + 1] for t in memory)), *(value[i : i + 1] for value in now))
        for mine, other in ((alone, action), *zip(own, after, strict=True)):
            torch.testing.assert_close(mine, other[i : i + 1], atol=1e-6, rtol=1e-6)


def test_far_out_activations_are_finite() -> None:
    exact, model = make_model().eval(), make_single()
    with torch.no_grad():
        for network in (exact, model):
            for block in (network.layers[0].coarse, network.layers[0].fine):
                block.in_proj.weight.mul_(1e4)
    now = inputs(1, 0, torch.Generator().manual_seed(3))
    found, wanted = model.step(model.initial_state(1), *now)[0], exact.step(exact.initial_state(1), *exactly(now))[0]
    torch.testing.assert_close(found, wanted, check_dtype=False, atol=1e-3, rtol=1e-3)


def test_inputs_may_be_views_of_other_things() -> None:
    model, g = make_single(), torch.Generator().manual_seed(4)
    rtg, obs, action, time = inputs(4, 2, g)
    plain = model.step(model.initial_state(4), rtg, obs, action, time)[0]
    apart = (rtg.double().repeat_interleave(2)[::2], obs.t().contiguous().t(), action.double(), time.int())
    assert torch.equal(model.step(model.initial_state(4), *apart)[0], plain)


def test_what_does_not_belong_together_is_refused() -> None:
    """C would read what lies behind a tensor."""
    model = make_single()
    rtg, obs, action, time = inputs(2, 0, torch.Generator().manual_seed(5))
    memory = model.initial_state(2)
    for now in ((rtg[:1], obs, action, time), (rtg, obs[:, :2], action, time), (rtg, obs, action, time[:1])):
        with pytest.raises(ValueError, match="a step of 2 environments wants shape"):
            model.step(memory, *now)
    with pytest.raises(ValueError, match=r"wants shape \(2, 2, 2, 4, 32\), got \(1, 2, 2, 4, 32\)"):
        model.step(memory._replace(ssm=memory.ssm[:1]), rtg, obs, action, time)


def test_other_defaults_of_pytorch_change_nothing() -> None:
    now = inputs(2, 3, torch.Generator().manual_seed(6))
    model = make_single()
    wanted = model.step(model.initial_state(2), *now)[0]
    state = model.initial_state(2)
    fresh = copy.deepcopy(model)
    torch.set_default_dtype(torch.float64)
    try:
        with torch.device("meta"):
            found = fresh.step(state, *now)[0]
    finally:
        torch.set_default_dtype(torch.float32)
    assert torch.equal(found, wanted)


def test_another_device_is_an_error_and_no_environments_are_none() -> None:
    model = make_single()
    rtg, obs, action, time = inputs(2, 0, torch.Generator().manual_seed(7))
    with pytest.raises(ValueError, match="one of its inputs is on meta"):
        model.step(model.initial_state(2), rtg, obs.to("meta"), action, time)
    none = model.step(model.initial_state(0), rtg[:0], obs[:0], action[:0], time[:0])
    assert [len(part) for part in (none[0], *none[1])] == [0] * 5


@pytest.mark.parametrize("make", [make_single, make_model], ids=["compiled", "PyTorch"])
def test_the_action_before_the_first_step_is_not_read(make: Callable[[], DecisionMamba]) -> None:
    model = make().eval()
    now = inputs(2, 0, torch.Generator().manual_seed(8))
    now = now if model.obs_mean.dtype == torch.float32 else exactly(now)
    wanted = model.step(model.initial_state(2), *now)[0]
    now[2] = torch.full_like(now[2], torch.nan)
    assert torch.equal(model.step(model.initial_state(2), *now)[0], wanted)


def test_weights_of_before_and_after_are_never_mixed() -> None:
    """Nothing marks what is written to `.data`."""
    model, other = make_single(), make_single(seed=5)
    before, after = single_play(model), single_play(other)
    for mine, new in zip(model.parameters(), other.parameters(), strict=True):
        mine.data.copy_(new.data)
    assert torch.equal(single_play(model), before)
    forget_prepared(model)
    assert torch.equal(single_play(model), after)


def load(model: DecisionMamba) -> None:
    model.load_state_dict(make_model(seed=5).state_dict())


def load_others(model: DecisionMamba) -> None:
    model.load_state_dict(make_model(seed=6).float().state_dict(), assign=True)


def move(model: DecisionMamba) -> None:
    change_in_place(model.double())
    model.float()


def train(model: DecisionMamba) -> None:
    train_without_saying(model.train())
    model.eval()


def train_without_saying(model: DecisionMamba) -> None:
    """In eval mode, as a user may who wants no dropout."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, fused=True)
    batch = single_batch()
    torch.autograd.backward(torch.stack(list(model.loss(batch).values())).sum())
    optimizer.step()


@pytest.mark.parametrize("change", [change_in_place, load, load_others, move, train, train_without_saying])
def test_new_weights_act_at_once(change: Any) -> None:
    model = make_single()
    before = single_play(model)
    change(model)
    wanted = single_window(model)
    assert not torch.allclose(before, wanted, atol=1e-3)
    torch.testing.assert_close(single_play(model), wanted, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
def test_copies_act_with_their_own_weights(copied: Any) -> None:
    model = make_single()
    before = single_play(model)
    other = copied(model)
    change_in_place(other)
    assert torch.equal(single_play(model), before)
    torch.testing.assert_close(single_play(other), single_window(other), atol=1e-4, rtol=1e-4)


def single_play(model: DecisionMamba) -> Tensor:
    return play(model, single_batch())[0]


def single_window(model: DecisionMamba) -> Tensor:
    with torch.no_grad():
        return model.decode_actions(model(single_batch()))


def single_batch() -> Any:
    batch = make_batch()
    return type(batch)(*(exact.float() if exact.is_floating_point() else exact for exact in vars(batch).values()))


def test_what_it_does_not_know_is_left_to_pytorch(monkeypatch: pytest.MonkeyPatch) -> None:
    for changes in ({"gather": "summary"}, {"fusion": "release"}, {"action_head": "tanh_linear"}):
        model = DecisionMamba(DMConfig(**{**SMALL, **changes}), make_io()).eval()
        assert not model._steps_in_c(model.initial_state(1)), changes
    model = make_single()
    assert not model._steps_in_c(model.initial_state(1, dtype=torch.float64))
    assert not model.train()._steps_in_c(model.initial_state(1))
    assert not make_model().eval()._steps_in_c(make_model().initial_state(1))
    monkeypatch.setenv(compiled.SWITCH, "0")
    compiled.library.cache_clear()
    try:
        assert not make_model().float().eval()._steps_in_c(model.initial_state(1))
    finally:
        compiled.library.cache_clear()
