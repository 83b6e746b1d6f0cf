"""`Agent`: a trained network that acts through stable-baselines3's `predict`."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import gymnasium as gym
import numpy as np
import torch
from numpy.typing import NDArray

from agentzoo.acting.conditions import Conditions, checked_steps, checked_targets
from agentzoo.acting.history import AgentState, retargeted
from agentzoo.acting.loading import load_network, pick_device
from agentzoo.acting.modes import Acting, MemoryState, make_acting
from agentzoo.acting.observing import Observed, read_observation, reward_beside
from agentzoo.acting.rewards import Rewards
from agentzoo.config import AgentConfig, read_record
from agentzoo.data.spaces import GOAL_KEY, REWARD_KEY, action_space, describe_misfit, observation_space, without_goal
from agentzoo.envs.making import check_env_id, make_configured
from agentzoo.envs.wrapping import observation_normalizer
from agentzoo.errors import ConfigError, ObservationError, ShapeError, SpaceError
from agentzoo.nn.base import ActingMode, SequenceModel
from agentzoo.nn.masked import MaskedModel
from agentzoo.recipe import Recipe
from agentzoo.store.files import CONFIG, RECIPE, WEIGHTS, sha256, write_atomic
from agentzoo.store.locate import find_agent
from agentzoo.store.tensors import fingerprint, save_tensors

if TYPE_CHECKING:
    from agentzoo.masked.answer import Answer


OBSERVATION_KEY = "observation"
PLAIN_KEYS = {OBSERVATION_KEY, REWARD_KEY}  # of a Dict that an agent of plain observations takes


class _Elsewhere:
    """A name that other libraries have and `Agent` has not: no attribute, but an error that says what there is."""

    def __init__(self, instead: str) -> None:
        self.instead = instead

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, instance: Any, owner: type) -> NoReturn:
        raise AttributeError(f"an Agent has no {self.name!r}; {self.instead}")


class Agent:
    """A network, its config and the return it is asked for.

    All history lives in the `state` that `predict` returns, so one agent serves any number of environments. A copy or
    a pickle of it is bound to none.
    """

    def __init__(self, model: SequenceModel, config: AgentConfig, recipe: Recipe | None = None) -> None:
        self.config = config
        self.recipe = recipe
        self.target_return = config.target_return
        self.model = model
        self._hashed = None if config.weights_sha256 is None else fingerprint(model)
        bounds = (config.io.action.low, config.io.action.high)
        # (2, A) in the space's own precision: 0.1 as float32 lies outside a float64 Box that ends at 0.1
        self._bounds = None if None in bounds else np.array(bounds, dtype=config.io.action.dtype)
        self._rng = np.random.default_rng()
        self._conditions = Conditions()
        self._targets: NDArray[np.float64] | None = None  # one for each environment, in place of `target_return`
        self._env: Any = None
        self._warned: set[str] = set()
        self._rewards = self._unbound()
        self._bare_calls = 0  # in a row, with neither state nor episode_start

    def _unbound(self) -> Rewards:
        return Rewards(partial(self._warn_once, depth=5))

    def __getstate__(self) -> dict[str, Any]:
        """Without the bound environment, which may hold processes and windows."""
        return {**vars(self), "_env": None, "_rewards": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Inverse of `__getstate__`."""
        vars(self).update(state)
        self._rewards = self._unbound()

    # -- loading and saving ------------------------------------------------------------------------------------------

    @classmethod
    def from_pretrained(
        cls,
        id_or_path: str | Path,
        *,
        env: Any = None,
        revision: str | None = None,
        token: str | bool | None = None,
        cache_dir: str | Path | None = None,
        local_files_only: bool = False,
        force_download: bool = False,
        device: str = "auto",
        trust_env_module: bool = False,
    ) -> Agent:
        """Load an agent by id (`zoo/dt-hopper-medium`), Hub repo or folder.

        Args:
            id_or_path: looked up as a folder, in the local zoo, then on the Hub (cache first).
            env: bound as by `set_env`, so that rewards need not be passed to `predict`; an id is made as SB3 does.
            revision, token, cache_dir, local_files_only, force_download: as in `huggingface_hub`.
            device: "auto" is CUDA where there is one.
            trust_env_module: accept a config whose environment id names a module to import.

        Raises:
            UnknownNameError: no such agent, with the nearest id. CheckpointError: files missing, broken or tampered
                with. ConfigError: a config that cannot be used, or no such device. SpaceError: `env` does not fit.
        """
        folder = find_agent(
            id_or_path,
            revision=revision,
            token=token,
            cache_dir=cache_dir,
            local_files_only=local_files_only,
            force_download=force_download,
        )
        config = read_record(AgentConfig, folder / CONFIG)
        check_env_id(config.env, trust_env_module)
        place = pick_device(device)
        model = load_network(config, folder / WEIGHTS)
        recipe = None
        if (folder / RECIPE).is_file():
            recipe = read_record(Recipe, folder / RECIPE)
        agent = cls(model.to(place), config, recipe)
        if env is not None:
            agent.set_env(env, trust_env_module=trust_env_module)
        return agent

    def save_pretrained(self, folder: str | Path) -> Path:
        """Write `config.json`, `model.safetensors` and the recipe; the config, which names the weights' hash, last.

        The target return of now becomes the agent's own. `acting` is not kept: the family's own way is loaded.

        Raises:
            StorageError: no space or permission; every file is the old one or the new one, whole.
        """
        folder = Path(folder)
        save_tensors(folder / WEIGHTS, self.model.state_dict())
        target = {"target_return": self.target_return}
        if self.recipe is not None:
            self.recipe = self.recipe.replace(eval=self.recipe.eval.model_copy(update=target))
            write_atomic(folder / RECIPE, self.recipe.to_json())
        self.config = self.config.model_copy(update={**target, "weights_sha256": sha256(folder / WEIGHTS)})
        self._hashed = fingerprint(self.model)
        write_atomic(folder / CONFIG, self.config.to_json())
        return folder

    load = _Elsewhere("use Agent.from_pretrained(id_or_path).")
    save = _Elsewhere("use agent.save_pretrained(folder).")
    learn = _Elsewhere("agents learn from data: `agentzoo train` and `agentzoo finetune`.")
    reset = _Elsewhere("it keeps no history: pass state=None to predict, or episode_start=True, to begin afresh.")
    select_action = _Elsewhere("use action, state = agent.predict(obs, state).")

    def push_to_hub(
        self,
        repo_id: str,
        *,
        token: str | bool | None = None,
        private: bool | None = None,
        branch: str | None = None,
        tag: str | None = None,
        message: str | None = None,
        replace_measured: bool = False,
    ) -> str:
        """Upload the agent with a card made from its config and recipe, in one commit; the commit's URL.

        A folder that also holds measurements (`agentzoo stage`) goes up with `agentzoo push` instead.

        Args:
            replace_measured: also where the repo has measurements, plots and a video, which this deletes.

        Raises:
            ConfigError: no recipe, a bad repo id, or a repo with measurements. HubError: says what to do; the remote's
                files are unchanged.
        """
        from agentzoo.hub.publish import push_agent  # upwards, so only here

        return push_agent(
            self,
            repo_id,
            token=token,
            private=private,
            branch=branch,
            tag=tag,
            message=message,
            replace_measured=replace_measured,
        ).url

    # -- what stable-baselines3 code looks at --------------------------------------------------------------------------

    @property
    def observation_space(self) -> gym.Space[Any]:
        """The space the agent reads; bounds are not stored, so they are infinite."""
        return observation_space(self.config.io.observation)

    @property
    def action_space(self) -> gym.Space[Any]:
        """The space the agent's actions lie in."""
        return action_space(self.config.io.action)

    @property
    def model(self) -> SequenceModel:
        """The network. Another one may be put in its place; states of before are not for it."""
        return self._model

    @model.setter
    def model(self, model: SequenceModel) -> None:
        if not isinstance(model, SequenceModel):
            raise ConfigError(
                f"an agent's network is a SequenceModel, got {type(model).__name__}; agent.model.compile() compiles "
                "one where it is."
            )
        self._model = model.eval()
        self.acting = model.acting

    @property
    def target_return(self) -> float:
        """What it is asked for, in the environment's reward. May be set; `condition` asks each environment for its own.

        Setting it raises ShapeError for anything but one number, ConfigError for NaN, infinity or one beyond 1e9.
        """
        return self._target_return

    @target_return.setter
    def target_return(self, value: float) -> None:
        target = checked_targets(value)
        if target.ndim:
            raise ShapeError(
                f"target_return is one number, got {target.size}; agent.condition(target_return=[...]) asks each "
                "environment for its own."
            )
        self._target_return = float(target)

    @property
    def weights_sha256(self) -> str | None:
        """The hash of the file that holds these weights; None where there is none, or they were changed since."""
        known = self._hashed is not None and self._hashed == fingerprint(self.model)
        return self.config.weights_sha256 if known else None

    @property
    def device(self) -> torch.device:
        """Where the network is."""
        return self.model.obs_mean.device

    def to(self, device: str | torch.device) -> Agent:
        """Move the network, as torch does; a recurrent agent's states stay where they were, so start afresh.

        Raises:
            ConfigError: no such device.
        """
        self.model.to(pick_device(device))
        return self

    @property
    def acting(self) -> ActingMode:
        """ "window": the last K steps run again at every step. "recurrent": a memory of constant size, where the family
        has one. May be set; a state of one way does not fit the other.
        """
        return self._acting_mode

    @acting.setter
    def acting(self, mode: ActingMode) -> None:
        self._acting: Acting = make_acting(mode, self.model, self.config.rtg_scale)
        self._acting_mode = mode

    def get_env(self) -> Any:
        """The bound environment, or None."""
        return self._env

    def set_env(self, env: Any, *, trust_env_module: bool = False) -> None:
        """Bind a gymnasium.Env, an SB3 VecEnv or a gymnasium VectorEnv, so that rewards can be read from it.

        Args:
            env: an id is made as SB3 does, one environment in a Monitor and a DummyVecEnv; `get_env` returns it. None
                binds nothing any more.
            trust_env_module: import the module an id names.

        Raises:
            SpaceError: its spaces are not those the agent was made for, or it normalizes observations, as the network
                does itself. As `make_env` for an id.
        """
        if isinstance(env, str):
            env = self._made(env, trust_env_module)
        if env is not None:
            self.check_env(env)
        self._env = env
        self._rewards.bind(env)
        self._warned -= {"rewards", "bound"}  # another environment, other troubles

    def _made(self, env_id: str, trust_env_module: bool) -> Any:
        from stable_baselines3.common.monitor import Monitor
        from stable_baselines3.common.vec_env import DummyVecEnv

        options = self.config.env_options if env_id == self.config.env else {}
        made = Monitor(make_configured(env_id, options, trust_env_module))
        return DummyVecEnv([lambda: made])

    def check_env(self, env: Any, *, scaled: bool = False) -> None:
        """Raise SpaceError unless the agent can act in this gymnasium.Env, SB3 VecEnv or gymnasium VectorEnv.

        Args:
            scaled: SB3's VecNormalize may normalize observations: the caller reads those it was given.
        """
        normalizer = observation_normalizer(env.unwrapped if scaled and hasattr(env, "env_is_wrapped") else env)
        if normalizer is not None:
            raise SpaceError(
                f"{normalizer.name} normalizes observations, which {self.config.agent_id} does itself; "
                f"{normalizer.instead}."
            )
        observation = getattr(env, "single_observation_space", env.observation_space)
        action = getattr(env, "single_action_space", env.action_space)
        self.check_spaces(observation, action)

    def check_spaces(self, observation: gym.Space[Any], action: gym.Space[Any]) -> None:
        """Raise SpaceError, naming both sides, unless these are the agent's spaces.

        As `predict` does, an agent of plain observations takes a Dict of its "observation" and a "reward", and a masked
        one a Dict of its "observation" and a "goal".
        """
        io = self.config.io
        if io.observation.keys is None and isinstance(observation, gym.spaces.Dict) and set(observation) == PLAIN_KEYS:
            observation = observation[OBSERVATION_KEY]
        if isinstance(self.model, MaskedModel):
            observation = without_goal(observation, io.observation.keys)
        misfit = describe_misfit(io.observation, io.action, observation, action)
        if misfit:
            raise SpaceError(f"{self.config.agent_id} does not fit: {misfit}.")

    def set_random_seed(self, seed: int | None = None) -> None:
        """Seed the sampling of Discrete actions (`deterministic=False`)."""
        self._rng = np.random.default_rng(seed)

    @property
    def rtg_source(self) -> str | None:
        """Where the last `predict` had its rewards from: "reward", "observation", "env", or "constant" for nowhere."""
        return self._rewards.source

    # -- asking a masked network (families of `nn.masked.MaskedModel`, Uni[MASK]) -------------------------------------

    def condition(
        self, *, goal: Any = None, waypoints: Mapping[int, Any] | None = None, target_return: Any = None
    ) -> Agent:
        """From now on act towards these; what is left out is forgotten, but for the agent's own target return.

        A `"goal"` key of a Dict observation says the same for one call of `predict`.

        Args:
            goal: one observation, or one for each environment (N, ...): to be reached at the end of the window, that
                is, K-1 steps after the first step the agent remembers. From step K-2 of an episode on that is the next
                step: a goal that lies further away should then be one on the way there.
            waypoints: environment step -> observation, or one for each environment.
            target_return: one number, which becomes the attribute, or one for each environment (N,). In the middle of
                an episode, what is still to come is this less the episode's rewards so far, and the steps remembered
                are read as if it had been asked for all along. A recurrent memory keeps what it has read of them.

        Returns:
            The agent itself.

        Raises:
            ConfigError: the network cannot be told of steps to come, or a target is NaN or infinite. ShapeError: no
                observation of this agent, or no target or targets.
        """
        if goal is not None or waypoints:
            self.require_masked("conditioned on goals or waypoints")
        targets = None if target_return is None else checked_targets(target_return)
        rows = {
            step: self._read(value).flat
            for step, value in zip(checked_steps(waypoints or {}), (waypoints or {}).values(), strict=True)
        }
        self._conditions = Conditions(None if goal is None else self._read(goal).flat, rows)
        self._targets = targets if targets is not None and targets.ndim else None
        if targets is not None and not targets.ndim:
            self.target_return = float(targets)
        return self

    @property
    def is_conditioned_each(self) -> bool:
        """Whether `condition` gave each environment of a batch something of its own, so that none may leave it."""
        told = (self._conditions.goal, *self._conditions.waypoints.values())
        return self._targets is not None or any(rows is not None and len(rows) > 1 for rows in told)

    @property
    def is_conditioned(self) -> bool:
        """Whether `condition` told it of a goal, waypoints, or targets for each environment."""
        return bool(self._conditions) or self._targets is not None

    def infer(self, **question: Any) -> Answer:
        """What a masked network says of what a window hides; see `agentzoo.masked.answer.infer` for the arguments.

        Raises:
            ConfigError: the network is no masked one. ShapeError: arrays of other shapes.
        """
        from agentzoo.masked.answer import infer  # it needs this module

        return infer(self, **question)

    def require_masked(self, what: str) -> MaskedModel:
        """The network, if it can be shown and asked any part of a window; ConfigError saying `what` it cannot."""
        if isinstance(self.model, MaskedModel):
            return self.model
        raise ConfigError(f"a {self.model.config.family!r} network cannot be {what}; a unimask agent can.")

    def _read(self, observation: Any) -> Observed:
        return read_observation(observation, self.config.io.observation, self.config.agent_id)

    # -- acting ------------------------------------------------------------------------------------------------------

    def predict(
        self,
        observation: Any,
        state: tuple[Any, ...] | None = None,
        episode_start: NDArray[np.bool_] | None = None,
        deterministic: bool = False,
        *,
        reward: Any = None,
    ) -> tuple[NDArray[Any], AgentState | MemoryState]:
        """The action for each observation, and the history to pass to the next call.

        Args:
            observation: one observation of the environment or a batch of N; a dict of arrays for a Dict space. An agent
                of plain observations takes them as {"observation": ..., "reward": ...}, too.
            state: what the last call returned; None starts all rows afresh.
            episode_start: (N,), True where the observation is the first of an episode.
            deterministic: a Discrete agent takes its most likely action instead of sampling. A Box agent predicts
                one action and answers the same either way.
            reward: (N,) or a number: the raw reward that came with `observation`. Without it the reward is taken
                from a `"reward"` key of the observation, else from the bound environment; else the target return
                stays constant and a warning says so once.

        Returns:
            Actions (N, A), (N,) for Discrete, or one action for one observation (0-d for Discrete), clipped to the
            space and of its dtype; and the new state. `state` itself is not changed.

        Raises:
            ShapeError: observation, state, reward or episode_start of another shape. ObservationError: NaN or
                infinity, in what came or in what the network makes of it.
        """
        if self.model.training:
            self.model.eval()  # as SB3 does
        own, conditions = self._split_goal(observation)
        observations, single = self._read(own)
        n = len(observations)
        starts = self._starts(state, episode_start, n)
        previous = self._acting.empty(n) if state is None else self._acting.check(state, n)
        seen = reward_beside(observation, self.config.io.observation)
        targets = self._targets_of(n)
        previous = retargeted(previous, targets)
        rtg = self._returns_to_go(previous, starts, reward, seen)
        with torch.inference_mode():
            output, current = self._acting.act(previous, observations, rtg, starts, conditions)
        actions = self._to_actions(self._finite(output.float().cpu().numpy(), rtg), deterministic)
        current = self._acting.remember(current, actions, targets)
        actions = self._to_space(actions)
        return (actions[0, ...] if single else actions), current  # `...` keeps a single choice an array, 0-d

    def _split_goal(self, observation: Any) -> tuple[Any, Conditions]:
        """The observation without its goal, and what is known of steps to come."""
        keys = self.config.io.observation.keys
        if keys is None and isinstance(observation, Mapping) and set(observation) == PLAIN_KEYS:
            return observation[OBSERVATION_KEY], self._conditions
        if not isinstance(observation, Mapping) or GOAL_KEY not in observation or GOAL_KEY in (keys or ()):
            return observation, self._conditions
        if keys is not None and not isinstance(self.model, MaskedModel):
            return observation, self._conditions  # one more key that it does not read
        self.require_masked("given a goal")
        rest = {key: value for key, value in observation.items() if key != GOAL_KEY}
        own = rest if keys is not None else rest.get("observation", rest)
        return own, self._conditions.with_goal(self._read(observation[GOAL_KEY]).flat)

    def _starts(self, state: Any, episode_start: Any, n: int) -> NDArray[np.bool_]:
        if episode_start is None:
            episode_start = np.full(n, False)
        given = np.array(episode_start, dtype=bool).reshape(-1)  # a copy: SB3 changes the array after the call
        if len(given) != n:
            raise ShapeError(f"episode_start has {len(given)} entries, the observation {n} rows.")
        self._bare_calls = self._bare_calls + 1 if state is None and not given.all() else 0
        if self._bare_calls == 2:
            self._warn_once(
                "history",
                "predict was called twice in a row without the state of an episode under way: the agent sees every "
                "step as the first of an episode. Pass on the state it returns: action, state = agent.predict(obs, "
                "state).",
            )
        return given | (state is None)

    def _targets_of(self, n: int) -> NDArray[np.float64]:
        """(N,) what each environment is asked for."""
        targets = np.asarray(self.target_return if self._targets is None else self._targets, dtype=np.float64)
        if targets.shape not in ((), (n,)):
            raise ShapeError(f"{targets.size} target returns were given, the observation has {n} rows.")
        return np.full(n, targets)

    def _returns_to_go(self, previous: Any, starts: NDArray[np.bool_], passed: Any, seen: Any) -> NDArray[np.float64]:
        """(N,) of this step: target minus all rewards before it; `previous` is the state of the step before."""
        if self.config.rewards == "delayed":
            return np.asarray(previous.targets)
        remembered = previous.newest_return_to_go()
        counted = np.where(starts, 0.0, previous.targets - remembered)
        newest = np.where(starts, previous.targets, remembered)
        return np.asarray(newest - self._rewards.pick(passed, seen, counted, previous.timesteps + 1, starts))

    def _finite(self, output: NDArray[Any], rtg: NDArray[np.float64]) -> NDArray[Any]:
        if np.isfinite(output).all():
            return output
        row, _ = np.argwhere(~np.isfinite(output))[0]
        raise ObservationError(
            f"{self.config.agent_id} answers {output[row]} to environment {row}, asked for a return of {rtg[row]:g} "
            f"in units of {self.config.rtg_scale:g} (target_return is {self.target_return:g}): a network cannot read "
            "that, or an observation is too large."
        )

    def _to_actions(self, output: NDArray[Any], deterministic: bool) -> NDArray[Any]:
        """Network output (N, A) -> clipped Box actions, or choices (N,) counted from 0."""
        spec = self.config.io.action
        if spec.kind == "discrete":
            scores = output if deterministic else output + self._rng.gumbel(size=output.shape)  # sampling by Gumbel-max
            return np.asarray(scores.argmax(axis=1), dtype=np.int64)
        if self._bounds is None:
            return output
        low, high = self._bounds
        return output.astype(spec.dtype, copy=False).clip(low, high)

    def _to_space(self, actions: NDArray[Any]) -> NDArray[Any]:
        spec = self.config.io.action
        return actions + spec.start if spec.kind == "discrete" else actions.astype(spec.dtype)

    def _warn_once(self, kind: str, message: str, depth: int = 4) -> None:
        """`depth`: of the caller's line, this function being 1."""
        if kind not in self._warned:
            self._warned.add(kind)
            warnings.warn(message, UserWarning, stacklevel=depth)

    def __repr__(self) -> str:
        return f"Agent({self.config.agent_id!r}, target_return={self.target_return:g}, device={self.device})"
