"""Hyperparameter search for one recipe: trials are runs of a grid's engine; optuna draws them and stops poor ones.

A trial's value is its last short evaluation, on validation seeds that final evaluations never use. Every trial draws
its values from its own seed, so a search that is stopped and started again draws the same values.
"""

from __future__ import annotations

import importlib.util
import json
import re
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from agentzoo.errors import ConfigError
from agentzoo.recipe import Recipe
from agentzoo.record import parsed_setting
from agentzoo.store.files import write_atomic
from agentzoo.training.grid.drive import Engine
from agentzoo.training.grid.tasks import Job, Outcome, RunOptions, Task, fail, read_failure
from agentzoo.training.log import read_log
from agentzoo.training.settle import claim

JOURNAL = "search.journal"  # optuna's storage
RESULTS = "search-results.json"
JUDGING = ("eval.env", "eval.env_options", "eval.reference", "eval.every", "eval.every_episodes")
_NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
_RANGE = re.compile(rf"({_NUMBER})\.\.({_NUMBER})(:log)?")


class Range(NamedTuple):
    """Numbers from `low` to `high`, both included; whole numbers if both are. `log`: uniform in the logarithm."""

    low: float
    high: float
    log: bool


Space = Mapping[str, Range | tuple[Any, ...]]  # field -> a range, or choices


class TrialResult(NamedTuple):
    """One trial. `value` is its last short evaluation, None before the first; `error` why it failed."""

    number: int
    folder: str
    state: str  # optuna's: running, complete, pruned or fail
    settings: dict[str, Any]
    updates: int
    value: float | None
    error: str = ""


def parse_space(texts: Iterable[str]) -> dict[str, Range | tuple[Any, ...]]:
    """`train.lr=1e-5..1e-3:log` is a range, `model.n_layers=1,2,3` are choices.

    Raises:
        ConfigError: another form, a field named twice, or no field.
    """
    space: dict[str, Range | tuple[Any, ...]] = {}
    for text in texts:
        field, found, values = (part.strip() for part in text.partition("="))
        if not found or not values or field in space:
            raise ConfigError(
                f"--space takes each field once, as FIELD=LOW..HIGH, FIELD=LOW..HIGH:log or FIELD=A,B,C; got {text!r}."
            )
        match = _RANGE.fullmatch(values)
        if match is None:
            space[field] = tuple(_value(part.strip()) for part in values.split(","))
            continue
        low, high = (int(part) if re.fullmatch(r"[-+]?\d+", part) else float(part) for part in match.groups()[:2])
        if low >= high or (match[3] and low <= 0):
            raise ConfigError(f"--space {text!r}: the first number must be below the second, and above 0 with :log.")
        space[field] = Range(low, high, bool(match[3]))
    if not space:
        raise ConfigError("a search needs at least one --space FIELD=LOW..HIGH or FIELD=A,B,C.")
    return space


def check_search(recipe: Recipe, space: Space) -> None:
    """Raise ConfigError unless the recipe trains a new network, evaluates it during training and accepts the ends and
    choices of the space, and all trials are evaluated alike."""
    if recipe.base is not None:
        raise ConfigError(
            f"{recipe.agent_id} fine-tunes {recipe.base!r}, but a search trains new networks only. Search the recipe "
            "of a new network."
        )
    if not recipe.eval.every:
        raise ConfigError("a search compares short evaluations, but eval.every=0 makes none; use --set eval.every=N.")
    for field, values in space.items():
        if field in JUDGING:
            raise ConfigError(f"trials are compared by their short evaluations, so all have one {field}; use --set.")
        ends = values[:2] if isinstance(values, Range) else values
        for value in ends:
            recipe.override([_setting(field, value)])


