"""`agentzoo research infer` draws an answer about a window of a real episode."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from conftest import make_agent
from typer.testing import CliRunner

from agentzoo import cli
from agentzoo.errors import ConfigError
from agentzoo.evaluation.answer_picture import figure_of
from agentzoo.evaluation.played_window import run_window
from agentzoo.masked.answer import infer
from agentzoo.models.unimask import UniMaskConfig
from masked.cases import SIZES, doorkey_agent

# -- the command -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("task", ["past", "waypoint"])
def test_the_command_draws_an_answer(task: str, tmp_path: Path) -> None:
    from PIL import Image

    folder = doorkey_agent().save_pretrained(tmp_path / "agent")
    out = tmp_path / "answer.png"
    done = CliRunner().invoke(cli.app, ["research", "infer", str(folder), "--task", task, "--out", str(out)])
    assert done.exit_code == 0, done.output
    picture = np.asarray(Image.open(out).convert("RGB"))
    assert picture.shape[1] > 1000
    assert len(np.unique(picture.reshape(-1, 3), axis=0)) > 20
    done = CliRunner().invoke(cli.app, ["research", "infer", str(folder), "--json", "--step", "3", "--out", str(out)])
    import json

    tree = json.loads(done.stdout)
    assert np.asarray(tree["observations"]["agent"]).shape == (1, 10, 16)
    assert tree["shown"]["observations"][0] == [False] * 3 + [True] * 7


def test_a_continuous_agent_is_drawn_as_curves(tmp_path: Path) -> None:
    agent = make_agent(model=UniMaskConfig(**SIZES))
    folder = agent.save_pretrained(tmp_path / "agent")
    words = ["research", "infer", str(folder), "--task", "future", "--out", str(tmp_path / "a.svg")]
    done = CliRunner().invoke(cli.app, words)
    assert done.exit_code == 0, done.output
    drawn = (tmp_path / "a.svg").read_text()
    assert all(f"<!-- {label} -->" in drawn for label in ("obs 0", "action 0", "step of the window"))


def test_a_picture_names_the_keys_of_a_dict_and_says_how_many_numbers_it_leaves_out() -> None:
    agent = make_agent("tests/CountingDict-v0", model=UniMaskConfig(**SIZES))
    window = run_window(agent, seed=0, start=0)
    figure = figure_of(infer(agent, window=window, task="future", step=1), window)
    titles = [axes.get_title() for axes in figure.axes]
    assert titles == ["a 0", "a 1", "a 2", "b 0", "b 1", "b 2", "action 0", "action 1"]
    assert figure._supxlabel.get_text() == "step of the window"
    agent = make_agent("HalfCheetah-v5", model=UniMaskConfig(**SIZES))  # 17 numbers
    window = run_window(agent, seed=0, start=0)
    figure = figure_of(infer(agent, window=window, task="future", step=1), window)
    assert [axes.get_title() for axes in figure.axes][10:13] == ["obs 10", "obs 11", "action 0"]
    assert figure._supxlabel.get_text() == "step of the window; drawn are 12 of 17 numbers of an observation"


def test_choices_are_drawn_as_probabilities() -> None:
    """They are what bc, rc, goal and waypoint ask for."""
    agent = make_agent("tests/CountingDiscrete-v0", UniMaskConfig(**SIZES))  # actions 2 to 5
    window = run_window(agent, seed=0, start=0)
    answer = infer(agent, window=window, task="bc", step=2)
    drawn = {axes.get_title(): axes.lines for axes in figure_of(answer, window).axes}
    assert list(drawn)[3:] == [f"probability of action {choice}" for choice in (2, 3, 4, 5)]
    for choice in range(4):
        true, predicted, shown = drawn[f"probability of action {choice + 2}"]
        np.testing.assert_array_equal(predicted.get_xdata(), [2, 3])
        np.testing.assert_array_equal(predicted.get_ydata(), answer.actions[0, 2:, choice])
        np.testing.assert_array_equal(true.get_ydata(), window.actions[0] == choice)
        np.testing.assert_array_equal(shown.get_ydata(), window.actions[0, :2] == choice)


@pytest.mark.parametrize("sizes", [1, 6])
def test_labels_of_curves_do_not_overlap(sizes: int) -> None:
    """The legend, the label of the x-axis, the plots and the title have rooms of their own, in pixels from below."""
    agent = make_agent("Pendulum-v1" if sizes == 1 else "Hopper-v5", model=UniMaskConfig(**SIZES))
    window = run_window(agent, seed=0, start=0)
    figure = figure_of(infer(agent, window=window, task="future", step=1), window, "a title")
    figure.canvas.draw()
    plots = [axes.get_tightbbox() for axes in figure.axes]
    legend, label = figure.legends[0].get_window_extent(), figure._supxlabel.get_window_extent()
    assert legend.y1 <= label.y0
    assert label.y1 <= min(box.y0 for box in plots)
    assert max(box.y1 for box in plots) <= figure._suptitle.get_window_extent().y0


def test_a_window_of_a_real_episode() -> None:
    agent = make_agent(model=UniMaskConfig(**SIZES))
    window = run_window(agent, seed=0, start=2)
    assert window.observations[0, :, 0].tolist() == [2, 3, 4, 5]  # the environment says its step
    assert window.timestep == 2
    assert window.returns.tolist() == [50.0 - 1.0 - 2.0]
    with pytest.raises(ConfigError, match="a window from step 50 on needs two"):
        run_window(agent, seed=0, start=50)
    agent.config = agent.config.model_copy(update={"rewards": "delayed"})  # then nothing is counted before the end
    assert run_window(agent, seed=0, start=2).returns.tolist() == [50.0]
