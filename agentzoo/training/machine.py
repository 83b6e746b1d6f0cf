"""What a training asks of this machine, checked before anything is loaded."""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import torch

from agentzoo.errors import ConfigError, did_you_mean
from agentzoo.extras import needed

DEVICES = ("cpu", "cuda")
TRACKERS = ("tensorboard", "wandb", "trackio")


def check_machine(device: str | None, trackers: Sequence[str]) -> None:
    """Raise ConfigError unless the device and the trackers are known and here; None is the fastest device there is."""
    needed("accelerate", "train", "training")
    if device is not None and device not in DEVICES:
        raise ConfigError(f"no device {device!r}.{did_you_mean(device, DEVICES)} Known are {' and '.join(DEVICES)}.")
    if device == "cuda" and not torch.cuda.is_available():
        raise ConfigError("PyTorch finds no CUDA device here; train with --device cpu, or install its CUDA build.")
    for name in trackers:
        if name not in TRACKERS:
            raise ConfigError(f"no tracker {name!r}.{did_you_mean(name, TRACKERS)} Known are {', '.join(TRACKERS)}.")
        found = importlib.util.find_spec(name)
        if found is None or found.origin is None:  # no origin: a folder of that name, as wandb makes one for its logs
            raise ConfigError(f"tracker {name!r} is not installed: pip install {name}, or 'agentzoo[track]' for all.")


def pick_precision(asked: str, device: str | None) -> Literal["fp32", "bf16"]:
    """The precision a run uses where its recipe asks for `asked`.

    Args:
        asked: `train.precision`; "auto" is bf16 where the processor computes it natively, else fp32.
        device: "cpu", "cuda", or None for the fastest there is.
    """
    if asked != "auto":
        return "bf16" if asked == "bf16" else "fp32"
    if device != "cpu" and torch.cuda.is_available():
        return "bf16" if torch.cuda.is_bf16_supported(including_emulation=False) else "fp32"
    return "bf16" if computes_bfloat16(cpu_capabilities()) else "fp32"


def warn_of_slow_precision(precision: str, device: str) -> None:
    """Warn of a recipe in bfloat16 on a CPU that has no instructions for it: it is right there, but many times slower.

    Args:
        precision: `train.precision` of a recipe.
        device: "cpu" or "cuda", where it will train.
    """
    if precision != "bf16" or device != "cpu" or has_bfloat16(cpu_capabilities()):
        return
    warnings.warn(
        "the recipe multiplies matrices in bfloat16, for which this CPU has no instructions: training will be many "
        "times slower than in float32. `--set train.precision=fp32` trains in float32; a run that has begun keeps what "
        "it began with.",
        UserWarning,
        stacklevel=3,
    )


def cpu_capabilities() -> dict[str, Any]:
    """What PyTorch knows of this CPU's instructions; older ones tell nothing."""
    known: Callable[[], dict[str, Any]] = getattr(torch.cpu, "get_capabilities", dict)
    return known()


def computes_bfloat16(capabilities: dict[str, Any]) -> bool:
    """Whether a CPU is known to multiply in bfloat16 natively; False where PyTorch does not say."""
    return bool(capabilities.get("avx512_bf16") or capabilities.get("amx_bf16"))


def has_bfloat16(capabilities: dict[str, Any]) -> bool:
    """Whether a CPU multiplies in bfloat16; True where PyTorch does not say, and on all but x86."""
    if capabilities.get("architecture") != "x86_64":
        return True
    return computes_bfloat16(capabilities)


@contextmanager
def tracking(accelerator: Any, project: str, trackers: Sequence[str]) -> Iterator[None]:
    """Trackers from here on, told that it is over however this ends."""
    if not trackers:
        yield
        return
    accelerator.init_trackers(project)
    try:
        yield
    finally:
        accelerator.end_training()
