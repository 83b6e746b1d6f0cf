"""The leaderboard's tasks and methods where a zoo holds agents that are alike."""

from __future__ import annotations

import json
import re
from itertools import islice
from pathlib import Path

import h5py
import pytest
from hub.conftest import edit
from typer.testing import CliRunner

from agentzoo.cli import app
from agentzoo.data.returns import read_returns
from agentzoo.site.curves import strokes
from agentzoo.site.dataset_page import datasets_page
from agentzoo.site.entries import read_zoo
from agentzoo.site.index_page import index_page
from agentzoo.site.live.page import by_merit
from agentzoo.site.media import Media
from agentzoo.site.numbers import Quantity
from agentzoo.site.standings import compare, standings
from agentzoo.store.files import CONFIG, RECIPE, RESULTS
from showroom.conftest import copy_agent


def test_agents_of_one_dataset_that_were_measured_elsewhere_are_another_task(tmp_path: Path) -> None:
    for name in ("dt-hopper-medium", "bc-hopper-medium", "gpt2-dt-hopper-medium"):
        records = copy_agent(name, tmp_path / "zoo" / name) / "results.json"
        if name.startswith("gpt2"):
            records.write_text(records.read_text().replace('"Hopper-v5"', '"Walker2d-v5"'))
    found = standings(read_zoo(tmp_path / "zoo"))
    tasks = {one.entry.agent_id: (one.task.name, one.task.env) for one in found if one.entry is not None}
    assert tasks["dt-hopper-medium"] == tasks["bc-hopper-medium"] == ("hopper-medium", "Hopper-v5")
    assert tasks["gpt2-dt-hopper-medium"] == ("hopper-medium (Walker2d-v5)", "Walker2d-v5")
    methods = compare(found)
    assert methods is not None
    assert methods.tasks == ("hopper-medium", "hopper-medium (Walker2d-v5)")  # `bc` has both


def test_two_versions_of_a_dataset_are_two_tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "data"))
    for name in ("dt-hopper-medium", "dm-hopper-medium", "gpt2-dt-hopper-medium"):
        recipe = copy_agent(name, tmp_path / "zoo" / name) / "train_config.json"
        if name.startswith("gpt2"):
            recipe.write_text(recipe.read_text().replace("zoo/hopper/medium-v0", "zoo/hopper/medium-v1"))
    zoo = read_zoo(tmp_path / "zoo")
    found = standings(zoo)
    tasks = {one.entry.agent_id: one.task.name for one in found if one.entry is not None}
    assert tasks["dt-hopper-medium"] == tasks["dm-hopper-medium"] == "hopper-medium"
    assert tasks["gpt2-dt-hopper-medium"] == "zoo/hopper/medium-v1"
    methods = compare(found)
    assert methods is not None
    assert "bc (2)" not in methods.means  # each task has a `bc` of its own
    page = datasets_page(zoo)
    assert re.findall('<section class="dataset" id="([^"]+)"', page) == ["hopper-medium", "hopper-medium-2"]
    assert re.findall('href="#([^"]+)"', page)[1:] == ["hopper-medium", "hopper-medium-2"]


def test_two_agents_of_a_method_and_a_task_are_two_methods(tmp_path: Path) -> None:
    zoo = tmp_path / "zoo"
    copy_agent("dt-hopper-medium", zoo / "dt-hopper-medium")
    records = copy_agent("dt-hopper-medium", zoo / "other") / "results.json"
    tree = json.loads(records.read_text())
    for one in (tree["headline"], *tree["seeds"]):
        one.update(score=10.0, score_interval=[10.0, 10.0])
    records.write_text(json.dumps(tree))
    methods = compare(standings(read_zoo(zoo)))
    assert methods is not None
    assert {name: round(one.value) for name, one in methods.means.items() if "dt" in name} == {"dt": 94, "dt (2)": 10}
    entries = read_zoo(zoo).entries
    page = index_page(read_zoo(zoo), {one.slug: Media(frozenset(), None) for one in entries})
    assert len(set(re.findall('<tr data-id="([^"]+)"', page))) == len(entries) == 2


def test_an_agent_that_never_arrives_changes_no_unit(tmp_path: Path) -> None:
    """All of its episodes have the same length, as where episodes do not end at a goal."""
    zoo = tmp_path / "zoo"
    copy_agent("dt-pointmaze-medium", zoo / "dt-pointmaze-medium")
    records = copy_agent("bc-pointmaze-medium", zoo / "aa") / RESULTS
    tree = json.loads(records.read_text())
    episodes = tree["headline"]["episodes"]
    lost = {"returns": [0.0] * episodes, "mean_return": 0.0, "return_interval": [0.0, 0.0], "lengths": [600] * episodes}
    lost |= {"mean_length": 600.0, "success_rate": 0.0, "successes": [False] * episodes}
    tree |= {"headline": {**tree["headline"], **lost}, "seeds": []}
    records.write_text(json.dumps(tree))
    found = read_zoo(zoo)
    assert {one.task.unit for one in standings(found)} == {"steps"}
    assert [one.slug for one in sorted(found.entries, key=by_merit)] == ["dt-pointmaze-medium", "aa"]


