"""The leaderboard's numbers: every method on every task, published numbers, and statistics over tasks."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from agentzoo.evaluation.method_comparison import Methods, compare_methods, method_of, task_of, unused
from agentzoo.evaluation.results import Result
from agentzoo.hub.lines import NAMES
from agentzoo.hub.paper_scores import Published, elsewhere, published_together
from agentzoo.site.entries import Entry, Zoo
from agentzoo.site.numbers import Quantity, Unit, mean_of, quantity, unit_of

COLUMNS = (
    *("task", "environment", "dataset", "method", "family", "agent", "unit", "trainings", "episodes"),
    *("value", "low", "high", "interval", "published", "published_spread", "published_source"),
)


class Task(NamedTuple):
    """One dataset and its environment."""

    name: str
    env: str
    dataset: str
    unit: Unit


class Standing(NamedTuple):
    """One method on one task. `entry`: the agent, which has a page; None for a simpler method. `seeds`: the numbers of
    its trainings."""

    method: str
    family: str
    task: Task
    entry: Entry | None
    found: Quantity | None  # None: a paper's number alone
    seeds: tuple[float, ...]
    episodes: int
    published: Published | None

    @property
    def interval(self) -> str:
        """The population of its interval."""
        if self.found is None or self.found.low is None:
            return ""
        return "training seeds" if len(self.seeds) > 1 else "episodes"

    def record(self) -> dict[str, Any]:
        """A row of the CSV and JSON files."""
        value, low, high = self.found or (None, None, None)
        paper = self.published
        cells = (
            *(self.task.name, self.task.env, self.task.dataset, self.method, self.family),
            *(self.entry.agent_id if self.entry else None, self.task.unit, len(self.seeds), self.episodes),
            *(value, low, high, self.interval or None),
            *((paper.score, paper.spread, paper.origin()) if paper else (None, None, None)),
        )
        return dict(zip(COLUMNS, cells, strict=True))


def standings(zoo: Zoo) -> list[Standing]:
    """Every method on every task, by task, best first."""
    tasks: dict[tuple[str, str], Task] = {}
    usual: dict[str, str] = {}  # the environment of a dataset; agents of it may be measured elsewhere
    owner: dict[str, str] = {}  # the dataset that a short name stands for; its other versions have their whole id
    for entry in zoo.entries:
        if entry.head is not None:
            here = usual.setdefault(entry.dataset, entry.env) == entry.env
            name = entry.task if owner.setdefault(entry.task, entry.dataset) == entry.dataset else entry.dataset
            name = name if here else f"{name} ({entry.env})"
            task = Task(name, entry.env, entry.dataset, unit_of(entry))
            if task.unit == "steps" or (entry.dataset, entry.env) not in tasks:  # one that never arrives shows no steps
                tasks[entry.dataset, entry.env] = task
    papers = published_together(entry.agent_id for entry in zoo.entries if entry.published)
    placed = [(entry, tasks.get((entry.dataset, entry.env))) for entry in zoo.entries]
    found = [_of_entry(entry, task, papers) for entry, task in placed if task is not None]
    found += [one for task in tasks.values() for one in _simpler(zoo, task)]
    found += _elsewhere(zoo, tasks.values(), papers)
    return sorted(found, key=_order)


def _order(one: Standing) -> tuple[bool, str, bool, float, str]:
    value = one.found.value if one.found else 0.0
    return (
        one.task.unit != "score",
        one.task.name,
        one.found is None,
        value if one.task.unit == "steps" else -value,
        one.method,
    )


def _of_entry(entry: Entry, task: Task, papers: Mapping[str, Published]) -> Standing:
    paper = papers.get(entry.agent_id)
    fits = paper is not None and paper.unit == task.unit
    return _standing(entry.method, entry.family, task, entry, entry.trainings, paper if fits else None)


def _standing(
    method: str, family: str, task: Task, entry: Entry | None, runs: tuple[Result, ...], paper: Published | None
) -> Standing:
    numbers = [one for one in (quantity(run, task.unit) for run in runs) if one is not None]
    seeds, episodes = tuple(one.value for one in numbers), sum(run.episodes for run in runs)
    return Standing(method, family, task, entry, mean_of(runs, task.unit), seeds, episodes, paper)


def _simpler(zoo: Zoo, task: Task) -> list[Standing]:
    """Rows of `baselines.json` and of records for a task, without methods that have a page."""
    rows = {(row.method, row.result.training_seed): row for row in zoo.baselines.datasets.get(task.dataset, ())}
    here = [entry for entry in zoo.entries if (entry.dataset, entry.env) == (task.dataset, task.env)]
    for entry in here:
        rows |= {(row.method, row.result.training_seed): row for row in entry.rows}
    paged = {entry.method for entry in here}
    methods: dict[str, list[Result]] = {}
    for entry in here:
        if entry.results is not None:
            for one in entry.results.baselines:
                name = method_of(one.agent_id, one.agent_id, task_of(task.dataset))
                known = methods.setdefault(name, []) if name not in paged and one.env == task.env else []
                if one.training_seed not in [other.training_seed for other in known]:
                    known.append(one)
    for method in {method for method, _ in rows}:
        methods.pop(method, None)  # rows of the file are newer than those in an agent's record
    for (method, _), row in rows.items():
        if row.result.env == task.env and method not in paged:
            methods.setdefault(method, []).append(row.result)
    return [_standing(name, name, task, None, tuple(runs), None) for name, runs in methods.items()]


def _elsewhere(zoo: Zoo, tasks: Iterable[Task], papers: Mapping[str, Published]) -> list[Standing]:
    """Published methods that this zoo lacks."""
    by_name = {task.name: task for task in tasks}
    found: dict[tuple[str, str], Published] = {}
    for source in {paper.source for paper in papers.values()}:
        for task, methods in elsewhere([entry.agent_id for entry in zoo.entries], source).items():
            found |= {(task, name): paper for name, paper in methods.items() if task in by_name}
    return [
        Standing(name, "", by_name[task], None, None, (), 0, paper)
        for (task, name), paper in found.items()
        if paper.unit == by_name[task].unit
    ]


def said_method(name: str) -> str:
    """A method's usual name: `TD3+BC`."""
    return NAMES[name].replace("`", "") if name in NAMES else name


