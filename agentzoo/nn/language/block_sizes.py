"""The sizes that the blocks of a language model are built from."""

from __future__ import annotations

from typing import Annotated, Literal, NamedTuple

from pydantic import Field

from agentzoo.nn.attention import HeadCount, LayerCount

Architecture = Literal["gpt2", "imagegpt", "gptj", "clip", "llama"]
Activation = Literal["relu", "gelu", "gelu_new", "gelu_pytorch_tanh", "quick_gelu", "silu"]
Width = Annotated[int, Field(ge=1, le=8192)]
InnerWidth = Annotated[int, Field(ge=1, le=32_768)]  # of an MLP
__all__ = ["Activation", "Architecture", "HeadCount", "InnerWidth", "LayerCount", "LoRASizes", "Sizes", "Width"]


class Sizes(NamedTuple):
    """Sizes from a checkpoint's config or from a recipe."""

    architecture: Architecture
    embed_dim: int  # D
    n_layers: int
    n_heads: int
    inner_dim: int  # of the MLP
    activation: Activation
    norm_eps: float = 1e-5
    rotary_dim: int = 0  # gptj: how many numbers of each head are rotated
    n_kv_heads: int | None = None  # llama: heads of keys and values
    rotary_theta: float | None = None  # llama: the longest wave of the rotation is about 2π times as many tokens


class LoRASizes(NamedTuple):
    """Low-rank updates of the query-key-value projection."""

    rank: int
    alpha: float
    dropout: float
