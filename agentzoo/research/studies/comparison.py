"""Trainings side by side: what each changes, what it scores on its final weights, and what papers print.

The first one in an environment is what the others there are compared with: an ablation's whole network, a family's
plain form.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from agentzoo.errors import ConfigError, DataError
from agentzoo.evaluation.results import Result
from agentzoo.evaluation.scores import mean_interval
from agentzoo.evaluation.study import MOST_IN_CELL, MOST_IN_NOTE, Study, cell
from agentzoo.hub.measured import headline, require_finished
from agentzoo.hub.paper_scores import Published, elsewhere, published_together
from agentzoo.plots import new_figure, save_figure
from agentzoo.recipe import Recipe
from agentzoo.recipe import differences as differing_fields
from agentzoo.record import read_record
from agentzoo.store.files import RECIPE

PICTURE = "comparison.png"


class Compared(NamedTuple):
    """All seeds of one recipe."""

    recipe: Recipe
    results: tuple[Result, ...]

    @property
    def env(self) -> str:
        """Where it acts."""
        return self.results[0].env

    @property
    def normalized(self) -> bool:
        """Whether there are references to normalize its returns with."""
        return all(one.score is not None and one.score_interval is not None for one in self.results)

    @property
    def agent_id(self) -> str:
        """What all seeds are of."""
        return self.recipe.agent_id

    def scores(self) -> list[tuple[float, float, float]]:
        """(mean, low, high) of each seed: normalized where there is a reference, else returns."""
        if self.normalized:
            return [
                (one.score, *one.score_interval) for one in self.results if one.score is not None and one.score_interval
            ]
        return [(one.mean_return, *one.return_interval) for one in self.results]

    def lengths(self) -> list[tuple[float, float, float]]:
        """(mean, low, high) steps of an episode of each seed."""
        return [(float(np.mean(one.lengths)), *mean_interval(np.array(one.lengths))) for one in self.results]


def compare(
    runs: Sequence[Path],
    episodes: int,
    on_progress: Callable[[str], None] = lambda _: None,
    trust_env_module: bool = False,
) -> list[Compared]:
    """Measure finished runs, or take what was measured; runs whose recipes differ in the seed alone are seeds.

    Those of one environment come together, in the order in which they were given.

    Args:
        runs: folders of finished runs, or of staged agents, whose headline is taken.
        on_progress: called with a line on each step.
        trust_env_module: import the module an environment id names.

    Raises:
        CheckpointError: a folder holds no finished run, nor a staged agent with a record of its own. DataError: two are
            of one recipe and seed, or seeds of one recipe were measured in different environments.
    """
    found: dict[str, tuple[Recipe, list[Result]]] = {}  # by the recipe but for its seed
    seen: dict[str, Path] = {}
    for run in runs:
        require_finished(run)
        recipe = read_record(Recipe, run / RECIPE)
        require_new(recipe, run, seen)
        result = headline(run, episodes, on_progress, trust_env_module)
        found.setdefault(recipe.unseeded().to_json(), (recipe, []))[1].append(result)
    for recipe, results in found.values():
        envs = sorted({one.env for one in results})
        if len(envs) > 1:
            raise DataError(f"seeds of {recipe.agent_id} were measured in different environments: {', '.join(envs)}.")
    compared = [Compared(recipe, tuple(results)) for recipe, results in found.values()]
    return [each for group in by_environment(compared).values() for each in group]


def require_new(recipe: Recipe, run: Path, seen: dict[str, Path]) -> None:
    """Raise DataError if a run of this recipe and seed was `seen`; else it is, from now on.

    A run and the agent that was staged from it would count as two seeds.
    """
    key = recipe.unpinned().to_json()
    if key in seen:
        raise DataError(f"{seen[key]} and {run} are of one recipe and training seed; name one of them.")
    seen[key] = run


def by_environment(compared: Sequence[Compared]) -> dict[str, list[Compared]]:
    """What acts in one environment, by its id."""
    groups: dict[str, list[Compared]] = {}
    for each in compared:
        groups.setdefault(each.env, []).append(each)
    return groups


def differences(first: Recipe, other: Recipe) -> str:
    """What `other` changes, as it would be set on a command line; another family is named instead of listed."""
    changed = differing_fields(first, other)
    parts = [
        other.model.title or str(new) if name == "model.family" else f"{name}={_short(new)}"
        for name, (_, new) in changed.items()
        if name not in ("agent_id", "train.seed")
    ]
    return cell(", ".join(parts))


def _short(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def as_study(compared: Sequence[Compared], title: str, picture: str | None = PICTURE, finding: str = "") -> Study:
    """The table for a card. Left out are columns without a value, and the environment where all share one.

    Args:
        finding: what there is to see in it, said before what the columns mean.

    Raises:
        ConfigError: the finding is longer than a note has room for.
    """
    papers = published_together(each.agent_id for each in compared)
    groups = by_environment(compared)
    table = []
    for each in compared:
        paper = papers.get(each.agent_id)
        succeeded = [one.success_rate for one in each.results]
        figures = several(each.scores())
        table.append(
            {
                "agent": each.agent_id,
                "environment": each.env if len(groups) > 1 else "",
                "differs in": differences(groups[each.env][0].recipe, each.recipe) or "—",
                "normalized score": figures if each.normalized else "",
                "return": "" if each.normalized else figures,
                "length": several(each.lengths()),
                "success": ", ".join("" if rate is None else f"{100 * rate:.0f} %" for rate in succeeded),
                "published": "" if paper is None else paper.text(),
            }
        )
    columns = [name for name in table[0] if any(row[name].strip(", ") for row in table)]
    rows = [tuple(cell(row[name]) for name in columns) for row in table]
    episodes = sorted({one.episodes for each in compared for one in each.results})
    note = (
        f"{' or '.join(map(str, episodes))} episodes of each with its final weights; brackets hold 95 % bootstrap "
        "intervals over episodes, of each training seed on its own."
    )
    if any(paper.unit == "steps" for paper in papers.values()):
        note += " Where papers count steps, length is the steps to the goal; a failed episode counts all it had."
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
        others = elsewhere(papers, next(iter(sources))) if len(sources) == 1 else {}
        for task, methods in others.items():
            named = " and ".join(f"{name} {one.text()}" for name, one in methods.items())
            note += f" Also there, for {task}: {named}."
    if finding and len(finding) + 1 + len(note) > MOST_IN_NOTE:
        room = max(0, MOST_IN_NOTE - 1 - len(note))
        raise ConfigError(f"what was found takes {len(finding)} characters; the note has room for {room}.")
    note = f"{finding} {note}".strip()
    return Study(title=cell(title), columns=tuple(columns), rows=tuple(rows), picture=picture, note=note[:MOST_IN_NOTE])


def digits_for(largest: float) -> int:
    """Decimals of a column of scores, returns or lengths."""
    return 2 if largest < 10 else 1 if largest < 1_000 else 0


def several(figures: Sequence[tuple[float, float, float]]) -> str:
    """(mean, low, high) of each seed as one cell."""
    digits = digits_for(max(abs(middle) for middle, _, _ in figures))
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

    Environments have panels of their own. Where papers count the steps to a goal, so does the picture.
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


def _draw_panel(axes: Any, compared: Sequence[Compared], papers: Mapping[str, Published]) -> None:
    counts_steps = any(each.agent_id in papers and papers[each.agent_id].unit == "steps" for each in compared)
    normalized = compared[0].normalized
    shown = False  # any published number
    for place, each in enumerate(compared):
        dots = each.lengths() if counts_steps else each.scores()
        for i, (middle, low, high) in enumerate(dots):
            height = place + 0.18 * (i - (len(dots) - 1) / 2)
            axes.errorbar(middle, height, xerr=[[middle - low], [high - middle]], fmt="o", color="C0", capsize=3)
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