def compare(found: list[Standing]) -> Methods | None:
    """Statistics over the scored tasks that most methods share; None if no two methods share a task.

    A second agent of the same method and task is a method of its own, `dt (2)`.
    """
    scores: dict[str, dict[str, tuple[float, ...]]] = {}
    for one in found:
        if one.task.unit == "score" and one.seeds:
            name = unused(one.method, [name for name, tasks in scores.items() if one.task.name in tasks])
            scores.setdefault(name, {})[one.task.name] = one.seeds
    return compare_methods(scores)


def as_csv(found: list[Standing]) -> str:
    """CSV with one row per method and task; unknown cells are empty."""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows([{k: _defused(v) for k, v in one.record().items()} for one in found])
    return text.getvalue()


def _defused(value: Any) -> Any:
    """The text, with an apostrophe before it if a spreadsheet would read it as a formula."""
    return f"'{value}" if isinstance(value, str) and value[:1] in "=+-@\t\r" else value


def as_json(found: list[Standing], comparison: Methods | None) -> str:
    """JSON with the same rows and the statistics."""
    statistics = None
    if comparison is not None:
        statistics = {
            "tasks": comparison.tasks,
            "interquartile_mean": {name: one._asdict() for name, one in comparison.means.items()},
            "runs": dict(comparison.runs),
            "probability_of_improvement": [
                {"of": first, "over": second, **one._asdict()}
                for (first, second), one in comparison.improvement.items()
            ],
            "performance_profile": {
                "thresholds": comparison.thresholds.tolist(),
                **{name: one.share.tolist() for name, one in comparison.profiles.items()},
            },
        }
    return json.dumps({"rows": [one.record() for one in found], "statistics": statistics}, indent=1) + "\n"
