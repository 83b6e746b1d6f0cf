"""Making an environment by its id, with errors that help."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import gymnasium as gym
from gymnasium.envs.registration import find_highest_version, parse_env_id

from agentzoo import envs
from agentzoo.envs.options import check_env_options
from agentzoo.errors import ConfigError, UnknownNameError, did_you_mean

PLANE = 0  # mujoco's mjGEOM_PLANE
WIDER = 25


def check_env_id(env_id: str | None, trusted: bool) -> None:
    """Refuse `module:Env-v0` unless trusted: Gymnasium imports the module, which runs its code.

    `GymV21Environment` and `GymV26Environment` (of shimmy) do the same with an id among their options.

    Raises:
        ConfigError: the id names a module.
    """
    if env_id is not None and (":" in env_id or env_id.startswith("GymV2")) and not trusted:
        raise ConfigError(
            f"env id {env_id!r} makes Gymnasium import a module that it or its options name, which runs its code. "
            "If you trust it, pass trust_env_module=True (--trust-env-module)."
        )


def make_env(env_id: str, *, trust_env_module: bool = False, **kwargs: Any) -> gym.Env[Any, Any]:
    """`envs.make_env` with errors that help.

    Raises:
        UnknownNameError: no such environment, with the nearest id. ConfigError: it names a module, or a package it
            needs is not installed.
    """
    check_env_id(env_id, trust_env_module)
    with explained(env_id):
        return envs.make_env(env_id, disable_env_checker=True, **kwargs)


@contextmanager
def explained(env_id: str) -> Iterator[None]:
    """While an environment of this id is made: its errors as ours.

    Raises:
        UnknownNameError: no such environment, with the nearest id. ConfigError: a package it needs is not installed.
    """
    try:
        yield
    except (gym.error.DependencyNotInstalled, ImportError) as error:
        said = " ".join(map(str, error.args))  # Gymnasium says some in several parts
        raise ConfigError(f"{env_id} cannot be made: {said}{_what_to_do(env_id, said)}") from error
    except (gym.error.UnregisteredEnv, gym.error.DeprecatedEnv) as error:
        elsewhere = "" if ":" in env_id else f" If a package of its own has it, name that first: 'PACKAGE:{env_id}'."
        hint = did_you_mean(env_id, gym.registry) or elsewhere
        raise UnknownNameError(f"no environment {env_id!r}.{hint}") from error
    except AssertionError as error:
        said = " ".join(f"AssertionError {error}".split())
        raise ConfigError(
            f"{env_id} cannot be made: {said}. Its package may not work with the versions of others installed here."
        ) from error
    except gym.error.Error as error:
        raise ConfigError(f"{env_id!r} cannot be made: {' '.join(map(str, error.args))}") from error


def _what_to_do(env_id: str, missing: str) -> str:
    """A newer version of the environment, or the extra that brings its package; nothing where neither helps."""
    namespace, name, version = parse_env_id(env_id)
    highest = find_highest_version(namespace, name)
    if version is not None and highest is not None and version < highest:
        return f" Use {env_id.removesuffix(f'-v{version}')}-v{highest}."
    if "mujoco" in missing.lower() or "gymnasium_robotics" in missing:
        return " Try pip install 'agentzoo[mujoco]'."
    return ""


def make_configured(
    env_id: str,
    options: Mapping[str, Any],
    trust_env_module: bool = False,
    trust_env_options: bool = False,
    **own: Any,
) -> gym.Env[Any, Any]:
    """`make_env` with the options of a config or recipe.

    Args:
        env_id: the environment.
        options: of a config, which may be a stranger's.
        trust_env_module: import the module the id names.
        trust_env_options: accept options that are not listed for this environment (`envs.options`).
        own: further keyword arguments of the caller's.

    Raises:
        ConfigError: the environment does not take them, or they are not trusted. Otherwise as `make_env`.
    """
    check_env_id(env_id, trust_env_module)
    check_env_options(env_id, options, trust_env_options)
    try:
        return make_env(env_id, trust_env_module=trust_env_module, **{**options, **own})
    except TypeError as error:
        if not (options or own):
            raise
        what = f"env_options {dict(options)}" if options else " ".join(f"{name}={own[name]!r}" for name in own)
        raise ConfigError(f"{env_id} cannot be made with {what}: {error}") from error


def requirements_of(env_id: str) -> list[str]:
    """The installed versions of the packages that decide what the environment does, as pip writes them."""
    packages = ["gymnasium"]
    if not env_id.startswith("agentzoo/DoorKey"):
        packages.append("mujoco")
    if envs.needs_robotics(env_id):
        packages.append("gymnasium-robotics")
    if env_id.startswith("agentzoo/"):
        packages.append("agentzoo")
    found = []
    for package in packages:
        try:
            found.append(f"{package}=={version(package)}")
        except PackageNotFoundError:  # a checkout that is not installed
            found.append(package)
    return found


def draw_wide_floor(env: gym.Env[Any, Any]) -> None:
    """Draw the floor of a MuJoCo environment for 1,000 m and more: a cheetah runs off the 40 m that are drawn.

    To what stands on it a plane has no end whatever its size, so nothing moves otherwise.
    """
    inner = env.unwrapped
    if type(inner).__module__.startswith("gymnasium.envs.mujoco."):
        model = inner.model  # type: ignore[attr-defined]
        planes = model.geom_type == PLANE
        model.geom_size[planes, :2] *= WIDER
        materials = model.geom_matid[planes]
        model.mat_texrepeat[materials[materials >= 0]] *= WIDER  # -1: a plane of one color
