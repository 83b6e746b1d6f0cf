"""Small agents of every family, and every way they can act."""

from __future__ import annotations

from typing import Any

import numpy as np
from conftest import SMALL, make_agent, random_observations

from agentzoo.agent import Agent
from agentzoo.nn.base import ModelConfig
from agentzoo.nn.masked_model import MaskedModel
from agentzoo.nn.recurrent import RecurrentModel
from agentzoo.registry import families, get_family

STEPS = 6  # longer than the context of 4


def small_config(family: str) -> ModelConfig:
    if family in SMALL:
        return SMALL[family]
    config = get_family(family).config(family=family)
    fields = {"embed_dim": 16, "ffn_dim": 16, "n_layers": 2}
    return config.model_copy(update={name: value for name, value in fields.items() if hasattr(config, name)})


def small_agent(env_id: str | None = None, **eval_: Any) -> Agent:
    """Of the family that is exported fastest, where the network does not matter."""
    return make_agent(env_id, small_config("bc"), **eval_)


def ways() -> list[tuple[str, str]]:
    """Every family with every way it can act."""
    found = []
    for name, family in families().items():
        found.append((name, "window"))
        if hasattr(family.model, "step"):
            found.append((name, "recurrent"))
        if issubclass(family.model, MaskedModel):
            found.append((name, "masked"))
    return found


def play(agent: Agent, way: str) -> np.ndarray[Any, Any]:
    """Actions of two environments, one of which starts again in the middle."""
    if way == "recurrent":
        assert isinstance(agent.model, RecurrentModel)
        agent.acting = "recurrent"
    else:
        agent.acting = "window"
    if way == "masked":
        agent.condition(goal=np.ones(3, np.float32), waypoints={2: np.zeros(3, np.float32)})
    rng, state, actions = np.random.default_rng(0), None, []
    seen = random_observations(agent.config.io, (STEPS, 2))
    for t in range(STEPS):
        action, state = agent.predict(seen[t], state, np.array([t == 0, t in (0, 4)]), True, reward=rng.random(2))
        actions.append(action)
    return np.stack(actions)
