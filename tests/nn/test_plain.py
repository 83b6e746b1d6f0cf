"""Linear layers as graphs run them give the numbers of the layers called one by one."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from agentzoo.nn import plain
from agentzoo.nn.plain import side_by_side


@pytest.mark.parametrize("bias", [True, False])
def test_layers_side_by_side_are_one_product_in_a_graph(bias: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    layers = [nn.Linear(5, 4, bias=bias).double() for _ in range(3)]
    x = torch.randn(2, 7, 3, 5, dtype=torch.float64)
    wanted = torch.stack([layers[0](x[:, :, 0]), layers[1](x[:, :, 1]), layers[2](x[:, :, 2])], dim=2)
    assert torch.equal(side_by_side(layers, x), wanted)
    monkeypatch.setattr(plain, "is_exporting", lambda: True)
    assert torch.allclose(side_by_side(layers, x), wanted, atol=1e-12)


def test_a_hooked_layer_is_called_in_a_graph_too(monkeypatch: pytest.MonkeyPatch) -> None:
    layers = [nn.Linear(5, 4), nn.Linear(5, 4)]
    layers[1].register_forward_hook(lambda _, __, out: 2 * out)
    x = torch.randn(2, 7, 2, 5)
    monkeypatch.setattr(plain, "is_exporting", lambda: True)
    assert torch.equal(side_by_side(layers, x)[:, :, 1], 2 * (x[:, :, 1] @ layers[1].weight.T + layers[1].bias))
