"""Decision Mamba: causality, padding, both ways of acting, PSER, inverse objectives, transformers' blocks, learning."""

from __future__ import annotations

import dataclasses
import math
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from agentzoo.models.decision_mamba import PAPER_SIZES, DecisionMamba, DMConfig, Layer, Memory, blend_weight
from agentzoo.nn.base import parameter_count
from agentzoo.nn.recurrent import RecurrentModel, reset_rows
from agentzoo.recipe import load_recipe
from agentzoo.registry import get_family
from agentzoo.types import ActionSpec, Batch, IOSpec, ObservationSpec

S, A, K = 3, 2, 6
SMALL: dict[str, Any] = {"embed_dim": 16, "n_layers": 2, "state_size": 4}
GATHERS, FUSIONS = ("step", "causal3", "summary"), ("paper", "release")
VARIANTS = [
    *({"gather": gather, "fusion": fusion} for gather, fusion in product(GATHERS, FUSIONS)),
    *({"use_fine": False, "fusion": fusion} for fusion in FUSIONS),
]
variants = pytest.mark.parametrize("variant", VARIANTS, ids=lambda v: "-".join(str(x) for x in v.values()))


def make_io(context: int = K, discrete: bool = False) -> IOSpec:
    box = ActionSpec(kind="box", size=A, low=(-1.0, -2.0), high=(1.0, 4.0))
    action = ActionSpec(kind="discrete", size=4) if discrete else box
    return IOSpec(observation=ObservationSpec(size=S, shapes=((S,),)), action=action, context=context)


def make_model(seed: int = 0, discrete: bool = False, **changes: Any) -> DecisionMamba:
    torch.manual_seed(seed)
    model = DecisionMamba(DMConfig(**{**SMALL, **changes}), make_io(discrete=discrete)).double()
    for name, p in model.named_parameters():  # identity starts and zero biases would hide mistakes
        if name.endswith(("bias", "project.weight", "norm.weight")):
            torch.nn.init.normal_(p, mean=float(name.endswith("norm.weight")), std=0.3)
    model.obs_mean.copy_(torch.tensor([1.0, -1.0, 0.5]))
    model.obs_std.copy_(torch.tensor([2.0, 0.5, 1.0]))
    return model


def make_batch(n: int = 3, steps: int = K, seed: int = 1, discrete: bool = False) -> Batch:
    g = torch.Generator().manual_seed(seed)
    actions = torch.rand(n, steps, A, generator=g, dtype=torch.float64) * 2 - 1
    return Batch(
        observations=torch.randn(n, steps, S, generator=g, dtype=torch.float64),
        actions=torch.randint(4, (n, steps), generator=g) if discrete else actions,
        returns_to_go=torch.randn(n, steps, generator=g, dtype=torch.float64),
        timesteps=torch.arange(steps).expand(n, steps),
        valid=torch.ones(n, steps, dtype=torch.bool),
    )


def hide(batch: Batch, lengths: list[int], junk: float) -> Batch:
    """The first `lengths` steps of each window stay, the others hold `junk`."""
    valid = torch.arange(batch.shape[1])[None] < torch.tensor(lengths)[:, None]

    def fill(values: Tensor) -> Tensor:
        return torch.where(valid.view(*valid.shape, *(1,) * (values.ndim - 2)), values, torch.full_like(values, junk))

    return Batch(
        fill(batch.observations),
        fill(batch.actions),
        fill(batch.returns_to_go),
        torch.where(valid, batch.timesteps, 77),
        valid,
    )


def play(model: DecisionMamba, batch: Batch, state: Memory | None = None) -> tuple[Tensor, Memory]:
    """Every action of the windows by `step`, (N, K, A)."""
    state = state if state is not None else model.initial_state(batch.shape[0])
    actions = []
    for t in range(batch.shape[1]):
        before = batch.actions[:, t - 1] if t else torch.full_like(batch.actions[:, 0], 3)  # must not matter
        now = (batch.returns_to_go[:, t], batch.observations[:, t], before, batch.timesteps[:, t])
        action, state = model.step(state, *now)
        actions.append(action)
    return torch.stack(actions, dim=1), state


