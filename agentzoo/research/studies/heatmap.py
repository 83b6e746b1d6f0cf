"""The heat-map of Uni[MASK]: networks trained on one task, all tasks or random masks, each evaluated on all tasks.

Every network keeps the weights with the lowest validation loss on its own training tasks, or on `SELECTING` where it
trains on several. Then it is evaluated on 5,000 held-out windows of each task. The whole study is in one folder and can
be resumed.

Source: Carroll et al. 2022, arXiv:2211.10869, figures 9 to 14 and appendix.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import torch

from agentzoo.data.episodes import Episodes
from agentzoo.data.minari import load_episodes
from agentzoo.data.windows import WindowSampler
from agentzoo.errors import ConfigError, TrainingError
from agentzoo.evaluation.study import Study
from agentzoo.extras import needed
from agentzoo.nn.base import SequenceModel
from agentzoo.nn.masked_model import Askable
from agentzoo.nn.masking import StepTask, draw
from agentzoo.recipe import DataConfig, Recipe, differences, load_recipe, there_and_asked
from agentzoo.recipes._doorkey import EPOCHS, doorkey_budget, doorkey_data
from agentzoo.record import read_record
from agentzoo.research.studies.heatmap_published import published_losses
from agentzoo.store.files import RECIPE, write_atomic
from agentzoo.store.tensors import load_strict
from agentzoo.training.hooks import Evaluation, Hooks
from agentzoo.training.loop import build_model, train
from agentzoo.training.run import BEST
from agentzoo.training.settle import claim
from agentzoo.types import Batch

COLUMNS: tuple[StepTask, ...] = ("bc", "rc", "goal", "waypoint", "past", "future", "forward", "inverse")
ROWS = (*COLUMNS, "all", "rnd", "rnd-ft", "mlp-bc", "mlp-rnd", "dt-bc", "dt-rc")
# These select the weights of a network that trains on several tasks; the losses of the other two keep falling while
# these tasks overfit. Source: micahcarroll/uniMASK@54f8b61, trainer.py, val_ls_to_skip.
SELECTING: tuple[StepTask, ...] = tuple(task for task in COLUMNS if task not in ("forward", "inverse"))
HELD_OUT = "zoo/doorkey/heldout-v0"
WINDOWS = 5_000  # of each cell
CHECK_EPOCHS = 10  # between two validations
PATIENCE_EPOCHS = 300  # without a lower validation loss
CHECK_SEED, FINAL_SEED = 11, 12
LOSSES = "losses.json"
PICTURE = "heatmap.png"
# of the fine-tunes from random masks: learning rate, epochs of the published code
FINE_TUNES: dict[StepTask, tuple[float, int]] = {
    "bc": (5e-6, 10_000),
    "rc": (5e-6, 500),
    "goal": (1e-5, 1_500),
    "waypoint": (1e-5, 1_500),
    "past": (5e-6, 500),
    "future": (5e-6, 500),
    "forward": (1e-5, 10_000),
    "inverse": (1e-5, 1_500),
}
FINE_TUNE_BATCH = {"rc": 50, "inverse": 50}  # 250 otherwise


class Cell(NamedTuple):
    """One training: its folder's name, its recipe, the tasks that select its weights, those it is evaluated on."""

    name: str
    recipe: Recipe
    selects: tuple[StepTask, ...]
    columns: tuple[StepTask, ...]
    start: str | None = None  # the training it starts from


def cells(seed: int, episodes: int = 500, epochs: int = EPOCHS) -> Iterator[Cell]:
    """Every training of the map for one seed; trainings that others start from come first."""
    trained = partial(_trained, seed=seed, episodes=episodes, epochs=epochs)
    for task in COLUMNS:
        yield trained(task, f"unimask-doorkey-{task}", (task,))
    yield trained("all", "unimask-doorkey-all", SELECTING)
    random = trained("rnd", "unimask-doorkey", SELECTING)
    yield random
    yield trained("mlp-bc", "unimask-doorkey-mlp-bc", ("bc",))
    yield trained("mlp-rnd", "unimask-doorkey-mlp-rnd", SELECTING)
    both: tuple[StepTask, ...] = ("bc", "rc")  # Decision-GPT only acts
    for task in both:
        yield trained(f"dt-{task}", f"decision-gpt-doorkey-{task}", (task,), both)
    for task in COLUMNS:
        yield _fine_tuned(random, task, seed, episodes, epochs)


def _whole(data: DataConfig) -> DataConfig:
    """The data settings with nothing held out: the map depends on the number of trajectories."""
    return data.model_copy(update={"held_out": 0.0})