def test_the_facts_of_a_dataset_are_not_those_of_its_best_episodes(tmp_path: Path) -> None:
    zoo = tmp_path / "zoo"
    copy_agent("dt-hopper-medium", zoo / "dt-hopper-medium")
    part = copy_agent("bc-hopper-medium", zoo / "aa-best")
    edit(part, RECIPE, data__best_fraction=0.1)
    edit(part, RESULTS, dataset__episodes=34)
    page = datasets_page(read_zoo(zoo))
    assert "<dd>1,277</dd>" in page
    assert "<dd>34</dd>" not in page


def test_every_line_of_a_plot_is_drawn() -> None:
    names = list(islice(strokes(), 17))
    assert (names[0], names[7], names[8], names[15], names[16]) == ("c0", "c7", "c0 dashed", "c7 dashed", "c0")


def test_a_score_that_rounds_to_zero_has_no_minus_sign(tmp_path: Path) -> None:
    records = copy_agent("dm-hopper-medium", tmp_path / "zoo" / "dm-hopper-medium") / "results.json"
    tree = json.loads(records.read_text())
    tree["seeds"] = []
    tree["headline"].update(score=-0.04, score_interval=[-0.03, 0.04])
    records.write_text(json.dumps(tree))
    (entry,) = read_zoo(tmp_path / "zoo").entries
    assert (entry.measure()[0], entry.interval_in_words()) == ("0.0", "0.0 to 0.0")
    assert Quantity(-0.04, -0.03, 0.04).said("score") == "0.0 [0.0, 0.0]"


def test_the_best_agent_of_an_environment_comes_first_and_unmeasured_ones_last(tmp_path: Path) -> None:
    """A missing return counted as 0, which is more than any return of Pendulum; DoorKey's episodes are all as long."""
    for name in ("bc-pendulum-mixed", "dt-pendulum-mixed", "unimask-doorkey"):
        copy_agent(name, tmp_path / name)
    new, worse = copy_agent("dt-pendulum-mixed", tmp_path / "a"), copy_agent("unimask-doorkey", tmp_path / "b")
    (new / RESULTS).unlink()
    tree = json.loads((worse / RESULTS).read_text())
    for one in (tree["headline"], *tree["seeds"]):
        one.update(mean_return=1.0, return_interval=[1.0, 1.0])
    (worse / RESULTS).write_text(json.dumps(tree))
    for folder in (new, worse):
        for file in (CONFIG, RECIPE):
            (folder / file).write_text(json.dumps({**json.loads((folder / file).read_text()), "agent_id": folder.name}))
    zoo = read_zoo(tmp_path)
    text = index_page(zoo, {entry.slug: Media(frozenset(), None) for entry in zoo.entries})
    best_first = ["unimask-doorkey", "b", "dt-pendulum-mixed", "bc-pendulum-mixed", "a"]
    assert re.findall(r'<article class="agent" data-id="([^"]+)"', text) == best_first
    assert [entry.agent_id for entry in sorted(zoo.entries, key=by_merit)] == best_first


def test_the_best_episodes_of_a_dataset_include_the_one_they_begin_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page said that all of them are above its return."""
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "data"))
    assert CliRunner().invoke(app, ["data", "build", "doorkey/train-50"]).exit_code == 0
    recipe = copy_agent("unimask-doorkey", tmp_path / "zoo" / "unimask-doorkey") / RECIPE
    recipe.write_text(recipe.read_text().replace("doorkey/train-500-v0", "doorkey/train-50-v0"))
    returns = sorted(read_returns("zoo/doorkey/train-50-v0")[0])
    assert len(returns) == 50  # of 10 steps each
    assert f"<dd>5 episodes of {returns[-5]:.2f} or more</dd>" in datasets_page(read_zoo(tmp_path / "zoo"))


def test_returns_that_are_equal_up_to_rounding_have_no_histogram(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """numpy finds no bins between .1 + .2 and .3."""
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "data"))
    assert CliRunner().invoke(app, ["data", "build", "doorkey/train-50"]).exit_code == 0
    copy_agent("unimask-doorkey", tmp_path / "zoo" / "unimask-doorkey")
    (tmp_path / "data/zoo/doorkey/train-50-v0").rename(tmp_path / "data/zoo/doorkey/train-500-v0")
    with h5py.File(tmp_path / "data/zoo/doorkey/train-500-v0/data/main_data.hdf5", "a") as file:
        for number, episode in enumerate(file.values()):
            episode["rewards"][:] = 0.0
            episode["rewards"][0] = 0.3 if number % 2 else 0.1 + 0.2
    assert "Every episode returns 0.30." in datasets_page(read_zoo(tmp_path / "zoo"))


def test_the_site_of_one_agent_counts_it_in_the_singular(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "data"))
    copy_agent("bc-doorkey", tmp_path / "zoo" / "bc-doorkey")
    done = CliRunner().invoke(app, ["site", str(tmp_path / "out"), "--zoo", str(tmp_path / "zoo")])
    assert ": 1 agent, " in done.output, done.output
    index, data = ((tmp_path / "out" / f"{name}.html").read_text() for name in ("index", "datasets"))
    assert "<p>1 pretrained sequence agent for 1 environment. " in index
    assert "learned from: 1 dataset, Minari" in data
    assert "1 agent</a> learned from it" in data
