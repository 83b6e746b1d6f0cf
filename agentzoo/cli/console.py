"""How commands speak: one console for results, one for errors and progress, one way to print JSON."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.cells import cell_len
from rich.console import Console, ConsoleDimensions
from rich.markup import escape
from rich.measure import Measurement
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    Task,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

from agentzoo.errors import shown

if TYPE_CHECKING:
    from agentzoo.evaluation.study import Study

ENDLESS = 100_000  # columns


class _Console(Console):
    """Nothing that is copied is cut or wrapped: no line of text, and in a pipe or a file no table."""

    @property
    def size(self) -> ConsoleDimensions:
        """Of the terminal; in a pipe or file a line has no end, unless COLUMNS says so."""
        found = super().size
        if self.is_terminal or "COLUMNS" in os.environ:
            return found
        return ConsoleDimensions(ENDLESS, found.height)

    @size.setter
    def size(self, new_size: tuple[int, int]) -> None:
        self._width, self._height = new_size

    def print(self, *objects: Any, **options: Any) -> None:
        """As rich does, but a text is left to the terminal to wrap, so that a URL or a command in it stays whole."""
        if all(isinstance(one, str) for one in objects):
            options.setdefault("soft_wrap", True)
        super().print(*objects, **options)


console = _Console(highlight=False)
errors_console = _Console(stderr=True, highlight=False)


MOST_IN_CELL = 2_000  # characters


def plain(text: object) -> str:
    """Text of a file, server or user for a rich console: `shown`, and its markup has no effect."""
    return escape(shown(text, MOST_IN_CELL))


class Words(ProgressColumn):
    """A column of a progress bar that shows a text of its task; markup and terminal codes have no effect.

    Args:
        field: of the task; None is its description.
        before: words in front of the text.
    """

    def __init__(self, field: str | None = None, before: str = "") -> None:
        self.field, self.before = field, before
        super().__init__()

    def render(self, task: Task) -> Text:
        """The text as it is now."""
        text = task.description if self.field is None else task.fields[self.field]
        return Text(self.before + shown(text))


def listing(*columns: str) -> Table:
    """A table for `print_listing`: a line a row, no borders."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="underline")
    for column in columns:
        table.add_column(column, no_wrap=True, overflow="ignore")
    return table


def print_listing(table: Table, to: Console = console) -> None:
    """A table under its title, nothing cut however narrow the terminal: a cut id or number is another one."""
    if table.title is not None:
        to.print(table.title, style="bold")
        table.title = None  # rich breaks one that is wider than its table
    if fits(table):
        to.print(table)
        return
    wanted = Measurement.get(to, to.options.update(width=ENDLESS), table).maximum
    Console(file=to.file, width=wanted, highlight=False).print(table)


def print_facts(facts: Mapping[str, object], title: str = "") -> None:
    """A line for each fact, name and value, under a title."""
    table = listing("", "")
    table.title, table.show_header = plain(title) if title else None, False
    for name, value in facts.items():
        table.add_row(plain(name), plain(value))
    print_listing(table)


def fits(table: Table) -> bool:
    """Whether the terminal has room for the table without breaking a word, or a cell that may not wrap.

    If so its columns get such widths: rich alone narrows the widest ones whatever words they hold.
    """
    for column in table.columns:
        column.width = None  # of an earlier answer, which would count as room
    texts = [[Text.from_markup(str(cell)).plain for cell in (column.header, *column.cells)] for column in table.columns]
    widest = [max(map(cell_len, column)) for column in texts]
    words = [max(cell_len(word) for text in column for word in text.split() or [""]) for column in texts]
    least = [most if column.no_wrap else word for column, most, word in zip(table.columns, widest, words, strict=True)]
    endless = console.options.update(width=ENDLESS)
    around = Measurement.get(console, endless, table).maximum - sum(widest)  # borders and space between columns
    room, wanted = console.width - around - sum(least), sum(widest) - sum(least)
    if room < 0:
        return False
    share = min(1.0, room / wanted) if wanted else 0.0
    for column, low, high in zip(table.columns, least, widest, strict=True):
        column.width = low + int(share * (high - low))
    return True


def print_json(value: Any) -> None:
    """One JSON document on standard output and nothing else."""
    sys.stdout.write(json.dumps(value, indent=2, default=str) + "\n")


def print_study(study: Study, title: str, as_json: bool = False) -> None:
    """The table of a study, or its record. Nothing is cut: names of agents often differ in their ends alone.

    Where the terminal is so narrow that words of a table would be broken, every row becomes a block, a line a column.
    """
    if as_json:
        print_json(study.model_dump())
        return
    table = Table(title=plain(title), title_justify="left")
    for i, column in enumerate(study.columns):
        table.add_column(plain(column), no_wrap=i == 0, overflow="fold")
    for row in study.rows:
        table.add_row(*(plain(cell) for cell in row))
    console.print(table if fits(table) else _blocks(study, title))


def _blocks(study: Study, title: str) -> Table:
    table = Table(title=plain(title), title_justify="left", show_header=False)
    table.add_column(overflow="fold")
    table.add_column(overflow="fold")
    for row in study.rows:
        for name, cell in zip(study.columns, row, strict=True):
            if cell:
                table.add_row(plain(name), plain(cell))
        table.add_section()
    return table


def bar_columns() -> tuple[ProgressColumn, ...]:
    """What a bar says: its name, how far it is, the time spent and left, and the task's `note`."""
    return (
        Words(),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        Words("note"),
    )


@contextmanager
def progress_bar(title: str, total: int | None) -> Iterator[Callable[[int, str], None]]:
    """A bar on standard error (so that `--json` stays clean); the yielded function advances it and sets its note."""
    with Progress(SpinnerColumn(), *bar_columns(), console=errors_console, transient=True) as progress:
        task = progress.add_task(title, total=total, note="")
        yield lambda steps, note: progress.update(task, advance=steps, note=note)
