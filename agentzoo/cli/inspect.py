"""`agentzoo research inspect`: tables, JSON, a figure and an HTML page. Heavy imports happen inside."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from agentzoo.cli.console import console, errors_console, plain, print_json, print_listing
from agentzoo.cli.options import (
    MAX_EPISODES,
    DistanceOption,
    JsonOption,
    RevisionOption,
    TrustOption,
    TrustOptionsOption,
)
from agentzoo.nn.language.wheels import SHIPPED
from agentzoo.store.named import require_network

if TYPE_CHECKING:
    from agentzoo.research.analysis.inspection import Inspection
    from agentzoo.research.analysis.inspection_tables import InspectionTable


def inspect(
    name: Annotated[str, typer.Argument(metavar="ID", help="An agent (id, folder, Hub repo) or a language model.")],
    episodes: Annotated[
        int, typer.Option("--episodes", "-n", min=1, max=MAX_EPISODES, help="Episodes that windows are taken from.")
    ] = 5,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the first episode, and of the weights with --random.")] = 0,
    windows: Annotated[int, typer.Option(min=1, help="Largest number of windows, evenly spaced.")] = 2_000,
    threshold: Annotated[
        float, typer.Option(min=0.0, help="Ratio r above which a head counts as a Markov head.")
    ] = 8.0,
    fold_ln_gain: Annotated[
        bool, typer.Option("--fold-ln-gain", help="Count the gain of the norm before the head.")
    ] = False,
    distance: DistanceOption = 0,
    markov_heads: Annotated[
        list[int] | None,
        typer.Option("--markov-head", min=0, help="Head of layer 0 whose gates to show; may be repeated."),
    ] = None,
    temperature: Annotated[
        float, typer.Option(min=0.01, help="Temperature of the attention maps; the paper uses 0.1.")
    ] = 1.0,
    random: Annotated[bool, typer.Option("--random", help="Inspect the same network with random weights.")] = False,
    before: Annotated[
        bool, typer.Option("--before", help="Inspect the network before training: its backbone and new random layers.")
    ] = False,
    picture: Annotated[
        Path | None, typer.Option("--picture", help="Draw all results into this file: .png, .pdf or .svg.")
    ] = None,
    report: Annotated[Path | None, typer.Option("--report", help="Folder for an HTML page with figures.")] = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="Write a study.json of an agent's heads, for a card, into this folder.")
    ] = None,
    revision: RevisionOption = None,
    trust_env_module: TrustOption = False,
    trust_env_options: TrustOptionsOption = False,
    as_json: JsonOption = False,
) -> None:
    """Inspect a network: Markov heads, head importance, gates, attention maps; memory length of a Mamba agent."""
    require_network(name, SHIPPED)  # a typo is answered before the heavy imports
    from agentzoo.plots import figure_class, require_picture
    from agentzoo.research.analysis.inspection import Options
    from agentzoo.research.analysis.inspection import inspect as look

    if picture is not None:
        require_picture(picture)
    if report is not None or out is not None:
        figure_class()  # fails before the slow part
    heads = None if markov_heads is None else tuple(markov_heads)
    options = Options(episodes, seed, windows, threshold, fold_ln_gain, heads, temperature, random, before, distance)
    with errors_console.status("looking"):
        found = look(name, options, revision=revision, trust_env_module=trust_env_module)
        written = _write(found, picture, report, out)
    if as_json:
        print_json(found.as_tree())
    else:
        _print(found, written)


def _write(found: Inspection, picture: Path | None, report: Path | None, out: Path | None) -> list[Path]:
    """The picture, the page and the study requested."""
    from agentzoo.evaluation.study import write_study
    from agentzoo.research.analysis.inspection_page import write_page
    from agentzoo.research.analysis.pictures import draw_all
    from agentzoo.research.studies.head_views import PICTURE, as_study, draw_views

    written = [] if picture is None else [draw_all(found, picture)]
    written += [] if report is None else [write_page(found, report)]
    if out is not None:
        study = as_study(found)
        written += [draw_views(found, out / PICTURE), write_study(study, out)]
    return written


def _print(found: Inspection, written: list[Path]) -> None:
    from agentzoo.research.analysis.inspection_tables import tables_of

    for table in tables_of(found):
        print_listing(as_rich(table))
    if found.markov is not None:
        console.print(plain(found.markov.scale()))
    for path in written:
        console.print(f"wrote {plain(path)}")


def as_rich(table: InspectionTable) -> Table:
    """A table for the terminal; what it holds is printed unchanged."""
    shown = Table(*table.columns, title=plain(table.title), caption=plain(table.note) if table.note else None)
    for row in table.rows:
        shown.add_row(*map(plain, row))
    return shown
