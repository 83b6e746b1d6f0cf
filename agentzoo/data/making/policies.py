"""Behaviour policies: SB3 SAC and sb3-contrib TQC archives, from a file or a Hub repo of the `sb3` organization."""

from __future__ import annotations

import hashlib
import io
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import torch
from numpy.typing import NDArray

from agentzoo.errors import DataError, HubError, UnknownNameError
from agentzoo.store.downloads import fetch
from agentzoo.types import FloatArray

ALGORITHMS = {"sac": "stable_baselines3:SAC", "tqc": "sb3_contrib:TQC"}


class PolicyFile(NamedTuple):
    """A trusted policy archive, and the sha256 its content must have; None accepts any content."""

    path: str
    sha256: str | None = None


class SquashedGaussianPolicy:
    """The actor of a SAC or TQC agent, tanh of a Gaussian, for batches of observations."""

    def __init__(self, actor: Any, space: gym.spaces.Box) -> None:
        self._actor = actor
        self._low, self._high = space.low, space.high

    def distribution(self, observations: FloatArray) -> tuple[FloatArray, FloatArray]:
        """(N, S) -> mean and standard deviation before the tanh, (N, A) each."""
        with torch.inference_mode():
            obs = torch.as_tensor(np.asarray(observations, dtype=np.float32))
            mean, log_std, _ = self._actor.get_action_dist_params(obs)
        return mean.numpy(), np.exp(log_std.numpy())

    def act(self, observations: FloatArray, noise: FloatArray) -> NDArray[np.float32]:
        """(N, A) actions in the environment's range; `noise` (N, A) standard normal draws; zeros give the mode."""
        mean, std = self.distribution(observations)
        squashed = np.tanh(mean + std * noise)
        return (self._low + 0.5 * (squashed + 1.0) * (self._high - self._low)).astype(np.float32)


def resolve_policy(source: str | Path) -> Path:
    """A policy archive on this machine; `sb3/<algo>-<Env>` is fetched from the Hub.

    Raises:
        UnknownNameError: no such file. DataError: the Hub repo cannot be read.
    """
    path = Path(source)
    if path.is_file():
        return path
    if str(source).startswith("sb3/"):
        file = str(source).removeprefix("sb3/") + ".zip"
        try:
            return fetch(str(source), (file,), what="policy") / file
        except HubError as error:
            raise DataError(str(error)) from error
    raise UnknownNameError(
        f"no policy file {str(source)!r}. Point --sources (or $AGENTZOO_SOURCES) at the folder that holds it, "
        "or give a Hub id like sb3/tqc-Hopper-v3."
    )


def load_policy(source: PolicyFile, env: gym.Env[Any, Any]) -> SquashedGaussianPolicy:
    """Load the actor; the algorithm is the first word of the file's name (`sac-...`, `tqc-...`).

    The archives are in SB3's format, which uses pickle: load only policies you trust. Agents of the zoo have a
    different format.

    Raises:
        DataError: a different algorithm, a missing package, a different hash, or no policy for these spaces.
    """
    path = resolve_policy(source.path)
    algorithm = ALGORITHMS.get(path.stem.split("-")[0].lower())
    if algorithm is None:
        raise DataError(f"policy file {path.name!r} must start with one of {', '.join(ALGORITHMS)} and a dash.")
    module, name = algorithm.split(":")
    import importlib

    try:
        cls = getattr(importlib.import_module(module), name)
    except ImportError as error:
        package = module.replace("_", "-")
        raise DataError(f"{path.name} needs {package}: pip install {package}") from error
    content = path.read_bytes()
    if source.sha256 is not None and hashlib.sha256(content).hexdigest() != source.sha256:
        raise DataError(f"{path} changed after its hash was recorded. Build again.")
    own = {"lr_schedule": lambda _: 0.0, "learning_rate": 0.0}
    spaces = {"action_space": env.action_space, "observation_space": env.observation_space}
    try:
        model = cls.load(io.BytesIO(content), device="cpu", custom_objects={**own, **spaces})
    except Exception as error:  # zip files and pickles raise many types
        why = " ".join(str(error).split())[:200]
        raise DataError(f"{path} is not a {name} policy for {env.spec.id if env.spec else env}: {why}") from error
    model.policy.set_training_mode(False)
    assert isinstance(env.action_space, gym.spaces.Box)
    return SquashedGaussianPolicy(model.policy.actor, env.action_space)
