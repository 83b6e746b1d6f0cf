"""HTML and SVG from Python: one function per element, which escapes its contents."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable

from markupsafe import Markup, escape

from agentzoo.errors import MAX_MESSAGE, printable

VOID = ("img", "line", "rect", "path", "polyline", "polygon", "circle", "source")


def element(name: str, *inside: object, **attributes: object) -> Markup:
    """`<name attributes>inside</name>`. Text is made printable and escaped, `Markup` is used as it is.

    Attributes have Python names: `class_`, `aria_label`. None leaves an attribute out, True gives it no value.
    """
    parts = [f"<{name}"]
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        plain = key.rstrip("_").replace("_", "-")
        parts.append(f" {plain}" if value is True else f' {plain}="{text(value)}"')
    end = "/>" if name in VOID and not inside else f">{join(inside)}</{name}>"
    return Markup("".join(parts) + end)


def text(value: object) -> Markup:
    """Escape text; unprintable characters become Python escapes."""
    return value if isinstance(value, Markup) else escape(printable(value, MAX_MESSAGE))


def join(parts: Iterable[object]) -> Markup:
    """Elements and text in a row."""
    return Markup("".join(text(one) for one in parts))


def spans(value: str) -> Markup:
    """A sentence with commands between backticks."""
    parts = value.split("`")
    return join(element("code", part) if i % 2 and i < len(parts) - 1 else part for i, part in enumerate(parts))


def lines(value: str) -> Markup:
    """Text of several lines, as a `pre` shows it."""
    return Markup("\n").join(text(line) for line in value.splitlines())


def breakable(value: object) -> Markup:
    """Text that may break after `_` and `/`, for long names in narrow columns."""
    return Markup(re.sub("(?<=[_/])(?=.)", "<wbr>", str(text(value))))


def percent(share: float) -> str:
    """A position in percent, for `style`; 0 to 1 is inside, other values are clipped to the edge."""
    return f"{100 * min(max(share, 0.0), 1.0):.2f}%"


def short(value: float) -> str:
    """A number on an axis: `12k`, `0.05`, `1,500`."""
    if not math.isfinite(value):
        return "–"
    if value and abs(value) < 0.01:
        return f"{value:.1g}"
    if abs(value) >= 10_000 and value % 500 == 0:
        return f"{value / 1000:g}k"
    return f"{value:,.6g}" if abs(value) < 1e15 else f"{value:.1e}"


def ticks(low: float, high: float, count: int = 5) -> list[float]:
    """About `count` round numbers between two."""
    span = high - low
    if not (span > 0.0 and math.isfinite(span)):
        return [low]
    raw = span / max(count, 1)
    size = 10.0 ** math.floor(math.log10(raw))
    step = next(size * factor for factor in (1, 2, 2.5, 5, 10) if size * factor >= raw * 0.999)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(i * step, 12) + 0.0 for i in range(first, last + 1)]
