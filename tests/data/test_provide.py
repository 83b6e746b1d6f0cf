"""Datasets that are named and not here: built once, or refused with the command to type."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from agentzoo.data.fetching import fetch
from agentzoo.data.making.build import build
from agentzoo.data.making.dataset_recipe import SOURCES_VARIABLE, BuildOptions
from agentzoo.data.making.provide import check_provided, provide
from agentzoo.data.minari import load_episodes
from agentzoo.data.names import datasets_root, is_local
from agentzoo.errors import UnknownNameError

ASSETS = Path(__file__).parents[1] / "assets" / "minari"
SMALLEST = "zoo/doorkey/train-50-v0"  # 500 steps


@pytest.fixture(autouse=True)
def nothing_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    monkeypatch.delenv(SOURCES_VARIABLE, raising=False)


def test_processes_that_ask_at_once_build_once() -> None:
    code = f"from agentzoo.data.making.provide import provide; print(provide({SMALLEST!r}))"
    asking = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) for _ in range(2)]
    said = sorted(process.communicate(timeout=300)[0].split()[-1] for process in asking)
    assert said == ["False", "True"]
    assert len(load_episodes(SMALLEST)) == 500
    assert provide(SMALLEST) is False


def test_progress_counts_all_steps() -> None:
    seen: list[tuple[int, int | None]] = []
    assert provide(SMALLEST, on_steps=lambda done, steps: seen.append((done, steps)))
    assert seen[-1] == (500, None)


@pytest.mark.parametrize(
    ("dataset", "command"),
    [
        ("zoo/hopper/medium-v0", "`agentzoo data build hopper/medium --sources DIR --trust-policies`"),
        ("zoo/hopper/medium-replay-v0", "`agentzoo data build hopper/medium-replay --sources DIR`"),
        ("zoo/walker2d/expert-v0", "`agentzoo data build walker2d/expert --trust-policies`"),
    ],
)
def test_what_needs_sources_is_refused_with_the_command(dataset: str, command: str) -> None:
    for ask in (check_provided, provide):
        with pytest.raises(UnknownNameError) as said:
            ask(dataset)
        assert command in str(said.value)
    assert not is_local(dataset)


@pytest.mark.parametrize(
    ("name", "options"),
    [("hopper/medium", "--sources DIR --trust-policies"), ("hopper/medium-replay", "--sources DIR")],
)
def test_a_build_without_its_sources_says_all_that_it_needs(name: str, options: str, tmp_path: Path) -> None:
    for folder, why in (
        (None, r"neither --sources nor \$AGENTZOO_SOURCES names a folder"),
        (tmp_path, f"which is not in {tmp_path}"),
        (tmp_path / "typo", f"there is no folder {tmp_path / 'typo'}"),
    ):
        with pytest.raises(UnknownNameError, match=rf"{why}\. Pass {options}\. `agentzoo data behaviour ENV --thr"):
            build(name, BuildOptions(folder))


def test_what_can_be_built_and_what_is_not_ours_passes_without_being_built() -> None:
    check_provided(SMALLEST)
    check_provided("someone/else-v0")
    assert provide("someone/else-v0") is False
    assert not is_local(SMALLEST)


def test_a_download_does_not_replace_what_another_process_has_fetched_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its reader may be about to open the files."""
    name, there = "zoo/hopper/tiny-v0", tmp_path / "minari"

    def download(_: str) -> None:
        for root in (datasets_root(), there):
            shutil.copytree(ASSETS / name, root / name)

        held.append((there / name).stat().st_ino)

    held: list[int] = []
    monkeypatch.setattr("minari.download_dataset", download)
    fetch(name, name)
    assert [(there / name).stat().st_ino] == held
    assert len(load_episodes(name).lengths) == 20
    assert [path.name for path in there.iterdir()] == ["zoo"]
