"""The transformer block: short cuts give the same numbers."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from agentzoo.nn.attention import Block, CausalAttention, relu


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


@pytest.mark.parametrize("heads", [1, 4])
def test_one_query_for_each_window_equals_that_token_of_the_full_pass(heads: int) -> None:
    """Queries and values go through the weights in another order there; biases of queries and keys count, too."""
    torch.manual_seed(heads)
    attention, x = CausalAttention(16, heads, 0.0).eval(), torch.randn(3, 9, 16)
    nn.init.normal_(attention.qkv.weight, std=0.5)  # scores that differ from token to token
    nn.init.normal_(attention.qkv.bias)
    newest = torch.tensor([0, 4, 8])
    with torch.no_grad():
        expected = attention(x)[torch.arange(3), newest]
        torch.testing.assert_close(attention(x, newest).squeeze(1), expected, rtol=1e-5, atol=1e-6)
        hook = attention.qkv.register_forward_hook(lambda layer, given, out: 2 * out)
        doubled = attention(x)[torch.arange(3), newest]  # whoever changes the layer changes this pass as well
        torch.testing.assert_close(attention(x, newest).squeeze(1), doubled, rtol=1e-5, atol=1e-6)
        hook.remove()
    assert not torch.allclose(doubled, expected, atol=0.1)