# --- causality and padding -------------------------------------------------------------------------------------------


@variants
def test_nothing_at_or_after_an_action_changes_it(variant: dict[str, Any]) -> None:
    model, batch, t = make_model(**variant), make_batch(), 3
    wanted = model(batch)
    for name in ("actions", "observations", "returns_to_go"):
        first = t if name == "actions" else t + 1
        values = getattr(batch, name).clone()
        values[:, first:] += 5.0
        found = model(dataclasses.replace(batch, **{name: values}))
        assert torch.equal(found[:, : t + 1], wanted[:, : t + 1]), name
        assert not torch.allclose(found[:, t + 1 :], wanted[:, t + 1 :], atol=1e-4), name


@variants
def test_an_action_changes_what_its_token_predicts(variant: dict[str, Any]) -> None:
    model, batch, t = make_model(**variant), make_batch(), 3
    actions = batch.actions.clone()
    actions[:, t] += 1.0
    tokens = [
        model.predict_next_obs(model._hidden(b)[:, 2::3]) for b in (batch, dataclasses.replace(batch, actions=actions))
    ]
    assert torch.equal(tokens[0][:, :t], tokens[1][:, :t])
    assert not torch.allclose(tokens[0][:, t], tokens[1][:, t], atol=1e-4)


def test_the_fine_branch_sees_exactly_its_step() -> None:
    """gather="step": R_t sees R_t; s_t also s_t; a_t all three. Read from the derivatives of the gather alone."""
    gather = make_model(gather="step").layers[0].gather
    u = torch.randn(1, 3 * K, 16, dtype=torch.float64, requires_grad=True)
    out = gather(u)
    for token in range(3 * K):
        grad = torch.autograd.grad(out[0, token].sum(), u, retain_graph=True)[0][0].abs().sum(-1)
        assert grad.nonzero().flatten().tolist() == list(range(token - token % 3, token + 1))
    weight, bias = gather.conv.weight, gather.conv.bias  # the action token by hand: all three taps, oldest first
    assert torch.allclose(out[0, 5], sum(weight[:, :, i] @ u[0, 3 + i] for i in range(3)) + bias, atol=1e-12)


@variants
@pytest.mark.parametrize("junk", [0.0, 1e6, math.nan])
def test_padding_changes_nothing(variant: dict[str, Any], junk: float) -> None:
    model, batch, lengths = make_model(**variant), make_batch(), [2, 6, 1]
    padded = hide(batch, lengths, junk)
    whole, actions, newest = model(batch), model(padded), model.act(padded)
    for i, n in enumerate(lengths):
        short = Batch(*(getattr(batch, name)[i : i + 1, :n] for name in batch.__dataclass_fields__))
        assert torch.allclose(model(short)[0], actions[i, :n], atol=1e-9)
        assert torch.allclose(whole[i, :n], actions[i, :n], atol=1e-9)
        assert torch.allclose(model.act(short)[0], newest[i], atol=1e-9)


def test_padding_changes_neither_loss_nor_gradient() -> None:
    model = make_model()
    results = []
    for junk in (0.0, 1e3):
        loss = torch.stack(list(model.loss(hide(make_batch(), [2, 6, 1], junk)).values())).sum()
        results.append((loss, *torch.autograd.grad(loss, list(model.parameters()))))
    assert all(torch.allclose(a, b, atol=1e-12) for a, b in zip(*results, strict=True))


# --- acting ----------------------------------------------------------------------------------------------------------


@variants
def test_recurrent_equals_full_history(variant: dict[str, Any]) -> None:
    model, batch = make_model(**variant), make_batch(steps=9)
    assert isinstance(model, RecurrentModel)
    assert torch.allclose(play(model, batch)[0], model.decode_actions(model(batch)), atol=1e-10)


