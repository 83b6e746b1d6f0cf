"""Imported once by the parent of a grid's processes: memory that every run would otherwise fill for itself.

Importing what a training uses takes about as much memory as the training itself. The parent is frozen in the end, so
that collecting garbage in a run does not copy the pages it shares.
"""

from __future__ import annotations

import contextlib
import gc

import accelerate  # noqa: F401
import gymnasium  # noqa: F401
import torch

from agentzoo.registry import families

with contextlib.suppress(ImportError):
    import mujoco  # noqa: F401

families()
_parameter = torch.nn.Parameter(torch.zeros(1))
_parameter.grad = torch.zeros(1)
torch.optim.AdamW([_parameter]).step()  # an optimizer's first step imports PyTorch's compiler
gc.collect()
gc.freeze()
