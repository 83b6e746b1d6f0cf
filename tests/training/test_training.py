"""Training: schedules, logs, errors, and that a run killed at any moment goes on to the same bits."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from accelerate import Accelerator
from accelerate.tracking import GeneralTracker
from conftest import CountingEnv, make_agent
from data.test_data import episodes_of
from models.test_learning import coin_episodes
from typer.testing import CliRunner

from agentzoo.agent import Agent
from agentzoo.cli import app
from agentzoo.config import AgentConfig
from agentzoo.data.episodes import Episodes
from agentzoo.data.minari import load_episodes
from agentzoo.data.normalize import observation_statistics
from agentzoo.errors import CheckpointError, ConfigError, TrainingError, UnknownNameError
from agentzoo.evaluation.during import check_environment, short_evaluation
from agentzoo.evaluation.seeds import episode_seed
from agentzoo.models.bc import BCConfig, BehaviourCloning
from agentzoo.models.dt import DecisionTransformer, DTConfig
from agentzoo.recipe import DataConfig, EvalConfig, Recipe, TrainConfig
from agentzoo.registry import get_family
from agentzoo.store.files import LOG, sha256
from agentzoo.store.tensors import read_tensors
from agentzoo.training.finetune import finetune_recipe, start_from
from agentzoo.training.lock import held, holder
from agentzoo.training.log import append_row, read_log, start_log
from agentzoo.training.loop import Evaluation, Hooks, build_model, train
from agentzoo.training.machine import check_machine, warn_of_slow_precision
from agentzoo.training.optim import lr_factor, make_optimizer
from agentzoo.training.tracking import Tracking, tracking
from agentzoo.types import Batch, Losses


def recipe(steps: int = 30, **fields: object) -> Recipe:
    settings = {"batch_size": 8, "warmup_steps": 5, "checkpoint_every": 10, "log_every": 5, "steps": steps, **fields}
    settings.setdefault("precision", "fp32")
    return Recipe(
        agent_id="dt-test",
        model=DTConfig(embed_dim=8, n_layers=1),
        data=DataConfig(dataset="coins", context=2, rtg_scale=1.0, held_out=0.0),
        train=TrainConfig(**settings),  # type: ignore[arg-type]
        eval=EvalConfig(env="tests/Counting-v0", target_return=1.0, every=0),
    )


def run(folder: Path, made: Recipe, hooks: Hooks | None = None) -> dict[str, torch.Tensor]:
    train(made, folder, coin_episodes(), hooks=hooks, device="cpu")
    return read_tensors(folder / "model.safetensors")[0]


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
    heard: list[tuple[int, int]] = []
    monkeypatch.setattr(DecisionTransformer, "begin_step", lambda _, step, total: heard.append((step, total)))
    run(tmp_path, recipe(steps=6, warmup_steps=4, log_every=1, lr=1e-3))
    rates = [float(row["lr"]) for row in read_log(tmp_path)]
    assert rates == pytest.approx([0.25e-3, 0.5e-3, 0.75e-3, 1e-3, 1e-3, 1e-3])
    assert heard == [(step, 6) for step in range(6)]


def test_a_warm_up_that_never_ends_is_said(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match=r"train.warmup_steps=5 is no less than train.steps=1: .* never gets to"):
        run(tmp_path, recipe(steps=1))


@pytest.mark.parametrize(("update", "factor"), [(0, 1 / 10_000), (9_999, 1.0), (50_000, 1.0)])
def test_published_warm_up(update: int, factor: float) -> None:
    assert lr_factor(update, TrainConfig()) == pytest.approx(factor)


@pytest.mark.parametrize(("update", "factor"), [(0, 0.1), (9, 1.0), (10, 1.0), (60, 0.5), (110, 0.0)])
def test_cosine_falls_to_zero(update: int, factor: float) -> None:
    config = TrainConfig(steps=110, warmup_steps=10, schedule="cosine")
    assert lr_factor(update, config) == pytest.approx(factor)


@pytest.mark.parametrize("family", ["dt", "bc", "decision-gpt", "unimask"])
def test_weight_decay_covers_all_where_the_family_says_so(family: str) -> None:
    agent = make_agent(model=get_family(family).config(family=family))
    groups = make_optimizer(agent.model, TrainConfig(weight_decay=0.5)).param_groups
    assert [group["weight_decay"] for group in groups] == [0.5]
    assert sum(p.numel() for p in groups[0]["params"]) == sum(p.numel() for p in agent.model.parameters())


def test_the_optimizer_has_the_recipes_moments() -> None:
    found = make_optimizer(make_agent().model, TrainConfig(betas=(0.8, 0.9), eps=1e-3)).defaults
    assert (found["betas"], found["eps"]) == ((0.8, 0.9), 1e-3)


def one_window() -> Episodes:
    return episodes_of([1.0])


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


class Stopped(Exception):
    """Thrown out of a hook, as a user who presses Ctrl-C."""


def stop_at(step: int) -> Hooks:
    def check(now: int) -> None:
        if now == step:
            raise Stopped

    return Hooks(on_step=check)


def repeatable(folder: Path) -> list[list[str]]:
    """What a log says of the updates, without how long they took."""
    kept = ("step", "loss", "lr", "grad_norm", "action_mse")
    return [[row[name] for name in kept] for row in read_log(folder)]


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


def evaluated(made: Recipe, every: int) -> Recipe:
    return made.replace(eval=made.eval.model_copy(update={"every": every}))


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
    with pytest.raises(TrainingError, match="would begin anew over it"):
        run(tmp_path, recipe(steps=10))
    assert len(read_log(tmp_path)) == 2
    assert (tmp_path / "model.safetensors").read_bytes()
    assert all((read_tensors(tmp_path / "model.safetensors")[0][name] == weights[name]).all() for name in weights)


TWO_PROCESSES = """
import os, sys
rank, port, folder, processes, steps = (int(n) if n.isdigit() else n for n in sys.argv[1:])
os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(processes), "ACCELERATE_USE_CPU": "true",
               "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
