"""Names and folders of datasets, without importing the code that reads or builds them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from agentzoo.errors import StorageError, UnknownNameError, did_you_mean

# names in `data.making.catalogue`; the datasets are called zoo/NAME-v0
LOCOMOTION = (
    *(
        f"{env}/{kind}"
        for env in ("hopper", "halfcheetah", "walker2d")
        for kind in ("medium", "medium-replay", "expert", "medium-expert")
    ),
    *("ant/medium", "ant/medium-replay"),
)
MAZES = tuple(f"pointmaze/{maze}" for maze in ("umaze", "medium", "large"))
MAZE2D = ("maze2d-dense/medium", "maze2d-dense/medium-heldout")
DOORKEY = tuple(f"doorkey/{part}" for part in ("train-50", "train-500", "train-1000", "heldout"))
CLASSIC = ("cartpole/mixed", "pendulum/mixed")
GAMES = tuple(f"{game}/replay" for game in ("boxing", "breakout", "freeway", "pong", "qbert", "seaquest"))
RECORDED = ("breakout/replay", "seaquest/replay")  # games whose actions are part of agentzoo; the others have no recipe
RECIPES = (*LOCOMOTION, *MAZES, *MAZE2D, *DOORKEY, *CLASSIC, *RECORDED)
_ID = re.compile(r"(?:[\w-]+/)*[\w-]+-v\d+")


def is_dataset_id(name: str) -> bool:
    """Whether this has the form of a Minari id, `NAMESPACE/NAME-v0` of letters, digits, - and _; Minari is stricter."""
    return _ID.fullmatch(name) is not None


def dataset_id(name: str) -> str:
    """The Minari id of `hopper/medium`, `zoo/hopper/medium-v0`; any other name is returned as it is."""
    return f"zoo/{name}-v0" if name in RECIPES else name


def datasets_root() -> Path:
    """Where Minari keeps datasets: `$MINARI_DATASETS_PATH`, else `~/.minari/datasets`.

    Raises:
        StorageError: there is no home folder.
    """
    root = os.environ.get("MINARI_DATASETS_PATH")
    try:
        return Path(root) if root else Path.home() / ".minari" / "datasets"
    except RuntimeError as error:
        raise StorageError(f"there is no folder of datasets: {error} Set MINARI_DATASETS_PATH.") from None


def is_local(dataset: str) -> bool:
    """Whether this machine has a folder of this dataset."""
    return is_dataset_id(dataset) and (datasets_root() / dataset / "data").is_dir()


def local_ids(root: Path | None = None) -> Iterator[str]:
    """The id of every dataset on this machine, or in another `root`, readable or not.

    Minari's own list omits datasets that it cannot read, and fails if the name of a folder is not an id.
    """
    root = datasets_root() if root is None else root
    for folder, names, _ in os.walk(root, followlinks=True):
        names[:] = sorted(name for name in names if not name.startswith("."))
        inside = Path(folder).relative_to(root)
        if inside.parts and os.path.realpath(folder) in {os.path.realpath(root / above) for above in inside.parents}:
            names.clear()  # a link back to a folder above
            continue
        found = inside.as_posix()
        if "data" in names and is_dataset_id(found):
            names.clear()  # no dataset lies inside a dataset
            yield found


def require_dataset_recipe(name: str) -> str:
    """The plain name of a dataset that `agentzoo data build` makes; `zoo/hopper/medium-v0` means `hopper/medium`.

    Raises:
        UnknownNameError: with the nearest known name.
    """
    plain = _plain(name)
    if plain not in RECIPES:
        raise UnknownNameError(f"no dataset recipe {name!r}.{did_you_mean(plain, RECIPES)} See `agentzoo data list`.")
    return plain


def require_possible(name: str) -> None:
    """Check that a name is a dataset on this machine or may be one on a remote.

    Raises:
        UnknownNameError: it is neither; with the nearest name, or the command that builds the dataset.
    """
    dataset = dataset_id(name)
    if "://" in name or is_local(dataset) or (is_dataset_id(dataset) and not dataset.startswith("zoo/")):
        return
    raise UnknownNameError(absent(dataset))


def absent(dataset: str) -> str:
    """An error message for a dataset that is not here: the nearest name, how to build it, or where to look."""
    plain = _plain(dataset)
    if plain in RECIPES:
        hint = f" Make it with `agentzoo data build {plain}`."
    elif plain in GAMES:
        game = plain.removesuffix("/replay")
        env = f"agentzoo/{game.capitalize()}-v5"
        hint = (
            f" Train a policy that keeps its steps, `agentzoo data behaviour {env} --threshold R`, and import them, "
            f"`agentzoo data import behaviour/{game}/replay --id {dataset} --env {env}`."
        )
    else:
        if (inside := _id_of_path(dataset)) is not None:
            return f"{dataset!r} is not a dataset's id. Did you mean {inside!r}?"
        elsewhere = " `agentzoo data list` shows what is there; MINARI_DATASETS_PATH names another folder."
        hint = did_you_mean(dataset, [*local_ids(), *RECIPES]) or elsewhere
    return f"no dataset {dataset!r} in {datasets_root()}.{hint}"


def _id_of_path(name: str) -> str | None:
    """The id of the local dataset whose folder is at the path `name`, if it is written in another way than its id."""
    root, path = (Path(os.path.normpath(each)) for each in (datasets_root(), datasets_root() / name))
    inside = path.relative_to(root).as_posix() if path.is_relative_to(root) else name
    return inside if inside != name and is_local(inside) else None


def _plain(name: str) -> str:
    """Inverse of `dataset_id`."""
    return name.removeprefix("zoo/").removesuffix("-v0")
