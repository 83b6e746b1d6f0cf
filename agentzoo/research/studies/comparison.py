"""Trainings side by side: the settings each changes, the score of its final weights, and published scores.

The first training in an environment is the reference of the others there: an ablation's full network, a family's plain
form. A recipe's score is the mean over its training seeds; a single seed is marked.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from agentzoo.errors import ConfigError, DataError
from agentzoo.evaluation.results import Result
from agentzoo.evaluation.scores import mean_interval, over_seeds
from agentzoo.evaluation.statistics import Converged, convergence_in
from agentzoo.evaluation.study import MAX_CELL, MAX_NOTE, Study, cell
from agentzoo.hub.finished_runs import trainings
from agentzoo.hub.paper_scores import Published, elsewhere, published_together
from agentzoo.plots import new_figure, save_figure
from agentzoo.recipe import Recipe
from agentzoo.recipe import differences as differing_fields
from agentzoo.record import read_record
from agentzoo.store.files import RECIPE
from agentzoo.store.named import require_finished
from agentzoo.text import duration, fixed
from agentzoo.training.log import read_log

PICTURE = "comparison.png"
SOON = (
    " Within 2 points of its end: updates and time until a short evaluation first is that close, by the logs at hand; "
    "a staged agent holds the log of one seed."
)


class RecipeResults(NamedTuple):
    """All training seeds of one recipe."""

    recipe: Recipe
    results: tuple[Result, ...]
    converged: tuple[Converged, ...] = ()  # of the trainings whose logs say it

    @property
    def env(self) -> str:
        """The environment id."""
        return self.results[0].env

    @property
    def normalized(self) -> bool:
        """Whether its returns can be normalized."""
        return all(one.score is not None and one.score_interval is not None for one in self.results)

    @property
    def agent_id(self) -> str:
        """The agent id of all seeds."""
        return self.recipe.agent_id

    def scores(self) -> list[tuple[float, float, float]]:
        """(mean, low, high) of each seed: normalized if there is a reference, else returns; see `_of_episodes`."""
        if self.normalized:
            return [
                _of_episodes(one, one.score, one.score_interval)
                for one in self.results
                if one.score is not None and one.score_interval
            ]
        return self.returns()

    def returns(self) -> list[tuple[float, float, float]]:
        """(mean, low, high) return of each seed."""
        return [_of_episodes(one, one.mean_return, one.return_interval) for one in self.results]

    def lengths(self) -> list[tuple[float, float, float]]:
        """(mean, low, high) steps of an episode of each seed."""
        return [
            _of_episodes(one, float(np.mean(one.lengths)), mean_interval(np.array(one.lengths))) for one in self.results
        ]


def _of_episodes(one: Result, mean: float, interval: tuple[float, float]) -> tuple[float, float, float]:
    """(mean, low, high); low and high are NaN for a single episode, whose interval would have no width."""
    return (mean, *interval) if one.episodes > 1 else (mean, math.nan, math.nan)


def compare(
    runs: Sequence[Path],
    episodes: int,
    on_progress: Callable[[str], None] = lambda _: None,
    trust_env_module: bool = False,
) -> list[RecipeResults]:
    """Evaluate finished runs, or take their records. Runs whose recipes differ only in the seed are seeds of one.

    A staged agent includes its other training seeds. Runs of one environment are grouped, in the given order.

    Args:
        runs: folders of finished runs, or of staged agents, whose records are taken.
        on_progress: called with a line on each step.
        trust_env_module: import the module an environment id names.

    Raises:
        CheckpointError: a folder holds neither a finished run nor a staged agent with a valid record. DataError: two
            have the same recipe and seed, or seeds of one recipe were measured in different environments.
    """
    found: list[tuple[list[Recipe], list[Result], list[Converged]]] = []
    seen: list[tuple[Recipe, Path]] = []
    for run in runs:
        require_finished(run)
        recipe = read_record(Recipe, run / RECIPE)
        require_new(recipe, run, seen)
        group = next((each for each in found if all(_are_seeds(one, recipe) for one in each[0])), None)
        if group is None:
            found.append(group := ([], [], []))
        recipes, results, converged = group
        recipes.append(recipe)
        results += trainings(run, episodes, on_progress, trust_env_module)
        soon = convergence_in(read_log(run))
        converged += [] if soon is None else [soon]
    for (recipe, *_), results, _ in found:
        require_distinct(recipe.agent_id, results)
        envs = sorted({one.env for one in results})
        if len(envs) > 1:
            raise DataError(f"seeds of {recipe.agent_id} were measured in different environments: {', '.join(envs)}.")
    compared = [RecipeResults(recipes[0], tuple(results), tuple(soon)) for recipes, results, soon in found]
    return [each for group in by_environment(compared).values() for each in group]


def _are_seeds(first: Recipe, other: Recipe) -> bool:
    """Whether two recipes differ in nothing but the training seed."""
    return not differing_fields(first.unseeded(), other.unseeded())


def require_new(recipe: Recipe, run: Path, seen: list[tuple[Recipe, Path]]) -> None:
    """Raise DataError if a run of this recipe and seed is in `seen`; else add it.

    A run and the agent that was staged from it would count as two seeds.
    """
    for other, folder in seen:
        if not differing_fields(other, recipe):
            raise DataError(f"{folder} and {run} have the same recipe and training seed; name only one of them.")
    seen.append((recipe, run))


def require_distinct(agent_id: str, results: Sequence[Result]) -> None:
    """Raise DataError if two results are of one training seed."""
    seeds = [one.training_seed for one in results if one.training_seed is not None]
    if twice := [seed for seed in seeds if seeds.count(seed) > 1]:
        raise DataError(
            f"training seed {twice[0]} of {agent_id} occurs twice; a staged agent includes its other seeds."
        )


def by_environment(compared: Sequence[RecipeResults]) -> dict[str, list[RecipeResults]]:
    """Environment id -> recipes of that environment."""
    groups: dict[str, list[RecipeResults]] = {}
    for each in compared:
        groups.setdefault(each.env, []).append(each)
    return groups


def differences(first: Recipe, other: Recipe) -> str:
    """`all_differences`, cut to the length of a table's cell."""
    return cell(all_differences(first, other))


