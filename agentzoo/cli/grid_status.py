"""`agentzoo grid status`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from agentzoo.cli.console import console, plain, print_json, print_listing
from agentzoo.cli.grid_table import status_table
from agentzoo.cli.options import JsonOption, is_given
from agentzoo.errors import ConfigError


def status(
    context: typer.Context,
    out: Annotated[
        Path | None, typer.Argument(metavar="OUT", help="The grid's folder, as given to --out. Default: runs.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show the progress of a grid's runs, read from their files, while the grid runs or later."""
    from agentzoo.training.grid.plan import read_plan
    from agentzoo.training.grid.status import grid_status

    folder = _folder(context, out)
    found = grid_status(folder, read_plan(folder))
    if as_json:
        print_json([one._asdict() for one in found])
        return
    done = sum(one.state == "done" for one in found)
    print_listing(status_table(found, f"grid in {folder}: {done} of {len(found)} done"))
    for one in found:
        if one.error:
            console.print(f"{plain(one.folder)}: {plain(one.error)}")


def _folder(context: typer.Context, out: Path | None) -> Path:
    """The grid's folder: OUT, or the --out before `status`. ConfigError: both are given, and not the same."""
    above: Any = context.parent
    asked: Path | None = above.params["out"] if above is not None and is_given(above, "out") else None
    if asked is not None and out not in (None, asked):
        raise ConfigError(f"--out is {asked}, but `status` names {out}; name one folder.")
    return out or asked or Path("runs")


def only_shows(context: typer.Context) -> bool:
    """Whether the command is `status`. ConfigError: an option that only training reads stands before it."""
    command = context.invoked_subcommand
    if command is None:
        return False
    known = [one for one in context.command.params if one.name not in (None, "out")]
    given = [one.opts[0] for one in known if is_given(context, str(one.name))]
    if given:
        raise ConfigError(f"{', '.join(given)} has no effect before `{command}`; omit it.")
    return True
