"""The gates of Markov heads over training, in several environments side by side.

`MarkovReport.counted` chooses the heads: the named ones, else the Markov heads of the first layer, else the nearest
one, judged by the backbone's weights if there is a backbone. Every table, picture and note says so.

Source: Zhao et al., ICML 2025, "Markov heads", figures of gate weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from agentzoo.agent import Agent
from agentzoo.data.minari import load_episodes
from agentzoo.errors import CheckpointError
from agentzoo.evaluation.study import Study, filled
from agentzoo.nn.markov import THRESHOLD
from agentzoo.plots import new_figure, save_figure
from agentzoo.recipe import Recipe
from agentzoo.record import read_record
from agentzoo.research.analysis.gate_report import GateCurve, gate_curve
from agentzoo.research.analysis.head_report import CountedHeads, MarkovReport, markov_report
from agentzoo.research.analysis.pictures import WIDTH, plot_curve
from agentzoo.store.files import RECIPE, WEIGHTS
from agentzoo.store.locate import find_agent
from agentzoo.store.named import is_finished
from agentzoo.training import state
from agentzoo.training.loop import build_model

PICTURE = "gates.png"


class GateRun(NamedTuple):
    """One training, finished or not."""

    recipe: Recipe
    counted: CountedHeads
    curve: GateCurve
    finished: bool

    @property
    def name(self) -> str:
        """Agent id and seed."""
        return f"{self.recipe.agent_id}, seed {self.recipe.train.seed}"

    @property
    def sum(self) -> float:
        """The sum of the counted heads' gates in the last row."""
        return self.curve.counted[-1] * len(self.curve.heads)

    @property
    def uniform(self) -> float:
        """The sum for equal gates."""
        return len(self.curve.heads) / len(self.curve.gates)

    def words(self) -> str:
        """The last row, in a sentence."""
        mine, others = self.curve.counted[-1], self.curve.others[-1]
        left = 0 if self.finished else self.recipe.train.steps - self.curve.steps[-1]
        return (
            f"{self.name}, after {self.curve.steps[-1]:,} updates{f' ({left:,} to come)' if left > 0 else ''}: "
            f"{self.counted.words()}: mean gate {mine:.3f}, the other heads {others:.3f}, 1/N = "
            f"{1 / len(self.curve.gates):.3f}."
        )


def read_gates(
    runs: Sequence[Path],
    heads: Sequence[int] | None = None,
    threshold: float = THRESHOLD,
    *,
    trust_env_module: bool = False,
) -> list[GateRun]:
    """Gates from the logs of trainings; heads are chosen as `MarkovReport.counted` does.

    Args:
        runs: folders of finished or running trainings of gated agents, or folders, ids or Hub repos of finished agents.
        heads: heads of the first layer to count; None: see above.
        threshold: r of a Markov head.

    Raises:
        CheckpointError: no run, or one without weights yet. ConfigError: no gates in the log, or heads that leave none
            to compare with. DataError: the data of an unfinished run are not here.
    """
    found = []
    for named in runs:
        run = named if named.is_dir() else find_agent(str(named))
        recipe = read_record(Recipe, run / RECIPE)
        if heads is None:
            gate_curve(run, [0])  # raises an error if there are no gates, before weights are read
            counted = run_report(run, recipe, threshold, trust_env_module).counted(model=recipe.model)
        else:
            counted = CountedHeads(tuple(sorted(set(heads))), "named")
        found.append(GateRun(recipe, counted, gate_curve(run, counted.heads), is_finished(run)))
    return found


def run_report(run: Path, recipe: Recipe, threshold: float, trust_env_module: bool = False) -> MarkovReport:
    """The Markov report of the final weights, or of the last checkpoint of an unfinished run.

    Raises:
        CheckpointError: neither exists yet.
    """
    if is_finished(run):
        return markov_report(Agent.from_pretrained(run, trust_env_module=trust_env_module), threshold)
    if not (run / state.CHECKPOINT).is_file():
        raise CheckpointError(
            f"{run} has neither {WEIGHTS} nor {state.CHECKPOINT} yet, so it is unknown which heads are Markov; "
            "name them with --markov-head, or wait for the first checkpoint."
        )
    model = build_model(recipe, load_episodes(recipe.data.dataset, recipe.data.obs_keys))
    state.load_model(run, model)
    return markov_report(model, threshold)


def as_study(runs: Sequence[GateRun], picture: str | None = PICTURE) -> Study:
    """The last row of each log, for a card."""
    rows = []
    for run in runs:
        updates = f"{run.curve.steps[-1]:,} of {run.recipe.train.steps:,}"
        gates = (run.curve.counted[-1], run.curve.others[-1], run.sum, run.uniform)
        rows.append((run.name, updates, run.counted.words(), *(f"{gate:.3f}" for gate in gates)))
    letter = letter_of([run.counted for run in runs], "G")
    named = "; their sum is the papers' G_Markov" if letter == "G_Markov" else ""
    note = (
        "Gates of the first layer, mean over the real tokens of the training batches since the previous row. Heads are "
        "judged by the initial weights of the training if the recipe records them, else by the current weights"
        f"{named}."
    )
    return Study(
        title="Gates over training",
        columns=(
            "training",
            "updates",
            "heads counted",
            "mean gate of one",
            "of another head",
            f"{letter} (their sum)",
            "if all had the same",
        ),
        rows=tuple(rows),
        picture=picture,
        note=filled(note, [run.words() for run in runs]),
    )


def draw_curves(runs: Sequence[GateRun], path: Path) -> Path:
    """Plot a panel per agent, with all its seeds; faint lines are single heads."""
    panels: dict[str, list[GateRun]] = {}
    for run in runs:
        panels.setdefault(run.recipe.agent_id, []).append(run)
    columns = min(len(panels), 2)
    down = -(-len(panels) // columns)
    figure = new_figure(WIDTH, 0.5 + 3.3 * down)
    grid = figure.subplots(down, columns, squeeze=False).flatten()
    every = [gate for run in runs for gates in run.curve.gates for gate in gates]
    span = max(max(every) - min(every), 0.01)
    limits = max(min(every) - 0.1 * span, 0.0), max(every) + 0.65 * span  # room for the legend
    for axes, (agent_id, seeds) in zip(grid, panels.items(), strict=False):
        for run in seeds:
            plot_curve(axes, run.curve, run.counted)
        axes.set_title(f"{agent_id}{f', {len(seeds)} seeds' if len(seeds) > 1 else ''}", fontsize=10, loc="left")
        axes.set_xlabel("update")
        axes.set_ylabel("mean gate, layer 0")
        axes.set_ylim(*limits)
        axes.spines[["top", "right"]].set_visible(False)
        named = dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))  # once for all seeds
        axes.legend(named.values(), named.keys(), frameon=False, fontsize=8, loc="upper right")
    for axes in grid[len(panels) :]:
        axes.set_visible(False)
    figure.suptitle("Gates over training; faint: single heads", fontsize=11)
    return save_figure(figure, path)


def letter_of(counted: Sequence[CountedHeads], letter: str) -> str:
    """The papers' name of the sum, if the counted heads are Markov heads."""
    return f"{letter}_Markov" if all(one.chosen == "markov" for one in counted) else letter
