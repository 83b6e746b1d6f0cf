"""The attention layers of any family, behind one small interface."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from agentzoo.errors import ConfigError
from agentzoo.nn.attention import CausalAttention
from agentzoo.nn.base import SequenceModel
from agentzoo.nn.encoder import EncoderLayer
from agentzoo.nn.gate import Gate
from agentzoo.nn.language.language_attention import LanguageAttention
from agentzoo.nn.language.lora import LoRALinear
from agentzoo.nn.language.rotary import Rotary
from agentzoo.types import Batch


class AttentionLayer(NamedTuple):
    """One attention layer of a network."""

    number: int  # from 0
    module: nn.Module  # its first input is the input of queries, keys and values
    qkv: Tensor  # (D + 2 Dk, D), Dk = D unless heads share keys and values in groups
    bias: Tensor | None  # (D + 2 Dk,)
    output: Tensor  # (D, D): the weight of the output projection, the network's own
    n_heads: int
    causal: bool
    rotary: Rotary | None = None
    gate: Gate | None = None
    gain: Tensor | None = None  # (D,): of the norm before it

    def scores(self, tokens: Tensor) -> Tensor:
        """(B, L, D) -> (B, H, L, L): the scores before the softmax over the last axis."""
        length, dim = tokens.shape[1:]
        size, shared = dim // self.n_heads, (len(self.qkv) - dim) // 2
        parts = torch.split(linear(tokens, self.qkv, self.bias), [dim, shared, shared], dim=-1)
        q, k = (part.view(*part.shape[:2], -1, size).transpose(1, 2) for part in parts[:2])  # (B, H or Hk, L, D/H)
        if self.rotary is not None:
            q, k = self.rotary.turn(q, length), self.rotary.turn(k, length)
        found: Tensor = q @ k.repeat_interleave(dim // shared, dim=1).transpose(-1, -2) * size**-0.5
        if not self.causal:
            return found
        later = torch.ones(length, length, dtype=torch.bool, device=tokens.device).triu(1)
        masked: Tensor = found.masked_fill(later, -torch.inf)
        return masked

    @contextmanager
    def without_head(self, head: int) -> Iterator[None]:
        """Inside, the output of this head is 0 just before the output projection."""
        size = self.output.shape[1] // self.n_heads
        columns = self.output.detach()[:, head * size : (head + 1) * size]
        kept = columns.clone()
        columns.zero_()
        try:
            yield
        finally:
            columns.copy_(kept)


def attention_layers(network: nn.Module) -> list[AttentionLayer]:
    """All attention layers, first to last; may be empty."""
    found: list[AttentionLayer] = []
    for block in network.modules():
        if isinstance(block, EncoderLayer):
            attn = block.self_attn
            parts = (attn.in_proj_weight, attn.in_proj_bias, attn.out_proj.weight)
            found.append(AttentionLayer(len(found), block, *parts, attn.num_heads, causal=False))
        attention = getattr(block, "attn", None)
        if isinstance(attention, CausalAttention):
            found.append(_causal_layer(len(found), block, attention))
    return found


def _causal_layer(index: int, block: nn.Module, attention: CausalAttention) -> AttentionLayer:
    qkv = attention.qkv
    weight = qkv.merged() if isinstance(qkv, LoRALinear) else qkv.weight
    gain = block.get_submodule("ln_1").get_parameter("weight")
    found = AttentionLayer(
        index, attention, weight, qkv.bias, attention.proj.weight, attention.n_heads, causal=True, gain=gain
    )
    if isinstance(attention, LanguageAttention):
        return found._replace(rotary=attention.rotary, gate=attention.gate)
    return found


def require_attention(network: nn.Module, what: str) -> list[AttentionLayer]:
    """As `attention_layers`.

    Raises:
        ConfigError: there are none, so there is no `what`.
    """
    found = attention_layers(network)
    if found:
        return found
    name = network.config.family if isinstance(network, SequenceModel) else type(network).__name__
    raise ConfigError(f"a {name!r} network has no attention layers, so there is no {what}.")


def layer_inputs(model: SequenceModel, batch: Batch, layers: list[AttentionLayer]) -> list[Tensor]:
    """The inputs of each layer for these windows: (B, L, D) each, L up to the longest window."""
    found: dict[int, Tensor] = {}

    def keep(index: int) -> object:
        def hook(_: nn.Module, args: tuple[Tensor, ...]) -> None:
            found[index] = args[0].detach()

        return layers[index].module.register_forward_pre_hook(hook)

    handles = [keep(i) for i in range(len(layers))]
    try:
        with torch.no_grad():
            model.act(batch)
    finally:
        for handle in handles:
            handle.remove()  # type: ignore[attr-defined]
    return [found[i] for i in range(len(layers))]