def test_recurrent_equals_full_history_in_float32_over_300_steps() -> None:
    model, batch = make_model().float(), make_batch(2, steps=300)
    batch = Batch(
        *(v.float() if v.is_floating_point() else v for v in (getattr(batch, n) for n in batch.__dataclass_fields__))
    )
    with torch.no_grad():
        assert float((play(model, batch)[0] - model.decode_actions(model(batch))).abs().max()) < 1e-5


def test_recurrent_equals_full_history_with_discrete_actions() -> None:
    model, batch = make_model(discrete=True), make_batch(discrete=True)
    assert torch.allclose(play(model, batch)[0], model(batch), atol=1e-10)


@variants
def test_a_reset_row_starts_anew_and_the_others_go_on(variant: dict[str, Any]) -> None:
    model, first, second = make_model(**variant), make_batch(seed=1), make_batch(seed=2)
    _, state = play(model, first)
    kept = [tensor.clone() for tensor in state]
    fresh = torch.tensor([False, True, False])
    reset = reset_rows(state, fresh)
    assert isinstance(reset, Memory)
    found, _ = play(model, second, reset)
    assert torch.allclose(found[1], play(model, second)[0][1], atol=1e-12)
    assert torch.allclose(found[~fresh], play(model, second, state)[0][~fresh], atol=1e-12)
    assert not torch.allclose(found[0], play(model, second)[0][0], atol=1e-4)
    assert all(torch.equal(a, b) for a, b in zip(kept, state, strict=True))  # a step leaves its input as it was


def test_memory_does_not_grow() -> None:
    model = make_model()
    shapes = [tensor.shape for tensor in model.initial_state(3)]
    assert [tensor.shape for tensor in play(model, make_batch(steps=30))[1]] == shapes


def test_timesteps_beyond_the_table_use_its_last_row() -> None:
    model, batch = make_model(max_ep_len=4), make_batch()
    clamped = dataclasses.replace(batch, timesteps=batch.timesteps.clamp(max=3))
    assert torch.equal(model(batch), model(clamped))
    assert torch.allclose(play(model, batch)[0], model.decode_actions(model(batch)), atol=1e-10)


# --- targets ---------------------------------------------------------------------------------------------------------


def test_blend_weight_by_hand() -> None:
    found = {k: blend_weight(k, 40, 0.9, 0.5) for k in (1, 22, 23, 40)}
    assert found == pytest.approx({1: 0.5, 22: 0.5, 23: 0.5175, 40: 0.9})
    assert blend_weight(40, 40, 0.0, 0.0) == 0.0


def test_teacher_is_the_network_of_the_period_before() -> None:
    model, batch = make_model(teacher_period=10), make_batch()
    for step in range(10):
        model.begin_step(step, 400)
        assert model.beta == 0.0
    assert not model.training_state()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    snapshot = model(batch).detach()
    for step in range(10, 20):
        model.begin_step(step, 400)
        assert model.beta == 0.5
        target = model._blended_target(batch, model(batch))
        assert not target.requires_grad
        assert torch.allclose(target, 0.5 * model.encode_actions(batch.actions) + 0.5 * snapshot, atol=1e-12)
        optimizer.zero_grad()
        torch.stack(list(model.loss(batch).values())).sum().backward()
        optimizer.step()
    assert not torch.allclose(model(batch), snapshot, atol=1e-3)  # the student has moved on
    after = model(batch).detach()
    model.begin_step(20, 400)
    assert torch.allclose(torch.func.functional_call(model, model._teacher, (batch,)), after, atol=1e-12)


