"""Does pre-training help? Learning curves of agents and their twins from scratch, and updates to 90 % of the score.

Runs with the same agent id in their recipe are seeds and must not differ otherwise. Curves are the short evaluations of
a training; final scores are those of finished runs, on more episodes. Updates are counted to the first short evaluation
that reaches 90 % of the seed's own final score.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from agentzoo.errors import DataError
from agentzoo.evaluation.results import Result
from agentzoo.evaluation.scores import over_seeds
from agentzoo.evaluation.study import Study, cell, filled
from agentzoo.hub.finished_runs import trainings
from agentzoo.plots import new_figure, save_figure
from agentzoo.recipe import Recipe
from agentzoo.record import read_record
from agentzoo.research.studies.comparison import (
    RecipeResults,
    differences,
    digits_for,
    from_some,
    require_distinct,
    require_new,
    several,
)
from agentzoo.store.files import RECIPE
from agentzoo.store.named import is_finished
from agentzoo.training import log

PICTURE = "curves.png"
SHARE_OF_FINAL = 0.9
PANELS_ABREAST = 3
TITLE = "With and without language"  # of a study with pairs
TWIN = "-scratch"
WEIGHTS_ONLY = "-no-language"  # pre-trained weights without language losses


class Curve(NamedTuple):
    """All runs of one agent id."""

    recipe: Recipe  # of the first seed
    points: tuple[dict[int, float], ...]  # of each seed: update -> score, or return unless `normalized`
    finals: tuple[Result, ...]  # of the finished seeds
    normalized: bool  # whether all numbers are scores; else all are returns
    other_seeds: tuple[Result, ...] = ()  # without a curve: the other training seeds in records of staged agents

    @property
    def agent_id(self) -> str:
        """The agent id of all seeds."""
        return self.recipe.agent_id

    @property
    def results(self) -> tuple[Result, ...]:
        """Of all training seeds that were measured."""
        return (*self.finals, *self.other_seeds)

    @property
    def seeds(self) -> int:
        """The number of runs."""
        return len(self.points)

    @property
    def steps(self) -> NDArray[np.int64]:
        """(P,) updates at which all seeds were evaluated."""
        return np.array(sorted(set.intersection(*map(set, self.points))), dtype=np.int64)

    @property
    def scores(self) -> NDArray[np.float64]:
        """(seeds, P) at `steps`."""
        return np.array([[points[step] for step in self.steps] for points in self.points])

    def final(self) -> NDArray[np.float64]:
        """(seeds,) scores of long evaluations, or of the last short ones if a run is unfinished."""
        if len(self.finals) < self.seeds:
            return np.asarray(self.scores[:, -1])
        return np.array([middle for middle, _, _ in self._intervals(self.finals)])

    def updates_to_90_percent(self) -> list[int]:
        """Updates until a short evaluation reaches 90 % of `final`, for each seed where one does."""
        found = []
        for points, final in zip(self.points, self.final(), strict=True):
            found += sorted(step for step, score in points.items() if score >= SHARE_OF_FINAL * final > 0)[:1]
        return found

    def updates_in_words(self) -> str:
        """`updates_to_90_percent` in words: mean and range over the seeds with a curve, and how many never reach it."""
        return self._updates_of_curves() + from_some(self.seeds, self.seeds + len(self.other_seeds))

    def _updates_of_curves(self) -> str:
        found = self.updates_to_90_percent()
        never = self.seeds - len(found)
        if (self.final() <= 0.0).all():
            return "no score above 0"  # 90 % of it has no meaning
        if not found:
            return "never"
        spread = f" ({min(found):,} to {max(found):,})" if min(found) < max(found) else ""
        return f"{np.mean(found):,.0f}{spread}{f', never in {never} of {self.seeds}' if never else ''}"

    def each_seed(self) -> str:
        """Every seed's final score with its interval over episodes, also of seeds without a curve."""
        if len(self.finals) == self.seeds:
            return several(self._intervals(self.results))
        last = self.scores[:, -1]
        digits = digits_for(float(np.abs(last).max()))
        return cell("unfinished, short evaluations: " + "; ".join(f"{score:.{digits}f}" for score in last))

    def over_seeds(self) -> str:
        """Mean, standard deviation and 95 % interval over finished seeds; a single seed is marked."""
        if self.seeds + len(self.other_seeds) < 2:
            return "one seed"
        if len(self.finals) < self.seeds:
            return ""
        each = [middle for middle, _, _ in self._intervals(self.results)]
        return over_seeds(each, digits_for(max(map(abs, each))))

    def _intervals(self, results: tuple[Result, ...]) -> list[tuple[float, float, float]]:
        """(mean, low, high) of each: scores if the curve has scores, else returns."""
        compared = RecipeResults(self.recipe, results)
        return compared.scores() if self.normalized else compared.returns()


