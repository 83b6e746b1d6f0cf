"""An inspection as pictures: one figure per part, or all parts in one figure."""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import numpy as np

from agentzoo.plots import entitle, image_of, new_figure, save_figure, wrapped
from agentzoo.research.analysis.gate_report import GateCurve
from agentzoo.research.analysis.head_report import CountedHeads, MarkovReport
from agentzoo.research.analysis.inspection import Inspection

MARKOV, OTHER, KINDS = "#c05621", "#2b6cb0", ("#2b6cb0", "#2f855a", "#b7791f")
MAX_LAYERS, MAX_HEADS = 4, 12  # of attention maps
WIDTH = 9.0
Draw = Callable[[Any, Inspection], None]


def _grid(figure: Any, values: Any, texts: list[list[str]], title: str, label: str) -> Any:
    """A grid of layers (rows) and heads (columns), with a text in every cell."""
    axes = figure.add_subplot()
    image = _cells(axes, values, texts, float(np.nanmax(values)))
    axes.set_title(title, fontsize=10, loc="left")
    figure.colorbar(image, ax=axes, label=label, pad=0.02)
    return axes


def _cells(axes: Any, values: Any, texts: list[list[str]], highest: float) -> Any:
    array = np.asarray(values, dtype=float)
    labels = ["layer", "head"]
    if array.shape[1] == 1:  # with one head per layer, cells are side by side instead of as wide as the page
        array, texts, labels = array.T, [[row[0] for row in texts]], labels[::-1]
    image = axes.imshow(array, cmap="Blues", aspect="auto", vmin=0.0, vmax=max(highest, 1e-9))
    bright = image.norm(array) > 0.55
    for row in range(array.shape[0]):
        for column in range(array.shape[1]):
            ink = "white" if bright[row, column] else "0.15"
            axes.text(column, row, texts[row][column], ha="center", va="center", fontsize=7.5, color=ink)
    axes.set_xticks(range(array.shape[1]))
    axes.set_yticks(range(array.shape[0]))
    axes.set_ylabel(labels[0])
    axes.set_xlabel(labels[1])
    return image


def draw_ratios(axes: Any, report: MarkovReport, highest: float) -> Any:
    """The ratio of each head; + for a positive diagonal, framed if both conditions hold.

    Args:
        highest: ratio of the darkest colour.
    """
    from matplotlib.patches import Rectangle

    layers, heads = 1 + max(one.layer for one in report.heads), 1 + max(one.head for one in report.heads)
    ratios, texts = np.zeros((layers, heads)), [[""] * heads for _ in range(layers)]
    for one in report.heads:
        ratios[one.layer, one.head] = one.ratio
        texts[one.layer][one.head] = f"{one.ratio:.2f}{' +' if one.positive else ''}"
    image = _cells(axes, ratios, texts, highest)
    for one in report.heads:
        if one.markov:
            x, y = (one.head, one.layer) if heads > 1 else (one.layer, one.head)
            axes.add_patch(Rectangle((x - 0.47, y - 0.47), 0.94, 0.94, fill=False, lw=2, ec=MARKOV))
    return image


def draw_markov(figure: Any, found: Inspection) -> None:
    """Ratio and verdict of each head."""
    report = found.markov
    assert report is not None
    axes = figure.add_subplot()
    image = draw_ratios(axes, report, 2 * report.threshold or max(one.ratio for one in report.heads))
    folded = report.counted_in().replace(", ", "; ", 1)
    title = f"Markov ratio; +: positive diagonal, framed: Markov head (r = {report.threshold:g}){folded}"
    axes.set_title(title, fontsize=10, loc="left")
    axes.set_xlabel(f"{axes.get_xlabel()}\n{report.scale()}", fontsize=8)
    figure.colorbar(image, ax=axes, label="ratio", pad=0.02, extend="max")