@pytest.mark.parametrize("teacher", ["snapshot", "ema", "previous_step"])
def test_pser_gradient_formula(teacher: Any) -> None:
    """d/dâ of ‖â - ã‖² is 2[(â - a) - β(â_old - a)]."""
    model, batch = make_model(teacher=teacher, ilo_weights=None, teacher_period=1), make_batch()
    model.begin_step(0, 10)
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.05)
    model.begin_step(9, 10)
    assert model.beta == pytest.approx(0.9)
    old = model(batch) if teacher == "previous_step" else torch.func.functional_call(model, model._teacher, (batch,))
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.05 if teacher != "previous_step" else 0.0)
    predicted = model(batch).detach().requires_grad_()
    target = model._blended_target(batch, predicted)
    found = torch.autograd.grad(((predicted - target) ** 2).sum(), predicted)[0]
    a = model.encode_actions(batch.actions)
    assert torch.allclose(found, 2 * ((predicted - a) - 0.9 * (old - a)), atol=1e-10)
    assert (teacher == "previous_step") == torch.allclose(old, predicted, atol=1e-6)


def test_ema_teacher_by_hand() -> None:
    model = make_model(teacher="ema", ema_decay=0.75, teacher_period=1)
    name, p = "layers.0.coarse.D", model.layers[0].coarse.D
    model.begin_step(0, 10)
    with torch.no_grad():
        p.fill_(5.0)  # was 1
    model.begin_step(1, 10)
    assert torch.allclose(model._teacher[name], torch.full_like(p, 0.75 * 1 + 0.25 * 5))


def test_pser_off_costs_nothing() -> None:
    model, batch = make_model(beta_final=0.0, beta_min=0.0, teacher_period=1), make_batch()
    for step in range(5):
        model.begin_step(step, 5)
        assert model.beta == 0.0
    assert not model.training_state()
    assert torch.equal(model._blended_target(batch, model(batch)), model.encode_actions(batch.actions))


def test_discrete_targets_are_blended_probabilities() -> None:
    model, batch = make_model(discrete=True, teacher_period=1), make_batch(discrete=True)
    model.begin_step(1, 2)
    model.begin_step(1, 2)
    target = model._blended_target(batch, model(batch))
    assert torch.allclose(target.sum(-1), torch.ones(3, K, dtype=torch.float64))
    assert model.beta == pytest.approx(0.9)
    chosen = target.gather(-1, batch.actions.unsqueeze(-1)).squeeze(-1)
    assert bool((chosen > 0.1).all())


def test_training_state_round_trip() -> None:
    model, other, batch = make_model(teacher_period=5), make_model(seed=3, teacher_period=5), make_batch()
    model.begin_step(5, 20)
    other.load_state_dict(model.state_dict())
    other.load_training_state(model.training_state())
    model.begin_step(6, 20)
    other.begin_step(6, 20)
    results = [m.loss(batch)["action_mse"] for m in (model, other)]
    assert torch.equal(results[0], results[1])
    assert not any("teacher" in name for name in model.state_dict())


# --- inverse objectives ----------------------------------------------------------------------------------------------


def test_inverse_targets_by_hand() -> None:
    """Only steps whose successor is inside the window and valid count; SmoothL1 is e²/2 below 1 and |e| - 1/2 above."""
    model, batch = make_model(), hide(make_batch(2), [3, 1], 9.0)
    terms = model.loss(batch)
    hidden = model._hidden(batch)[:, 2::3]
    rtg, obs = model.predict_next_return(hidden).squeeze(-1), model.predict_next_obs(hidden)
    wanted_obs = (batch.observations - model.obs_mean) / model.obs_std

    def smooth(error: Tensor) -> Tensor:
        return torch.where(error.abs() < 1, error**2 / 2, error.abs() - 0.5)

    rtg_terms = [smooth(rtg[0, t] - batch.returns_to_go[0, t + 1]) for t in (0, 1)]
    obs_terms = [smooth(obs[0, t] - wanted_obs[0, t + 1]).mean() for t in (0, 1)]
    assert torch.allclose(terms["next_rtg"], 0.05 * torch.stack(rtg_terms).mean())
    assert torch.allclose(terms["next_obs"], 0.05 * torch.stack(obs_terms).mean())
    error = (model(batch) - model.encode_actions(batch.actions)) ** 2
    assert torch.allclose(terms["action_mse"], 0.9 * error[batch.valid].mean())


