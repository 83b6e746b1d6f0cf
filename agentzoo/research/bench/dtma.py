"""GPT2-DTMA against GPT2-DT of the same size: the cost of the gates in training and acting.

The sizes are those of the agents on `lm-mini`; the context is the Hopper agents' or the maze agents'. A training step
multiplies in the precision of the recipe, where this CPU has instructions for it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch

from agentzoo.acting.frozen import FrozenWindow, freeze
from agentzoo.models._language_dt import LanguageDT
from agentzoo.nn.base import SequenceModel
from agentzoo.recipe import Recipe, load_recipe
from agentzoo.registry import get_family
from agentzoo.research.bench import ROW, Figure, compare
from agentzoo.research.bench_sizes import io_of
from agentzoo.training.machine import pick_precision
from agentzoo.training.optim import make_optimizer
from agentzoo.types import Batch, IOSpec

SIZES = {"hopper": (11, 3), "pointmaze": (6, 2)}  # observation and action


def run(runs: int) -> list[Figure]:
    """`train_step` and `action` (one window that is full) on both tasks; ten times as many actions are timed.

    The gated agent acts in PyTorch and in ONNX Runtime, the peer in PyTorch.
    """
    figures = []
    for task, sizes in SIZES.items():
        recipes = [load_recipe(f"{family}-{task}-medium") for family in ("gpt2-dtma", "gpt2-dt")]
        models = [model_of(recipe, *sizes) for recipe in recipes]
        batch = random_batch(models[0].io, recipes[0].train.batch_size)
        ours, peer = (training_step(model, recipe, batch) for model, recipe in zip(models, recipes, strict=True))
        figures.append(compare(f"train_step {task}", ours, peer, runs))
        window = random_batch(models[0].io, 1)
        for model in models:
            model.eval()
        with torch.inference_mode():
            frozen = freeze(models[0], "window", recipes[0].agent_id)
            assert isinstance(frozen, FrozenWindow)
            for name, act in ((f"action {task}", models[0].act), (f"action {task}, onnx", frozen.act)):
                figures.append(compare(name, partial(act, window), partial(models[1].act, window), 10 * runs, row=ROW))
    return figures


def model_of(recipe: Recipe, obs: int, actions: int) -> SequenceModel:
    """An untrained network; the values do not affect the timing."""
    torch.manual_seed(0)
    model = get_family(recipe.model.family).model(recipe.model, io_of(recipe.data.context, obs, actions))
    assert isinstance(model, LanguageDT)
    return model.train()


def random_batch(io: IOSpec, windows: int) -> Batch:
    """Full windows."""
    steps = io.context
    return Batch(
        observations=torch.randn(windows, steps, io.observation.size),
        actions=torch.rand(windows, steps, io.action.size) * 2 - 1,
        returns_to_go=torch.rand(windows, steps),
        timesteps=torch.arange(steps).expand(windows, steps),
        valid=torch.ones(windows, steps, dtype=torch.bool),
    )


def training_step(model: SequenceModel, recipe: Recipe, batch: Batch) -> Callable[[], None]:
    """One update of `model` on this batch, in the recipe's precision."""
    optimizer = make_optimizer(model, recipe.train)
    half = pick_precision(recipe.train.precision, "cpu") == "bf16"

    def step() -> None:
        with torch.autocast("cpu", torch.bfloat16, enabled=half):
            terms = model.loss(batch)
        optimizer.zero_grad()
        torch.autograd.backward(torch.stack(list(terms.values())).sum())
        torch.nn.utils.clip_grad_norm_(model.parameters(), recipe.train.clip or torch.inf)
        optimizer.step()

    return step
