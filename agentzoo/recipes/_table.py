"""A list of the packaged recipes that needs no import of them, since that loads every network and PyTorch.

`table.json` lists them, with a hash of this folder's files. If the hash differs, as after a change of a recipe, the
recipes are imported. `python -m agentzoo.recipes._table` rewrites the list.
"""

from __future__ import annotations

import hashlib
import json
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from agentzoo.errors import UnknownNameError, did_you_mean
from agentzoo.registry import recipe_table
from agentzoo.store.files import write_atomic

PLACE = Path(__file__).parent
TABLE = PLACE / "table.json"


class Row(NamedTuple):
    """A recipe's row in a list. The target is in raw units of the environment's reward."""

    agent_id: str
    family: str
    env: str
    target: float
    steps: int
    dataset: str


@cache
def recipe_rows() -> dict[str, Row]:
    """Agent id -> row of every packaged recipe."""
    try:
        table = json.loads(TABLE.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        table = {}
    listed = table["rows"] if table.get("sources") == _sources() else _imported()
    return {values[0]: Row(*values) for values in listed}


def require_recipe(named: str) -> None:
    """Raise UnknownNameError, with the nearest id, unless `named` is a packaged recipe's id, a folder or a file."""
    rows = recipe_rows()
    if not _is_path(named) and named.removeprefix("zoo/") not in rows:
        raise UnknownNameError(f"no recipe {named!r}.{did_you_mean(named, rows)} See `agentzoo list --all`.")


def require_template(named: str) -> None:
    """Raise UnknownNameError, with the nearest name, unless `named` is a family, the start of an id, or a recipe."""
    rows, name = recipe_rows(), named.removeprefix("zoo/")
    families = sorted({row.family for row in rows.values()})
    if _is_path(named) or name in (*rows, *families) or any(one.startswith(f"{name}-") for one in rows):
        return
    raise UnknownNameError(
        f"no family or agent {named!r}.{did_you_mean(name, [*families, *rows])} Families: {', '.join(families)}."
    )


def _is_path(named: str) -> bool:
    return named.endswith(".json") or Path(named).exists()


def _sources() -> str:
    digest = hashlib.sha256()
    for path in sorted(PLACE.glob("*.py")):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def _imported() -> list[list[Any]]:
    return [
        [name, one.model.family, one.eval.env, one.eval.target_return, one.train.steps, one.data.dataset]
        for name, one in recipe_table().items()
    ]


def table_text() -> str:
    """The content of `table.json`, one line per recipe."""
    rows = ",\n".join(json.dumps(row) for row in _imported())
    return f'{{"sources": "{_sources()}", "rows": [\n{rows}\n]}}\n'


if __name__ == "__main__":
    write_atomic(TABLE, table_text())
