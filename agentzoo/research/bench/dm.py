"""Decision Mamba: a training step against transformers' `MambaModel`, an action from memory against one from a window.

The peer has one branch of the same width and depth and reads as many tokens; ours has two.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from agentzoo.acting.frozen import FrozenStep, FrozenWindow, freeze
from agentzoo.models.dm import DecisionMamba, DMConfig
from agentzoo.research.bench import ROW, Figure, compare
from agentzoo.research.bench.dtma import random_batch
from agentzoo.research.bench_sizes import io_of
from agentzoo.research.peers import mamba_of_sizes

WINDOWS, CONTEXT = 64, 20
SLOW = 5  # of the peer's steps, which take seconds, fewer are timed


def run(runs: int) -> list[Figure]:
    """`train_step` against the peer, `train_step_teacher` with PSER's past policy against without, and
    `recurrent_action` of one environment, in PyTorch and in ONNX Runtime, against running its window of K steps again
    in PyTorch.
    """
    torch.manual_seed(0)
    io = io_of(CONTEXT)
    model = DecisionMamba(DMConfig(), io).train()
    batch = random_batch(io, WINDOWS)
    step = _update(model, lambda: torch.stack(list(model.loss(batch).values())).sum())
    peer = mamba_of_sizes(model.config.embed_dim, model.config.state_size, model.config.n_layers).train()
    tokens = torch.randn(WINDOWS, 3 * CONTEXT, model.config.embed_dim)
    peer_step = _update(peer, lambda: peer(inputs_embeds=tokens).last_hidden_state.square().mean())
    few = max(runs // SLOW, 1)
    figures = [compare("train_step", step, peer_step, few)]

    period = model.config.teacher_period

    def at(update: int) -> Callable[[], None]:
        def one() -> None:
            model.begin_step(update, 40 * period)
            step()

        return one

    figures.append(compare("train_step_teacher", at(period), at(period - 1), few))
    model.eval()
    window, memory = random_batch(io, 1), model.initial_state(1)
    now = (window.returns_to_go[:, 0], window.observations[:, 0], window.actions[:, 0], window.timesteps[:, 1])
    with torch.inference_mode():
        memory = model.step(memory, *now)[1]
        figures.append(
            compare("recurrent_action", lambda: model.step(memory, *now), lambda: model.act(window), 10 * runs, row=ROW)
        )
        step_frozen, window_frozen = freeze(model, "recurrent", "dm"), freeze(model, "window", "dm")
        assert isinstance(step_frozen, FrozenStep)
        assert isinstance(window_frozen, FrozenWindow)
        ways: dict[str, Callable[[], object]] = {
            "recurrent_action, onnx": lambda: step_frozen.step(memory, *now),
            "window_action, onnx": lambda: window_frozen.act(window),
        }
        for name, way in ways.items():
            figures.append(compare(name, way, lambda: model.act(window), 10 * runs, row=ROW))
    return figures


def _update(module: torch.nn.Module, loss: Callable[[], Tensor]) -> Callable[[], None]:
    optimizer = torch.optim.AdamW(module.parameters(), fused=True)

    def step() -> None:
        optimizer.zero_grad()
        torch.autograd.backward(loss())
        optimizer.step()

    return step
