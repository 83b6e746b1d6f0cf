"""`index.html`: every agent with its film, its score and how it compares with behaviour cloning."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import fmean
from typing import NamedTuple

from markupsafe import Markup

from agentzoo.evaluation.baselines import CLONE, comparable
from agentzoo.site.entries import Entry, Zoo
from agentzoo.site.markup import element, percent
from agentzoo.site.media import Media
from agentzoo.site.render import NO_PARTS, Parts, page
from agentzoo.text import counted

PAGE = "index.html"
SORTS = (
    ("", "best first"),
    ("name", "name"),
    ("score", "score"),
    ("return", "return"),
    ("env", "environment"),
    ("family", "family"),
    ("dataset", "dataset"),
    ("bc", "beside bc"),
    ("seeds", "training seeds"),
    ("parameters", "parameters"),
    ("updates", "updates"),
)
COLUMNS = (  # a key of `Card.data`, the title, whether its cells are numbers
    ("name", "agent", False),
    ("family", "family", False),
    ("env", "environment", False),
    ("dataset", "dataset", False),
    ("score", "score (95 %)", True),
    ("return", "return (95 %)", True),
    ("bc", "beside bc", False),
    ("seeds", "seeds", True),
    ("parameters", "parameters", True),
    ("updates", "updates", True),
)
VERDICTS = {"beats": ("good", "beats bc"), "ties": ("even", "ties with bc"), "loses": ("bad", "loses to bc")}
ORDER = {"beats": 2, "ties": 1, "loses": 0}


class Card(NamedTuple):
    """One agent, as a card of the grid and as a row of the table.

    track: the bar of its score. verdict: CSS class and words. data: what `site.js` filters and sorts by. cells: its row
    of the table, without the name.
    """

    entry: Entry
    media: Media
    number: str
    unit: str
    interval: str
    track: Markup
    seeds: str
    verdict: tuple[str, str] | None
    data: Mapping[str, str]
    cells: tuple[str, ...]


def index_page(zoo: Zoo, media: Mapping[str, Media], parts: Parts = NO_PARTS) -> str:
    """The page's HTML, with a card and a row for every agent of the zoo."""
    cards = [_card(entry, media[entry.slug]) for entry in sorted(zoo.entries, key=_merit)]
    envs = sorted({one.env for one in zoo.entries} - {""})
    families = sorted({one.family for one in zoo.entries})
    datasets = sorted({one.dataset for one in zoo.entries})
    trainings = sum(len(entry.trainings) for entry in zoo.entries)
    episodes = sum(one.episodes for entry in zoo.entries for one in entry.trainings)
    return page(
        "index.html.j2",
        "agentzoo: the agents",
        PAGE,
        parts=parts,
        cards=cards,
        envs=envs,
        figures=[
            (len(cards), "agents"),
            (len(families), "families"),
            (trainings, "trainings measured"),
            (f"{episodes:,}", "episodes behind these scores"),
        ],
        filters=[("env", "Environment", envs), ("family", "Family", families), ("dataset", "Dataset", datasets)],
        sorts=SORTS,
        columns=COLUMNS,
        unreadable=zoo.unreadable,
    )


def _merit(entry: Entry) -> tuple[str, bool, float, str]:
    """Environments by name, in each the best first and those that were not measured last."""
    summary = entry.summary()
    score, reached = summary.typical_score(), summary.typical_return()
    value = score if score is not None else reached or 0.0
    return entry.env.lower(), reached is None, -value, entry.agent_id


def _card(entry: Entry, media: Media) -> Card:
    summary, (number, unit) = entry.summary(), entry.measure()
    score, reached = summary.typical_score(), summary.typical_return()
    verdict = entry.compared.verdict if entry.compared else None
    trainings = len(entry.trainings)  # 0 if it was not measured
    parameters = entry.results.training.parameters if entry.results else None
    data = {
        "name": entry.agent_id,
        "env": entry.env,
        "family": entry.family,
        "dataset": entry.dataset,
        "score": "" if score is None else f"{score:.4f}",
        "return": "" if reached is None else f"{reached:.6g}",
        "bc": "" if verdict is None else str(ORDER[verdict]),
        "seeds": str(trainings or ""),
        "parameters": "" if parameters is None else str(parameters),
        "updates": str(entry.updates),
        "text": " ".join((entry.agent_id, entry.title, entry.env, entry.dataset, entry.family)).lower(),
    }
    cells = (
        entry.family,
        entry.env,
        entry.dataset,
        summary.shown_score(),
        entry.return_in_words(),
        VERDICTS[verdict][1] if verdict else "",
        str(trainings or ""),
        "" if parameters is None else f"{parameters:,}",
        f"{entry.updates:,}",
    )
    return Card(
        entry,
        media,
        number,
        unit,
        entry.interval_in_words(),
        _track(entry),
        counted(trainings, "seed") if trainings else "",
        VERDICTS[verdict] if verdict else ("clone", "behaviour cloning") if entry.is_clone else None,
        data,
        cells,
    )


def _track(entry: Entry) -> Markup:
    """A bar of the mean score of its trainings, from 0 to 100, with the 95 % interval and a mark for bc."""
    summary = entry.summary()
    score, interval = summary.typical_score(), summary.score_interval()
    if entry.head is None or score is None or interval is None:
        return Markup()
    low, high = (value / 100.0 for value in interval)
    parts = [element("i", class_="fill", style=f"width:{percent(score / 100)}")]
    parts.append(element("i", class_="interval", style=f"left:{percent(low)};right:{percent(1 - high)}"))
    alike = comparable(entry.head, entry.rows)  # clones that played the same episodes, as in the verdict
    clones = [one.result.score for one in alike if one.method == CLONE and one.result.score is not None]
    if clones and not entry.is_clone:
        parts.append(element("i", class_="clone", style=f"left:{percent(fmean(clones) / 100)}"))
    return element("div", *parts, class_="meter", aria_hidden="true")
