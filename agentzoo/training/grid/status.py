"""The status of a grid's runs, from their files, for the live table and `agentzoo grid status`."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from statistics import median
from typing import Literal, NamedTuple

from agentzoo.errors import AgentzooError
from agentzoo.recipe import Recipe
from agentzoo.record import read_record
from agentzoo.store.files import LOG, RECIPE, RESULT
from agentzoo.store.locate import staged_agents
from agentzoo.store.named import is_finished
from agentzoo.training.grid.plan import Plan, Row
from agentzoo.training.grid.tasks import GRID_LOCK, read_failure
from agentzoo.training.lock import holder
from agentzoo.training.log import read_log

RECENT = 20  # rows of a log that give a run's speed

State = Literal["waiting", "running", "evaluating", "stopped", "failed", "done"]


class RunStatus(NamedTuple):
    """A run's status. `step` counts logged updates; `score` and `mean_return` are of the last short evaluation."""

    folder: str
    agent_id: str
    seed: int
    state: State
    step: int
    steps: int
    steps_per_second: float | None  # None before the first logged updates
    seconds: float  # of training so far
    seconds_left: float | None
    loss: float | None
    score: float | None  # normalized; None without an evaluation, or where the environment has no references
    mean_return: float | None
    error: str


def grid_status(out: Path, plan: Plan, running: Collection[Path] | None = None) -> list[RunStatus]:
    """All runs of a grid in the order of the plan.

    Args:
        running: folders of running tasks; by default those that a process of this machine has locked.
    """
    if running is not None:
        running = {folder.resolve() for folder in running}
    return [run_status((out / row.folder).resolve(), row, plan.evaluate, running) for row in plan.rows]


def run_status(folder: Path, row: Row, evaluate: int = 0, running: Collection[Path] | None = None) -> RunStatus:
    """The status of one run."""
    recipe = row.recipe
    log = _log(folder)
    last, rate = log.last, log.rate
    steps, step = recipe.train.steps, int(last.get("step") or 0)
    state, error = _state(folder, evaluate, running, step)
    left = None
    if state in ("done", "evaluating"):
        left = 0.0
    elif rate:
        left = (steps - step) / rate
    return RunStatus(
        folder=row.folder,
        agent_id=recipe.agent_id,
        seed=recipe.train.seed,
        state=state,
        step=step,
        steps=steps,
        steps_per_second=rate,
        seconds=float(last.get("seconds") or 0.0),
        seconds_left=left,
        loss=float(last["loss"]) if last.get("loss") else None,
        score=log.score,
        mean_return=log.mean_return,
        error=error,
    )


def is_done(folder: Path, evaluate: int = 0) -> bool:
    """Whether a run is trained and, if `evaluate` is above 0, evaluated on at least as many episodes."""
    if not is_finished(folder):
        return False
    if not evaluate:
        return True
    try:
        return int(json.loads((folder / RESULT).read_text())["episodes"]) >= evaluate
    except (OSError, ValueError, TypeError, KeyError):
        return False


def _state(folder: Path, evaluate: int, running: Collection[Path] | None, step: int) -> tuple[State, str]:
    trained = is_done(folder)
    locked = holder(folder, GRID_LOCK) or holder(folder)
    if (folder in running) if running is not None else locked:
        return ("evaluating" if trained else "running"), ""
    if is_done(folder, evaluate):
        return "done", ""
    failure = read_failure(folder)
    if failure is not None:
        return "failed", failure.error
    return ("stopped" if step or trained else "waiting"), ""


def estimated_seconds(out: Path, plan: Plan) -> dict[str, float | None]:
    """Folder -> seconds of training that are left, by the speed of the run itself, of another run of the same agent in
    this grid's folder, or of the staged agent; None if no speed is known.
    """
    known: dict[str, float | None] = {}
    found: dict[str, float | None] = {}
    for row in plan.rows:
        status = run_status(out / row.folder, row, running=())
        agent_id = row.recipe.agent_id
        if agent_id not in known:
            known[agent_id] = _known_rate(out, plan, agent_id)
        rate = status.steps_per_second or known[agent_id]
        left = status.seconds_left
        if left is None and rate:
            left = (status.steps - status.step) / rate
        found[row.folder] = left
    return found


def _known_rate(out: Path, plan: Plan, agent_id: str) -> float | None:
    folders = [out / row.folder for row in plan.rows if row.recipe.agent_id == agent_id]
    folders += [one for one in sorted(out.glob(f"{agent_id}-*")) if _trains(one, agent_id)]
    staged = staged_agents().get(agent_id)
    for folder in [*folders, *([staged] if staged else [])]:
        rate = _log(folder).rate
        if rate:
            return rate
    return None


def _trains(folder: Path, agent_id: str) -> bool:
    """Whether the folder holds a run of this agent; dt-hopper-medium-expert-s0 is none of dt-hopper-medium."""
    try:
        return read_record(Recipe, folder / RECIPE).agent_id == agent_id
    except (AgentzooError, OSError):
        return False


class _Log(NamedTuple):
    """The last row of a log, the newest updates per second and the last short evaluation."""

    last: Mapping[str, str]
    rate: float | None
    score: float | None
    mean_return: float | None


def _log(folder: Path) -> _Log:
    try:
        found = (folder / LOG).stat()
        return _read(folder, found.st_mtime_ns, found.st_size)
    except (AgentzooError, OSError):
        return _Log({}, None, None, None)


@lru_cache(maxsize=4096)
def _read(folder: Path, time: int, size: int) -> _Log:
    """Read a log, cached by its time and size: a live table reads every log twice a second."""
    rows = read_log(folder)
    rates = _rates(rows)
    newest = next((each for each in reversed(rows) if each.get("eval_return")), {})
    score, returned = (float(newest[name]) if newest.get(name) else None for name in ("eval_score", "eval_return"))
    return _Log(rows[-1] if rows else {}, median(rates) if rates else None, score, returned)


def _rates(log: Sequence[dict[str, str]]) -> list[float]:
    """The newest steps per second in a log."""
    found = []
    for row in log[-RECENT:]:
        try:
            rate = float(row.get("steps_per_s") or 0.0)
        except ValueError:
            continue
        if rate > 0.0:
            found.append(rate)
    return found
