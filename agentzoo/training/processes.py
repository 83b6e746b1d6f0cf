"""One run in several processes: `torchrun --nproc_per_node N -m agentzoo train ...`.

Every process draws the same global batch and takes its share of the windows. A process's losses are means over its own
valid steps (or windows, or pairs of steps), weighted by their number, so gradients and logged values are those of the
global batch. Dropout, texts and the masks of masked models are drawn by each process for itself; a masked model's loss
is a mean over the items that its masks ask for, so there processes with few of them count as much as others.
"""

from __future__ import annotations

import atexit
import os
import time
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, NamedTuple

import torch
from torch import Tensor

from agentzoo.data.windows import WindowSampler
from agentzoo.errors import ConfigError
from agentzoo.types import Average, Batch

RANKS = ("RANK", "PMI_RANK", "OMPI_COMM_WORLD_RANK", "MV2_COMM_WORLD_RANK")
SIZES = ("WORLD_SIZE", "PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE")
LOCAL_SIZES = ("LOCAL_WORLD_SIZE", "MPI_LOCALNRANKS", "OMPI_COMM_WORLD_LOCAL_SIZE", "MV2_COMM_WORLD_LOCAL_SIZE")
PATIENCE = timedelta(hours=12)  # the other processes wait while one evaluates or loads
LET_GO = 0.5  # seconds for the group's threads to let go of their tensors


def process_index() -> int:
    """The index of this process, from the launcher's variables; 0 writes and prints."""
    return _number(RANKS, 0)


def process_count() -> int:
    """The number of processes of this run."""
    return _number(SIZES, 1)


def local_process_count() -> int:
    """The number of processes on this machine."""
    return _number(LOCAL_SIZES, process_count())


def check_launch(environment: Mapping[str, str] = os.environ) -> None:
    """Raise ConfigError if `accelerate launch --cpu` was asked for several processes and started only this one."""
    launched = "ACCELERATE_MIXED_PRECISION" in environment and "MASTER_ADDR" in environment
    if launched and not any(name in environment for name in SIZES):
        raise ConfigError(
            "`accelerate launch --cpu --num_processes N` starts one process on a CPU, whatever N is. Start as many as "
            "you want with `torchrun --nproc_per_node N -m agentzoo train ...`."
        )


def make_accelerator(device: torch.device, precision: str, folder: str, trackers: list[str]) -> Any:
    """accelerate's `Accelerator` of this run, with the device of this process, precision and trackers."""
    from accelerate import Accelerator
    from accelerate.state import AcceleratorState, GradientState
    from accelerate.utils import GradientAccumulationPlugin, InitProcessGroupKwargs

    # else it keeps device, precision and accumulated steps of an earlier training in this process, ours or not
    AcceleratorState._reset_state(True)
    GradientState._reset_state()
    if device.type == "cuda" and device.index is not None:
        torch.cuda.set_device(device)
    return Accelerator(
        cpu=device.type == "cpu",
        mixed_precision="bf16" if precision == "bf16" else "no",
        log_with=trackers or None,
        project_dir=folder,
        gradient_accumulation_plugin=GradientAccumulationPlugin(num_steps=1),  # whatever accelerate's variable says
        kwargs_handlers=[InitProcessGroupKwargs(timeout=PATIENCE)],
    )


Weights = dict[Average, float]  # the factor of this process's means over steps, windows and pairs; 1 on average


def weighted(
    values: Mapping[str, Tensor], weights: Weights | None, averages: Mapping[str, Average]
) -> Mapping[str, Tensor]:
    """This process's means, each with the weight that it has in the global batch; None: as they are.

    Args:
        averages: what each is a mean over; valid steps if it is not named.
    """
    if weights is None:
        return values
    return {name: weights[averages.get(name, "steps")] * value for name, value in values.items()}


class Share(NamedTuple):
    """This process's part of every global batch."""

    windows: int  # of the global batch
    rank: int = 0
    processes: int = 1

    @classmethod
    def of(cls, windows: int, accelerator: Any) -> Share:
        """This process's share; raises ConfigError if the processes cannot share the windows evenly."""
        processes: int = accelerator.num_processes
        if windows % processes:
            below = windows - windows % processes
            fits = f"{below} or {below + processes}" if below else str(processes)
            raise ConfigError(
                f"train.batch_size={windows} is the batch of all processes together, and {processes} processes cannot "
                f"share it evenly. Set train.batch_size to {fits}, or start another number of processes."
            )
        return cls(windows, accelerator.process_index, processes)

    def sample(self, sampler: WindowSampler, generator: torch.Generator) -> tuple[Batch, Weights | None]:
        """This process's windows of the next global batch, and the weights of its means; None in a single process."""
        starts, lengths = sampler.draw(self.windows, generator)
        if self.processes == 1:
            return sampler.windows(starts, lengths), None
        each = self.windows // self.processes
        own = slice(self.rank * each, (self.rank + 1) * each)

        def weight(counted: Tensor) -> float:
            return self.processes * int(counted[own].sum()) / max(int(counted.sum()), 1)

        weights: Weights = {"steps": weight(lengths), "windows": 1.0, "pairs": weight(lengths - 1)}
        return sampler.windows(starts[own], lengths[own]), weights

    def mean(
        self, values: Mapping[str, Tensor], weights: Weights | None, averages: Mapping[str, Average]
    ) -> dict[str, Tensor]:
        """The scalars `values` of the global batch, the same in every process; `averages` as in `weighted`."""
        if weights is None:
            return dict(values)
        own = weighted({name: value.detach().float() for name, value in values.items()}, weights, averages)
        together = torch.stack(list(own.values())) / self.processes
        torch.distributed.all_reduce(together)
        return dict(zip(values, together.unbind(), strict=True))


def from_main(accelerator: Any, value: int) -> int:
    """The main process's `value`, in every process."""
    if accelerator.num_processes == 1:
        return value
    from accelerate.utils import broadcast_object_list

    shared = [value]
    broadcast_object_list(shared)
    return shared[0]


def gathered(accelerator: Any, value: Any) -> list[Any]:
    """The `value` of each process, in every process."""
    if accelerator.num_processes == 1:
        return [value]
    from accelerate.utils import gather_object

    found: list[Any] = gather_object([value])
    return found


def part(accelerator: Any) -> None:
    """Wait for all processes; each leaves their group as its Python ends.

    A thread of the group that still holds a tensor when Python ends aborts the process, and the launcher reports a
    failed run (https://github.com/pytorch/pytorch/pull/179291). After the barrier all work is done, but one of the two
    threads may still wait for the interpreter's lock. So this thread sleeps, which frees the lock. The group lasts
    until Python ends, since a second one would read the first one's addresses from the launcher's store and could hang.
    """
    if accelerator.num_processes > 1:
        accelerator.wait_for_everyone()
        time.sleep(LET_GO)
        atexit.register(accelerator.state.destroy_process_group)


def _number(names: tuple[str, ...], default: int) -> int:
    for name in names:
        text = os.environ.get(name, "")
        if text.isdecimal():
            return int(text)
    return default