def search(
    recipe: Recipe,
    space: Space,
    out: Path,
    engine: Engine,
    job: Job,
    *,
    trials: int,
    pruner: Literal["halving", "none"] = "halving",
    seed: int = 0,
    options: RunOptions | None = None,
    on_change: Callable[[list[TrialResult]], None] = lambda _: None,
) -> list[TrialResult]:
    """Run trials until there are `trials` of them; a search in `out` is continued.

    A trial whose values do not fit together fails, as one whose training fails. Failed trials do not count: the same
    search, started again, runs as many new ones.

    Args:
        pruner: `halving` stops a trial that is not in the best third of the trials with as many updates. It does so at
            the first evaluation and after 3, 9, ... times as many updates (asynchronous successive halving).
        seed: the seed of the drawn values; `train.seed` is the recipe's.
        on_change: called with all trials, about twice a second.

    Returns:
        All trials in the order of their numbers.

    Raises:
        ConfigError, TrainingError, StorageError: no optuna, or `out` holds another search, or other runs.
    """
    optuna = _import_optuna()
    study = _study(optuna, recipe, space, out, pruner, seed)
    active, states = dict[Path, Any](), optuna.trial.TrialState
    left = [_begun(optuna, study, each, space, seed) for each in study.get_trials(states=(states.RUNNING,))]
    most = trials + len(study.get_trials(states=(states.FAIL,)))
    with engine:
        while True:
            while engine.free() > 0 and (left or len(study.get_trials(deepcopy=False)) < most):
                trial = left.pop(0) if left else _ask(optuna, study, space, seed)
                task = _task(recipe, trial, out, options or RunOptions())
                if task is None:
                    study.tell(trial, state=states.FAIL)
                else:
                    engine.start(job, task)
                    active[task.folder] = trial
            if not active:
                if not left and len(study.get_trials(deepcopy=False)) >= most:
                    break
                time.sleep(0.5)  # a cluster without room
            for outcome in engine.ended(0.5):
                _tell(optuna, study, active.pop(outcome.folder), outcome)
            for folder, trial in list(active.items()):
                if _report(study, trial, folder)[1]:
                    engine.stop(folder)
                    del active[folder]
                    study.tell(trial, state=states.PRUNED)
            on_change(_results(study, out))
    found = _results(study, out)
    write_atomic(out / RESULTS, json.dumps([one._asdict() for one in found], indent=2) + "\n")
    return found


def best(found: Sequence[TrialResult]) -> TrialResult | None:
    """The finished trial with the highest value; None without one."""
    finished = [one for one in found if one.state == "complete" and one.value is not None]
    return max(finished, key=lambda one: one.value or 0.0, default=None)


def as_settings(one: TrialResult) -> list[str]:
    """The `--set` options that repeat this trial."""
    return [_setting(field, value) for field, value in one.settings.items()]


def _task(recipe: Recipe, trial: Any, out: Path, options: RunOptions) -> Task | None:
    """The run of a trial; None, with the reason in its folder, if its values do not fit together."""
    folder = (out / _name(trial.number)).resolve()
    try:
        asked = recipe.override(_setting(field, value) for field, value in trial.params.items())
    except ConfigError as error:
        fail(folder, str(error))
        return None
    claim(folder, asked)
    return Task(folder, asked.to_json(), options=options)


def _study(optuna: Any, recipe: Recipe, space: Space, out: Path, pruner: str, seed: int) -> Any:
    out.mkdir(parents=True, exist_ok=True)
    backend = optuna.storages.journal.JournalFileBackend(str(out / JOURNAL))
    storage = optuna.storages.JournalStorage(backend)
    others = [name for name in optuna.get_all_study_names(storage) if name != recipe.agent_id]
    if others:
        raise ConfigError(f"{out} holds a search for {others[0]}, not for {recipe.agent_id}. Choose another --out.")
    halving = optuna.pruners.SuccessiveHalvingPruner(min_resource=recipe.eval.every, reduction_factor=3)
    study = optuna.create_study(
        study_name=recipe.agent_id,
        storage=storage,
        direction="maximize",
        pruner=halving if pruner == "halving" else optuna.pruners.NopPruner(),
        load_if_exists=True,
    )
    asked = {"recipe": json.loads(recipe.to_json()), "space": {k: list(v) for k, v in space.items()}, "pruner": pruner}
    asked = json.loads(json.dumps({**asked, "seed": seed}))
    changed = [name for name, value in asked.items() if study.user_attrs.get(name, value) != value]
    if changed:
        raise ConfigError(f"{out} holds a search with another {' and '.join(changed)}. Choose another --out.")
    for name, value in asked.items():
        study.set_user_attr(name, value)
    return study


