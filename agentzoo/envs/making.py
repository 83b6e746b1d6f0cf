"""Create an environment by its id, with helpful errors."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import gymnasium as gym
from gymnasium.envs.registration import find_highest_version, parse_env_id

from agentzoo import envs
from agentzoo.env_ids import without_module
from agentzoo.envs.env_options import MAX_STEPS, check_env_options
from agentzoo.errors import AgentzooError, ConfigError, UnknownNameError, did_you_mean

PLANE = 0  # mujoco's mjGEOM_PLANE
WIDER = 25
SHADOWS = 1024  # pixels of a side of the shadow map; with 4096, the default, a CPU draws a frame in 1.7 times as long


def check_env_id(env_id: str | None, trusted: bool) -> None:
    """Reject `module:Env-v0` unless trusted: Gymnasium imports the module, which runs its code.

    shimmy's `GymV21Environment` and `GymV26Environment` do the same with an id in their options.

    Raises:
        ConfigError: the id names a module.
    """
    if env_id is not None and (":" in env_id or env_id.startswith("GymV2")) and not trusted:
        raise ConfigError(
            f"env id {env_id!r} makes Gymnasium import a module, named by the id or its options, which runs its code. "
            "If you trust it, pass trust_env_module=True (--trust-env-module)."
        )


def make_env(env_id: str, *, trust_env_module: bool = False, **kwargs: Any) -> gym.Env[Any, Any]:
    """`envs.make_env` with helpful errors.

    Raises:
        UnknownNameError: no such environment, with the nearest id. ConfigError: it names a module, or needs a package
            that is not installed.
    """
    check_env_id(env_id, trust_env_module)
    with explained(env_id):
        return envs.make_env(env_id, disable_env_checker=True, **kwargs)


def import_module_of(env_id: str) -> None:
    """Import the module that an id names, which registers the environment; the caller trusts it.

    Raises:
        ConfigError: the module cannot be imported.
    """
    module, colon, _ = env_id.partition(":")
    if colon:
        with explained(env_id):
            importlib.import_module(module)


@contextmanager
def explained(env_id: str, asks_for_trust: bool = True) -> Iterator[None]:
    """Turn errors while creating this environment into errors of agentzoo.

    Args:
        asks_for_trust: whether the caller imports the module that an id names only with `trust_env_module`.

    Raises:
        UnknownNameError: no such environment, with the nearest id. ConfigError: it needs a package that is not
            installed, or cannot be created.
    """
    try:
        yield
    except (gym.error.DependencyNotInstalled, ImportError) as error:
        reason = " ".join(map(str, error.args))  # some messages of Gymnasium have several parts
        module = env_id.rpartition(":")[0]
        if module and reason.startswith(f"No module named {module!r}"):
            raise ConfigError(
                f"{env_id} cannot be created: no module {module!r} on Python's path. If it lies in the current "
                "folder, put that on PYTHONPATH, or run `python -m agentzoo`."
            ) from error
        raise ConfigError(f"{env_id} cannot be created: {reason}{_what_to_do(env_id, reason)}") from error
    except (gym.error.UnregisteredEnv, gym.error.DeprecatedEnv) as error:
        hint = did_you_mean(env_id, gym.registry)
        if ":" not in env_id:
            trust = " and pass trust_env_module=True (--trust-env-module)" if asks_for_trust else ""
            hint += f" If a module registers it, write 'MODULE:{env_id}'{trust}."
        raise UnknownNameError(f"no environment {env_id!r}.{hint}") from error
    except AssertionError as error:
        reason = " ".join(f"AssertionError {error}".split())
        raise ConfigError(
            f"{env_id} cannot be created: {reason}. Its package may not work with other installed versions."
        ) from error
    except gym.error.Error as error:
        raise ConfigError(f"{env_id!r} cannot be created: {' '.join(map(str, error.args))}") from error


def _what_to_do(env_id: str, missing: str) -> str:
    """Advice: a newer version of the environment, or the extra that installs its package; else empty."""
    namespace, name, number = parse_env_id(env_id)
    highest = find_highest_version(namespace, name)
    if number is not None and highest is not None and number < highest:
        return f" Use {env_id.removesuffix(f'-v{number}')}-v{highest}."
    if "mujoco" in missing.lower() or "gymnasium_robotics" in missing:
        return " Try pip install 'agentzoo[mujoco]'."
    if "ale_py" in missing or "opencv" in missing:
        return " Try pip install 'agentzoo[atari]'."
    return ""


def make_configured(
    env_id: str,
    options: Mapping[str, Any],
    trust_env_module: bool = False,
    trust_env_options: bool = False,
    **own: Any,
) -> gym.Env[Any, Any]:
    """`make_env` with the options of a config or recipe. Without a limit, an episode ends after `MAX_STEPS` steps.

    Args:
        env_id: the environment.
        options: from a config, which may be untrusted.
        trust_env_module: import the module that the id names.
        trust_env_options: accept options outside this environment's list (`envs.env_options`).
        own: the caller's keyword arguments, which are trusted.

    Raises:
        ConfigError: the environment does not accept them, or they are not trusted. Otherwise as `make_env`.
    """
    check_env_id(env_id, trust_env_module)
    if ":" not in env_id and envs.registered(env_id) is None:  # first, since nobody knows the options of such an id
        make_env(env_id).close()  # it raises, unless the id lacks a version
    check_env_options(env_id, options, trust_env_options)
    try:
        made = make_env(env_id, trust_env_module=trust_env_module, **{**options, **own})
    except AgentzooError:
        raise
    except Exception as error:  # an environment may raise anything
        if not (options or own):
            raise
        both = [f"env_options {dict(options)}"] if options else []
        what = " and ".join([*both, *(f"{name}={value!r}" for name, value in own.items())])
        raise ConfigError(f"{env_id} cannot be created with {what}: {error}") from error
    endless = made.spec is None or made.spec.max_episode_steps in (None, -1)
    return gym.wrappers.TimeLimit(made, MAX_STEPS) if endless else made


def requirements_of(env_id: str) -> list[str]:
    """The installed versions of the packages that implement the environment, as pip requirements."""
    packages = ["gymnasium"]
    if envs.is_game(env_id):
        packages += ["ale-py", "opencv-python-headless"]
    elif "mujoco" in envs.extras_of(env_id):
        packages.append("mujoco")
    if envs.needs_robotics(env_id):
        packages.append("gymnasium-robotics")
    if without_module(env_id).startswith("agentzoo/"):
        packages.append("agentzoo")
    found = []
    for package in packages:
        try:
            found.append(f"{package}=={version(package)}")
        except PackageNotFoundError:  # a checkout that is not installed
            found.append(package)
    return found


def prepare_drawing(env: gym.Env[Any, Any]) -> None:
    """Draw a wider floor and shadows of less detail in a MuJoCo environment, before its first frame.

    A cheetah runs beyond the default 40 m. The physics treats a plane as infinite, whatever its drawn size, so the
    simulation does not change.
    """
    inner = env.unwrapped
    if type(inner).__module__.startswith("gymnasium.envs.mujoco."):
        model = inner.model  # type: ignore[attr-defined]
        model.vis.quality.shadowsize = min(model.vis.quality.shadowsize, SHADOWS)
        planes = model.geom_type == PLANE
        model.geom_size[planes, :2] *= WIDER
        materials = model.geom_matid[planes]
        model.mat_texrepeat[materials[materials >= 0]] *= WIDER  # -1: a plane of one color