def all_differences(first: Recipe, other: Recipe) -> str:
    """The settings that `other` changes, as `--set` options; for another family only its name."""
    changed = differing_fields(first, other)
    parts = [
        other.model.title or str(new) if name == "model.family" else f"{name}={_short(new)}"
        for name, (_, new) in changed.items()
        if name not in ("agent_id", "train.seed")
    ]
    return ", ".join(parts)


def _short(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def as_study(compared: Sequence[RecipeResults], title: str, picture: str | None = PICTURE, finding: str = "") -> Study:
    """The table for a card, without empty columns, and without the environment if all share one.

    Args:
        finding: the result in words; the note begins with it.

    Raises:
        ConfigError: the finding is too long for a note.
    """
    papers = published_together(each.agent_id for each in compared)
    groups = by_environment(compared)
    table = []
    for each in compared:
        paper = papers.get(each.agent_id)
        succeeded = [one.success_rate for one in each.results if one.success_rate is not None]
        figures, alone = over_trainings(each.scores()), len(each.results) == 1
        table.append(
            {
                "agent": each.agent_id,
                "environment": each.env if len(groups) > 1 else "",
                "differs in": differences(groups[each.env][0].recipe, each.recipe) or "—",
                "normalized score": figures if each.normalized else "",
                "return": "" if each.normalized else figures,
                "each seed": "" if alone else several(each.scores()),
                "length": over_trainings(each.lengths(), marked=False),
                "success": ", ".join(f"{100 * rate:.0f} %" for rate in succeeded),
                "within 2 points of its end": soon_in_words(each.converged, len(each.results)),
                "published": "" if paper is None else paper.text(),
            }
        )
    columns = [name for name in table[0] if any(row[name] for row in table)]
    rows = [tuple(cell(row[name]) for name in columns) for row in table]
    note = (
        f"{_episodes_of(compared)} of each with its final weights; brackets hold 95 % bootstrap intervals: of a mean ± "
        "standard deviation over training seeds, of a single seed over its episodes."
    )
    if any(each.converged for each in compared):
        note += SOON
    if any(paper.unit == "steps" for paper in papers.values()):
        note += " Where papers count steps, length is the steps to the goal; a failed episode counts all its steps."
    if papers:
        sources = dict.fromkeys(paper.source for paper in papers.values())
        remarks: dict[str, list[str]] = {}
        for name, paper in papers.items():
            remarks.setdefault(paper.remark, []).append(name)
        notes = [f", {', '.join(names)} {remark}" for remark, names in remarks.items() if remark]
        note += (
            f" Published: {'; '.join(sources)}{''.join(notes)}; means and spreads over seeds of 100,000 updates on "
            "other data."
        )
        others = elsewhere(papers, next(iter(sources))) if len(sources) == 1 else {}
        for task, methods in others.items():
            named = " and ".join(f"{name} {one.text()}" for name, one in methods.items())
            note += f" Also there, for {task}: {named}."
    if finding and len(finding) + 1 + len(note) > MAX_NOTE:
        room = max(0, MAX_NOTE - 1 - len(note))
        raise ConfigError(f"the finding has {len(finding)} characters; the note has room for {room}.")
    note = f"{finding} {note}".strip()
    return Study(title=cell(title), columns=tuple(columns), rows=tuple(rows), picture=picture, note=note[:MAX_NOTE])


def _episodes_of(compared: Sequence[RecipeResults]) -> str:
    found = sorted({one.episodes for each in compared for one in each.results})
    return f"{' or '.join(map(str, found))} episode{'' if found == [1] else 's'}"


def digits_for(largest: float) -> int:
    """Decimals of a column of scores, returns or lengths."""
    return 2 if largest < 10 else 1 if largest < 1_000 else 0


def several(figures: Sequence[tuple[float, float, float]]) -> str:
    """(mean, low, high) of each seed as one cell, without brackets where low and high are NaN."""
    digits = digits_for(max(abs(middle) for middle, _, _ in figures))
    means = [fixed(middle, digits) for middle, _, _ in figures]
    brackets = [
        "" if math.isnan(low) else f" [{fixed(low, digits)}, {fixed(high, digits)}]" for _, low, high in figures
    ]
    whole = "; ".join(mean + bracket for mean, bracket in zip(means, brackets, strict=True))
    return whole if len(whole) <= MAX_CELL else "; ".join(means)


def over_trainings(figures: Sequence[tuple[float, float, float]], marked: bool = True) -> str:
    """(mean, low, high) of each training seed as mean, deviation and interval in words; a single seed is marked."""
    if len(figures) == 1:
        return several(figures) + (", one seed" if marked else "")
    means = [middle for middle, _, _ in figures]
    return over_seeds(means, digits_for(max(map(abs, means))))


def soon_in_words(found: Sequence[Converged], seeds: int) -> str:
    """`12,500 updates, 14 minutes`: the mean over trainings, with the range of updates where they differ.

    Args:
        seeds: the number of trainings, also of those whose log is not at hand.
    """
    if not found:
        return ""
    updates = [one.updates for one in found]
    spread = f" ({min(updates):,} to {max(updates):,})" if min(updates) < max(updates) else ""
    time = duration(float(np.mean([one.seconds for one in found])))
    return f"{np.mean(updates):,.0f} updates{spread}, {time}{from_some(len(found), seeds)}"


def from_some(known: int, seeds: int) -> str:
    """`, from 1 of 3 seeds` if only `known` of the `seeds` have the number; otherwise empty."""
    return f", from {known} of {seeds} seeds" if known < seeds else ""


def _labels(compared: Sequence[RecipeResults]) -> list[str]:
    """Agent ids; for several recipes with one id, the later ones list their changes."""
    first: dict[str, Recipe] = {}
    labels = []
    for each in compared:
        changes = differences(first.setdefault(each.agent_id, each.recipe), each.recipe)
        labels.append(f"{each.agent_id}\n{changes[:60]}" if changes else each.agent_id)
    return labels


def draw_comparison(compared: Sequence[RecipeResults], path: Path) -> Path:
    """Scores with their intervals, a dot for each seed, a diamond for the mean of several, and a cross for a paper's.

    Crosses are where a paper prints one in the same unit.

    Each environment has its own panel. Where papers count the steps to a goal, the picture does too.
    """
    papers = published_together(each.agent_id for each in compared)
    groups = by_environment(compared)
    heights = [0.5 + 0.45 * len(group) for group in groups.values()]
    figure = new_figure(7.0, 0.4 + sum(heights), dpi=120)
    panels: Any = figure.subplots(len(groups), squeeze=False, height_ratios=heights)
    for axes, (env, group) in zip(panels[:, 0], groups.items(), strict=True):
        _draw_panel(axes, group, papers)
        if len(groups) > 1:
            axes.set_title(env, fontsize=9, loc="left")
    return save_figure(figure, path)


def _draw_panel(axes: Any, compared: Sequence[RecipeResults], papers: Mapping[str, Published]) -> None:
    counts_steps = any(each.agent_id in papers and papers[each.agent_id].unit == "steps" for each in compared)
    normalized = all(each.normalized for each in compared)  # one axis has one unit
    shown = False  # any published number
    for place, each in enumerate(compared):
        dots = each.lengths() if counts_steps else each.scores() if normalized else each.returns()
        for i, (middle, low, high) in enumerate(dots):
            height = place + 0.18 * (i - (len(dots) - 1) / 2)
            error = [[max(middle - low, 0.0)], [max(high - middle, 0.0)]]  # below 0 by rounding
            axes.errorbar(middle, height, xerr=error, fmt="o", color="C0", capsize=3)
        if len(dots) > 1:
            means = np.array([middle for middle, _, _ in dots])
            low, high = mean_interval(means)
            error = [[max(means.mean() - low, 0.0)], [max(high - means.mean(), 0.0)]]
            axes.errorbar(means.mean(), place + 0.3, xerr=error, fmt="D", color="black", markersize=4, capsize=3)
        paper = papers.get(each.agent_id)
        if paper is not None and (paper.unit == "steps" or normalized):
            axes.plot(paper.score, place, "x", color="C3")
            shown = True
    axes.set_yticks(range(len(compared)), _labels(compared), fontsize=8)
    axes.set_ylim(len(compared) - 0.5, -0.5)
    axes.grid(axis="x", alpha=0.3)
    score = "normalized score" if normalized else "return"
    unit = "steps to the goal (a failure counts all it had), less is better" if counts_steps else score
    crossed = " (cross: published)" if shown else ""
    axes.set_xlabel(f"{unit}, 95 % interval{crossed}", fontsize=8)
