"""`agentzoo research fuzz`."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from agentzoo.cli.console import console, listing, plain, print_json, print_listing, progress_bar
from agentzoo.cli.options import JsonOption


def fuzz(
    cases: Annotated[int, typer.Option("--cases", "-n", min=1, help="Total number of damaged files to read.")] = 10_000,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of the damage.")] = 0,
    only: Annotated[
        list[str] | None, typer.Option("--reader", help="Test this reader only, e.g. config.json; may be repeated.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Test every reader of untrusted files on damaged files.

    Exit status 1: a reader crashed, hung, used too much time or memory, imported a module, or raised an error that is
    not agentzoo's.
    """
    from agentzoo.research.fuzz import fuzz as run

    with progress_bar("damaged files", cases) as bar:
        tallies = run(cases, seed, only or (), bar)
    if as_json:
        print_json([asdict(one) for one in tallies])
    else:
        table = listing("reader", "cases", "read", "refused", "failures", "slowest")
        for one in tallies:
            failures = ", ".join(f"{name} {count}" for name, count in one.failures.most_common())
            counts = (str(one.cases), str(one.read), str(one.refused))
            table.add_row(one.reader, *counts, plain(failures or "none"), f"{one.slowest:.2f} s")
        print_listing(table)
        for one in tallies:
            for name, example in one.examples.items():
                console.print(f"{one.reader}, {name}: {plain(example)}")
    if any(one.failures for one in tallies):
        raise SystemExit(1)
