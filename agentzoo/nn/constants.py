"""Constant tensors that are made once: masks, angles."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import ParamSpec

import torch
from torch import Tensor

P = ParamSpec("P")


def constant(make: Callable[P, Tensor]) -> Callable[P, Tensor]:
    """A function whose last 64 tensors are kept; whoever gets one must not write into it."""
    kept = lru_cache(maxsize=64)(torch.inference_mode(False)(make))  # an inference tensor could not be used in training

    @wraps(make)
    def get(*args: P.args, **kwargs: P.kwargs) -> Tensor:
        if torch.compiler.is_compiling():  # what an export sees is no tensor that could be kept
            return make(*args, **kwargs)
        found: Tensor = kept(*args, **kwargs)  # type: ignore[arg-type]
        return found

    return get
