"""Building datasets: the same bytes for the same seed, whole or not at all, and true to the environment."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium as gym
import minari
import numpy as np
import pytest
from conftest import ClosingEnv, CountingEnv
from stable_baselines3 import SAC

from agentzoo.data.episodes import Episodes
from agentzoo.data.making.build import build, replay_ends
from agentzoo.data.making.catalogue import DATASETS, find_recipe
from agentzoo.data.making.collect import BLOCK, Rollout, collect, only_last, reset_seed
from agentzoo.data.making.dataset_recipe import BuildOptions
from agentzoo.data.making.policies import PolicyFile, load_policy
from agentzoo.data.making.runners import PolicyRunner
from agentzoo.data.minari import dataset_metadata, load_episodes, read_built, write_dataset
from agentzoo.envs import make_env
from agentzoo.errors import DataError
from agentzoo.store.files import sha256
from data.cases import HOPPER, one_step


def digest(root: Path, dataset_id: str) -> str:
    """SHA-256 of all files of the dataset, by name."""
    found = hashlib.sha256()
    for file in sorted((root / dataset_id).rglob("*")):
        if file.is_file():
            found.update(str(file.relative_to(root)).encode() + file.read_bytes())
    return found.hexdigest()


@pytest.mark.slow
def test_bytes_depend_on_the_seed_and_not_on_the_number_of_workers(
    sources: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    digests = []
    for i, (workers, seed) in enumerate(((1, 0), (2, 0), (1, 1))):
        monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / str(i)))
        build("hopper/medium", BuildOptions(sources, trust_policies=True, steps=1_000, seed=seed, workers=workers))
        digests.append(digest(tmp_path / str(i), HOPPER))
    assert digests[0] == digests[1]
    assert digests[0] != digests[2]


def test_a_dataset_is_the_first_whole_episodes_that_reach_the_steps(root: Path, sources: Path) -> None:
    steps_reported: list[int] = []
    build("hopper/medium", BuildOptions(sources, trust_policies=True, steps=300, on_steps=steps_reported.append))
    dataset = minari.load_dataset(HOPPER)
    assert dataset.total_steps == sum(steps_reported) >= 300 > sum(steps_reported[:-1])
    assert dataset.total_episodes == len(steps_reported)
    metadata = dataset.storage.metadata
    assert metadata["author"] == {"agentzoo"}
    assert (metadata["ref_min_score"], metadata["ref_max_score"]) == (-20.272305, 3234.3)
    assert metadata["build_command"] == "agentzoo data build hopper/medium --steps 300 --seed 0"
    assert dataset.env_spec.id == "Hopper-v5"
    returns = [float(episode.rewards.sum()) for episode in dataset.iterate_episodes()]
    assert metadata["return_mean"] == pytest.approx(np.mean(returns))
    assert metadata["return_max"] == pytest.approx(max(returns))


@pytest.mark.parametrize(
    "name", ["hopper/medium", "doorkey/train-50", "maze2d-dense/medium-heldout", "pointmaze/umaze"]
)
def test_first_and_last_transitions_replay_from_the_recorded_seed(name: str, root: Path, sources: Path) -> None:
    """Read back through minari and played again here, apart from the check that `build` makes itself."""
    recipe = DATASETS[name]
    if name.startswith("maze2d"):  # 100 episodes of 200 steps would take long
        rollouts = collect(recipe_runner(recipe.env_id), 400, 0, 1)
        write_dataset(recipe.dataset_id, rollouts, env=make_env(recipe.env_id))
    else:
        build(name, BuildOptions(sources, trust_policies=True, steps=None if recipe.steps is None else 200))
    dataset = minari.load_dataset(recipe.dataset_id)
    env = dataset.recover_environment()
    for index in (0, dataset.total_episodes - 1):
        episode = dataset[index]
        (record,) = dataset.storage.get_episode_metadata([index])
        obs, _ = env.reset(seed=int(record["seed"]))
        assert_same(obs, episode.observations, 0)
        for step, action in enumerate(episode.actions):
            obs, reward, terminated, truncated, _ = env.step(action)
            assert_same(obs, episode.observations, step + 1)
            assert reward == episode.rewards[step]
            assert terminated == episode.terminations[step]
            assert truncated == episode.truncations[step]
        assert terminated or truncated


def recipe_runner(env_id: str) -> Any:
    from agentzoo.data.making.runners import ControllerRunner
    from agentzoo.data.making.waypoints import WaypointController

    return ControllerRunner(env_id, WaypointController)


def assert_same(obs: Any, recorded: Any, step: int) -> None:
    if isinstance(obs, dict):
        for key, value in obs.items():
            assert_same(value, recorded[key], step)
    else:
        np.testing.assert_array_equal(obs, recorded[step])


def test_a_fallen_hopper_is_terminated_and_one_at_the_limit_truncated(sources: Path) -> None:
    policy = PolicyFile(str(sources / "sac-hopper-medium.zip"))
    fallen = PolicyRunner("Hopper-v5", policy)(0, 0, 4)
    assert all(one.terminations[-1] and not one.truncations[-1] and len(one) < 1000 for one in fallen)
    # an environment that never calls a hopper unhealthy runs to its limit
    calm = PolicyRunner("Hopper-v5", policy, options=(("terminate_when_unhealthy", False),))(0, 0, 1)[0]
    assert (len(calm), bool(calm.terminations[-1]), bool(calm.truncations[-1])) == (1000, False, True)
    for one in (*fallen, calm):
        assert not (one.terminations[:-1] | one.truncations[:-1]).any()
        assert len(one.observations) == len(one) + 1


def test_a_block_s_episodes_do_not_depend_on_its_neighbours(sources: Path) -> None:
    runner = PolicyRunner("Hopper-v5", PolicyFile(str(sources / "sac-hopper-medium.zip")))
    first, second = runner(3, 0, 2), runner(3, BLOCK, 2)
    again = runner(3, BLOCK, 2)
    assert [one.seed for one in second] == [reset_seed(3, BLOCK), reset_seed(3, BLOCK + 1)]
    for one, other in zip(second, again, strict=True):
        np.testing.assert_array_equal(one.observations, other.observations)
    assert not np.array_equal(first[0].observations[0], second[0].observations[0])


def test_each_episode_of_a_block_has_noise_of_its_own_and_actions_fill_the_environment_s_bounds(
    tmp_path: Path,
) -> None:
    """Pendulum's torque is within +-2; what the actions say of the noise is a standard normal."""
    path, env = tmp_path / "sac-pendulum.zip", gym.make("Pendulum-v1")
    SAC("MlpPolicy", env, buffer_size=10, seed=0, policy_kwargs={"net_arch": [16]}).save(path)
    policy, draws = load_policy(PolicyFile(str(path)), env), []
    for one in PolicyRunner("Pendulum-v1", PolicyFile(str(path)))(0, 0, 2):
        mean, std = policy.distribution(one.observations[:-1])
        draws.append((np.arctanh(one.actions / 2.0) - mean) / std)
    assert not np.allclose(*draws, atol=0.1)
    assert np.std(draws) == pytest.approx(1.0, abs=0.15)  # of 400: four standard errors


