"""What a run records and checks: its data, its checkpoint, where it ran, held-out error, trackers, Ctrl-C."""

from __future__ import annotations

import json
import os
import signal
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import SMALL, make_agent
from data.cases import episodes_of
from models.cases import coin_episodes

from agentzoo.cli.running import tracking_of
from agentzoo.config import read_recipe
from agentzoo.data.episodes import Episodes
from agentzoo.errors import CheckpointError, ConfigError, DataError, ObservationError, StorageError, TrainingError
from agentzoo.nn.base import ModelConfig
from agentzoo.recipe import Recipe, Stretch, differences, load_recipe
from agentzoo.record import read_record
from agentzoo.registry import get_family
from agentzoo.research.grid import hardware
from agentzoo.store.files import RECIPE, WEIGHTS
from agentzoo.store.locate import staged_agents
from agentzoo.store.tensors import read_tensors
from agentzoo.training.action_errors import COLUMNS, ActionErrors
from agentzoo.training.hooks import Evaluation, Hooks
from agentzoo.training.log import append_row, read_log, still_falling
from agentzoo.training.loop import train
from agentzoo.training.machine import processor
from agentzoo.training.planning import with_free_precision
from agentzoo.training.state import random_state
from agentzoo.training.tracking import TRACKING, Tracking, flat
from training.cases import Stopped, evaluated, recipe, repeatable, run, stop_at


def stopped(folder: Path, made: Recipe, data: Episodes) -> None:
    with pytest.raises(Stopped):
        train(made, folder, data, hooks=stop_at(12), device="cpu")


def test_a_changed_dataset_stops_a_resume(tmp_path: Path) -> None:
    data = coin_episodes()
    stopped(tmp_path, recipe(), data)
    assert read_record(Recipe, tmp_path / RECIPE).data.dataset_sha256 == data.sha256()
    other = replace(data, actions=-data.actions)
    with pytest.raises(TrainingError, match=r"the dataset 'coins' has changed: .* start again in another --out"):
        train(recipe(), tmp_path, other, device="cpu")
    train(recipe(), tmp_path, data, device="cpu")


def test_a_recipe_that_names_its_data_takes_no_other(tmp_path: Path) -> None:
    data = coin_episodes()
    pinned = recipe(steps=5).replace(data=recipe().data.model_copy(update={"dataset_sha256": "0" * 64}))
    with pytest.raises(TrainingError, match=r"the recipe was made with 000000000000.*data.dataset_sha256=null"):
        train(pinned, tmp_path, data, device="cpu")
    train(pinned.override(["data.dataset_sha256=null"]), tmp_path, data, device="cpu")
    assert pinned.override(["data.dataset=mine/x-v0"]).data.dataset_sha256 is None


def test_a_run_recorded_before_data_were_pinned_continues(tmp_path: Path) -> None:
    stopped(tmp_path, recipe(), coin_episodes())
    tree = json.loads((tmp_path / RECIPE).read_text())
    for name in ("dataset_sha256", "held_out"):
        del tree["data"][name]
    del tree["ran"]
    (tmp_path / RECIPE).write_text(json.dumps(tree))
    train(recipe(), tmp_path, coin_episodes(), device="cpu")


def test_a_flipped_byte_of_a_checkpoint_stops_a_resume(tmp_path: Path) -> None:
    stopped(tmp_path, recipe(), coin_episodes())
    path = tmp_path / "checkpoint.safetensors"
    whole = bytearray(path.read_bytes())
    whole[-7] ^= 1
    path.write_bytes(bytes(whole))
    with pytest.raises(CheckpointError, match=r"is damaged: its tensors do not match the checksum"):
        run(tmp_path, recipe())


def test_a_deleted_checkpoint_is_warned_of(tmp_path: Path) -> None:
    stopped(tmp_path, recipe(), coin_episodes())
    (tmp_path / "checkpoint.safetensors").unlink()
    with pytest.warns(UserWarning, match=r"has a log of 10 updates but no checkpoint.*start again at update 0"):
        run(tmp_path, recipe())


def test_a_record_says_where_each_stretch_ran(tmp_path: Path) -> None:
    stopped(tmp_path, recipe(), coin_episodes())
    run(tmp_path, recipe())
    (only,) = read_record(Recipe, tmp_path / RECIPE).ran  # the same machine went on
    assert (only.from_update, only.processes, only.precision, only.threads) == (0, 1, "fp32", torch.get_num_threads())
    assert only.devices[0].startswith("cpu (")
    assert differences(recipe(), read_record(Recipe, tmp_path / RECIPE)) == {}


