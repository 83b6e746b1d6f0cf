"""Rollouts: every kind of environment, seeds, fair shares, rewards and success as the environment says them."""

from __future__ import annotations

from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from conftest import CountingEnv, doubled, make_agent
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecEnv, VecMonitor, VecNormalize

from agentzoo.errors import ConfigError, ObservationError, SpaceError
from agentzoo.evaluation.results import evaluate
from agentzoo.evaluation.rollout import rollout, run_episode, run_seeded


def test_parallel_environments_give_the_episodes_of_one_by_one() -> None:
    agent = make_agent()
    alone = rollout(agent, "tests/Counting-v0", 9, n_envs=1)
    together = rollout(agent, "tests/Counting-v0", 9, n_envs=4)
    assert alone == together
    assert [one.seed for one in alone] == [10_000 + e for e in range(9)]
    assert {one.length for one in alone} == {7, 8, 9}  # the environment's three lengths: seeds do differ
    assert all(one.terminated and one.total_reward == one.length * (one.length + 1) / 2 for one in alone)


def test_environments_keep_their_own_histories_as_others_end() -> None:
    """In CartPole the length of an episode says which actions were taken."""
    agent = make_agent("CartPole-v1")
    alone = rollout(agent, "CartPole-v1", 9, n_envs=1)
    assert rollout(agent, "CartPole-v1", 9, n_envs=4) == alone
    assert len({one.length for one in alone}) > 3


def test_a_plain_env_gives_the_same_as_its_id() -> None:
    agent = make_agent()
    assert rollout(agent, gym.make("tests/Counting-v0"), 3) == rollout(agent, "tests/Counting-v0", 3)


@pytest.mark.parametrize("mode", list(gym.vector.AutoresetMode))
def test_vector_envs_of_every_autoreset_mode(mode: gym.vector.AutoresetMode) -> None:
    envs = gym.vector.SyncVectorEnv([CountingEnv] * 3, autoreset_mode=mode)
    found = rollout(make_agent(), envs, 8)
    assert len(found) == 8
    assert all(one.total_reward == one.length * (one.length + 1) / 2 for one in found)
    assert {one.length for one in found} <= {7, 8, 9}


def test_sb3_vec_env_shares_episodes_out_evenly() -> None:
    found = rollout(make_agent(), DummyVecEnv([CountingEnv] * 3), 8)
    assert len(found) == 8
    assert all(one.terminated for one in found)
    assert all(one.total_reward == one.length * (one.length + 1) / 2 for one in found)


def cut_short() -> gym.Env[Any, Any]:
    return gym.wrappers.TimeLimit(CountingEnv(), 3)


def test_an_episode_that_ran_out_of_time_did_not_terminate() -> None:
    agent = make_agent()
    for env in (cut_short(), DummyVecEnv([cut_short] * 2), gym.vector.SyncVectorEnv([cut_short] * 2)):
        assert [(one.length, one.terminated) for one in rollout(agent, env, 2)] == [(3, False)] * 2
    assert run_episode(agent, cut_short(), 0).terminated is False


@pytest.mark.parametrize("make", [DummyVecEnv, gym.vector.SyncVectorEnv])
def test_environments_that_reset_themselves_are_seeded_once(make: Any) -> None:
    agent = make_agent()
    first, again, other = (rollout(agent, make([CountingEnv] * 2), 12, seed=seed) for seed in (0, 0, 5))
    assert first == again != other


def test_environments_made_for_a_rollout_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    agent, closed = make_agent(), []
    monkeypatch.setattr(CountingEnv, "close", lambda env: closed.append(env))
    rollout(agent, CountingEnv(), 1)
    assert closed == []  # what was passed in is the caller's
    rollout(agent, "tests/Counting-v0", 3, n_envs=2)
    assert len(closed) == 2


def test_an_environment_that_normalizes_observations_is_refused_as_by_set_env() -> None:
    agent, wrapper = make_agent(), gym.wrappers.NormalizeObservation
    for env in (
        wrapper(CountingEnv()),
        VecNormalize(DummyVecEnv([lambda: wrapper(CountingEnv())])),
        gym.make_vec("tests/Counting-v0", num_envs=2, wrappers=[wrapper]),
    ):
        with pytest.raises(SpaceError, match="NormalizeObservation normalizes observations, which dt-test does itself"):
            rollout(agent, env, 1)


def doubled_worker() -> gym.Env[Any, Any]:
    return Monitor(doubled(CountingEnv()))


