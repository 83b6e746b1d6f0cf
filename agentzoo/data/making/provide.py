"""Datasets of the catalogue that a training names and that are not here: built once, or refused with the command."""

from __future__ import annotations

from collections.abc import Callable

from agentzoo.data.making.build import build
from agentzoo.data.making.catalogue import BuildOptions, DatasetRecipe, recipe_of
from agentzoo.data.minari import datasets_root, is_local
from agentzoo.envs import make_env
from agentzoo.envs.making import explained
from agentzoo.errors import ConfigError, UnknownNameError
from agentzoo.store.exclusive import exclusive


def check_provided(dataset_id: str) -> None:
    """Raise unless the dataset is here, can be built here, or is none of the catalogue; nothing is built.

    Raises:
        UnknownNameError: it is made from policies or buffers that are not here; has the command to type. ConfigError: a
            package of its environment is not installed.
    """
    recipe = recipe_of(dataset_id)
    if recipe is None or is_local(dataset_id):
        return
    try:
        recipe.episodes(BuildOptions())  # looks for its files; nothing is played before the first episode is asked for
    except (UnknownNameError, ConfigError) as error:
        raise UnknownNameError(
            f"no dataset {dataset_id!r} in {datasets_root()}. Make it with {_command(recipe)}."
        ) from error
    with explained(recipe.env_id):
        make_env(recipe.env_id, **dict(recipe.options)).close()


def provide(dataset_id: str, workers: int = 1, on_steps: Callable[[int, int | None], None] = lambda *_: None) -> bool:
    """Build a dataset of the catalogue that is not here. Of processes that ask at once one builds, the others wait.

    Args:
        workers: processes that build; the data does not depend on it.
        on_steps: is given the environment steps written so far, and how many there will be (None: not known).

    Returns:
        Whether it was built; False where it is here already, or is none of the catalogue.

    Raises:
        As `check_provided` and `data.making.build.build`.
    """
    recipe = recipe_of(dataset_id)
    if recipe is None or is_local(dataset_id):
        return False
    check_provided(dataset_id)
    done = 0

    def count(steps: int) -> None:
        nonlocal done
        done += steps
        on_steps(done, recipe.steps)

    lock = datasets_root() / f".{recipe.name.replace('/', '--')}.lock"
    with exclusive(lock, "MINARI_DATASETS_PATH"):
        if is_local(dataset_id):
            return False
        build(recipe.name, BuildOptions(workers=workers, on_steps=count))
    return True


def _command(recipe: DatasetRecipe) -> str:
    options = f" {recipe.build_options}" if recipe.build_options else ""
    return f"`agentzoo data build {recipe.name}{options}`"