def draw_importance(figure: Any, found: Inspection) -> None:
    """The change of the action without each head."""
    assert found.importance is not None
    mean, error = found.importance.mean, found.importance.standard_error
    pairs = [zip(row, errors, strict=True) for row, errors in zip(mean, error, strict=True)]
    texts = [[f"{value:.3g}" + (f"\n±{off:.1g}" if off is not None else "") for value, off in row] for row in pairs]
    title = f"Head importance: ‖action - action without the head‖, mean of {found.importance.decisions} decisions"
    _grid(figure, mean, texts, title, "distance")


def draw_gates(figure: Any, found: Inspection) -> None:
    """Mean gate of each head of the first layer, by kind of token."""
    report, counted = found.gates, found.counted
    assert report is not None
    assert counted is not None
    axes = figure.add_subplot()
    heads = len(report.mean[0])
    for k, (kind, means) in enumerate(report.by_kind.items()):
        axes.bar(np.arange(heads) + 0.26 * (k - 1), means[0], width=0.24, color=KINDS[k], label=f"{kind} tokens")
    axes.axhline(1 / heads, color="0.5", linestyle="--", linewidth=1, label="all heads the same")
    axes.set_xticks(range(heads), [f"{head}{' *' * (head in counted.heads)}" for head in range(heads)])
    axes.set_xlabel(f"head (*: {counted.words()})")
    axes.set_ylabel("mean gate")
    letter = "G_Markov" if counted.chosen == "markov" else "G"
    title = f"Gates of layer 0; {letter} = {report.g_markov:.3f}, {report.uniform:.3f} if all had the same"
    axes.set_title(title, fontsize=10, loc="left")
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_ylim(0.0, 1.2 * axes.get_ylim()[1])  # room for the legend
    axes.legend(frameon=False, fontsize=8, loc="upper center", ncols=4)


def draw_curve(figure: Any, found: Inspection) -> None:
    """Mean gate of the counted heads and of the others over training."""
    curve, counted = found.curve, found.counted
    assert curve is not None
    assert counted is not None
    axes = figure.add_subplot()
    plot_curve(axes, curve, counted)
    axes.set_xlabel("update")
    axes.set_ylabel("mean gate, layer 0")
    axes.set_title("Gates over training", fontsize=10, loc="left")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=8)


def plot_curve(axes: Any, curve: GateCurve, counted: CountedHeads) -> None:
    """Means as lines, single heads faint, and a dashed line for equal gates."""
    for head, gates in enumerate(curve.gates):
        axes.plot(curve.steps, gates, color=MARKOV if head in curve.heads else OTHER, linewidth=0.8, alpha=0.3)
    mean = ", mean" if len(curve.heads) > 1 else ""
    axes.plot(curve.steps, curve.counted, color=MARKOV, label=wrapped(f"{counted.words()}{mean}"))
    axes.plot(curve.steps, curve.others, color=OTHER, label="the other heads, mean")
    axes.axhline(1 / len(curve.gates), color="0.5", linestyle="--", linewidth=1, label="all heads the same")


def draw_maps(figure: Any, found: Inspection) -> None:
    """Attention maps; darker is more. Each row of a map sums to 1, so rows are drawn relative to their peak."""
    assert found.maps is not None
    layers, heads = len(found.maps), len(found.maps[0])
    shown, across = found.maps[:MAX_LAYERS], min(heads, MAX_HEADS)
    shape = (len(shown), across) if across > 1 else (1, len(shown))
    grid = figure.subplots(*shape, squeeze=False).reshape(len(shown), across)
    for layer, weights in enumerate(shown):
        for head in range(across):
            axes, one = grid[layer, head], weights[head].astype(float)
            sharp = (one / np.maximum(one.max(axis=1, keepdims=True), 1e-9)) ** (1.0 / found.temperature)
            axes.imshow(sharp, cmap="Blues", vmin=0.0, vmax=1.0)
            axes.set_xticks([])
            axes.set_yticks([])
            if across == 1:
                axes.set_title(f"layer {layer}, head 0", fontsize=7)
            elif layer == 0:
                axes.set_title(f"head {head}", fontsize=7)
            if across > 1 and head == 0:
                axes.set_ylabel(f"layer {layer}", fontsize=7)
    unit = "three tokens per step" if found.causal else "one token per step"
    cut = f"; {len(shown)} of {layers} layers" if layers > len(shown) else ""
    cut += f"; {across} of {heads} heads" if heads > across else ""
    warm = f"; temperature {found.temperature:g}" if found.temperature != 1.0 else ""
    figure.suptitle(f"Attention, querying tokens are rows, {unit}; rows relative to their peak{warm}{cut}", fontsize=10)


