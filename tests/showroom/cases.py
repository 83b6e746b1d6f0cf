"""Actions and starts of episodes, as JavaScript reads them."""

from __future__ import annotations

from typing import Any

import gymnasium as gym


def flat(obs: Any) -> list[float]:
    """An observation as agents of the zoo read it."""
    if not isinstance(obs, dict):
        return [float(value) for value in obs]
    keys = ("agent", "key") if "agent" in obs else ("observation", "desired_goal")
    return [float(value) for key in keys for value in obs[key]]


def placed(env: gym.Env[Any, Any]) -> dict[str, Any]:
    """The state an episode starts from, for `place` in JavaScript."""
    base: Any = env.unwrapped
    if not hasattr(base, "data"):
        return {"agent": base.state.agent, "key": base.state.key}
    found = {"positions": base.data.qpos.tolist(), "velocities": base.data.qvel.tolist()}
    return {**found, "goal": base.goal.tolist()} if hasattr(base, "goal") else found
