"""The record of the training of a behaviour policy, `behaviour.json`: settings, scores, and its files' names."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import NamedTuple

from pydantic import TypeAdapter

from agentzoo.data.hdf5 import readable
from agentzoo.errors import ConfigError, DataError
from agentzoo.store.files import write_atomic

RECORD = "behaviour.json"
MAX_RECORD = 16 * 1024 * 1024  # bytes


@dataclass(frozen=True)
class BehaviourOptions:
    """Settings for training a behaviour policy.

    threshold: training stops at this mean undiscounted return of sampled actions. max_steps: env steps after which it
    stops in any case. evaluate_every: env steps between evaluations and checkpoints. learning_starts: SAC's uniformly
    random actions before the first update. batch_size: transitions in each of SAC's updates. PPO has neither.
    """

    threshold: float
    max_steps: int = 1_000_000
    seed: int = 0
    evaluate_every: int = 10_000
    episodes: int = 10
    learning_starts: int = 10_000
    batch_size: int = 256  # SAC's default

    def __post_init__(self) -> None:
        for name in ("max_steps", "evaluate_every", "episodes", "batch_size"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be at least 1, got {getattr(self, name)}.")
        if self.learning_starts < 0 or self.seed < 0:
            raise ConfigError(
                f"learning_starts and seed must be at least 0, got {self.learning_starts} and {self.seed}."
            )


def require_unset(options: BehaviourOptions) -> None:
    """Raise ConfigError for a setting of SAC, which has no effect on PPO."""
    plain = BehaviourOptions(options.threshold)
    for name in ("learning_starts", "batch_size"):
        if getattr(options, name) != getattr(plain, name):
            raise ConfigError(f"{name} is a setting of SAC, and images are learned by PPO. Leave it out.")


class Score(NamedTuple):
    """One evaluation: env steps trained, mean and standard deviation of the returns."""

    steps: int
    mean: float
    std: float


@dataclass
class Behaviour:
    """Settings and progress of a run, stored in `behaviour.json` and returned by `train_behaviour`."""

    env_id: str
    seed: int
    options: BehaviourOptions | None = None  # None in files of older versions
    scores: list[Score] = field(default_factory=list)
    reached: bool = False
    steps: int = 0
    policy: str | None = None  # file name in the folder; None until the run is over
    replay: str | None = None  # likewise, of the file or folder that `agentzoo data import` reads
    replay_episodes: int = 0


def short_name(env_id: str) -> str:
    """`Hopper-v5` -> `hopper`, for file names."""
    return env_id.rsplit("/", 1)[-1].rsplit("-v", 1)[0].lower()


def open_record(folder: Path, env_id: str, options: BehaviourOptions) -> Behaviour:
    """The record of the run in `folder`, a new one if there is none.

    A stopped run may go on with another threshold and another limit of steps, which then replace those in the record.

    Raises:
        ConfigError: it is of a different environment or has other options. DataError: it cannot be read.
    """
    path = folder / RECORD
    if not path.exists():
        return Behaviour(env_id, options.seed, options)
    record = read_behaviour(path)
    there = {"env": record.env_id, "seed": record.seed, **({} if record.options is None else asdict(record.options))}
    asked = {"env": env_id, **asdict(options)}
    if record.policy is None:
        there.pop("threshold", None)
        if options.max_steps >= record.steps:
            there.pop("max_steps", None)
    changed = [f"{name} {value!r} instead of {asked[name]!r}" for name, value in there.items() if value != asked[name]]
    if changed:
        raise ConfigError(f"{folder} holds a run with {'; '.join(changed)}. Choose another --out, or delete it.")
    return record


def read_behaviour(path: Path) -> Behaviour:
    """Read the record of a run.

    Raises:
        DataError: it cannot be read.
    """
    with readable(path, "the record of a behaviour policy"):
        if path.stat().st_size > MAX_RECORD:
            raise DataError(
                f"{path} holds {path.stat().st_size:,} bytes; a record holds a few thousand. Choose another --out, or "
                "delete its folder to start again."
            )
        return TypeAdapter(Behaviour).validate_json(path.read_text(encoding="utf-8"))


def replay_origin(replay: Path) -> str | None:
    """A sentence on how a finished run recorded this replay; None if `replay` is not from a run."""
    path = replay.parent / RECORD
    if not path.is_file():
        return None
    try:
        record = read_behaviour(path)
    except DataError:
        return None
    if record.replay != replay.name or record.policy is None:
        return None
    method = record.policy.split("-")[0].upper()
    return (
        f"Every whole episode of the training of {method} from scratch on {record.env_id}, {record.steps:,} steps, "
        f"seed {record.seed}."
    )


def write_record(folder: Path, record: Behaviour) -> None:
    """Store it in its folder, atomically."""
    write_atomic(folder / RECORD, json.dumps(asdict(record), indent=1) + "\n")
