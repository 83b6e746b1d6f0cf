"""Child processes that end with their parent, so that a killed command leaves nothing running."""

from __future__ import annotations

import multiprocessing
import os
import threading


def end_with_parent(status: int = 1) -> None:
    """Call this in a process of `multiprocessing`: it exits with `status` when its parent ends, even by signal 9."""
    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def follow() -> None:
        parent.join()
        os._exit(status)

    threading.Thread(target=follow, daemon=True).start()
