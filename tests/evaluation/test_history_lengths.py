"""Return against context length."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from conftest import make_agent
from models.acting_cases import small_config
from PIL import Image
from typer.testing import CliRunner

from agentzoo.agent import Agent
from agentzoo.cli import app
from agentzoo.errors import ConfigError
from agentzoo.evaluation.history_lengths import (
    PICTURE,
    as_study,
    draw_histories,
    lengths_of,
    measure_histories,
    require_fitting,
    trained_lengths,
)
from agentzoo.evaluation.results import evaluate
from agentzoo.evaluation.study import read_study


def test_lengths_are_the_known_ones_up_to_the_whole_window() -> None:
    agent = make_agent()  # windows of four steps
    assert lengths_of(agent) == [1, 2, 4]
    assert lengths_of(agent, [3, 1, 3, 50]) == [1, 3]
    with pytest.raises(ConfigError, match=r"windows of 4 steps, so there is nothing to compare among 4, 50"):
        lengths_of(agent, [4, 50])
    with pytest.raises(ConfigError, match="a history has at least 1 step, got 0"):
        lengths_of(agent, [0, 2])


def test_a_length_that_no_agent_reads_is_refused(tmp_path: Path) -> None:
    agents = [make_agent(), make_agent(context=6)]
    require_fitting(agents, [1, 6])  # an empty cell for the first
    with pytest.raises(ConfigError, match="the longest window here has 6 steps, so nothing reads 7, 99"):
        require_fitting(agents, [99, 1, 7, 2])
    folder = agents[0].save_pretrained(tmp_path / "agent")
    words = ["research", "histories", str(folder), "-n", "1", "--out", str(tmp_path)]
    done = CliRunner().invoke(app, [*words, *("--steps", "1", "--steps", "2", "--steps", "5")])
    assert "the longest window here has 4 steps, so nothing reads 5" in str(done.exception)


def test_each_length_is_an_evaluation_of_its_own_and_the_agent_is_left_as_it_was() -> None:
    agent = make_agent("Pendulum-v1")  # whose returns depend on the actions
    agent.history = 3
    found = measure_histories(agent, [1, 4], episodes=2, seed=3)
    assert agent.history == 3
    for one, length in zip(found, (1, 4), strict=True):
        agent.history = length
        alone = evaluate(agent, episodes=2, seed=3)
        assert (one.history, one.returns, one.lengths) == (length, alone.returns, alone.lengths)
    assert found[0].returns != found[1].returns


def test_a_recurrent_agent_is_measured_on_windows_and_goes_on_from_its_memory() -> None:
    agent = make_agent(model=small_config("dm"))
    agent.acting = "recurrent"
    assert [one.acting for one in measure_histories(agent, [1, 2], episodes=1)] == ["window", "window"]
    assert (agent.acting, agent.history) == ("recurrent", None)


def test_a_length_that_is_too_long_leaves_the_agent_as_it_was() -> None:
    agent = make_agent()
    with pytest.raises(ConfigError, match="1 to 4 or None for all; got 5"):
        measure_histories(agent, [1, 5], episodes=1)
    assert agent.history is None


def colours(agents: dict[str, Any], path: Path) -> set[tuple[int, ...]]:
    picture = Image.open(draw_histories(agents, path)).convert("RGB")
    return {colour for count, colour in picture.getcolors(1 << 24) or [] if count > 50}  # type: ignore[misc]


def test_a_shorter_window_has_empty_cells_and_a_curve_of_its_own(tmp_path: Path) -> None:
    whole = measure_histories(make_agent(), [1, 2, 4], episodes=2)
    lower = [one.model_copy(update={"mean_return": 9.0, "return_interval": (8.0, 10.0)}) for one in whole[:2]]
    found = {"a": whole, "b": lower}
    study = as_study(found)
    assert study.columns == ("steps read", "a", "b")
    assert [row[0] for row in study.rows] == ["1", "2", "4"]
    assert [row[2] for row in study.rows] == ["9.00 [8.00, 10.00], 7.50 steps"] * 2 + [""]
    second = (0xC0, 0x56, 0x21)
    assert second in colours(found, tmp_path / "two.png")
    assert second not in colours({"a": whole}, tmp_path / "one.png")


def test_the_histories_command_measures_each_length_and_writes_a_study(tmp_path: Path) -> None:
    folder = make_agent().save_pretrained(tmp_path / "dt-test")
    words = ["research", "histories", str(folder), "--steps", "1", "--steps", "3", "-n", "2", "--out", str(tmp_path)]
    done = CliRunner().invoke(app, [*words, "--json"])
    assert done.exit_code == 0, done.output
    study = read_study(tmp_path)
    assert json.loads(done.stdout) == json.loads(study.to_json())
    assert [row[0] for row in study.rows] == ["1", "3"]
    agent = Agent.from_pretrained(folder)
    agent.history = 3
    assert study.rows[1][1].startswith(evaluate(agent, episodes=2).return_in_words())
    assert (tmp_path / PICTURE).is_file()


def test_trainings_of_one_id_are_points_of_one_curve_at_their_own_windows(tmp_path: Path) -> None:
    folders = [str(make_agent(context=length).save_pretrained(tmp_path / f"k{length}")) for length in (5, 2)]
    words = ["research", "histories", *folders, "--trained", "-n", "2", "--out", str(tmp_path / "out")]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    study = read_study(tmp_path / "out")
    assert study.columns == ("steps in a window", "dt-test")
    for row, folder in zip(study.rows, folders[::-1], strict=True):
        alone = evaluate(Agent.from_pretrained(folder), episodes=2)
        assert row[1].startswith(alone.return_in_words())
    assert [row[0] for row in study.rows] == ["2", "5"]
    assert "a training of its own" in study.note
    refused = CliRunner().invoke(app, [*words, "--steps", "1"])
    assert "omit --steps" in str(refused.exception)


def test_trainings_with_windows_of_one_length_are_no_curve() -> None:
    for lengths in ((4,), (2, 4, 4)):
        with pytest.raises(ConfigError, match=f"dt-test have windows of {', '.join(map(str, lengths))} steps"):
            trained_lengths([make_agent(context=length) for length in lengths])


def test_agents_that_cannot_be_compared_are_refused_before_anything_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr("agentzoo.evaluation.history_lengths.evaluate")
    here = str(make_agent().save_pretrained(tmp_path / "here"))
    there = str(make_agent("tests/CountingDict-v0").save_pretrained(tmp_path / "there"))
    many = [str(tmp_path / f"{number}") for number in range(20)]
    for path in many:
        Path(path).mkdir()
    for words, said in (
        ([here, there], r"act in different environments: tests/Counting-v0, tests/CountingDict-v0\. Measure each"),
        ([here, "--steps", "2"], "so there is nothing to compare among 2"),
        (many, r"room for 19 agents, got 20; name fewer\."),
    ):
        done = CliRunner().invoke(app, ["research", "histories", *words, "--out", str(tmp_path / "out")])
        assert isinstance(done.exception, ConfigError), done.output
        assert re.search(said, str(done.exception))
    assert not (tmp_path / "out").exists()
