"""A staged agent gets another target return and is measured again with it."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
import torch
from conftest import SMALL
from typer.testing import CliRunner

from agentzoo.agent import Agent
from agentzoo.cli import app
from agentzoo.errors import CheckpointError, ConfigError, UnknownNameError
from agentzoo.evaluation.results import evaluate
from agentzoo.hub.card import check_card
from agentzoo.hub.records import read_records
from agentzoo.hub.remeasure import remeasure
from agentzoo.hub.stored_weights import store_weights
from agentzoo.hub.verify import check_files
from agentzoo.models.bc import BCConfig
from agentzoo.store.files import CARD, CONFIG, LOG, RECIPE, RESULTS, WEIGHTS, write_atomic
from agentzoo.store.tensors import read_tensors, save_tensors
from hub.conftest import edit, make_folder


def keep(folder: Path, **rows: object) -> None:
    """Put rows into the record of results."""
    results = read_records(folder)[2]
    write_atomic(folder / RESULTS, results.model_copy(update=rows).to_json())


def test_a_new_target_is_measured_and_the_rest_stays(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "dt-test", env_id="Pendulum-v1")
    swept = evaluate(Agent.from_pretrained(folder), episodes=2, target_return=20.0)
    keep(folder, best=swept, baselines=(swept,), targets=(swept,), spearman=1.0)
    weights, before = (folder / WEIGHTS).read_bytes(), read_records(folder)[2]
    done = CliRunner().invoke(app, ["hub", "remeasure", str(folder), "--target", "max"])
    assert done.exit_code == 0, done.output
    config, recipe, after = read_records(folder)
    # 6 is the best return of the data
    assert (config.target_return, recipe.eval.target_return, recipe.eval.target_rule) == (6.0, 6.0, "max")
    assert (folder / WEIGHTS).read_bytes() == weights
    by_hand = evaluate(Agent.from_pretrained(folder), episodes=3, target_return=6.0)
    assert after.headline.returns == by_hand.returns != before.headline.returns
    assert after.headline.target_return == 6.0
    assert after.headline.command == "agentzoo evaluate dt-test -n 3 --seed 0 --target 6"
    assert (after.best, after.baselines) == (None, ())  # measured with the old target
    assert (after.targets, after.spearman, after.training) == ((swept,), 1.0, before.training)
    assert "asked for 6.00, it returns" in done.output
    check_card(folder)
    assert "The target is the best return in the data." in (folder / CARD).read_text()


def test_a_clone_keeps_its_episodes_and_its_seeds(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "dt-test", SMALL["bc"])
    head = read_records(folder)[2].headline
    head = head.model_copy(update={"command": "agentzoo evaluate dt-test -n 3 --seed 0 --target 50"})
    keep(folder, headline=head, seeds=(head.model_copy(update={"training_seed": 1}),))
    remeasure(folder, target="12.5")
    after = read_records(folder)[2]
    assert after.headline.returns == head.returns
    assert [one.target_return for one in (after.headline, *after.seeds)] == [12.5, 12.5]
    assert after.headline.command == "agentzoo evaluate dt-test -n 3 --seed 0 --target 12.5"
    again = evaluate(Agent.from_pretrained(folder), episodes=3)
    assert (again.returns, again.target_return) == (head.returns, 12.5)  # a clone reads no return
    check_card(folder)
    remeasure(folder, target="12.5", drop_seeds=True)
    assert read_records(folder)[2].seeds == ()
    check_card(folder)


def test_options_of_the_environment_make_another_task_without_a_constant(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "dt-test", SMALL["bc"])
    edit(folder, RESULTS, dataset__best_return=3700.0)
    for options, chosen in (({}, (3600.0, "d4rl")), ({"ctrl_cost_weight": 0.1}, (3700.0, "max"))):
        edit(folder, CONFIG, env="Hopper-v5", env_options=options)
        edit(folder, RECIPE, eval__env="Hopper-v5", eval__env_options=options)
        remeasure(folder, target="d4rl")
        evaluation = read_records(folder)[1].eval
        assert (evaluation.target_return, evaluation.target_rule) == chosen


def test_what_cannot_be_measured_again_is_refused_and_nothing_changes(folder: Path) -> None:
    head = read_records(folder)[2].headline
    keep(folder, seeds=(head.model_copy(update={"training_seed": 1}),))
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    with pytest.raises(ConfigError, match="shows 1 other training seed, whose weights it does not hold"):
        remeasure(folder, target="max")
    with pytest.raises(ConfigError, match=r"history is the number of newest steps that acting reads, 1 to 4 or None"):
        remeasure(folder, history=5)
    with pytest.raises(ConfigError, match=r"a target is a number or one of d4rl, max, p90; got 'most'"):
        remeasure(folder, target="most")
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    (folder / LOG).unlink()
    with pytest.raises(CheckpointError, match=r"lacks training_log\.csv, which its card shows"):
        remeasure(folder, target="max")


def test_a_failed_measurement_leaves_the_agent_as_it_was(folder: Path) -> None:
    edit(folder, CONFIG, env="Nowhere-v0")
    edit(folder, RECIPE, eval__env="Nowhere-v0")
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    with pytest.raises(UnknownNameError, match="no environment 'Nowhere-v0'"):
        remeasure(folder, target="3")
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_another_history_is_measured_with_its_own_sweep(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "dt-test", env_id="Pendulum-v1")
    before = read_records(folder)[2]
    keep(folder, seeds=(before.headline.model_copy(update={"training_seed": 1}),), targets=(before.headline,))
    remeasure(folder, history=1, sweep_episodes=1, drop_seeds=True)
    config, recipe, after = read_records(folder)
    assert (config.history, recipe.eval.history, after.headline.history) == (1, 1, 1)
    agent = Agent.from_pretrained(folder)
    assert agent.history == 1
    assert after.headline.returns == evaluate(agent, episodes=3).returns != before.headline.returns
    assert after.seeds == ()
    assert [one.history for one in after.targets] == [1] * 8
    assert [one.episodes for one in after.targets] == [1] * 8
    check_card(folder)
    text = (folder / CARD).read_text()
    assert "It reads the last 1 step (" in text
    assert "It was trained on windows of 4 steps." in text
    remeasure(folder, history=0, sweep_episodes=0)  # the whole window
    config, _, last = read_records(folder)
    assert (config.history, last.headline.returns, last.targets) == (None, before.headline.returns, ())
    assert last.headline.command == "agentzoo evaluate dt-test -n 3 --seed 0 --target 50"


def test_weights_of_half_the_size_are_measured_as_they_are_stored(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "dt-test", env_id="Pendulum-v1")
    before = read_records(folder)[2]
    wide, _ = read_tensors(folder / WEIGHTS)
    done = CliRunner().invoke(app, ["hub", "remeasure", str(folder), "--weights", "float16", "--sweep-episodes", "1"])
    assert done.exit_code == 0, done.output
    narrow, _ = read_tensors(folder / WEIGHTS)
    for name, value in wide.items():
        kept = torch.float32 if name in ("obs_mean", "obs_std") else torch.float16
        assert narrow[name].dtype == kept
        assert torch.equal(narrow[name], value.to(kept))
    config, _, after = read_records(folder)
    assert config.weights_sha256 == hashlib.sha256((folder / WEIGHTS).read_bytes()).hexdigest()
    assert after.headline.returns == evaluate(Agent.from_pretrained(folder), episodes=3).returns
    assert after.headline.returns != before.headline.returns  # rounding moves Pendulum's actions a little
    assert len(after.targets) == 8
    check_card(folder)


def test_8_bit_weights_drop_the_rows_of_other_seeds_and_of_the_best_checkpoint(tmp_path: Path) -> None:
    """They were measured with wider weights, which are not there, so a mean over them would be of two kinds."""
    model = SMALL["dt"].model_copy(update={"embed_dim": 128, "n_heads": 1})
    folder = make_folder(tmp_path / "dt-test", model, env_id="Pendulum-v1")
    before = read_records(folder)[2]
    other = before.headline.model_copy(update={"training_seed": 1})
    keep(folder, seeds=(other,), best=before.headline, baselines=(other,))
    assert "8-bit" not in (folder / CARD).read_text()
    with pytest.raises(ConfigError, match=r"shows 1 other training seed, whose weights it does not hold.*--drop-seeds"):
        remeasure(folder, weights="int8", sweep_episodes=1)
    remeasure(folder, weights="float16", sweep_episodes=0)  # as they are stored
    assert read_records(folder)[2].seeds == (other,)
    remeasure(folder, weights="int8", sweep_episodes=1, drop_seeds=True)
    after = read_records(folder)[2]
    assert (after.int8, after.seeds, after.best, after.baselines) == (True, (), None, (other,))
    assert after.headline.returns == evaluate(Agent.from_pretrained(folder), episodes=3).returns
    assert after.headline.returns != before.headline.returns
    assert after.headline.weights_sha256 == hashlib.sha256((folder / WEIGHTS).read_bytes()).hexdigest()
    assert "matrices of `model.safetensors` are 8-bit integers" in (folder / CARD).read_text()
    check_card(folder)
    assert [check.details for check in check_files(folder)[2] if check.holds is False] == []


def test_the_present_target_drops_no_rows(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "dt-test", env_id="Pendulum-v1")
    before = read_records(folder)[2]
    other = before.headline.model_copy(update={"training_seed": 1})
    keep(folder, seeds=(other,), best=before.headline, baselines=(other,))
    remeasure(folder, target=str(before.headline.target_return), sweep_episodes=0)
    after = read_records(folder)[2]
    assert (after.seeds, after.best, after.baselines) == ((other,), before.headline, (other,))
    assert after.headline.returns == before.headline.returns


def test_a_clone_without_new_settings_is_measured_again(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "dt-test", SMALL["bc"], env_id="Pendulum-v1")
    head = read_records(folder)[2].headline
    keep(folder, headline=head.model_copy(update={"returns": (0.0, 0.0, 0.0), "mean_return": 0.0}))
    remeasure(folder)
    assert read_records(folder)[2].headline.returns == head.returns
    check_card(folder)


def test_a_clone_gets_a_target_and_smaller_weights_at_once(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "dt-test", SMALL["bc"], env_id="Pendulum-v1")
    other = read_records(folder)[2].headline.model_copy(update={"training_seed": 1})
    keep(folder, seeds=(other,), best=other)
    remeasure(folder, target="-5", weights="float16", sweep_episodes=0)
    after = read_records(folder)[2]
    assert after.best is not None
    assert [one.target_return for one in (after.headline, *after.seeds, after.best)] == [-5.0, -5.0, -5.0]
    assert after.headline.returns == evaluate(Agent.from_pretrained(folder), episodes=3).returns
    assert after.seeds[0].returns == other.returns
    check_card(folder)


def test_a_file_above_the_limit_of_its_family_becomes_smaller(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As an agent staged with `--max-mb`."""
    folder = make_folder(tmp_path / "dt-test", SMALL["bc"], env_id="Pendulum-v1")
    monkeypatch.setattr(BCConfig, "staged_bytes", 100)
    before = (folder / WEIGHTS).stat().st_size
    remeasure(folder, weights="float16", sweep_episodes=0)
    assert 100 < (folder / WEIGHTS).stat().st_size < before
    with pytest.raises(CheckpointError, match="bytes as int8, but the limit is 100"):
        store_weights(folder, "int8", 100)


def test_a_clone_plays_again_with_weights_of_half_the_size(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "dt-test", SMALL["bc"], env_id="Pendulum-v1")
    remeasure(folder, weights="float16", sweep_episodes=1)
    after = read_records(folder)[2]
    assert after.headline.returns == evaluate(Agent.from_pretrained(folder), episodes=3).returns
    check_card(folder)


def test_weights_too_large_for_float16_change_nothing(folder: Path) -> None:
    tensors, _ = read_tensors(folder / WEIGHTS)
    first = next(name for name in tensors if not name.startswith("obs_"))
    tensors[first] = torch.full_like(tensors[first], 70_000.0)  # float16 ends at 65,504
    save_tensors(folder / WEIGHTS, tensors)
    edit(folder, CONFIG, weights_sha256=hashlib.sha256((folder / WEIGHTS).read_bytes()).hexdigest())
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    with pytest.raises(CheckpointError, match=f"holds numbers too large for float16, in {first}"):
        remeasure(folder, weights="float16", sweep_episodes=1)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
