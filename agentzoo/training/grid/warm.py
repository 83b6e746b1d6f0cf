"""Imports for the parent of a grid's processes, so that runs share their memory.

The imports of a training take about as much memory as the training itself. At the end the garbage collector is frozen,
so that a collection in a run does not copy shared pages.
"""

from __future__ import annotations

import contextlib
import gc

import accelerate  # noqa: F401
import gymnasium  # noqa: F401
import torch  # noqa: F401

from agentzoo.registry import families

with contextlib.suppress(ImportError):
    import mujoco  # noqa: F401

families()
gc.collect()
gc.freeze()