def test_returns_are_not_counted_in_rewards_that_a_wrapper_changed() -> None:
    agent = make_agent()
    vector = gym.make_vec("tests/Counting-v0", num_envs=2)
    workers = SubprocVecEnv([doubled_worker], start_method="fork")
    try:
        for env, name in (
            (gym.wrappers.NormalizeReward(gym.make("tests/Counting-v0")), "NormalizeReward"),
            (Monitor(doubled(Monitor(CountingEnv()))), "TransformReward"),
            (VecNormalize(DummyVecEnv([doubled_worker]), norm_obs=False), "TransformReward"),
            (workers, "TransformReward"),
            (gym.make_vec("tests/Counting-v0", num_envs=2, wrappers=[doubled]), "TransformReward"),
            (gym.wrappers.vector.ClipReward(vector, 0.0, 1.0), "ClipReward"),
        ):
            with pytest.raises(ConfigError, match=f"{name} changes the rewards.*remove that wrapper"):
                rollout(agent, env, 1)
    finally:
        workers.close()


def double(reward: Any) -> float:
    return 2 * float(reward)


TWICE = (gym.wrappers.TransformReward.wrapper_spec(func=double),)


@pytest.mark.parametrize(
    "registration",
    [
        {"entry_point": lambda: doubled(CountingEnv())},
        {"entry_point": CountingEnv, "additional_wrappers": TWICE},
        {"entry_point": CountingEnv, "additional_wrappers": TWICE, "max_episode_steps": 100},
    ],
)
def test_rewards_of_a_task_that_is_registered_with_its_wrapper_are_its_own(registration: dict[str, Any]) -> None:
    gym.register("tests/Doubled-v0", **registration)
    made = partial(gym.make, "tests/Doubled-v0")
    try:
        workers = SubprocVecEnv([lambda: Monitor(made())], start_method="fork")
        processes = gym.vector.AsyncVectorEnv([made], context="fork")
        for env in ("tests/Doubled-v0", made(), workers, processes):
            (found,) = rollout(make_agent(), env, 1)
            assert found.total_reward == found.length * (found.length + 1)
        workers.close()
        processes.close()
        again = gym.vector.AsyncVectorEnv([lambda: doubled(made())], context="fork")
        for env in (doubled(made()), again):
            with pytest.raises(ConfigError, match="TransformReward changes the rewards"):
                rollout(make_agent(), env, 1)
        again.close()
    finally:
        del gym.registry["tests/Doubled-v0"]


class Batched(VecEnv):
    """A simulator that steps all environments at once, so that there is none to ask for an attribute."""

    def __init__(self, answers: bool = True) -> None:
        self.answers = answers
        one = CountingEnv()
        super().__init__(2, one.observation_space, one.action_space)

    def reset(self) -> Any:
        self.now = np.zeros(2)
        return np.repeat(self.now[:, None], 3, axis=1).astype(np.float32)

    def step_async(self, actions: Any) -> None:
        self.now = self.now + 1

    def step_wait(self) -> Any:
        rewards, dones = self.now.copy(), self.now >= 4
        self.now = np.where(dones, 0.0, self.now)
        return np.repeat(self.now[:, None], 3, axis=1).astype(np.float32), rewards, dones, [{}, {}]

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        if not self.answers and attr_name != "render_mode":  # which SB3's own constructor asks for
            raise NotImplementedError
        return [getattr(self, attr_name)] * 2

    def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:
        if not self.answers:
            raise NotImplementedError
        return [False] * 2

    def set_attr(self, *_: Any, **__: Any) -> None: ...
    def env_method(self, *_: Any, **__: Any) -> Any: ...
    def close(self) -> None: ...


def test_a_batched_simulator_is_evaluated_as_a_vec_env() -> None:
    """One object that steps all its copies itself, without a Gymnasium spec."""
    agent, env = make_agent(), VecMonitor(Batched())
    agent.set_env(env)
    assert evaluate(agent, env, 4).returns == (10.0,) * 4
    assert evaluate_policy(agent, env, n_eval_episodes=2) == (10.0, 0.0)
    assert agent.rtg_source == "env"
    silent = Batched(answers=False)
    agent.set_env(silent)
    assert [one.total_reward for one in rollout(agent, silent, 2)] == [10.0, 10.0]


@pytest.mark.parametrize(
    "inside", ["maze", {"gravity": 9.8}, np.zeros(3), object()], ids=lambda one: type(one).__name__
)
def test_an_environment_may_have_something_else_called_env(inside: Any) -> None:
    def made() -> gym.Env[Any, Any]:
        env = CountingEnv()
        env.env = inside  # type: ignore[attr-defined]
        return env

    recorder = gym.wrappers.vector.RecordEpisodeStatistics(gym.vector.SyncVectorEnv([made]))
    for env in (made(), Monitor(made()), DummyVecEnv([lambda: Monitor(made())]), recorder):
        agent = make_agent()
        agent.set_env(env)
        assert rollout(agent, env, 1)[0].length >= 7