def test_a_finished_run_keeps_its_record_and_may_be_asked_for_without_evaluations(tmp_path: Path) -> None:
    """`eval.every=0` is the advice where an environment fails; finished runs of the same grid must not refuse it."""
    made = recipe(steps=10).override(["eval.every=5"])
    run(tmp_path, made)
    before = (tmp_path / RECIPE).read_bytes()
    torch.set_num_threads(torch.get_num_threads() + 1)
    try:
        run(tmp_path, made.override(["eval.every=0"]))
    finally:
        torch.set_num_threads(torch.get_num_threads() - 1)
    assert (tmp_path / RECIPE).read_bytes() == before
    with pytest.raises(TrainingError, match=r"eval.target_return: 1.0 there, 2.0 asked"):
        run(tmp_path, made.override(["eval.target_return=2"]))


def test_a_run_that_failed_before_its_first_update_takes_the_correction(tmp_path: Path) -> None:
    wrong = recipe(steps=5).override(["data.context=50", "data.drawn=full"])
    with pytest.raises(DataError, match=r"Lower data.context"):
        run(tmp_path, wrong)
    run(tmp_path, recipe(steps=5))
    assert read_record(Recipe, tmp_path / RECIPE).data.context == 2
    with pytest.raises(TrainingError, match="with another recipe"):
        run(tmp_path, wrong)


def test_a_run_that_never_began_leaves_no_choice_to_the_next_one(tmp_path: Path) -> None:
    """Neither its data, nor how many episodes it held out, nor its precision."""
    made = recipe(steps=5, precision="auto").replace(data=recipe().data.model_copy(update={"held_out": None}))
    few = episodes_of([1, 2], [3])
    with pytest.raises(DataError, match=r"Lower data.context"):
        train(
            made.override(["data.context=50", "data.drawn=full", "train.precision=bf16"]), tmp_path, few, device="cpu"
        )
    train(made, tmp_path, many(), device="cpu")
    found, fresh = read_record(Recipe, tmp_path / RECIPE), tmp_path / "fresh"
    train(made, fresh, many(), device="cpu")
    assert found == read_record(Recipe, fresh / RECIPE)
    assert found.data.held_out == 0.05


def test_a_users_own_recipe_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / RECIPE).write_text(recipe(steps=7).to_json())
    with pytest.raises(TrainingError, match="with another recipe"):
        run(tmp_path, recipe(steps=5))


def test_a_run_on_the_cpu_leaves_the_gpu_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)
    assert set(random_state(torch.Generator())) == {"torch", "sampler"}


def test_a_log_that_cannot_be_written_raises_a_storage_error(tmp_path: Path) -> None:
    (tmp_path / "training_log.csv").mkdir()
    with pytest.raises(StorageError, match=r"training_log.csv was not written: .* The last checkpoint is unchanged"):
        append_row(tmp_path, ["step"], {"step": 1})


def test_ctrl_c_saves_a_checkpoint_and_the_run_goes_on_to_the_same_bits(tmp_path: Path) -> None:
    def press(step: int) -> None:
        if step == 13:
            os.kill(os.getpid(), signal.SIGINT)

    saved: list[int] = []
    whole = run(tmp_path / "whole", recipe())
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "cut", recipe(), Hooks(on_step=press, on_save=saved.append))
    assert saved == [10, 14]  # pressed after update 13: the next one is finished
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    resumed = run(tmp_path / "cut", recipe())
    assert all(torch.equal(whole[name], resumed[name]) for name in whole)
    assert repeatable(tmp_path / "whole") == repeatable(tmp_path / "cut")


def test_ctrl_c_in_the_last_evaluation_stops_the_program_and_the_run_is_whole(tmp_path: Path) -> None:
    """A loop over seeds would otherwise begin the next training."""

    def press(_: object) -> Evaluation:
        os.kill(os.getpid(), signal.SIGINT)
        return Evaluation(1.0, None)

    made = evaluated(recipe(steps=10), 10)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "pressed", made, Hooks(evaluate=press))
    whole = run(tmp_path / "whole", made, Hooks(evaluate=lambda _: Evaluation(1.0, None)))
    kept = read_tensors(tmp_path / "pressed" / WEIGHTS)[0]
    assert all(torch.equal(whole[name], kept[name]) for name in whole)
    assert repeatable(tmp_path / "whole") == repeatable(tmp_path / "pressed")


def many() -> Episodes:
    rng = np.random.default_rng(0)
    return episodes_of(*(list(rng.integers(0, 9, 1 + i % 4).astype(float)) for i in range(40)))


