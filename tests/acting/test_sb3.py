"""Stock stable-baselines3 code runs unmodified and the return-to-go is exact."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from conftest import CountingEnv, make_agent
from stable_baselines3.common.callbacks import EvalCallback
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecMonitor, VecNormalize


def make_counting() -> Monitor:
    return Monitor(CountingEnv())


def vec_normalize() -> VecNormalize:
    return VecNormalize(DummyVecEnv([make_counting] * 2), norm_obs=False)


ENVS: dict[str, Callable[[], Any]] = {
    "one in a DummyVecEnv": lambda: DummyVecEnv([make_counting]),
    "three in a DummyVecEnv": lambda: DummyVecEnv([make_counting] * 3),
    "two in a SubprocVecEnv": lambda: SubprocVecEnv([make_counting] * 2, start_method="fork"),
    "VecNormalize": vec_normalize,
    "VecMonitor around a SubprocVecEnv": lambda: VecMonitor(SubprocVecEnv([CountingEnv] * 2, start_method="fork")),
    "a plain env with Monitor": make_counting,
}


@pytest.mark.parametrize("kind", ENVS)
def test_evaluate_policy_sees_exact_returns_to_go(kind: str) -> None:
    env = ENVS[kind]()
    agent = make_agent()
    agent.set_env(env)
    seen: list[tuple[float, float]] = []

    def check(scope: dict[str, Any], _: dict[str, Any]) -> None:
        state, i = scope["states"], scope["i"]
        t = int(state.timesteps[i])
        seen.append((float(state.newest_return_to_go()[i]), 50.0 - t * (t + 1) / 2))

    try:
        returns, lengths = evaluate_policy(agent, env, n_eval_episodes=7, callback=check, return_episode_rewards=True)
    finally:
        env.close()
    assert len(returns) == 7
    assert [n * (n + 1) / 2 for n in lengths] == returns
    assert len(seen) >= sum(lengths)
    assert max(abs(got - expected) for got, expected in seen) == 0.0
    assert agent.rtg_source == "env"


def test_workers_of_which_none_keeps_rewards_live_on() -> None:
    env = SubprocVecEnv([CountingEnv] * 2, start_method="fork")
    try:
        agent = make_agent()
        agent.set_env(env)
        assert env.reset().shape == (2, 3)
        with pytest.warns(UserWarning, match="no reward reaches predict"):
            evaluate_policy(agent, VecMonitor(env), n_eval_episodes=2)
    finally:
        env.close()


@pytest.mark.parametrize("monitored", [make_counting, CountingEnv])
def test_a_bound_environment_whose_processes_have_ended_gives_no_rewards(monitored: Callable[[], Any]) -> None:
    """A user closes the environment and goes on with another one."""
    agent = make_agent()
    for _ in range(2):  # each environment gets its own warning
        env = SubprocVecEnv([monitored] * 2, start_method="fork")
        env = env if monitored is make_counting else VecMonitor(env)
        agent.set_env(env)
        observations = env.reset()
        _, state = agent.predict(observations, episode_start=np.ones(2, dtype=bool))
        env.step(np.zeros((2, 2), np.float32))
        env.close()
        _, same = agent.predict(observations, state, np.zeros(2, dtype=bool), reward=np.ones(2))
        assert agent.rtg_source == "reward"
        if monitored is make_counting:
            with pytest.warns(UserWarning, match="the bound environment is closed, so the return-to-go stays") as said:
                _, same = agent.predict(observations, same, np.zeros(2, dtype=bool))
            assert len(said) == 1
            assert agent.rtg_source == "constant"
            agent.predict(observations, same, np.zeros(2, dtype=bool))  # said once


@pytest.mark.parametrize("kind", ENVS)
def test_a_bound_environment_that_is_not_played_is_noticed(kind: str) -> None:
    """As in SB3, where the training environment is bound and another one evaluated."""
    bound, played = ENVS[kind](), ENVS[kind]()
    agent = make_agent()
    agent.set_env(bound)
    seen = set()
    try:
        with pytest.warns(
            UserWarning, match=r"is still at step 0 of its episode, the agent at step 1.*agent.set_env"
        ) as said:
            evaluate_policy(
                agent,
                played,
                n_eval_episodes=3,
                callback=lambda scope, _: seen.update(scope["states"].newest_return_to_go()),
            )
        assert len([one for one in said if "bound environment" in str(one.message)]) == 1
        assert seen == {50.0}
        assert agent.rtg_source == "constant"
        agent.set_env(played)
        evaluate_policy(agent, played, n_eval_episodes=3)
        assert agent.rtg_source == "env"
    finally:
        bound.close()
        played.close()


def test_a_bound_vec_env_of_another_size_is_noticed() -> None:
    agent = make_agent()
    agent.set_env(DummyVecEnv([make_counting] * 3))
    with pytest.warns(UserWarning, match="holds 3 episodes, the observation 2"):
        evaluate_policy(agent, DummyVecEnv([make_counting] * 2), n_eval_episodes=2)
    assert agent.rtg_source == "constant"


def test_a_return_to_go_survives_the_resets_of_a_vector_env() -> None:
    """The boundary of an episode is where a bound environment and the agent could count differently."""
    outside, each = gym.wrappers.vector.RecordEpisodeStatistics, gym.wrappers.RecordEpisodeStatistics
    modes = gym.vector.AutoresetMode.NEXT_STEP, gym.vector.AutoresetMode.SAME_STEP
    for mode, inside in itertools.product(modes, (None, each, Monitor)):
        makers = [lambda n=n, w=inside or (lambda env: env): w(CountingEnv(n)) for n in (3, 5)]  # type: ignore[misc]
        envs = gym.vector.SyncVectorEnv(makers, autoreset_mode=mode)
        env = outside(envs) if inside is None else envs
        agent = make_agent()
        agent.set_env(env)
        observations, _ = env.reset(seed=0)
        state, starts, resetting = None, np.ones(2, dtype=bool), np.zeros(2, dtype=bool)
        for _ in range(30):
            actions, state = agent.predict(observations, state, starts)
            t = state.timesteps
            np.testing.assert_array_equal(state.newest_return_to_go(), 50.0 - t * (t + 1) / 2)
            observations, _, terminations, _, _ = env.step(actions)
            ended = terminations & ~resetting
            starts = ended if mode == gym.vector.AutoresetMode.SAME_STEP else resetting
            resetting = ended
        assert agent.rtg_source == "env"


def test_predict_depends_on_its_arguments_alone() -> None:
    """Asking twice about the same step gives the same answer, also where a vector environment resets late."""
    env = gym.wrappers.vector.RecordEpisodeStatistics(gym.vector.SyncVectorEnv([lambda: CountingEnv(2)] * 2))
    agent = make_agent()
    agent.set_env(env)
    observations, _ = env.reset(seed=0)
    state, starts = None, np.ones(2, dtype=bool)
    for _ in range(12):
        actions, once = agent.predict(observations, state, starts)
        again, twice = agent.predict(observations, state, starts)
        np.testing.assert_array_equal(actions, again)
        for name, first, second in zip(once._fields, once, twice, strict=True):
            np.testing.assert_array_equal(first, second, err_msg=name)
        state = once
        observations, _, terminations, truncations, _ = env.step(actions)
        starts = terminations | truncations


class Repeat(gym.Wrapper[Any, Any, Any, Any]):
    """Like SB3's AtariWrapper: a step at the start of an episode that the agent does not see, then two for each."""

    def reset(self, **options: Any) -> Any:
        self.env.reset(**options)
        return self.env.step(self.action_space.sample())[0], {}

    def step(self, action: Any) -> Any:
        total = 0.0
        for _ in range(2):
            observation, reward, terminated, truncated, info = self.env.step(action)
            total += float(reward)
            if terminated:
                break
        return observation, total, terminated, truncated, info


