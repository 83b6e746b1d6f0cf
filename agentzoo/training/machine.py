"""What a training asks of this machine, checked before anything is loaded."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from agentzoo.errors import ConfigError, did_you_mean

DEVICES = ("cpu", "cuda")
TRACKERS = ("tensorboard", "wandb", "trackio")


def check_machine(device: str | None, trackers: Sequence[str]) -> None:
    """Raise ConfigError unless the device and the trackers are known and here; None is the fastest device there is."""
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
