"""Train a behaviour policy: SAC from scratch up to a threshold, with its whole replay buffer.

The finished folder holds `sac-<env>-medium.zip` (stable-baselines3's format) and `<env>-medium-replay.npz`, the two
files that `agentzoo data build` and `agentzoo data import` read. Before that it holds the newest `checkpoint-<steps>`,
from which a stopped run continues: policy, optimizers and transitions are kept, the unfinished episode is not.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import gymnasium as gym
from torch import Tensor

from agentzoo.data.images import is_image
from agentzoo.data.making.behaviour_checkpoint import (
    POLICY,
    make_folder,
    new_checkpoint,
    restore_policy,
    steps_callback,
)
from agentzoo.data.making.behaviour_record import (
    Behaviour,
    BehaviourOptions,
    Score,
    open_record,
    short_name,
    write_record,
)
from agentzoo.data.making.game_behaviour import train_on_images
from agentzoo.data.making.recorder import Recorder, fill_replay_buffer
from agentzoo.envs import make_env
from agentzoo.envs.making import explained
from agentzoo.errors import DataError, SpaceError

TRANSITIONS = "transitions.npz"


def train_behaviour(
    env_id: str,
    folder: Path,
    options: BehaviourOptions,
    on_steps: Callable[[int], None] = lambda _: None,
    on_score: Callable[[Score], None] = lambda _: None,
) -> Behaviour:
    """Train a policy until its mean return reaches the threshold; a stopped run in `folder` continues.

    The algorithm is SAC, or PPO for images (`game_behaviour`).

    A stopped run may go on with another threshold or limit of steps. SAC is not trained further if its last score
    reaches the new threshold.

    Args:
        env_id: an environment with Box observations and Box actions, or with images and Discrete actions.
        folder: receives the files named above; one folder per run.
        options: threshold, limits and seed.
        on_steps: called with the env steps done so far. on_score: called with each evaluation.

    Raises:
        SpaceError: neither algorithm supports its spaces. ConfigError: the folder holds a run with a different
            environment or other options. DataError: the files of a stopped run are broken. StorageError: no space or
            no permission.
    """
    record = open_record(folder, env_id, options)
    if record.policy is not None:
        return record
    with explained(env_id, asks_for_trust=False):
        env = make_env(env_id)
    record.options = options
    with closing(env):
        if is_image(env.observation_space):
            train_on_images(env, folder, record, on_steps, on_score)
        else:
            _train_sac(env, folder, record, on_steps, on_score)
    return record


def _train_sac(
    env: gym.Env[Any, Any],
    folder: Path,
    record: Behaviour,
    on_steps: Callable[[int], None],
    on_score: Callable[[Score], None],
) -> None:
    from stable_baselines3 import SAC
    from stable_baselines3.common.evaluation import evaluate_policy
    from stable_baselines3.common.monitor import Monitor

    env_id, options = record.env_id, record.options
    assert options is not None
    _require_boxes(env, env_id)
    make_folder(folder)
    recorder = Recorder(env, options.max_steps)
    checkpoint = folder / f"checkpoint-{record.steps}"
    model = SAC(
        "MlpPolicy",
        Monitor(recorder),
        learning_starts=options.learning_starts,
        batch_size=options.batch_size,
        buffer_size=min(options.max_steps, 1_000_000),
        seed=options.seed,
        device="cpu",
        policy_kwargs={"optimizer_kwargs": {"fused": True}},  # a tenth more steps a second on a CPU
    )
    if record.steps:
        _restore(model, checkpoint / POLICY)
        model.num_timesteps = record.steps
        record.reached = record.scores[-1].mean >= options.threshold
        recorder.restore(checkpoint / TRANSITIONS)
        fill_replay_buffer(model, recorder)
        model.set_random_seed(options.seed + record.steps)  # the state of the run's generators is not stored
    with closing(Monitor(make_env(env_id))) as judge:
        while record.steps < options.max_steps and not record.reached:
            chunk = min(options.evaluate_every, options.max_steps - record.steps)
            model.learn(chunk, reset_num_timesteps=False, callback=steps_callback(on_steps))
            record.steps = int(model.num_timesteps)
            judge.reset(seed=1_000_003 * (options.seed + 1) + record.steps)  # a seed that training does not use
            mean, std = evaluate_policy(model, judge, n_eval_episodes=options.episodes, deterministic=False)
            record.scores.append(Score(record.steps, float(mean), float(std)))
            record.reached = float(mean) >= options.threshold
            with new_checkpoint(folder, record) as made:
                model.save(made / POLICY)
                recorder.save(made / TRANSITIONS)
            on_score(record.scores[-1])
    _finish(folder, model, recorder, record)


def _restore(model: Any, path: Path) -> None:
    """Load weights, optimizers and entropy coefficient of a checkpoint into a new SAC; see `restore_policy`."""
    coefficient = restore_policy(model, path).get("log_ent_coef")
    if not isinstance(coefficient, Tensor) or coefficient.shape != model.log_ent_coef.shape:
        raise DataError(f"{path} is not a checkpoint of this run (log_ent_coef). Delete its folder to start again.")
    model.log_ent_coef.data = coefficient.data


def _require_boxes(env: gym.Env[Any, Any], env_id: str) -> None:
    for what, space in (("observations", env.observation_space), ("actions", env.action_space)):
        if not isinstance(space, gym.spaces.Box) or len(space.shape) != 1:
            raise SpaceError(f"SAC needs {what} in a one-dimensional Box; those of {env_id} are {space}.")
    if not env.action_space.is_bounded():  # type: ignore[attr-defined]
        raise SpaceError(f"SAC needs actions with bounds; those of {env_id} are {env.action_space}.")


def _finish(folder: Path, model: Any, recorder: Recorder, record: Behaviour) -> None:
    name = short_name(record.env_id)
    record.policy, record.replay = f"sac-{name}-medium.zip", f"{name}-medium-replay.npz"
    model.save(folder / record.policy)
    record.replay_episodes = recorder.save(folder / record.replay)
    write_record(folder, record)
    shutil.rmtree(folder / f"checkpoint-{record.steps}", ignore_errors=True)
