"""Trainings side by side: what each changes, what it scores on its final weights, and what papers print.

The first one is what the others are compared with: an ablation's whole network, a family's plain form.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from agentzoo.config import RECIPE, read_text
from agentzoo.errors import DataError
from agentzoo.evaluation.results import Result
from agentzoo.evaluation.scores import mean_interval
from agentzoo.evaluation.study import MOST_IN_CELL, MOST_IN_NOTE, Study, cell
from agentzoo.hub.published import TITLES, published_together
from agentzoo.hub.stage import measured
from agentzoo.plots import new_figure, save_figure
from agentzoo.recipe import Recipe
from agentzoo.recipe import differences as differing_fields

PICTURE = "comparison.png"


class Compared(NamedTuple):
    """All seeds of one recipe."""

    recipe: Recipe
    results: tuple[Result, ...]

    @property
    def agent_id(self) -> str:
        """Of every seed."""
        return self.recipe.agent_id

    def scores(self) -> list[tuple[float, float, float]]:
        """(mean, low, high) of each seed: normalized where there is a reference, else returns."""
        found = []
        for one in self.results:
            middle = one.mean_return if one.score is None else one.score
            found.append((middle, *(one.score_interval or one.return_interval)))
        return found

    def lengths(self) -> list[tuple[float, float, float]]:
        """(mean, low, high) steps of an episode of each seed."""
        return [(float(np.mean(one.lengths)), *mean_interval(np.array(one.lengths))) for one in self.results]


def compare(
    runs: Sequence[Path],
    episodes: int,
    note: Callable[[str], None] = lambda _: None,
    trust_env_module: bool = False,
) -> list[Compared]:
    """Measure finished runs, or take what was measured; runs whose recipes differ in the seed alone are seeds.

    Args:
        runs: folders of finished runs, or of staged agents, whose headline is taken.
        note: hears what is being measured.
        trust_env_module: import the module an environment id names.

    Raises:
        CheckpointError: a folder holds no finished run. DataError: they act in different environments.
    """
    found: dict[str, tuple[Recipe, list[Result]]] = {}  # by the recipe but for its seed
    for run in runs:
        result = measured(run, episodes, note, trust_env_module)
        recipe = Recipe.from_json(read_text(run / RECIPE), str(run / RECIPE))
        found.setdefault(recipe.unseeded().to_json(), (recipe, []))[1].append(result)
    envs = {result.env for _, results in found.values() for result in results}
    if len(envs) > 1:
        raise DataError(f"agents are compared in one environment, these act in {', '.join(sorted(envs))}.")
    return [Compared(recipe, tuple(results)) for recipe, results in found.values()]


def differences(first: Recipe, other: Recipe) -> str:
    """What `other` changes, as it would be set on a command line; another family is named instead of listed."""
    changed = differing_fields(first, other)
    parts = [
        TITLES.get(str(new), str(new)) if name == "model.family" else f"{name}={_short(new)}"
        for name, (_, new) in changed.items()
        if name not in ("agent_id", "train.seed")
    ]
    return cell(", ".join(parts))


def _short(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def as_study(compared: Sequence[Compared], title: str, picture: str | None = PICTURE) -> Study:
    """The table for a card."""
    first = compared[0].recipe
    normalized = all(one.score is not None for each in compared for one in each.results)
    succeeds = any(one.success_rate is not None for each in compared for one in each.results)
    rows = []
    papers = published_together(each.agent_id for each in compared)
    for each in compared:
        cells = [each.agent_id, differences(first, each.recipe) or "—", several(each.scores())]
        cells.append(several(each.lengths()))
        if succeeds:
            cells.append(
                ", ".join("" if r.success_rate is None else f"{100 * r.success_rate:.0f} %" for r in each.results)
            )
        paper = papers.get(each.agent_id)
        cells.append("" if paper is None else paper.text())
        rows.append(tuple(map(cell, cells)))
    scored = "normalized score" if normalized else "return"
    columns = ["agent", "differs in", scored, "length", *(["success"] if succeeds else []), "published"]
    episodes = sorted({one.episodes for each in compared for one in each.results})
    note = (
        f"{' or '.join(map(str, episodes))} episodes of each with its final weights; brackets hold 95 % bootstrap "
        "intervals over episodes, of each training seed on its own."
    )
    if papers:
        sources = dict.fromkeys(paper.source for paper in papers.values())
        remarks: dict[str, list[str]] = {}
        for name, paper in papers.items():
            remarks.setdefault(paper.remark, []).append(name)
        said = [f", {', '.join(names)} {remark}" for remark, names in remarks.items() if remark]
        note += (
            f" Published: {'; '.join(sources)}{''.join(said)}; means and spreads over seeds of 100,000 updates on "
            "other data."
        )
    return Study(title=cell(title), columns=tuple(columns), rows=tuple(rows), picture=picture, note=note[:MOST_IN_NOTE])


def several(figures: Sequence[tuple[float, float, float]]) -> str:
    """(mean, low, high) of each seed as one cell."""
    digits = 1 if max(abs(middle) for middle, _, _ in figures) < 1_000 else 0
    whole = "; ".join(f"{m:.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]" for m, low, high in figures)
    return whole if len(whole) <= MOST_IN_CELL else "; ".join(f"{middle:.{digits}f}" for middle, _, _ in figures)


def _labels(compared: Sequence[Compared]) -> list[str]:
    """Agent ids; of several recipes with one id, the later ones say what they change in the first."""
    first: dict[str, Recipe] = {}
    labels = []
    for each in compared:
        changes = differences(first.setdefault(each.agent_id, each.recipe), each.recipe)
        labels.append(f"{each.agent_id}\n{changes[:60]}" if changes else each.agent_id)
    return labels


def draw_comparison(compared: Sequence[Compared], path: Path) -> Path:
    """Scores with their intervals, a dot for each seed, and a cross where a paper prints one in the same unit.

    Where papers count the steps to a goal, so does the picture.
    """
    papers = published_together(each.agent_id for each in compared)
    counts_steps = any(paper.unit == "steps" for paper in papers.values())
    normalized = compared[0].results[0].score is not None
    figure = new_figure(7.0, 0.9 + 0.45 * len(compared), dpi=120)
    axes: Any = figure.add_subplot()
    for place, each in enumerate(compared):
        dots = each.lengths() if counts_steps else each.scores()
        for i, (middle, low, high) in enumerate(dots):
            height = place + 0.18 * (i - (len(dots) - 1) / 2)
            axes.errorbar(middle, height, xerr=[[middle - low], [high - middle]], fmt="o", color="C0", capsize=3)
        paper = papers.get(each.agent_id)
        if paper is not None and (paper.unit == "steps" or normalized):
            axes.plot(paper.score, place, "x", color="C3")
    axes.set_yticks(range(len(compared)), _labels(compared), fontsize=8)
    axes.set_ylim(len(compared) - 0.5, -0.5)
    axes.grid(axis="x", alpha=0.3)
    score = "normalized score" if normalized else "return"
    unit = "steps to the goal, less is better" if counts_steps else score
    axes.set_xlabel(f"{unit}, 95 % interval (cross: published)", fontsize=8)
    return save_figure(figure, path)