def test_no_pair_gives_zero_not_nan() -> None:
    terms = make_model().loss(make_batch(steps=1))
    assert float(terms["next_rtg"]) == 0.0
    assert float(terms["next_obs"]) == 0.0


def test_inverse_weights_of_zero_equal_the_ablation() -> None:
    with_heads = make_model(ilo_weights=(1.0, 0.0, 0.0))
    without, batch = make_model(ilo_weights=None), make_batch()
    without.load_state_dict({k: v for k, v in with_heads.state_dict().items() if not k.startswith("predict_next")})
    torch.stack(list(with_heads.loss(batch).values())).sum().backward()
    torch.stack(list(without.loss(batch).values())).sum().backward()
    grads = {name: p.grad for name, p in with_heads.named_parameters()}
    for name, p in without.named_parameters():
        assert torch.allclose(p.grad, grads[name], atol=1e-14), name  # type: ignore[arg-type]
    assert set(without.loss(batch)) == {"action_mse"}


# --- the network against others, sizes, config -----------------------------------------------------------------------


def test_without_fine_branch_it_is_transformers_mamba() -> None:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.MambaConfig(
        vocab_size=2, hidden_size=32, state_size=8, num_hidden_layers=2, time_step_rank=2, use_cache=False
    )
    theirs = transformers.MambaModel(config).eval()
    io = make_io()
    ours = DecisionMamba(DMConfig(embed_dim=32, n_layers=2, state_size=8, use_fine=False, fusion="release"), io)
    for mine, block in zip(ours.layers, theirs.layers, strict=True):
        mine.norm.load_state_dict(block.norm.state_dict())  # type: ignore[union-attr]
        mine.coarse.load_state_dict(block.mixer.state_dict())  # type: ignore[union-attr]
    h = x = torch.randn(2, 12, 32)
    for layer in ours.layers:
        h = layer(h)
    assert torch.allclose(ours.norm_f(h), theirs(inputs_embeds=x).last_hidden_state, atol=1e-5)


def test_sizes_of_both_presets() -> None:
    """0.30 M and 9.9 M a layer: two mixers, the gather and the projection."""
    small = DecisionMamba(DMConfig(), make_io())
    assert parameter_count(small.layers[0]) == pytest.approx(0.30e6, rel=0.01)
    paper = Layer(DMConfig(embed_dim=PAPER_SIZES["embed_dim"]))
    assert parameter_count(paper) == pytest.approx(9.9e6, rel=0.01)
    assert PAPER_SIZES == {"embed_dim": 768, "n_layers": 24}


def test_no_decay_on_what_mamba_exempts() -> None:
    model = make_model()
    decayed = {name for name, _ in model.named_parameters() if model.decays(name)}
    assert {"layers.0.coarse.in_proj.weight", "layers.0.fine.conv1d.weight", "embed_obs.up.weight"} <= decayed
    for name in decayed:
        assert not name.endswith(("A_log", ".D", "bias", "norm.weight", "norm_f.weight", "embed_ln.weight")), name
    assert "embed_timestep.weight" not in decayed


def test_residual_projection_starts_as_the_identity() -> None:
    layer = DecisionMamba(DMConfig(**SMALL), make_io()).layers[0]
    assert torch.equal(layer.project.weight, torch.eye(16))  # type: ignore[union-attr]
    assert not layer.project.bias.any()  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "broken", [{"gather": "leak"}, {"beta_final": 1.5}, {"ilo_weights": (1.0, 0.0)}, {"state_size": 0}]
)
def test_config_refuses(broken: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(broken))):
        DMConfig(**broken)


