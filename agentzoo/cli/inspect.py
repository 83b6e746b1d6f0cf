"""`agentzoo research inspect`: tables, JSON, a picture and a page. Heavy imports happen inside."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from agentzoo.cli.console import console, errors_console, plain, print_json, print_listing
from agentzoo.cli.options import DistanceOption, JsonOption, RevisionOption, TrustOption

if TYPE_CHECKING:
    from agentzoo.research.analysis.head_report import MarkovReport
    from agentzoo.research.analysis.inspection import Inspection


def inspect(
    name: Annotated[str, typer.Argument(metavar="ID", help="An agent (id, folder, Hub repo) or a language model.")],
    episodes: Annotated[int, typer.Option("--episodes", "-n", min=1, help="Episodes that windows are taken from.")] = 5,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the first episode; with --random of the weights, too.")] = 0,
    windows: Annotated[int, typer.Option(min=1, help="Most windows to take, evenly spaced.")] = 2_000,
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
        float, typer.Option(min=0.01, help="Temperature at which attention maps are drawn; the paper's is 0.1.")
    ] = 1.0,
    random: Annotated[bool, typer.Option("--random", help="Inspect the same network with random weights.")] = False,
    before: Annotated[
        bool, typer.Option("--before", help="Inspect the network as training began: its backbone, fresh maps.")
    ] = False,
    picture: Annotated[
        Path | None, typer.Option("--picture", help="Draw all of it into this file: .png, .pdf or .svg.")
    ] = None,
    report: Annotated[Path | None, typer.Option("--report", help="Folder for a page with pictures inside.")] = None,
    revision: RevisionOption = None,
    trust_env_module: TrustOption = False,
    as_json: JsonOption = False,
) -> None:
    """Look inside: Markov heads, head importance, gates, attention maps; memory length of a Mamba agent."""
    from agentzoo.plots import figure_class, require_picture
    from agentzoo.research.analysis.inspection import Options
    from agentzoo.research.analysis.inspection import inspect as look
    from agentzoo.research.analysis.page import write_page
    from agentzoo.research.analysis.pictures import draw_all

    if picture is not None:
        require_picture(picture)
    if report is not None:
        figure_class()  # what cannot be drawn is said before what takes long
    heads = None if markov_heads is None else tuple(markov_heads)
    options = Options(episodes, seed, windows, threshold, fold_ln_gain, heads, temperature, random, before, distance)
    with errors_console.status("looking"):
        found = look(name, options, revision=revision, trust_env_module=trust_env_module)
        written = [draw_all(found, picture)] if picture is not None else []
        written += [write_page(found, report)] if report is not None else []
    if as_json:
        print_json(found.as_tree())
        return
    for table in tables(found):
        print_listing(table)
    if found.markov is not None:
        console.print(plain(found.markov.scale()))
    for path in written:
        console.print(f"wrote {plain(path)}")


def tables(found: Inspection) -> Iterator[Table]:
    """One for each part that is there."""
    name = plain(f"{found.name} ({found.kind})")
    if found.markov is not None:
        yield markov_table(found.markov, name)
    if found.importance is not None:
        yield _importance_table(found)
    if found.gates is not None:
        yield _gates_table(found)
    if found.memory is not None:
        yield _memory_table(found, name)
    if found.looks is not None:
        yield _maps_table(found)


def markov_table(report: MarkovReport, name: str) -> Table:
    """Both conditions and the verdict of every head; `name` is printed as it is."""
    title = (
        f"Markov heads of {name}, r = {report.threshold:g} (the paper's rule: {report.rule:.2f}){report.counted_in()}"
    )
    table = Table("layer", "head", "diagonal > 0", "ratio", "Markov", title=title)
    for one in report.heads:
        share = "all" if one.positive else f"{100 * one.positive_share:.0f} %"
        table.add_row(str(one.layer), str(one.head), share, f"{one.ratio:.2f}", "yes" if one.markov else "")
    return table


def _importance_table(found: Inspection) -> Table:
    importance = found.importance
    assert importance is not None
    title = f"Distance of the action without a head, mean of {importance.decisions} decisions"
    table = Table("layer", "head", "moves by", "standard error over decisions", title=title)
    for layer, row in enumerate(importance.mean):
        for head, value in enumerate(row):
            error = importance.standard_error[layer][head]
            table.add_row(str(layer), str(head), f"{value:.4g}", "" if error is None else f"{error:.2g}")
    return table


def _gates_table(found: Inspection) -> Table:
    report = found.gates
    assert report is not None
    assert found.counted is not None
    title = (
        f"Mean gates; layer 0, {found.counted.words()}: G {report.g_markov:.3f}, uniform {report.uniform:.3f}. "
        f"{report.numbers:,} numbers, {report.of_all:.2%} of all, {report.of_trained:.2%} of the trained ones"
    )
    table = Table("layer", "head", "all tokens", *report.by_kind, title=title)
    for layer, row in enumerate(report.mean):
        for head, value in enumerate(row):
            kinds = [f"{means[layer][head]:.3f}" for means in report.by_kind.values()]
            table.add_row(str(layer), str(head), f"{value:.3f}", *kinds)
    if shares := report.r_markov():
        cut = ", ".join(f"K = {length}: {share:.1f} %" for length, share in shares.items())
        table.caption = f"R, G on these windows cut to their newest K steps: {cut}. `gates context`: agents of each K"
    return table


def _memory_table(found: Inspection, name: str) -> Table:
    report = found.memory
    assert report is not None
    title = f"Memory of {name}: 10, 50, 90 % of channels; trained on {report.context_tokens} tokens"
    table = Table("block", "step size", "memory, tokens", "spread over tokens", title=title)
    for one in report.blocks:
        steps, tokens = (", ".join(f"{v:.3g}" for v in values) for values in (one.step_size, one.tokens))
        table.add_row(plain(one.block), steps, tokens, f"{one.spread:.3f}")
    return table


def _maps_table(found: Inspection) -> Table:
    """Where the newest token of a window looks, in words; the maps themselves are pictures."""
    assert found.looks is not None
    title = f"Attention of the newest {'observation' if found.causal else 'step'}, mean of the longest windows"
    table = Table("layer", "head", "on itself", "on its own step", "steps back, mean", title=title)
    for one in found.looks:
        shares = (f"{one.on_itself:.3f}", f"{one.on_its_step:.3f}", f"{one.steps_back:.1f}")
        table.add_row(str(one.layer), str(one.head), *shares)
    return table
