"""Training: schedules, logs, and that a stopped run goes on to the same bits."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from conftest import make_agent
from data.cases import episodes_of
from models.cases import coin_episodes

from agentzoo.data.episodes import Episodes
from agentzoo.data.normalize import observation_statistics
from agentzoo.errors import CheckpointError, TrainingError
from agentzoo.models.dt import DecisionTransformer, DTConfig
from agentzoo.recipe import TrainConfig
from agentzoo.registry import get_family
from agentzoo.store.tensors import read_tensors
from agentzoo.training.hooks import Evaluation, Hooks
from agentzoo.training.log import append_row, read_log, start_log
from agentzoo.training.loop import build_model, train
from agentzoo.training.optim import EagerAdamW, lr_factor, make_optimizer
from agentzoo.types import Batch, Losses
from training.cases import Stopped, evaluated, one_window, recipe, repeatable, run, stop_at


@pytest.mark.parametrize(
    ("drawn", "windows"),
    [
        ("first", {(6, 7), (7, 8), (8, 9), (9,)}),
        ("last", {(6,), (6, 7), (7, 8), (8, 9)}),
        ("full", {(6, 7), (7, 8), (8, 9)}),
    ],
)
def test_training_draws_from_what_the_recipe_asks_for(
    drawn: str, windows: set[tuple[int, ...]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The best of three episodes, its return of 7 on the last step and divided by 2; mean and std of all three."""
    seen: set[tuple[int, ...]] = set()
    returns: set[float] = set()
    loss = DecisionTransformer.loss

    def watched(self: DecisionTransformer, batch: Batch) -> Losses:
        for observations, valid in zip(batch.observations[..., 0], batch.valid, strict=True):
            seen.add(tuple(observations[valid].int().tolist()))
        returns.update(batch.returns_to_go[batch.valid].tolist())
        return loss(self, batch)

    monkeypatch.setattr(DecisionTransformer, "loss", watched)
    data = episodes_of([0, 0, 0, 0, 1], [5, 0, 2, 0], [3])
    settings = [f"data.drawn={drawn}", "data.best_fraction=0.4", "data.rewards=delayed", "data.rtg_scale=2.0"]
    model = train(recipe(steps=10).override(settings), tmp_path, data, device="cpu")
    assert (seen, returns) == (windows, {3.5})
    mean, std = observation_statistics(data.observations)
    assert (model.obs_mean.tolist(), model.obs_std.tolist()) == (mean.tolist(), std.tolist())


