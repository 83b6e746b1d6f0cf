"""Optimizer and learning-rate schedule of a recipe."""

from __future__ import annotations

import inspect
import math
from typing import Any

import torch

from agentzoo.nn.base import SequenceModel
from agentzoo.recipe import TrainConfig


class EagerAdamW(torch.optim.AdamW):
    """`torch.optim.AdamW` without the import of PyTorch's compiler, which takes a second or two.

    PyTorch wraps these methods to keep them out of compiled graphs; the wrapper imports the compiler at the first call.
    """

    add_param_group: Any = inspect.unwrap(torch.optim.AdamW.add_param_group)
    load_state_dict: Any = inspect.unwrap(torch.optim.AdamW.load_state_dict)
    state_dict: Any = inspect.unwrap(torch.optim.AdamW.state_dict)
    zero_grad: Any = inspect.unwrap(torch.optim.AdamW.zero_grad)
    step: Any = torch.no_grad()(inspect.unwrap(torch.optim.AdamW.step))


def make_optimizer(model: SequenceModel, config: TrainConfig) -> EagerAdamW:
    """AdamW, with the family's choice of decaying parameters (`decays`) and of learning-rate factors (`lr_scale`)."""
    groups: dict[tuple[bool, float], dict[str, Any]] = {}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            decays, scale = model.decays(name), model.lr_scale(name)
            decay = config.weight_decay if decays else 0.0
            empty = {"params": [], "weight_decay": decay, "scale": scale}
            groups.setdefault((not decays, scale), empty)["params"].append(parameter)
    return EagerAdamW(
        [groups[kind] for kind in sorted(groups)],
        lr=config.lr,
        betas=config.betas,
        eps=config.eps,
        fused=True,
    )


def lr_factor(step: int, config: TrainConfig) -> float:
    """The factor of `lr` at update `step` (0-based): linear warm-up, then constant or a cosine to zero.

    Source: kzl/decision-transformer@e2d82e6 for the warm-up, `min((n + 1) / warmup, 1)`.
    """
    if step < config.warmup_steps:
        return (step + 1) / config.warmup_steps
    if config.schedule == "constant":
        return 1.0
    progress = (step - config.warmup_steps) / max(config.steps - config.warmup_steps, 1)
    return 0.5 * (1.0 + math.cos(math.pi * min(progress, 1.0)))
