"""Decision Mamba in training: the past policy's targets (PSER), inverse objectives, learning and going on."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from dm_cases import SMALL, A, K, S, hide, make_batch, make_io, make_model
from torch import Tensor

from agentzoo.models.dm import DecisionMamba, DMConfig, blend_weight
from agentzoo.recipe import load_recipe
from agentzoo.types import Batch

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


def test_a_last_period_cut_short_reaches_the_final_weight() -> None:
    model = make_model(teacher_period=10)
    betas = []
    for step in range(25):
        model.begin_step(step, 25)
        betas.append(model.beta)
    assert (betas[9], betas[10], betas[24]) == (0.0, pytest.approx(0.6), pytest.approx(0.9))


def test_an_evaluation_asks_for_the_actions_of_the_data() -> None:
    model, batch = make_model(teacher_period=10), make_batch()

    def error() -> float:
        return float(model.loss(batch)["action_mse"].detach())

    without_teacher = error()
    model.begin_step(399, 400)
    assert model.beta == pytest.approx(0.9)
    assert error() < 0.1 * without_teacher  # the teacher is the network itself
    model.eval()
    assert error() == without_teacher


def test_a_run_that_starts_in_the_middle_of_a_period_has_a_teacher() -> None:
    model = make_model(teacher_period=5)
    model.begin_step(7, 20)
    assert model.training_state()


def test_a_weight_that_rises_from_zero_has_a_teacher() -> None:
    model = make_model(beta_min=0.0, teacher_period=5)
    for step in range(5):
        model.begin_step(step, 20)
    assert not model.training_state()
    model.begin_step(5, 20)
    assert model.training_state()


def test_a_run_too_short_for_a_past_policy_is_warned_of() -> None:
    with pytest.warns(UserWarning, match=r"no past policy is used: 5 updates .* model\.teacher_period\. Lower it"):
        make_model(teacher_period=5).begin_step(0, total=5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        make_model(teacher_period=5).begin_step(0, total=6)
        make_model(beta_final=0.0, beta_min=0.0, teacher_period=5).begin_step(0, total=5)


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


def test_each_inverse_objective_has_its_own_weight() -> None:
    batch, weights = make_batch(), {"action_mse": 0.5, "next_rtg": 0.25, "next_obs": 0.125}
    whole = make_model(ilo_weights=(1.0, 1.0, 1.0)).loss(batch)
    weighted = make_model(ilo_weights=tuple(weights.values())).loss(batch)
    for name, weight in weights.items():
        assert weighted[name].item() == pytest.approx(weight * whole[name].item()), name


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
    batch = batch.map(lambda part: part.float() if part.is_floating_point() else part)
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
