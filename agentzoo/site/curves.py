"""Plots of one agent: achieved against asked return, and training curves."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from typing import NamedTuple

from markupsafe import Markup

from agentzoo.hub.sweeps import sweep_facts
from agentzoo.site.entries import Entry
from agentzoo.site.markup import short
from agentzoo.site.plot import Axis, Plot
from agentzoo.text import amount, amounts, counted
from agentzoo.training.log import COLUMNS

EVALUATED = ("eval_return", "eval_score")
MAX_POINTS = 600  # of a line
WIDE = 30.0  # ratio of the largest to the smallest value from which an axis is logarithmic
MAX_ROWS = 60  # of the log's table
COLORS = 8


def strokes() -> Iterator[str]:
    """The CSS classes of the lines of a plot, without end: eight colors, then the same in dashes."""
    for i in count():
        yield f"c{i % COLORS}{' dashed' if i // COLORS % 2 else ''}"


class Asked(NamedTuple):
    """Asked and achieved return, as picture and table."""

    plot: Markup
    caption: str
    scored: bool
    rows: tuple[tuple[str, ...], ...]


class LogPlot(NamedTuple):
    """A picture of the training log."""

    title: str
    plot: Markup
    caption: str


class Table(NamedTuple):
    """Rows of the log."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def asked_and_achieved(entry: Entry) -> Asked | None:
    """The sweep over target returns; None if there is none."""
    if entry.results is None or not entry.results.targets:
        return None
    targets = sorted(entry.results.targets, key=lambda one: one.target_return)
    facts = sweep_facts(targets)
    best = entry.results.dataset.best_return
    reached = [value for one in targets for value in (one.mean_return, *one.return_interval)]
    x = Axis.over("asked return", [*(one.target_return for one in targets), min(best, facts.asked[1])], zero=True)
    y = Axis.over("achieved return", [*reached, min(facts.asked[1], max(reached) * 1.15)], zero=True)
    words = (
        f"For targets of {amounts(facts.asked, ',')} it achieved {amounts(facts.achieved, ',')} on average, "
        f"{counted(targets[0].episodes, 'episode')} a target."
    )
    if facts.flat:
        words += " It hardly reacts to its target."
    elif facts.gains_nothing:
        words += " Higher targets show no gain over the lowest."
    elif facts.saturates_at is not None:
        words += f" Targets above {amount(facts.saturates_at, ',')} show no further gain."
    plot = Plot(words, x, y)
    low, high = max(x.low, y.low), min(x.high, y.high)
    plot.line([(low, low), (high, high)], "guide", "achieved = target")
    if best < x.high:
        plot.rule(best, "data", "best episode of the data")
    plot.whiskers([(one.target_return, *one.return_interval) for one in targets], "own")
    plot.line([(one.target_return, one.mean_return) for one in targets], "own")
    plot.dots([(one.target_return, one.mean_return) for one in targets], "own", "mean with 95 % interval")
    scored = all(one.score is not None for one in targets)
    rows = tuple(
        (
            amount(one.target_return, ","),
            one.return_in_words(),
            *((one.score_in_words(),) if scored else ()),
            str(one.episodes),
        )
        for one in targets
    )
    return Asked(plot.html(), words, scored, rows)


def training_curves(entry: Entry) -> list[LogPlot]:
    """The loss and its terms, the evaluations during training and the gates, if the log has them."""
    log = entry.log
    if len(log) < 2:
        return []
    parts = [name for name in log[0] if name not in (*COLUMNS, *EVALUATED)]
    gates = [name for name in parts if name.startswith("gate_")]
    errors = [name for name in parts if name.startswith("error_")]  # on few windows, between updates
    terms = [name for name in parts if name not in (*gates, *errors)]
    found = [
        _curve("Loss", "loss", {name: _points(log, name) for name in ("loss", *(terms if len(terms) > 1 else ()))})
    ]
    name = "eval_score" if any(row.get("eval_score") for row in log) else "eval_return"
    if scores := _points(log, name):
        said = "score" if name == "eval_score" else "return"
        words = f"Short evaluations during training, on episode seeds of their own: {len(scores)} of them."
        found.append(_curve("Evaluations", said, {said: scores}, words, dots=True))
    if errors:
        series = {name.removeprefix("error_").replace("_", " "): _points(log, name) for name in errors}
        found.append(_curve("Errors on fixed windows", "error", series))
    if gates:
        found.append(_curve("Gates", "gate", {gate: _points(log, gate) for gate in gates}))
    return [one for one in found if one is not None]


def _points(log: Sequence[Mapping[str, str]], name: str) -> list[tuple[float, float]]:
    found = [(float(row["step"]), float(row[name])) for row in log if row.get(name)]
    finite = [point for point in found if math.isfinite(point[1]) and abs(point[1]) < 1e30]
    skip = math.ceil(len(finite) / MAX_POINTS)
    return finite[::skip] if skip > 1 else finite


def _curve(
    title: str, unit: str, series: Mapping[str, list[tuple[float, float]]], caption: str = "", dots: bool = False
) -> LogPlot | None:
    """A plot of several lines over updates; None without points."""
    drawn = {name: points for name, points in series.items() if points}
    if not drawn:
        return None
    values = [value for points in drawn.values() for _, value in points]
    last = max(step for points in drawn.values() for step, _ in points) or 1.0
    x = Axis("updates", 0.0, last * (1.03 if dots else 1.0))
    ends = ", ".join(f"{name} {points[0][1]:.3g} to {points[-1][1]:.3g}" for name, points in drawn.items())
    log = not dots and min(values) > 0.0 and max(values) > WIDE * min(values)
    y = Axis.over(f"{unit}, logarithmic", map(math.log10, values))._replace(log=True) if log else None
    plot = Plot(
        f"{title} over {last:,.0f} updates: {ends}.", x, y or Axis.over(unit, values, zero=True), zoomable=not dots
    )
    for (name, points), css in zip(drawn.items(), strokes(), strict=False):
        key = name if len(drawn) > 1 else None
        plot.line([(step, math.log10(value)) for step, value in points] if log else points, css, key)
        if dots:
            plot.dots(points, css)
    return LogPlot(title, plot.html(), caption or f"From first to last: {ends}.")


def log_table(entry: Entry) -> Table | None:
    """Rows of the log: all with an evaluation, and some of the others, evenly spaced."""
    if not entry.log:
        return None
    columns = tuple(name for name in entry.log[0] if any(row.get(name) for row in entry.log))
    skip = math.ceil(len(entry.log) / MAX_ROWS)
    chosen = [row for i, row in enumerate(entry.log) if (i + 1) % skip == 0 or any(row.get(name) for name in EVALUATED)]
    return Table(
        columns, tuple(tuple(short(float(row[name])) if row[name] else "" for name in columns) for row in chosen)
    )
