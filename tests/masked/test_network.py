"""The masked network: what is hidden stays hidden, losses are those worked out by hand, layers are PyTorch's."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from agentzoo.data.episodes import Episodes
from agentzoo.data.windows import WindowSampler
from agentzoo.errors import ConfigError, DataError
from agentzoo.models.unimask import UniMask, UniMaskConfig, sinusoids
from agentzoo.nn.dropout import Dropout
from agentzoo.nn.encoder import EncoderLayer
from agentzoo.nn.masking import STEP_TASKS, Masking, draw
from agentzoo.types import ActionSpec, Batch, IOSpec, ObservationSpec
from masked.cases import any_batch, doorkey_agent, network

BODIES = ("transformer", "mlp")


def outputs(model: Any, batch: Batch, masking: Masking) -> list[torch.Tensor]:
    with torch.no_grad():
        said = model(batch, masking)
    return [said.action, *said.observations]


def junk_where_hidden(batch: Batch, masking: Masking, generator: torch.Generator) -> Batch:
    """The same windows with other numbers wherever nothing is shown; timesteps matter only beside a shown return."""
    hidden = ~masking.observations[..., None]
    obs = torch.where(hidden, torch.randn(batch.observations.shape, generator=generator) * 100, batch.observations)
    if batch.actions.ndim == 2:
        noise = torch.randint(4, batch.actions.shape, generator=generator)
        actions = torch.where(masking.actions, batch.actions, noise)
    else:
        noise = torch.randn(batch.actions.shape, generator=generator) * 100
        actions = torch.where(masking.actions[..., None], batch.actions, noise)
    rtg = torch.where(masking.returns, batch.returns_to_go, torch.tensor(-77.0))
    times = torch.where(masking.returns, batch.timesteps, torch.tensor(500))
    return replace(batch, observations=obs, actions=actions, returns_to_go=rtg, timesteps=times)


@pytest.mark.parametrize("indicator", [False, True])
@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("discrete", [False, True])
@given(task=st.sampled_from((*STEP_TASKS, "rnd")), seed=st.integers(0, 9999))
@settings(max_examples=25, deadline=None)
def test_what_is_hidden_does_not_change_a_bit_of_any_output(
    discrete: bool, body: str, indicator: bool, task: Any, seed: int
) -> None:
    model = (
        doorkey_agent(body=body, mask_indicator=indicator).model
        if discrete
        else network(body=body, mask_indicator=indicator)
    )
    generator = torch.Generator().manual_seed(seed)
    batch = any_batch(model.io, 4, seed)
    masking = draw(task, 4, model.io.context, generator)
    changed = junk_where_hidden(batch, masking, generator)
    for before, after in zip(outputs(model, batch, masking), outputs(model, changed, masking), strict=True):
        assert torch.equal(before, after)


@pytest.mark.parametrize("body", BODIES)
def test_what_is_shown_changes_every_output(body: str) -> None:
    model = network(body=body)
    batch = any_batch(model.io, 2)
    everything = torch.ones_like(batch.valid)
    masking = Masking(everything, everything, everything, ~everything, ~everything)
    before = outputs(model, batch, masking)
    for name in ("observations", "actions", "returns_to_go"):
        moved = getattr(batch, name).clone()
        moved[:, 3] += 0.5
        for a, b in zip(before, outputs(model, replace(batch, **{name: moved}), masking), strict=True):
            assert ((a - b).abs().amax(dim=-1) > 1e-6).all(), name  # at steps before and after it alike


def test_hidden_zeros_and_real_ones_differ_only_with_the_indicator() -> None:
    for indicator in (False, True):
        model = network(mask_indicator=indicator)
        batch = replace(any_batch(model.io, 1), observations=torch.zeros(1, 6, 3))
        on = torch.ones_like(batch.valid)
        shown = outputs(model, batch, Masking(on, on, ~on, ~on, ~on))
        hidden = outputs(model, batch, Masking(~on, on, ~on, ~on, ~on))
        assert torch.equal(shown[0], hidden[0]) != indicator


def test_padding_is_as_hidden_and_short_windows_are_as_padded() -> None:
    model = network()
    batch = any_batch(model.io, 2)
    valid = torch.arange(6) < torch.tensor([[4], [6]])
    on = torch.ones_like(valid)
    masking = Masking(on, on, ~on, ~on, ~on)
    padded = outputs(model, replace(batch, valid=valid), masking)
    hidden = outputs(model, batch, masking.within(valid))
    for a, b in zip(padded, hidden, strict=True):
        assert torch.equal(a, b)
    short = batch.map(lambda part: part[:1, :4])
    cut = outputs(model, short, Masking(*(mask[:1, :4] for mask in masking)))
    for a, b in zip(padded, cut, strict=True):
        torch.testing.assert_close(a[:1], b, atol=1e-6, rtol=0)


def flat_network(**config: Any) -> Any:
    """Answers 0 everywhere: uniform over choices."""
    model = doorkey_agent(**config).model
    with torch.no_grad():
        for parameter in model.body.predict.parameters():
            parameter.zero_()
    return model


def onehot_batch(io: IOSpec, count: int) -> Batch:
    batch = any_batch(io, count)
    cells = torch.randint(16, (2, *batch.valid.shape), generator=torch.Generator().manual_seed(5))
    return replace(batch, observations=torch.cat([nn.functional.one_hot(c, 16).float() for c in cells], dim=-1))


def test_uniform_answers_cost_the_logarithm_of_the_choices() -> None:
    model = flat_network()
    batch = onehot_batch(model.io, 20)
    losses = model.factor_losses(batch, draw("past", 20, 10, torch.Generator().manual_seed(0)))
    assert list(losses) == ["action", "obs/agent", "obs/key"]
    assert float(losses["action"]) == pytest.approx(math.log(4), abs=1e-6)
    assert float(losses["obs/agent"]) == pytest.approx(math.log(16), abs=1e-6)
    assert float(losses["obs/key"]) == pytest.approx(math.log(16), abs=1e-6)


def test_a_factor_nobody_asks_for_costs_nothing() -> None:
    model = flat_network()
    batch = onehot_batch(model.io, 10)
    bc = model.factor_losses(batch, draw("bc", 10, 10))
    forward = model.factor_losses(batch, draw("forward", 10, 10))
    assert (float(bc["obs/agent"]), float(bc["obs/key"]), float(forward["action"])) == (0.0, 0.0, 0.0)
    assert float(forward["obs/agent"]) > 2.0


def test_an_observation_may_be_called_action() -> None:
    spec = ObservationSpec(size=4, keys=("action", "x"), shapes=((2,), (2,)))
    action = ActionSpec(kind="box", size=2, low=(-1.0, -1.0), high=(1.0, 1.0))
    model = network(IOSpec(observation=spec, action=action, context=4))
    losses = model.loss(any_batch(model.io, 8))
    assert list(losses) == ["action", "obs/action", "obs/x"]
    losses["action"].backward()  # type: ignore[no-untyped-call]
    gradient = model.body.predict.weight.grad.abs().sum(1)
    assert (gradient > 0).tolist() == [True, True] + [False] * (len(gradient) - 2)


def test_weights_of_the_loss() -> None:
    model = flat_network(tasks=("past",), action_weight=2.0, state_weight=0.25)
    losses = model.loss(onehot_batch(model.io, 10))
    assert float(losses["action"]) == pytest.approx(2 * math.log(4), abs=1e-5)
    assert float(losses["obs/agent"]) == pytest.approx(0.25 * math.log(16), abs=1e-5)


def test_a_continuous_loss_by_hand() -> None:
    io = IOSpec(
        observation=ObservationSpec(size=2, shapes=((2,),)),
        action=ActionSpec(kind="box", size=1, low=(-2.0,), high=(2.0,)),
        context=2,
    )
    model = network(io)
    with torch.no_grad():
        for parameter in model.body.predict.parameters():
            parameter.zero_()
    model.obs_mean[:], model.obs_std[:] = torch.tensor([1.0, 0.0]), torch.tensor([2.0, 1.0])
    batch = Batch(
        observations=torch.tensor([[[1.0, 0.0], [5.0, 3.0]]]),  # normalized: (0, 0), (2, 3)
        actions=torch.tensor([[[1.0], [-2.0]]]),  # encoded: 0.5, -1
        returns_to_go=torch.zeros(1, 2),
        timesteps=torch.arange(2)[None],
        valid=torch.ones(1, 2, dtype=torch.bool),
    )
    on = torch.ones(1, 2, dtype=torch.bool)
    losses = model.factor_losses(batch, Masking(~on, ~on, ~on, on, on))
    assert float(losses["action"]) == pytest.approx((0.25 + 1.0) / 2)
    assert float(losses["observation"]) == pytest.approx((0.0 + (4.0 + 9.0) / 2) / 2)


def test_turns_of_several_tasks() -> None:
    model = network(tasks=("bc", "forward"))
    batch = any_batch(model.io, 6)
    for step in range(4):
        model.begin_step(step, 10)
        masking = model.draw_masking(batch)
        assert bool(masking.ask_actions.any()) == (step % 2 == 0)
    mixed = network(tasks=("bc", "forward"), turns="window").draw_masking(any_batch(model.io, 200))
    share = mixed.ask_actions.any(dim=1).double().mean()
    assert 0.3 < share < 0.7
    assert (mixed.ask_actions.any(dim=1) ^ mixed.ask_observations.any(dim=1)).all()


@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_an_encoder_layer_is_pytorchs(dropout: float) -> None:
    torch.manual_seed(1)
    ours = EncoderLayer(24, 3, 40, dropout)
    theirs = nn.TransformerEncoderLayer(24, 3, 40, dropout, batch_first=True)
    theirs.load_state_dict(ours.state_dict())
    x = torch.randn(5, 7, 24, requires_grad=True)
    torch.testing.assert_close(ours.eval()(x), theirs.eval()(x), atol=1e-6, rtol=0)
    # in training: the same function once no number is dropped
    ours.dropout.p = ours.self_attn.cheap_dropout.p = 1e-9
    theirs_p0 = nn.TransformerEncoderLayer(24, 3, 40, 0.0, batch_first=True)
    theirs_p0.load_state_dict(theirs.state_dict())
    mine, other = ours.train()(x), theirs_p0.train()(x)
    torch.testing.assert_close(mine, other, atol=1e-5, rtol=0)
    weight = torch.randn_like(mine)
    grads = [torch.autograd.grad((out * weight).sum(), x)[0] for out in (mine, other)]
    torch.testing.assert_close(*grads, atol=1e-4, rtol=0)


def test_dropout_is_drawn_in_training_only() -> None:
    layer = EncoderLayer(16, 2, 16, 0.5)
    x = torch.randn(2, 3, 16)
    assert torch.equal(layer.eval()(x), layer.eval()(x))
    assert not torch.equal(layer.train()(x), layer.train()(x))


class Recording(Dropout):
    """Keeps the shapes of what it was asked to drop from."""

    def __init__(self, p: float) -> None:
        super().__init__(p)
        self.shapes: list[tuple[int, ...]] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.shapes.append(tuple(x.shape))
        return super().forward(x)

    def add(self, residual: torch.Tensor, branch: torch.Tensor) -> torch.Tensor:
        self.shapes.append(tuple(branch.shape))
        return super().add(residual, branch)


def test_an_encoder_layer_drops_in_the_four_places_where_pytorchs_does() -> None:
    layer = EncoderLayer(24, 3, 40, 0.1).train()
    layer.dropout = layer.self_attn.cheap_dropout = drop = Recording(0.1)
    layer(torch.randn(5, 7, 24))
    # weights of attention, its output, inside the MLP, its output
    assert drop.shapes == [(5, 3, 7, 7), (5, 7, 24), (5, 7, 40), (5, 7, 24)]


def test_tokens_are_scaled_and_get_their_place_as_published() -> None:
    model = network()
    seen: list[torch.Tensor] = []
    model.body.embed.register_forward_hook(lambda _, __, out: seen.append(out))
    model.body.encoder.register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    batch = any_batch(model.io, 2)
    on = batch.valid
    outputs(model, batch, Masking(on, on, ~on, ~on, ~on))
    embedded, read = seen
    torch.testing.assert_close(read, embedded.relu() * math.sqrt(16) + sinusoids(6, 16))


def test_the_ends_of_a_fresh_network_are_uniform() -> None:
    torch.manual_seed(0)
    body = UniMask(UniMaskConfig(), network().io).body
    for end in (body.embed, body.predict):
        assert 0.095 < float(end.weight.detach().abs().max()) <= 0.1
        assert not end.bias.any()


def test_sinusoids_of_the_first_places() -> None:
    table = sinusoids(3, 4)
    expected = [[0, 1, 0, 1], *([math.sin(p), math.cos(p), math.sin(p / 100), math.cos(p / 100)] for p in (1, 2))]
    np.testing.assert_allclose(table.numpy(), np.array(expected), atol=1e-6)


def test_returns_are_classes_or_a_number_with_its_time() -> None:
    model = doorkey_agent().model
    batch = any_batch(model.io, 1)
    on = torch.ones_like(batch.valid)
    first = on & (torch.arange(10) == 0)

    def said(value: float) -> torch.Tensor:
        moved = replace(batch, returns_to_go=torch.full((1, 10), value))
        return outputs(model, moved, Masking(on, on, first, ~on, ~on))[0]

    assert torch.equal(said(10.0), said(25.0))  # clipped to the highest class
    assert torch.equal(said(-6.0), said(-9.0))  # or to the lowest
    assert torch.equal(said(3.0), said(3.4))  # the nearest whole number
    assert not torch.equal(said(3.0), said(4.0))


def test_configs_that_cannot_be() -> None:
    for bad in ({"embed_dim": 10, "n_heads": 3}, {"tasks": ()}, {"return_classes": (3, 3)}, {"tasks": ("sing",)}):
        with pytest.raises(ValueError, match=r"n_heads 3 must divide|at least one|return classes|Input should be"):
            UniMaskConfig(**bad)  # type: ignore[arg-type]


# -- windows of whole steps --------------------------------------------------------------------------------------------


def episodes_of(*lengths: int) -> Episodes:
    total = sum(lengths)
    return Episodes(
        dataset="tests/steps-v0",
        observation=ObservationSpec(size=1, shapes=((1,),)),
        action=ActionSpec(kind="box", size=1),
        observations=np.arange(total, dtype=np.float32)[:, None],
        actions=np.zeros((total, 1), np.float32),
        rewards=np.ones(total),
        lengths=np.array(lengths),
        terminated=np.ones(len(lengths), dtype=bool),
    )


def test_full_windows_lie_inside_one_episode_by_its_length() -> None:
    sampler = WindowSampler(episodes_of(5, 2, 15), 4, 1.0, drawn="full")
    batch = sampler.sample(20_000, torch.Generator().manual_seed(0))
    assert batch.valid.all()
    assert (batch.timesteps.diff(dim=1) == 1).all()
    starts = torch.bincount(batch.observations[:, 0, 0].long(), minlength=22).double() / 20_000
    # 20 steps are left: 5 of the first episode (2 starts), 15 of the last (12 starts, which lies behind the dropped 2)
    expected = torch.zeros(22, dtype=torch.float64)
    expected[0:2] = 5 / 20 / 2
    expected[7:19] = 15 / 20 / 12
    assert (starts - expected).abs().max() < 0.01
    assert ((starts > 0) == (expected > 0)).all()


def test_episodes_all_too_short_are_an_error() -> None:
    with pytest.raises(DataError, match="no episode of 6 steps, its longest has 5"):
        WindowSampler(episodes_of(5, 2), 6, 1.0, drawn="full")


def test_a_network_without_masks_cannot_be_asked() -> None:
    from conftest import make_agent

    agent = make_agent()
    with pytest.raises(ConfigError, match="a 'dt' network cannot be asked about a window"):
        agent.infer(observations=np.zeros((2, 3)))
    with pytest.raises(ConfigError, match="cannot be conditioned"):
        agent.condition(goal=np.zeros(3))
