"""The tensor names of checkpoints, and how our tensors are made from them. Sizes are checked first."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from agentzoo.errors import CheckpointError, ConfigError
from agentzoo.nn.language.backbone import LanguageBackbone
from agentzoo.nn.language.block_sizes import Architecture
from agentzoo.nn.language.foreign_kinds import Described
from agentzoo.nn.sizes_only import sizes_only
from agentzoo.store.tensors import first_names

FLOATS = ("F64", "F32", "F16", "BF16")
MASKS = (".attn.bias", ".attn.masked_bias", ".rotary_emb.inv_freq")  # constants in older checkpoints
TOKENS, POSITIONS = "tokens", "positions"  # beside the names of a `LanguageBackbone`
Header = Mapping[str, tuple[str, tuple[int, ...]]]  # name -> type, shape


@dataclass(frozen=True)
class Layout:
    """The tensor names of an architecture in one kind of file. Several names mean stacked tensors."""

    tokens: str
    positions: str | None
    blocks: str
    final: str
    layers: Mapping[str, str | tuple[str, ...]]  # ours -> theirs
    turned: bool = False  # its linear layers store (in, out), as `Conv1D` does


_GPT2 = {
    "ln_1": "ln_1",
    "attn.qkv": "attn.c_attn",
    "attn.proj": "attn.c_proj",
    "ln_2": "ln_2",
    "up": "mlp.c_fc",
    "down": "mlp.c_proj",
}
LAYOUTS: dict[Architecture, Layout] = {  # as transformers names them
    "gpt2": Layout("wte", "wpe", "h", "ln_f", _GPT2, turned=True),
    "imagegpt": Layout("wte", "wpe", "h", "ln_f", _GPT2, turned=True),
    "gptj": Layout(
        "wte",
        None,
        "h",
        "ln_f",
        {
            "ln_1": "ln_1",
            "attn.qkv": ("attn.q_proj", "attn.k_proj", "attn.v_proj"),
            "attn.proj": "attn.out_proj",
            "up": "mlp.fc_in",
            "down": "mlp.fc_out",
        },
    ),
    "clip": Layout(
        "embeddings.token_embedding",
        "embeddings.position_embedding",
        "encoder.layers",
        "final_layer_norm",
        {
            "ln_1": "layer_norm1",
            "attn.qkv": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
            "attn.proj": "self_attn.out_proj",
            "ln_2": "layer_norm2",
            "up": "mlp.fc1",
            "down": "mlp.fc2",
        },
    ),
    "llama": Layout(
        "embed_tokens",
        None,
        "layers",
        "norm",
        {
            "ln_1": "input_layernorm",
            "attn.qkv": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
            "attn.proj": "self_attn.o_proj",
            "ln_2": "post_attention_layernorm",
            "up": ("mlp.gate_proj", "mlp.up_proj"),
            "down": "mlp.down_proj",
        },
    ),
}


class Part(NamedTuple):
    """A tensor of the file: one of ours, or a part of one."""

    name: str
    shape: tuple[int, ...]
    turned: bool = False


class Opened(NamedTuple):
    """A checkpoint of which only config and header are read."""

    described: Described
    layout: Layout
    header: Header
    read: Callable[[str], Tensor]
    sha256: str | None = None  # of the file, if recipes pin the file
    tokenizer: str | None = None  # the text of a tokenizer.json, if the file holds one

    def tensors(self, name: str, layers: int | None = None) -> dict[str, Tensor]:
        """Blocks and final norm under our names, `tokens`, and `positions` if the model has them; float32.

        Args:
            name: of the backbone, for messages.
            layers: how many to read, from the first on; None: all.

        Raises:
            ConfigError: it has fewer layers. CheckpointError: a tensor is missing, unknown, not finite, or of another
                shape or type than the config says.
        """
        most = self.described.sizes.n_layers
        if layers is not None and layers > most:
            raise ConfigError(f"backbone {name!r} has {most} layers, not {layers}: --set model.n_layers={most}.")
        prefix = self._prefix()
        wanted = self._wanted(prefix)
        _require_whole(self.header, wanted, f"{prefix}{self.layout.blocks}.")
        later = tuple(f"blocks.{i}." for i in range(most if layers is None else layers, most))
        return {ours: self._stacked(parts) for ours, parts in wanted.items() if not ours.startswith(later)}

    def _prefix(self) -> str:
        """The prefix of the transformer's names: `transformer.` in a whole language model, none in a bare one."""
        ending = f"{self.layout.tokens}.weight"
        found = [name.removesuffix(ending) for name in self.header if name == ending or name.endswith(f".{ending}")]
        if len(found) > 1:
            raise CheckpointError(
                f"it has {among(sorted(f'{prefix}{ending}' for prefix in found))}; only one may be there."
            )
        return found[0] if found else ""

    def _wanted(self, prefix: str) -> dict[str, list[Part]]:
        """Our name -> its tensors in the file, with the shapes by the config. Nothing is allocated."""
        layout, sizes = self.layout, self.described.sizes
        with sizes_only():
            network = LanguageBackbone(sizes._replace(n_layers=1))  # layers are alike, and building many is slow
        wanted = {}
        for key, value in network.state_dict().items():
            module, part = key.rsplit(".", 1)
            if module == "ln_f":
                wanted[key] = [Part(f"{prefix}{layout.final}.{part}", tuple(value.shape), False)]
                continue
            layer = module.removeprefix("blocks.0.")
            theirs = layout.layers[layer]
            names = (theirs,) if isinstance(theirs, str) else theirs
            rows = network.rows_of(module) if len(names) > 1 else (value.shape[0],)
            shapes = [(count, *value.shape[1:]) for count in rows]
            turned = layout.turned and value.ndim == 2
            for index in range(sizes.n_layers):
                wanted[f"blocks.{index}.{layer}.{part}"] = [
                    Part(f"{prefix}{layout.blocks}.{index}.{one}.{part}", shape[::-1] if turned else shape, turned)
                    for one, shape in zip(names, shapes, strict=True)
                ]
        wanted[TOKENS] = [Part(f"{prefix}{layout.tokens}.weight", (self.described.vocab_size, sizes.embed_dim))]
        if layout.positions is not None and self.described.positions is not None:
            wanted[POSITIONS] = [
                Part(f"{prefix}{layout.positions}.weight", (self.described.positions, sizes.embed_dim))
            ]
        return wanted

    def _stacked(self, parts: Sequence[Part]) -> Tensor:
        """One of our tensors, from the file's, below each other: (out, in)."""
        values = []
        for part in parts:
            value = self.read(part.name).to(torch.float32)
            if tuple(value.shape) != part.shape:
                raise CheckpointError("its weights changed while they were read. Load it again.")
            if not torch.isfinite(value).all():
                raise CheckpointError(f"it holds numbers that are not finite, in {part.name}.")
            values.append(value.T if part.turned else value)
        return torch.cat(values).contiguous() if len(values) > 1 else values[0].contiguous()


