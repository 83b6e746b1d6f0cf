"""Does pre-training help? Learning curves of agents beside their twins from scratch, and how soon each is nearly done.

A run counts by the agent id in its recipe; runs of one id are seeds and differ in nothing else. Curves are the short
evaluations of a training; an agent is nearly there at the first of them whose mean over the seeds reaches 90 % of the
last one's. Where a run holds a `result.json` of more episodes, its score is the final one in the table.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from agentzoo.config import RECIPE, read_text
from agentzoo.errors import DataError
from agentzoo.evaluation.results import Result
from agentzoo.evaluation.scores import mean_interval
from agentzoo.evaluation.study import Study
from agentzoo.hub.stage import RESULT
from agentzoo.recipe import Recipe
from agentzoo.studies.comparison import differences
from agentzoo.training import log

NEARLY = 0.9
TWIN = "-scratch"


class Curve(NamedTuple):
    """All runs of one agent id."""

    agent_id: str
    steps: NDArray[np.int64]  # (P,) of the short evaluations
    scores: NDArray[np.float64]  # (seeds, P), normalized where there are references, else returns
    finals: tuple[Result, ...]  # of each seed whose run holds one

    @property
    def seeds(self) -> int:
        """How many runs there are."""
        return len(self.scores)

    def steps_to_nearly(self) -> int | None:
        """Updates until the mean score is 90 % of its last; None where that is not positive."""
        mean = self.scores.mean(axis=0)
        if mean[-1] <= 0:
            return None
        return int(self.steps[int(np.argmax(mean >= NEARLY * mean[-1]))])

    def final(self) -> str:
        """The final score, with a 95 % interval over seeds, or over episodes where there is one seed."""
        if len(self.finals) == self.seeds:
            one = [r.mean_return if r.score is None else r.score for r in self.finals]
            if self.seeds == 1:
                low, high = self.finals[0].score_interval or self.finals[0].return_interval
                return f"{one[0]:.1f} [{low:.1f}, {high:.1f}], {self.finals[0].episodes} episodes"
            low, high = mean_interval(np.array(one))
            return f"{np.mean(one):.1f} [{low:.1f}, {high:.1f}], {self.seeds} seeds"
        if self.seeds == 1:
            return f"{self.scores[0, -1]:.1f} (short evaluation)"
        low, high = mean_interval(self.scores[:, -1])
        return f"{self.scores[:, -1].mean():.1f} [{low:.1f}, {high:.1f}], {self.seeds} seeds (short evaluations)"


def read_curves(runs: Sequence[Path]) -> list[Curve]:
    """The curves of finished or unfinished runs, by agent id.

    Raises:
        CheckpointError: a folder is no run. DataError: a run was never evaluated, seeds of one agent at other steps,
            or runs of one agent id differ in more than the seed.
    """
    first: dict[str, Recipe] = {}
    found: dict[str, list[tuple[dict[int, float], Result | None]]] = {}
    for run in runs:
        recipe = Recipe.from_json(read_text(run / RECIPE), str(run / RECIPE))
        changes = differences(first.setdefault(recipe.agent_id, recipe), recipe)
        if changes:
            raise DataError(
                f"{run} is no seed of {recipe.agent_id}: it differs in {changes}. Give it an agent id of its own with "
                "--set agent_id=..., or see both with `agentzoo compare`."
            )
        points = {
            int(row["step"]): float(row["eval_score"] or row["eval_return"])
            for row in log.read_log(run)
            if row["eval_return"]
        }
        if not points:
            raise DataError(f"{run} has no evaluation in its log; train with eval.every above 0.")
        kept = run / RESULT
        final = Result.from_json(read_text(kept), str(kept)) if kept.is_file() else None
        found.setdefault(recipe.agent_id, []).append((points, final))
    curves = []
    for agent_id, seeds in found.items():
        steps = sorted(seeds[0][0])
        if any(sorted(points) != steps for points, _ in seeds):
            raise DataError(f"the runs of {agent_id} were evaluated at different steps; finish them first.")
        scores = np.array([[points[step] for step in steps] for points, _ in seeds])
        finals = tuple(final for _, final in seeds if final is not None)
        curves.append(Curve(agent_id, np.array(steps), scores, finals))
    return curves


def study_of(curves: Sequence[Curve], picture: str | None) -> Study:
    """The table of all agents, each below its twin's partner."""
    rows = []
    for curve in sorted(curves, key=lambda c: c.agent_id):
        soon = curve.steps_to_nearly()
        rows.append((curve.agent_id, curve.final(), f"{soon:,}" if soon is not None else "never", str(curve.seeds)))
    return Study(
        title="With and without language",
        columns=("agent", "final score (95 %)", "updates to 90 % of it", "seeds"),
        rows=tuple(rows),
        picture=picture,
        note="Same size, data and training; a twin (-scratch) starts from random weights. Updates are read off the "
        "short evaluations during training, so they are as coarse as those are apart.",
    )


def draw_curves(curves: Sequence[Curve], path: Path) -> Path:
    """One panel for each agent that has a twin, and one for all that have none; a band is the range over seeds."""
    from matplotlib.figure import Figure

    named = {curve.agent_id: curve for curve in curves}
    pairs = [(name, [curve, named[name + TWIN]]) for name, curve in named.items() if name + TWIN in named]
    paired = {curve.agent_id for _, both in pairs for curve in both}
    others = [curve for curve in curves if curve.agent_id not in paired]
    panels = [*pairs, *([("others", others)] if others else [])]
    figure = Figure(figsize=(5.2 * len(panels), 3.6), dpi=120, layout="constrained")
    for place, (title, members) in enumerate(panels):
        axes: Any = figure.add_subplot(1, len(panels), place + 1)
        for curve in members:
            mean = curve.scores.mean(axis=0)
            (line,) = axes.plot(curve.steps, mean, marker="o", markersize=3, label=curve.agent_id)
            low, high = curve.scores.min(axis=0), curve.scores.max(axis=0)
            axes.fill_between(curve.steps, low, high, alpha=0.15, color=line.get_color())
            soon = curve.steps_to_nearly()
            if soon is not None:
                axes.axvline(soon, color=line.get_color(), linestyle=":", linewidth=1)
        axes.set_title(title, fontsize=10)
        axes.set_xlabel("updates (dotted: 90 % of the last score)", fontsize=8)
        axes.set_ylabel("score of short evaluations", fontsize=8)
        axes.legend(fontsize=7)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Software": None} if path.suffix == ".png" else None)
    return path
