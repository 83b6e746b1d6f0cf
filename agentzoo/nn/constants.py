"""Constant tensors that are made once: masks, angles."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import ParamSpec

import torch
from torch import Tensor

P = ParamSpec("P")


def constant(make: Callable[P, Tensor]) -> Callable[P, Tensor]:
    """`make` with a cache of its last 64 tensors; callers must not write into them."""
    kept = lru_cache(maxsize=64)(torch.inference_mode(False)(make))  # training cannot use an inference tensor

    @wraps(make)
    def get(*args: P.args, **kwargs: P.kwargs) -> Tensor:
        if torch.compiler.is_compiling():  # the tensors of an export cannot be cached
            return make(*args, **kwargs)
        found: Tensor = kept(*args, **kwargs)  # type: ignore[arg-type]
        return found

    return get
