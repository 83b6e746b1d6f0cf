"""Provide a missing dataset for training: build it if possible, else raise an error with the command to run."""

from __future__ import annotations

from collections.abc import Callable

from agentzoo.data.fetching import restore_replaced
from agentzoo.data.making.build import build
from agentzoo.data.making.catalogue import recipe_of
from agentzoo.data.making.dataset_recipe import BuildOptions, DatasetRecipe
from agentzoo.data.names import datasets_root, is_local
from agentzoo.envs import make_env
from agentzoo.envs.making import explained
from agentzoo.errors import ConfigError, UnknownNameError
from agentzoo.store.exclusive import exclusive


def check_provided(dataset_id: str) -> None:
    """Check, without building, that a dataset of the catalogue is local or can be built.

    Raises:
        UnknownNameError: it needs policies or buffers that are missing; the message has the command to run.
            ConfigError: a package of its environment is not installed.
    """
    recipe = recipe_of(dataset_id)
    restore_replaced(dataset_id)
    if recipe is None or is_local(dataset_id):
        return
    try:
        recipe.episodes(BuildOptions())  # checks its files; no episode is played before the first is requested
    except (UnknownNameError, ConfigError) as error:
        raise UnknownNameError(
            f"no dataset {dataset_id!r} in {datasets_root()}. Build it with {_command(recipe)}."
        ) from error
    with explained(recipe.env_id):
        make_env(recipe.env_id, **dict(recipe.options)).close()


def provide(dataset_id: str, workers: int = 1, on_steps: Callable[[int, int | None], None] = lambda *_: None) -> bool:
    """Build a dataset of the catalogue unless it is local. If several processes call this, one builds and others wait.

    Args:
        workers: number of processes; the data does not depend on it.
        on_steps: called with the environment steps written so far and their planned total (None: unknown).

    Returns:
        True if it was built; False if it is already local or not in the catalogue.

    Raises:
        As `check_provided` and `data.making.build.build`.
    """
    recipe = recipe_of(dataset_id)
    restore_replaced(dataset_id)
    if recipe is None or is_local(dataset_id):
        return False
    check_provided(dataset_id)
    done = 0

    def count(steps: int) -> None:
        nonlocal done
        done += steps
        on_steps(done, recipe.planned())

    lock = datasets_root() / f".{recipe.name.replace('/', '--')}.lock"
    with exclusive(lock, "MINARI_DATASETS_PATH"):
        if is_local(dataset_id):
            return False
        build(recipe.name, BuildOptions(workers=workers, on_steps=count))
    return True


def _command(recipe: DatasetRecipe) -> str:
    options = f" {recipe.build_options}" if recipe.build_options else ""
    return f"`agentzoo data build {recipe.name}{options}`"
