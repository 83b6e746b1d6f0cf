"""SmolLM-DT against the same network made of transformers' `LlamaModel`, with `inputs_embeds` and sdpa.

Both have SmolLM2's sizes and the recipe's layers, maps and head, no dropout, and the same optimizer. A training step
multiplies in bfloat16 where this CPU has instructions for it; an action is of one window that is full. The peer runs
every layer on every token, as `LlamaModel` does.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from agentzoo.acting.frozen import FrozenWindow, freeze
from agentzoo.models._language_dt import LanguageDT
from agentzoo.nn.base import SequenceModel
from agentzoo.recipe import Recipe, load_recipe
from agentzoo.research.bench import ROW, Figure, compare
from agentzoo.research.bench.dtma import model_of, random_batch, training_step
from agentzoo.research.bench_sizes import ACTIONS, OBS
from agentzoo.research.peers import llama_with_the_weights_of
from agentzoo.types import Batch

CONTEXTS = (20, 5)  # published, the recipe's


def run(runs: int) -> list[Figure]:
    """`train_step` and `action` with 20 and 5 steps per window; ten times as many actions are timed.

    The action is timed in PyTorch and in ONNX Runtime against the same peer.
    """
    figures = []
    for context in CONTEXTS:
        recipe = load_recipe("smollm-dt-hopper-medium").override(
            ["model.backbone=null", "model.embed_dropout=0.0", f"data.context={context}"]
        )
        ours, peer = model_of(recipe, OBS, ACTIONS), _peer(recipe)
        batch = random_batch(ours.io, recipe.train.batch_size)
        mine, theirs = (training_step(model, recipe, batch) for model in (ours, peer))
        figures.append(compare(f"train_step, K = {context}", mine, theirs, runs))
        figures += _actions(ours.eval(), peer.eval(), context, runs)
    return figures


def _actions(ours: SequenceModel, peer: SequenceModel, context: int, runs: int) -> list[Figure]:
    window = random_batch(ours.io, 1)
    with torch.inference_mode():
        frozen = freeze(ours, "window", "smollm-dt")
        assert isinstance(frozen, FrozenWindow)
        acts: dict[str, Callable[[Batch], Any]] = {"action": ours.act, "action, onnx": frozen.act}
        return [
            compare(f"{name}, K = {context}", partial(act, window), partial(peer.act, window), 10 * runs, row=ROW)
            for name, act in acts.items()
        ]


class _Blocks(nn.Module):
    """`LlamaModel` in place of our blocks. It computes all tokens; those at `read` are returned."""

    def __init__(self, llama: Any) -> None:
        super().__init__()
        self.llama = llama

    def forward(self, x: Tensor, read: slice | Tensor | None = None) -> Tensor:
        """(B, L, D) -> (B, Lq, D)."""
        hidden: Tensor = self.llama(inputs_embeds=x, use_cache=False).last_hidden_state
        if isinstance(read, Tensor):
            return hidden[torch.arange(len(x)), read][:, None]
        return hidden if read is None else hidden[:, read]


def _peer(recipe: Recipe) -> SequenceModel:
    """Our maps and head around their blocks, with the weights of ours."""
    model = model_of(recipe, OBS, ACTIONS)
    assert isinstance(model, LanguageDT)
    model.backbone = _Blocks(llama_with_the_weights_of(model.backbone, model.config.sizes()))  # type: ignore[assignment]
    return model
