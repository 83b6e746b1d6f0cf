"""The newest checkpoint of a behaviour policy: writing it, and going on from it with stable-baselines3."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from agentzoo.data.making.behaviour_record import Behaviour, write_record
from agentzoo.errors import DataError
from agentzoo.store.files import not_written

POLICY = "policy.zip"  # in a checkpoint


def make_folder(folder: Path) -> None:
    """Create the folder of a run, if there is none. StorageError: no permission, or a file has this name."""
    with not_written(folder):
        folder.mkdir(parents=True, exist_ok=True)


@contextmanager
def new_checkpoint(folder: Path, record: Behaviour) -> Iterator[Path]:
    """A new folder to fill, next to the old checkpoint. Afterwards the record is stored and the old one deleted."""
    made = folder / f"checkpoint-{record.steps}"
    shutil.rmtree(made, ignore_errors=True)
    made.mkdir()
    yield made
    write_record(folder, record)
    for old in folder.glob("checkpoint-*"):
        if old != made:
            shutil.rmtree(old, ignore_errors=True)


def restore_policy(model: Any, path: Path) -> dict[str, Any]:
    """Load weights and optimizers of a checkpoint into a new model of stable-baselines3.

    Only tensors are read. stable-baselines3's `load` also unpickles the settings in the archive, which can run code,
    and the folder may be untrusted.

    Returns:
        The checkpoint's other tensors by name, such as SAC's `log_ent_coef`.

    Raises:
        DataError: not a checkpoint of this network.
    """
    from stable_baselines3.common.save_util import load_from_zip_file

    try:
        _, parameters, variables = load_from_zip_file(path, load_data=False, device="cpu")
        if set(parameters) != set(model.get_parameters()):
            raise ValueError(f"it holds {', '.join(sorted(parameters)) or 'nothing'}")
        model.set_parameters(parameters)
    except Exception as error:  # zip files and pickles raise many types
        why = " ".join(str(error).split())[:200]
        raise DataError(f"{path} is not a checkpoint of this run ({why}). Delete its folder to start again.") from None
    return variables if isinstance(variables, dict) else {}


def steps_callback(on_steps: Callable[[int], None]) -> Callable[[dict[str, Any], dict[str, Any]], bool]:
    """A callback for `learn` of stable-baselines3 that passes on the env steps done."""

    def callback(local: dict[str, Any], _: dict[str, Any]) -> bool:
        on_steps(int(local["self"].num_timesteps))
        return True

    return callback