BUILD = """
import sys
from pathlib import Path
from agentzoo.store.files import sha256
from agentzoo.data.making.build import build
from agentzoo.data.making.dataset_recipe import BuildOptions
options = BuildOptions(Path(sys.argv[1]), steps=1500, trust_policies=True, on_steps=lambda n: print(n, flush=True))
build("hopper/medium", options)
"""


@pytest.mark.slow
def test_a_killed_build_leaves_nothing_and_the_next_one_starts_cleanly(root: Path, sources: Path) -> None:
    command = [sys.executable, "-c", BUILD, str(sources)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    for wait in (1, 12):  # right after the first episode is written, and well into the set
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
        assert process.stdout is not None
        for _ in range(wait):
            assert process.stdout.readline().strip().isdigit()
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        assert not (root / HOPPER).exists()
        assert minari.list_local_datasets() == {}
        assert list(root.glob(".building-*")) != []
    build("hopper/medium", BuildOptions(sources, trust_policies=True, steps=1500))
    assert list(root.glob(".building-*")) == []
    assert minari.load_dataset(HOPPER).total_steps >= 1500
    alone = digest(root, HOPPER)
    build("hopper/medium", BuildOptions(sources, trust_policies=True, steps=1500), overwrite=True)
    assert digest(root, HOPPER) == alone


def test_a_dataset_that_disagrees_with_the_environment_does_not_appear(root: Path) -> None:
    with pytest.raises(DataError, match="the replayed environment"):
        write_dataset(HOPPER, [one_step()], check=replay_ends, env=gym.make("Hopper-v5"))
    assert not (root / HOPPER).exists()
    assert list(root.glob(".building-*")) == []


def test_a_replay_closes_its_environment_also_where_it_differs(root: Path) -> None:
    env = gym.make("tests/Closing-v0")
    first, _ = env.reset(seed=0)
    action = np.zeros(2, np.float32)
    then, reward, *_ = env.step(action)
    for earned in (float(reward), 9.0):
        ended = only_last(1, False), only_last(1, True)  # the environment's own limit is later
        one = Rollout(0, np.stack([first, then]), action[None], np.array([earned]), *ended)
        with pytest.raises(DataError, match="truncation" if earned == reward else "reward"):
            write_dataset("my/closing-v0", [one], check=replay_ends, env=env)
    assert len(ClosingEnv.open) == 1
    env.close()


def test_discrete_actions_of_shape_l_1_are_read_as_l(root: Path) -> None:
    """Some tools write them so, although a Discrete action has no dimension."""
    column = Rollout(
        0, np.zeros((4, 4), np.float32), np.array([[0], [1], [1]]), np.ones(3), only_last(3, True), only_last(3, False)
    )
    with gym.make("CartPole-v1") as env:
        write_dataset("tests/column-v0", [column], env=env)
    found = load_episodes("tests/column-v0")
    assert found.actions.tolist() == [0, 1, 1]


def written_and_read(*terminated: bool) -> Episodes:
    """One episode a flag, which ends by termination or else truncation, with actions of `Discrete(4, start=2)`."""
    actions = np.array([2, 5, 3])
    rollouts = [
        Rollout(0, np.zeros((4, 3), np.float32), actions, np.ones(3), only_last(3, flag), only_last(3, not flag))
        for flag in terminated
    ]
    env = CountingEnv(discrete=True)
    spaces = {"observation_space": env.observation_space, "action_space": env.action_space}
    write_dataset("tests/counted-v0", rollouts, **spaces)
    return load_episodes("tests/counted-v0")


def test_discrete_actions_are_counted_from_0(root: Path) -> None:
    assert written_and_read(True, False).actions.tolist() == [0, 3, 1] * 2


def test_an_episode_that_was_truncated_did_not_terminate(root: Path) -> None:
    assert written_and_read(True, False).terminated.tolist() == [True, False]


def test_medium_expert_is_both_sets_whether_or_not_they_are_built(root: Path, sources: Path) -> None:
    mixed = "zoo/hopper/medium-expert-v0"
    build("hopper/medium-expert", BuildOptions(sources, trust_policies=True, steps=100))
    made = digest(root, mixed)
    build("hopper/medium", BuildOptions(sources, trust_policies=True, steps=100))
    build("hopper/medium-expert", BuildOptions(sources, trust_policies=True, steps=100), overwrite=True)
    assert digest(root, mixed) == made
    medium, both = minari.load_dataset(HOPPER), minari.load_dataset(mixed)
    assert both.total_steps >= medium.total_steps + 100
    for index in range(medium.total_episodes):
        np.testing.assert_array_equal(both[index].actions, medium[index].actions)
    build("hopper/expert", BuildOptions(sources, trust_policies=True, steps=100))
    steps_reported: list[int] = []
    # both are there, so that no policy is needed any more
    build(
        "hopper/medium-expert",
        BuildOptions(root, steps=100, on_steps=steps_reported.append),
        overwrite=True,
    )
    assert digest(root, mixed) == made
    assert sum(steps_reported) == both.total_steps
    assert find_recipe("hopper/medium-expert").planned(100) == 200 <= sum(steps_reported)
    assert read_built(HOPPER, 0, 100) is not None
    assert read_built(HOPPER, 1, 100) is None  # another seed
    assert read_built(HOPPER, 0, 100_000) is None  # another size


def test_a_dataset_names_the_files_it_was_made_of(root: Path, sources: Path) -> None:
    def made_of(dataset_id: str) -> list[str]:
        return list(dataset_metadata(dataset_id)["source_sha256"])

    lines = [f"{sha256(sources / name)}  {name}" for name in ("sac-hopper-medium.zip", "tqc-hopper-expert.zip")]
    build("hopper/medium", BuildOptions(sources, trust_policies=True, steps=100))
    assert made_of(HOPPER) == lines[:1]
    build("hopper/medium-expert", BuildOptions(sources, trust_policies=True, steps=100))  # one half built, one not
    assert made_of("zoo/hopper/medium-expert-v0") == sorted(lines)
    build("doorkey/train-50", BuildOptions())
    assert "source_sha256" not in dataset_metadata("zoo/doorkey/train-50-v0")


def test_doorkey_sets_are_beginnings_of_one_sequence(root: Path) -> None:
    build("doorkey/train-50", BuildOptions())
    dataset = minari.load_dataset("zoo/doorkey/train-50-v0")
    assert (dataset.total_episodes, dataset.total_steps) == (50, 500)
    first = next(iter(DATASETS["doorkey/train-500"].episodes(BuildOptions())))
    np.testing.assert_array_equal(dataset[0].observations["agent"], first.observations["agent"])
    heldout = next(iter(DATASETS["doorkey/heldout"].episodes(BuildOptions())))
    assert heldout.seed == 1000
    assert json.loads((root / "zoo/doorkey/train-50-v0/data/metadata.json").read_text())["build_seed"] == 0
