"""Methods of `Agent` for environments: bind one, and check that the agent can act in it."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import gymnasium as gym

from agentzoo.acting.rewards import Rewards
from agentzoo.config import AgentConfig
from agentzoo.data.spaces import REWARD_KEY, describe_misfit, without_goal
from agentzoo.env_ids import same_but_version, same_environment
from agentzoo.envs.comparing import UNKNOWN, other_options
from agentzoo.envs.making import make_configured
from agentzoo.envs.wrapping import all_layers, layers, observation_normalizer, spaces_of, spec_of
from agentzoo.errors import SpaceError, warn
from agentzoo.nn.base import SequenceModel
from agentzoo.store.tensors import first_names

OBSERVATION_KEY = "observation"
PLAIN_KEYS = {OBSERVATION_KEY, REWARD_KEY}  # keys of a Dict that an agent with Box observations accepts


class EnvironmentMethods:
    """Mixin of `Agent`."""

    config: AgentConfig
    model: SequenceModel
    trust_env_options: bool
    _env: Any
    _created: Any  # the environment that `set_env` created for an id, if it is still bound
    _rewards: Rewards
    _warned: set[str]

    def get_env(self) -> Any:
        """The bound environment, or None."""
        return self._env

    def set_env(self, env: Any, *, trust_env_module: bool = False) -> None:
        """Bind a gymnasium.Env, an SB3 VecEnv or a gymnasium VectorEnv, so that rewards can be read from it.

        Args:
            env: for an id, one environment is created as in SB3, in a Monitor and a DummyVecEnv; `get_env` returns it.
                None unbinds. An environment created here is closed when another one is bound, unless that one wraps it.
            trust_env_module: import the module that an id names.

        Raises:
            SpaceError: its spaces differ from the agent's, or it normalizes observations, which the network does
                itself. ConfigError: its processes have ended. For an id, the errors of `make_env`.
        """
        self._bind(env, trust_env_module)
        self._warn_of_another_task()

    def _bind(self, env: Any, trust_env_module: bool) -> None:
        before = self._created
        if isinstance(env, str):
            env = created = self._made(env, trust_env_module)
        else:
            if env is not None:
                self.check_env(env)
            created = next((layer for layer in layers(env) if layer is before), None)
        self._rewards.bind(env)  # first, since it may refuse the environment
        if before is not None and before is not created:
            before.close()
        self._env, self._created = env, created
        self._warned -= {"rewards", "bound", "closed", "lost", "starts"}  # the new environment gets its own warnings

    def _warn_of_another_task(self) -> None:
        """Warn the caller's caller if the bound environment is another one than the agent's, or has other options."""
        spec, wanted = spec_of(self._env), self.config.env_options
        if spec is None or self.config.env is None:
            return
        if not same_environment(spec.id, self.config.env):
            self.warn_of_other_env(spec.id, created=self._created is not None)
            return
        other = other_options(spec, wanted)
        if other and other != [UNKNOWN]:
            given = "".join(f", {name}={value!r}" for name, value in wanted.items())
            warn(
                f"this {spec.id} has other options than those {self.config.agent_id} was trained and measured with "
                f"({first_names(other)}), so its returns differ. Create it with gym.make({self.config.env!r}{given}).",
                depth=3,
            )

    def warn_of_other_env(self, env_id: str, created: bool = True) -> None:
        """Warn if an id names another environment than the agent's, whose spaces only happen to fit.

        Other versions of the agent's environment are no other environments, but have none of its options either.

        Args:
            created: it is created for the agent, not by the user, who may have set the options.
        """
        own, options = self.config.env, self.config.env_options
        if own is None:
            return
        said = []
        if not same_but_version(env_id, own):
            agent = self.config.agent_id
            said.append(f"{agent} was trained for {own}; this is {env_id}, where it may do nothing useful.")
        if created and options and not same_environment(env_id, own):
            given = ", ".join(f"{name}={value!r}" for name, value in options.items())
            without = f"{env_id} is created without the options of {own} ({given})"
            said.append(f"{without}; pass gym.make({env_id!r}, ...) to set some.")
        if said:
            warn(" ".join(said), depth=4)

    def _made(self, env_id: str, trust_env_module: bool) -> Any:
        from stable_baselines3.common.monitor import Monitor
        from stable_baselines3.common.vec_env import DummyVecEnv

        options = self.config.options_in(env_id)
        made = Monitor(make_configured(env_id, options, trust_env_module, self.trust_env_options))
        try:
            self.check_env(made)
        except BaseException:
            made.close()
            raise
        return DummyVecEnv([lambda: made])

    def check_env(self, env: Any, *, scaled: bool = False) -> None:
        """Raise SpaceError unless the agent can act in this gymnasium.Env, SB3 VecEnv or gymnasium VectorEnv.

        Args:
            scaled: SB3's VecNormalize may normalize observations; the caller then reads the raw ones.
        """
        if not (hasattr(env, "observation_space") and hasattr(env, "action_space")):
            raise SpaceError(
                f"{env!r} is not an environment; pass a gymnasium.Env, an SB3 VecEnv, a gymnasium VectorEnv or an id."
            )
        if isinstance(env, type):
            raise SpaceError(f"got the class {env.__name__}; pass an environment, {env.__name__}(...).")
        normalizer = observation_normalizer(env.unwrapped if scaled and hasattr(env, "env_is_wrapped") else env)
        if normalizer is not None:
            raise SpaceError(
                f"{normalizer.name} normalizes observations, which {self.config.agent_id} does itself; "
                f"{normalizer.instead}."
            )
        try:
            self.check_spaces(*spaces_of(env))
        except SpaceError as error:
            wrapper = self._unfit_wrapper(env)
            raise error if wrapper is None else SpaceError(f"{error} Remove the wrapper {wrapper}.") from None

    def _unfit_wrapper(self, env: Any) -> str | None:
        """The wrapper around the outermost inner environment that the agent can act in; None if there is none."""
        for outer, inner in pairwise(all_layers(env)):
            try:
                self.check_spaces(*spaces_of(inner))
            except SpaceError:
                continue
            return type(outer).__name__
        return None

    def check_spaces(self, observation: gym.Space[Any], action: gym.Space[Any]) -> None:
        """Raise SpaceError, naming both sides, unless these are the agent's spaces.

        As in `predict`, an agent with Box observations accepts a Dict with "observation" and "reward", and a masked
        agent a Dict with "observation" and "goal".
        """
        io = self.config.io
        if io.observation.keys is None and isinstance(observation, gym.spaces.Dict) and set(observation) == PLAIN_KEYS:
            observation = observation[OBSERVATION_KEY]
        if self.model.takes_goals:
            observation = without_goal(observation, io.observation.keys)
        misfit = describe_misfit(io.observation, io.action, observation, action)
        if misfit:
            raise SpaceError(f"{self.config.agent_id} cannot act here: {misfit}.")
