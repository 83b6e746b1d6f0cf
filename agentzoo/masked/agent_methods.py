"""Methods of `Agent` for masked networks: inference about windows, goals and waypoints."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from agentzoo.acting.binding import OBSERVATION_KEY, PLAIN_KEYS
from agentzoo.acting.conditions import Conditions, checked_steps, checked_targets
from agentzoo.acting.observing import Observed, read_observation
from agentzoo.config import AgentConfig
from agentzoo.data.spaces import GOAL_KEY
from agentzoo.errors import ObservationError, ShapeError, warn
from agentzoo.masked.answer import Answer, infer
from agentzoo.nn.base import SequenceModel
from agentzoo.nn.masked_model import MaskedModel, require_masked
from agentzoo.text import counted


class MaskedMethods:
    """Mixin of `Agent`. With a network that is not masked, these methods raise ConfigError.

    `condition(target_return=...)` works for every family.
    """

    config: AgentConfig
    model: SequenceModel
    history: int | None
    target_return: float
    _conditions: Conditions
    _targets: NDArray[np.float64] | None  # (N,) one for each environment, instead of `target_return`

    def condition(
        self, *, goal: Any = None, waypoints: Mapping[int, Any] | None = None, target_return: Any = None
    ) -> Self:
        """Set goal, waypoints and target return for all later calls of `predict`.

        Goal and waypoints that are not passed are cleared; a single target return is kept. A `"goal"` key of a Dict
        observation sets the goal for one call of `predict`; if the agent reads chosen keys, it must hold a dict of
        them, and is ignored otherwise.

        Args:
            goal: one observation, or one for each environment (N, ...), to reach at the end of the window: K-1 steps
                after the first step that the agent reads. It reads at most `history` steps, so from step `history`-1
                of an episode on the goal is K-`history` steps ahead: 7 for a history of 3 in a window of 10. With
                `history` None it reads K-1 steps, and the goal becomes the next step; for a goal further away pass an
                intermediate point.
            waypoints: environment step -> observation, or one for each environment. The agent sees a waypoint from
                K-`history` steps before it on. With `history` None the window is full after K steps and has no room
                for what lies ahead, so waypoints of step K and later have no effect; a warning says so.
            target_return: one number, which becomes the attribute, or one for each environment (N,). In the middle of
                an episode the return-to-go becomes this number minus the episode's rewards so far, and earlier steps
                in the window are changed accordingly. A recurrent memory cannot change its earlier steps.

        Returns:
            The agent itself.

        Raises:
            ConfigError: the network supports no goals or waypoints, or a target is NaN or infinite. ShapeError: a
                goal, waypoint or target of a different shape. ObservationError: NaN or infinity in a goal or a
                waypoint.
        """
        waypoints = {} if waypoints is None else waypoints
        steps = checked_steps(waypoints)
        if goal is not None or steps:
            self.require_masked("conditioned on goals or waypoints")
        targets = None if target_return is None else checked_targets(target_return)
        values = zip(steps, waypoints.values(), strict=True)
        rows = {step: self._read_ahead(value, f"the waypoint of step {step}") for step, value in values}
        self._conditions = Conditions(None if goal is None else self._read_ahead(goal, "the goal"), rows)
        self._warn_of_unseen(steps)
        self._targets = targets if targets is not None and targets.ndim else None
        if targets is not None and not targets.ndim:
            self.target_return = float(targets)
        return self

    @property
    def is_conditioned_each(self) -> bool:
        """Whether `condition` set a goal, waypoint or target per environment, which fixes their number."""
        rows = (self._conditions.goal, *self._conditions.waypoints.values())
        return self._targets is not None or any(one is not None and len(one) > 1 for one in rows)

    @property
    def is_conditioned(self) -> bool:
        """Whether `condition` set a goal, waypoints, or targets per environment."""
        return bool(self._conditions) or self._targets is not None

    def infer(self, **question: Any) -> Answer:
        """Predict the hidden parts of a window; `agentzoo.masked.answer.infer` lists the arguments.

        Raises:
            ConfigError: the network is not masked. ShapeError: arrays of other shapes.
        """
        return infer(self, **question)

    def require_masked(self, what: str) -> MaskedModel:
        """The network, if it is masked; else ConfigError with the message that it cannot be `what`."""
        return require_masked(self.model, what)

    def _read(self, observation: Any) -> Observed:
        return read_observation(observation, self.config.io.observation, self.config.agent_id)

    def _read_ahead(self, observation: Any, what: str) -> NDArray[Any]:
        """(1, S) or (N, S): a goal or a waypoint, which an error names."""
        try:
            return self._read(observation).flat
        except (ShapeError, ObservationError) as error:
            raise type(error)(f"{what}: {error}") from error

    def _warn_of_unseen(self, steps: list[int]) -> None:
        """Warn of waypoints that a full window has no room for."""
        context = self.config.io.context
        unseen = [step for step in steps if step >= context]
        if unseen and (self.history is None or self.history >= context):
            warn(
                f"waypoints of steps {unseen} have no effect: from step {context - 1} on the agent's window is full of "
                f"steps that it has seen. Set agent.history, for example to {max(1, context // 3)}, before it acts.",
                depth=3,
            )

    def _split_goal(self, observation: Any) -> tuple[Any, Conditions]:
        """The observation without its goal, and the conditions with it."""
        keys = self.config.io.observation.keys
        if keys is None and isinstance(observation, Mapping) and set(observation) == PLAIN_KEYS:
            return observation[OBSERVATION_KEY], self._conditions
        if not isinstance(observation, Mapping) or GOAL_KEY not in observation or GOAL_KEY in (keys or ()):
            return observation, self._conditions
        if keys is not None and not (self.model.takes_goals and isinstance(observation[GOAL_KEY], Mapping)):
            return observation, self._conditions  # a key of the environment that the agent does not read
        self.require_masked("given a goal")
        rest = {key: value for key, value in observation.items() if key != GOAL_KEY}
        own = rest if keys is not None else rest.get(OBSERVATION_KEY, rest)
        return own, self._conditions.with_goal(self._read_ahead(observation[GOAL_KEY], "the goal"))

    def _targets_of(self, n: int) -> NDArray[np.float64]:
        """(N,) the target return of each environment."""
        targets = np.asarray(self.target_return if self._targets is None else self._targets, dtype=np.float64)
        if targets.shape not in ((), (n,)):
            raise ShapeError(f"{targets.size} target returns were given, the observation has {counted(n, 'row')}.")
        return np.full(n, targets)
