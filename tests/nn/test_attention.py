"""The transformer block's activation: as fast as it can be, the same numbers."""

from __future__ import annotations

import torch

from agentzoo.nn.attention import Block, relu


def test_relu_changes_its_input_only_where_no_gradient_is_taken() -> None:
    x = torch.tensor([-1.0, 2.0])
    assert relu(x) is x
    assert x.tolist() == [0.0, 2.0]
    learned = torch.tensor([-1.0, 2.0], requires_grad=True)
    assert relu(learned).tolist() == [0.0, 2.0]
    assert learned.tolist() == [-1.0, 2.0]


def test_a_block_learns_to_the_bit_what_it_learns_with_relu_in_place() -> None:
    torch.manual_seed(0)
    block, x = Block(16, 2, 0.0), torch.randn(3, 9, 16)
    gradients = []
    for block.activate in (relu, torch.relu_):
        block.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            block(x).square().sum().backward()
        gradients.append([parameter.grad for parameter in block.parameters()])
    assert all(torch.equal(*pair) for pair in zip(*gradients, strict=True))