def test_five_percent_of_the_episodes_are_held_out_where_the_recipe_leaves_it_open(tmp_path: Path) -> None:
    made = recipe().replace(data=recipe().data.model_copy(update={"held_out": None}))
    train(made, tmp_path, many(), device="cpu")
    assert read_record(Recipe, tmp_path / RECIPE).data.held_out == 0.05
    rows = read_log(tmp_path)
    assert [row["step"] for row in rows if row["error_held_out"]] == ["30"]
    assert all(float(rows[-1][name]) > 0 for name in COLUMNS)
    assert made.data.held_out is None
    assert "held_out" not in json.loads(made.to_json())["data"]
    assert differences(made, read_record(Recipe, tmp_path / RECIPE)) == {}


def test_few_episodes_are_all_trained_on(tmp_path: Path) -> None:
    made = recipe(steps=6).replace(data=recipe().data.model_copy(update={"held_out": None}))
    train(made, tmp_path, episodes_of([1, 2], [3]), device="cpu")
    assert read_record(Recipe, tmp_path / RECIPE).data.held_out == 0.0


def test_the_record_of_a_run_that_held_out_nothing_is_repeated_so(tmp_path: Path) -> None:
    packaged = load_recipe("dt-hopper-medium")
    for made in (packaged, packaged.override(["data.held_out=0"])):
        (tmp_path / RECIPE).write_text(made.to_json())
        assert read_recipe(tmp_path / RECIPE).data.held_out == made.data.held_out
    assert all(read_recipe(folder / RECIPE).data.held_out is not None for folder in staged_agents().values())


def test_held_out_episodes_are_not_trained_on() -> None:
    data = many()
    trained, held = data.held_out(0.05)
    assert (len(trained.lengths), len(held.lengths)) == (38, 2)
    assert len(trained) + len(held) == len(data)
    with pytest.raises(DataError, match=r"one episode is used; none can be held out\. Use --set data\.held_out=0"):
        data.best(0.01).held_out(0.05)
    again = data.held_out(0.05)[1]
    assert np.array_equal(held.observations, again.observations)


@pytest.mark.parametrize("family", ["dt", "bc", "dm", "gpt2-dt", "unimask"])
def test_errors_are_those_of_act_against_the_data(family: str) -> None:
    """A network that always answers the action of the data has none; one that is off by a fixed step, its square."""
    config: ModelConfig = SMALL.get(family) or get_family(family).config(family=family)
    agent = make_agent(model=config, context=3)
    model = agent.model.eval()
    rng = np.random.default_rng(0)
    actions = rng.uniform(-2, 2, (60, 2)).astype(np.float32)
    data = Episodes(
        "x", model.io.observation, model.io.action, rng.normal(size=(60, 3)).astype(np.float32), actions,
        np.ones(60), np.full(30, 2), np.ones(30, bool),
    )  # fmt: skip
    errors = ActionErrors(*data.held_out(0.1), 3, 1.0, torch.device("cpu"))
    found = errors.measure(model)
    assert set(found) == set(COLUMNS)
    for name in COLUMNS:
        squares = []
        for batch in errors.batches(name):
            newest = batch.valid.sum(1) - 1
            wanted = batch.actions[torch.arange(len(newest)), newest]
            with torch.no_grad():
                squares.append(((model.act(batch) - wanted) / 2).square())
        assert found[name] == pytest.approx(float(torch.cat(squares).mean()), rel=1e-4)
    assert next(errors.batches("error_first")).shape[1] == 1


def test_still_falling_tells_a_falling_loss_from_a_flat_one() -> None:
    rng = np.random.default_rng(0)

    def rows(losses: np.ndarray) -> list[dict[str, str]]:
        return [{"step": str(i), "loss": str(loss)} for i, loss in enumerate(losses)]

    noise = 0.002 * rng.normal(size=200)
    falling = still_falling(rows(np.linspace(1.0, 0.5, 200) + noise))
    assert falling == pytest.approx(0.09, abs=0.02)  # from .575 to .525 over the last forty rows' halves
    assert still_falling(rows(np.full(200, 0.5) + noise)) is None
    assert still_falling(rows(np.linspace(1.0, 0.5, 20))) is None


def test_bf16_is_insisted_on_by_hand_alone() -> None:
    half = load_recipe("dt-hopper-medium").override(["train.precision=bf16"])
    assert with_free_precision(half, ["train.seed=3"]).train.precision == "auto"
    assert with_free_precision(half, ["train.precision=bf16"]).train.precision == "bf16"
    assert with_free_precision(half.override(["train.precision=fp32"]), ()).train.precision == "fp32"


