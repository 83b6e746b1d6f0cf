"""Studies on the card of a staged agent."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from agentzoo.errors import CheckpointError, ConfigError
from agentzoo.evaluation.study import Study, read_study
from agentzoo.hub.card import write_card
from agentzoo.hub.records import read_records
from agentzoo.store.files import RESULTS, staging, swap_in, write_atomic
from agentzoo.store.locate import STUDY_PICTURES, check_links


def show_studies(folder: Path, studies: Sequence[Path]) -> None:
    """Replace the studies on the card of a staged agent, without measuring.

    Raises:
        CheckpointError: a record of the agent or a study is missing. ConfigError: too many studies.
    """
    folder = check_links(folder).resolve()
    _, _, results = read_records(folder)
    with staging(folder.parent, ".staging-") as place:
        new = Path(shutil.copytree(folder, place / folder.name))
        for name in STUDY_PICTURES:
            (new / name).unlink(missing_ok=True)
        results = results.model_copy(update={"studies": take_studies(studies, new)})
        write_atomic(new / RESULTS, results.to_json())
        write_card(new)
        swap_in(new, folder)


def take_studies(studies: Sequence[Path], folder: Path) -> tuple[Study, ...]:
    """Read the studies at these paths and copy their figures into the agent's folder.

    Raises:
        CheckpointError: a study or its picture is missing. ConfigError: too many studies.
    """
    if len(studies) > len(STUDY_PICTURES):
        raise ConfigError(f"a card shows at most {len(STUDY_PICTURES)} studies, got {len(studies)}.")
    return tuple(_with_picture(path, folder, i) for i, path in enumerate(studies))


def _with_picture(path: Path, folder: Path, place: int) -> Study:
    """Read the study at `path` and copy its figure into the agent's folder under a standard name."""
    study = read_study(path)
    if study.picture is None:
        return study
    beside = (path if path.is_dir() else path.parent) / study.picture
    if not beside.is_file():
        raise CheckpointError(f"{path} names the picture {study.picture}, which is missing beside it.")
    shutil.copyfile(beside, folder / STUDY_PICTURES[place])
    return study.model_copy(update={"picture": STUDY_PICTURES[place]})
