"""Plots as inline SVG of any width: shapes stretch, strokes and text keep their size.

Numbers on the axes are HTML beside the SVG, so that they stay readable on a phone. Colours are classes of `site.css`,
which has a light and a dark set.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from markupsafe import Markup

from agentzoo.site.markup import element, join, percent, short, ticks

SIZE = 1000  # of the SVG's own units, both ways
Point = tuple[float, float]


class Axis(NamedTuple):
    """The title and range of an axis."""

    title: str
    low: float
    high: float
    log: bool = False  # `low`, `high` and all plotted values are decimal logarithms

    def ticks(self, count: int = 5) -> list[tuple[float, str]]:
        """(share, text) of round numbers."""
        if self.log:
            powers = range(math.ceil(self.low - 1e-9), math.floor(self.high + 1e-9) + 1)
            return [(self.share(power), f"{10.0**power:g}") for power in powers]
        return [(self.share(tick), short(tick)) for tick in ticks(self.low, self.high, count)]

    @classmethod
    def over(cls, title: str, values: Iterable[float], room: float = 0.06, zero: bool = False) -> Axis:
        """An axis that holds all finite `values` and some room; with `zero`, also 0."""
        found = [value for value in values if math.isfinite(value)] or [0.0, 1.0]
        low, high = min(found), max(found)
        if zero:
            low, high = min(low, 0.0), max(high, 0.0)
        span = (high - low) or abs(high) or 1.0
        return cls(title, low if zero and low == 0.0 else low - room * span, high + room * span)

    def share(self, value: float) -> float:
        """A value's position: 0 at the low end, 1 at the high end."""
        return (value - self.low) / (self.high - self.low)