@pytest.mark.parametrize("keeper", [Monitor, gym.wrappers.RecordEpisodeStatistics])
def test_a_monitor_inside_a_wrapper_that_repeats_actions_is_read(keeper: Any, recwarn: Any) -> None:
    env = DummyVecEnv([lambda n=n: Repeat(keeper(CountingEnv(n))) for n in (5, 8)])  # type: ignore[misc]
    agent = make_agent()
    agent.set_env(env)
    observations, state, starts = env.reset(), None, np.ones(2, dtype=bool)
    earned = np.zeros(2)
    for _ in range(15):
        actions, state = agent.predict(observations, state, starts)
        np.testing.assert_allclose(state.newest_return_to_go(), 50.0 - earned)
        assert agent.rtg_source == "env"
        observations, rewards, starts, _ = env.step(actions)
        earned = np.where(starts, 0.0, earned + rewards)
    assert not [one for one in recwarn if "return-to-go" in str(one.message)]


@pytest.mark.parametrize("kind", ["three in a DummyVecEnv", "two in a SubprocVecEnv", "VecNormalize"])
def test_a_loop_without_episode_start_follows_the_resets_of_a_bound_vec_env(kind: str, recwarn: Any) -> None:
    env = ENVS[kind]()
    agent = make_agent()
    agent.set_env(env)
    try:
        observations, state = env.reset(), None
        for _ in range(25):
            actions, state = agent.predict(observations, state)
            now = observations[:, 0]  # the step of the episode
            np.testing.assert_array_equal(state.timesteps, now)
            np.testing.assert_allclose(state.newest_return_to_go(), 50.0 - now * (now + 1) / 2)
            assert agent.rtg_source == "env"
            observations, *_ = env.step(actions)
    finally:
        env.close()
    assert not [one for one in recwarn if "return-to-go" in str(one.message)]


