"""The environment that a dataset names, as far as a recipe can hold it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from agentzoo.data.metadata import changed_options, environment_spec
from agentzoo.data.references import reference_in
from agentzoo.envs import registered
from agentzoo.errors import ConfigError, shown, warn
from agentzoo.store.tensors import first_names

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


def environment_for_data(metadata: Mapping[str, Any], asked: str | None = None) -> Environment:
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
    changed = changed_options(spec)
    options = {key: value for key, value in changed.items() if isinstance(value, bool | int | float | str)}
    lost = [f"{key}={shown(repr(value), 60)}" for key, value in changed.items() if key not in options]
    usual = registered(name)
    lost += _wrappers(spec)[len(() if usual is None else usual.additional_wrappers) :]
    if lost and asked is None:
        raise ConfigError(
            f"the dataset was made in {shown(name)} with {first_names(lost)}, which a recipe cannot hold: agents would "
            f"be evaluated in another task. Register the environment with these settings in a module of your own and "
            f"pass --env MODULE:ID-v0 (env=), or pass --env {shown(name)} to evaluate without them."
        )
    if lost:
        warn(f"agents are evaluated in {name} without {first_names(lost)}, which the data was made with.", depth=4)
    return Environment(name, options)


def reference_for_data(metadata: Mapping[str, Any], env: str, options: Iterable[str]) -> tuple[float, float] | None:
    """The returns that score 0 and 100 in a dataset's metadata, if it names no environment but `env`."""
    named = named_environment(metadata)
    return reference_in(metadata, env, options) if named is None or same_environment(named, env) else None


def same_environment(one: str, other: str) -> bool:
    """Whether two ids name the same environment, with or without its module."""
    return one.rpartition(":")[2] == other.rpartition(":")[2]


def _wrappers(spec: dict[str, Any]) -> list[str]:
    """Names of the wrappers around the data's environment that change the task."""
    found = spec.get("additional_wrappers")
    names = [str(_tree(one).get("name")) for one in found] if isinstance(found, list) else []
    return [f"the wrapper {shown(name, 60)}" for name in names if name not in WATCHING]


def _spec(metadata: Mapping[str, Any]) -> dict[str, Any]:
    return environment_spec(metadata, ("eval_env_spec", "env_spec"))


def _tree(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
