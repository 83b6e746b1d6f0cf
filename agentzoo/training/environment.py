"""The environment that a dataset names, as far as a recipe can hold it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from agentzoo.data.references import RENDERING, reference_in
from agentzoo.envs import registered
from agentzoo.envs.options import MOST_STEPS
from agentzoo.errors import ConfigError, shown, warn
from agentzoo.store.tensors import first_names

UNUSED = {*RENDERING, "seed"}  # options that do not change the task
# wrappers that change neither observations, actions nor rewards
WATCHING = {
    *("HumanRendering", "RecordEpisodeStatistics", "RecordVideo", "RenderCollection"),
    *("DataCollector", "Monitor"),  # Minari's and stable-baselines3's
}


class Environment(NamedTuple):
    """A Gymnasium id and its keyword arguments of `gym.make`."""

    env: str
    options: dict[str, Any]


def named_environment(metadata: Mapping[str, Any]) -> str | None:
    """The Gymnasium id in a dataset's metadata, if it has one."""
    name = _spec(metadata).get("id")
    return name if isinstance(name, str) else None


def environment_of(metadata: Mapping[str, Any], asked: str | None = None) -> Environment:
    """The environment of a dataset, with its options and its limit of steps, or the environment `asked` for.

    An environment that is asked for has the dataset's options only if the dataset names it, too.

    Raises:
        ConfigError: no environment is named, or the dataset's has settings that a recipe cannot hold. If it is asked
            for, these are a warning.
    """
    spec, named = _spec(metadata), named_environment(metadata)
    if asked is not None and (named is None or not same_environment(asked, named)):
        return Environment(asked, {})
    name = asked or named
    if name is None:
        raise ConfigError("the dataset does not name its environment; pass its Gymnasium id with --env (env=).")
    usual = registered(name)
    own = {} if usual is None else _plain(usual.kwargs)
    kwargs = {key: value for key, value in _tree(spec.get("kwargs")).items() if key not in UNUSED}
    kwargs = {key: value for key, value in kwargs.items() if key not in own or own[key] != value}
    options = {key: value for key, value in kwargs.items() if isinstance(value, bool | int | float | str)}
    lost = [f"{key}={shown(repr(value), 60)}" for key, value in kwargs.items() if key not in options]
    lost += _wrappers(spec)[len(() if usual is None else usual.additional_wrappers) :]
    if lost and asked is None:
        raise ConfigError(
            f"the dataset was made in {shown(name)} with {first_names(lost)}, which a recipe cannot hold: agents would "
            f"be evaluated in another task. Register the environment with these settings in a module of your own and "
            f"pass --env MODULE:ID-v0 (env=), or pass --env {shown(name)} to evaluate without them."
        )
    if lost:
        warn(f"agents are evaluated in {name} without {first_names(lost)}, which the data was made with.", depth=4)
    return Environment(name, options | _limit(spec, None if usual is None else usual.max_episode_steps))


def reference_for_data(metadata: Mapping[str, Any], env: str, options: Iterable[str]) -> tuple[float, float] | None:
    """The returns that score 0 and 100 in a dataset's metadata, unless they are of another environment than `env`."""
    named = named_environment(metadata)
    return reference_in(metadata, env, options) if named is None or same_environment(named, env) else None


def same_environment(one: str, other: str) -> bool:
    """Whether two ids name the same environment, with or without its module."""
    return one.rpartition(":")[2] == other.rpartition(":")[2]


def _limit(spec: dict[str, Any], usual: int | None) -> dict[str, int]:
    """The option `max_episode_steps` if the data's limit is not the `usual` one; the largest allowed if it has none."""
    steps = spec.get("max_episode_steps")
    if type(steps) is int and steps > 0:
        return {} if steps == usual else {"max_episode_steps": min(steps, MOST_STEPS)}
    return {} if usual is None or "max_episode_steps" not in spec else {"max_episode_steps": MOST_STEPS}


def _wrappers(spec: dict[str, Any]) -> list[str]:
    """Names of the wrappers around the data's environment that change the task."""
    found = spec.get("additional_wrappers")
    names = [str(_tree(one).get("name")) for one in found] if isinstance(found, list) else []
    return [f"the wrapper {shown(name, 60)}" for name in names if name not in WATCHING]


def _spec(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """The environment's spec as plain data; Minari stores it as JSON text."""
    found = metadata.get("eval_env_spec") or metadata.get("env_spec")
    if found is None:
        return {}
    try:
        return _tree(json.loads(found if isinstance(found, str) else found.to_json()))
    except (ValueError, AttributeError, TypeError):
        return {}


def _tree(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _plain(kwargs: dict[str, Any]) -> dict[str, Any]:
    """Registered options as JSON holds them: tuples as lists."""
    found: dict[str, Any] = json.loads(json.dumps(kwargs, default=repr))
    return found