def _trained(
    name: str,
    agent_id: str,
    selects: tuple[StepTask, ...],
    columns: tuple[StepTask, ...] = COLUMNS,
    *,
    seed: int,
    episodes: int,
    epochs: int,
) -> Cell:
    recipe = load_recipe(agent_id)
    budget = doorkey_budget(recipe.train.batch_size, episodes, epochs, recipe.train.lr)
    recipe = recipe.replace(train=budget, data=_whole(doorkey_data(episodes)))
    return Cell(f"{name}-s{seed}", _with_validation(recipe, seed, epochs), selects, columns)


def _fine_tuned(random: Cell, task: StepTask, seed: int, episodes: int, epochs: int) -> Cell:
    """The random-mask network, fine-tuned on one task with its own learning rate and a new optimizer."""
    rate, published = FINE_TUNES[task]
    epochs = min(epochs, published)
    model = random.recipe.model.model_copy(update={"tasks": (task,), "state_weight": 1.0})
    recipe = random.recipe.replace(
        agent_id=f"{random.recipe.agent_id}-ft-{task}",
        model=model,
        train=doorkey_budget(FINE_TUNE_BATCH.get(task, 250), episodes, epochs, rate),
        base=random.recipe.agent_id,
    )
    return Cell(f"rnd-ft-{task}-s{seed}", _with_validation(recipe, seed, epochs), (task,), (task,), random.name)


def _with_validation(recipe: Recipe, seed: int, epochs: int) -> Recipe:
    """The recipe with this seed, validated every few epochs and stopped when it does not improve."""
    updates = recipe.train.steps // epochs
    return recipe.replace(
        train=recipe.train.model_copy(update={"seed": seed, "patience": PATIENCE_EPOCHS * updates}),
        eval=recipe.eval.model_copy(update={"every": CHECK_EPOCHS * updates}),
    )


def held_out_windows(episodes: Episodes, context: int) -> Batch:
    """The first K steps of every episode that has as many, as one batch.

    Raises:
        DataError: no episode has K steps.
    """
    sampler = WindowSampler(episodes.at_least(context), context, 1.0)
    return sampler.at((sampler.timesteps == 0).nonzero().squeeze(1))


