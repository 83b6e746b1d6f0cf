"""`agentzoo list --remote`."""

from __future__ import annotations

from rich.table import Table

from agentzoo.cli.console import console, errors_console, plain, print_json, print_listing
from agentzoo.text import amount


def list_remote(author: str | None, token: str | None, as_json: bool) -> None:
    """Print the agents on a Hub as a table or as JSON."""
    from agentzoo.hub.listing import remote_agents

    with errors_console.status("asking the Hub"):
        found = remote_agents(author, token)
    if as_json:
        print_json([one.model_dump() for one in found])
        return
    if not found:
        console.print("no agents; a repo is found by `library_name: agentzoo` in its card.")
        return
    table = Table("repo", "score", "return", "measured (from its card)", "downloads", title="agents on the Hub")
    for one in found:
        score = "" if one.score is None else f"{one.score:g}"
        reached = "" if one.mean_return is None else amount(one.mean_return)
        table.add_row(plain(one.repo_id), score, reached, plain(one.metric or ""), str(one.downloads or ""))
    print_listing(table)
