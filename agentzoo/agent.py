"""`Agent`: a trained network that acts through stable-baselines3's `predict`."""

from __future__ import annotations

from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from numpy.typing import NDArray

from agentzoo.acting.attributes import KnownAttributes
from agentzoo.acting.binding import EnvironmentMethods
from agentzoo.acting.conditions import Conditions, checked_targets
from agentzoo.acting.history import AgentState, read_starts, reads_past, retargeted
from agentzoo.acting.loading import Saved, load_network, pick_device, to_save
from agentzoo.acting.modes import MemoryState
from agentzoo.acting.observing import reward_beside
from agentzoo.acting.output import Actions, explained_weights, require_finite
from agentzoo.acting.rewards import Rewards, advanced
from agentzoo.acting.runtimes import Runtime, RuntimeMethods
from agentzoo.acting.threads import few_threads
from agentzoo.config import AgentConfig
from agentzoo.data.spaces import action_space, observation_space
from agentzoo.data.targets import Target
from agentzoo.envs.making import check_env_id
from agentzoo.errors import ConfigError, ShapeError, warn
from agentzoo.masked.agent_methods import MaskedMethods
from agentzoo.nn.base import SequenceModel
from agentzoo.recipe import Recipe
from agentzoo.record import read_record
from agentzoo.registry import service
from agentzoo.store.downloads import Where, origin_of
from agentzoo.store.files import CONFIG, RECIPE, WEIGHTS, sha256, write_atomic
from agentzoo.store.locate import find_agent, require_own
from agentzoo.store.tensors import fingerprint, save_tensors


