"""`leaderboard.html`: a table of methods by tasks, published numbers in another colour, and statistics over tasks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from markupsafe import Markup

from agentzoo.evaluation.method_comparison import Methods
from agentzoo.site.curves import strokes
from agentzoo.site.numbers import TITLES, Quantity, axis_of, short_source
from agentzoo.site.plot import Axis, Mark, Plot, forest
from agentzoo.site.render import NO_PARTS, Parts, page
from agentzoo.site.standings import Standing, Task, said_method

PAGE, CSV, JSON = "leaderboard.html", "leaderboard.csv", "leaderboard.json"


class Group(NamedTuple):
    """All methods of a task as one picture."""

    task: Task
    picture: Markup


class Cell(NamedTuple):
    """One method on one task. `heat`: 0 to 1, the score / 100, else the place between the task's worst and best."""

    standing: Standing
    value: str
    interval: str
    seeds: str
    heat: float


class Statistics(NamedTuple):
    """Plots and tables of a comparison."""

    tasks: tuple[str, ...]
    means: Markup
    profile: Markup
    methods: tuple[str, ...]
    improvement: tuple[tuple[str, tuple[str, ...]], ...]
    single: tuple[str, ...]  # methods with one run a task


def leaderboard_page(found: Sequence[Standing], comparison: Methods | None, parts: Parts = NO_PARTS) -> str:
    """The page."""
    tasks = list(dict.fromkeys(one.task for one in found))
    methods = Counter(one.task for one in found)
    tasks.sort(key=lambda task: -methods[task])  # a narrow screen shows the first columns
    return page(
        "leaderboard.html.j2",
        "Leaderboard · agentzoo",
        PAGE,
        parts=parts,
        tasks=tasks,
        matrix=_matrix(found, tasks),
        groups=[Group(task, _group([one for one in found if one.task == task], task)) for task in tasks],
        statistics=None if comparison is None else _statistics(comparison),
        files=(CSV, JSON),
        titles=TITLES,
    )


def _matrix(found: Sequence[Standing], tasks: Sequence[Task]) -> list[tuple[str, list[list[Cell]]]]:
    """(method, its cells by task): measured methods by name, then those that only papers have."""
    methods = sorted({one.method for one in found}, key=lambda name: _rank(found, name))
    return [
        (
            said_method(name),
            [[_cell(one, found) for one in found if (one.method, one.task) == (name, task)] for task in tasks],
        )
        for name in methods
    ]


def _rank(found: Sequence[Standing], name: str) -> tuple[bool, str]:
    """Measured methods by name, papers' alone last."""
    return all(one.found is None for one in found if one.method == name), name


def _cell(one: Standing, found: Sequence[Standing]) -> Cell:
    if one.found is None:
        return Cell(one, "", "", "", 0.0)
    said, _, interval = one.found.said(one.task.unit).partition(" ")
    values = [other.found.value for other in found if other.task == one.task and other.found is not None]
    low, high = (0.0, 100.0) if one.task.unit == "score" else (min(values), max(values))
    heat = (one.found.value - low) / (high - low) if high > low else 0.5
    heat = min(max(heat, 0.0), 1.0)
    seeds = f"{len(one.seeds)} seeds" if len(one.seeds) > 1 else "one seed"
    return Cell(
        one, said, interval.strip("[]").replace(", ", " – "), seeds, 1 - heat if one.task.unit == "steps" else heat
    )


def _group(found: Sequence[Standing], task: Task) -> Markup:
    marks = []
    for one in found:
        name = said_method(one.method)
        if one.found is not None:
            seeds = f", {len(one.seeds)} seeds" if len(one.seeds) > 1 else ", one seed"
            kind = "own" if one.entry is not None else "method"
            marks.append(Mark(f"{name}{seeds}", one.found.said(task.unit), *one.found, kind))
        if one.published is not None:
            paper = one.published
            said = f"{paper.score:g}" + ("" if paper.spread is None else f" ± {paper.spread:g}")
            label = f"{name} in {short_source(paper.source)}"
            marks.append(Mark(label, said, *Quantity.printed(paper), "published"))
    return forest(marks, axis_of(marks, task.unit), f"{task.env}, {task.dataset}: {TITLES[task.unit]}")


def _statistics(found: Methods) -> Statistics:
    marks = [
        Mark(
            f"{said_method(name)}, {found.runs[name]} runs",
            Quantity(*one).said("score"),
            *one,
            "own",
        )
        for name, one in found.means.items()
    ]
    means = forest(
        marks, axis_of(marks, "score"), f"Interquartile mean of the normalized score over {', '.join(found.tasks)}"
    )
    best = next(iter(found.means))
    plot = Plot(
        f"Performance profiles of {len(found.profiles)} methods: the share of runs above each score; "
        f"{said_method(best)} is highest on average.",
        Axis("normalized score", float(found.thresholds[0]), float(found.thresholds[-1])),
        Axis("share of runs above it", 0.0, 1.03),
    )
    for (name, profile), css in zip(found.profiles.items(), strokes(), strict=False):
        levels = profile.thresholds.tolist()
        band = [list(zip(levels, side.tolist(), strict=True)) for side in (profile.low, profile.high)]
        plot.band(band[0], band[1], css)
        plot.line(list(zip(levels, profile.share.tolist(), strict=True)), css, said_method(name))
    methods = tuple(found.means)
    improvement = tuple(
        (said_method(first), tuple(_likely(found, first, second) for second in methods)) for first in methods
    )
    single = tuple(map(said_method, found.single))
    return Statistics(found.tasks, means, plot.html(), tuple(map(said_method, methods)), improvement, single)


def _likely(found: Methods, first: str, second: str) -> str:
    one = found.improvement.get((first, second))
    return "" if one is None else f"{one.value:.2f}"
