"""`training_log.csv`: one row every `log_every` updates, cut back to the checkpoint when a run is resumed."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path

from agentzoo.errors import CheckpointError
from agentzoo.store.files import LOG, write_atomic

COLUMNS = ("step", "loss", "lr", "grad_norm", "steps_per_s", "seconds")  # of every log; more follow


def start_log(folder: Path, columns: Sequence[str], up_to: int) -> None:
    """Make the file, or drop the rows a killed run wrote after its last checkpoint at step `up_to`."""
    rows = [row for row in read_log(folder) if int(row["step"]) <= up_to]
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_atomic(folder / LOG, text.getvalue())


def append_row(folder: Path, columns: Sequence[str], row: Mapping[str, float | int | None]) -> None:
    """One more row; values are rounded to six significant digits."""
    with (folder / LOG).open("a", newline="") as file:
        writer = csv.DictWriter(file, columns, lineterminator="\n")
        writer.writerow({k: f"{v:.6g}" if isinstance(v, float) else v for k, v in row.items()})


def read_log(folder: Path) -> list[dict[str, str]]:
    """The rows as text, without a last one that was cut off; empty when there is no file.

    Raises:
        CheckpointError: it is no log.
    """
    path = folder / LOG
    if not path.exists():
        return []
    try:
        text = path.read_text()
    except UnicodeDecodeError as error:
        raise CheckpointError(f"{path} is no log of a training: {error}.") from None
    whole = csv.DictReader(io.StringIO(text[: text.rfind("\n") + 1]))
    if whole.fieldnames is not None and "step" not in whole.fieldnames:
        raise CheckpointError(f"{path} is no log of a training: it has no column `step`.")
    return [row for row in whole if (row["step"] or "").isdecimal()]
