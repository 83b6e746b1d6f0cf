"""A run in W&B, trackio or TensorBoard, through accelerate. A resumed run continues the same tracker run."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from agentzoo.errors import CheckpointError
from agentzoo.recipe import Recipe
from agentzoo.store.files import write_atomic

TRACKING = "tracking.json"  # in the run's folder


@dataclass(frozen=True)
class Tracking:
    """The trackers of a run. A field that is None comes from the run's last start, else from the recipe.

    trackers: "tensorboard", "wandb", "trackio". project: by default the agent's id. run_name: by default
    `<agent>-s<seed>`. group, tags: as in the tracker; TensorBoard has neither. run_id: drawn once and stored in the
    folder.
    """

    trackers: tuple[str, ...] = ()
    project: str | None = None
    run_name: str | None = None
    group: str | None = None
    tags: tuple[str, ...] | None = None
    run_id: str | None = None

    def settled(self, recipe: Recipe, folder: Path) -> Tracking:
        """All fields filled in, from the last start of the run in `folder`, else from the recipe."""
        kept = _stored(folder)
        tags = self.tags if self.tags is not None else kept.tags
        return Tracking(
            trackers=self.trackers,
            project=self.project or kept.project or recipe.agent_id,
            run_name=self.run_name or kept.run_name or f"{recipe.agent_id}-s{recipe.train.seed}",
            group=self.group or kept.group,
            tags=tags or (),
            run_id=kept.run_id or secrets.token_hex(4),
        )


@contextmanager
def tracking(accelerator: Any, chosen: Tracking, recipe: Recipe, folder: Path, step: int = 0) -> Iterator[None]:
    """Start the trackers, with the whole recipe as their config; close them at the end, even after an error.

    Args:
        step: updates that the run resumes from.
    """
    if not chosen.trackers:
        yield
        return
    settled = chosen.settled(recipe, folder)
    if accelerator.is_main_process:
        write_atomic(folder / TRACKING, json.dumps(asdict(replace(settled, trackers=())), indent=1) + "\n")
    options = {name: _options(name, settled, folder, step) for name in settled.trackers}
    accelerator.init_trackers(settled.project, config=flat(json.loads(recipe.to_json())), init_kwargs=options)
    try:
        yield
    finally:
        for tracker in accelerator.trackers:  # `end_training` would leave the group of processes, too
            tracker.finish()


def flat(tree: Mapping[str, Any], prefix: str = "") -> dict[str, bool | int | float | str]:
    """`section.field` -> value, with the names of `--set`; lists as JSON, since TensorBoard takes plain values only."""
    found: dict[str, bool | int | float | str] = {}
    for name, value in tree.items():
        if isinstance(value, Mapping):
            found |= flat(value, f"{prefix}{name}.")
        elif isinstance(value, bool | int | float | str):
            found[prefix + name] = value
        else:
            found[prefix + name] = json.dumps(value)
    return found


def _options(name: str, chosen: Tracking, folder: Path, step: int) -> dict[str, Any]:
    """Keyword arguments of the tracker's `init`."""
    if name == "wandb":
        named = {"name": chosen.run_name, "group": chosen.group, "tags": list(chosen.tags or ())}
        where = {} if os.environ.get("WANDB_DIR") else {"dir": str(folder)}
        return {**named, **where, "id": chosen.run_id, "resume": "allow"}
    if name == "trackio":
        # trackio resumes a run by its name
        named = {"name": f"{chosen.run_name}-{chosen.run_id}", "group": chosen.group, "resume": "allow"}
        return {**named, "config": {"tags": ", ".join(chosen.tags)}} if chosen.tags else named
    return {"purge_step": step + 1} if step else {}  # rows after the checkpoint are logged again


def _stored(folder: Path) -> Tracking:
    path = folder / TRACKING
    if not path.is_file():
        return Tracking()
    try:
        found = json.loads(path.read_text())
        return Tracking(**{**found, "trackers": (), "tags": tuple(found["tags"] or ())})
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise CheckpointError(f"{path} cannot be read: {error}. Delete it to start a new tracker run.") from None
