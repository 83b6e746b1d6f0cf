"""Read Decision Transformers of other libraries and convert their weights.

Supported are checkpoints of transformers' `DecisionTransformerModel` and of CORL's `algorithms/offline/dt.py` at
2c308c8. Differences are folded into the weights: transformers adds row 0 of a position table to every token, and both
read actions in the environment's units instead of [-1, 1].
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from agentzoo.errors import CheckpointError, ConfigError
from agentzoo.hub.foreign_values import count, dt_config, floats, number, shape
from agentzoo.models.dt import DTConfig
from agentzoo.store.files import read_text
from agentzoo.store.tensors import read_tensors

CONFIG_FILE, SAFE, PICKLED = "config.json", "model.safetensors", "pytorch_model.bin"
CORL_CONFIG = "config.yaml"  # beside a checkpoint of CORL
# settings of transformers that our network supports only with these values
FIXED = {
    "action_tanh": True,
    "activation_function": ("relu", "gelu"),
    "scale_attn_weights": True,
    "scale_attn_by_inverse_layer_idx": False,
    "layer_norm_epsilon": 1e-5,
    "add_cross_attention": False,
}


@dataclass(frozen=True)
class ImportOptions:
    """Values that a checkpoint lacks, or that override its own; None uses the checkpoint's value.

    mean, std: (S,) of the observations in its training data, as listed on its card. target_return: in env units.
    rtg_scale: divisor of returns-to-go. context: window length in env steps. heads, max_action: of a CORL network.
    """

    target_return: float
    env: str | None = None
    mean: Sequence[float] | None = None
    std: Sequence[float] | None = None
    rtg_scale: float | None = None
    context: int | None = None
    heads: int | None = None
    max_action: float | None = None
    agent_id: str | None = None
    trust_env_module: bool = False


@dataclass(frozen=True)
class Checkpoint:
    """A converted checkpoint: tensors under our names; actions lie in [-reach, reach]."""

    tensors: dict[str, Tensor]
    model: DTConfig
    mean: NDArray[np.float32]
    std: NDArray[np.float32]
    context: int
    rtg_scale: float
    reach: float


def _statistics(options: ImportOptions, size: int, mean: Any = None, std: Any = None) -> list[NDArray[np.float32]]:
    """Mean and std (S,) from the caller, else from the checkpoint."""
    found = []
    for name, given, own in (("mean", options.mean, mean), ("std", options.std, std)):
        value = own if given is None else given
        if value is None:
            raise ConfigError(
                f"the checkpoint does not hold the {name} of its observations; pass the {size} numbers that its card "
                f"lists with --{name}."
            )
        try:
            array = np.asarray(value, dtype=np.float32).reshape(-1)
        except (TypeError, ValueError):
            raise ConfigError(f"{name} is {size} finite numbers, got a {type(value).__name__}.") from None
        if array.shape != (size,) or not np.isfinite(array).all() or (name == "std" and not (array > 0).all()):
            rule = "positive " if name == "std" else ""
            raise ConfigError(f"{name} is {size} finite {rule}numbers, got {array.size}: {str(array)[:80]}.")
        found.append(array)
    return found


# -- transformers ------------------------------------------------------------------------------------------------------


def read_transformers(folder: Path, options: ImportOptions) -> Checkpoint:
    """Read a folder with a transformers model; raises as `import_agent`."""
    try:
        config = json.loads(read_text(folder / CONFIG_FILE))
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{folder / CONFIG_FILE} is not JSON: {error}.") from None
    kind = config.get("model_type") if isinstance(config, dict) else None
    if not isinstance(config, dict) or kind != "decision_transformer":
        raise ConfigError(
            f"{folder / CONFIG_FILE} has model_type {str(kind)[:60]!r}; only 'decision_transformer' can be imported."
        )
    given = [f"--{name.replace('_', '-')}" for name in ("heads", "max_action") if getattr(options, name) is not None]
    if given:
        raise ConfigError(f"{' and '.join(given)} (of a CORL network) has no effect on {folder}; omit it.")
    for name, wanted in FIXED.items():
        value = config.get(name, wanted)
        if value != wanted and not (isinstance(wanted, tuple) and (value in wanted or value is wanted)):
            raise ConfigError(f"the checkpoint has {name}={value!r}, but our network supports only {wanted!r}.")
    tensors = _read_weights(folder)
    (dim,) = shape(tensors, "embed_ln.weight", 1)
    inner = config.get("n_inner")
    if inner not in (None, 4 * dim):
        raise ConfigError(
            f"the checkpoint has n_inner={str(inner)[:60]}; our network supports only 4 x hidden_size = {4 * dim}."
        )
    model = dt_config(
        embed_dim=dim,
        n_layers=count(config, "n_layer", 3),
        n_heads=count(config, "n_head", 1),
        dropout=number(config, "resid_pdrop", 0.1),
        activation=config.get("activation_function", "relu"),
        max_ep_len=shape(tensors, "embed_timestep.weight", 2)[0],
    )
    shape(tensors, "encoder.wpe.weight", 2)
    mean, std = _statistics(options, shape(tensors, "embed_state.weight", 2)[1])
    length = config.get("max_length")  # the window length, in checkpoints of 2022
    known = length if isinstance(length, int) and length > 1 else 20
    return Checkpoint(
        tensors=_from_transformers(tensors, model.n_layers),
        model=model,
        mean=mean,
        std=std,
        context=known if options.context is None else options.context,
        rtg_scale=1000.0 if options.rtg_scale is None else options.rtg_scale,
        reach=1.0,
    )


def _read_weights(folder: Path) -> dict[str, Tensor]:
    """The tensors as float32, from safetensors or else from a pickle that is read as tensors only."""
    if (folder / SAFE).is_file():
        found, _ = read_tensors(folder / SAFE)
    elif (folder / PICKLED).is_file():
        found = _unpickled(folder / PICKLED)
    else:
        raise CheckpointError(f"{folder} holds neither {SAFE} nor {PICKLED}.")
    tensors = floats(found)
    missing = {"embed_ln.weight", "embed_timestep.weight", "embed_state.weight", "encoder.wpe.weight"} - tensors.keys()
    if missing:
        raise CheckpointError(
            f"{folder} lacks {', '.join(sorted(missing))}: it is not a complete DecisionTransformerModel."
        )
    return tensors


def _from_transformers(theirs: Mapping[str, Tensor], layers: int) -> dict[str, Tensor]:
    """Their tensors under our names; their `Conv1D` stores the transpose of a linear layer's weight."""
    names = {
        "embed_return": "embed_return",
        "embed_state": "embed_obs",
        "embed_action": "embed_action",
        "embed_ln": "embed_ln",
        "predict_action.0": "predict_action",
        "encoder.ln_f": "backbone.ln_f",
    }
    turned: dict[str, str] = {}
    for i in range(layers):
        at, ours = f"encoder.h.{i}", f"backbone.blocks.{i}"
        names |= {f"{at}.ln_1": f"{ours}.ln_1", f"{at}.ln_2": f"{ours}.ln_2"}
        turned |= {
            f"{at}.attn.c_attn": f"{ours}.attn.qkv",
            f"{at}.attn.c_proj": f"{ours}.attn.proj",
            f"{at}.mlp.c_fc": f"{ours}.up",
            f"{at}.mlp.c_proj": f"{ours}.down",
        }
    found = _renamed(theirs, {**names, **turned})
    for ours in turned.values():
        shape(found, f"{ours}.weight", 2)
        found[f"{ours}.weight"] = found[f"{ours}.weight"].t().contiguous()
    found["embed_timestep.weight"] = theirs["embed_timestep.weight"]
    row = theirs["encoder.wpe.weight"][:1].flatten()
    if row.shape != found["embed_ln.bias"].shape:
        raise CheckpointError(f"encoder.wpe.weight has rows of {len(row)} numbers, a different size than embed_ln.")
    found["embed_ln.bias"] = found["embed_ln.bias"] + row
    return found