class Agent(RuntimeMethods, EnvironmentMethods, MaskedMethods, KnownAttributes):
    """A network, its config and its target return.

    All history lives in the `state` that `predict` returns, so one agent serves any number of environments. A copy or
    a pickle has no bound environment. More methods: acting/runtimes.py, acting/binding.py, masked/agent_methods.py.
    """

    recipe: Recipe | None
    origin: Where | None  # the Hub repo and commit that hold these weights

    def __init__(self, model: SequenceModel, config: AgentConfig, recipe: Recipe | None = None) -> None:
        self.config, self.recipe, self.origin = config, recipe, None
        self.target_return = config.target_return
        self.model = model
        self.history = config.history
        self._saved: Saved | None = None  # the weights in the agent's file, if they were read or written
        self._actions = Actions(config.io.action)
        self._conditions, self._targets = Conditions(), None
        self.trust_env_options = True  # `from_pretrained` sets it: that config may be somebody else's
        self._env = self._created = None
        self._warned: set[str] = set()
        self._rewards = self._unbound()
        self._bare_calls = 0  # consecutive calls with neither state nor episode_start

    def _unbound(self) -> Rewards:
        return Rewards(partial(self._warn_once, depth=5), self.config.model.acts_on_target())

    def __getstate__(self) -> dict[str, Any]:
        """Everything except the bound environment, which may hold processes and windows."""
        own = {"_warned": set(self._warned), "_actions": deepcopy(self._actions)}
        return {**vars(self), **own, "_env": None, "_created": None, "_rewards": None}

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
        subfolder: str = "",
        token: str | bool | None = None,
        cache_dir: str | Path | None = None,
        local_files_only: bool = False,
        force_download: bool = False,
        device: str = "auto",
        runtime: Runtime = "pytorch",
        trust_env_module: bool = False,
        trust_env_options: bool = False,
    ) -> Agent:
        """Load an agent by id (`zoo/dt-hopper-medium`), Hub repo or folder.

        Args:
            id_or_path: looked up as a folder, in the local zoo, then on the Hub.
            env: an environment, or the id of one, to bind as `set_env` does. `predict` then reads rewards from it.
            revision, subfolder, token, cache_dir, local_files_only, force_download: as in `huggingface_hub`.
            device: "auto" is CUDA if available.
            runtime: "onnx" acts with a frozen copy of the network in ONNX Runtime, as `freeze` does.
            trust_env_module: accept a config whose environment id names a module to import.
            trust_env_options: accept environment options outside the allowed list of `envs.env_options` whenever this
                agent creates an environment.

        Raises:
            UnknownNameError: no such agent, with the nearest id. CheckpointError: files missing, broken or tampered
                with. ConfigError: a config that cannot be used, or no such device. SpaceError: `env` does not fit.
                RuntimeMismatchError: as `freeze`.
        """
        folder = find_agent(
            id_or_path,
            revision=revision,
            subfolder=subfolder,
            token=token,
            cache_dir=cache_dir,
            local_files_only=local_files_only,
            force_download=force_download,
        )
        config = read_record(AgentConfig, folder / CONFIG)
        check_env_id(config.env, trust_env_module)
        place = pick_device(device)
        model = load_network(config, folder / WEIGHTS)
        recipe = read_record(Recipe, folder / RECIPE) if (folder / RECIPE).is_file() else None
        agent = cls(model.to(place), config, recipe)
        agent.trust_env_options, agent.origin = trust_env_options, origin_of(folder)
        agent._saved = None if config.weights_sha256 is None else Saved(fingerprint(model), model.stored_types)
        agent.freeze(runtime)
        if env is not None:
            agent._bind(env, trust_env_module)
            agent._warn_of_another_task()
        return agent

    def save_pretrained(
        self, folder: str | Path, *, push_to_hub: bool = False, repo_id: str | None = None, **push_options: Any
    ) -> Path:
        """Write `model.safetensors`, the recipe and, last, `config.json`, which holds the hash of the weights.

        The current target return and history are stored. `acting` is not: a loaded agent acts in its family's default
        mode.

        Args:
            folder: created if it does not exist.
            push_to_hub: also upload the agent to `repo_id`, with the options of `Agent.push_to_hub`.

        Raises:
            StorageError: files of another agent, or of a backbone, would remain in the folder, or a recipe beside an
                agent that has none; or there is no space or permission. Each file is then either the old one or the new
                one. CheckpointError: a weight is not finite. ConfigError: only one of `push_to_hub` and `repo_id`. Also
                what `push_to_hub` raises.
        """
        if push_to_hub != (repo_id is not None) or (push_options and not push_to_hub):
            raise ConfigError("to upload the saved agent, pass push_to_hub=True and repo_id='NAME/AGENT' together.")
        folder = Path(folder)
        require_own(folder, self.config.agent_id, self.recipe is not None)
        stored = to_save(self.model, self._saved)
        save_tensors(folder / WEIGHTS, stored.tensors(self.model))
        if self.recipe is not None:
            if self.target_return != self.recipe.eval.target_return:
                self.recipe = self.recipe.with_target(Target(self.target_return, "number"))
            self.recipe = self.recipe.with_history(self.history)
            write_atomic(folder / RECIPE, self.recipe.to_json())
        digest = sha256(folder / WEIGHTS)
        self.origin = self.origin if digest == self.config.weights_sha256 else None
        changed = {"target_return": self.target_return, "history": self.history, "weights_sha256": digest}
        self.config = self.config.model_copy(update=changed)
        self._saved = stored
        write_atomic(folder / CONFIG, self.config.to_json())
        if repo_id is not None:
            self.push_to_hub(repo_id, **push_options)
        return folder

    def push_to_hub(
        self,
        repo_id: str,
        *,
        commit_message: str | None = None,
        create_pr: bool = False,
        private: bool | None = None,
        token: str | bool | None = None,
        branch: str | None = None,
        tag: str | None = None,
        allow_patterns: str | list[str] | None = None,
        ignore_patterns: str | list[str] | None = None,
        replace_measured: bool = False,
    ) -> str:
        """Upload the agent in one commit, with a card made from its config and recipe.

        `agentzoo hub push` uploads a folder that also holds measurements (`agentzoo hub stage`).

        Args:
            commit_message, create_pr, private, token, branch, allow_patterns, ignore_patterns: as in `huggingface_hub`.
            tag: name to give the commit.
            replace_measured: push even if the repo holds measurements, plots and a video, and delete them.

        Returns:
            The URL of the commit, or of the pull request.

        Raises:
            ConfigError: no recipe, a bad repo id, or a repo with measurements. HubError: the upload failed; the
                remote's files are unchanged.
        """
        options = {
            "commit_message": commit_message,
            "create_pr": create_pr,
            "private": private,
            "branch": branch,
            "tag": tag,
            "allow_patterns": allow_patterns,
            "ignore_patterns": ignore_patterns,
        }
        return str(service("push_agent")(self, repo_id, token=token, replace_measured=replace_measured, **options).url)

    # -- attributes that stable-baselines3 code reads ------------------------------------------------------------------

    @property
    def observation_space(self) -> gym.Space[Any]:
        """The observation space. Its bounds are infinite, since a config does not store them."""
        return observation_space(self.config.io.observation)

    @property
    def action_space(self) -> gym.Space[Any]:
        """The action space."""
        return action_space(self.config.io.action)

    @property
    def target_return(self) -> float:
        """The return the network is conditioned on, in units of the environment's reward.

        It can be assigned; `condition` sets one for each environment. Assigning anything but one number raises
        ShapeError; NaN, infinity or a number beyond 1e9 raises ConfigError.
        """
        return self._target_return

    @target_return.setter
    def target_return(self, value: float) -> None:
        target = checked_targets(value)
        if target.ndim:
            raise ShapeError(
                f"target_return is one number, got {target.size}; agent.condition(target_return=[...]) sets one for "
                "each environment."
            )
        self._target_return, self._targets = float(target), None

    @property
    def weights_sha256(self) -> str | None:
        """The hash of the file that holds these weights; None if there is no file or the weights have changed since."""
        known = self._saved is not None and self._saved.digest == fingerprint(self.model)
        return self.config.weights_sha256 if known else None

    def set_random_seed(self, seed: int | None = None) -> None:
        """Seed the sampling of actions (`deterministic=False`)."""
        self._actions.seed(seed)

    @property
    def rtg_source(self) -> str | None:
        """Source of the last rewards: "reward", "observation", "env", "constant" (none came), None (none needed)."""
        return self._rewards.source

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
                of plain observations also accepts {"observation": ..., "reward": ...}.
            state: what the last call returned; None starts a new episode in every row.
            episode_start: (N,), True where the observation is the first of an episode.
            deterministic: take the most likely action instead of sampling, where the network gives a distribution:
                every Discrete agent, and Box agents like `odt`. Other Box agents predict one action.
            reward: (N,) or a number: the raw reward that came with `observation`. Without it the reward is taken
                from a `"reward"` key of the observation, else from the bound environment; else the target return
                stays constant and a warning says so once.

        Returns:
            Actions (N, A), (N,) for Discrete, or one action for one observation (0-d for Discrete), clipped to the
            space and of its dtype; and the new state. `state` itself is not changed.

        Raises:
            ShapeError: observation, state, reward or episode_start of another shape. ObservationError: NaN or
                infinity, in the input or in the output of the network.
        """
        if self.model.training:
            self.model.eval()  # as SB3 does
        own, conditions = self._split_goal(observation)
        observations, single = self._read(own)
        n = len(observations)
        previous = self._acting.empty(n) if state is None else self._acting.check(state, n)
        seen = reward_beside(observation, self.config.io.observation)
        delayed = self.config.rewards == "delayed"
        needed = reward is None and seen is None and not delayed  # the reward that the bound environment records
        marked = episode_start is not None
        recorded = self._rewards.recorded(needed, marked)
        starts = read_starts(episode_start, n) | self._rewards.begun(
            recorded, previous, only_late=marked and not needed
        )
        self._check_history(state, starts)
        starts |= state is None
        targets = self._targets_of(n)
        previous = retargeted(previous, targets)
        rtg = np.asarray(previous.targets)
        if not delayed:
            rtg = self._rewards.returns_to_go(previous, recorded, starts, reward, seen, marked)
        with torch.inference_mode(), few_threads(n), explained_weights(self.model):
            output, current = self._acting.act(previous, observations, rtg, starts, conditions)
            values = self._actions.values(output, deterministic)
        require_finite(values, rtg, self.config, targets)
        actions = self._actions.decode(values, deterministic)
        current = self._acting.remember(current, actions, targets)
        current = current._replace(recorded=advanced(previous, recorded, starts, rtg))
        actions = self._actions.to_space(actions)
        return (actions[0, ...] if single else actions), current  # `...` keeps a single choice an array, 0-d

    def _check_history(self, state: Any, starts: NDArray[np.bool_]) -> None:
        """Warn if the caller drops the state of an unfinished episode."""
        bare = state is None and not starts.all() and reads_past(self.config)
        self._bare_calls = self._bare_calls + 1 if bare else 0
        if self._bare_calls == 2:
            self._warn_once(
                "history",
                "predict was called twice in a row without the state of an unfinished episode, so it treats every "
                "step as the first of an episode. Pass the returned state to the next call: action, state = "
                "agent.predict(obs, state).",
            )

    def _warn_once(self, kind: str, message: str, depth: int = 4) -> None:
        """Warn once for each `kind`. `depth`: stack frames up to the caller's line, counting this function as 1."""
        if kind not in self._warned:
            self._warned.add(kind)
            warn(message, depth)

    def __repr__(self) -> str:
        return (
            f"Agent({self.config.agent_id!r}, target_return={self.target_return:g}, device={self.device}, "
            f"runtime={self.runtime!r})"
        )
