"""Studies on cards: shown, added, and never half-written."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import largest_file
from typer.testing import CliRunner

from agentzoo.cli import app
from agentzoo.errors import CheckpointError, ConfigError, StorageError
from agentzoo.evaluation.study import Study, write_study
from agentzoo.hub.card import check_card
from agentzoo.hub.records import read_records
from agentzoo.hub.studies import show_studies


def test_a_study_comes_onto_a_card_without_measuring(folder: Path, tmp_path: Path) -> None:
    for name in ("first", "second"):
        write_study(Study(title=f"The {name}", picture="drawn.png"), tmp_path / name)
        (tmp_path / name / "drawn.png").write_bytes(name.encode())
    before = read_records(folder)[2]
    done = CliRunner().invoke(app, ["hub", "card", str(folder), "--study", str(tmp_path / "first")])
    assert done.exit_code == 0, done.output
    assert "<summary>The first</summary>\n\n![The first](study-0.png)" in (folder / "README.md").read_text()
    assert (folder / "study-0.png").read_bytes() == b"first"
    show_studies(folder, [tmp_path / "second"])
    assert (folder / "study-0.png").read_bytes() == b"second"
    check_card(folder)
    after = read_records(folder)[2]
    assert [one.title for one in after.studies] == ["The second"]
    assert after.model_copy(update={"studies": ()}) == before
    kept = sorted((path.name, path.read_bytes()) for path in folder.iterdir())
    with pytest.raises(CheckpointError, match="no study at"):
        show_studies(folder, [tmp_path / "second", tmp_path / "third"])
    assert sorted((path.name, path.read_bytes()) for path in folder.iterdir()) == kept
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]


def test_a_study_is_added_behind_those_there_are(folder: Path, tmp_path: Path) -> None:
    for name, title in (("first", "One"), ("second", "Two"), ("third", "One")):
        write_study(Study(title=title, picture="drawn.png"), tmp_path / name)
        (tmp_path / name / "drawn.png").write_bytes(name.encode())
    show_studies(folder, [tmp_path / "first"])
    done = CliRunner().invoke(app, ["hub", "card", str(folder), "--keep", "--study", str(tmp_path / "second")])
    assert done.exit_code == 0, done.output
    assert [one.title for one in read_records(folder)[2].studies] == ["One", "Two"]
    show_studies(folder, [tmp_path / "third"], keep=True)  # of the same title: it takes the place of the first
    shown = read_records(folder)[2].studies
    assert [(one.title, (folder / str(one.picture)).read_bytes()) for one in shown] == [
        ("Two", b"second"),
        ("One", b"third"),
    ]
    for options, said in (
        (["--study", str(tmp_path / "first"), "--license", "Apache2"], "is not one the Hub knows"),
        (["--keep"], "--keep goes with --study"),
    ):
        with pytest.raises(ConfigError, match=said):
            CliRunner().invoke(app, ["hub", "card", str(folder), *options], catch_exceptions=False)
    assert read_records(folder)[2].studies == shown
    check_card(folder)
    with pytest.raises(ConfigError, match="at most 4 studies, got 5"):
        show_studies(folder, [tmp_path / "first"] * 4, keep=True)


def test_a_study_that_does_not_fit_on_the_disk_leaves_the_card(folder: Path, tmp_path: Path) -> None:
    write_study(Study(title="Large", picture="drawn.png"), tmp_path / "study")
    (tmp_path / "study" / "drawn.png").write_bytes(b"x" * 1_000_000)
    kept = sorted((path.name, path.read_bytes()) for path in folder.iterdir())
    with largest_file(500_000), pytest.raises(StorageError, match=r"dt-test was not written: .*File too large"):
        show_studies(folder, [tmp_path / "study"])
    assert sorted((path.name, path.read_bytes()) for path in folder.iterdir()) == kept
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]


def test_a_title_of_a_study_is_no_markup(folder: Path, tmp_path: Path) -> None:
    write_study(Study(title="<img src=x> & **all**"), tmp_path / "study")
    show_studies(folder, [tmp_path / "study"])
    assert "<summary>&lt;img src=x&gt; &amp; **all**</summary>" in (folder / "README.md").read_text()