import torch
from pathlib import Path
from agentzoo.models._language_dt import LanguageDT
from agentzoo.models.gpt2_dt import GPT2DTConfig
from agentzoo.store.tensors import save_tensors
from agentzoo.nn.language.cotraining import Language
from agentzoo.training.loop import Hooks, train
from models.test_learning import coin_episodes
from training.test_training import recipe

torch.set_num_threads(1)

def speak(self, fresh):
    table = torch.Generator().manual_seed(0)
    words, places = (torch.randn(rows, 16, generator=table) for rows in (50, 16))
    self.language = Language(None, words, places, torch.randint(50, (4, 9), generator=table))

LanguageDT.begin_training = speak  # as a backbone with places of its own would have it
model = GPT2DTConfig(embed_dim=16, n_layers=1, backbone="x", backbone_sha256="0" * 64, lm_weight=0.2,
                     lm_decay_steps=3, lm_chunk=9)

def stop(step):
    if step == steps:
        raise KeyboardInterrupt

made = recipe(steps=10, checkpoint_every=5).replace(model=model)
trained = train(made, Path(folder), coin_episodes(), hooks=Hooks(on_step=stop), device="cpu")
save_tensors(Path(folder) / f"rank-{rank}", trained.state_dict())
"""


@pytest.mark.slow
def test_two_processes_train_one_network_and_go_on_as_two_alone(tmp_path: Path) -> None:
    """Beyond the update at which the language loss has faded: every parameter must still take part."""

    def run_processes(folder: str, processes: int, steps: int) -> list[str]:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1]), "OMP_NUM_THREADS": "1"}
        numbers = [str(port), str(tmp_path / folder), str(processes), str(steps)]
        started = [
            subprocess.Popen(
                [sys.executable, "-c", TWO_PROCESSES, str(rank), *numbers], env=environment, stderr=subprocess.PIPE
            )
            for rank in range(processes)
        ]
        try:
            return [one.communicate(timeout=120)[1].decode() for one in started]
        finally:
            for one in started:
                one.kill()

    def weights(folder: str, file: str = "model.safetensors") -> dict[str, torch.Tensor]:
        return read_tensors(tmp_path / folder / file)[0]

    def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
        return all(torch.equal(one[name], other[name]) for name in one)

    run_processes("whole", 2, 99)
    run_processes("alone", 1, 99)
    assert same(weights("whole", "rank-0"), weights("whole", "rank-1"))
    assert not same(weights("whole"), weights("alone"))  # which dropped other units
    run_processes("cut", 2, 7)
    assert not (tmp_path / "cut" / "model.safetensors").exists()
    run_processes("cut", 2, 99)
    assert same(weights("whole"), weights("cut"))


def test_a_loss_that_was_never_finite_names_no_checkpoint(tmp_path: Path) -> None:
    def poison(model: torch.nn.Module) -> Hooks:
        return Hooks(on_step=lambda _: torch.nn.init.constant_(next(iter(model.parameters())), float("nan")))

    model = build_model(recipe(), coin_episodes())
    with pytest.raises(TrainingError, match=r"updates before 5\. Start again in another folder"):
        train(recipe(), tmp_path, coin_episodes(), start=model, hooks=poison(model), device="cpu")


def test_an_environment_that_cannot_be_made_is_found_before_training(tmp_path: Path, tiny_hopper: str) -> None:
    """Also where nothing is evaluated while training."""
    settings = [f"data.dataset={tiny_hopper}", "eval.env=Hoper-v5", "eval.every=0"]
    with pytest.raises(UnknownNameError, match="no environment 'Hoper-v5'"):
        check_environment(recipe().override(settings), load_episodes(tiny_hopper))


def test_short_evaluations_start_where_final_ones_never_do(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    reset = CountingEnv.reset

    def noted(self: CountingEnv, *, seed: int | None = None, options: Any = None) -> Any:
        seen.extend([] if seed is None else [seed])
        return reset(self, seed=seed, options=options)

    monkeypatch.setattr(CountingEnv, "reset", noted)
    agent = make_agent()
    assert agent.recipe is not None
    short_evaluation(agent.recipe)(agent.model)
    assert len(set(seen)) == agent.recipe.eval.every_episodes
    assert min(seen) > episode_seed(9, 9_999)


@pytest.mark.parametrize(("options", "scored"), [({}, True), ({"ctrl_cost_weight": 0.1}, False)])
def test_a_short_evaluation_where_options_change_the_task_has_no_score(options: dict[str, Any], scored: bool) -> None:
    agent = make_agent("Hopper-v5", env_options=options, every_episodes=1)
    assert agent.recipe is not None
    assert (short_evaluation(agent.recipe)(agent.model).score is not None) is scored


def test_a_folder_of_another_recipe_is_refused(tmp_path: Path) -> None:
    run(tmp_path, recipe(steps=1))
    with pytest.raises(TrainingError, match=r"steps: 1 there, 2 asked"):
        run(tmp_path, recipe(steps=2))


def test_a_run_of_before_hashes_were_kept_goes_on(tmp_path: Path) -> None:
    based, data = recipe(steps=1).replace(base="dt-base"), coin_episodes()
    for made in (based, based.replace(base_weights_sha256="0" * 64)):
        train(made, tmp_path, data, start=build_model(made, data), device="cpu")


def test_two_processes_do_not_train_in_one_folder(tmp_path: Path) -> None:
    def again(step: int) -> None:
        if step == 3:  # a lock counts within its process as well
            unfinished = tmp_path / ".model.safetensors.abc"
            unfinished.write_text("half")
            with pytest.raises(TrainingError, match=rf"is being trained by process {os.getpid()}\. Wait for it"):
                run(tmp_path, recipe())
            assert unfinished.exists()
            unfinished.unlink()

    run(tmp_path, recipe(), Hooks(on_step=again))
    assert holder(tmp_path) is None
    assert not (tmp_path / "training.pid").exists()
    run(tmp_path, recipe())


def test_a_lock_dies_with_its_process(tmp_path: Path) -> None:
    script = (
        "import sys, time; from pathlib import Path; from agentzoo.training.lock import held\n"
        "with held(Path(sys.argv[1])): print('held', flush=True); time.sleep(600)"
    )
    process = subprocess.Popen([sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    assert holder(tmp_path) == str(process.pid)
    with pytest.raises(TrainingError, match=f"by process {process.pid}"), held(tmp_path):
        pass
    process.kill()
    process.wait()
    process.stdout.close()
    assert holder(tmp_path) is None
    with held(tmp_path):
        assert holder(tmp_path) == str(os.getpid())


def test_a_device_or_tracker_that_is_not_here_is_said_before_anything_is_loaded(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    for options, said in (
        (["--device", "cdua"], "no device 'cdua'. Did you mean 'cuda'"),
        (["--track", "tensorbord"], "no tracker 'tensorbord'. Did you mean 'tensorboard'"),
    ):
        settings = ["--set", "data.dataset=nobody/has-it-v0", "--out", str(folder), *options]
        done = CliRunner().invoke(app, ["train", "dt-hopper-medium", *settings])
        assert isinstance(done.exception, ConfigError), done.output
        assert said in str(done.exception)
    with pytest.raises(ConfigError, match="no device 'tpu'"):
        train(recipe(), folder, coin_episodes(), device="tpu")
    assert not folder.exists()


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_cuda_where_there_is_none_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="finds no CUDA device"):
        train(recipe(), tmp_path / "out", coin_episodes(), device="cuda")


def test_a_tracker_that_is_not_installed_is_named_with_its_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "trackio").mkdir()  # what another run logged is no package
    monkeypatch.setattr(sys, "path", [str(tmp_path), *(p for p in sys.path if "site-packages" not in p)])
    with pytest.raises(ConfigError, match=r"'trackio' is not installed.*agentzoo\[track\]"):
        check_machine(None, ["trackio"])


class HeardTracker(GeneralTracker):
    """A tracker of one's own, as accelerate lets one bring."""

    name = "heard"
    requires_logging_directory = False

    def __init__(self) -> None:
        super().__init__()
        self.ended = 0

    @property
    def tracker(self) -> HeardTracker:
        return self

    def finish(self) -> None:
        self.ended += 1