def test_recipes_differ_only_in_what_they_are_called_for() -> None:
    base = load_recipe("dm-hopper-medium-replay-ablation")
    assert get_family(base.model.family).model is DecisionMamba
    changes = {
        "dm-hopper-medium-replay-no-mg": {"use_fine": False},
        "dm-hopper-medium-replay-no-pser": {"beta_final": 0.0, "beta_min": 0.0},
        "dm-hopper-medium-replay-no-ilo": {"ilo_weights": None},
    }
    for agent_id, change in changes.items():
        recipe = load_recipe(agent_id)
        assert recipe.model == base.model.model_copy(update=change)
        assert (recipe.data, recipe.train, recipe.eval) == (base.data, base.train, base.eval)
        assert recipe.train.steps >= 5_000
    for agent_id in ("dm-hopper-medium", "dm-hopper-medium-replay", "dm-pointmaze-medium"):
        recipe = load_recipe(agent_id)
        assert recipe.train.steps >= 8_000
        assert isinstance(recipe.model, DMConfig)
        assert recipe.train.steps == 40 * recipe.model.teacher_period


# --- learning --------------------------------------------------------------------------------------------------------


def fit(model: DecisionMamba, batch: Batch, steps: int, lr: float) -> list[float]:
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=0.0)
    losses = []
    for step in range(steps):
        model.begin_step(step, steps)
        optimizer.zero_grad()
        loss = torch.stack(list(model.loss(batch).values())).sum()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses


@pytest.mark.slow
def test_loss_reaches_known_optimum() -> None:
    """Two windows alike in all they show but with actions +0.5 and -0.5: the best prediction is 0, its error 0.25."""
    torch.manual_seed(0)
    model = DecisionMamba(DMConfig(**SMALL, ilo_weights=None, beta_final=0.0, beta_min=0.0), make_io())
    half = torch.full((1, 1, A), 0.5)
    batch = Batch(
        torch.ones(2, 1, S),
        model.decode_actions(torch.cat((half, -half))),
        torch.ones(2, 1),
        torch.zeros(2, 1, dtype=torch.int64),
        torch.ones(2, 1, dtype=torch.bool),
    )
    losses = fit(model, batch, 120, 5e-3)
    assert min(losses) >= 0.25 - 1e-6
    assert losses[-1] == pytest.approx(0.25, abs=1e-3)


@pytest.mark.slow
def test_memorizes_a_few_windows() -> None:
    """Distinct windows can be told apart, so all three errors can go to 0; PSER keeps the same optimum."""
    torch.manual_seed(0)
    model = DecisionMamba(DMConfig(**{**SMALL, "embed_dim": 32}, teacher_period=5), make_io())
    batch = make_batch(4)
    batch = Batch(
        *(v.float() if v.is_floating_point() else v for v in (getattr(batch, n) for n in batch.__dataclass_fields__))
    )
    losses = fit(model, batch, 200, 5e-3)
    model.eval()
    error = float(model.loss(batch)["action_mse"].detach())
    assert error < 0.02 * losses[0]
    assert losses[-1] < 0.05 * losses[0]


@pytest.mark.slow
def test_a_killed_and_resumed_run_is_exact(tmp_path: Path) -> None:
    """Killed in the middle of a period, when the past policy is neither the weights nor in model.safetensors."""
    from agentzoo.training.optim import make_optimizer
    from agentzoo.training.state import Progress, load_state, random_state, save_state

    config = load_recipe("dm-hopper-medium").train
    changes = {"teacher_period": 4}

    def build() -> tuple[DecisionMamba, torch.optim.Optimizer]:
        model = make_model(**changes)
        return model, make_optimizer(model, config)

    def run(model: DecisionMamba, optimizer: torch.optim.Optimizer, first: int, last: int) -> None:
        for step in range(first, last):
            model.begin_step(step, 16)
            optimizer.zero_grad()
            torch.stack(list(model.loss(make_batch(seed=step)).values())).sum().backward()
            optimizer.step()

    generator = torch.Generator().manual_seed(0)
    whole, optimizer = build()
    run(whole, optimizer, 0, 6)
    save_state(tmp_path, whole, optimizer, [random_state(generator)], Progress(step=6))
    run(whole, optimizer, 6, 13)
    resumed, optimizer = build()
    assert load_state(tmp_path, resumed, optimizer, generator, 0).step == 6
    run(resumed, optimizer, 6, 13)
    for name, p in whole.named_parameters():
        assert torch.equal(p, resumed.get_parameter(name)), name