def test_a_reset_that_takes_steps_begins_an_episode_without_episode_start() -> None:
    env = DummyVecEnv([lambda n=n: Repeat(Monitor(CountingEnv(n))) for n in (5, 8)])  # type: ignore[misc]
    agent = make_agent()
    agent.set_env(env)
    observations, state, ended = env.reset(), None, np.ones(2, dtype=bool)
    for _ in range(15):
        actions, state = agent.predict(observations, state)
        np.testing.assert_array_equal(state.timesteps == 0, ended)
        assert agent.rtg_source == "env"
        observations, _, ended, _ = env.step(actions)


@pytest.mark.parametrize("lengths", [(3, 8), (3, 8, 5)])
def test_a_caller_that_resets_some_environments_keeps_the_history_of_the_others(lengths: tuple[int, ...]) -> None:
    """RecordEpisodeStatistics around a VectorEnv then forgets the steps of all, also at two resets in a row."""
    made = [lambda n=n: CountingEnv(n) for n in lengths]  # type: ignore[misc]
    disabled = gym.vector.SyncVectorEnv(made, autoreset_mode=gym.vector.AutoresetMode.DISABLED)
    env = gym.wrappers.vector.RecordEpisodeStatistics(disabled)
    agent = make_agent()
    agent.set_env(env)
    observations, _ = env.reset(seed=0)
    state, starts = None, np.ones(len(lengths), dtype=bool)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        for _ in range(7):
            actions, state = agent.predict(observations, state, starts)
            np.testing.assert_array_equal(state.timesteps, observations[:, 0])
            observations, _, terminations, truncations, _ = env.step(actions)
            starts = terminations | truncations
            if starts.any():
                observations, _ = env.reset(options={"reset_mask": starts})
    (said,) = warned
    assert "around this vector environment forgets the running episodes when others are reset" in str(said.message)
    assert said.filename == __file__


def test_wrappers_inside_lose_nothing_when_some_environments_are_reset() -> None:
    made = [lambda n=n: gym.wrappers.RecordEpisodeStatistics(CountingEnv(n)) for n in (3, 8)]  # type: ignore[misc]
    env = gym.vector.SyncVectorEnv(made, autoreset_mode=gym.vector.AutoresetMode.DISABLED)
    for marks, said in ((True, []), (False, ["pass episode_start where an episode begins"])):
        agent = make_agent()
        agent.set_env(env)
        observations, _ = env.reset(seed=0)
        state, starts = None, np.ones(2, dtype=bool)
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            for _ in range(7):
                actions, state = agent.predict(observations, state, starts if marks else None)
                observations, _, terminations, truncations, _ = env.step(actions)
                starts = terminations | truncations
                if starts.any():
                    observations, _ = env.reset(options={"reset_mask": starts})
        assert [words in str(one.message) for words, one in zip(said, warned, strict=True)] == [True] * len(said)


def test_mean_and_std_as_the_readme_writes_it() -> None:
    vec_env = DummyVecEnv([make_counting])
    vec_env.seed(0)
    agent = make_agent()
    agent.set_env(vec_env)
    mean, std = evaluate_policy(agent, vec_env, n_eval_episodes=5)
    assert 28.0 <= mean <= 45.0  # episodes of 7, 8 and 9 steps return 28, 36 and 45
    assert 0.0 < std <= 8.5
    assert agent.get_env() is vec_env


def test_a_callback_of_training_says_what_measures_an_agent() -> None:
    env = DummyVecEnv([make_counting])
    agent = make_agent()
    agent.set_env(env)
    callback = EvalCallback(env, eval_freq=1, n_eval_episodes=1)
    callback.init_callback(agent)  # type: ignore[arg-type]
    with pytest.raises(AttributeError, match=r"has no 'num_timesteps'; callbacks .* evaluate_policy\(agent, env\)"):
        callback.on_step()


@pytest.mark.slow
def test_hopper_returns_are_those_of_our_own_rollout() -> None:
    """Two independent drivers of the same agent and seed: SB3's and ours."""
    from agentzoo.evaluation.rollout import run_seeded
    from agentzoo.evaluation.seeds import episode_seed

    agent = make_agent("Hopper-v5", context=20)
    env = Monitor(gym.make("Hopper-v5"))
    vec_env = DummyVecEnv([lambda: env])
    agent.set_env(vec_env)
    vec_env.seed(episode_seed(0, 0))
    returns, lengths = evaluate_policy(agent, vec_env, n_eval_episodes=1, return_episode_rewards=True)
    ours = run_seeded(agent, [gym.make("Hopper-v5")], 1)[0]
    assert lengths == [ours.length]
    np.testing.assert_allclose(returns, [ours.total_reward], rtol=1e-9, atol=1e-5)  # Monitor rounds to 6 digits
