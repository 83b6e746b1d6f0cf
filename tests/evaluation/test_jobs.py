"""An evaluation in several processes is that of one process."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from contextvars import Context
from multiprocessing import Pipe
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import psutil
import pytest
import torch
from conftest import CountingEnv, make_agent
from training.grid_cases import wait_for
from typer.testing import CliRunner

from agentzoo.agent import Agent
from agentzoo.cli import app
from agentzoo.errors import ConfigError, EvaluationError, ObservationError
from agentzoo.evaluation.jobs import _play, rollout_in_jobs
from agentzoo.evaluation.results import evaluate
from agentzoo.evaluation.rollout import EpisodeResult, rollout

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only a forked process knows the environments here")
ENV = "tests/Counting-v0"
POLE = "CartPole-v1"  # the lengths of its episodes say which actions were taken


@pytest.mark.parametrize(("episodes", "n_envs", "jobs"), [(7, 4, 2), (5, 20, 2), (1, 1, 2), (6, 3, 3)])
def test_episodes_and_results_are_those_of_one_process(episodes: int, n_envs: int, jobs: int) -> None:
    agent, ended = make_agent(POLE), []
    alone = rollout(agent, POLE, episodes, seed=1, n_envs=n_envs)
    shared = rollout_in_jobs(agent, POLE, episodes, jobs, seed=1, n_envs=n_envs, on_episode=ended.append)
    assert shared == alone
    assert sorted(one.seed for one in ended) == [one.seed for one in alone]


def test_the_record_is_the_same_but_for_time() -> None:
    agent = make_agent()
    fields = {"steps_per_second", "command"}
    one, two = (evaluate(agent, episodes=6, jobs=jobs).model_dump(exclude=fields) for jobs in (1, 2))
    assert one == two
    assert one["rtg_source"] == "reward"


def test_a_frozen_agent_is_shared_too() -> None:
    pytest.importorskip("onnxruntime")
    agent = make_agent(POLE)
    alone = rollout(agent, POLE, 4)
    agent.freeze("onnx")
    assert [one.length for one in rollout_in_jobs(agent, POLE, 4, 2)] == [one.length for one in alone]


def test_a_process_trusts_the_options_that_its_parent_trusts() -> None:
    """A spawned one does not know the context of the command line, as in an empty one here."""
    data = pickle.dumps(make_agent(env_options={"length": 3}))
    for trusted, kind in ((False, ConfigError), (True, EpisodeResult)):
        own, other = Pipe(duplex=False)
        Context().run(_play, data, ENV, range(1), 1, 0, False, trusted, other)
        assert isinstance(own.recv(), kind)


def test_what_jobs_cannot_do_is_refused() -> None:
    agent = make_agent()
    for changes in ({"env": gym.make(ENV)}, {"deterministic": False}):
        with pytest.raises(ConfigError, match="several jobs need an environment named by its id and deterministic"):
            evaluate(agent, episodes=2, jobs=2, **changes)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="jobs is a whole number from 1 on, got 0"):
        rollout_in_jobs(agent, ENV, 2, 0)
    with pytest.raises(ConfigError, match="episodes is a whole number from 1 on, got 0"):
        evaluate(agent, episodes=0, jobs=2)
    agent.condition(target_return=[1.0, 2.0])
    with pytest.raises(ConfigError, match="a target or goal for each environment"):
        rollout_in_jobs(agent, ENV, 2, 2)


class Failing(CountingEnv):
    """Ends its process, or returns what is no reward, in one episode."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how = how

    def step(self, action: Any) -> Any:
        if self.how == "dies" and self.now == 3:
            os._exit(1)
        if self.how == "raises" and self.now == 3:
            raise ZeroDivisionError("in the environment")
        observation, reward, *rest = super().step(action)
        return observation, np.nan if self.how == "nan" else reward, *rest


@pytest.mark.parametrize(
    ("how", "error", "said"),
    [
        ("dies", EvaluationError, "a process of the evaluation ended early, killed or out of memory"),
        ("raises", EvaluationError, "a job of the evaluation failed with ZeroDivisionError: in the environment"),
        ("nan", ObservationError, "reward of environment 0 is not finite"),
    ],
)
def test_a_job_that_fails_ends_the_evaluation(how: str, error: type[Exception], said: str) -> None:
    gym.register("tests/Failing-v0", entry_point=Failing, kwargs={"how": how})
    try:
        with pytest.raises(error, match=said):
            rollout_in_jobs(make_agent(), "tests/Failing-v0", 4, 2)
    finally:
        del gym.registry["tests/Failing-v0"]


def test_a_killed_evaluation_leaves_no_process_behind() -> None:
    words = ["evaluate", "zoo/dt-cartpole-mixed", "-n", "4000", "--jobs", "2"]
    command = subprocess.Popen([sys.executable, "-m", "agentzoo", *words], stderr=subprocess.DEVNULL)
    try:
        parent = psutil.Process(command.pid)
        wait_for(lambda: len(parent.children()) == 2)
        jobs = parent.children()
    finally:
        command.kill()
        command.wait()
    wait_for(lambda: not any(job.is_running() for job in jobs), 10)


def test_threads_of_the_caller_stay_and_its_agent_too() -> None:
    agent: Agent = make_agent()
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        wanted = agent.predict(np.ones(3, np.float32))[0]
        rollout_in_jobs(agent, ENV, 2, 2)
        assert torch.get_num_threads() == 2
        np.testing.assert_array_equal(agent.predict(np.ones(3, np.float32))[0], wanted)
    finally:
        torch.set_num_threads(before)


def test_jobs_load_the_agent_on_the_cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also on a machine with a GPU, where an agent is usually loaded there."""
    folder = make_agent().save_pretrained(tmp_path / "agent")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert evaluate(folder, episodes=2, n_envs=2, jobs=2).episodes == 2
    done = CliRunner().invoke(app, ["evaluate", str(folder), "-n", "2", "--jobs", "2"])
    assert done.exit_code == 0, done.output
