"""A fused query-key-value projection with low-rank updates of its three parts.

Source: Hu et al. 2021, arXiv:2106.09685; on a fused projection each of q, k and v has its own update of rank r.
The state dict holds the merged weight and no A or B, so a saved agent is a plain network. The checkpoint of a run keeps
the base weight, A and B apart (`lora_state`), so that the run can continue.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from agentzoo.nn.dropout import Dropout


class LoRALinear(nn.Linear):
    """`W x + b + (alpha / r) B A dropout(x)` with W fixed; A starts Kaiming-uniform, B at zero. b is trained."""

    def __init__(
        self, dim: int, parts: tuple[int, ...], rank: int, alpha: float, dropout: float, bias: bool = True
    ) -> None:
        """`parts`: the number of rows of q, k and v."""
        super().__init__(dim, sum(parts), bias)
        self.parts = parts
        self.scale = alpha / rank
        self.lora_a = nn.Parameter(torch.empty(len(parts), rank, dim))
        self.lora_b = nn.Parameter(torch.zeros(sum(parts), rank))  # of all parts
        for part in self.lora_a:
            nn.init.kaiming_uniform_(part, a=math.sqrt(5))
        self.lora_dropout = Dropout(dropout)
        self.weight.requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        """(..., D) -> (..., rows of all parts)."""
        dropped = self.lora_dropout(x)
        updates = [linear(linear(dropped, a), b) for a, b in self._factors()]
        return super().forward(x) + self.scale * torch.cat(updates, dim=-1)

    def merged(self) -> Tensor:
        """The weight of the plain layer that computes the same."""
        return self.weight + self.scale * torch.cat([b @ a for a, b in self._factors()])

    def _factors(self) -> list[tuple[Tensor, Tensor]]:
        """A and B of each part."""
        return list(zip(self.lora_a, torch.split(self.lora_b, list(self.parts)), strict=True))

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        with torch.no_grad():
            destination[prefix + "weight"] = self.merged().detach()
        del destination[prefix + "lora_a"], destination[prefix + "lora_b"]

    def _load_from_state_dict(self, state_dict: Mapping[str, Any], prefix: str, *rest: Any) -> None:
        """The loaded weight is the merged one, so updates start at zero again."""
        whole = {**state_dict, prefix + "lora_a": self.lora_a, prefix + "lora_b": torch.zeros_like(self.lora_b)}
        super()._load_from_state_dict(whole, prefix, *rest)


def lora_state(module: nn.Module) -> dict[str, Tensor]:
    """Base weight, A and B of every low-rank layer inside `module`, which its state dict holds merged."""
    found: dict[str, Tensor] = {}
    for name, layer in module.named_modules():
        if isinstance(layer, LoRALinear):
            parts = {"weight": layer.weight, "lora_a": layer.lora_a, "lora_b": layer.lora_b}
            found |= {f"{name}.{part}": value.detach() for part, value in parts.items()}
    return found


def load_lora_state(module: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Inverse of `lora_state`. Call it after the state dict is loaded."""
    with torch.no_grad():
        for name in lora_state(module):
            module.get_parameter(name).copy_(tensors[name])
