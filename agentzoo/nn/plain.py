"""Linear layers and convolutions: whose weights may be used without calling them, and how exported graphs run them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")

# True inside `torch.export`.
is_exporting: Callable[[], bool] = getattr(torch.compiler, "is_exporting", lambda: False)
# ONNX's `Attention`, one operation of opset 23, for graphs. None in versions of PyTorch that do not have it.
onnx_attention: Callable[..., Any] | None = getattr(getattr(torch.onnx, "ops", None), "attention", None)


def is_plain(layer: nn.Module) -> bool:
    """Whether `layer` is PyTorch's own class, so that its weight and bias define it completely.

    A wrapped, pruned, parametrized or hooked layer is not plain: it must be called as it is.
    """
    own = type(layer) in (nn.Linear, nn.Conv1d) and "forward" not in vars(layer)
    return own and not any(getattr(layer, hooks) for hooks in HOOKS)


def linear_rows(layer: nn.Module, x: Tensor, rows: slice) -> Tensor:
    """(..., X) -> (..., R): the outputs `rows` of a linear layer. One that is not plain computes all of them."""
    if not isinstance(layer, nn.Linear) or not is_plain(layer):
        out: Tensor = layer(x)[..., rows]
        return out
    if is_exporting() and layer.bias is not None and x.ndim == 3:
        return per_token(lambda flat: linear(flat, layer.weight[rows], layer.bias[rows]), x)
    return linear(x, layer.weight[rows], None if layer.bias is None else layer.bias[rows])


def per_token(layer: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """(B, L, X) -> (B, L, Y): `layer(x)`.

    A graph runs it on (B·L, X): ONNX Runtime adds the bias within a product only if that is of two matrices.
    """
    if not is_exporting():
        return layer(x)
    return torch.unflatten(layer(x.flatten(0, 1)), 0, (-1, x.shape[1]))


def side_by_side(layers: Sequence[nn.Module], x: Tensor) -> Tensor:
    """(B, L, G, X) -> (B, L, G, Y): the g-th of G equal linear layers on x[:, :, g].

    A graph runs one product with a block-diagonal matrix: on a few tokens each operation costs more than the zeros.
    """
    if not (is_exporting() and all(is_plain(layer) for layer in layers)):
        return torch.stack([layer(part) for layer, part in zip(layers, x.unbind(2), strict=True)], dim=2)
    weight: Tensor = torch.block_diag(*(layer.weight for layer in layers))  # type: ignore[no-untyped-call]
    bias = None if layers[0].bias is None else torch.cat([layer.bias for layer in layers])  # type: ignore[misc]
    return torch.unflatten(per_token(lambda flat: linear(flat, weight, bias), x.flatten(2)), -1, (len(layers), -1))
