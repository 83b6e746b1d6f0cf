"""The cache folder loses what was not used for a month."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from agentzoo.store.cache import forget_unused, mark_used

DAY = 24 * 3600


def test_a_folder_is_never_found_half_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C between two of its files; the next call deletes the rest, however new it looks."""
    (tmp_path / "old").mkdir()
    for name in ("a.npy", "b.npy"):
        (tmp_path / "old" / name).touch()
    os.utime(tmp_path / "old", times=(0, time.time() - 31 * DAY))
    unlink, deleted = os.unlink, []

    def interrupted(path: Any, **options: Any) -> None:
        if deleted:
            raise KeyboardInterrupt
        deleted.append(path)
        unlink(path, **options)

    monkeypatch.setattr(os, "unlink", interrupted)
    with pytest.raises(KeyboardInterrupt):
        forget_unused(tmp_path)
    assert len(deleted) == 1
    monkeypatch.setattr(os, "unlink", unlink)
    assert not (tmp_path / "old").exists()
    assert len(list(tmp_path.iterdir())) == 1
    forget_unused(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_what_was_not_used_for_a_month_is_deleted_and_nothing_else(tmp_path: Path) -> None:
    cache, outside = tmp_path / "cache", tmp_path / "outside"
    for folder in (cache / "new", cache / "old", cache / "marked", cache / ".mapping-of-a-killed-process", outside):
        folder.mkdir(parents=True)
        (folder / "array.npy").touch()
    for name in ("old.onnx", "new.onnx", ".lock"):
        (cache / name).touch()
    (cache / "link").symlink_to(outside)
    for path in cache.iterdir():
        days = 29 if path.name.startswith("new") else 31
        os.utime(path, times=(0, time.time() - days * DAY), follow_symlinks=False)
    mark_used(cache / "marked")
    mark_used(cache / "none")  # a file that another process has deleted
    forget_unused(cache)
    assert {path.name for path in cache.iterdir()} == {"new", "new.onnx", "marked", ".lock"}
    assert (outside / "array.npy").exists()
