"""Runs of simpler methods become rows of `baselines.json` and of cards; every staged agent has its row of bc."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import SMALL, make_agent
from typer.testing import CliRunner

from agentzoo.agent import Agent
from agentzoo.cli import app
from agentzoo.data.minari import load_episodes
from agentzoo.errors import CheckpointError, ConfigError
from agentzoo.evaluation.baselines import CLONE, read_baselines
from agentzoo.evaluation.results import evaluate
from agentzoo.hub import baseline_rows
from agentzoo.hub.baseline_rows import Making, add_runs, write_making
from agentzoo.hub.card import check_card
from agentzoo.hub.finished_runs import load_finished
from agentzoo.hub.records import read_records
from agentzoo.models.bc import BCConfig
from agentzoo.recipe import load_recipe
from agentzoo.research.offline_rl import baseline_recipe, copy_policy, train_baseline
from agentzoo.store.locate import local_zoo, staged_agents
from agentzoo.training.loop import build_model
from hub.conftest import make_folder

WAITING = Path(__file__).with_name("waiting_for_bc.txt").read_text().split()


@pytest.mark.parametrize("agent_id", [name for name in staged_agents() if not name.startswith("bc-")])
def test_every_staged_agent_has_its_row_of_bc(agent_id: str) -> None:
    """`agentzoo hub baselines RUN...` adds rows; `waiting_for_bc.txt` names the agents whose clone is not trained."""
    folder = staged_agents()[agent_id]
    _, recipe, results = read_records(folder)
    zoo = local_zoo()
    assert zoo is not None
    rows = read_baselines(zoo / "baselines.json").datasets.get(recipe.data.dataset, ())
    assert results.yardsticks == rows  # the copy that the card is made from
    assert any(one.method == CLONE for one in rows) != (agent_id in WAITING)


@pytest.mark.parametrize("agent_id", [name for name in staged_agents() if name.startswith("bc-")])
def test_a_staged_clone_has_one_score(agent_id: str) -> None:
    """Its row on other cards equals its own headline: `agentzoo hub baselines hub_cards/bc-...` after staging."""
    _, recipe, results = read_records(staged_agents()[agent_id])
    (row,) = [
        one.result
        for one in results.yardsticks
        if one.method == CLONE and one.result.training_seed == recipe.train.seed
    ]
    assert (row.weights_sha256, row.returns) == (results.headline.weights_sha256, results.headline.returns)


def test_a_run_becomes_a_row_and_cards_show_it(tmp_path: Path) -> None:
    zoo, run = tmp_path / "zoo", tmp_path / "run"
    staged = make_folder(zoo / "dt-test")
    make_agent(model=SMALL["bc"]).save_pretrained(run)
    head = evaluate(Agent.from_pretrained(staged), episodes=100)
    results = read_records(staged)[2].model_copy(update={"headline": head})
    (staged / "results.json").write_text(results.to_json())
    shutil.copytree(run, tmp_path / "other")
    write_making(tmp_path / "other", Making(method="iql", trained_with="by hand"))
    done = CliRunner().invoke(app, ["hub", "baselines", str(run), str(tmp_path / "other"), "--zoo", str(zoo)])
    assert done.exit_code == 0, done.output
    dataset = read_records(staged)[1].data.dataset
    bc, iql = read_baselines(zoo / "baselines.json").datasets[dataset]
    assert (bc.method, iql.method, iql.trained_with) == ("bc", "iql", "by hand")
    assert len(bc.result.returns) == 100
    assert read_records(staged)[2].yardsticks == (bc, iql)
    check_card(staged)
    table = (staged / "README.md").read_text().split("## How good is it")[1]
    assert "| `bc`, behaviour cloning, training seed 0 | " in table
    assert "| IQL, training seed 0 | " in table


def test_rows_before_a_run_that_fails_stay_and_are_on_the_cards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    zoo, run = tmp_path / "zoo", tmp_path / "run"
    staged = make_folder(zoo / "dt-test")
    make_agent(model=SMALL["bc"]).save_pretrained(run)
    other = shutil.copytree(run, tmp_path / "other")
    write_making(other, Making(method="iql", trained_with="by hand"))
    before = baseline_rows._measured

    def stopped(one: Path, *more: Any) -> Any:
        if one == other:
            raise KeyboardInterrupt
        return before(one, *more)

    monkeypatch.setattr(baseline_rows, "_measured", stopped)
    monkeypatch.setattr(baseline_rows, "EPISODES", 2)
    head = evaluate(Agent.from_pretrained(staged), episodes=2)
    results = read_records(staged)[2].model_copy(update={"headline": head})
    (staged / "results.json").write_text(results.to_json())
    with pytest.raises(KeyboardInterrupt):
        baseline_rows.add_runs([run, other], zoo)
    dataset = read_records(staged)[1].data.dataset
    assert read_records(staged)[2].yardsticks == read_baselines(zoo / "baselines.json").datasets[dataset]
    assert [one.method for one in read_records(staged)[2].yardsticks] == ["bc"]
    check_card(staged)


def test_two_runs_of_one_row_are_refused_before_either_is_measured(tmp_path: Path) -> None:
    run = make_agent(model=SMALL["bc"]).save_pretrained(tmp_path / "run")
    again = Path(shutil.copytree(run, tmp_path / "again"))
    progress: list[str] = []
    with pytest.raises(ConfigError, match=r"run and .*again are both bc on .* with training seed 0, which has one row"):
        add_runs([run, again], tmp_path, on_progress=progress.append)
    assert progress == []
    assert not (tmp_path / "baselines.json").exists()


def test_another_family_is_no_baseline(tmp_path: Path) -> None:
    run = make_agent().save_pretrained(tmp_path / "run")
    done = CliRunner().invoke(app, ["hub", "baselines", str(run), "--zoo", str(tmp_path)])
    assert isinstance(done.exception, ConfigError)
    assert "a baseline must be 'bc' or have a baseline.json" in str(done.exception)


def test_the_recipe_of_a_d3rlpy_baseline() -> None:
    made = baseline_recipe("td3+bc", load_recipe("bc-hopper-medium"), 100, 3)
    assert (made.agent_id, made.train.steps, made.train.seed) == ("td3-bc-hopper-medium", 100, 3)
    assert made.data == load_recipe("bc-hopper-medium").data
    with pytest.raises(ConfigError, match="known: td3\\+bc, iql, cql"):
        baseline_recipe("sac", load_recipe("bc-hopper-medium"), 100, 3)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="is of family 'dt'; name a bc agent"):
        baseline_recipe("iql", load_recipe("dt-hopper-medium"), 100, 3)


@pytest.mark.parametrize("method", ["td3+bc", "iql", "cql"])
def test_a_policy_of_d3rlpy_acts_the_same_as_an_agent(method: str, tiny_hopper: str) -> None:
    d3rlpy = pytest.importorskip("d3rlpy", reason="needs agentzoo[baselines]")
    from agentzoo.research.offline_rl import _algorithm

    episodes = load_episodes(tiny_hopper)
    recipe = baseline_recipe("iql", load_recipe("bc-hopper-medium"), 1, 0)
    model = build_model(recipe, episodes)
    algorithm = _algorithm(d3rlpy, method)
    algorithm.create_impl((11,), 3)
    copy_policy(algorithm, model, episodes)
    other = build_model(recipe.replace(model=BCConfig(embed_dim=256, n_layers=3)), episodes)
    with pytest.raises(CheckpointError, match="has 3 layers, ours 4"):
        copy_policy(algorithm, other, episodes)
    assert np.isfinite(model.obs_std.numpy()).all()


def test_a_run_of_d3rlpy_records_its_data(tiny_hopper: str, tmp_path: Path) -> None:
    pytest.importorskip("d3rlpy", reason="needs agentzoo[baselines]")

    episodes = load_episodes(tiny_hopper)
    recipe = baseline_recipe("td3+bc", load_recipe("bc-hopper-medium"), 2, 0)
    run = train_baseline("td3+bc", recipe, episodes, tmp_path / "run")
    made = load_finished(run).recipe
    assert made is not None
    assert made.data.dataset_sha256 == episodes.sha256()
    assert made.train.steps == 2
