"""`live.html` and the folder `live/`: scripts, npm libraries, scenes, networks. Nothing loads until play is pressed.

MuJoCo's WebAssembly build simulates, ONNX Runtime Web runs the exported network and three.js draws. mjswan combines the
same three, but its builder (0.12.3) downloads its own Node and pins another MuJoCo than ours, and DoorKey, asked
returns and goals would need our own code there too.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from markupsafe import Markup

from agentzoo.envs import DOORKEY
from agentzoo.errors import AgentzooError, ConfigError, printable
from agentzoo.site.entries import Entry, Zoo
from agentzoo.site.live.networks import write_network
from agentzoo.site.live.npm import packages, unpack
from agentzoo.site.live.scenes import Scene, misread, scene_of
from agentzoo.site.media import POSTER
from agentzoo.site.numbers import unit_of
from agentzoo.site.render import Parts, page, static
from agentzoo.store.files import write_atomic

PAGE, FOLDER = "live.html", "live"
MAX_BYTES = 45_000_000  # that a visitor loads for one agent, libraries included
SCRIPTS = ("live.js", "player.js", "environments.js", "acting.js", "drawing.js", "grid.js")


class Playable(NamedTuple):
    """An agent of the page: facts for the script, and its option in the list."""

    entry: Entry
    facts: dict[str, Any]


def write_live(zoo: Zoo, folder: Path, parts: Parts, on_progress: Callable[[str], None]) -> None:
    """Write the page and its files into the folder of a site.

    Raises:
        ConfigError: no agent can be shown. HubError: npm's registry does not answer.
    """
    place = folder / FOLDER
    place.mkdir()
    unpack(place, on_progress)
    for name in SCRIPTS:
        write_atomic(place / name, static(f"live/{name}"))
    playable, problems = _agents(zoo, place, on_progress)
    if not playable:
        reasons = "; ".join(problems) or "no agent plays Hopper, HalfCheetah, Walker2d, PointMaze or DoorKey"
        raise ConfigError(f"--live has nothing to show: {reasons}.")
    write_atomic(folder / PAGE, live_page(playable, problems, parts))


def live_page(playable: Sequence[Playable], problems: Sequence[str], parts: Parts) -> str:
    """The page."""
    groups: dict[str, list[Entry]] = {}
    for one in playable:
        groups.setdefault(one.entry.env, []).append(one.entry)
    facts = json.dumps({one.entry.slug: one.facts for one in playable}, allow_nan=False)
    return page(
        "live.html.j2",
        "Live · agentzoo",
        PAGE,
        parts=parts,
        groups=groups,
        facts=Markup(facts.replace("<", "\\u003c")),  # so that no tag can start in it
        problems=problems,
    )


def _agents(zoo: Zoo, place: Path, on_progress: Callable[[str], None]) -> tuple[list[Playable], list[str]]:
    """Scenes and networks of all agents whose environment the page simulates; the best of each environment first."""
    scenes: dict[str, tuple[str, Scene] | None] = {}
    found, problems = [], []
    for entry in sorted(zoo.entries, key=by_merit):
        options = dict(entry.recipe.eval.env_options)
        try:
            key = json.dumps([entry.env, options])
            if key not in scenes:
                scene = scene_of(entry.env, options)
                scenes[key] = None if scene is None else (_write_scene(scene, place, len(scenes)), scene)
            if (known := scenes[key]) is None:
                continue
            name, scene = known
            if (problem := misread(scene, entry.config.io.observation.keys)) is not None:
                problems.append(f"{printable(entry.agent_id)}: {problem}")
                continue
            on_progress(f"the network of {entry.agent_id}")
            network = f"{entry.slug}.onnx"
            facts = write_network(entry.folder, place / network)
            if (problem := _too_large(place, place / network)) is not None:
                (place / network).unlink()
                problems.append(f"{printable(entry.agent_id)}: {problem}")
                continue
        except AgentzooError as error:
            problems.append(f"{printable(entry.agent_id)}: {error}")
            continue
        recurrent = facts["memory"] is not None
        number, unit = entry.measure("recurrent" if recurrent else "window")
        way = ", acting from its memory as it does here" if recurrent else ""
        facts |= {"id": entry.agent_id, "env": entry.env, "scene": name, "network": network}
        facts["scene_kind"] = "grid" if entry.env == DOORKEY else "world"
        poster = f"agents/{entry.slug}/{POSTER}"
        facts["poster"] = poster if (place.parent / poster).is_file() else None
        facts |= {"page": f"agents/{entry.slug}.html", "measured": f"{number} {unit}{way}"}
        found.append(Playable(entry, facts))
    return found, problems


def _too_large(place: Path, network: Path) -> str | None:
    """Why a network is too much for a visitor, if it is."""
    libraries = sum((place / name).stat().st_size for package in packages() for name in package.files.values())
    size = network.stat().st_size
    if libraries + size <= MAX_BYTES:
        return None
    return (
        f"its network has {size / 1e6:.0f} MB and the libraries {libraries / 1e6:.0f} MB, more than the "
        f"{MAX_BYTES / 1e6:.0f} MB that this page may load."
    )


def by_merit(entry: Entry) -> tuple[str, bool, float, float, str]:
    """Environments by name, in each the best first: by score, else by return, of equal ones by the steps to a goal.

    Not measured ones are last.

    The numbers are those of an agent's own weights, which play here, not the mean of several trainings.
    """
    head, unit = entry.head, unit_of(entry)
    if head is None:
        return entry.env.lower(), True, 0.0, 0.0, entry.agent_id
    reached = -(head.mean_return if head.score is None else head.score)
    return entry.env.lower(), False, reached, head.mean_length if unit == "steps" else 0.0, entry.agent_id


def _write_scene(scene: Scene, place: Path, number: int) -> str:
    name = f"scene-{number}.json"
    write_atomic(place / name, json.dumps(scene, allow_nan=False))
    return name
