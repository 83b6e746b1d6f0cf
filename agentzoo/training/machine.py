"""Checks of this machine before a training: device, trackers and precision."""

from __future__ import annotations

import importlib.util
import platform
from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch

from agentzoo.errors import ConfigError, did_you_mean, warn
from agentzoo.extras import needed
from agentzoo.training.processes import local_process_count, process_count

DEVICES = ("cpu", "cuda", "mps")
TRACKERS = ("tensorboard", "wandb", "trackio")


def check_machine(device: str | None, trackers: Sequence[str], cuda_graph: bool = False) -> None:
    """Raise ConfigError unless the device and the trackers are known and available; None is the fastest device."""
    needed("accelerate", "train", "training")
    kind, colon, number = ("cpu" if device is None else device).partition(":")
    if kind not in DEVICES or (colon and (kind != "cuda" or not number.isdecimal())):
        raise ConfigError(f"no device {device!r}.{did_you_mean(kind, DEVICES)} Known are cpu, cuda, cuda:N and mps.")
    if kind == "cuda" and not torch.cuda.is_available():
        raise ConfigError("PyTorch finds no CUDA device here; train with --device cpu, or install its CUDA build.")
    if colon and int(number) >= torch.cuda.device_count():
        raise ConfigError(f"no device {device!r}: PyTorch finds {torch.cuda.device_count()} CUDA devices, from cuda:0.")
    if colon and process_count() > 1:
        raise ConfigError(
            f"--device {device} is one GPU for {process_count()} processes; --device cuda gives each its own."
        )
    if kind == "mps" and not torch.backends.mps.is_available():
        raise ConfigError("PyTorch finds no Apple GPU (mps) here; train with --device cpu.")
    if cuda_graph and (training_device(device).type != "cuda" or process_count() > 1):
        raise ConfigError("--cuda-graph needs one process on a CUDA device; omit it.")
    if device is None and 0 < torch.cuda.device_count() < local_process_count():
        raise ConfigError(
            f"{local_process_count()} processes share {torch.cuda.device_count()} GPUs here; start one process per "
            "GPU, or train with --device cpu."
        )
    for name in trackers:
        if name not in TRACKERS:
            raise ConfigError(f"no tracker {name!r}.{did_you_mean(name, TRACKERS)} Known are {', '.join(TRACKERS)}.")
        found = importlib.util.find_spec(name)
        if found is None or found.origin is None:  # no origin: a folder of that name, like wandb's logs
            raise ConfigError(f"tracker {name!r} is not installed: pip install {name}, or 'agentzoo[track]' for all.")


def training_device(device: str | None) -> torch.device:
    """The device of `--device`, by default the fastest. `check_machine` checks it."""
    if device is not None:
        return torch.device(device)
    if torch.cuda.is_available():
        return torch.device("cuda")
    return torch.device("mps" if torch.backends.mps.is_available() else "cpu")


def device_name(device: str) -> str:
    """A device's name in records, with the name of the GPU or processor."""
    if device.startswith("cuda"):
        return f"{device} ({torch.cuda.get_device_name(device)})"
    return f"{device.partition(':')[0]} ({processor()})"


def processor() -> str:
    """The name of this machine's processor, if the system reports it."""
    try:
        with open("/proc/cpuinfo") as file:  # noqa: PTH123  one line of a file that has no size
            for line in file:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def device_line(device: torch.device, gpus: Sequence[str], processes: int) -> str:
    """A line on the devices of a run, and on how to use all GPUs if it does not.

    Args:
        gpus: the names of the machine's GPUs, from cuda:0 on.
    """
    if processes > 1:
        return f"{processes} processes share each batch, on {device.type}"
    if device.type != "cuda" or len(gpus) < 2:
        return ""
    used = device.index or 0
    return (
        f"trains on cuda:{used} ({gpus[used]}), one of {len(gpus)} GPUs; all of them: "
        f"torchrun --nproc_per_node {len(gpus)} -m agentzoo train ..."
    )


def gpu_names() -> list[str]:
    """The names of this machine's GPUs, from cuda:0 on."""
    return [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())]


def pick_precision(asked: str, device: str | None) -> Literal["fp32", "bf16"]:
    """The precision of a run whose recipe has `train.precision=asked`.

    Args:
        asked: `train.precision`; "auto" is bf16 if the processor has native bfloat16, else fp32.
        device: as `training_device`.
    """
    if asked != "auto":
        return "bf16" if asked == "bf16" else "fp32"
    place = training_device(device)
    if place.type == "mps":
        return "fp32"
    if place.type == "cuda":
        return "bf16" if torch.cuda.is_bf16_supported(including_emulation=False) else "fp32"
    return "bf16" if computes_bfloat16(cpu_capabilities()) else "fp32"


def warn_of_slow_precision(precision: str, device: str) -> None:
    """Warn of bfloat16 on a CPU without instructions for it: results are correct, but training is many times slower.

    Args:
        precision: `train.precision` of a recipe.
        device: "cpu" or "cuda", the device of the training.
    """
    if precision != "bf16" or device != "cpu" or has_bfloat16(cpu_capabilities()):
        return
    warn(
        "the recipe uses bfloat16, for which this CPU has no instructions: training will be many times slower than in "
        "float32. `--set train.precision=fp32` trains in float32; an existing run keeps its precision.",
        depth=3,
    )


def cpu_capabilities() -> dict[str, Any]:
    """PyTorch's record of this CPU's instructions; empty in older versions."""
    known: Callable[[], dict[str, Any]] = getattr(torch.cpu, "get_capabilities", dict)
    return known()


def computes_bfloat16(capabilities: dict[str, Any]) -> bool:
    """Whether a CPU has native bfloat16; False if PyTorch does not know."""
    return bool(capabilities.get("avx512_bf16") or capabilities.get("amx_bf16"))


def has_bfloat16(capabilities: dict[str, Any]) -> bool:
    """Whether a CPU has bfloat16 instructions; True if PyTorch does not know, and on anything but x86."""
    if capabilities.get("architecture") != "x86_64":
        return True
    return computes_bfloat16(capabilities)
