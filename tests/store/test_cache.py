"""The cache folder loses what was not used for a month."""

from __future__ import annotations

import os
import time
from pathlib import Path

from agentzoo.store.cache import forget_unused, mark_used

DAY = 24 * 3600


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
