"""The heat-map as a plot: our losses and the published ones, each column relative to its best."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from agentzoo.plots import new_figure, save_figure
from agentzoo.research.studies.heatmap import COLUMNS, ROWS, HeatMap, normalized
from agentzoo.research.studies.heatmap_published import published_losses

Cells = dict[str, dict[str, float]]
WORST = 3.0  # times the best of a column: the darkest color


def draw_heatmap(found: HeatMap, path: Path, relative: bool = False) -> Path:
    """Plot losses, or with `relative` multiples of the best of their column; colours always show the multiples.

    The published map is beside ours, if there is one.
    """
    maps = {f"ours, {found.episodes} trajectories, mean of {found.seeds_in_words()}": found.means()}
    published = published_losses(found.episodes)
    if published:
        maps["published"] = published
    rows = [row for row in ROWS if any(row in cells for cells in maps.values())]
    figure = new_figure(6.2 * len(maps) + 0.6, 0.36 * len(rows) + 1.3, layout=None, dpi=120)
    for place, (title, cells) in enumerate(maps.items()):
        axes = figure.add_subplot(1, len(maps), place + 1)
        image = _draw(axes, cells, rows, title, relative)
        if place:
            axes.set_yticklabels([])
        else:
            axes.set_ylabel("trained on", fontsize=8)
    bar = figure.colorbar(image, ax=figure.axes, fraction=0.02, pad=0.01)
    ticks = (1.0, 1.25, 1.5, 2.0, WORST)
    bar.set_ticks([float(np.log(tick)) for tick in ticks], labels=[f"{tick:g}" for tick in ticks], fontsize=8)
    bar.set_label("loss over the best of its column", fontsize=8)
    return save_figure(figure, path, bbox_inches="tight")


def _draw(axes: Any, cells: Cells, rows: list[str], title: str, relative: bool) -> Any:
    multiples = normalized(cells)
    table = np.array([[multiples.get(row, {}).get(c, np.nan) for c in COLUMNS] for row in rows])
    axes.set_facecolor("0.92")  # the colour of cells without a number
    image = axes.imshow(np.log(table), cmap="YlOrRd", vmin=0.0, vmax=np.log(WORST), aspect="auto")
    for y, row in enumerate(rows):
        for x, column in enumerate(COLUMNS):
            value = (multiples if relative else cells).get(row, {}).get(column)
            if value is not None:
                ink = "white" if table[y, x] > 0.75 * WORST else "black"
                axes.text(x, y, _short(value), ha="center", va="center", fontsize=7, color=ink)
    axes.set_xticks(range(len(COLUMNS)), COLUMNS, fontsize=8, rotation=30)
    axes.set_yticks(range(len(rows)), rows, fontsize=8)
    axes.set_title(title, fontsize=9)
    axes.set_xlabel("tested on", fontsize=8)
    return image


def _short(value: float) -> str:
    if value >= 99.5:
        return f"{value:.0f}" if value < 1000 else ">1000"
    return f"{value:.2f}" if value >= 0.995 else f"{value:.3f}" if value >= 0.01 else f"{value:.0e}"
