"""An inspection as one HTML file, with its pictures inside, no script and no external address."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import NamedTuple

from markupsafe import Markup

from agentzoo.research.analysis.inspection import Inspection
from agentzoo.research.analysis.inspection_tables import InspectionTable, tables_of
from agentzoo.research.analysis.pictures import parts_of, picture_of
from agentzoo.site.render import single_page
from agentzoo.store.files import write_atomic
from agentzoo.text import counted

PAGE = "index.html"
TITLES = {
    "markov": "Markov heads",
    "importance": "Which heads matter",
    "gates": "What the gates prefer",
    "curve": "Gates over training",
    "memory": "How long it remembers",
    "maps": "Where heads look",
}
CAPTIONS = {
    "markov": "Mean absolute diagonal of W_q W_k^T over the mean of the rest, for every head.",
    "importance": "Distance between the action and the action with one head silenced, on the same windows.",
    "gates": "Softmax weights of the heads, averaged over the tokens of the agent's own windows.",
    "curve": "From the training log: first layer, mean over each batch; faint: single heads.",
    "memory": "Mean over tokens of the agent's own windows.",
    "maps": "One window from the middle of an episode.",
}


def caption_of(name: str, found: Inspection) -> str:
    """A picture's caption, with the options of the inspection."""
    if name == "markov" and found.markov is not None and found.markov.counted_in():
        return CAPTIONS[name].replace("W_q W_k^T", found.markov.matrix())
    if name == "maps" and found.temperature != 1.0:
        how = "sharper" if found.temperature < 1.0 else "flatter"
        return f"{CAPTIONS[name]} Drawn at temperature {found.temperature:g}, {how} than the network attends."
    return CAPTIONS[name]


def explanation(found: Inspection) -> tuple[str, str]:
    """Two paragraphs: the measurement, and its result for this network."""
    if found.memory is not None:
        return (
            "A Mamba block keeps a state in each channel and multiplies it by exp(Δ A) at every token. The step size Δ "
            "depends on the token, so a block can keep what it read or forget it. Memory length is the number "
            "of tokens until the slowest state of a channel has fallen to 1/e; three tokens are one step of the "
            "environment.",
            _memory_words(found),
        )
    if found.markov is None:
        return (
            "A masked network attends to all steps of a window, earlier and later ones. Each map shows one head: the "
            "row is the querying token, the column the token it attends to. The importance of a head is the distance "
            "by which the action moves if the head is silenced just before the output projection, on the same windows "
            "and without new training.",
            _importance_words(found),
        )
    return (
        f"A head scores token j for token i by e_i A e_j, with A = {found.markov.matrix()}. It is called a Markov head "
        "if every entry of A's diagonal is positive and the diagonal's mean is above "
        f"{found.markov.threshold:g} times that of the "
        "rest. The weights of such a head make it attend to tokens like the querying one, most of all to the newest "
        "token itself. This suits tasks in which only the present matters. " + found.markov.scale(),
        _markov_words(found),
    )


def _markov_words(found: Inspection) -> str:
    report = found.markov
    assert report is not None
    heads = [f"{one.head} of layer {one.layer}" for one in report.heads if one.markov]
    best = max(report.heads, key=lambda one: one.ratio)
    count = counted(len(heads), "Markov head") if heads else "no Markov head"
    words = f"{found.title} has {count} among {len(report.heads)}{': ' if heads else ''}{'; '.join(heads)}."
    words += f" The highest ratio is {best.ratio:.2f} (head {best.head} of layer {best.layer})."
    words += f" The paper's rule for matrices of width {report.dim} requires {report.rule:.2f}."
    if found.gates is not None and found.counted is not None:
        words += (
            f" Sum of the gates, {found.counted.words()}: {found.gates.g_markov:.3f}; with equal gates it would be "
            f"{found.gates.uniform:.3f}."
        )
        if shares := found.gates.r_markov():
            base, *longer = shares
            listed = ", ".join(f"{shares[length]:.1f} % at K = {length}" for length in longer)
            words += (
                f" Relative to the newest {base} steps of the same windows this is {listed}; `agentzoo research gates "
                "context` compares agents trained with each K."
            )
    return f"{words} {_importance_words(found)}".strip()


def _importance_words(found: Inspection) -> str:
    if found.importance is None:
        return ""
    cells = [(value, layer, head) for layer, row in enumerate(found.importance.mean) for head, value in enumerate(row)]
    most, layer, head = max(cells)
    return f"Head {head} of layer {layer} matters most: without it the action moves by {most:.3g} on average."


def _memory_words(found: Inspection) -> str:
    assert found.memory is not None
    longest = max(found.memory.blocks, key=lambda one: one.tokens[1])
    shortest = min(found.memory.blocks, key=lambda one: one.tokens[1])
    return (
        f"In {found.title} the median channel remembers from {shortest.tokens[1]:.0f} tokens ({shortest.block}) to "
        f"{longest.tokens[1]:.0f} tokens ({longest.block}); it was trained on windows of "
        f"{found.memory.context_tokens} tokens."
    )


class Part(NamedTuple):
    """A picture of the page and its numbers. `data`: a data URL."""

    name: str
    title: str
    data: Markup
    caption: str
    table: InspectionTable | None  # None: the numbers are in the training log


def page_of(found: Inspection) -> str:
    """The page, from the templates of `agentzoo site`."""
    first, second = explanation(found)
    tables = {table.part: table for table in tables_of(found)}
    parts = [
        Part(name, TITLES[name], _inside(picture_of(name, found)), caption_of(name, found), tables.get(name))
        for name in parts_of(found)
    ]
    title = f"{found.title} inspected"
    return single_page("inspect.html.j2", title, first=first, second=second, parts=parts, kind=found.kind)


def _inside(picture: bytes) -> Markup:
    """A PNG as a data URL."""
    return Markup("data:image/png;base64," + base64.b64encode(picture).decode())


def write_page(found: Inspection, folder: Path) -> Path:
    """Write `index.html` into `folder`.

    Raises:
        StorageError: no space or permission.
    """
    path = folder / PAGE
    write_atomic(path, page_of(found))
    return path
