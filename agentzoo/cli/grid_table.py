"""The table of a grid's runs, live or afterwards."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from agentzoo.cli.console import listing, plain
from agentzoo.text import amount

if TYPE_CHECKING:
    from agentzoo.training.grid.status import RunStatus

STYLES = {"running": "cyan", "evaluating": "cyan", "done": "green", "failed": "red"}
BUSY = ("running", "evaluating", "stopped")
COLUMNS = ("run", "state", "update", "updates/s", "loss", "last result", "time left")
SPARED = ("loss", "updates/s", "last result")  # columns dropped in this order in a narrow terminal
GAP = 2  # spaces between columns
AROUND = 4  # terminal lines besides the rows: title, header, the count of hidden rows, the cursor
ORDER = (
    "evaluating",
    "running",
    "failed",
    "stopped",
    "waiting",
    "done",
)  # which rows are shown first in a low terminal


def status_table(found: Sequence[RunStatus], title: str, columns: Sequence[str] = COLUMNS) -> Table:
    """One row per run: its state, progress and speed."""
    table = listing(*columns)
    table.title, table.title_justify = plain(title), "left"
    for one in found:
        cells = _cells(one)
        table.add_row(*(cells[name] for name in columns))
    return table


def live_table(found: Sequence[RunStatus], title: str, width: int, height: int) -> Table:
    """`status_table` with as many columns and rows as fit a terminal of this size."""
    states: Counter[str] = Counter(one.state for one in found)
    summary = ", ".join(f"{states[state]} {state}" for state in ORDER if states[state])
    room = max(height - AROUND, 1)
    shown = found
    if len(found) > room:
        foremost = sorted(found, key=lambda one: ORDER.index(one.state))[:room]
        shown = [one for one in found if one in foremost]
        summary += f"; {len(found) - room} not shown"
    columns = list(COLUMNS)
    widths = _widths(shown)
    for spared in SPARED:
        if sum(widths[name] + GAP for name in columns) > width:
            columns.remove(spared)
    widths["run"] = min(widths["run"], max(width - sum(widths[name] + GAP for name in columns[1:]) - GAP, 1))
    short = [one._replace(folder=_end_of(one.folder, widths["run"])) for one in shown]
    table = status_table(short, f"{title}: {summary}", columns)
    for name, column in zip(columns, table.columns, strict=True):
        column.width, column.overflow = widths[name], "ellipsis"
        column.justify = "left" if name in ("run", "state") else "right"
    return table


def clock(seconds: float | None) -> str:
    """`1:02:03`, or `?` if unknown."""
    if seconds is None:
        return "?"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}"


def _cells(one: RunStatus) -> dict[str, str]:
    rate = one.steps_per_second
    return {
        "run": plain(one.folder),
        "state": f"[{STYLES.get(one.state, 'default')}]{one.state}[/]",
        "update": f"{one.step:,} / {one.steps:,}",
        "updates/s": "" if rate is None else f"{rate:.1f}",
        "loss": "" if one.loss is None else f"{one.loss:.4f}",
        "last result": _result(one),
        "time left": clock(one.seconds_left) if one.state in BUSY else "",
    }


def _result(one: RunStatus) -> str:
    if one.score is not None:
        return f"score {one.score:.1f}"
    return "" if one.mean_return is None else f"return {amount(one.mean_return)}"


def _end_of(name: str, width: int) -> str:
    """The last `width` characters: names of runs often differ only at the end."""
    return name if len(name) <= width else f"…{name[len(name) - width + 1 :]}"


def _widths(found: Sequence[RunStatus]) -> dict[str, int]:
    rows = [dict(zip(COLUMNS, COLUMNS, strict=True)), *map(_cells, found)]
    return {name: max(cell_len(Text.from_markup(row[name]).plain) for row in rows) for name in COLUMNS}
