"""Asked against achieved return."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from conftest import make_agent
from PIL import Image
from typer.testing import CliRunner

from agentzoo.cli import app, main
from agentzoo.errors import ConfigError
from agentzoo.evaluation.results import DatasetFacts, evaluate
from agentzoo.evaluation.study import read_study
from agentzoo.evaluation.sweep import by_title, even_targets, plot_sweeps, rank_correlation, sweep
from agentzoo.hub.staging_measurements import sweep_targets


def test_targets_are_evenly_spaced_up_to_the_highest() -> None:
    assert even_targets(1600.0, 8) == [200, 400, 600, 800, 1000, 1200, 1400, 1600]


def test_negative_returns_are_asked_for_from_what_the_data_brings() -> None:
    assert even_targets(-150.0, 3, lowest=-300.0) == [-250.0, -200.0, -150.0]
    with pytest.raises(ConfigError, match="must be above 0; set a lower --from"):
        even_targets(-150.0)
    facts = DatasetFacts(dataset="a/b-v0", steps=1, episodes=1, mean_return=-1200.0, best_return=-100.0, made_by="")
    assert sweep_targets(-400.0, facts) == [-1100.0, -1000.0, -900.0, -800.0, -700.0, -600.0, -500.0, -400.0]
    assert sweep_targets(-1600.0, facts)[-2:] == [-1800.0, -1600.0]
    assert len(set(sweep_targets(0.0, facts.model_copy(update={"mean_return": 2.0})))) == 8
    assert sweep_targets(800.0, facts)[:2] == [100.0, 200.0]


def test_rank_correlation_by_hand() -> None:
    one = evaluate(make_agent(), episodes=2)

    def reached(*returns: float) -> list[object]:
        pairs = enumerate(returns)
        return [one.model_copy(update={"target_return": float(i), "mean_return": r}) for i, r in pairs]

    assert rank_correlation(reached(1, 2, 30, 31)) == 1.0  # type: ignore[arg-type]
    assert rank_correlation(reached(4, 3, 2, 1)) == -1.0  # type: ignore[arg-type]
    assert rank_correlation(reached(1, 2, 4, 3)) == pytest.approx(0.8)  # type: ignore[arg-type]  # 1 - 6*2/(4*15)
    with pytest.raises(ConfigError, match="at least 3 targets"):
        rank_correlation(reached(1, 2))  # type: ignore[arg-type]
    assert rank_correlation(reached(7, 7, 7)) is None  # type: ignore[arg-type]
    one_target = [one.model_copy(update={"mean_return": r}) for r in (1.0, 2.0, 3.0)]
    assert rank_correlation(one_target) is None


def test_agents_of_other_options_are_not_compared() -> None:
    usual, heavy = make_agent("Pendulum-v1"), make_agent("Pendulum-v1", env_options={"g": 20.0})
    assert by_title({"a": usual, "b": usual}) == {"a": usual, "b": usual}
    with pytest.raises(ConfigError, match=r"different environments: Pendulum-v1, Pendulum-v1 with g=20\.0\."):
        by_title({"a": usual, "b": heavy})


def test_one_episode_has_no_interval_and_a_plot_no_error_below_0(tmp_path: Path) -> None:
    one = evaluate(make_agent(), episodes=1)
    assert one.return_in_words() == f"{one.mean_return:.2f}"
    high = np.nextafter(one.mean_return, np.inf)
    rounded = [one.model_copy(update={"return_interval": (high, one.mean_return)})] * 2
    plot_sweeps({"dt": rounded}, tmp_path / "x.svg")
    assert "<!-- achieved return (1 episode) -->" in (tmp_path / "x.svg").read_text()


def test_a_sweep_asks_for_each_target_and_leaves_the_agent_as_it_was() -> None:
    agent = make_agent()
    found = sweep(agent, [5.0, 20.0], episodes=2, seed=3)
    assert [(one.target_return, one.seed) for one in found] == [(5.0, 3), (20.0, 3)]
    assert agent.target_return == 50.0
    assert [one.episodes for one in found] == [2, 2]


def test_the_plot_has_a_curve_for_each_agent(tmp_path: Path) -> None:
    found = sweep(make_agent(), [5.0, 10.0, 20.0], episodes=2)
    lower = [one.model_copy(update={"mean_return": 9.0, "return_interval": (8.0, 10.0)}) for one in found]
    pictures = []
    for i, sweeps in enumerate(({"a": found}, {"a": found, "b": lower})):
        plot_sweeps(sweeps, tmp_path / f"{i}.png", best_in_data=15.0)
        pictures.append(np.asarray(Image.open(tmp_path / f"{i}.png").convert("RGB")).reshape(-1, 3))
    second = np.array([0xC0, 0x56, 0x21])
    assert not (pictures[0] == second).all(1).any()
    assert (pictures[1] == second).all(1).sum() > 50


def test_the_sweep_command_prints_json_and_writes_a_study_and_a_plot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = make_agent().save_pretrained(tmp_path / "dt-test")
    words = ["research", "sweep", str(folder), "--up-to", "30", "--targets", "3", "-n", "2", "--json"]
    monkeypatch.setattr(
        sys, "argv", ["agentzoo", *words, "--plot", str(tmp_path / "s.png"), "--out", str(tmp_path / "out")]
    )
    with pytest.raises(SystemExit) as left:
        main()
    assert left.value.code == 0
    found = json.loads(capsys.readouterr().out)
    assert [one["target_return"] for one in found] == [10.0, 20.0, 30.0]
    study = read_study(tmp_path / "out")
    low, high = found[2]["return_interval"]
    assert study.rows[2] == ("30", f"{found[2]['mean_return']:.2f} [{low:.2f}, {high:.2f}]")  # no rounding to whole
    assert (tmp_path / "out" / str(study.picture)).exists()
    assert (tmp_path / "s.png").exists()


def test_a_sweep_that_cannot_be_shown_is_refused_before_anything_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr("agentzoo.evaluation.sweep.evaluate")
    here = str(make_agent().save_pretrained(tmp_path / "here"))
    there = str(make_agent("tests/CountingDict-v0").save_pretrained(tmp_path / "there"))
    out = ["--out", str(tmp_path / "out")]
    many = [str(tmp_path / f"{number}") for number in range(20)]
    for path in many:
        Path(path).mkdir()
    wrong = (
        ([*many, *out], r"room for 19 agents, got 20; name fewer, or omit --out"),
        ([here, "--best-in-data", "9"], r"--best-in-data draws a line in the plot; add --plot or --out"),
        ([here, there], r"act in different environments: tests/Counting-v0, tests/CountingDict-v0\. Measure each"),
    )
    for words, said in wrong:
        done = CliRunner().invoke(app, ["research", "sweep", *words, "--up-to", "30"])
        assert isinstance(done.exception, ConfigError), done.output
        assert re.search(said, str(done.exception))
    done = CliRunner().invoke(app, ["research", "sweep", here, "--up-to", "30", "--targets", "101", *out])
    assert done.exit_code == 2  # of click, for an option out of range
    assert not (tmp_path / "out").exists()


def test_agents_of_one_id_are_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("a", "b"):
        make_agent().save_pretrained(Path("runs") / name)
    runs = ["runs/a", "runs/b", "runs/a"]
    words = ["research", "sweep", *runs, "--up-to", "30", "--targets", "3", "-n", "2", "--out", "out"]
    done = CliRunner().invoke(app, words, env={"COLUMNS": "200"})
    assert done.exit_code == 0, done.output
    assert read_study(Path("out")).columns == ("target", "runs/a", "runs/b")  # one named twice is one
    assert "runs/b: the same return at every target" in done.output
