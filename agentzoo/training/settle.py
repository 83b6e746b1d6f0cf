"""Choices that a run makes before its first update and stores in `train_config.json`: precision, data, devices."""

from __future__ import annotations

from pathlib import Path

import torch

from agentzoo.data.episodes import Episodes
from agentzoo.errors import StorageError, TrainingError
from agentzoo.recipe import Recipe, Stretch, differences, there_and_asked
from agentzoo.record import read_record
from agentzoo.store.files import CONFIG, RECIPE, WEIGHTS, remove_unfinished, write_atomic
from agentzoo.store.locate import require_own
from agentzoo.training import state
from agentzoo.training.lock import GRID_LOCK, LOCK
from agentzoo.training.log import drop_evaluations, read_log
from agentzoo.training.machine import device_name, pick_precision
from agentzoo.training.run import BEST

HELD_OUT = 0.05  # share of the episodes, if the recipe does not set it
MIN_EPISODES = 20  # with fewer episodes nothing is held out
# fields whose change leaves the returns of short evaluations comparable
SAME_KIND = {"eval.episodes", "eval.every", "eval.every_episodes", "eval.reference", "eval.target_rule"}


def with_precision(recipe: Recipe, folder: Path, device: str | None) -> Recipe:
    """The recipe with a definite `train.precision`: that of the run in `folder`, else the fastest of this machine."""
    if recipe.train.precision != "auto":
        return recipe
    found = _begun(folder)
    kept = "auto" if found is None else found.train.precision
    settled = {"precision": pick_precision("auto", device) if kept == "auto" else kept}
    return recipe.replace(train=recipe.train.model_copy(update=settled))


def with_data(recipe: Recipe, folder: Path, episodes: Episodes) -> Recipe:
    """The recipe with the share of held-out episodes and the hash of the data.

    Args:
        episodes: the whole dataset.

    Raises:
        TrainingError: the run in `folder`, or the recipe, has other data under the same name.
    """
    found, data = _begun(folder), recipe.data
    if data.held_out is None:
        share = None if found is None else found.data.held_out
        if share is None:
            share = HELD_OUT if len(episodes.best(data.best_fraction).lengths) >= MIN_EPISODES else 0.0
        data = data.model_copy(update={"held_out": share})
    same = found is not None and found.data.dataset == data.dataset and found.data.obs_keys == data.obs_keys
    pinned = found.data.dataset_sha256 if found is not None and same else data.dataset_sha256
    read = episodes.sha256()
    if pinned is not None and pinned != read:
        whose = f"the run in {folder} began with" if same else "the recipe was made with"
        instead = "start again in another --out" if same else "accept the new data: --set data.dataset_sha256=null"
        raise TrainingError(
            f"the dataset {data.dataset!r} has changed: its arrays have sha256 {read[:12]}..., but {whose} "
            f"{pinned[:12]}.... Restore the old data, or {instead}."
        )
    return recipe.replace(data=data.model_copy(update={"dataset_sha256": read}))


def claim(folder: Path, recipe: Recipe, writes: bool = False) -> None:
    """Check that the folder is empty or holds this recipe's run. `writes`: store the recipe there.

    The recipe may differ from that of the run in the folder, depending on how far it came:

        no update saved or logged: in everything
        unfinished: in `eval.*`, or in nothing if `train.patience` lets evaluations end the run
        finished: in `eval.every=0`, so that a grid whose evaluations fail can go on; the stored recipe stays

    If the new evaluations of an unfinished run are of another kind, its best checkpoint and its logged evaluations are
    deleted.

    Raises:
        TrainingError: it holds a staged agent, weights without a recipe, or a run of another recipe; the message names
            the difference. StorageError: it holds another agent, or a backbone, or is a file.
    """
    if folder.exists() and not folder.is_dir():
        raise StorageError(f"{folder} is a file; a run is a folder. Choose another --out.")
    require_own(folder, recipe.agent_id)
    if writes:
        remove_unfinished(folder)
    found = _begun(folder)
    if found is not None:
        differing = differences(found, recipe)
        finished = (folder / WEIGHTS).exists()
        if finished:
            free = ["eval.every"] if recipe.eval.every == 0 else []
        else:
            free = [] if recipe.train.patience else [name for name in differing if name.startswith("eval.")]
        changed = {name: values for name, values in differing.items() if name not in free}
        if changed:
            raise TrainingError(
                f"{folder} holds a run of {found.agent_id!r} with another recipe ({there_and_asked(changed)}). "
                "Choose another --out, or delete it."
            )
        if finished and not (folder / state.CHECKPOINT).exists():
            raise TrainingError(
                f"{folder} holds a trained {found.agent_id!r} but no {state.CHECKPOINT} to continue from; training "
                "would start again and overwrite it. Choose another --out."
            )
        if writes and free and not finished:
            if not SAME_KIND.issuperset(free):
                (folder / BEST).unlink(missing_ok=True)
                drop_evaluations(folder)
            write_atomic(folder / RECIPE, found.replace(eval=recipe.eval).to_json())
        return
    others = [name for name in (WEIGHTS, CONFIG, state.CHECKPOINT) if (folder / name).exists()]
    if others:
        raise TrainingError(
            f"{folder} holds {', '.join(others)} but no {RECIPE}: training cannot continue from them and would "
            "overwrite them. Choose another --out."
        )
    if writes:
        write_atomic(folder / RECIPE, recipe.replace(ran=()).to_json())


def _has_no_update(folder: Path) -> bool:
    """Whether a run was started here that has neither saved nor logged an update."""
    if not any((folder / name).exists() for name in (LOCK, GRID_LOCK)):
        return False  # the recipe is the user's own file
    saved = any((folder / name).exists() for name in (WEIGHTS, state.CHECKPOINT, BEST))
    return not saved and not read_log(folder)


def record_stretch(folder: Path, recipe: Recipe, step: int, devices: list[str]) -> Recipe:
    """Store the devices and precision from update `step` on, if they changed.

    Args:
        devices: the device of every process, in their order.

    Returns:
        The stored recipe.
    """
    found = _stored(folder)
    stored = recipe if found is None else found
    new = Stretch(
        from_update=step,
        processes=len(devices),
        devices=tuple(dict.fromkeys(device_name(device) for device in devices)),
        precision="bf16" if recipe.train.precision == "bf16" else "fp32",
        threads=torch.get_num_threads(),
        torch=str(torch.__version__),
    )
    kept = [one for one in stored.ran if one.from_update < step]
    if not kept or kept[-1].model_copy(update={"from_update": step}) != new:
        kept.append(new)
    stored = stored.replace(ran=tuple(kept[-1_000:]))
    write_atomic(folder / RECIPE, stored.to_json())
    return stored


def run_to_continue(named: str) -> Path | None:
    """The folder `named` if it is a run with a checkpoint or without weights. A staged agent is trained elsewhere."""
    folder = Path(named)
    is_run = (folder / state.CHECKPOINT).is_file() or not (folder / WEIGHTS).exists()
    return folder if (folder / RECIPE).is_file() and is_run else None


def _begun(folder: Path) -> Recipe | None:
    """The recipe of the run in `folder`; None without a run, and if it made no update."""
    return None if _has_no_update(folder) else _stored(folder)


def _stored(folder: Path) -> Recipe | None:
    path = folder / RECIPE
    return read_record(Recipe, path) if path.exists() else None