def task_loss(model: SequenceModel, windows: Batch, task: StepTask, count: int, seed: int) -> float:
    """The validation loss: the errors of all factors, each with weight 1, over at least `count` windows of `windows`.

    Masks are drawn from `seed`, so that all networks see the same masks.
    """
    assert isinstance(model, Askable)
    generator = torch.Generator().manual_seed(seed)
    losses = []
    with torch.inference_mode():
        for _ in range(-(-count // windows.shape[0])):
            masking = draw(task, *windows.shape, generator)
            losses.append(float(sum(model.factor_losses(windows, masking).values())))
    return sum(losses) / len(losses)


def _measured(own: Path, cell: Cell) -> dict[str, float] | None:
    """The losses of a finished cell, whose checkpoint may be deleted; None if it is not finished.

    Raises:
        TrainingError: the cell has other settings.
    """
    if not (own / LOSSES).is_file():
        return None
    changed = differences(read_record(Recipe, own / RECIPE), cell.recipe)
    if changed:
        raise TrainingError(f"{own} holds a run of other settings ({there_and_asked(changed)}). Choose another --out.")
    found: dict[str, float] = json.loads((own / LOSSES).read_text())
    return found


def run_cell(
    cell: Cell, folder: Path, windows: Batch, on_progress: Callable[[int], None] = lambda _: None
) -> dict[str, float]:
    """Train or resume one cell and evaluate it; the losses are stored in `losses.json` of its folder.

    Args:
        folder: the folder of the whole map.
        windows: the held-out windows.
        on_progress: called with the number of each update.

    Raises:
        TrainingError: the folder holds this cell with other settings.
    """
    own = folder / cell.name
    if (found := _measured(own, cell)) is not None:
        return found
    claim(own, cell.recipe)
    episodes = load_episodes(cell.recipe.data.dataset)
    start = None
    if cell.start is not None:
        start = build_model(cell.recipe, episodes)
        load_strict(start, folder / cell.start / BEST)

    def validate(model: SequenceModel) -> Evaluation:
        total = sum(task_loss(model, windows, task, 1, CHECK_SEED) for task in cell.selects)
        return Evaluation(-total, None)

    hooks = Hooks(evaluate=validate, on_step=on_progress)
    model = train(cell.recipe, own, episodes, start=start, hooks=hooks, device="cpu")
    load_strict(model, own / BEST)
    losses: dict[str, float] = {t: task_loss(model, windows, t, WINDOWS, FINAL_SEED) for t in cell.columns}
    write_atomic(own / LOSSES, json.dumps(losses, indent=1) + "\n")
    return losses


class HeatMap(NamedTuple):
    """Losses by row and column, one number per seed; a row lacks the tasks it was not evaluated on."""

    episodes: int
    epochs: int
    losses: dict[str, dict[str, list[float]]]

    def means(self) -> dict[str, dict[str, float]]:
        """The mean over seeds of every cell."""
        return {row: {column: sum(v) / len(v) for column, v in cells.items()} for row, cells in self.losses.items()}

    def seeds_in_words(self) -> str:
        """The number of seeds per cell, in words; a range if cells differ."""
        counts = {len(values) for cells in self.losses.values() for values in cells.values()} or {0}
        least, most = min(counts), max(counts)
        return f"{f'{least} to ' if least < most else ''}{most} training seed{'' if most == 1 else 's'}"

    def to_json(self) -> str:
        """The text of `heatmap.json`."""
        return json.dumps(self._asdict(), indent=1) + "\n"


def normalized(means: dict[str, dict[str, float]]) -> dict[str, dict[str, float]]:
    """Every cell divided by the smallest of its column: 1 is the best network for that task."""
    best: dict[str, float] = {c: min((row[c] for row in means.values() if c in row), default=1.0) for c in COLUMNS}
    return {row: {column: value / best[column] for column, value in cells.items()} for row, cells in means.items()}


def collect(folder: Path, seeds: list[int], episodes: int, epochs: int) -> HeatMap:
    """The map of the finished cells in `folder`.

    Raises:
        TrainingError: a cell has other settings. ConfigError: no cell is finished.
    """
    losses: dict[str, dict[str, list[float]]] = {}
    for seed in dict.fromkeys(seeds):
        for cell in cells(seed, episodes, epochs):
            found = _measured(folder / cell.name, cell)
            if found is None:
                continue
            row = "rnd-ft" if cell.start is not None else cell.name.rsplit("-s", 1)[0]
            for column, value in found.items():
                losses.setdefault(row, {}).setdefault(column, []).append(value)
    if not losses:
        raise ConfigError(
            f"{folder} holds no finished training on {episodes} trajectories with seed {' or '.join(map(str, seeds))}. "
            "Train them first: omit --no-train."
        )
    return HeatMap(episodes, epochs, {row: losses[row] for row in ROWS if row in losses})


def rank_agreement(ours: dict[str, dict[str, float]], published: dict[str, dict[str, float]]) -> dict[str, float]:
    """Spearman correlation of our cells with the published ones, column by column.

    Not over all cells: columns differ by orders of magnitude, so even shuffled rows would seem to agree.
    """
    stats = needed("scipy.stats", "train", "a rank correlation")

    def correlation(pairs: list[tuple[float, float]]) -> float:
        return float(stats.spearmanr([a for a, _ in pairs], [b for _, b in pairs]).statistic)

    both = {
        column: [
            (cells[column], published[row][column])
            for row, cells in ours.items()
            if column in cells and column in published.get(row, {})
        ]
        for column in COLUMNS
    }
    return {column: correlation(pairs) for column, pairs in both.items() if len(pairs) > 2}


def as_study(found: HeatMap) -> Study:
    """The record for the card of the random-mask agent."""
    means = found.means()
    agreement = rank_agreement(means, published_losses(found.episodes))
    rows = [(row, *(_cell(cells.get(c)) for c in COLUMNS)) for row, cells in means.items()]
    if agreement:
        rows.append(("(rank correlation with the published column)", *(_cell(agreement.get(c)) for c in COLUMNS)))
    columns = ("trained on", *COLUMNS)
    return Study(
        title=f"Every task asked of every network trained on {found.episodes:,} trajectories",
        columns=columns,
        rows=tuple(rows),
        picture=PICTURE,
        note=_note(found, agreement),
    )


def _note(found: HeatMap, agreement: dict[str, float]) -> str:
    mean = sum(agreement.values()) / max(len(agreement), 1)
    overall = f" The rank correlation with it is {mean:.2f}, the mean over columns." if agreement else ""
    return (
        "Validation loss (less is better; compare within a column) of each network (row) on each task (column). all: "
        "trained on all tasks in turn; rnd: on random masks, as this agent; rnd-ft: rnd, fine-tuned on the column's "
        "task; mlp-: an MLP; dt-: Decision-GPT. bc: behaviour cloning, rc: return-conditioned. "
        f"{found.episodes} trajectories, mean of {found.seeds_in_words()}, at most {found.epochs:,} epochs, "
        f"stopped after {PATIENCE_EPOCHS} of them without a lower validation loss, {WINDOWS:,} held-out windows a "
        "cell. The published map has 6 seeds and 6,000 epochs (10,000 in the released code), on the authors' own "
        f"walker, whose scoring of moves into the border is a little less random than ours.{overall}"
    )


def _cell(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}"
