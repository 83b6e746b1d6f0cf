"""`agentzoo site`: the zoo as a static site. Heavy imports happen inside."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from agentzoo.cli.console import console, errors_console, plain, print_json
from agentzoo.cli.options import JsonOption


def site(
    out: Annotated[Path, typer.Argument(metavar="OUT", help="New folder, or one that holds a site.")],
    zoo: Annotated[Path | None, typer.Option("--zoo", help="Folder of staged agents. Default: the local zoo.")] = None,
    baselines: Annotated[
        list[Path] | None,
        typer.Option("--baselines", help="Rows of simpler methods. Default: the zoo's baselines.json."),
    ] = None,
    docs: Annotated[bool, typer.Option("--docs", help="With documentation. Needs a checkout, the extra docs.")] = False,
    open_: Annotated[bool, typer.Option("--open", help="Open it in a browser.")] = False,
    as_json: JsonOption = False,
) -> None:
    """The zoo as a static site: films, scores, recipes, a leaderboard, datasets. Nothing is measured or fetched.

    The folder can be opened from disk, and is a static Space of the Hub or a GitHub page as it is.
    """
    from agentzoo.errors import ConfigError
    from agentzoo.site.build import build_site
    from agentzoo.store.locate import local_zoo

    folder = zoo or local_zoo()
    if folder is None:
        raise ConfigError("there is no local zoo here; name a folder of agents with --zoo.")
    missing = [path for path in baselines or () if not path.is_file()]
    if missing:
        raise ConfigError(f"there is no file {missing[0]}.")
    with errors_console.status("reading") as status:
        built = build_site(out, folder, baselines or (), docs, lambda what: status.update(plain(what)))
    for name in built.unreadable:
        errors_console.print(f"could not be read, and is named on the page: {plain(name)}", highlight=False)
    if as_json:
        print_json(built._asdict())
    else:
        console.print(
            f"{plain(built.folder / 'index.html')}: {built.agents} agents, {built.files} files, "
            f"{built.bytes / 1e6:.1f} MB",
            highlight=False,
            soft_wrap=True,
        )
    if open_:
        typer.launch((built.folder / "index.html").as_uri())
