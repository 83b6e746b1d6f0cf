"""Modules that have sizes and take no memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode


@contextmanager
def sizes_only() -> Iterator[None]:
    """Make modules inside the block on torch's meta device, without initializers.

    Arithmetic on the meta device, and `torch.nn.init.normal_`, import PyTorch's compiler, which takes two seconds; so a
    module's constructor should do neither of them on its own tensors.
    """
    with _NoInitializers(), torch.device("meta"):
        yield


class _NoInitializers(TorchFunctionMode):
    """Skips the functions of `torch.nn.init`."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if getattr(func, "__module__", None) == "torch.nn.init":
            return args[0] if args else kwargs["tensor"]
        return func(*args, **(kwargs or {}))