def _renamed(theirs: Mapping[str, Tensor], names: Mapping[str, str]) -> dict[str, Tensor]:
    try:
        return {
            f"{ours}.{part}": theirs[f"{name}.{part}"] for name, ours in names.items() for part in ("weight", "bias")
        }
    except KeyError as error:
        raise CheckpointError(f"the checkpoint lacks {error.args[0]}.") from None


# -- CORL --------------------------------------------------------------------------------------------------------------


def read_corl(path: Path, options: ImportOptions) -> Checkpoint:
    """Read a `dt_checkpoint.pt` and the config.yaml beside it; raises as `import_agent`."""
    checkpoint = _unpickled(path)
    tensors = checkpoint.get("model_state", checkpoint)
    if not isinstance(tensors, Mapping) or "blocks.0.causal_mask" not in tensors:
        raise ConfigError(
            f"{path} is not a Decision Transformer of CORL: it has no model_state with blocks.0.causal_mask."
        )
    settings = _corl_config(path.parent / CORL_CONFIG)
    heads = settings.get("num_heads") if options.heads is None else options.heads
    if heads is None:
        raise ConfigError("the file does not store the number of attention heads; pass --heads (CORL's default is 1).")
    layers = sum(1 for name in tensors if isinstance(name, str) and name.endswith(".causal_mask"))
    trained = shape(tensors, "blocks.0.causal_mask", 2)[0] // 3
    model = dt_config(
        embed_dim=shape(tensors, "emb_norm.weight", 1)[0],
        n_layers=layers,
        n_heads=count({"num_heads": heads}, "num_heads", 1),
        dropout=number(settings, "residual_dropout", 0.1),
        activation="gelu",
        max_ep_len=shape(tensors, "timestep_emb.weight", 2)[0],
    )
    reach = float(number(settings, "max_action", 1.0) if options.max_action is None else options.max_action)
    scale = number(settings, "reward_scale", 0.001)
    if not (reach > 0 and scale > 0):
        raise ConfigError(f"the checkpoint has max_action={reach} and reward_scale={scale}; both must be positive.")
    size = shape(tensors, "state_emb.weight", 2)[1]
    mean, std = _statistics(options, size, checkpoint.get("state_mean"), checkpoint.get("state_std"))
    return Checkpoint(
        tensors=_from_corl(floats(tensors), layers, reach),
        model=model,
        mean=mean,
        std=std,
        context=trained if options.context is None else options.context,
        rtg_scale=1.0 / scale if options.rtg_scale is None else options.rtg_scale,
        reach=reach,
    )


