"""The numbers of an inspection as tables of text, for the terminal and for the page."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from agentzoo.research.analysis.gate_report import GateReport
from agentzoo.research.analysis.head_report import MarkovReport
from agentzoo.research.analysis.importance import HeadImportance
from agentzoo.research.analysis.inspection import Inspection
from agentzoo.research.analysis.memory import MemoryReport


class InspectionTable(NamedTuple):
    """One part of an inspection. `part` is the picture it belongs to."""

    part: str
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""


def tables_of(found: Inspection) -> Iterator[InspectionTable]:
    """A table for each part of the inspection that has numbers."""
    name = f"{found.name} ({found.kind})"
    if found.markov is not None:
        yield markov_table(found.markov, name)
    if found.importance is not None:
        yield importance_table(found.importance)
    if found.gates is not None and found.counted is not None:
        yield gates_table(found.gates, found.counted.words())
    if found.memory is not None:
        yield memory_table(found.memory, name)
    if found.looks is not None:
        yield looks_table(found)


def markov_table(report: MarkovReport, name: str) -> InspectionTable:
    """Both conditions and the result for every head of the network `name`."""
    rows = []
    for one in report.heads:
        share = "all" if one.positive else f"{100 * one.positive_share:.0f} %"
        rows.append((str(one.layer), str(one.head), share, f"{one.ratio:.2f}", "yes" if one.markov else ""))
    rule = f"r = {report.threshold:g} (the paper's rule: {report.rule:.2f})"
    columns = ("layer", "head", "diagonal > 0", "ratio", "Markov")
    return InspectionTable("markov", f"Markov heads of {name}, {rule}{report.counted_in()}", columns, tuple(rows))


def importance_table(importance: HeadImportance) -> InspectionTable:
    """How far the action moves without each head."""
    rows = []
    for layer, row in enumerate(importance.mean):
        for head, value in enumerate(row):
            error = importance.standard_error[layer][head]
            rows.append((str(layer), str(head), f"{value:.4g}", "" if error is None else f"{error:.2g}"))
    title = f"Distance of the action without a head, mean of {importance.decisions} decisions"
    columns = ("layer", "head", "moves by", "standard error over decisions")
    return InspectionTable("importance", title, columns, tuple(rows))


def gates_table(report: GateReport, counted: str) -> InspectionTable:
    """The mean gate of each head. `counted`: the heads that G adds up, in words."""
    rows = []
    for layer, row in enumerate(report.mean):
        for head, value in enumerate(row):
            kinds = [f"{means[layer][head]:.3f}" for means in report.by_kind.values()]
            rows.append((str(layer), str(head), f"{value:.3f}", *kinds))
    title = (
        f"Mean gates; layer 0, {counted}: G {report.g_markov:.3f}, uniform {report.uniform:.3f}. "
        f"{report.numbers:,} numbers, {report.of_all:.2%} of all, {report.of_trained:.2%} of the trained ones"
    )
    note = ""
    if shares := report.r_markov():
        cut = ", ".join(f"K = {length}: {share:.1f} %" for length, share in shares.items())
        note = f"R, G on these windows cut to their newest K steps: {cut}. `gates context`: agents of each K"
    return InspectionTable("gates", title, ("layer", "head", "all tokens", *report.by_kind), tuple(rows), note)


def memory_table(report: MemoryReport, name: str) -> InspectionTable:
    """Step size and memory length of each Mamba block of the network `name`."""
    rows = []
    for one in report.blocks:
        steps, tokens = (", ".join(f"{v:.3g}" for v in values) for values in (one.step_size, one.tokens))
        rows.append((one.block, steps, tokens, f"{one.spread:.3f}"))
    title = f"Memory of {name}: 10, 50, 90 % of channels; trained on {report.context_tokens} tokens"
    return InspectionTable("memory", title, ("block", "step size", "memory, tokens", "spread over tokens"), tuple(rows))


def looks_table(found: Inspection) -> InspectionTable:
    """Where the newest token of a window attends to."""
    rows = []
    for one in found.looks or ():
        shares = (f"{one.on_itself:.3f}", f"{one.on_its_step:.3f}", f"{one.steps_back:.1f}")
        rows.append((str(one.layer), str(one.head), *shares))
    title = f"Attention of the newest {'observation' if found.causal else 'step'}, mean of the longest windows"
    columns = ("layer", "head", "on itself", "on its own step", "steps back, mean")
    return InspectionTable("maps", title, columns, tuple(rows))
