"""Pretrained offline-RL sequence agents with stable-baselines3's `predict`.

The names below are imported on first use, so that `import agentzoo` loads neither torch nor any environment.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agentzoo.registry import provide

if TYPE_CHECKING:
    from agentzoo.agent import Agent
    from agentzoo.evaluation.results import evaluate
    from agentzoo.evaluation.rollout import make_vec_env, rollout
    from agentzoo.evaluation.runs import finetune, train
    from agentzoo.hub.zoo import list_agents
    from agentzoo.recipe import load_recipe

__all__ = ["Agent", "evaluate", "finetune", "list_agents", "load_recipe", "make_vec_env", "rollout", "train"]
__version__ = "0.1.0"

_WHERE = {
    "Agent": "agentzoo.agent",
    "evaluate": "agentzoo.evaluation.results",
    "finetune": "agentzoo.evaluation.runs",
    "list_agents": "agentzoo.hub.zoo",
    "load_recipe": "agentzoo.recipe",
    "make_vec_env": "agentzoo.evaluation.rollout",
    "rollout": "agentzoo.evaluation.rollout",
    "train": "agentzoo.evaluation.runs",
}

provide("push_agent", "agentzoo.hub.publish")  # for `Agent.push_to_hub`; hub is a later layer than agent


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        import importlib

        return getattr(importlib.import_module(_WHERE[name]), name)
    raise AttributeError(f"module 'agentzoo' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
