"""All a run needs to go on exactly where it was: one safetensors file, written atomically.

Weights, both AdamW moments of every parameter, the random state of every process (dropout and window sampling),
the step, and the sums behind the next log row. Learning rate and schedules are functions of the step.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch
from torch import Tensor, nn

from agentzoo.errors import CheckpointError
from agentzoo.nn.base import SequenceModel
from agentzoo.store.tensors import read_tensors, save_tensors

CHECKPOINT = "checkpoint.safetensors"


@dataclass
class Progress:
    """Where a run stands."""

    step: int = 0  # updates done
    seconds: float = 0.0  # of training, evaluation not counted
    sums: dict[str, float] = field(default_factory=dict)  # of each logged value since the last row
    best_return: float | None = None
    best_step: int = 0


def random_state(sampler: torch.Generator) -> dict[str, Tensor]:
    """This process's generators, as byte tensors."""
    state = {"torch": torch.get_rng_state(), "sampler": sampler.get_state()}
    if torch.cuda.is_available():
        state["cuda"] = torch.cuda.get_rng_state()
    return state


def restore_random_state(state: dict[str, Tensor], sampler: torch.Generator) -> None:
    """Inverse of `random_state`."""
    torch.set_rng_state(state["torch"])
    sampler.set_state(state["sampler"])
    if "cuda" in state and torch.cuda.is_available():
        torch.cuda.set_rng_state(state["cuda"])


def optimizer_state(module: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """AdamW's moments under the names of their parameters."""
    names = {id(p): name for name, p in module.named_parameters()}
    return {
        f"optimizer/{names[id(parameter)]}/{key}": value
        for parameter, moments in optimizer.state.items()
        for key, value in moments.items()
    }


def restore_optimizer(module: nn.Module, optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Inverse of `optimizer_state`, from tensors that may hold other things too."""
    for name, parameter in module.named_parameters():
        start = f"optimizer/{name}/"
        # "step" too: the fused AdamW of a GPU reads it there
        moments = {k.removeprefix(start): v.to(parameter.device) for k, v in tensors.items() if k.startswith(start)}
        if moments:
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
    save_tensors(folder / CHECKPOINT, tensors, {"progress": json.dumps(asdict(progress))})


def load_state(
    folder: Path,
    model: SequenceModel,
    optimizer: torch.optim.Optimizer,
    sampler: torch.Generator,
    rank: int = 0,
    processes: int = 1,
) -> Progress:
    """Put everything back where `save_state` found it.

    Raises:
        CheckpointError: the file is broken or of another network or number of processes.
    """
    tensors, metadata = read_tensors(folder / CHECKPOINT)
    began = len({name.split("/")[1] for name in tensors if name.startswith("random/")})
    if began != processes:
        raise CheckpointError(
            f"{folder / CHECKPOINT} is of a training in {began} processes, each with a batch of its own; this one has "
            f"{processes}, which would go on with other batches. Start as many (`accelerate launch --num_processes "
            f"{began}`), or begin anew in another --out."
        )
    _restore_model(folder, model, tensors)
    try:
        progress = Progress(**json.loads(metadata["progress"]))
        restore_optimizer(model, optimizer, tensors)
        restore_random_state(_part(tensors, f"random/{rank}/"), sampler)
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        raise _misfit(folder, error) from error
    return progress


def load_model(folder: Path, model: SequenceModel) -> None:
    """Of what `save_state` kept, the network alone.

    Raises:
        CheckpointError: the file is broken or of another network.
    """
    _restore_model(folder, model, read_tensors(folder / CHECKPOINT)[0])


def _restore_model(folder: Path, model: SequenceModel, tensors: Mapping[str, Tensor]) -> None:
    try:
        model.load_state_dict(_part(tensors, "model/"))
        model.load_training_state(_part(tensors, "extra/"))
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        raise _misfit(folder, error) from error


def _part(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}


def _misfit(folder: Path, error: Exception) -> CheckpointError:
    return CheckpointError(f"{folder / CHECKPOINT} does not fit this run: {error}")
