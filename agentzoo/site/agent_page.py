"""`agents/<id>.html`: everything about one agent."""

from __future__ import annotations

import json
from statistics import fmean
from typing import Any, NamedTuple

from markupsafe import Markup
from pydantic_core import PydanticUndefined

from agentzoo.envs.env_options import trust_flags
from agentzoo.site.cardtext import as_html, body_of, section_of
from agentzoo.site.curves import asked_and_achieved, log_table, training_curves
from agentzoo.site.entries import Entry
from agentzoo.site.index_page import PAGE as INDEX
from agentzoo.site.markup import element
from agentzoo.site.media import Media
from agentzoo.site.numbers import axis_of, marks, unit_of
from agentzoo.site.plot import forest
from agentzoo.site.render import NO_PARTS, Parts, page
from agentzoo.text import amount, counted, duration
from agentzoo.types import Config

VERDICTS = {"beats": "It beats", "ties": "It ties with", "loses": "It loses to"}


class RecipeField(NamedTuple):
    """A field of the recipe."""

    name: str
    value: str
    default: str
    differs: bool


class ShownStudy(NamedTuple):
    """A study, with its picture's text alternative."""

    title: str
    picture: str | None
    alt: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str


def agent_page(
    entry: Entry, media: Media, before: Entry | None = None, after: Entry | None = None, parts: Parts = NO_PARTS
) -> str:
    """The page of one agent, in `agents/`.

    Args:
        before, after: the agents that its last line links to.
    """

    def address(link: str) -> str | None:
        return f"{entry.slug}/{link}" if link in media.names else None

    number, unit = entry.measure()
    interval, rows = entry.interval_in_words(), marks(entry)
    measured = unit_of(entry)
    return page(
        "agent.html.j2",
        f"{entry.agent_id} · agentzoo",
        INDEX,
        "../",
        parts=parts,
        entry=entry,
        media=media,
        number=number,
        unit=unit,
        interval=f"95 %: {interval}" if interval else "",
        lead=_lead(entry),
        facts=_facts(entry),
        commands=commands(entry),
        forest=forest(rows, axis_of(rows, measured), _caption(entry)) if rows else None,
        score_notes=_score_notes(entry, address),
        asked=asked_and_achieved(entry),
        curves=training_curves(entry),
        evaluations=log_table(entry),
        recipe=recipe_tables(entry),
        limits=as_html(section_of(entry.card, "Limits"), address),
        studies=_studies(entry, media),
        card=as_html(body_of(entry.card), address, heading=3),
        before=before,
        after=after,
    )


def _lead(entry: Entry) -> str:
    """Two sentences: what the agent is, and whether it beats bc."""
    words = f"A {entry.title} agent that learned offline from {entry.dataset}"
    words += f", fine-tuned from {entry.recipe.base}." if entry.recipe.base else "."
    if entry.compared is None:
        return words if entry.is_clone else f"{words} It is not compared with behaviour cloning (bc)."
    found = entry.compared.score or entry.compared.returns
    kind = "score" if entry.compared.score else "return"
    return (
        f"{words} {VERDICTS[entry.compared.verdict]} behaviour cloning (bc): the difference in {kind} is "
        f"{amount(found.difference)} [{amount(found.low)}, {amount(found.high)}]."
    )


def _facts(entry: Entry) -> list[tuple[str, str]]:
    head, results = entry.head, entry.results
    steps = entry.config.history or entry.config.io.context
    found = [("reads", counted(steps, "step")), ("target return", f"{entry.config.target_return:,g}")]
    if head is not None:
        found.append(("return", entry.return_in_words()))
        length = fmean(one.mean_length for one in entry.trainings)
        found.append(("episodes", f"{sum(one.episodes for one in entry.trainings)}, {length:,.0f} steps long"))
    if results is not None:
        found.append(("mean return of the data", amount(results.dataset.mean_return, ",")))
        found.append(("training seeds", str(len(entry.trainings))))
        found.append(("parameters", f"{results.training.parameters:,}"))
        found.append(("training", f"{counted(entry.updates, 'update')}, {duration(results.training.seconds)}"))
    return [*found, ("license", entry.config.license)]


def commands(entry: Entry) -> list[tuple[str, str]]:
    """Three commands to copy."""
    name, trust = entry.agent_id, trust_flags(entry.config.env, entry.config.env_options)
    return [
        ("Watch it", f"agentzoo enjoy {name}{trust}"),
        ("Fine-tune it", f"agentzoo finetune {name} --dataset YOUR/DATASET-v0 --steps 3000{trust}"),
        ("Check its numbers", f"agentzoo hub verify {name}{trust}"),
    ]


def _caption(entry: Entry) -> str:
    head = entry.head
    assert head is not None
    words = f"{entry.env}, {counted(head.episodes, 'episode')}, target return {head.target_return:,g}. "
    words += "Lines are 95 % intervals"
    if entry.published:
        words += (
            ", of published numbers the spread that the paper prints; those are not comparable one to one, see the card"
        )
    return f"{words}."


def _score_notes(entry: Entry, address: Any) -> Markup:
    """The card's tables of scores and how they were measured."""
    return element(
        "details",
        element("summary", "Results, as on the card"),
        as_html(section_of(entry.card, "How good is it"), address, 3),
    )


def recipe_tables(entry: Entry) -> list[tuple[str, list[RecipeField]]]:
    """The recipe by section, with the defaults of its classes."""
    recipe = entry.recipe
    sections: tuple[tuple[str, Config], ...] = (
        ("model", recipe.model),
        ("data", recipe.data),
        ("train", recipe.train),
        ("eval", recipe.eval),
    )
    return [(name, list(_fields(part))) for name, part in sections]


def _fields(part: Config) -> list[RecipeField]:
    found = []
    values: dict[str, Any] = json.loads(part.model_dump_json())
    for name, field in type(part).model_fields.items():
        if name not in values:
            continue
        default = field.get_default(call_default_factory=True, validated_data={})
        known = default is not PydanticUndefined
        plain = json.loads(json.dumps(default, default=str)) if known else None
        default = _say(plain) if known else ""
        found.append(
            RecipeField(name, _say(values[name]), default, known and name != "family" and plain != values[name])
        )
    return found


def _say(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.6g}"
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "–"}[value]
    return f"{value:,}" if isinstance(value, int) else value if isinstance(value, str) else json.dumps(value)


def _studies(entry: Entry, media: Media) -> list[ShownStudy]:
    found = entry.results.studies if entry.results else ()
    return [
        ShownStudy(
            one.title,
            one.picture if one.picture in media.names else None,
            f"{one.title}, drawn." + (" The table below has the numbers." if one.rows else f" {one.note}"),
            one.columns,
            one.rows,
            one.note,
        )
        for one in found
    ]
