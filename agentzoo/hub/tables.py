"""The zoo as Markdown: every agent for `hub_cards/README.md`, the best ones for the README."""

from __future__ import annotations

from agentzoo.errors import CheckpointError, ConfigError
from agentzoo.evaluation.baselines import CLONE
from agentzoo.hub.overview import Summary
from agentzoo.hub.zoo import summaries
from agentzoo.text import amount

HEAD = "agent | environment | score (95 %) | return | its data's | minutes |"
RULE = "---|---|---:|---:|---:|---:|"


def markdown_table() -> str:
    """Every staged agent; the agents link to their cards, as seen from `hub_cards/`.

    Raises:
        CheckpointError: an agent's folder cannot be read; a table without it would not be missed.
    """
    lines = [f"| {HEAD} asked for | trained on | updates |", f"|{RULE}---:|---|---:|"]
    for one in _staged():
        lines.append(f"{_row(one, '{}/README.md')} {one.target:,g} | `{one.dataset or ''}` | {one.steps:,} |")
    return "\n".join(lines)


def best_table() -> str:
    """The best staged agent of each environment and family, by score or, where there is none, by return.

    The memoryless clone of an agent's data stands in the agent's own row.

    Raises:
        CheckpointError: as `markdown_table`.
    """
    best: dict[tuple[str, str], Summary] = {}
    clones: dict[str | None, str] = {}
    for one in _staged():
        if one.family == CLONE:
            clones[one.dataset] = one.shown_score() or amount(one.mean_return or 0.0, ",")
            continue
        key = (one.env or "", one.family or "")
        if key not in best or _merit(one) > _merit(best[key]):
            best[key] = one
    rows = [f"{_row(best[key], 'hub_cards/{}')} {clones.get(best[key].dataset, '')} |" for key in sorted(best)]
    return "\n".join([f"| {HEAD} `{CLONE}` |", f"|{RULE}---:|", *rows])


TABLES = {
    ("<!-- zoo: `agentzoo list --into hub_cards/README.md` writes this table -->", "<!-- /zoo -->"): markdown_table,
    ("<!-- best of the zoo: `agentzoo list --into README.md` writes this table -->", "<!-- /best of the zoo -->"): (
        best_table
    ),
}


def with_table(text: str) -> str:
    """`text` with the table between two marks made again.

    Raises:
        ConfigError: no pair of marks is there, in order.
    """
    for (first, last), make in TABLES.items():
        before, found, rest = text.partition(first)
        _, closed, after = rest.partition(last)
        if found and closed:
            return f"{before}{first}\n{make()}\n{last}{after}"
    pairs = ", or ".join(f"{first} and {last}" for first, last in TABLES)
    raise ConfigError(f"the file needs the two lines {pairs}; the table goes between them.")


def _staged() -> list[Summary]:
    found = summaries()
    for one in found:
        if one.problem is not None:
            raise CheckpointError(f"{one.agent_id} cannot be read: {one.problem}")
    return [one for one in found if one.staged]


def _merit(one: Summary) -> tuple[float, float]:
    lowest = float("-inf")
    return (lowest if one.score is None else one.score, lowest if one.mean_return is None else one.mean_return)


def _row(one: Summary, link: str) -> str:
    cells = (
        f"[`{one.agent_id}`]({link.format(one.agent_id)})",
        f"`{one.env or ''}`",
        one.shown_score(),
        "" if one.mean_return is None else amount(one.mean_return, ","),
        "" if one.data_return is None else amount(one.data_return, ","),
        "" if one.seconds is None else f"{one.seconds / 60:.0f}",
    )
    return "| " + " | ".join(cells) + " |"