def test_each_update_has_the_rate_and_the_place_of_the_schedule(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[tuple[int, int]] = []
    monkeypatch.setattr(DecisionTransformer, "begin_step", lambda _, step, total: begun.append((step, total)))
    run(tmp_path, recipe(steps=6, warmup_steps=4, log_every=1, lr=1e-3))
    rates = [float(row["lr"]) for row in read_log(tmp_path)]
    assert rates == pytest.approx([0.25e-3, 0.5e-3, 0.75e-3, 1e-3, 1e-3, 1e-3])
    assert begun == [(step, 6) for step in range(6)]


def test_a_warm_up_that_never_ends_is_warned_of(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match=r"train.warmup_steps=5 is not below train.steps=1: .* never reaches .* Lower"):
        run(tmp_path, recipe(steps=1))


@pytest.mark.parametrize(("update", "factor"), [(0, 1 / 10_000), (9_999, 1.0), (50_000, 1.0)])
def test_published_warm_up(update: int, factor: float) -> None:
    assert lr_factor(update, TrainConfig()) == pytest.approx(factor)


@pytest.mark.parametrize(("update", "factor"), [(0, 0.1), (9, 1.0), (10, 1.0), (60, 0.5), (110, 0.0)])
def test_cosine_falls_to_zero(update: int, factor: float) -> None:
    config = TrainConfig(steps=110, warmup_steps=10, schedule="cosine")
    assert lr_factor(update, config) == pytest.approx(factor)


@pytest.mark.parametrize("family", ["dt", "bc", "decision-gpt", "unimask"])
def test_weight_decay_covers_all_weights_of_these_families(family: str) -> None:
    agent = make_agent(model=get_family(family).config(family=family))
    groups = make_optimizer(agent.model, TrainConfig(weight_decay=0.5)).param_groups
    assert [group["weight_decay"] for group in groups] == [0.5]
    assert sum(p.numel() for p in groups[0]["params"]) == sum(p.numel() for p in agent.model.parameters())


def test_the_optimizer_is_pytorchs_bit_for_bit_and_imports_no_compiler(tiny_hopper: str, tmp_path: Path) -> None:
    """Over updates, and from a stored state."""

    def updated(kind: type[torch.optim.AdamW]) -> list[torch.Tensor]:
        weights = [torch.nn.Parameter(torch.linspace(-1, 1, 5)), torch.nn.Parameter(torch.ones(2, 3))]
        optimizer = kind([{"params": weights[:1], "weight_decay": 0.1}], lr=0.1, fused=True)
        optimizer.add_param_group({"params": weights[1:], "weight_decay": 0.0})
        for update in range(6):
            optimizer.zero_grad()
            sum((weight**3).sum() * (update + 1) for weight in weights).backward()
            optimizer.step()
            if update == 2:
                stored, optimizer = optimizer.state_dict(), kind(optimizer.param_groups, lr=0.3, fused=True)
                optimizer.load_state_dict(stored)
        return [*(weight.detach() for weight in weights), optimizer.state[weights[1]]["exp_avg_sq"]]

    for ours, theirs in zip(updated(EagerAdamW), updated(torch.optim.AdamW), strict=True):
        assert torch.equal(ours, theirs)
    script = (
        "import sys\nfrom agentzoo.cli import app\n"
        f"app(['train', 'bc-hopper-medium', '--out', {str(tmp_path / 'run')!r}, '--device', 'cpu', "
        f"'--set', 'data.dataset={tiny_hopper}', '--set', 'train.steps=2', '--set', 'eval.every=0'], "
        "standalone_mode=False)\n"
        "assert 'torch._dynamo' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_optimizer_has_the_recipes_moments() -> None:
    found = make_optimizer(make_agent().model, TrainConfig(betas=(0.8, 0.9), eps=1e-3)).defaults
    assert (found["betas"], found["eps"]) == ((0.8, 0.9), 1e-3)


@pytest.mark.parametrize(("made_of", "dropout"), [(coin_episodes, 0.0), (one_window, 0.5)])
def test_seeds_draw_other_windows_and_drop_other_units(
    made_of: Callable[[], Episodes], dropout: float, tmp_path: Path
) -> None:
    """From one start. Without dropout only the windows can differ, of one window only the dropout."""
    data, found = made_of(), []
    for seed in (0, 1):
        made = recipe(steps=1, seed=seed, warmup_steps=0).override([f"model.dropout={dropout}"])
        start = build_model(made.override(["train.seed=0"]), data)
        model = train(made, tmp_path / str(seed), data, start=start, device="cpu")
        found.append(torch.cat([p.detach().flatten() for p in model.parameters()]))
    assert not torch.equal(*found)


def test_one_update_is_the_one_written_on_paper(tmp_path: Path) -> None:
    """AdamW's first step moves each weight by lr against the sign of its (clipped) gradient, after decay."""
    from agentzoo.data.windows import WindowSampler
    from agentzoo.nn.base import SequenceModel

    made = recipe(steps=1, warmup_steps=0, lr=1e-3, weight_decay=0.1, clip=0.01)
    data = coin_episodes()

    def fresh() -> SequenceModel:
        model = build_model(made.replace(model=DTConfig(embed_dim=8, n_layers=1, dropout=0.0)), data)
        return model.train()

    model = fresh()
    sampler = WindowSampler(data, 2, 1.0)
    batch = sampler.sample(8, torch.Generator().manual_seed(0))
    model.loss(batch)["action_mse"].backward()
    norm = torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None]).norm()
    expected = {
        name: p * (1 - 1e-3 * 0.1) - 1e-3 * (g := p.grad * (0.01 / (norm + 1e-6))) / (g.abs() + 1e-8)
        for name, p in model.named_parameters()
        if p.grad is not None
    }
    train(made, tmp_path, data, start=fresh(), device="cpu")
    found, _ = read_tensors(tmp_path / "model.safetensors")
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value.detach(), atol=2e-6, rtol=1e-4)


@pytest.mark.filterwarnings("ignore:the recipe multiplies")
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_run_stopped_and_resumed_equals_the_uninterrupted_one(precision: str, tmp_path: Path) -> None:
    made = recipe(precision=precision)
    whole = run(tmp_path / "whole", made)
    for step in (7, 10, 23):  # before, at and after a checkpoint
        with pytest.raises(Stopped):
            run(tmp_path / "cut", made, stop_at(step))
    resumed = run(tmp_path / "cut", made)
    assert whole.keys() == resumed.keys()
    assert all(torch.equal(whole[name], resumed[name]) for name in whole)
    assert repeatable(tmp_path / "whole") == repeatable(tmp_path / "cut")
    assert [int(row["step"]) for row in read_log(tmp_path / "whole")] == [5, 10, 15, 20, 25, 30]


def test_a_row_that_a_stop_cut_in_two_is_the_uninterrupted_one(tmp_path: Path) -> None:
    """Rows every 4 updates, checkpoints every 3: what was summed up since the last row is kept, too."""
    made = recipe(steps=9, log_every=4, checkpoint_every=3)
    run(tmp_path / "whole", made)
    with pytest.raises(Stopped):
        run(tmp_path / "cut", made, stop_at(7))
    run(tmp_path / "cut", made)
    assert repeatable(tmp_path / "whole") == repeatable(tmp_path / "cut")


