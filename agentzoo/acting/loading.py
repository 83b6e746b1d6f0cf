"""Build a network from an agent's config and load its weights."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from agentzoo.config import AgentConfig
from agentzoo.errors import CheckpointError, ConfigError
from agentzoo.nn.base import SequenceModel
from agentzoo.nn.sizes_only import sizes_only
from agentzoo.registry import get_family
from agentzoo.store.int8 import narrowed
from agentzoo.store.tensors import check_fits, fingerprint, first_names, load_strict


def build_network(config: AgentConfig) -> SequenceModel:
    """An untrained network of this config. The caller's random state does not change."""
    with torch.random.fork_rng(devices=[]):
        return get_family(config.model.family).model(copy.deepcopy(config.model), config.io)


def load_network(config: AgentConfig, path: Path) -> SequenceModel:
    """The network of this config with the weights at `path`; sizes are checked before memory is allocated.

    The file is read once, so the hash is that of the loaded bytes.

    Raises:
        CheckpointError: the file is broken, has a different hash than the config names, or does not match the config.
    """
    with sizes_only():
        check_fits(build_network(config), path)
    model = build_network(config).float()  # PyTorch's default type may be another one
    model.stored_types = load_strict(model, path, config.weights_sha256)
    return model


class Saved(NamedTuple):
    """The weights in an agent's file.

    digest: fingerprint of the weights. types: dtype of the file's tensors; a tensor not named here has the dtype that
    it has in the network, or float32 instead of float64.
    """

    digest: str
    types: Mapping[str, torch.dtype]

    def tensors(self, model: SequenceModel) -> dict[str, Tensor]:
        """The content of the file, from the network that has these weights."""
        found: dict[str, Tensor] = {}
        for name, value in model.state_dict().items():
            kind = self.types.get(name, _stored(value))
            found |= narrowed(name, value) if kind == torch.int8 else {name: value.to(kind)}
        return found


def _stored(tensor: Tensor) -> torch.dtype:
    return torch.float32 if tensor.dtype == torch.float64 else tensor.dtype


def to_save(model: SequenceModel, before: Saved | None) -> Saved:
    """The weights to save. `before`: those in the agent's file.

    Unchanged weights keep the types of that file, so the new file equals it. Changed weights keep the network's dtype.

    Raises:
        CheckpointError: a weight is not finite or, as float32, too large.
    """
    broken = [name for name, value in model.state_dict().items() if not value.to(_stored(value)).isfinite().all()]
    if broken:
        raise CheckpointError(f"NaN or infinity in {first_names(broken)}: an agent with such weights cannot act.")
    digest = fingerprint(model)
    return Saved(digest, before.types if before is not None and before.digest == digest else {})


def pick_device(device: str | torch.device) -> torch.device:
    """The device of this name; "auto" is CUDA if available.

    Raises:
        ConfigError: this machine has no such device.
    """
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        found = torch.device(device)
        torch.empty(0, device=found)  # torch accepts the name "cuda" on every machine, so try to use it
    except (RuntimeError, AssertionError, NotImplementedError, TypeError) as error:
        reason = str(error).splitlines()[0]
        listed = "device type" in reason or isinstance(error, TypeError)  # torch lists its device types, or signatures
        why = "" if listed else f" ({reason})"
        raise ConfigError(f"no device {str(device)!r} here{why}; use 'auto', 'cpu' or, with a GPU, 'cuda'.") from None
    return found
