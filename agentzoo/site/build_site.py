"""`agentzoo site`: writes all pages into one folder, whole or not at all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from agentzoo.errors import ConfigError, StorageError
from agentzoo.site.agent_page import agent_page
from agentzoo.site.dataset_page import PAGE as DATASETS
from agentzoo.site.dataset_page import EpisodePictures, datasets_page
from agentzoo.site.docs import build_docs
from agentzoo.site.entries import Entry, Zoo, read_zoo
from agentzoo.site.index_page import PAGE as INDEX
from agentzoo.site.index_page import index_page
from agentzoo.site.leaderboard_page import CSV, JSON, leaderboard_page
from agentzoo.site.leaderboard_page import PAGE as LEADERBOARD
from agentzoo.site.media import copy_media
from agentzoo.site.render import SCRIPT, STYLE, Parts, static
from agentzoo.site.replayed_frames import write_frames
from agentzoo.site.standings import as_csv, as_json, compare, standings
from agentzoo.store.files import staging, swap_in, write_atomic

MARK = ".agentzoo-site"  # marks a folder that may be replaced
SPACE = "README.md"  # makes the folder a static Space of the Hub
SPACE_TEXT = """---
title: agentzoo
emoji: 🦎
colorFrom: green
colorTo: yellow
sdk: static
app_file: index.html
pinned: false
license: mit
custom_headers:  # an isolated page, in which a network may use several threads
  cross-origin-embedder-policy: require-corp
  cross-origin-opener-policy: same-origin
  cross-origin-resource-policy: cross-origin
---

Made by `agentzoo site`.
"""


class Built(NamedTuple):
    """The result of a build."""

    folder: Path
    agents: int
    files: int
    bytes: int
    unreadable: tuple[str, ...]


def build_site(
    out: Path,
    zoo: Path,
    baselines: Sequence[Path] = (),
    docs: bool = False,
    live: bool = False,
    on_progress: Callable[[str], None] = lambda _: None,
) -> Built:
    """Make the site of a folder of agents. Nothing is measured, and only `live` fetches anything.

    Args:
        out: a new folder, or an earlier site, which is replaced.
        baselines: files like `baselines.json`; by default the one in `zoo`.
        docs: add the documentation, which needs a checkout and the extra `docs`.
        live: add the page that runs agents, which needs the extra `export` and, the first time, npm's registry.

    Raises:
        ConfigError: `zoo` is no folder or holds no agent, or an extra is missing. HubError: npm's registry does not
            answer, or sends something else. StorageError: `out` holds something else than a site, or cannot be written.
    """
    require_site_folder(out)
    if not zoo.is_dir():
        raise ConfigError(f"{zoo} is no folder of agents; name one with --zoo.")
    found = read_zoo(zoo, baselines)
    if not found.entries and not found.unreadable:
        raise ConfigError(f"{zoo} holds no agent (a folder each, with config.json and model.safetensors).")
    out = out.absolute()
    with staging(out.parent, ".site-") as place:
        new = place / (out.name or "site")
        new.mkdir()
        _write_pages(found, new, Parts(docs, live), on_progress)
        files = [path for path in new.rglob("*") if path.is_file()]
        size = sum(path.stat().st_size for path in files)
        try:
            swap_in(new, out)
        except OSError as error:
            raise StorageError(f"{out} was not written: {error}. What was there before is unchanged.") from error
    return Built(out, len(found.entries), len(files), size, tuple(one.name for one in found.unreadable))


def require_site_folder(out: Path) -> None:
    """Raise StorageError unless `out` is new, empty, or holds a site."""
    if out.exists() and (not out.is_dir() or (any(out.iterdir()) and not (out / MARK).is_file())):
        raise StorageError(f"{out} exists and holds no site made by `agentzoo site`; name a new folder.")


def _frames_in(folder: Path) -> Callable[[Entry, str], EpisodePictures | None]:
    return lambda entry, name: write_frames(entry, folder / "datasets" / name, f"datasets/{name}")


def _write_pages(zoo: Zoo, folder: Path, parts: Parts, on_progress: Callable[[str], None]) -> None:
    agents = folder / "agents"
    agents.mkdir()
    media = {}
    for entry in zoo.entries:
        on_progress(f"the film of {entry.agent_id}")
        media[entry.slug] = copy_media(entry, agents / entry.slug)
    ordered = sorted(zoo.entries, key=lambda one: (one.env.lower(), one.agent_id))
    for place, entry in enumerate(ordered):
        on_progress(f"the page of {entry.agent_id}")
        before = ordered[place - 1] if place else None
        after = ordered[place + 1] if place + 1 < len(ordered) else None
        write_atomic(agents / f"{entry.slug}.html", agent_page(entry, media[entry.slug], before, after, parts))
    write_atomic(folder / INDEX, index_page(zoo, media, parts))
    on_progress("the leaderboard")
    found = standings(zoo)
    comparison = compare(found)
    write_atomic(folder / LEADERBOARD, leaderboard_page(found, comparison, parts))
    write_atomic(folder / CSV, as_csv(found))
    write_atomic(folder / JSON, as_json(found, comparison))
    write_atomic(folder / DATASETS, datasets_page(zoo, _frames_in(folder), parts, on_progress))
    if parts.docs:
        pages = {one.agent_id: f"../agents/{one.slug}.html" for one in zoo.entries}
        build_docs(folder / "docs", pages, parts, on_progress)
    if parts.live:
        from agentzoo.site.live.page import write_live  # it loads PyTorch

        write_live(zoo, folder, parts, on_progress)
    for name in (STYLE, SCRIPT):
        write_atomic(folder / name, static(name))
    write_atomic(folder / SPACE, SPACE_TEXT)
    write_atomic(folder / ".nojekyll", "")  # else GitHub leaves out names with a leading underscore
    write_atomic(folder / MARK, "")
