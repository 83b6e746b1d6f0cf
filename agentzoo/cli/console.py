"""Output of the commands: one console for results, one for errors and progress, and JSON."""

from __future__ import annotations

import json
import os
import shlex
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
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.segment import Segment, Segments
from rich.table import Table
from rich.text import Text

from agentzoo.errors import printable
from agentzoo.progress import Words

if TYPE_CHECKING:
    from agentzoo.evaluation.study import Study

ENDLESS = 100_000  # columns


class _Console(Console):
    """A console that keeps text easy to copy: it does not wrap lines, nor tables in a pipe or file."""

    @property
    def size(self) -> ConsoleDimensions:
        """The terminal's size; in a pipe or file, lines have no length limit unless COLUMNS is set."""
        found = super().size
        if self.is_terminal or "COLUMNS" in os.environ:
            return found
        return ConsoleDimensions(ENDLESS, found.height)

    @size.setter
    def size(self, new_size: tuple[int, int]) -> None:
        self._width, self._height = new_size

    def print(self, *objects: Any, **options: Any) -> None:
        """As rich, but the terminal wraps plain text, so that a URL or a command can be copied."""
        if all(isinstance(one, str) for one in objects):
            options.setdefault("soft_wrap", True)
        super().print(*objects, **options)


console = _Console(highlight=False)
errors_console = _Console(stderr=True, highlight=False)


MAX_CELL = 2_000  # characters


def plain(text: object) -> str:
    """Text from a file, server or user for a rich console: made safe by `printable`, with its markup escaped."""
    return escape(printable(text, MAX_CELL))


def word(path: object) -> str:
    """A path as one word of a command that the user can copy into a shell, made safe as by `plain`."""
    return plain(shlex.quote(str(path)))


def listing(*columns: str) -> Table:
    """A table for `print_listing`: one line per row, no borders."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="underline")
    for column in columns:
        table.add_column(column, no_wrap=True, overflow="ignore")
    return table


def print_listing(table: Table, to: Console = console) -> None:
    """Print a table under its title. Cells are never cut, even in a narrow terminal: a cut number is a wrong number."""
    if table.title is not None:
        to.print(table.title, style="bold")
        table.title = None  # rich wraps a title that is wider than its table
    width = to.width if fits(table, to) else Measurement.get(to, to.options.update(width=ENDLESS), table).maximum
    to.print(_without_padding(table, to, width), soft_wrap=True)


def _without_padding(table: Table, to: Console, width: int) -> Segments:
    """The lines of a table without spaces at their ends, which a narrower terminal would wrap into blank lines."""
    lines = to.render_lines(table, to.options.update(width=width), pad=False)
    for line in lines:
        while line and not line[-1].text.strip():
            line.pop()
        if line:
            line[-1] = Segment(line[-1].text.rstrip(), line[-1].style)
    return Segments([segment for line in lines for segment in (*line, Segment.line())])


def print_facts(facts: Mapping[str, object], title: str = "") -> None:
    """Print one line per fact, name and value, under a title."""
    table = listing("", "")
    table.title, table.show_header = plain(title) if title else None, False
    for name, value in facts.items():
        table.add_row(plain(name), plain(value))
    print_listing(table)


def fits(table: Table, to: Console = console) -> bool:
    """Whether the table fits this console without breaking a word, or a cell that may not wrap.

    If it fits, this sets the widths of its columns, since rich alone narrows the widest columns and breaks words.
    """
    for column in table.columns:
        column.width = None  # a width from an earlier call would count
    texts = [[Text.from_markup(str(cell)).plain for cell in (column.header, *column.cells)] for column in table.columns]
    widest = [max(map(cell_len, column)) for column in texts]
    words = [max(cell_len(word) for text in column for word in text.split() or [""]) for column in texts]
    least = [most if column.no_wrap else word for column, most, word in zip(table.columns, widest, words, strict=True)]
    endless = to.options.update(width=ENDLESS)
    around = Measurement.get(to, endless, table).maximum - sum(widest)  # borders and space between columns
    room, wanted = to.width - around - sum(least), sum(widest) - sum(least)
    if room < 0:
        return False
    share = min(1.0, room / wanted) if wanted else 0.0
    for column, low, high in zip(table.columns, least, widest, strict=True):
        column.width = low + int(share * (high - low))
    return True


def print_json(value: Any) -> None:
    """Print one JSON document on standard output."""
    sys.stdout.write(json.dumps(value, indent=2, default=str) + "\n")


def print_study(study: Study, title: str, as_json: bool = False) -> None:
    """Print the table of a study, or its record as JSON. Nothing is cut: agent names often differ only at the end.

    If the terminal is too narrow for the table, every row becomes a block with one line per column.
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
    """Columns of a progress bar: name, bar, count, elapsed and remaining time, and the task's `note`."""
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
