"""Versions of what an evaluation ran on, for its record."""

from __future__ import annotations

import functools
import importlib.metadata
import platform
import subprocess
from pathlib import Path

PACKAGES = ("agentzoo", "gymnasium", "gymnasium-robotics", "mujoco", "numpy", "torch", "stable-baselines3")


def versions(*others: str) -> dict[str, str]:
    """Versions of Python, the packages that affect scores and `others`; in a git checkout also agentzoo's commit."""
    found = {"python": platform.python_version()}
    for name in (*PACKAGES, *others):
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    if "agentzoo" in found and (commit := _commit()):
        found["agentzoo"] = f"{found['agentzoo']}+g{commit}"
    return found


@functools.cache
def _commit() -> str | None:
    """The commit of this checkout, with `.dirty` if the package differs from it; None without a checkout or git."""
    root = Path(__file__).parents[2]
    if not (root / ".git").exists():
        return None

    def git(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True)

    try:
        head = git("rev-parse", "--short=12", "HEAD")
    except OSError:
        return None
    if head.returncode != 0:
        return None
    changed = git("status", "--porcelain", "--", "agentzoo").stdout  # with new files
    return head.stdout.strip() + (".dirty" if changed else "")
