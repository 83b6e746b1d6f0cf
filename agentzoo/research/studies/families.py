"""Families over their common tasks: interquartile means, performance profiles and probabilities of improvement.

Source: Agarwal et al. 2021, arXiv:2108.13264 (rliable); the numbers are those of `evaluation.method_comparison`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from agentzoo.evaluation.method_comparison import Methods, compare_methods, method_of, task_of, unused
from agentzoo.evaluation.statistics import Estimate
from agentzoo.evaluation.study import STUDY, Study, cell
from agentzoo.plots import new_figure, save_figure
from agentzoo.recipe import Recipe
from agentzoo.research.studies.comparison import RecipeResults, all_differences

PICTURE = "profiles.png"
FOLDER = "families"  # of the study, in that of the comparison
MAX_NAME = 60


def remove(folder: Path) -> None:
    """Delete the study of families in the folder of a comparison, if there is one."""
    for name in (PICTURE, STUDY):
        (folder / FOLDER / name).unlink(missing_ok=True)


def over_families(compared: Sequence[RecipeResults]) -> Methods | None:
    """The statistics of all methods with normalized scores; None if no two methods share a task.

    Several recipes of one method and task count as different methods, named by their changes.
    """
    first: dict[tuple[str, str], Recipe] = {}
    names: dict[tuple[str, str], str] = {}  # of a method with its changes
    scores: dict[str, dict[str, tuple[float, ...]]] = {}
    envs: dict[str, str] = {}
    for each in compared:
        if not each.normalized:
            continue
        task = task_of(each.recipe.data.dataset)
        method = method_of(each.agent_id, each.recipe.model.family, task)
        if envs.setdefault(task, each.env) != each.env:
            task = f"{task} ({each.env})"
        changes = all_differences(first.setdefault((method, task), each.recipe), each.recipe)
        name = names.get((method, changes))
        if name is None or task in scores[name]:  # the latter: two agents of one recipe, with ids of their own
            label = f"{method}, {changes}"[:MAX_NAME] if changes else method
            name = names[method, changes] = unused(label, scores)
        scores.setdefault(name, {})[task] = tuple(middle for middle, _, _ in each.scores())
    return compare_methods(scores)


def as_study(found: Methods) -> Study:
    """The table: a row per method, best first; the last column compares with the best."""
    best = next(iter(found.means))
    rows = [
        (
            cell(name),
            f"{found.runs[name]}",
            _in_words(one, 1) if name not in found.single else f"{one.value:.1f}, one run per task",
            "" if name == best else _chance(found, name, best),
        )
        for name, one in found.means.items()
    ]
    return Study(
        title=cell(f"Over {', '.join(found.tasks)}"),
        columns=("method", "runs", "interquartile mean of the score", cell(f"chance that a run beats one of {best}")),
        rows=tuple(rows[:100]),
        picture=PICTURE,
        note="A run is one training seed on one task; tasks count alike. Brackets hold 95 % intervals of a bootstrap "
        "that draws runs within tasks; with one run per task they would have no width and are left out. The "
        "picture shows the share of runs above each score. After Agarwal et al. 2021, arXiv:2108.13264.",
    )


def _chance(found: Methods, name: str, best: str) -> str:
    one = found.improvement[name, best]
    return f"{one.value:.2f}" if {name, best} <= set(found.single) else _in_words(one, 2)


def _in_words(one: Estimate, digits: int) -> str:
    return f"{one.value:.{digits}f} [{one.low:.{digits}f}, {one.high:.{digits}f}]"


def draw_profiles(found: Methods, path: Path) -> Path:
    """Performance profiles with their bands.

    Raises:
        ConfigError: matplotlib is not installed. StorageError: no space or permission.
    """
    figure = new_figure(6.4, 4.0, dpi=120)
    axes = figure.add_subplot()
    for name, profile in found.profiles.items():
        (line,) = axes.plot(profile.thresholds, profile.share, label=name)
        if name not in found.single:
            axes.fill_between(profile.thresholds, profile.low, profile.high, alpha=0.15, color=line.get_color())
    axes.set_xlabel(f"normalized score on {', '.join(found.tasks)}", fontsize=8)
    axes.set_ylabel("share of runs above it", fontsize=8)
    axes.set_ylim(0.0, 1.03)
    axes.legend(fontsize=7)
    return save_figure(figure, path)