def test_a_tracker_hears_the_end_of_a_run_that_fails(tmp_path: Path) -> None:
    heard = HeardTracker()
    with (
        pytest.raises(TrainingError),
        tracking(Accelerator(cpu=True, log_with=heard), Tracking(("heard",)), recipe(), tmp_path),
    ):
        raise TrainingError("not finite")
    assert heard.ended == 1


def test_a_run_is_tracked(tmp_path: Path) -> None:
    events = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    train(recipe(steps=10), tmp_path, coin_episodes(), trackers=Tracking(("tensorboard",)), device="cpu")
    written = events.EventAccumulator(str(tmp_path / "dt-test")).Reload()
    assert [event.step for event in written.Scalars("loss")] == [5, 10]


@pytest.mark.filterwarnings("ignore:the recipe multiplies")
@pytest.mark.parametrize("first", ["fp32", "bf16"])
def test_a_process_trains_in_one_precision_after_the_other(first: str, tmp_path: Path) -> None:
    weights = {}
    for precision in (first, "bf16" if first == "fp32" else "fp32"):
        run(tmp_path / precision, recipe(steps=5, precision=precision))
        weights[precision] = read_tensors(tmp_path / precision / "model.safetensors")[0]
    assert any(not torch.equal(value, weights["bf16"][name]) for name, value in weights["fp32"].items())


