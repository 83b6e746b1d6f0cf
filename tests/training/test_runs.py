"""Training: folders, locks, devices, trackers, and runs that are killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from accelerate import Accelerator
from accelerate.tracking import GeneralTracker
from conftest import CountingEnv, make_agent
from models.cases import coin_episodes
from typer.testing import CliRunner

from agentzoo.cli import app
from agentzoo.data.minari import load_episodes
from agentzoo.errors import CheckpointError, ConfigError, StorageError, TrainingError, UnknownNameError
from agentzoo.evaluation.during import check_environment, short_evaluation
from agentzoo.evaluation.seeds import episode_seed
from agentzoo.models.bc import BCConfig, BehaviourCloning
from agentzoo.store.tensors import read_tensors
from agentzoo.training.hooks import Hooks
from agentzoo.training.lock import held, holder
from agentzoo.training.log import read_log
from agentzoo.training.loop import build_model, train
from agentzoo.training.machine import check_machine, warn_of_slow_precision
from agentzoo.training.tracking import Tracking, tracking
from training.cases import recipe, run


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


def test_a_file_is_no_folder_of_a_run(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match=r"file is a file; a run is a folder\. Choose another --out\."):
        run(tmp_path / "file", recipe(steps=1))


def test_a_run_recorded_before_hashes_were_kept_continues(tmp_path: Path) -> None:
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


def test_an_unknown_device_or_tracker_is_refused_before_anything_is_loaded(tmp_path: Path) -> None:
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


class CountingTracker(GeneralTracker):
    """A user's own tracker, in the form that accelerate accepts; counts how often it is finished."""

    name = "counting"
    requires_logging_directory = False

    def __init__(self) -> None:
        super().__init__()
        self.ended = 0

    @property
    def tracker(self) -> CountingTracker:
        return self

    def finish(self) -> None:
        self.ended += 1


def test_a_tracker_is_finished_when_a_run_fails(tmp_path: Path) -> None:
    tracker = CountingTracker()
    with (
        pytest.raises(TrainingError),
        tracking(Accelerator(cpu=True, log_with=tracker), Tracking(("counting",)), recipe(), tmp_path),
    ):
        raise TrainingError("not finite")
    assert tracker.ended == 1


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
    assert [str(warning.message).startswith("the recipe uses bfloat16") for warning in recwarn] == (
        [] if fast else [True]
    )


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
    folder, rng = tmp_path / "killed", np.random.default_rng(0)
    ended = []
    for _ in range(3):
        seen = read_log(folder)
        last = int(seen[-1]["step"]) if seen else 0
        aim = int(rng.integers(min(last, 53), 54)) + 1  # after what an earlier process wrote
        process = subprocess.Popen(
            [*COMMAND, str(folder)], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        while process.poll() is None:
            rows = read_log(folder)
            if rows and int(rows[-1]["step"]) >= max(aim, last + 1):
                break
            time.sleep(0.005)
        process.send_signal(signal.SIGKILL)
        ended.append(process.wait())
    assert -signal.SIGKILL in ended
    resumed = (folder / "checkpoint.safetensors").exists()
    final = subprocess.run([*COMMAND, str(folder)], check=True, env=environment, capture_output=True)
    assert (b"continuing from update" in final.stdout + final.stderr) == resumed
    assert (folder / "model.safetensors").read_bytes() == whole
    assert not [path.name for path in folder.iterdir() if path.name.startswith(".")]
