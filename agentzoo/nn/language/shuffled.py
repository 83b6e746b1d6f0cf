"""A language model without its language: the entries of every matrix are permuted.

An agent that starts from it has the scale of the backbone's weights, but nothing the backbone learned. Comparing the
two shows what the learned part is worth.
"""

from __future__ import annotations

import torch
from torch import Tensor

from agentzoo.nn.language.backbone import LanguageBackbone
from agentzoo.nn.language.pretrained import Pretrained
from agentzoo.nn.sizes_only import sizes_only

SEED = 0


def shuffled(found: Pretrained) -> Pretrained:
    """Permute the entries of each matrix, and of each part of a fused one; gains and biases stay. Deterministic."""
    generator = torch.Generator().manual_seed(SEED)
    with sizes_only():
        network = LanguageBackbone(found.sizes)
    blocks = {}
    for name, value in sorted(found.blocks.items()):
        layer = name.rpartition(".")[0]
        rows = network.rows_of(layer) or (len(value),)
        parts = [_permuted(part, generator) if value.ndim == 2 else part for part in torch.split(value, list(rows))]
        blocks[name] = torch.cat(parts)
    return found._replace(blocks=blocks, tokens=_permuted(found.tokens, generator))


def _permuted(matrix: Tensor, generator: torch.Generator) -> Tensor:
    order = torch.randperm(matrix.numel(), generator=generator)
    return matrix.flatten()[order].view(matrix.shape)
