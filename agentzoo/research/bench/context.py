"""The time of one action as the episode grows: Decision Mamba from memory and from a window, Decision Transformer.

`recurrent_K`: Decision Mamba stepping from its memory after K steps. `window_K`: Decision Mamba running its last K
steps again. The peer of both is a Decision Transformer of the same width and depth with a full context of K steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch

from agentzoo.models.dm import DecisionMamba, DMConfig
from agentzoo.models.dt import DecisionTransformer, DTConfig
from agentzoo.plots import new_figure, save_figure
from agentzoo.research.bench import Figure, compare
from agentzoo.research.bench.dtma import random_batch
from agentzoo.research.bench_sizes import io_of
from agentzoo.types import Batch

CONTEXTS = (20, 50, 100, 200, 500, 1000, 2000)


def run(runs: int) -> list[Figure]:
    """Both figures of every context; long ones are timed less often."""
    torch.manual_seed(0)
    figures = []
    for context in CONTEXTS:
        io = io_of(context)
        mamba = DecisionMamba(DMConfig(max_ep_len=max(CONTEXTS)), io).eval()
        transformer = DecisionTransformer(DTConfig(max_ep_len=max(CONTEXTS)), io).eval()
        window = random_batch(io, 1)
        few = max(runs * CONTEXTS[0] // context, 3)
        with torch.inference_mode():
            memory = mamba.initial_state(1)
            for t in range(context - 1):
                _, memory = mamba.step(memory, *_at(window, t))
            now = _at(window, context - 1)
            figures.append(
                compare(f"recurrent_{context}", lambda: mamba.step(memory, *now), lambda: transformer.act(window), few)  # noqa: B023  (called at once)
            )
            figures.append(
                compare(f"window_{context}", lambda: mamba.act(window), lambda: transformer.act(window), few)  # noqa: B023  (called at once)
            )
    return figures


def plot(figures: Sequence[Figure], path: Path) -> None:
    """Plot milliseconds per action over the context, both axes logarithmic."""
    recurrent = {int(f.figure.removeprefix("recurrent_")): f for f in figures if f.figure.startswith("recurrent_")}
    windows = {int(f.figure.removeprefix("window_")): f for f in figures if f.figure.startswith("window_")}
    picture = new_figure(6, 4.2, layout=None)
    axes = picture.add_subplot()
    curves = (
        ("Decision Mamba, recurrent", {k: f.ours for k, f in recurrent.items()}, "#2b6cb0", "-"),
        ("Decision Mamba, window", {k: f.ours for k, f in windows.items()}, "#2b6cb0", ":"),
        ("Decision Transformer", {k: f.peer for k, f in windows.items()}, "#c05621", "-"),
    )
    for label, curve, color, style in curves:
        axes.plot(list(curve), list(curve.values()), "o", linestyle=style, color=color, label=label)
    axes.set(xscale="log", yscale="log", xlabel="context, environment steps", ylabel="milliseconds per action")
    axes.set_xticks(list(recurrent), [str(context) for context in recurrent])
    axes.minorticks_off()
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    picture.tight_layout()
    save_figure(picture, path)


def _at(window: Batch, t: int) -> tuple[torch.Tensor, ...]:
    """The inputs of `step` at step `t`: return-to-go, observation, the previous action and the timestep."""
    before = max(t - 1, 0)
    return window.returns_to_go[:, t], window.observations[:, t], window.actions[:, before], window.timesteps[:, t]