def test_a_run_that_is_resumed_goes_on_in_the_same_tracker_run(tmp_path: Path) -> None:
    asked = Tracking(("tensorboard",), project="p", run_name="n", group="g", tags=("a", "b"))
    first = asked.settled(recipe(), tmp_path)
    (tmp_path / TRACKING).write_text(json.dumps(vars(replace(first, trackers=()))))
    again = Tracking(("wandb",)).settled(recipe(), tmp_path)
    assert again == replace(first, trackers=("wandb",))
    assert tracking_of(["wandb"], None, None, None, "a, b,") == Tracking(("wandb",), tags=("a", "b"))


def test_options_of_a_tracker_need_one() -> None:
    with pytest.raises(ConfigError, match=r"^--project, --tags has no effect without --track; name a tracker"):
        tracking_of(None, "p", None, None, "a")


def test_the_whole_recipe_is_the_config_of_a_tracker() -> None:
    found = flat({"train": {"lr": 0.1, "betas": [0.9, 0.99]}, "base": None, "agent_id": "x"})
    assert found == {"train.lr": 0.1, "train.betas": "[0.9, 0.99]", "base": "null", "agent_id": "x"}


def test_a_checkpoint_carries_its_checksum(tmp_path: Path) -> None:
    run(tmp_path, recipe(steps=10))
    assert len(read_tensors(tmp_path / "checkpoint.safetensors")[1]["sha256"]) == 64


def test_a_failed_evaluation_keeps_its_update_and_can_be_left_out(tmp_path: Path) -> None:
    """The run continues from that update with other `eval` settings, and ends with the same weights."""

    def fails(_: object) -> Evaluation:
        raise ObservationError("the environment returned NaN")

    whole = run(tmp_path / "whole", recipe())
    made = recipe().override(["eval.every=13"])
    expected = r"after update 13 failed with ObservationError: .* NaN\. .* is saved: .*--set eval\.every=0"
    with pytest.raises(TrainingError, match=expected):
        run(tmp_path / "run", made, Hooks(evaluate=fails))
    resumed: list[int] = []
    continued = made.override(["eval.every=0", "eval.episodes=7"])
    weights = run(tmp_path / "run", continued, Hooks(on_resume=resumed.append))
    assert resumed == [13]
    assert all(torch.equal(whole[name], weights[name]) for name in whole)
    stored = read_record(Recipe, tmp_path / "run" / RECIPE)
    assert (stored.eval, len(stored.ran)) == (continued.eval, 1)
    with pytest.raises(TrainingError, match=r"eval\.every: 0 there, 5 asked"):  # it is finished
        run(tmp_path / "run", made.override(["eval.every=5"]))


def test_patience_fixes_how_a_run_is_evaluated(tmp_path: Path) -> None:
    made = recipe().override(["eval.every=5", "train.patience=20"])
    with pytest.raises(Stopped):
        run(tmp_path, made, stop_at(12))
    with pytest.raises(TrainingError, match=r"eval\.every: 5 there, 6 asked"):
        run(tmp_path, made.override(["eval.every=6"]))


def test_the_best_checkpoint_is_of_one_kind_of_evaluation(tmp_path: Path) -> None:
    def reaching(value: float) -> Hooks:
        return replace(stop_at(12), evaluate=lambda _: Evaluation(value, None))

    made = recipe().override(["eval.every=5"])
    with pytest.raises(Stopped):
        run(tmp_path, made, reaching(100.0))
    more = made.override(["eval.episodes=7"])
    with pytest.raises(Stopped):
        run(tmp_path, more, reaching(100.0))
    assert [row["eval_return"] for row in read_log(tmp_path)] == ["100", "100"]
    before = read_log(tmp_path)
    run(tmp_path, made.override(["eval.target_return=0.5"]), Hooks(evaluate=lambda _: Evaluation(1.0, 2.0)))
    assert read_tensors(tmp_path / "best.safetensors")[1] == {"step": "15"}
    rows = read_log(tmp_path)
    assert [(row["eval_return"], row["eval_score"]) for row in rows] == [("", "")] * 2 + [("1", "2")] * 4
    assert rows[0] == {**before[0], "eval_return": "", "eval_score": ""}


def test_a_card_names_the_devices_of_the_last_updates(tmp_path: Path) -> None:
    plain = recipe(steps=4)
    gpu = Stretch(
        from_update=0, processes=1, devices=("cuda:0 (NVIDIA H200)",), precision="bf16", threads=1, torch="2.13.0"
    )
    cpu = gpu.model_copy(update={"from_update": 2, "devices": ("cpu (AMD EPYC)",), "threads": 2})
    for ran, said in (
        ((gpu, cpu), "2 threads of AMD EPYC"),
        ((gpu,), "NVIDIA H200"),
        ((), processor()),  # an older run
    ):
        (tmp_path / "train_config.json").write_text(plain.replace(ran=ran).to_json())
        assert hardware(tmp_path) == said