@pytest.mark.parametrize(
    ("capabilities", "fast"),
    [
        ({"architecture": "x86_64", "avx2": True, "avx512_f": True, "avx512_bf16": False, "amx_bf16": False}, False),
        ({"architecture": "x86_64", "avx2": True, "avx512_bf16": True, "amx_bf16": False}, True),
        ({"architecture": "x86_64", "avx2": True, "avx512_bf16": False, "amx_bf16": True}, True),
        ({"architecture": "aarch64"}, True),
        ({}, True),  # an older PyTorch says nothing
    ],
)
def test_a_recipe_in_bfloat16_warns_where_that_is_slow(
    capabilities: dict[str, object], fast: bool, monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder
) -> None:
    monkeypatch.setattr("agentzoo.training.machine.cpu_capabilities", lambda: capabilities)
    warn_of_slow_precision("fp32", "cpu")
    warn_of_slow_precision("bf16", "cuda")
    assert not recwarn
    warn_of_slow_precision("bf16", "cpu")
    assert [str(warning.message).startswith("the recipe multiplies") for warning in recwarn] == ([] if fast else [True])


@pytest.mark.gpu
def test_each_training_runs_on_the_device_it_asks_for(tmp_path: Path) -> None:
    seen = []

    class Watched(BehaviourCloning):
        def begin_step(self, step: int, total: int) -> None:
            seen.append(self.obs_mean.device.type)

    made = recipe(steps=1).replace(model=BCConfig(embed_dim=8))
    for place, device in enumerate((None, "cpu", None, "cuda")):
        start = Watched(made.model, build_model(made, coin_episodes()).io)  # type: ignore[arg-type]
        train(made, tmp_path / str(place), coin_episodes(), start=start, device=device)
    assert seen == ["cuda", "cpu", "cuda", "cuda"]


def test_a_broken_checkpoint_is_explained(tmp_path: Path) -> None:
    run(tmp_path, recipe(steps=10))
    path = tmp_path / "checkpoint.safetensors"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(CheckpointError, match=r"checkpoint.safetensors"):
        run(tmp_path, recipe(steps=10))


