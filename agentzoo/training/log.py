"""`training_log.csv`: one row every `log_every` updates, cut back to the checkpoint when a run is resumed."""

from __future__ import annotations

import csv
import io
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from agentzoo.errors import CheckpointError, StorageError, printable
from agentzoo.store.files import LOG, write_atomic
from agentzoo.store.tensors import first_names

MAX_BYTES = 256 * 1024 * 1024
MAX_DIGITS = 12  # of a step
COLUMNS = ("step", "loss", "lr", "grad_norm", "steps_per_s", "seconds")  # of every log; more follow
EVALUATION = ("eval_return", "eval_score")  # of short evaluations


def start_log(folder: Path, columns: Sequence[str], up_to: int) -> None:
    """Create the file, or drop the rows that a killed run wrote after its last checkpoint at step `up_to`.

    Raises:
        CheckpointError: the rows to keep have a column that is not in `columns`.
    """
    rows = [row for row in read_log(folder) if int(row["step"]) <= up_to]
    others = [name for name in (rows[0] if rows else ()) if name not in columns]
    if others:
        raise CheckpointError(
            f"{folder / LOG} has columns that this run does not log: {first_names(others, 5)}. Another recipe or "
            "version of agentzoo wrote it. Move the file away to continue with a new log, or train in another folder "
            "(--out)."
        )
    _write(folder, columns, rows)


def drop_evaluations(folder: Path) -> None:
    """Empty the cells of `EVALUATION` in all rows, for a run whose evaluations will be of another kind.

    Raises:
        CheckpointError: the file is not a training log.
    """
    rows = read_log(folder)
    if any(row.get(name) for row in rows for name in EVALUATION):
        _write(folder, list(rows[0]), [{k: "" if k in EVALUATION else v for k, v in row.items()} for row in rows])


def _write(folder: Path, columns: Sequence[str], rows: Iterable[Mapping[str, str]]) -> None:
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_atomic(folder / LOG, text.getvalue())


def append_row(folder: Path, columns: Sequence[str], row: Mapping[str, float | int | None]) -> None:
    """Append a row; values are rounded to six significant digits.

    Raises:
        StorageError: no space or no permission.
    """
    try:
        with (folder / LOG).open("a", newline="") as file:
            writer = csv.DictWriter(file, columns, lineterminator="\n")
            writer.writerow({k: f"{v:.6g}" if isinstance(v, float) else v for k, v in row.items()})
    except OSError as error:
        raise StorageError(f"{folder / LOG} was not written: {error}. The last checkpoint is unchanged.") from error


def still_falling(rows: Sequence[Mapping[str, str]]) -> float | None:
    """The share by which the loss fell over the last fifth of a training, if that exceeds its noise and 1 %.

    Compares the means of the two halves of the last fifth of the rows; a difference below three standard errors does
    not count. None: the loss has settled, or there are too few rows.
    """
    losses = [float(row["loss"]) for row in rows if row.get("loss")]
    tail = losses[-(len(losses) // 5) :] if len(losses) >= 40 else []
    half = len(tail) // 2
    if half < 4:
        return None
    before, after = tail[:half], tail[-half:]
    fell = statistics.fmean(before) - statistics.fmean(after)
    noise = math.sqrt((statistics.variance(before) + statistics.variance(after)) / half)
    share = fell / abs(statistics.fmean(before)) if statistics.fmean(before) else 0.0
    return share if fell > 3.0 * noise and share > 0.01 else None


def read_log(folder: Path) -> list[dict[str, str]]:
    """The rows as text, without an incomplete last one; empty if there is no file.

    Every cell is empty or a number, `step` is a whole number and `seconds` is finite.

    Raises:
        CheckpointError: the file is not a training log.
    """
    path = folder / LOG
    if not path.exists():
        return []
    try:
        if not path.is_file() or path.stat().st_size > MAX_BYTES:
            raise ValueError("it is not a regular file, or too large")
        text = path.read_text(encoding="utf-8")
        whole = csv.DictReader(io.StringIO(text[: text.rfind("\n") + 1]))
        names = whole.fieldnames
        if names is not None and "step" not in names:
            raise ValueError("it has no column `step`")
        if names is not None and len(set(names)) != len(names):
            raise ValueError("two columns have the same name")
        rows = [row for row in whole if (row["step"] or "").isdecimal()]
        for row in rows:
            _check_row(row)
    except (OSError, ValueError, csv.Error) as error:
        raise CheckpointError(f"{path} is not a training log: {error}.") from None
    return rows


def _check_row(row: Mapping[Any, Any]) -> None:
    """Raise ValueError unless each cell is empty or a number."""
    if None in row or None in row.values():
        raise ValueError(f"the row of step {printable(row['step'], 20)} has more or fewer cells than columns")
    if len(row["step"]) > MAX_DIGITS:
        raise ValueError(f"step {printable(row['step'], 20)} is too large")
    for name, cell in row.items():
        if cell and name == "seconds" and not math.isfinite(float(cell)):
            raise ValueError(f"seconds are {printable(cell, 20)}")
        if cell:
            float(cell)
