"""Acting token by token: Mamba blocks of one size continued side by side, in as few operator calls as possible.

At one to three tokens a call costs more than its arithmetic, so the blocks of a layer are stacked along an axis G,
their weights are brought into shape once, and every step is one operator for all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import silu

from agentzoo.nn.native.scan import ScanInputs, continue_scan, decay_base


class StepWeights(NamedTuple):
    """The weights of G blocks behind their input projections. R rank, N states, I inner width, W taps, D width."""

    taps: Tensor  # (G, 1, 1, W, I)
    conv_bias: Tensor  # (G, 1, 1, I)
    x_proj: Tensor  # (G, I, R + 2N)
    dt_proj: Tensor  # (G, R, I)
    dt_bias: Tensor  # (G, 1, 1, I)
    base: Tensor  # (G, 1, 1, N, I), `decay_base`
    D: Tensor  # (G, 1, 1, I)
    out_proj: Tensor  # (G, I, D)

    @classmethod
    def of(cls, blocks: Sequence[Any]) -> StepWeights:
        """Copies, brought into shape, of the weights of `nn.mamba.Mamba` blocks that are equally large."""

        def stack(read: Callable[[Any], Tensor], *ones: int) -> Tensor:
            together = torch.stack([read(block) for block in blocks])
            return together.view(len(blocks), *ones, *together.shape[1:])

        with torch.no_grad():
            return cls(
                taps=stack(lambda block: block.conv1d.weight.squeeze(1).t(), 1, 1),
                conv_bias=stack(lambda block: block.conv1d.bias, 1, 1),
                x_proj=stack(lambda block: block.x_proj.weight.t()),
                dt_proj=stack(lambda block: block.dt_proj.weight.t()),
                dt_bias=stack(lambda block: block.dt_proj.bias, 1, 1),
                base=stack(lambda block: decay_base(-torch.exp(block.A_log)), 1, 1),
                D=stack(lambda block: block.D, 1, 1),
                out_proj=stack(lambda block: block.out_proj.weight.t()),
            )

    def advance(
        self, x: Tensor, z: Tensor, mask: Tensor | None, conv: Tensor, ssm: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The next L tokens of B sequences whose past is in two states; no gradients.

        Args:
            x, z: (G, B, L, I) what the input projections made of the tokens and of what the gate is read from.
            mask: (B, L, 1), 0 where a token must leave no trace; `x` is 0 there.
            conv: (G, B, W-1, I) the last x before these. ssm: (G, B, N, I). Zeros at the start.

        Returns:
            (G, B, L, D), and both states after these tokens.
        """
        groups, batch, length, inner = x.shape
        rank, states = self.dt_proj.shape[1], self.base.shape[3]
        taped = torch.cat((conv, x), dim=2)  # (G, B, W-1+L, I)
        windows = taped.unfold(2, self.taps.shape[3], 1).transpose(3, 4)  # (G, B, L, W, I)
        convolved = silu((windows * self.taps).sum(3).add_(self.conv_bias))
        if mask is not None:
            convolved = convolved * mask
        selected = torch.bmm(convolved.view(groups, batch * length, inner), self.x_proj)
        low_rank, B, C = torch.split(selected, [rank, states, states], dim=-1)
        delta = torch.bmm(low_rank, self.dt_proj).view(x.shape)
        B, C = (part.view(groups, batch, length, states) for part in (B, C))
        inputs = ScanInputs(convolved, delta, self.base, B, C, self.D, z, self.dt_bias)
        y, ssm = continue_scan(ssm, inputs, self.base)
        out = torch.bmm(y.reshape(groups, batch * length, inner), self.out_proj)
        return out.view(groups, batch, length, -1), taped[:, :, length:], ssm