def test_an_environment_inside_may_name_the_one_outside() -> None:
    class Task:
        env: Any

    env, task = CountingEnv(), Task()
    env.env, task.env = task, env  # type: ignore[attr-defined]
    agent = make_agent()
    agent.set_env(env)
    assert agent.get_env() is env


def test_more_environments_than_episodes_are_not_used() -> None:
    envs = [CountingEnv() for _ in range(3)]
    assert run_seeded(make_agent(), envs, 2) == rollout(make_agent(), "tests/Counting-v0", 2)
    assert not envs[2].actions


def test_returns_under_vec_normalize_are_the_environment_s_own() -> None:
    found = rollout(make_agent(), VecNormalize(DummyVecEnv([CountingEnv] * 2), norm_obs=False), 4)
    assert all(one.total_reward == one.length * (one.length + 1) / 2 for one in found)


def test_observations_under_vec_normalize_are_the_environment_s_own() -> None:
    plain, normalized = CountingEnv(), CountingEnv()
    rollout(make_agent(), DummyVecEnv([lambda: plain]), 2)
    rollout(make_agent(), VecNormalize(DummyVecEnv([lambda: normalized])), 2)
    np.testing.assert_array_equal(plain.actions, normalized.actions)


class Judged(gym.Wrapper[Any, Any, Any, Any]):
    """Says of every second episode that it succeeded."""

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)
        self.episode = 0

    def step(self, action: Any) -> Any:
        observation, reward, terminated, truncated, info = super().step(action)
        if terminated:
            self.episode += 1
            info["success"] = self.episode % 2 == 0
        return observation, reward, terminated, truncated, info


@pytest.mark.parametrize("mode", [None, *gym.vector.AutoresetMode])
def test_success_is_read_from_vector_environments(mode: gym.vector.AutoresetMode | None) -> None:
    makers = [lambda: Judged(CountingEnv())] * 2
    env = DummyVecEnv(makers) if mode is None else gym.vector.SyncVectorEnv(makers, autoreset_mode=mode)
    result = evaluate(make_agent(), env, 8)
    assert result.success_rate == 0.5
    if mode is not None:
        listed = gym.wrappers.vector.DictInfoToList(gym.vector.SyncVectorEnv(makers, autoreset_mode=mode))
        assert evaluate(make_agent(), listed, 8).success_rate == 0.5
    assert result.command is None  # nothing on the command line makes this environment
    without = rollout(make_agent(), DummyVecEnv([CountingEnv]), 1)
    assert without[0].success is None


def test_the_is_success_of_sb3_is_read() -> None:
    class Says(CountingEnv):
        def step(self, action: Any) -> Any:
            *rest, _ = super().step(action)
            return *rest, {"is_success": True}

    found = [rollout(make_agent(), env, 1)[0].success for env in (Says(), DummyVecEnv([Says]))]
    assert found == [True, True]


def test_rewards_that_are_not_finite_end_an_evaluation() -> None:
    class Broken(CountingEnv):
        def step(self, action: Any) -> Any:
            observation, _, terminated, truncated, info = super().step(action)
            return observation, np.nan if terminated else 1.0, terminated, truncated, info

    for env, which in ((Broken(), "the episode of seed 10000"), (DummyVecEnv([Broken]), "an episode")):
        with pytest.raises(ObservationError, match=f"{which} has the return nan: a reward"):
            rollout(make_agent(), env, 2)


def test_a_missing_success_flag_counts_as_failure_once_success_was_reported() -> None:
    class Rarely(Judged):
        def step(self, action: Any) -> Any:
            *rest, info = super().step(action)
            if not info.get("success", True):
                del info["success"]
            return *rest, info

    result = evaluate(make_agent(), Rarely(CountingEnv()), 8)
    assert result.success_rate == 0.5


def test_sampled_evaluations_repeat_for_the_same_seed() -> None:
    agent = make_agent("tests/CountingDiscrete-v0")
    env = CountingEnv(discrete=True)
    chosen = []
    for seed in (3, 3, 4):
        env.actions = []
        rollout(agent, env, 3, seed=seed, deterministic=False)
        chosen.append([int(action) for action in env.actions])
    assert chosen[0] == chosen[1] != chosen[2]
