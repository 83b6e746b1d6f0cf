"""The rows of a card's tables: numbers as text, and the kind of each row. The template writes the labels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from agentzoo.evaluation.baselines import METHODS, comparable
from agentzoo.evaluation.results import Baseline, Result, Results
from agentzoo.evaluation.scores import mean_interval, over_seeds
from agentzoo.hub.paper_scores import Published

NAMES = {"bc": "`bc`, behaviour cloning", "td3+bc": "TD3+BC", "iql": "IQL", "cql": "CQL"}
Kind = Literal["own", "best", "acting", "seed", "mean", "method", "family", "published"]


class Line(NamedTuple):
    """One row. Fields are empty if the environment or the source does not report them."""

    kind: Kind
    score: str = ""
    returns: str = ""
    success: str = ""
    steps_to_goal: str = ""  # over episodes that reached the goal
    steps: str = ""  # over all episodes
    episodes: str = ""
    name: str = ""
    seed: int | None = None  # training seed
    updates: int | None = None  # if different from the agent's
    acting: str = ""
    trainings: int = 1  # it is the mean of so many
    alone: bool = False  # one training seed stands for the method


def line(kind: Kind, result: Result, **more: Any) -> Line:
    """The row of one evaluation."""
    success = "" if result.success_rate is None else f"{100 * result.success_rate:.0f} %"
    found = Line(
        kind,
        score=result.score_in_words(),
        returns=result.return_in_words(),
        success=success,
        steps_to_goal=_steps_to_goal(result),
        steps=_steps(result),
        episodes=str(result.episodes),
        seed=result.training_seed,
    )
    return found._replace(**more)


def mean_line(kind: Kind, results: Sequence[Result], **more: Any) -> Line:
    """The row of the mean over training seeds, each counted as one number."""
    scores = [one.score for one in results if one.score is not None]
    returns = [one.mean_return for one in results]
    successes = [one.success_rate for one in results if one.success_rate is not None]
    to_goal = [value for value in map(_mean_to_goal, results) if value is not None]
    found = Line(
        kind,
        score=over_seeds(scores, 1) if len(scores) == len(results) else "",
        returns=over_seeds(returns, 0 if max(map(abs, returns)) >= 100 else 2),
        success=f"{100 * np.mean(successes):.0f} %" if len(successes) == len(results) else "",
        steps_to_goal=f"{np.mean(to_goal):.0f}" if len(to_goal) == len(results) else "",
        steps=f"{np.mean([one.mean_length for one in results]):.0f}",
        episodes=str(sum(one.episodes for one in results)),
        trainings=len(results),
    )
    return found._replace(**more)


def published_line(paper: Published) -> Line:
    """The row of a paper's number."""
    found = Line("published", name=paper.source)
    return found._replace(steps=paper.text()) if paper.unit == "steps" else found._replace(score=paper.text())


def summary(results: Results, paper: Published | None) -> list[Line]:
    """The rows a reader needs first: the mean over training seeds, this agent, each baseline, the paper."""
    found = [mean_line("mean", (results.headline, *results.seeds))] if results.seeds else []
    found.append(line("own", results.headline, alone=not results.seeds))
    found += _methods(results)
    return found + ([] if paper is None else [published_line(paper)])


def all_lines(results: Results, updates: int, paper: Published | None) -> list[Line]:
    """The table of all evaluations in the records.

    Args:
        updates: number of updates of the agent's training.
    """
    head = results.headline
    found = [line("own", head, acting=head.acting if results.acting else "")]
    if best_differs(results):
        assert results.best is not None
        found.append(line("best", results.best))
    found += [line("acting", one, acting=one.acting) for one in results.acting]
    found += [line("seed", one) for one in results.seeds]
    if results.seeds:
        found.append(mean_line("mean", (head, *results.seeds)))
    for one in results.baselines:
        other = one.updates if one.updates not in (None, updates) else None
        found.append(line("family", one, name=one.agent_id, updates=other))
    found += [line("method", one.result, name=NAMES[one.method]) for one in _others(results, results.yardsticks)]
    return found + ([] if paper is None else [published_line(paper)])


def learned_elsewhere(results: Results, dataset_sha256: str | None) -> list[str]:
    """Names of the methods that learned from a different collection of the agent's dataset, whose hash is given."""
    rows = comparable(results.headline, results.yardsticks)
    found = {one.method for one in rows if dataset_sha256 and one.dataset_sha256 not in (None, dataset_sha256)}
    return [NAMES[method].split(",")[0] for method in METHODS if method in found]


def best_differs(results: Results) -> bool:
    """Whether the best checkpoint differs from the final one."""
    return results.best is not None and results.best.returns != results.headline.returns


def _methods(results: Results) -> list[Line]:
    """One row per baseline method: its only training run, or the mean over runs."""
    rows = _others(results, comparable(results.headline, results.yardsticks))
    return [_method(method, [one for one in rows if one.method == method]) for method in METHODS if _has(rows, method)]


def _others(results: Results, rows: Sequence[Baseline]) -> list[Baseline]:
    """The rows that are not of this agent's own trainings: a clone is a baseline itself."""
    own = {one.weights_sha256 for one in (results.headline, *results.seeds)} - {None}
    return [one for one in rows if one.result.weights_sha256 not in own]


def _has(rows: Sequence[Baseline], method: str) -> bool:
    return any(one.method == method for one in rows)


def _method(method: str, rows: Sequence[Baseline]) -> Line:
    if len(rows) == 1:
        return line("method", rows[0].result, name=NAMES[method], alone=True)
    return mean_line("method", [one.result for one in rows], name=NAMES[method])


def _steps(result: Result) -> str:
    """The mean episode length, with an interval if episodes end at a goal."""
    if result.success_rate is None:
        return f"{result.mean_length:.0f}"
    low, high = mean_interval(np.array(result.lengths))
    return f"{result.mean_length:.0f} [{low:.0f}, {high:.0f}]"


def _to_goal(result: Result) -> list[int]:
    """Lengths of the episodes that reached the goal."""
    flags = result.success_flags() or ()
    return [length for length, reached in zip(result.lengths, flags, strict=False) if reached]


def _mean_to_goal(result: Result) -> float | None:
    found = _to_goal(result)
    return float(np.mean(found)) if found else None


def _steps_to_goal(result: Result) -> str:
    found = _to_goal(result)
    if not found:
        return ""
    low, high = mean_interval(np.array(found))
    return f"{np.mean(found):.0f} [{low:.0f}, {high:.0f}]"
