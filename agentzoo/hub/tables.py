"""Markdown tables of the zoo: all agents for `hub_cards/README.md`, the best ones for the README."""

from __future__ import annotations

from agentzoo.errors import CheckpointError, ConfigError
from agentzoo.hub.overview import Summary
from agentzoo.hub.zoo import summaries
from agentzoo.registry import CLONE, is_clone
from agentzoo.text import amount, fixed

HEAD = "score (95 %) | return | seeds | minutes |"
RULE = "---|---|---:|---:|---:|---:|"


def markdown_table() -> str:
    """A table of all staged agents, with links to their cards relative to `hub_cards/`.

    Raises:
        CheckpointError: an agent's folder cannot be read; no agent may silently be missing from the table.
    """
    lines = [f"| agent | environment | {HEAD} data | target | trained on | updates |", f"|{RULE}---:|---:|---|---:|"]
    for one in _staged():
        data = "" if one.data_return is None else amount(one.data_return, ",")
        ends = f"{data} | {one.target:,g} | `{one.dataset or ''}` | {one.steps:,} |"
        name = f"[`{one.agent_id}`]({one.agent_id}/README.md)"
        lines.append(f"| {name} | {one.env or ''} | {_measured(one)} {ends}")
    return "\n".join(lines)


def best_table() -> str:
    """A table of the best staged agent of each environment and family, by score or, without scores, by return.

    An environment is named in its first row. The score of behaviour cloning on the same dataset is in the last column.

    Raises:
        CheckpointError: as `markdown_table`.
    """
    best: dict[tuple[str, str], Summary] = {}
    for one in (found for found in _staged() if not is_clone(found.family)):
        key = (one.env or "", one.family or "")
        if key not in best or _merit(one) > _merit(best[key]):
            best[key] = one
    keys = sorted(best)
    first = dict(reversed(keys))
    lines = [f"| environment | agent | {HEAD} `{CLONE}` |", f"|{RULE}---:|"]
    for env, family in keys:
        one = best[env, family]
        named = env if first[env] == family else ""
        lines.append(f"| {named} | `{one.agent_id}` | {_measured(one)} {_clone(one)} |")
    return "\n".join(lines)


TABLES = {
    ("<!-- zoo: `agentzoo list --into hub_cards/README.md` writes this table -->", "<!-- /zoo -->"): markdown_table,
    ("<!-- best of the zoo: `agentzoo list --into README.md` writes this table -->", "<!-- /best of the zoo -->"): (
        best_table
    ),
}


def with_table(text: str) -> str:
    """`text` with a new table between its two marks.

    Raises:
        ConfigError: the text has no pair of marks in order.
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
    score, reached = one.typical_score(), one.typical_return()
    return (lowest if score is None else score, lowest if reached is None else reached)


def _clone(one: Summary) -> str:
    """The mean score of behaviour cloning on the same data, else its mean return."""
    clone = one.clone
    if clone is None:
        return ""
    score = clone.typical_score()
    return amount(clone.typical_return() or 0.0, ",") if score is None else fixed(score, 1)


def _measured(one: Summary) -> str:
    """The cells of `HEAD`."""
    cells = (
        one.shown_score(),
        "" if (reached := one.typical_return()) is None else amount(reached, ","),
        str(len(one.seeds) or ""),
        "" if one.seconds is None else f"{one.seconds / 60:.0f}{' (GPU)' if one.on_gpu else ''}",
    )
    return " | ".join(cells) + " |"
