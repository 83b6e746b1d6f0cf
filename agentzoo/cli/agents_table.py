"""What `agentzoo list` prints: the table of staged agents, or why it is empty."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.table import Table

from agentzoo.cli.console import console, fits, listing, plain, print_listing
from agentzoo.text import amount

if TYPE_CHECKING:
    from agentzoo.hub.overview import Summary


def matching(agents: Sequence[Summary], env: str | None, family: str | None) -> list[Summary]:
    """The agents of this environment and family; None is any."""
    return [one for one in agents if env in (None, one.env) and family in (None, one.family)]


def print_agents(agents: Sequence[Summary], env: str | None, family: str | None, all_: bool) -> None:
    """Print the staged ones of `agents` that match as a table, then backbones and what only has a recipe.

    Args:
        agents: the whole zoo and all packaged recipes.
        all_: also name those that only have a recipe.
    """
    from agentzoo.store.locate import staged_backbones

    known = matching(agents, env, family)
    rows = [one for one in known if one.staged or one.problem]
    table = _agents(rows)
    if not fits(table) and not any(one.problem for one in rows):
        table = _agents(rows, with_env=False)
    if rows:
        print_listing(table)
    elif known:
        console.print(f"no staged agent{_described(env, family)}")
    else:
        console.print(_nothing(agents, str(env), str(family)))
    if backbones := staged_backbones():
        console.print(f"backbones: {', '.join(map(plain, backbones))} (`agentzoo research inspect NAME`)")
    untrained = [one.agent_id for one in known if not one.staged and not one.problem]
    if all_ and untrained:
        console.print(f"recipes to train: {', '.join(map(plain, untrained))}")
    elif untrained:
        console.print(f"{len(untrained)}{' more' if rows else ''} have a recipe to train: `agentzoo list --all`")


def _described(env: str | None, family: str | None) -> str:
    of_family = "" if family is None else f" of family {plain(family)}"
    return of_family + ("" if env is None else f" for {plain(env)}")


def _nothing(agents: Sequence[Summary], env: str, family: str) -> str:
    """A line that says that no agent of a known family plays a known environment, and what each of them has."""
    envs = sorted({plain(one.env) for one in matching(agents, None, family) if one.env})
    families = sorted({plain(one.family) for one in matching(agents, env, None) if one.family})
    return (
        f"no agent{_described(env, family)}. {plain(family)} has agents for {', '.join(envs) or 'none'}; "
        f"{plain(env)} has agents of {', '.join(families)}."
    )


def _agents(found: list[Summary], with_env: bool = True) -> Table:
    table = listing("agent", "score (95 %)", "return", "seeds", "target", "updates")
    if with_env:
        table.add_column("environment", overflow="fold")
    for one in found:
        where = plain(f"unreadable: {one.problem}" if one.problem else one.env or "")
        table.add_row(
            plain(one.agent_id),
            one.shown_score(),
            "" if (reached := one.typical_return()) is None else amount(reached),
            str(len(one.seeds) or ""),
            "" if one.target is None else f"{one.target:g}",
            "" if one.steps is None else f"{one.steps:,}",
            *([where] if with_env else []),
        )
    return table
