"""Plot a masked agent's predictions and the true values: a row of grids, or curves."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from agentzoo.envs import DOORKEY
from agentzoo.envs.doorkey_rules import DOOR, GOAL, MOVES, SIDE, cell_of, is_wall
from agentzoo.masked.answer import Answer
from agentzoo.masked.question import Window
from agentzoo.plots import entitle, figure_class, require_picture, save_figure

ASKED, SHOWN, TRUTH = "#c05621", "#2b6cb0", "0.55"
KEY = "#b7791f"
LEAST = 0.05  # smallest probability that is printed in a cell
MAX_CURVES = 12  # at most this many numbers of an observation, and of an action, are plotted


def draw_answer(answer: Answer, truth: Window | None, path: Path, title: str = "") -> Path:
    """Plot the answer for one window, with hidden and shown steps marked.

    Args:
        answer: only its first window is drawn.
        truth: the true values, if known.
        path: .png, .pdf or .svg.

    Raises:
        ConfigError: a different suffix, or matplotlib is not installed.
    """
    require_picture(path)
    return save_figure(figure_of(answer, truth, title), path)


def figure_of(answer: Answer, truth: Window | None, title: str = "") -> Any:
    """The figure that `draw_answer` saves."""
    figure = figure_class()(dpi=110)
    draw = {DOORKEY: _draw_grids}.get(answer.agent.config.env or "", _draw_curves)
    draw(figure, answer, truth)
    entitle(figure, title or answer.agent.config.agent_id, 11)
    return figure


def _of_first(values: Any, window: Window) -> NDArray[Any]:
    """(K, ...) of the first window, whether or not the answer has a leading N."""
    array = np.asarray(values)
    return array[0] if array.shape[:2] == window.mask.actions.shape else array


def _draw_grids(figure: Any, answer: Answer, truth: Window | None) -> None:
    """One grid per step: predicted positions of the agent (blue) and the key (gold), and moves as arrows."""
    window = answer.window
    seen, acted = window.mask.observations[0], window.mask.actions[0]
    steps = len(seen)
    figure.set_size_inches(1.5 * steps, 2.9)
    agent, key = (_of_first(answer.observations[name], window) for name in ("agent", "key"))
    moves = _of_first(answer.actions, window)
    for t in range(steps):
        axes = figure.add_axes((0.01 + t * 0.98 / steps, 0.12, 0.94 / steps, 0.66))
        _grid(axes)
        known = window.observations[0, t]
        where = (known[: SIDE**2], known[SIDE**2 :]) if seen[t] else (agent[t], key[t])
        for index in range(SIDE**2):
            x, y = cell_of(index)
            here, key_here = (min(max(float(values[index]), 0.0), 1.0) for values in where)
            axes.add_patch(_square(x, y, 0.46, SHOWN, here**0.5))  # the root keeps small probabilities visible
            axes.plot(x + 0.27, y - 0.27, "o", color=KEY, markersize=5, alpha=key_here**0.5, markeredgewidth=0)
            if not seen[t] and here >= LEAST:
                ink = "white" if here > 0.3 else "0.2"
                axes.text(x - 0.4, y + 0.38, f"{100 * here:.0f}", fontsize=5.5, color=ink)
        chances = np.eye(len(MOVES))[window.actions[0, t]] if acted[t] else moves[t]
        for (dx, dy), chance in zip(MOVES, chances, strict=True):
            start = (2.5 + 0.3 * dx, 6.0 + 0.3 * dy)
            axes.annotate(
                "",
                (start[0] + 0.9 * dx, start[1] + 0.9 * dy),
                start,
                arrowprops={"arrowstyle": "-|>", "alpha": float(chance), "color": SHOWN if acted[t] else ASKED},
                annotation_clip=False,
            )
        if truth is not None:
            x, y = cell_of(int(truth.observations[0, t, : SIDE**2].argmax()))
            axes.plot(x, y, "x", color="black", markersize=6)
        axes.set_title(f"{t}{' shown' if seen[t] else ''}", fontsize=8, color=SHOWN if seen[t] else ASKED)
    note = "blue: agent (in %), gold: key, arrows: move (blue shown, orange predicted)" + (
        ", x: the agent's true cell" if truth else ""
    )
    figure.text(0.5, 0.02, note, ha="center", fontsize=8, color="0.3")


def _grid(axes: Any) -> None:
    axes.set_xlim(0.5, SIDE + 0.5)
    axes.set_ylim(SIDE + 3.2, 0.5)  # room for the arrows
    axes.set_aspect("equal")
    axes.axis("off")
    for x in range(1, SIDE + 1):
        for y in range(1, SIDE + 1):
            color = "0.35" if is_wall((x, y)) else {DOOR: "#e8d5bd", GOAL: "#d8ecd8"}.get((x, y), "0.94")
            axes.add_patch(_square(x, y, 0.5, color, 1.0))


def _square(x: int, y: int, half: float, color: str, alpha: float) -> Any:
    from matplotlib.patches import Rectangle

    return Rectangle((x - half, y - half), 2 * half, 2 * half, color=color, alpha=min(1.0, alpha), linewidth=0)


class _Curve(NamedTuple):
    """One number of every step, (K,) each: predicted, as the question has it, and true; `shown` says where it is."""

    title: str
    predicted: NDArray[Any]
    given: NDArray[Any]
    shown: NDArray[np.bool_]
    real: NDArray[Any] | None


def _curves(titles: list[str], predicted: Any, given: Any, shown: Any, real: Any | None) -> list[_Curve]:
    """A curve for each of the first `MAX_CURVES` columns of (K, S) numbers; `titles` has S."""
    return [
        _Curve(title, predicted[:, i], given[:, i], shown, None if real is None else real[:, i])
        for i, title in enumerate(titles[:MAX_CURVES])
    ]


def _curves_of(answer: Answer, truth: Window | None) -> tuple[list[_Curve], str]:
    """The observation's numbers, then the action's: its numbers, or the probability of each choice; and in words how
    many are left out, if any."""
    window, io = answer.window, answer.agent.config.io
    steps = window.mask.actions.shape[1]
    named = {"obs": answer.observations} if io.observation.keys is None else answer.observations
    parts = {name: _of_first(named[name], window).reshape(steps, -1) for name in io.observation.keys or named}
    titles = [f"{name} {i}" for name, part in parts.items() for i in range(part.shape[1])]
    expected = np.concatenate([*parts.values()], axis=1)
    acted = _of_first(answer.actions, window).reshape(steps, -1)
    seen, done = window.mask.observations[0], window.mask.actions[0]
    real = None if truth is None else truth.observations[0]
    found = _curves(titles, expected, window.observations[0], seen, real)
    given, real = window.actions[0], None if truth is None else truth.actions[0]
    choices = np.arange(io.action.size)
    acts, what = [f"action {i}" for i in choices], "numbers of an action"
    if io.action.kind == "discrete":
        acts, what = [f"probability of action {io.action.start + i}" for i in choices], "choices"
        given, real = given[:, None] == choices, None if real is None else real[:, None] == choices
    counts = ((len(titles), "numbers of an observation"), (len(acts), what))
    cut = [f"{MAX_CURVES} of {count} {words}" for count, words in counts if count > MAX_CURVES]
    return found + _curves(acts, acted, given, done, real), " and ".join(cut)


def _draw_curves(figure: Any, answer: Answer, truth: Window | None) -> None:
    """One small plot per number of observation and action over the window's steps."""
    found, cut = _curves_of(answer, truth)
    columns = 4
    rows = -(-len(found) // columns)
    height = 1.7 * rows + 0.8
    figure.set_size_inches(11, height)
    for place, one in enumerate(found):
        axes = figure.add_subplot(rows, columns, place + 1)
        t = np.arange(len(one.shown))
        if one.real is not None:
            axes.plot(t, one.real, color=TRUTH, linewidth=1, label="true")
        axes.plot(t[~one.shown], one.predicted[~one.shown], "o", color=ASKED, markersize=3.5, label="predicted")
        axes.plot(t[one.shown], one.given[one.shown], "s", color=SHOWN, markersize=3.5, label="shown")
        axes.set_title(one.title, fontsize=8)
        axes.tick_params(labelsize=7)
        axes.spines[["top", "right"]].set_visible(False)
    handles, labels = figure.axes[0].get_legend_handles_labels()
    label = f"step of the window; drawn are {cut}" if cut else "step of the window"
    figure.supxlabel(label, fontsize=8, y=0.33 / height)  # in inches: the legend is below, plots above
    figure.legend(handles, labels, loc="lower center", ncols=3, frameon=False, fontsize=8)
    figure.tight_layout(rect=(0, 0.5 / height, 1, 1 - 0.25 / height))