def _corl_config(path: Path) -> dict[str, Any]:
    """The settings of its training, empty if the file is missing."""
    if not path.is_file():
        return {}
    import yaml  # a dependency of huggingface_hub

    try:
        tree = yaml.safe_load(read_text(path))
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} is not YAML: {' '.join(str(error).split())}.") from None
    return tree if isinstance(tree, dict) else {}


def _from_corl(theirs: Mapping[str, Tensor], layers: int, reach: float) -> dict[str, Tensor]:
    names = {
        "return_emb": "embed_return",
        "state_emb": "embed_obs",
        "action_emb": "embed_action",
        "emb_norm": "embed_ln",
        "out_norm": "backbone.ln_f",
        "action_head.0": "predict_action",
    }
    for i in range(layers):
        at, ours = f"blocks.{i}", f"backbone.blocks.{i}"
        names |= {
            f"{at}.norm1": f"{ours}.ln_1",
            f"{at}.norm2": f"{ours}.ln_2",
            f"{at}.attention.out_proj": f"{ours}.attn.proj",
            f"{at}.mlp.0": f"{ours}.up",
            f"{at}.mlp.2": f"{ours}.down",
        }
    found = _renamed(theirs, names)
    for i in range(layers):
        for part, dimensions in (("weight", 2), ("bias", 1)):
            name = f"blocks.{i}.attention.in_proj_{part}"
            shape(theirs, name, dimensions)
            found[f"backbone.blocks.{i}.attn.qkv.{part}"] = theirs[name]
    found["embed_timestep.weight"] = theirs["timestep_emb.weight"]
    found["embed_action.weight"] = found["embed_action.weight"] * reach  # our network reads actions in [-1, 1]
    return found


def _unpickled(path: Path) -> dict[str, Any]:
    """Read a pickle that holds only tensors, numbers and NumPy arrays; anything else is rejected and not run.

    Raises:
        CheckpointError: missing, broken, or it holds other objects.
    """
    if not path.is_file():
        raise CheckpointError(f"{path} is missing.")
    rebuild = np.array(0.0).__reduce__()[0]
    allowed: list[Any] = [np.ndarray, np.dtype, *(type(np.dtype(name)) for name in ("float32", "float64"))]
    allowed += [(rebuild, f"numpy.{core}.multiarray._reconstruct") for core in ("core", "_core")]
    try:
        with torch.serialization.safe_globals(allowed):
            found = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a pickle can raise any type
        reason = " ".join(str(error).split())[:200]
        raise CheckpointError(f"{path} was not read: it is broken, or holds more than weights ({reason}).") from None
    if not isinstance(found, Mapping):
        raise CheckpointError(f"{path} holds a {type(found).__name__}, not a checkpoint.")
    return dict(found)