def draw_memory(figure: Any, found: Inspection) -> None:
    """Memory length of each block: median and the middle 80 % of its channels."""
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    report = found.memory
    assert report is not None
    axes = figure.add_subplot()
    names = [one.block for one in report.blocks]
    middle = np.array([one.tokens for one in report.blocks])  # (blocks, 3)
    where = np.arange(len(names))
    axes.errorbar(
        middle[:, 1],
        where,
        xerr=[middle[:, 1] - middle[:, 0], middle[:, 2] - middle[:, 1]],
        fmt="o",
        capsize=4,
        color=OTHER,
        label="median, middle 80 % of channels",
    )
    axes.axvline(report.context_tokens, color="0.5", linestyle="--", linewidth=1, label="window of the training")
    axes.set_yticks(where, names)
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlabel("tokens until a channel's slowest state falls to 1/e")
    axes.set_title("Memory length", fontsize=10, loc="left")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=8)


PARTS: dict[str, Draw] = {
    "markov": draw_markov,
    "importance": draw_importance,
    "gates": draw_gates,
    "curve": draw_curve,
    "memory": draw_memory,
    "maps": draw_maps,
}


def parts_of(found: Inspection) -> dict[str, Draw]:
    """The parts of this inspection."""
    return {name: draw for name, draw in PARTS.items() if getattr(found, name) is not None}


def _height(name: str, found: Inspection) -> float:
    if name == "maps":
        assert found.maps is not None
        rows, columns = min(len(found.maps), MAX_LAYERS), min(len(found.maps[0]), MAX_HEADS)
        rows, columns = (1, rows) if columns == 1 else (rows, columns)
        return 0.6 + rows * min(WIDTH / columns + 0.25, 4.0)
    if name == "memory":
        assert found.memory is not None
        return 1.4 + 0.35 * len(found.memory.blocks)
    if name in ("markov", "importance"):
        if found.importance is not None:
            layers, heads = len(found.importance.mean), len(found.importance.mean[0])
        else:
            assert found.markov is not None
            layers = 1 + max(one.layer for one in found.markov.heads)
            heads = 1 + max(one.head for one in found.markov.heads)
        return 1.4 + 0.5 * (layers if heads > 1 else 1)
    return 3.2


def picture_of(name: str, found: Inspection) -> bytes:
    """One part as a PNG."""
    figure = new_figure(WIDTH, _height(name, found))
    PARTS[name](figure, found)
    return image_of(figure)


def draw_all(found: Inspection, path: Path, only: Collection[str] = tuple(PARTS)) -> Path:
    """All parts in one picture, or those in `only`.

    Raises:
        ConfigError: matplotlib writes no such file. StorageError: no space or permission.
    """
    parts = {name: draw for name, draw in parts_of(found).items() if name in only}
    heights = [_height(name, found) for name in parts]
    figure = new_figure(WIDTH, sum(heights) + 0.4)
    entitle(figure, f"{found.name} ({found.kind})", 11)
    rows = figure.subfigures(len(parts), 1, height_ratios=heights, squeeze=False)[:, 0]
    for row, draw in zip(rows, parts.values(), strict=True):
        draw(row, found)
    return save_figure(figure, path)
