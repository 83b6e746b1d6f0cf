"""All a run needs to go on exactly where it was: one safetensors file, written atomically.

Weights, both AdamW moments of every parameter, the random state of every process (dropout and window sampling),
the step, and the sums behind the next log row. Learning rate and schedules are functions of the step.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from agentzoo.checkpoint import read_tensors, save_tensors
from agentzoo.errors import CheckpointError
from agentzoo.nn.base import SequenceModel

FILE = "checkpoint.safetensors"


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


def save_state(
    folder: Path,
    model: SequenceModel,
    optimizer: torch.optim.Optimizer,
    random_states: list[dict[str, Tensor]],
    progress: Progress,
) -> None:
    """Replace the run's checkpoint."""
    names = {id(p): name for name, p in model.named_parameters()}
    tensors = {f"model/{name}": value for name, value in model.state_dict().items()}
    tensors |= {f"extra/{name}": value for name, value in model.training_state().items()}
    for parameter, moments in optimizer.state.items():
        tensors |= {f"optimizer/{names[id(parameter)]}/{key}": value for key, value in moments.items()}
    for rank, state in enumerate(random_states):
        tensors |= {f"random/{rank}/{name}": value for name, value in state.items()}
    save_tensors(folder / FILE, tensors, {"progress": json.dumps(asdict(progress))})


def load_state(
    folder: Path, model: SequenceModel, optimizer: torch.optim.Optimizer, sampler: torch.Generator, rank: int
) -> Progress:
    """Put everything back where `save_state` found it.

    Raises:
        CheckpointError: the file is broken or of another network or number of processes.
    """
    tensors, metadata = read_tensors(folder / FILE)

    def part(prefix: str) -> dict[str, Tensor]:
        return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}

    try:
        progress = Progress(**json.loads(metadata["progress"]))
        model.load_state_dict(part("model/"))
        model.load_training_state(part("extra/"))
        for name, parameter in model.named_parameters():
            moments = part(f"optimizer/{name}/")
            if moments:
                # "step" too: the fused AdamW of a GPU reads it there
                optimizer.state[parameter] = {key: value.to(parameter.device) for key, value in moments.items()}
        restore_random_state(part(f"random/{rank}/"), sampler)
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        raise CheckpointError(f"{folder / FILE} does not fit this run: {error}") from error
    return progress
