"""The memory of a Mamba agent: effective step sizes, and the number of tokens until a state fades.

A channel's state n is multiplied by exp(Δ A_n) at every token (`scan.py`), so with A_n < 0 it falls to 1/e within
1 / (Δ |A_n|) tokens. Δ depends on the token; here it is the mean over the real tokens of the windows given. The memory
length of a channel is that of its slowest state. Its unit is a third of a step: in a block that reads one token per
step, every token counts as three.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, softplus

from agentzoo.agent import Agent
from agentzoo.errors import ConfigError
from agentzoo.nn.mamba import Mamba
from agentzoo.nn.tokens import TOKENS_PER_STEP
from agentzoo.research.analysis.agent_windows import in_pieces
from agentzoo.types import Batch

QUANTILES = (0.1, 0.5, 0.9)


class MambaMemory(NamedTuple):
    """One Mamba block: quantiles 10, 50 and 90 % over its channels."""

    block: str  # its name in the network
    step_size: list[float]  # Δ
    tokens: list[float]  # memory length, three to a step
    spread: float  # standard deviation of log Δ over tokens, median of channels: 0 where input does not matter


class MemoryReport(NamedTuple):
    """Every block of a network."""

    blocks: list[MambaMemory]
    context_tokens: int  # of the window the agent was trained on

    def as_tree(self) -> dict[str, Any]:
        """For JSON."""
        return {"context_tokens": self.context_tokens, "blocks": [one._asdict() for one in self.blocks]}


def memory_report(agent: Agent, windows: Batch) -> MemoryReport:
    """Effective step sizes and memory lengths over these windows.

    Raises:
        ConfigError: the network has no Mamba blocks.
    """
    blocks = {name: block for name, block in agent.model.named_modules() if isinstance(block, Mamba)}
    if not blocks:
        family = agent.model.config.family
        raise ConfigError(f"a {family!r} network has no Mamba blocks and so no step sizes; a dm agent has them.")
    sums = {name: torch.zeros(3, block.inner, dtype=torch.float64) for name, block in blocks.items()}
    tokens, a_step = dict.fromkeys(blocks, 0), dict.fromkeys(blocks, TOKENS_PER_STEP)
    real = windows.valid

    def keep(name: str, block: Mamba) -> Any:
        def hook(_: nn.Module, __: Any, selected: Tensor) -> None:
            a_step[name] = selected.shape[-2] // real.shape[1]
            delta = linear(selected[..., : block.rank], block.dt_proj.weight, block.dt_proj.bias)
            size = softplus(delta.detach().double())[real.repeat_interleave(a_step[name], dim=1)].cpu()  # (tokens, I)
            sums[name] += torch.stack([size.sum(0), size.log().sum(0), size.log().square().sum(0)])
            tokens[name] += len(size)

        return block.x_proj.register_forward_hook(hook)

    handles = [keep(name, block) for name, block in blocks.items()]
    full = windows.valid.all(1)
    chosen = windows.map(lambda part: part[full]) if full.any() else windows
    try:
        with torch.no_grad():
            for piece in in_pieces(chosen, 64):
                piece = piece.to(agent.device)
                real = piece.valid
                agent.model(piece)
    finally:
        for handle in handles:
            handle.remove()
    found = [_memory(name, block, sums[name], tokens[name], a_step[name]) for name, block in blocks.items()]
    return MemoryReport(found, TOKENS_PER_STEP * agent.config.io.context)


def _memory(name: str, block: Mamba, sums: Tensor, tokens: int, a_step: int) -> MambaMemory:
    """`sums` (3, I) over tokens, of which a step has `a_step`: of Δ, log Δ and its square."""
    mean, log, square = sums / tokens
    slowest = block.A_log.detach().double().exp().min(dim=1).values.cpu()  # (I,)
    quantiles = torch.tensor(QUANTILES, dtype=torch.float64)
    spread = ((square - log**2).clamp(min=0.0) * tokens / max(tokens - 1, 1)).sqrt().median()
    lengths = TOKENS_PER_STEP / a_step / (mean * slowest)
    return MambaMemory(name, mean.quantile(quantiles).tolist(), lengths.quantile(quantiles).tolist(), float(spread))
