"""`datasets.html`: the agents' datasets, with histograms and frames of those on this machine."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from markupsafe import Markup

from agentzoo.data.making.catalogue import recipe_of
from agentzoo.data.names import is_local
from agentzoo.data.references import Reference, normalized_score
from agentzoo.data.returns import read_returns
from agentzoo.data.summary import are_equal
from agentzoo.errors import AgentzooError
from agentzoo.evaluation.method_comparison import task_of
from agentzoo.evaluation.results import DatasetFacts
from agentzoo.site.entries import Entry, Zoo, slug_of
from agentzoo.site.plot import Axis, Plot
from agentzoo.site.render import NO_PARTS, Parts, page
from agentzoo.text import amount, counted, fixed
from agentzoo.types import FloatArray

PAGE = "datasets.html"
BINS = 36
BEST = 0.1  # share of the steps in the best episodes, as in `data.best_fraction`
FRAMES = 5


class EpisodePictures(NamedTuple):
    """Pictures of one episode, (address, step) each, and a sentence about the episode, `said`."""

    pictures: tuple[tuple[str, int], ...]
    said: str


class Shown(NamedTuple):
    """One dataset."""

    anchor: str
    dataset: str
    env: str
    facts: tuple[tuple[str, str], ...]
    made_by: str
    build: str
    plot: Markup | None
    table: tuple[tuple[str, str], ...]
    absent: str  # why there is no histogram
    agents: tuple[Entry, ...]
    frames: EpisodePictures | None


def datasets_page(
    zoo: Zoo,
    frames: Callable[[Entry, str], EpisodePictures | None] = lambda entry, anchor: None,
    parts: Parts = NO_PARTS,
    on_progress: Callable[[str], None] = lambda _: None,
) -> str:
    """The page.

    Args:
        frames: function from an agent and a file name to pictures of an episode of the agent's dataset.
    """
    grouped: dict[str, list[Entry]] = {}
    for entry in sorted(zoo.entries, key=lambda one: (one.dataset, one.agent_id)):
        grouped.setdefault(entry.dataset, []).append(entry)
    shown: list[Shown] = []
    for dataset, entries in grouped.items():
        on_progress(f"the data {dataset}")
        anchor = _anchor(dataset, [one.anchor for one in shown])
        shown.append(_shown(dataset, anchor, entries, frames))
    return page("datasets.html.j2", "Datasets · agentzoo", PAGE, parts=parts, datasets=shown)


def _anchor(dataset: str, taken: Sequence[str]) -> str:
    """The name of a dataset's section and of its folder of pictures: `hopper-medium`; another version has a number."""
    plain = re.sub(r"[^a-z0-9]+", "-", task_of(dataset).lower()).strip("-")
    return slug_of(plain or "dataset", taken)


def _shown(
    dataset: str, anchor: str, entries: Sequence[Entry], frames: Callable[[Entry, str], EpisodePictures | None]
) -> Shown:
    whole = (entry.results for entry in entries if entry.recipe.data.best_fraction == 1.0)
    facts = next((results.dataset for results in whole if results is not None), None)
    env = next((entry.env for entry in entries if entry.env), "")
    recipe = recipe_of(dataset)
    returns, lengths, absent = _returns(dataset)
    if returns is not None and are_equal(returns):
        absent = f"Every episode returns {amount(float(returns[0]), ',')}."
    rows = _facts(facts, returns, lengths)
    reference = next((entry.head.reference for entry in entries if entry.head and entry.head.reference), None)
    return Shown(
        anchor,
        dataset,
        env,
        tuple(rows),
        facts.made_by if facts and facts.made_by else recipe.made_by if recipe else "",
        "" if recipe is None else f"agentzoo data build {recipe.name} {recipe.build_options}".rstrip(),
        None if absent or returns is None else _histogram(dataset, returns, lengths),
        () if absent or returns is None else tuple(_quantiles(returns, reference)),
        absent,
        tuple(entries),
        frames(entries[0], anchor) if returns is not None else None,
    )


def _returns(dataset: str) -> tuple[FloatArray | None, FloatArray, str]:
    if not is_local(dataset):
        return None, np.zeros(0), "The dataset is not on the machine that made this page, so there is no histogram."
    try:
        returns, lengths = read_returns(dataset)
    except AgentzooError as error:
        return None, np.zeros(0), f"The dataset could not be read: {error}"
    return returns, lengths.astype(np.float64), ""


def _facts(facts: DatasetFacts | None, returns: FloatArray | None, lengths: FloatArray) -> list[tuple[str, str]]:
    found = []
    if facts is not None:
        found = [("episodes", f"{facts.episodes:,}"), ("steps", f"{facts.steps:,}")]
        found += [("mean return", amount(facts.mean_return, ",")), ("best return", amount(facts.best_return, ","))]
    if returns is not None:
        least, count = best_share(returns, lengths)
        words = f"{counted(count, 'episode')} of {amount(least, ',')} or more"
        found.append((f"best {100 * BEST:.0f} % of steps", words))
    return found


def best_share(returns: FloatArray, lengths: FloatArray, share: float = BEST) -> tuple[float, int]:
    """(least return, number) of the best episodes that hold at most this share of the steps, and one at least."""
    order = np.argsort(-returns, kind="stable")
    count = max(int((np.cumsum(lengths[order]) <= share * lengths.sum()).sum()), 1)
    return float(returns[order[count - 1]]), count


def _histogram(dataset: str, returns: FloatArray, lengths: FloatArray) -> Markup:
    counts, edges = np.histogram(returns, bins=BINS)
    shares = counts / counts.sum()
    plot = Plot(
        f"Histogram of {len(returns):,} returns of {dataset}: from {amount(float(returns.min()), ',')} to "
        f"{amount(float(returns.max()), ',')}, mean {amount(float(returns.mean()), ',')}.",
        Axis("return of an episode", float(edges[0]), float(edges[-1])),
        Axis.over("share of episodes", shares.tolist(), zero=True),
    )
    plot.bars(edges.tolist(), shares.tolist(), "own", "episodes")
    plot.rule(float(returns.mean()), "c2", "mean")
    plot.rule(best_share(returns, lengths)[0], "data", f"the best {100 * BEST:.0f} % of steps begin here")
    return plot.html()


def _quantiles(returns: FloatArray, reference: Reference | None) -> list[tuple[str, str]]:
    """Least, quartiles and most, with normalized scores if there is a reference."""
    found = []
    for name, share in (("least", 0.0), ("25 %", 0.25), ("median", 0.5), ("75 %", 0.75), ("90 %", 0.9), ("most", 1.0)):
        value = float(np.quantile(returns, share))
        score = "" if reference is None else f" (score {fixed(float(normalized_score(value, reference)), 1)})"
        found.append((name, f"{amount(value, ',')}{score}"))
    return found
