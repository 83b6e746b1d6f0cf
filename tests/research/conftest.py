"""A small text."""

from __future__ import annotations

from pathlib import Path

import pytest

from research.pretrain_cases import WORDS


@pytest.fixture
def text(tmp_path: Path) -> Path:
    folder = tmp_path / "text"
    folder.mkdir()
    (folder / "a.txt").write_text(WORDS * 60)
    (folder / "b.txt").write_text("a dog ran after the cat up to the mat\n" * 60)
    (folder / "valid.txt").write_text("the cat ran after a dog\n" * 40)
    return folder
