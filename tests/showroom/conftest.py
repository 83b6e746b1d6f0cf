"""A small zoo of real records, one agent whose records were written by somebody hostile, and its site."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agentzoo.site.build import build_site
from agentzoo.store.files import CONFIG, LOG, RECIPE, RESULTS, SWEEP_PLOT, VIDEO, WEIGHTS
from agentzoo.store.locate import STUDY_PICTURES

ROOT = Path(__file__).resolve().parents[2]
AGENTS = ("dm-hopper-medium", "dt-hopper-medium", "gpt2-dtma-pointmaze-medium", "unimask-doorkey")
HOSTILE = "dt-hostile"
ATTACK = "<img src=x onerror=\"document.title='owned'\"></script><script>document.title='owned'</script>\x1b[31m\u202e"
LONG = "W" * 190
RECORDS = (CONFIG, RECIPE, RESULTS, LOG, VIDEO, SWEEP_PLOT, *STUDY_PICTURES)


def copy_agent(name: str, folder: Path) -> Path:
    """The records of a staged agent; the site reads no weights, so theirs are an empty file."""
    folder.mkdir(parents=True)
    for file in RECORDS:
        if (ROOT / "hub_cards" / name / file).is_file():
            shutil.copyfile(ROOT / "hub_cards" / name / file, folder / file)
    (folder / WEIGHTS).touch()
    return folder


def spoil(folder: Path, agent_id: str, words: str) -> None:
    """Put `words` wherever a record may hold free text."""
    results: dict[str, Any] = json.loads((folder / RESULTS).read_text())
    results["dataset"]["made_by"] = words
    results["training"]["hardware"] = words
    results["headline"] |= {"agent_id": words, "env": words, "command": words, "versions": {words[:90]: words}}
    study = {"title": words[:190], "columns": [words[:190]] * 2, "rows": [[words[:190]] * 2], "note": words}
    results["studies"] = [study]
    results["baselines"] = [{**results["headline"], "training_seed": 0}]
    (folder / RESULTS).write_text(json.dumps(results))
    for name in (CONFIG, RECIPE):
        tree = json.loads((folder / name).read_text())
        (folder / name).write_text(json.dumps({**tree, "agent_id": agent_id}))
    (folder / VIDEO).write_bytes(b"\0" * 1000)


@pytest.fixture(scope="session")
def small_zoo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    zoo = tmp_path_factory.mktemp("zoo")
    for name in AGENTS:
        copy_agent(name, zoo / name)
    spoil(copy_agent("dt-hopper-medium", zoo / HOSTILE), HOSTILE, ATTACK + LONG)
    return zoo


@pytest.fixture(scope="session")
def site(small_zoo: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """With documentation, without datasets, as most machines are."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MINARI_DATASETS_PATH", str(tmp_path_factory.mktemp("data")))
        yield build_site(tmp_path_factory.mktemp("site") / "out", small_zoo, docs=True).folder
