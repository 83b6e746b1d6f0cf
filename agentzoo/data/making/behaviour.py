"""A behaviour policy from scratch: SAC trained until it is good enough, with everything it saw on the way.

The folder ends up with `sac-<env>-medium.zip` (stable-baselines3's own format) and `<env>-medium-replay.npz`, the two
files `agentzoo data build` and `agentzoo data import` read. Until then it holds the newest `checkpoint-<steps>`, from
which a stopped run goes on: policy, optimizers and transitions are kept, the episode that was under way is not.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym
from pydantic import TypeAdapter

from agentzoo.data.hdf5 import readable
from agentzoo.data.making.recorder import Recorder, fill_replay_buffer
from agentzoo.envs import make_env
from agentzoo.envs.making import explained
from agentzoo.errors import ConfigError, DataError, SpaceError
from agentzoo.store.files import write_atomic

RECORD = "behaviour.json"
MOST_RECORD = 16 * 1024 * 1024  # bytes
POLICY, TRANSITIONS = "policy.zip", "transitions.npz"


@dataclass(frozen=True)
class BehaviourOptions:
    """How a behaviour policy is trained.

    threshold: mean undiscounted return, actions sampled, at which training stops. max_steps: env steps after which it
    stops anyway. learning_starts: uniformly random actions before the first update. Everything else is SAC's default.
    """

    threshold: float
    max_steps: int = 1_000_000
    seed: int = 0
    evaluate_every: int = 10_000
    episodes: int = 10
    learning_starts: int = 10_000

    def __post_init__(self) -> None:
        for name in ("max_steps", "evaluate_every", "episodes"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be at least 1, got {getattr(self, name)}.")
        if self.learning_starts < 0 or self.seed < 0:
            raise ConfigError(f"learning_starts and seed start at 0, got {self.learning_starts} and {self.seed}.")


class Score(NamedTuple):
    """One evaluation: env steps trained, mean and standard deviation of the returns."""

    steps: int
    mean: float
    std: float


@dataclass
class Behaviour:
    """Settings and course of a run: kept in `behaviour.json`, and what `train_behaviour` returns."""

    env_id: str
    seed: int
    options: BehaviourOptions | None = None  # None in files of before they were kept
    scores: list[Score] = field(default_factory=list)
    reached: bool = False
    steps: int = 0
    policy: str | None = None  # file names in the folder, once the run is over
    replay: str | None = None
    replay_episodes: int = 0


def short_name(env_id: str) -> str:
    """`Hopper-v5` -> `hopper`: the word in the names of the files."""
    return env_id.rsplit("/", 1)[-1].rsplit("-v", 1)[0].lower()


def train_behaviour(
    env_id: str,
    folder: Path,
    options: BehaviourOptions,
    on_steps: Callable[[int], None] = lambda _: None,
    on_score: Callable[[Score], None] = lambda _: None,
) -> Behaviour:
    """Train SAC on `env_id` until its mean return reaches the threshold, or go on with the run in `folder`.

    Args:
        env_id: an environment with Box observations and Box actions.
        folder: gets the files named above; one run each.
        options: threshold, limits and seed.
        on_steps: called with the env steps done so far. on_score: called with each evaluation.

    Raises:
        SpaceError: SAC cannot act there. ConfigError: the folder holds a run with another environment or other options.
        DataError: what it holds of a stopped run is broken.
    """
    from stable_baselines3 import SAC
    from stable_baselines3.common.evaluation import evaluate_policy
    from stable_baselines3.common.monitor import Monitor

    folder.mkdir(parents=True, exist_ok=True)
    record = _read_record(folder, env_id, options)
    if record.policy is not None:
        return record
    with explained(env_id):
        env = make_env(env_id)
    recorder = Recorder(env, options.max_steps)
    _require_boxes(recorder, env_id)
    checkpoint = folder / f"checkpoint-{record.steps}"
    model = SAC(
        "MlpPolicy",
        Monitor(recorder),
        learning_starts=options.learning_starts,
        buffer_size=min(options.max_steps, 1_000_000),
        seed=options.seed,
        device="cpu",
    )
    if record.steps:
        _restore(model, checkpoint / POLICY)
        model.num_timesteps = record.steps
        recorder.restore(checkpoint / TRANSITIONS)
        fill_replay_buffer(model, recorder)
        model.set_random_seed(options.seed + record.steps)  # the run's own generators are not kept
    judge = Monitor(make_env(env_id))
    while record.steps < options.max_steps and not record.reached:
        chunk = min(options.evaluate_every, options.max_steps - record.steps)
        model.learn(chunk, reset_num_timesteps=False, callback=_reporting(on_steps))
        record.steps = int(model.num_timesteps)
        judge.reset(seed=1_000_003 * (options.seed + 1) + record.steps)  # never a seed the policy trained on
        mean, std = evaluate_policy(model, judge, n_eval_episodes=options.episodes, deterministic=False)
        record.scores.append(Score(record.steps, float(mean), float(std)))
        record.reached = float(mean) >= options.threshold
        _save_checkpoint(folder, model, recorder, record)
        on_score(record.scores[-1])
    _finish(folder, model, recorder, record)
    return record


def _restore(model: Any, path: Path) -> None:
    """Give a fresh SAC the weights, optimizers and entropy coefficient of a checkpoint.

    Only tensors are read. stable-baselines3's own `load` also unpickles the archive's settings, which runs what it
    says: a folder may have been changed since, or come from somebody else.

    Raises:
        DataError: it is no checkpoint of this network.
    """
    from stable_baselines3.common.save_util import load_from_zip_file

    try:
        _, parameters, variables = load_from_zip_file(path, load_data=False, device="cpu")
        if set(parameters) != set(model.get_parameters()) or variables is None:
            raise ValueError(f"it holds {', '.join(sorted(parameters)) or 'nothing'}")
        model.set_parameters(parameters)
        coefficient = variables["log_ent_coef"]
        if coefficient.shape != model.log_ent_coef.shape:
            raise ValueError(f"its log_ent_coef has shape {tuple(coefficient.shape)}")
        model.log_ent_coef.data = coefficient.data
    except Exception as error:  # the library raises whatever zip files and pickles make of it
        said = " ".join(str(error).split())[:200]
        raise DataError(f"{path} is no checkpoint of this run ({said}). Delete its folder to start again.") from None


def _reporting(on_steps: Callable[[int], None]) -> Callable[[dict[str, Any], dict[str, Any]], bool]:
    def callback(local: dict[str, Any], _: dict[str, Any]) -> bool:
        on_steps(int(local["self"].num_timesteps))
        return True

    return callback


def _require_boxes(env: gym.Env[Any, Any], env_id: str) -> None:
    for what, space in (("observations", env.observation_space), ("actions", env.action_space)):
        if not isinstance(space, gym.spaces.Box) or len(space.shape) != 1:
            raise SpaceError(f"SAC needs {what} in a one-dimensional Box; those of {env_id} are {space}.")
    if not env.action_space.is_bounded():  # type: ignore[attr-defined]
        raise SpaceError(f"SAC needs actions with bounds; those of {env_id} are {env.action_space}.")


def _read_record(folder: Path, env_id: str, options: BehaviourOptions) -> Behaviour:
    path = folder / RECORD
    if not path.exists():
        return Behaviour(env_id, options.seed, options)
    record = read_behaviour(path)
    there = {"env": record.env_id, "seed": record.seed, **({} if record.options is None else asdict(record.options))}
    asked = {"env": env_id, **asdict(options)}
    changed = [
        f"{name} {value!r} there, {asked[name]!r} asked" for name, value in there.items() if value != asked[name]
    ]
    if changed:
        raise ConfigError(f"{folder} holds a run with {'; '.join(changed)}. Choose another --out, or delete it.")
    return record


def read_behaviour(path: Path) -> Behaviour:
    """The record of a run.

    Raises:
        DataError: it cannot be used.
    """
    with readable(path, "the record of a behaviour policy"):
        if path.stat().st_size > MOST_RECORD:
            raise DataError(f"{path} holds {path.stat().st_size:,} bytes; a record holds a few thousand.")
        return TypeAdapter(Behaviour).validate_json(path.read_text(encoding="utf-8"))


def _write_record(folder: Path, record: Behaviour) -> None:
    write_atomic(folder / RECORD, json.dumps(asdict(record), indent=1) + "\n")


def _save_checkpoint(folder: Path, model: Any, recorder: Recorder, record: Behaviour) -> None:
    """Write a new checkpoint beside the old one, name it in the record, then drop the old one."""
    made = folder / f"checkpoint-{record.steps}"
    shutil.rmtree(made, ignore_errors=True)
    made.mkdir()
    model.save(made / POLICY)
    recorder.save(made / TRANSITIONS)
    _write_record(folder, record)
    for old in folder.glob("checkpoint-*"):
        if old != made:
            shutil.rmtree(old, ignore_errors=True)


def _finish(folder: Path, model: Any, recorder: Recorder, record: Behaviour) -> None:
    name = short_name(record.env_id)
    record.policy, record.replay = f"sac-{name}-medium.zip", f"{name}-medium-replay.npz"
    model.save(folder / record.policy)
    record.replay_episodes = recorder.save(folder / record.replay)
    _write_record(folder, record)
    shutil.rmtree(folder / f"checkpoint-{record.steps}", ignore_errors=True)
