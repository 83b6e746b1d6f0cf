"""Environments in other processes: what they are asked, so that none of them ends."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import closing
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from conftest import CountingEnv, doubled, make_agent
from stable_baselines3.common.vec_env import SubprocVecEnv, VecMonitor

from agentzoo.envs.comparing import other_options
from agentzoo.envs.wrapping import spec_of
from agentzoo.evaluation.results import evaluate

gym.register("tests/CountingInProcess-v0", CountingEnv)


def unsendable() -> gym.Env[Any, Any]:
    """Its spec holds a lambda, which no process can send to another one."""
    return gym.wrappers.TransformObservation(gym.make("tests/CountingInProcess-v0"), lambda obs: obs, None)


@pytest.mark.parametrize("kind", ["SubprocVecEnv", "VecMonitor", "AsyncVectorEnv", "RecordEpisodeStatistics"])
def test_binding_leaves_processes_alive_that_cannot_send_their_spec(kind: str) -> None:
    agent = make_agent()
    make: dict[str, Callable[[], Any]] = {
        "SubprocVecEnv": lambda: SubprocVecEnv([unsendable] * 2, start_method="fork"),
        "VecMonitor": lambda: VecMonitor(make["SubprocVecEnv"]()),
        "AsyncVectorEnv": lambda: gym.vector.AsyncVectorEnv([unsendable] * 2, context="fork"),
        "RecordEpisodeStatistics": lambda: gym.wrappers.vector.RecordEpisodeStatistics(make["AsyncVectorEnv"]()),
    }
    env = make[kind]()
    with closing(env):
        with pytest.warns(UserWarning, match="was trained for tests/Counting-v0; this is tests/CountingInProcess-v0"):
            agent.set_env(env)
        first = env.reset()
        assert np.shape(first if kind in ("SubprocVecEnv", "VecMonitor") else first[0]) == (2, 3)
        assert evaluate(agent, env, episodes=2).env == "tests/CountingInProcess-v0"


def doubled_cart() -> gym.Env[Any, Any]:
    return doubled(gym.make("CartPole-v1", sutton_barto_reward=True))


def test_a_spec_that_is_no_more_than_an_id_has_unknown_options() -> None:
    agent = make_agent("CartPole-v1")
    for make, options in ((doubled_cart, ["unknown"]), (lambda: doubled_cart().env, ["sutton_barto_reward"])):
        with closing(gym.vector.AsyncVectorEnv([make], context="fork")) as env:
            spec = spec_of(env)
            assert spec is not None
            assert (spec.id, other_options(spec)) == ("CartPole-v1", options)
            with warnings.catch_warnings(record=True) as said:
                warnings.simplefilter("always")
                agent.set_env(env)
            assert len(said) == (options != ["unknown"])
    with closing(gym.vector.AsyncVectorEnv([lambda: doubled(CountingEnv())], context="fork")) as env:
        assert spec_of(env) is None  # "<TransformReward<CountingEnv instance>>"
