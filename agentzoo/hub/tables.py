"""Markdown tables of the zoo: all agents for `hub_cards/README.md`, the best ones for the README."""

from __future__ import annotations

from agentzoo.errors import CheckpointError, ConfigError
from agentzoo.hub.overview import Summary
from agentzoo.hub.zoo import summaries
from agentzoo.registry import CLONE, is_clone
from agentzoo.text import amount, fixed

HEAD = "score (95 %) | return | seeds |"
RULE = "---|---|---:|---:|---:|"
FAMILIES = 5  # rows of an environment in the README


def markdown_table() -> str:
    """A table of all staged agents, with links to their cards relative to `hub_cards/`.

    Raises:
        CheckpointError: an agent's folder cannot be read; no agent may silently be missing from the table.
    """
    lines = [f"| agent | environment | {HEAD} minutes | data | target | trained on | updates |"]
    lines.append(f"|{RULE}---:|---:|---:|---|---:|")
    for one in _staged():
        data = "" if one.data_return is None else amount(one.data_return, ",")
        target = "" if is_clone(one.family) else f"{one.target:,g}"
        ends = f"{_minutes(one)} | {data} | {target} | `{one.dataset or ''}` | {one.steps:,} |"
        name = f"[`{one.agent_id}`]({one.agent_id}/README.md)"
        lines.append(f"| {name} | {one.env or ''} | {_measured(one)} {ends}")
    return "\n".join(lines)


def best_table() -> str:
    """A table of each environment's best families, at most `FAMILIES` of them, each with its best staged agent.

    The best has the highest score, without scores the highest return, of equal returns the fewest steps to its goal.
    An environment is named in its first row. The score of behaviour cloning on the same dataset is in the last column.

    Raises:
        CheckpointError: as `markdown_table`.
    """
    best: dict[tuple[str, str], Summary] = {}
    for one in (found for found in _staged() if not is_clone(found.family)):
        key = (one.env or "", one.family or "")
        if key not in best or _merit(one) > _merit(best[key]):
            best[key] = one
    by_env = {env: sorted((key for key in best if key[0] == env), key=lambda key: _merit(best[key])) for env, _ in best}
    keys = sorted(key for found in by_env.values() for key in found[-FAMILIES:])
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


def _merit(one: Summary) -> tuple[float, float, float]:
    lowest = float("-inf")
    score, reached = one.typical_score(), one.typical_return()
    steps = 0.0 if one.steps_to_goal is None else one.steps_to_goal
    return (lowest if score is None else score, lowest if reached is None else reached, -steps)


def _clone(one: Summary) -> str:
    """The mean score of behaviour cloning on the same data, else its mean return."""
    if one.clone is None:
        return ""
    score = one.clone.typical_score()
    return _return(one.clone) if score is None else fixed(score, 1)


def _measured(one: Summary) -> str:
    """The cells of `HEAD`."""
    return f"{one.shown_score()} | {_return(one)} | {len(one.seeds) or ''} |"


def _return(one: Summary) -> str:
    """`3,090`, or `1.00 in 68` steps where an episode ends at its goal."""
    reached = one.typical_return()
    if reached is None:
        return ""
    return amount(reached, ",") + ("" if one.steps_to_goal is None else f" in {one.steps_to_goal:.0f}")


def _minutes(one: Summary) -> str:
    return "" if one.seconds is None else f"{one.seconds / 60:.0f}{' (GPU)' if one.on_gpu else ''}"
