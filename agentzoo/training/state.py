"""The checkpoint of a run: one safetensors file, written atomically, with everything that resuming needs.

It holds the weights, both AdamW moments of every parameter, the random state of every process (dropout and window
sampling), the step, and the sums for the next log row. Learning rate and schedules are functions of the step.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch
from torch import Tensor, nn

from agentzoo.errors import CheckpointError, warn
from agentzoo.nn.base import SequenceModel
from agentzoo.store.tensors import read_tensors, save_tensors

CHECKPOINT = "checkpoint.safetensors"


@dataclass
class Progress:
    """The progress of a run."""

    step: int = 0  # updates done
    seconds: float = 0.0  # of training, evaluation not counted
    sums: dict[str, float] = field(default_factory=dict)  # sum of each logged value since the last row
    best_return: float | None = None
    best_step: int = 0
    unlogged: bool = False  # the evaluation after update `step` failed: it is to be repeated, and the log has no row


def random_state(sampler: torch.Generator) -> dict[str, Tensor]:
    """This process's generators, as byte tensors."""
    state = {"torch": torch.get_rng_state(), "sampler": sampler.get_state()}
    if _uses_cuda():
        state["cuda"] = torch.cuda.get_rng_state()
    return state


def restore_random_state(state: dict[str, Tensor], sampler: torch.Generator) -> None:
    """Inverse of `random_state`."""
    torch.set_rng_state(state["torch"])
    sampler.set_state(state["sampler"])
    if "cuda" in state and _uses_cuda():
        torch.cuda.set_rng_state(state["cuda"])


def _uses_cuda() -> bool:
    """Whether this process uses a GPU: to read its random state would open a context there, even for a CPU run."""
    return bool(torch.cuda.is_initialized())  # type: ignore[no-untyped-call]


def optimizer_state(module: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """AdamW's moments under the names of their parameters."""
    names = {id(p): name for name, p in module.named_parameters()}
    return {
        f"optimizer/{names[id(parameter)]}/{key}": value
        for parameter, moments in optimizer.state.items()
        for key, value in moments.items()
    }


def restore_optimizer(module: nn.Module, optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Inverse of `optimizer_state`; `tensors` may hold others too."""
    for name, parameter in module.named_parameters():
        start = f"optimizer/{name}/"
        # moments and "step": the GPU's fused AdamW reads "step" on the device
        moments = {k.removeprefix(start): v.to(parameter.device) for k, v in tensors.items() if k.startswith(start)}
        if moments:  # a parameter that never had a gradient has none
            optimizer.state[parameter] = moments


def save_state(
    folder: Path,
    model: SequenceModel,
    optimizer: torch.optim.Optimizer,
    random_states: list[dict[str, Tensor]],
    progress: Progress,
) -> None:
    """Replace the run's checkpoint."""
    tensors = {f"model/{name}": value for name, value in model.state_dict().items()}
    tensors |= {f"extra/{name}": value for name, value in model.training_state().items()}
    tensors |= optimizer_state(model, optimizer)
    for rank, state in enumerate(random_states):
        tensors |= {f"random/{rank}/{name}": value for name, value in state.items()}
    text = json.dumps(asdict(progress))
    save_tensors(folder / CHECKPOINT, tensors, {"progress": text, "sha256": checksum(tensors, text)})


def load_state(
    folder: Path,
    model: SequenceModel,
    optimizer: torch.optim.Optimizer,
    sampler: torch.Generator,
    rank: int = 0,
    processes: int = 1,
    seed: int = 0,
) -> Progress:
    """Inverse of `save_state`.

    With another number of processes the windows stay the same, but dropout gets a new seed, from `seed` and the update.

    Raises:
        CheckpointError: the file is broken or of another network.
    """
    tensors, metadata = _read(folder)
    began = len({name.split("/")[1] for name in tensors if name.startswith("random/")})
    _restore_model(folder, model, tensors)
    try:
        progress = Progress(**json.loads(metadata["progress"]))
        restore_optimizer(model, optimizer, tensors)
        own = _part(tensors, f"random/{rank if began == processes else 0}/")
        if not own:
            raise ValueError("it holds no state of the random numbers")
        restore_random_state(own, sampler)
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        raise _misfit(folder, error) from error
    if began != processes:
        fresh = torch.Generator().manual_seed(seed * 1_000_003 + progress.step)
        for _ in range(rank + 1):
            drawn = int(torch.randint(1 << 62, (), generator=fresh))
        torch.manual_seed(drawn)
        if rank == 0:
            warn(
                f"{folder / CHECKPOINT} was written by {began} process{'es' * (began > 1)}, but this run has "
                f"{processes}: windows stay the same, but dropout differs, so the weights will not equal those of an "
                "uninterrupted run bit for bit.",
                depth=2,
            )
    return progress


def load_model(folder: Path, model: SequenceModel) -> None:
    """Load only the network from a checkpoint.

    Raises:
        CheckpointError: the file is broken or of another network.
    """
    _restore_model(folder, model, _read(folder)[0])


def checksum(tensors: Mapping[str, Tensor], text: str) -> str:
    """Hex digest of named tensors and a text."""
    digest = hashlib.sha256(text.encode())
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _read(folder: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The checkpoint's tensors and metadata, after a check of its checksum, if it has one."""
    path = folder / CHECKPOINT
    tensors, metadata = read_tensors(path)
    if "sha256" in metadata and checksum(tensors, metadata.get("progress", "")) != metadata["sha256"]:
        raise CheckpointError(
            f"{path} is damaged: its tensors do not match the checksum stored with them. Restore it from a copy, or "
            "delete it and train from the start."
        )
    return tensors, metadata


def _restore_model(folder: Path, model: SequenceModel, tensors: Mapping[str, Tensor]) -> None:
    try:
        model.load_state_dict(_part(tensors, "model/"))
        model.load_training_state(_part(tensors, "extra/"))
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        raise _misfit(folder, error) from error


def _part(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}


def _misfit(folder: Path, error: Exception) -> CheckpointError:
    return CheckpointError(
        f"{folder / CHECKPOINT} does not fit this run: {error}. Train in another folder (--out), or delete the file to "
        "start again."
    )