def _ask(optuna: Any, study: Any, space: Space, seed: int, number: int | None = None) -> Any:
    """A new trial with the values of trial `number`, by default its own."""
    number = len(study.get_trials(deepcopy=False)) if number is None else number
    study.sampler = optuna.samplers.RandomSampler(seed=(seed * 1_000_003 + number) % 2**32)
    return study.ask({field: _distribution(optuna, values) for field, values in space.items()})


def _begun(optuna: Any, study: Any, stored: Any, space: Space, seed: int) -> Any:
    """A trial of an interrupted search. optuna stores its values one by one; those that are missing are drawn again."""
    missing = space.keys() - stored.params.keys()
    if missing:
        twin = _ask(optuna, optuna.create_study(), space, seed, stored.number)
        for field in missing:
            kind = twin.distributions[field]
            study._storage.set_trial_param(stored._trial_id, field, kind.to_internal_repr(twin.params[field]), kind)
    return optuna.trial.Trial(study, stored._trial_id)


def _distribution(optuna: Any, values: Range | tuple[Any, ...]) -> Any:
    if not isinstance(values, Range):
        return optuna.distributions.CategoricalDistribution(values)
    whole = isinstance(values.low, int) and isinstance(values.high, int)
    kind = optuna.distributions.IntDistribution if whole else optuna.distributions.FloatDistribution
    return kind(values.low, values.high, log=values.log)


def _report(study: Any, trial: Any, folder: Path) -> tuple[float | None, bool]:
    """Report new short evaluations to optuna; returns the last one, and whether one of the new ones is too poor.

    Optuna is asked after each: only then it keeps the value for a comparison with later trials.
    """
    known = study._storage.get_trial(trial._trial_id).intermediate_values
    value, poor = None, False
    for row in read_log(folder):
        if row.get("eval_return"):
            value = float(row["eval_return"])
            if int(row["step"]) not in known:
                trial.report(value, int(row["step"]))
                poor |= trial.should_prune()
    return value, poor


def _tell(optuna: Any, study: Any, trial: Any, outcome: Outcome) -> None:
    value, _ = _report(study, trial, outcome.folder)
    if outcome.state == "done" and value is not None:
        study.tell(trial, value)
    else:
        if read_failure(outcome.folder) is None:
            fail(outcome.folder, outcome.said or "it made no short evaluation")
        study.tell(trial, state=optuna.trial.TrialState.FAIL)


def _results(study: Any, out: Path) -> list[TrialResult]:
    found = []
    for each in study.get_trials(deepcopy=False):
        steps = each.intermediate_values
        last = max(steps, default=0)
        name = _name(each.number)
        failure = read_failure(out / name) if each.state.name == "FAIL" else None
        state, error = each.state.name.lower(), "" if failure is None else failure.error
        found.append(TrialResult(each.number, name, state, dict(each.params), last, steps.get(last), error))
    return found


def _name(number: int) -> str:
    return f"trial-{number:04}"


def _setting(field: str, value: Any) -> str:
    return f"{field}={json.dumps(value)}"


def _value(text: str) -> Any:
    found = parsed_setting(text)
    return found if found is None or isinstance(found, str | int | float | bool) else text


def _import_optuna() -> Any:
    if importlib.util.find_spec("optuna") is None:
        raise ConfigError("a search needs optuna: pip install 'agentzoo[search]'.")
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)
    return optuna