class Plot:
    """Lines, bands, dots and rules between two axes.

    Args:
        label: the text alternative, a sentence.
        zoomable: `site.js` allows zooming along x.
    """

    def __init__(self, label: str, x: Axis, y: Axis, zoomable: bool = False) -> None:
        self.label, self.x, self.y, self.zoomable = label, x, y, zoomable
        self.shapes: list[Markup] = []
        self.legend: list[Markup] = []

    def named(self, name: str | None, css: str) -> None:
        """Add a name to the legend."""
        if name is not None:
            key = element("span", class_=f"key {css}", aria_hidden="true")
            self.legend.append(element("li", key, name))

    def line(self, points: Sequence[Point], css: str, name: str | None = None) -> None:
        """A line through finite points."""
        self.named(name, css)
        self.shapes.append(element("polyline", points=self._path(points), class_=f"line {css}"))

    def band(self, low: Sequence[Point], high: Sequence[Point], css: str) -> None:
        """The area between two lines."""
        self.shapes.append(element("polygon", points=self._path([*low, *reversed(high)]), class_=f"band {css}"))

    def dots(self, points: Sequence[Point], css: str, name: str | None = None) -> None:
        """Dots. Each is a line of length 0 with round ends, which stays a circle when the plot is stretched."""
        self.named(name, css)
        data = Markup("".join(f"M{self._at(point)}h0" for point in points if self._finite(point)))
        if data:
            self.shapes.append(element("path", d=data, class_=f"dots {css}"))

    def whiskers(self, bars: Sequence[tuple[float, float, float]], css: str) -> None:
        """(x, low, high) intervals."""
        data = Markup("".join(f"M{self._at((x, low))}L{self._at((x, high))}" for x, low, high in bars))
        if data:
            self.shapes.append(element("path", d=data, class_=f"whisker {css}"))

    def bars(self, edges: Sequence[float], heights: Sequence[float], css: str, name: str | None = None) -> None:
        """A histogram: one bar between two edges."""
        self.named(name, css)
        for left, right, height in zip(edges, edges[1:], heights, strict=False):
            (x, top), (end, bottom) = self._xy((left, height)), self._xy((right, 0.0))
            size = {"width": f"{end - x:.2f}", "height": f"{bottom - top:.2f}"}
            self.shapes.append(element("rect", x=f"{x:.2f}", y=f"{top:.2f}", class_=f"bar {css}", **size))

    def rule(self, x: float, css: str, name: str | None = None) -> None:
        """A vertical line."""
        self.named(name, css)
        self.shapes.append(element("path", d=f"M{self._at((x, self.y.low))}V0", class_=f"rule {css}"))

    def html(self) -> Markup:
        """The picture with its axes and legend."""
        across = [element("span", said, style=f"left:{percent(share)}") for share, said in self.x.ticks()]
        up = self.y.ticks(4)
        levels = [element("span", said, style=f"bottom:{percent(share)}") for share, said in up]
        rules = [element("path", d=f"M0 {SIZE * (1 - share):.1f}H{SIZE}", class_="grid") for share, _ in up]
        drawing = element(
            "svg",
            element("g", *rules, class_="rules"),
            *self.shapes,
            viewBox=f"0 0 {SIZE} {SIZE}",
            preserveAspectRatio="none",
            aria_hidden="true",
        )
        zoom = {
            "data_zoom": True,
            "data_x": f"{self.x.low!r},{self.x.high!r}",
            "data_y": f"{self.y.low!r},{self.y.high!r}",
            "data_log": self.y.log,
        }
        legend = element("ul", *self.legend, class_="legend") if self.legend else Markup()
        box = element(
            "div",
            element("div", element("span", self.y.title), class_="y-title"),
            element("div", *levels, class_="y-ticks"),
            element("div", drawing, class_="area"),
            element("div", *across, class_="x-ticks"),
            element("div", self.x.title, class_="x-title"),
            class_="plot-box",
            role="img",
            aria_label=self.label,
        )
        return element("div", legend, box, class_="plot", **(zoom if self.zoomable else {}))

    def _finite(self, point: Point) -> bool:
        return all(map(math.isfinite, point))

    def _xy(self, point: Point) -> Point:
        """A point in units of the SVG, clipped far outside, since browsers draw absurd numbers badly."""
        x, y = SIZE * self.x.share(point[0]), SIZE * (1.0 - self.y.share(point[1]))
        return min(max(x, -SIZE), 2 * SIZE), min(max(y, -SIZE), 2 * SIZE)

    def _at(self, point: Point) -> str:
        x, y = self._xy(point)
        return f"{x:.1f} {y:.1f}"

    def _path(self, points: Sequence[Point]) -> Markup:
        """The `points` of a line or area: only numbers, so they are neither escaped nor shortened like text."""
        return Markup(" ".join("{:.1f},{:.1f}".format(*self._xy(point)) for point in points if self._finite(point)))


class Mark(NamedTuple):
    """A row of a forest plot: its name, the number as text, and its position. `kind` sets the colour."""

    label: str
    said: str
    value: float
    low: float | None
    high: float | None
    kind: str  # own, seed, method, other, published


def forest(marks: Sequence[Mark], axis: Axis, caption: str) -> Markup:
    """A forest plot: a table whose middle column shows each row's dot and interval on a common scale."""
    rows = []
    for mark in marks:
        parts = [element("i", class_="dot", style=f"left:{percent(axis.share(mark.value))}")]
        if mark.low is not None and mark.high is not None:
            left, right = axis.share(mark.low), axis.share(mark.high)
            place = f"left:{percent(left)};right:{percent(1 - right)}"
            parts.insert(0, element("i", class_="interval", style=place))
        track = element("div", *parts, class_="track", aria_hidden="true")
        cells = (element("th", mark.label, scope="row"), element("td", track, class_="picture"))
        rows.append(element("tr", *cells, element("td", mark.said, class_="number"), class_=mark.kind))
    scale = [element("span", said, style=f"left:{percent(share)}") for share, said in axis.ticks()]
    foot = element("div", *scale, class_="scale", aria_hidden="true")
    heads = (
        element("th", "agent", scope="col"),
        element("td", foot, class_="picture"),
        element("th", axis.title, scope="col"),
    )
    head = element("thead", element("tr", *heads))
    return element("table", element("caption", caption), head, element("tbody", join(rows)), class_="forest")
