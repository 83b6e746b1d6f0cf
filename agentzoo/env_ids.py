"""Ids of Gymnasium environments, `module:namespace/Name-v0`, of which module and namespace may be missing."""

from __future__ import annotations

import re

_VERSION = re.compile(r"-v\d+$")


def without_module(env_id: str) -> str:
    """`Hopper-v5` of `gymnasium.envs.mujoco:Hopper-v5`."""
    return env_id.rpartition(":")[2]


def same_environment(one: str, other: str) -> bool:
    """Whether two ids name the same environment, with or without its module."""
    return without_module(one) == without_module(other)


def same_but_version(one: str, other: str) -> bool:
    """Whether two ids name the same environment, in any versions."""
    return same_environment(_VERSION.sub("", one), _VERSION.sub("", other))