def _require_whole(header: Header, wanted: Mapping[str, list[Part]], blocks: str) -> None:
    """Raise CheckpointError unless the file has every weight in the right shape, and no further weight in a block."""
    parts = {part.name: part.shape for several in wanted.values() for part in several}
    lacking = sorted(set(parts) - set(header))
    if lacking:
        raise CheckpointError(f"it lacks {among(lacking)}.")
    wrong = [f"{key} {header[key][1]}, not {shape}" for key, shape in sorted(parts.items()) if header[key][1] != shape]
    if wrong:
        raise CheckpointError(f"it has other shapes than its config.json says: {among(wrong)}.")
    kinds = sorted({header[key][0] for key in parts} - set(FLOATS))
    if kinds:
        raise CheckpointError(f"it holds weights of type {', '.join(kinds)}; supported are {', '.join(FLOATS)}.")
    spare = sorted(key for key in header if key.startswith(blocks) and key not in parts and not key.endswith(MASKS))
    if spare:
        raise CheckpointError(
            f"its blocks hold more than its config.json says: {among(spare)}. Correct the config; otherwise an agent "
            "would start from a part of the network only."
        )


def among(names: Sequence[str]) -> str:
    """The count and the first names."""
    return f"{len(names)} {'tensor' if len(names) == 1 else 'tensors'}: {first_names(list(names))}"
