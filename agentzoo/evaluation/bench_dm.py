"""How fast Decision Mamba is here, against another network in the same run, so that a busy machine biases neither.

`agentzoo bench dm` prints what `bench_dm` returns. Every figure alternates ours and the peer and takes medians.
"""

from __future__ import annotations

import importlib
import statistics
import time
from collections.abc import Callable
from typing import Any, TypedDict

import torch
from torch import Tensor

from agentzoo.models.decision_mamba import DecisionMamba, DMConfig
from agentzoo.types import ActionSpec, Batch, IOSpec, ObservationSpec

OBS, ACTIONS = 11, 3  # Hopper's


class Figure(TypedDict):
    """One line: medians in milliseconds, and ours divided by the peer's."""

    figure: str
    ours: float
    peer: float
    ratio: float


def bench_dm(repeats: int = 3, batch_size: int = 64, context: int = 20, transformers: bool = True) -> list[Figure]:
    """A training step against transformers' `MambaModel`, and an action by `step` against one by `act`.

    Args:
        repeats: timed training steps of each; actions are timed 20 times as often.
        transformers: False leaves the peer out, which takes seconds a step; so does its absence.

    Returns:
        "training step": forward, backward and AdamW on `batch_size` windows, PSER's teacher off; the peer has one
        branch of the same width and depth on the same number of tokens. "training step, teacher on": against off.
        "recurrent action": one env, against the whole window run again.
    """
    torch.manual_seed(0)
    action = ActionSpec(kind="box", size=ACTIONS, low=(-1.0,) * ACTIONS, high=(1.0,) * ACTIONS)
    io = IOSpec(observation=ObservationSpec(size=OBS, shapes=((OBS,),)), action=action, context=context)
    model = DecisionMamba(DMConfig(), io)
    batch = _random_batch(batch_size, context)

    def terms() -> Tensor:
        return torch.stack(list(model.loss(batch).values())).sum()

    update, figures = _update(model, terms), []
    peer = _transformers_update(model.config, batch_size, 3 * context) if transformers else None
    if peer is not None:
        figures.append(_compare("training step", update, peer, repeats))
    off, on = model.config.teacher_period - 1, model.config.teacher_period
    total = 40 * model.config.teacher_period

    def with_teacher(step: int) -> Callable[[], None]:
        def run() -> None:
            model.begin_step(step, total)
            update()

        return run

    figures.append(_compare("training step, teacher on", with_teacher(on), with_teacher(off), repeats))
    model.eval()
    window, state = _random_batch(1, context), model.initial_state(1)
    now = (window.returns_to_go[:, 0], window.observations[:, 0], window.actions[:, 0], window.timesteps[:, 1])
    with torch.no_grad():
        state = model.step(state, *now)[1]
        figures.append(
            _compare("recurrent action", lambda: model.step(state, *now), lambda: model.act(window), 20 * repeats)
        )
    return figures


def _random_batch(n: int, steps: int) -> Batch:
    return Batch(
        observations=torch.randn(n, steps, OBS),
        actions=torch.rand(n, steps, ACTIONS) * 2 - 1,
        returns_to_go=torch.rand(n, steps),
        timesteps=torch.arange(steps).expand(n, steps),
        valid=torch.ones(n, steps, dtype=torch.bool),
    )


def _update(module: torch.nn.Module, loss: Callable[[], Tensor]) -> Callable[[], None]:
    optimizer = torch.optim.AdamW(module.parameters(), fused=True)

    def run() -> None:
        optimizer.zero_grad()
        loss().backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    return run


def _transformers_update(config: DMConfig, batch_size: int, tokens: int) -> Callable[[], None] | None:
    try:
        library: Any = importlib.import_module("transformers")
    except ImportError:
        return None
    peer = library.MambaModel(
        library.MambaConfig(
            vocab_size=2,
            hidden_size=config.embed_dim,
            state_size=config.state_size,
            num_hidden_layers=config.n_layers,
            use_cache=False,
        )
    ).train()
    inputs = torch.randn(batch_size, tokens, config.embed_dim)
    return _update(peer, lambda: peer(inputs_embeds=inputs).last_hidden_state.square().mean())


def _compare(figure: str, ours: Callable[[], Any], peer: Callable[[], Any], repeats: int) -> Figure:
    times: tuple[list[float], list[float]] = ([], [])
    ours()
    peer()
    for _ in range(repeats):
        for run, into in zip((ours, peer), times, strict=True):
            began = time.perf_counter()
            run()
            into.append(1000.0 * (time.perf_counter() - began))
    mine, theirs = (statistics.median(values) for values in times)
    return Figure(figure=figure, ours=mine, peer=theirs, ratio=mine / theirs)