def read_curves(
    runs: Sequence[Path],
    episodes: int,
    on_progress: Callable[[str], None] = lambda _: None,
    trust_env_module: bool = False,
) -> list[Curve]:
    """The curves of runs, by agent id; finished runs without a record are evaluated.

    Args:
        runs: folders of trainings or of staged agents, whose headline is their final score.
        episodes: the episodes of a new evaluation.
        on_progress: called with a line on each step.
        trust_env_module: import the module an environment id names.

    Raises:
        CheckpointError: a folder is not a run. DataError: a run has no evaluation, seeds were evaluated at different
            steps, or runs of one agent id differ in more than the seed, or have the same seed. The seeds in the record
            of a staged agent count, too.
    """
    first: dict[str, Recipe] = {}
    seen: list[tuple[Recipe, Path]] = []
    found: dict[str, list[tuple[list[dict[str, str]], tuple[Result, ...]]]] = {}
    for run in runs:
        recipe = read_record(Recipe, run / RECIPE)
        require_new(recipe, run, seen)
        changes = differences(first.setdefault(recipe.agent_id, recipe), recipe)
        if changes:
            raise DataError(
                f"{run} is not a seed of {recipe.agent_id}: it differs in {changes}. Give it another agent id with "
                "--set agent_id=..., or compare both with `agentzoo research compare`."
            )
        rows = [row for row in log.read_log(run) if row.get("eval_return")]
        if not rows:
            every = recipe.eval.every
            what = f"its first comes at update {every:,}" if every else "train with eval.every above 0"
            raise DataError(f"{run} has no evaluation in its log; {what}.")
        results = trainings(run, episodes, on_progress, trust_env_module) if is_finished(run) else ()
        found.setdefault(recipe.agent_id, []).append((rows, results))
    curves = []
    for agent_id, seeds in found.items():
        finals = tuple(results[0] for _, results in seeds if results)
        others = tuple(result for _, results in seeds for result in results[1:])
        require_distinct(agent_id, (*finals, *others))
        normalized = RecipeResults(first[agent_id], (*finals, *others)).normalized
        normalized = normalized and all(row.get("eval_score") for rows, _ in seeds for row in rows)
        column = "eval_score" if normalized else "eval_return"
        points = tuple({int(row["step"]): float(row[column]) for row in rows} for rows, _ in seeds)
        curve = Curve(first[agent_id], points, finals, normalized, others)
        unfinished = len(finals) < len(seeds)  # finished seeds may have stopped early
        if not len(curve.steps) or (unfinished and any(len(points) > len(curve.steps) for points in curve.points)):
            raise DataError(f"the runs of {agent_id} were evaluated at different steps; finish them first.")
        curves.append(curve)
    return curves


def pairs_of(curves: Sequence[Curve]) -> list[tuple[Curve, Curve]]:
    """Agents with their twins from scratch; `*-no-language` has the same twin."""
    named = {curve.agent_id: curve for curve in curves}
    twins = {name: name.removesuffix(WEIGHTS_ONLY) + TWIN for name in named}
    return [(named[name], named[twin]) for name, twin in twins.items() if twin in named]


def as_study(curves: Sequence[Curve], picture: str | None) -> Study:
    """The table of all agents, and the differences of each pair."""
    rows = []
    for curve in sorted(curves, key=lambda c: c.agent_id):
        rows.append((curve.agent_id, curve.over_seeds(), curve.each_seed(), curve.updates_in_words()))
    paired = pairs_of(curves)
    what_differs = [
        f"{one.agent_id} differs from {twin.agent_id} in {differences(twin.recipe, one.recipe)}."
        for one, twin in paired
    ]
    return Study(
        title=TITLE if paired else "Learning curves",
        columns=(
            "agent",
            "mean ± std [95 %] over seeds",
            "final score of each seed",
            f"updates to {SHARE_OF_FINAL:.0%} of it",
        ),
        rows=tuple(rows),
        picture=picture,
        note=filled(_how_measured(curves), what_differs),
    )


def _how_measured(curves: Sequence[Curve]) -> str:
    episodes = sorted({result.episodes for curve in curves for result in curve.results})
    finals = f"{' or '.join(map(str, episodes))} episodes with the final weights of each seed, " if episodes else ""
    return (
        f"{finals}brackets hold 95 % bootstrap intervals: of one seed over its episodes, of several over the seeds "
        "(three seeds give ten different resamples). Updates are counted up to the first short evaluation that is good "
        "enough, mean and range over the seeds whose logs are at hand: a staged agent holds the log of one. They are "
        "only as exact as the interval between evaluations, and noise makes them too low."
    )


def draw_curves(curves: Sequence[Curve], path: Path) -> Path:
    """Plot a panel per agent with a twin, and one per environment for all others; bands are ranges over seeds."""
    pairs = [(one.agent_id, [one, twin]) for one, twin in pairs_of(curves)]
    paired = {curve.agent_id for _, both in pairs for curve in both}
    others: dict[tuple[str, bool], list[Curve]] = {}  # one axis has one unit
    for curve in curves:
        if curve.agent_id not in paired:
            others.setdefault((curve.recipe.eval.env, curve.normalized), []).append(curve)
    named = not pairs or len(others) > 1
    panels = [*pairs, *((env if named else "others", members) for (env, _), members in others.items())]
    columns = min(len(panels), PANELS_ABREAST)
    rows = -(-len(panels) // columns)
    figure = new_figure(5.2 * columns, 3.6 * rows, dpi=120)
    for place, (title, members) in enumerate(panels):
        axes: Any = figure.add_subplot(rows, columns, place + 1)
        for curve in members:
            mean = curve.scores.mean(axis=0)
            (line,) = axes.plot(curve.steps, mean, marker="o", markersize=3, label=curve.agent_id)
            low, high = curve.scores.min(axis=0), curve.scores.max(axis=0)
            axes.fill_between(curve.steps, low, high, alpha=0.15, color=line.get_color())
            reached = curve.updates_to_90_percent()
            if reached:
                axes.axvline(float(np.mean(reached)), color=line.get_color(), linestyle=":", linewidth=1)
        axes.set_title(title, fontsize=10)
        axes.set_xlabel("updates (dotted: 90 % of the final score)", fontsize=8)
        units = sorted({"score" if curve.normalized else "return" for curve in members})
        axes.set_ylabel(f"{' or '.join(units)} of short evaluations", fontsize=8)
        axes.legend(fontsize=7)
    return save_figure(figure, path)
