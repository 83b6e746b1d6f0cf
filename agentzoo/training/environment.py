"""The environment that a dataset names, as far as a recipe can hold it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from gymnasium.envs.registration import EnvSpec

from agentzoo.data.metadata import changed_options, environment_spec, named_environment
from agentzoo.data.references import reference_in
from agentzoo.env_ids import same_environment
from agentzoo.envs import extras_of, registered
from agentzoo.envs.making import import_module_of, make_configured
from agentzoo.errors import ConfigError, printable, warn
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


def environment_for_data(
    metadata: Mapping[str, Any], asked: str | None = None, trust_env_module: bool = False
) -> Environment:
    """The environment of a dataset, with its options and its limit of steps, or the environment `asked` for.

    An environment that is asked for has the dataset's options only if the dataset names it, too. If it is not
    registered, nobody knows its usual options: numbers and words of the dataset are kept, other options are dropped.

    Args:
        metadata: of the dataset.
        asked: a Gymnasium id.
        trust_env_module: import the module that `asked` names, which registers the environment.

    Raises:
        ConfigError: no environment is named, its package is missing, or it has settings that a recipe cannot hold. If
            it is asked for, these are a warning. For data with wrappers, as `make_configured`.
    """
    if trust_env_module and asked is not None:
        import_module_of(asked)
    spec, named = environment_spec(metadata), named_environment(metadata)
    if asked is not None and (named is None or not same_environment(asked, named)):
        return Environment(asked, {})
    name = asked or named
    if name is None:
        raise ConfigError(
            "the dataset does not name its environment; pass its Gymnasium id with --env (env=). Minari stores none "
            "with a wrapper that holds a function, such as a lambda: register the wrapped environment in a module of "
            "your own, and pass --env MODULE:ID-v0."
        )
    changed = changed_options(spec)
    options = {key: value for key, value in changed.items() if isinstance(value, bool | int | float | str)}
    lost = [f"{key}={printable(repr(value), 60)}" for key, value in changed.items() if key not in options]
    usual = registered(name)
    if usual is None:
        if lost and asked is None and extras_of(name):
            raise ConfigError(
                f"the dataset was made in {printable(name)}, whose package is not installed, so its settings cannot be "
                f"read. Try pip install 'agentzoo[{extras_of(name)[0]}]'."
            )
        return Environment(name, options)
    lost += [f"the wrapper {printable(one, 60)}" for one in _added_wrappers(spec, usual, options)]
    if lost and asked is None:
        raise ConfigError(
            f"the dataset was made in {printable(name)} with {first_names(lost)}, which a recipe cannot hold: agents "
            f"would be evaluated in another task. Register the environment with these settings in a module of your own "
            f"and pass --env MODULE:ID-v0 (env=). If {printable(name)} has the spaces of the data, --env "
            f"{printable(name)} evaluates without them."
        )
    if lost:
        warn(f"agents are evaluated in {name} without {first_names(lost)}, which the data was made with.", depth=4)
    return Environment(name, options)


def reference_for_data(metadata: Mapping[str, Any], env: str, options: Iterable[str]) -> tuple[float, float] | None:
    """The returns that score 0 and 100 in a dataset's metadata, if it names no environment but `env`."""
    named = named_environment(metadata)
    return reference_in(metadata, env, options) if named is None or same_environment(named, env) else None


def _added_wrappers(spec: dict[str, Any], usual: EnvSpec, options: dict[str, Any]) -> list[str]:
    """Names of the wrappers around the data's environment that `gym.make` does not add and that change the task."""
    found = spec.get("additional_wrappers")
    around = found if isinstance(found, list) else []
    names = _changing([str(one.get("name")) for one in around if isinstance(one, dict)])
    own = _changing([one.name for one in usual.additional_wrappers])
    if names and names != own:  # the entry point may return a wrapped environment, which only making it shows
        env = make_configured(usual.id, options)
        made = env.spec
        env.close()
        own = own if made is None else _changing([one.name for one in made.additional_wrappers])
    return names[len(own) :] if names[: len(own)] == own else names


def _changing(wrappers: list[str]) -> list[str]:
    """The wrappers that change the task."""
    return [name for name in wrappers if name not in WATCHING]