COMMAND = [
    *(sys.executable, "-m", "agentzoo", "train", "dt-hopper-medium", "--threads", "1", "--device", "cpu"),
    *("--set", "data.dataset=zoo/hopper/tiny-v0", "--set", "train.steps=60", "--set", "train.batch_size=4"),
    *("--set", "model.embed_dim=16", "--set", "train.checkpoint_every=7", "--set", "train.log_every=5"),
    *("--set", "eval.every=30", "--set", "eval.every_episodes=2", "--out"),
]


@pytest.mark.slow
def test_kill_9_at_random_moments_then_resume_equals_the_uninterrupted_run(tiny_hopper: str, tmp_path: Path) -> None:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    subprocess.run([*COMMAND, str(tmp_path / "whole")], check=True, env=environment, capture_output=True)
    whole = (tmp_path / "whole" / "model.safetensors").read_bytes()
    folder, rng = tmp_path / "killed", np.random.default_rng(int(time.time()))
    kills = 0
    while kills < 3:
        process = subprocess.Popen(
            [*COMMAND, str(folder)], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        aim = int(rng.integers(1, 55))
        while process.poll() is None:
            rows = read_log(folder)
            if rows and int(rows[-1]["step"]) >= aim:
                break
            time.sleep(0.005)
        process.send_signal(signal.SIGKILL)
        process.wait()
        kills += 1
    subprocess.run([*COMMAND, str(folder)], check=True, env=environment, capture_output=True)
    assert (folder / "model.safetensors").read_bytes() == whole
    assert not [path.name for path in folder.iterdir() if path.name.startswith(".")]


def test_finetune_starts_from_the_weights_and_keeps_normalization(tiny_hopper: str, tmp_path: Path) -> None:
    base = make_agent("Hopper-v5", context=4)
    base.model.obs_mean.fill_(0.5)
    episodes = load_episodes(tiny_hopper)
    made = finetune_recipe(base, tiny_hopper, None, 20, "keep")
    assert (made.agent_id, made.base, made.train.steps, made.train.warmup_steps) == (
        "dt-test-finetuned",
        "dt-test",
        20,
        2,
    )
    start = start_from(base, made, episodes)
    assert all(
        torch.equal(a, b) for a, b in zip(start.state_dict().values(), base.model.state_dict().values(), strict=True)
    )
    recomputed = start_from(base, finetune_recipe(base, tiny_hopper, None, 20, "dataset"), episodes)
    np.testing.assert_allclose(recomputed.obs_mean.numpy(), episodes.observations.mean(0), atol=1e-5)
    model = train(made, tmp_path, episodes, start=start, device="cpu")
    assert torch.equal(model.obs_mean, base.model.obs_mean)


def test_a_fine_tune_warms_up_no_longer_than_its_base() -> None:
    base = make_agent()
    assert base.recipe is not None
    base.recipe = base.recipe.override(["train.warmup_steps=3"])
    assert finetune_recipe(base, "a/b-v0", None, 1000, "keep").train.warmup_steps == 3


def test_a_fine_tune_is_repeated_from_the_same_weights_alone(tiny_hopper: str, tmp_path: Path) -> None:
    folder = make_agent("Hopper-v5", context=4).save_pretrained(tmp_path / "base")
    base, episodes = Agent.from_pretrained(folder, device="cpu"), load_episodes(tiny_hopper)
    made = finetune_recipe(base, tiny_hopper, None, 20, "keep")
    assert made.base_weights_sha256 == sha256(folder / "model.safetensors")
    made = Recipe.from_json(made.to_json(), "as stored")
    start_from(base, made, episodes)
    with torch.no_grad():
        next(base.model.parameters()).add_(1.0)
    base.save_pretrained(folder)
    newer = Agent.from_pretrained(folder, device="cpu")
    with pytest.raises(
        CheckpointError, match=rf"'dt-test' with weights of sha256 {made.base_weights_sha256[:12]}.*--rev"
    ):
        start_from(newer, made, episodes)
    before = {k: v for k, v in json.loads(made.to_json()).items() if k != "base_weights_sha256"}
    start_from(newer, Recipe.from_json(json.dumps(before), "of before"), episodes)


def test_a_recipe_is_trained_from_where_it_says(tiny_hopper: str, tmp_path: Path) -> None:
    base, episodes = make_agent("Hopper-v5", context=4), load_episodes(tiny_hopper)
    made = finetune_recipe(base, tiny_hopper, None, 20, "keep")
    with pytest.raises(ConfigError, match=r"goes on from 'dt-test'; `agentzoo finetune dt-test --recipe FILE` repeats"):
        train(made, tmp_path / "run", episodes, device="cpu")
    assert not (tmp_path / "run").exists()
    with pytest.raises(ConfigError, match="'dt-test' names no base: it trains from nothing"):
        start_from(base, made.replace(agent_id="dt-test", base=None), episodes)
    with pytest.raises(CheckpointError, match="the recipe fine-tunes 'another', not 'dt-test'"):
        start_from(base, made.replace(base="another"), episodes)


def test_a_finetune_of_changed_weights_names_no_file(tiny_hopper: str, tmp_path: Path) -> None:
    made = recipe(steps=1)
    model = train(made, tmp_path / "run", coin_episodes(), device="cpu")
    saved = Agent(model, AgentConfig.of(made, model.io), made).save_pretrained(tmp_path / "agent")
    base = Agent.from_pretrained(saved)
    assert finetune_recipe(base, tiny_hopper, None, 3, "keep").base_weights_sha256 == base.config.weights_sha256
    with torch.no_grad():
        next(base.model.parameters()).add_(1.0)
    assert finetune_recipe(base, tiny_hopper, None, 3, "keep").base_weights_sha256 is None


@pytest.mark.parametrize(
    ("content", "said"), [(b"a,b\n1,2\n", "has no column `step`"), (b"step\n\xff\n", "no log of a training")]
)
def test_a_file_that_is_no_log_is_said(content: bytes, said: str, tmp_path: Path) -> None:
    (tmp_path / LOG).write_bytes(content)
    with pytest.raises(CheckpointError, match=said):
        read_log(tmp_path)


def test_finetune_on_other_shapes_names_the_layers(tiny_hopper: str) -> None:
    base = make_agent("tests/Counting-v0", context=4)
    episodes = load_episodes(tiny_hopper)
    made = finetune_recipe(base, tiny_hopper, "mine", 10, "keep")
    shapes = r"embed_obs.weight \(16, 3\) -> \(16, 11\).*predict_action.*--reinit --normalization dataset"
    with pytest.raises(CheckpointError, match=shapes):
        start_from(base, made, episodes)
    with pytest.raises(ConfigError, match="mean and std cannot be kept"):
        start_from(base, finetune_recipe(base, tiny_hopper, "mine", 10, "keep", reinit=True), episodes)
    made = finetune_recipe(base, tiny_hopper, "mine", 10, "dataset", reinit=True)
    assert Recipe.from_json(made.to_json(), "it says how it started").reinit
    start = start_from(base, made, episodes)
    kept = base.model.get_parameter("backbone.blocks.0.attn.qkv.weight")
    assert torch.equal(start.get_parameter("backbone.blocks.0.attn.qkv.weight"), kept)
    np.testing.assert_allclose(start.obs_mean.numpy(), episodes.observations.mean(0), atol=1e-5)
    deeper = make_agent("Hopper-v5", context=4, model=DTConfig(embed_dim=16, n_layers=2))
    made = finetune_recipe(deeper, tiny_hopper, "mine", 10, "keep").override(["model.n_layers=1"])
    lost = r"blocks.1.ln_1.weight \(16,\) -> absent; .* and 2 more.*do without those that become absent"
    with pytest.raises(CheckpointError, match=lost):
        start_from(deeper, made, episodes)
    kept = start_from(deeper, made.replace(reinit=True), episodes).state_dict()
    assert all(torch.equal(deeper.model.state_dict()[name], value) for name, value in kept.items())
    base.recipe = None
    with pytest.raises(ConfigError, match=r"has no train_config.json"):
        finetune_recipe(base, tiny_hopper, None, 10, "keep")


def test_a_trained_agent_is_a_folder_that_loads(tiny_hopper: str, tmp_path: Path) -> None:
    from agentzoo.config import AgentConfig

    episodes = load_episodes(tiny_hopper)
    made = recipe(steps=3).override([f"data.dataset={tiny_hopper}", "eval.env=Hopper-v5"])
    model = train(made, tmp_path, episodes, device="cpu")
    Agent(model, AgentConfig.of(made, model.io), made).save_pretrained(tmp_path)
    obs = np.zeros(11, dtype=np.float32)
    loaded = Agent.from_pretrained(tmp_path)
    assert loaded.predict(obs)[0].shape == (3,)
    np.testing.assert_allclose(loaded.model.obs_mean.numpy(), episodes.observations.mean(0), atol=1e-5)