def test_evaluations_do_not_change_what_is_trained(tmp_path: Path) -> None:
    def noisy(model: object) -> Evaluation:
        torch.randn(100)
        return Evaluation(float(len(seen)), None)

    seen: list[int] = []
    made = recipe()
    plain = run(tmp_path / "plain", made)
    hooks = Hooks(evaluate=noisy, on_row=lambda row: seen.append(row["step"]))
    found = run(tmp_path / "evaluated", evaluated(made, 10), hooks)
    assert all(torch.equal(plain[name], found[name]) for name in plain)
    assert (tmp_path / "evaluated" / "best.safetensors").exists()
    assert [row["eval_return"] for row in read_log(tmp_path / "evaluated")][1::2] == ["1", "3", "5"]


def test_a_non_finite_loss_stops_the_run_and_keeps_the_last_good_checkpoint(tmp_path: Path) -> None:
    made = recipe(steps=40)
    model = build_model(made, coin_episodes())

    def poison(step: int) -> None:
        if step == 12:
            with torch.no_grad():
                next(iter(model.parameters())).fill_(float("nan"))

    with pytest.raises(TrainingError, match=r"before 15\. The last good checkpoint is .*\.safetensors\. Start again"):
        train(made, tmp_path, coin_episodes(), start=model, hooks=Hooks(on_step=poison), device="cpu")
    kept, metadata = read_tensors(tmp_path / "checkpoint.safetensors")
    assert '"step": 10' in metadata["progress"]
    assert all(torch.isfinite(value).all() for value in kept.values() if value.is_floating_point())


def test_the_log_ends_with_the_last_update(tmp_path: Path) -> None:
    run(tmp_path, recipe(steps=13))
    assert [row["step"] for row in read_log(tmp_path)] == ["5", "10", "13"]


def test_rows_are_means_of_their_updates(tmp_path: Path) -> None:
    """A row every 4 updates and, in between, one at each evaluation of the updates so far."""
    run(tmp_path / "each", recipe(steps=9, log_every=1))
    losses = [float(row["loss"]) for row in read_log(tmp_path / "each")]
    hooks = Hooks(evaluate=lambda _: Evaluation(0.0, None))
    run(tmp_path / "some", evaluated(recipe(steps=9, log_every=4), 3), hooks)
    spans = {3: (0, 3), 4: (0, 4), 6: (4, 6), 8: (4, 8), 9: (8, 9)}
    rows = {int(row["step"]): float(row["loss"]) for row in read_log(tmp_path / "some")}
    assert rows == {step: pytest.approx(np.mean(losses[slice(*span)]), rel=1e-4) for step, span in spans.items()}


def test_the_last_update_is_evaluated_and_a_tie_keeps_the_earlier_best(tmp_path: Path) -> None:
    run(tmp_path, evaluated(recipe(steps=7), 5), Hooks(evaluate=lambda _: Evaluation(1.0, None)))
    assert [row["step"] for row in read_log(tmp_path) if row["eval_return"]] == ["5", "7"]
    assert read_tensors(tmp_path / "best.safetensors")[1] == {"step": "5"}


def test_seconds_of_a_log_add_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = iter(range(1_000))
    monkeypatch.setattr("agentzoo.training.loop.time", SimpleNamespace(perf_counter=lambda: float(next(ticks))))
    run(tmp_path, recipe(steps=10))
    assert [float(row["seconds"]) for row in read_log(tmp_path)] == [5.0, 10.0]  # an update takes one tick


def test_a_row_cut_off_in_the_middle_is_no_row(tmp_path: Path) -> None:
    columns = ["step", "loss"]
    start_log(tmp_path, columns, 0)
    append_row(tmp_path, columns, {"step": 5, "loss": 0.5})
    with (tmp_path / "training_log.csv").open("a") as file:
        file.write("10")  # of 100, say: killed while it wrote
    assert [row["step"] for row in read_log(tmp_path)] == ["5"]


def test_a_trained_agent_without_its_checkpoint_is_not_trained_over(tmp_path: Path) -> None:
    weights = run(tmp_path, recipe(steps=10))
    (tmp_path / "checkpoint.safetensors").unlink()
    with pytest.raises(TrainingError, match="would start again and overwrite it"):
        run(tmp_path, recipe(steps=10))
    assert len(read_log(tmp_path)) == 2
    assert (tmp_path / "model.safetensors").read_bytes()
    assert all((read_tensors(tmp_path / "model.safetensors")[0][name] == weights[name]).all() for name in weights)


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "checkpoint.safetensors"])
def test_weights_without_a_recipe_are_not_trained_over(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text("{}")
    with pytest.raises(TrainingError, match=rf"holds {name} but no train_config.json"):
        run(tmp_path, recipe(steps=1))
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).read_text() == "{}"


def test_a_log_with_other_columns_is_explained(tmp_path: Path) -> None:
    with pytest.raises(Stopped):
        run(tmp_path, recipe(), stop_at(12))
    log = tmp_path / "training_log.csv"
    log.write_text(log.read_text().replace("action_mse", "old_mse"))
    with pytest.raises(CheckpointError, match=r"columns that this run does not log: old_mse\. .*Move the file away"):
        run(tmp_path, recipe())
