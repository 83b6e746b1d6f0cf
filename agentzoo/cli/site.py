"""`agentzoo site`: the zoo as a static site. Heavy imports happen inside."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from agentzoo.cli.console import console, errors_console, plain, print_json
from agentzoo.cli.options import JsonOption
from agentzoo.text import counted


def site(
    out: Annotated[Path, typer.Argument(metavar="OUT", help="A new folder, or a folder that holds a site.")],
    zoo: Annotated[Path | None, typer.Option("--zoo", help="Folder of staged agents. Default: the local zoo.")] = None,
    baselines: Annotated[
        list[Path] | None,
        typer.Option("--baselines", help="Scores of simpler methods. Default: the zoo's baselines.json."),
    ] = None,
    docs: Annotated[
        bool, typer.Option("--docs", help="Add documentation. Needs a checkout and the extra docs.")
    ] = False,
    live: Annotated[
        bool, typer.Option("--live", help="Add a page that runs agents. Needs the extra export; fetches from npm.")
    ] = False,
    open_: Annotated[bool, typer.Option("--open", help="Open it in a browser.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Write the zoo as a static site: videos, scores, recipes, a leaderboard, datasets. Nothing is measured.

    Only --live fetches files. The folder can be opened from disk, or published unchanged as a static Space of the Hub
    or as GitHub Pages.
    """
    from agentzoo.errors import ConfigError
    from agentzoo.site.build_site import build_site
    from agentzoo.store.locate import local_zoo

    folder = zoo or local_zoo()
    if folder is None:
        raise ConfigError("there is no local zoo here; name a folder of agents with --zoo.")
    missing = [path for path in baselines or () if not path.is_file()]
    if missing:
        raise ConfigError(f"--baselines: there is no file {missing[0]}; pass the path of a baselines.json.")
    with errors_console.status("reading") as status:
        built = build_site(out, folder, baselines or (), docs, live, lambda what: status.update(plain(what)))
    for name in built.unreadable:
        errors_console.print(f"unreadable, and listed as such on the page: {plain(name)}", highlight=False)
    if as_json:
        print_json(built._asdict())
    else:
        console.print(
            f"{plain(built.folder / 'index.html')}: {counted(built.agents, 'agent')}, "
            f"{counted(built.files, 'file')}, {built.bytes / 1e6:.1f} MB",
            highlight=False,
            soft_wrap=True,
        )
    if open_:
        typer.launch((built.folder / "index.html").as_uri())
