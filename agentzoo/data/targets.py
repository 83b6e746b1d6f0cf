"""The target return of an agent, chosen by a rule that is fixed before any evaluation.

The rule of the zoo is `d4rl`: the Decision Transformer's constant for the environment if an episode of the data reaches
it, else the best return in the data. Other rules: the best return in the data (`max`), the 90th percentile of its
episodes (`p90`), or a number set by the user (`number`). A recipe stores the number and its rule.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple, get_args

import numpy as np

from agentzoo.env_ids import without_module
from agentzoo.errors import ConfigError
from agentzoo.types import MAX_TARGET, RENDERING, FloatArray

TargetRule = Literal["d4rl", "max", "p90", "number"]
# The larger of the two targets in arXiv:2106.01345, section 4; other environments have none.
CONSTANTS = {"Hopper": 3600.0, "HalfCheetah": 12000.0, "Walker2d": 5000.0}


class Target(NamedTuple):
    """A target return in raw units, and the rule that chose it."""

    value: float
    rule: TargetRule


def choose_target(wanted: str, returns: FloatArray, env_id: str, options: Iterable[str]) -> Target:
    """The target return for `wanted`, the name of a rule or a number.

    Args:
        returns: (E,) returns of the data's episodes, raw units.
        env_id: Gymnasium id, for the constant.
        options: names of the environment's options. Any option except for rendering makes it another task, without a
            constant.

    Raises:
        ConfigError: neither a rule nor a number, or a target that is not finite or too large.
    """
    value, rule = _chosen(wanted, returns, env_id, options)
    if not abs(value) <= MAX_TARGET:  # NaN as well
        raise ConfigError(
            f"the target return is {value:g} ({wanted}); it must be a number from {-MAX_TARGET:g} to {MAX_TARGET:g}. "
            "Pass another one with --target (target=)."
        )
    return Target(value, rule)


def _chosen(wanted: str, returns: FloatArray, env_id: str, options: Iterable[str]) -> Target:
    if wanted == "p90":
        return Target(float(np.percentile(returns, 90)), "p90")
    best = float(np.max(returns))
    if wanted == "max":
        return Target(best, "max")
    if wanted == "d4rl":
        constant = None if set(options) - RENDERING else CONSTANTS.get(without_module(env_id).rsplit("-v", 1)[0])
        return Target(best, "max") if constant is None or best < constant else Target(constant, "d4rl")
    try:
        return Target(float(wanted), "number")
    except ValueError:
        rules = ", ".join(name for name in get_args(TargetRule) if name != "number")
        raise ConfigError(f"a target is a number or one of {rules}; got {wanted!r}.") from None
