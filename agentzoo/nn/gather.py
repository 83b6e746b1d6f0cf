"""Decision Mamba's gather: features of three neighbouring tokens for its fine branch."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, pad

from agentzoo.nn.plain import is_exporting, is_plain
from agentzoo.nn.tokens import TOKENS_PER_STEP

# The tokens that each output of `advance` reads; 5 is padding.
_ROWS = {
    "step": (0, 1, 2, 5, 5, 3, 5, 3, 4),
    "causal3": (0, 1, 2, 1, 2, 3, 2, 3, 4),
    "summary": (0, 1, 2),
}


class Gather(nn.Module):
    """The convolution in front of the fine branch: three tokens wide, all channels mixed.

    Kinds: `step` reads the earlier tokens of the same step, `causal3` the last three tokens, `summary` whole steps.
    """

    def __init__(self, dim: int, kind: str) -> None:
        super().__init__()
        self.kind = kind
        self.conv = nn.Conv1d(dim, dim, TOKENS_PER_STEP, stride=TOKENS_PER_STEP if kind == "summary" else 1)

    def forward(self, u: Tensor) -> Tensor:
        """(B, L, D) -> (B, L, D), or one summary per step (B, K, D)."""
        if self.kind != "step":
            before = 0 if self.kind == "summary" else TOKENS_PER_STEP - 1
            return self._convolve(pad(u, (0, 0, before, 0)))
        steps = u.reshape(-1, TOKENS_PER_STEP, u.shape[2])  # (B·K, 3, D)
        if is_plain(self.conv):
            return self._convolve_steps(steps.flatten(1)).view(u.shape)
        return self._convolve(pad(steps, (0, 0, TOKENS_PER_STEP - 1, 0))).reshape(u.shape)

    def advance(self, before: Tensor, u: Tensor) -> Tensor:
        """`forward` for the tokens (a, R, s), u (N, 3, D), after (R, s), `before` (N, 2, D).

        Returns:
            (N, 3, D), or the summary of the step that ends with the action, (N, 1, D).
        """
        tokens = pad(torch.cat((before, u), dim=1), (0, 0, 0, 1))  # (N, 6, D), the last one zero
        rows = tokens.index_select(1, torch.tensor(_ROWS[self.kind], device=u.device))
        if is_exporting() and is_plain(self.conv):  # ONNX Runtime is slow at short convolutions
            weight = self.conv.weight.permute(0, 2, 1).flatten(1)
            return linear(torch.unflatten(rows, 1, (-1, TOKENS_PER_STEP)).flatten(2), weight, self.conv.bias)
        rows = rows.reshape(-1, TOKENS_PER_STEP, u.shape[2])
        return self._convolve(rows).reshape(len(u), -1, u.shape[2])

    def _convolve(self, x: Tensor) -> Tensor:
        """(B, L, D) -> (B, L - 2, D), or (B, L / 3, D) for summaries."""
        out: Tensor = self.conv(x.transpose(1, 2)).transpose(1, 2)
        return out

    def _convolve_steps(self, steps: Tensor) -> Tensor:
        """(B·K, 3D) -> (B·K, 3D) by one product with a block-triangular matrix: twice as fast as three taps."""
        dim = self.conv.in_channels
        taps = self.conv.weight.permute(0, 2, 1)  # (D, 3, D), oldest token first
        rows = [pad(taps[:, -n:].flatten(1), (0, (TOKENS_PER_STEP - n) * dim)) for n in (1, 2, 3)]
        return linear(steps, torch.cat(rows), self.conv.bias.repeat(TOKENS_PER_STEP))  # type: ignore[union-attr]
