"""Studies on the card of a staged agent."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from agentzoo.errors import CheckpointError, ConfigError
from agentzoo.evaluation.study import Study, read_study
from agentzoo.hub.card import write_card
from agentzoo.hub.records import read_records
from agentzoo.store.exclusive import only_writer
from agentzoo.store.files import RESULTS, not_written, staging, swap_in, write_atomic
from agentzoo.store.locate import STUDY_PICTURES, check_links


def show_studies(folder: Path, studies: Sequence[Path], keep: bool = False) -> None:
    """Replace the studies on the card of a staged agent, without measuring.

    Args:
        keep: the current studies stay in front, except those with the title of a new one.

    Raises:
        CheckpointError: a record of the agent or a study is missing. ConfigError: too many studies. StorageError: no
            space or permission.
    """
    folder = check_links(folder).resolve()
    with only_writer(folder), not_written(folder), staging(folder.parent, ".staging-") as place:
        _, _, results = read_records(folder)
        new = Path(shutil.copytree(folder, place / folder.name))
        titles = {read_study(path).title for path in studies}
        kept = tuple(one for one in results.studies if keep and one.title not in titles)
        for name in _free(kept):
            (new / name).unlink(missing_ok=True)
        results = results.model_copy(update={"studies": (*kept, *take_studies(studies, new, kept))})
        write_atomic(new / RESULTS, results.to_json())
        write_card(new)
        swap_in(new, folder)


def take_studies(studies: Sequence[Path], folder: Path, kept: Sequence[Study] = ()) -> tuple[Study, ...]:
    """Read the studies at these paths and copy their figures into the agent's folder, beside those of `kept`.

    Raises:
        CheckpointError: a study or its picture is missing. ConfigError: too many studies.
    """
    if (count := len(kept) + len(studies)) > len(STUDY_PICTURES):
        raise ConfigError(f"a card shows at most {len(STUDY_PICTURES)} studies, got {count}.")
    return tuple(_with_picture(path, folder, name) for path, name in zip(studies, _free(kept), strict=False))


def _free(kept: Sequence[Study]) -> list[str]:
    """Names of pictures that no study in `kept` uses."""
    return [name for name in STUDY_PICTURES if all(one.picture != name for one in kept)]


def _with_picture(path: Path, folder: Path, name: str) -> Study:
    """Read the study at `path` and copy its figure into the agent's folder under this name."""
    study = read_study(path)
    if study.picture is None:
        return study
    beside = (path if path.is_dir() else path.parent) / study.picture
    if not beside.is_file():
        raise CheckpointError(f"{path} names the picture {study.picture}, which is missing beside it.")
    shutil.copyfile(beside, folder / name)
    return study.model_copy(update={"picture": name})
