"""Summaries of datasets, for `agentzoo data list` and `agentzoo data show`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agentzoo.data.hdf5 import readable
from agentzoo.data.making.catalogue import DATASETS
from agentzoo.data.metadata import SPECS, changed_options, environment_spec, named_environment
from agentzoo.data.minari import local_datasets, open_dataset, read_episodes, return_statistics
from agentzoo.data.references import Reference, normalized_score, reference_in, reference_of
from agentzoo.data.returns import read_returns
from agentzoo.errors import AgentzooError, DataError
from agentzoo.plots import new_figure, save_figure
from agentzoo.types import FloatArray

QUANTILES = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0)
BINS = 20
ROUNDING = 1e-9  # relative difference below which returns are equal


@dataclass(frozen=True)
class DatasetRow:
    """One line of the list: a dataset on this machine, or a recipe that is not built yet (its numbers are None)."""

    dataset_id: str
    built: bool
    env_id: str | None
    made_by: str
    steps: int | None  # of a recipe that is not built: the planned steps
    episodes: int | None = None
    mean_return: float | None = None
    best_return: float | None = None
    mean_score: float | None = None  # 0 random, 100 expert; None if the environment has no references
    recipe: str | None = None  # the name for `agentzoo data build`
    problem: str | None = None  # why a local dataset cannot be read; its numbers are None


@dataclass(frozen=True)
class DatasetSummary:
    """What `agentzoo data show` prints. Quantiles are over episodes, in the order of `QUANTILES`."""

    dataset_id: str
    metadata: dict[str, Any]
    env_id: str | None
    lengths: NDArray[np.int64]  # (E,)
    returns: NDArray[np.float64]  # (E,)
    terminated: float  # share of episodes that terminated (the others were truncated)
    reference: Reference | None

    @property
    def scores(self) -> NDArray[np.float64] | None:
        """(E,) normalized returns: 0 random, 100 expert."""
        return None if self.reference is None else normalized_score(self.returns, self.reference)

    def as_tree(self) -> dict[str, Any]:
        """Plain data for `--json`."""

        def spread(values: NDArray[Any] | None) -> dict[str, Any] | None:
            if values is None:
                return None
            quantiles = dict(zip(map(str, QUANTILES), np.quantile(values, QUANTILES).tolist(), strict=True))
            return {"mean": float(values.mean()), "std": float(values.std()), "quantiles": quantiles}

        return {
            "dataset_id": self.dataset_id,
            "env_id": self.env_id,
            "episodes": len(self.returns),
            "steps": int(self.lengths.sum()),
            "lengths": spread(self.lengths),
            "returns": spread(self.returns),
            "normalized": spread(self.scores),
            "reference": None if self.reference is None else self.reference._asdict(),
            "terminated_share": self.terminated,
            "metadata": self.metadata,
        }


def rows() -> list[DatasetRow]:
    """Recipes in the order of the catalogue, then all other datasets on this machine by id.

    The row of an unreadable dataset says why.
    """
    local = local_datasets()
    found = []
    for recipe in DATASETS.values():
        metadata = local.pop(recipe.dataset_id, None)
        if metadata is None:
            found.append(
                DatasetRow(
                    recipe.dataset_id, False, recipe.env_id, recipe.made_by, recipe.planned(), recipe=recipe.name
                )
            )
        else:
            found.append(_row(recipe.dataset_id, metadata, recipe.name))
    return found + [_row(name, metadata, None) for name, metadata in sorted(local.items())]


def _row(dataset_id: str, metadata: dict[str, Any], recipe: str | None) -> DatasetRow:
    try:
        return _readable_row(dataset_id, metadata, recipe)
    except Exception as error:  # untrusted metadata may hold anything
        problem = str(error) if isinstance(error, AgentzooError) else f"{type(error).__name__}: {error}"
        return DatasetRow(dataset_id, True, None, "", None, recipe=recipe, problem=problem)


def _readable_row(dataset_id: str, metadata: dict[str, Any], recipe: str | None) -> DatasetRow:
    if not metadata:
        open_dataset(dataset_id, download=False)  # raises an error that says why it cannot be read
    env_id = _env_id(metadata)
    mean, best, reference = metadata.get("return_mean"), metadata.get("return_max"), _reference(metadata, env_id)
    if mean is None:  # written by another tool, so the returns must be read
        found = return_statistics(read_returns(dataset_id)[0])
        mean, best = found["return_mean"], found["return_max"]
    score = None if reference is None else float(normalized_score(mean, reference))
    return DatasetRow(
        dataset_id,
        True,
        env_id,
        made_by(metadata),
        int(metadata["total_steps"]),
        int(metadata["total_episodes"]),
        float(mean),
        None if best is None else float(best),
        score,
        recipe,
    )


def made_by(metadata: dict[str, Any]) -> str:
    """How a dataset was made: its description, else the name of its algorithm; empty if it records neither."""
    return str(metadata.get("description") or metadata.get("algorithm_name") or "")


def how_made(metadata: dict[str, Any]) -> str:
    """`made_by` as a sentence, for a card."""
    text = made_by(metadata).strip()
    if text and not metadata.get("description"):
        text = f"Made by the algorithm {text}"
    return text if not text or text.endswith((".", "!", "?")) else f"{text}."


def summarize(dataset_id: str) -> DatasetSummary:
    """Read every episode of a dataset; a public one that is not here is fetched from Minari's server.

    Raises:
        UnknownNameError: no such dataset. DataError: it cannot be read or holds no step.
    """
    with readable(f"dataset {dataset_id!r}", "a Minari dataset"):
        metadata = dict(open_dataset(dataset_id).storage.metadata)
        lengths, returns, terminated = _episodes(dataset_id)
        env_id = _env_id(metadata)
        reference = _reference(metadata, env_id)
    plain = {key: value for key, value in metadata.items() if isinstance(value, (str, int, float, list))}
    return DatasetSummary(dataset_id, plain, env_id, lengths, returns, float(terminated.mean()), reference)


def _episodes(dataset_id: str) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.bool_]]:
    lengths, returns, terminated = [], [], []
    for episode in read_episodes(open_dataset(dataset_id, download=False)):
        if len(episode.rewards):
            lengths.append(len(episode.rewards))
            returns.append(float(np.sum(episode.rewards, dtype=np.float64)))
            terminated.append(bool(episode.terminations[-1]))
    if not lengths:
        raise DataError(f"dataset {dataset_id!r} holds no episode with a step.")
    if not np.isfinite(returns).all():
        raise DataError(f"dataset {dataset_id!r}: an episode's return is not finite.")
    return np.asarray(lengths), np.asarray(returns), np.asarray(terminated)


def _env_id(metadata: dict[str, Any]) -> str | None:
    if not environment_spec(metadata) and any(metadata.get(key) for key in SPECS):
        raise DataError("the spec of its environment cannot be read.")
    return named_environment(metadata)


def _reference(metadata: dict[str, Any], env_id: str | None) -> Reference | None:
    """The agreed references of the environment with its options, else those in the dataset's metadata."""
    options = changed_options(environment_spec(metadata))
    stored = reference_in(metadata, env_id or "", options)
    return reference_of(env_id or "", options) if stored is None else Reference(*stored)


def are_equal(values: FloatArray) -> bool:
    """Whether all values are equal up to rounding."""
    return bool(np.ptp(values) <= ROUNDING * np.abs(values).max())


def bin_edges(values: NDArray[np.float64], bins: int) -> NDArray[np.float64]:
    """(bins+1,) edges of equal bins, or (2,) of one bin around values that are equal up to rounding."""
    low, high = float(values.min()), float(values.max())
    size = max(abs(low), abs(high))
    if are_equal(values):
        return np.array([low - max(0.5, ROUNDING * size), high + max(0.5, ROUNDING * size)])
    return np.linspace(low, high, bins + 1)


def text_histogram(values: NDArray[np.float64], bins: int = 12, width: int = 40) -> list[str]:
    """Lines `from .. to | bar | count`, the tallest bar `width` characters wide; one line for equal values."""
    counts, edges = np.histogram(values, bin_edges(values, bins))
    tallest = max(int(counts.max()), 1)
    lines = []
    for count, low, high in zip(counts.tolist(), edges[:-1], edges[1:], strict=True):
        bar = "█" * max(round(width * count / tallest), 1 if count else 0)
        lines.append(f"{low:>10.4g} .. {high:<10.4g} {bar:<{width}} {count}")
    return lines


def plot(summary: DatasetSummary, path: Path) -> None:
    """A histogram of the returns, weighted by episodes and by steps, as a picture.

    Raises:
        ConfigError: matplotlib is not installed, or the suffix is not supported. StorageError: no space.
    """
    figure = new_figure(7.0, 4.0)
    axes = figure.add_subplot()
    edges = bin_edges(summary.returns, BINS * 2)
    looks: tuple[tuple[Any, str, dict[str, Any]], ...] = (
        (np.ones_like(summary.returns), "episodes", {"color": "#3c78d8", "alpha": 0.75}),
        (summary.lengths.astype(float), "steps", {"histtype": "step", "color": "#c2561a", "linewidth": 1.8}),
    )
    for weights, label, style in looks:
        axes.hist(summary.returns, edges.tolist(), weights=weights / weights.sum(), label=f"share of {label}", **style)
    axes.axvline(float(summary.returns.mean()), color="#222222", linestyle="--", linewidth=1.0)
    axes.annotate(f"mean {summary.returns.mean():.4g}", (float(summary.returns.mean()), 0.97), (4, 0),
                  xycoords=("data", "axes fraction"), textcoords="offset points", va="top")  # fmt: skip
    axes.set(xlabel="episode return", ylabel="share", title=f"{summary.dataset_id}: {len(summary.returns):,} episodes")
    reference = summary.reference
    if reference is not None:

        def to_score(value: Any) -> Any:
            return normalized_score(value, reference)

        def to_return(score: Any) -> Any:
            return reference.random + score * (reference.expert - reference.random) / 100.0

        scale = axes.secondary_xaxis(-0.22, functions=(to_score, to_return))
        scale.set_xlabel("normalized (0 random, 100 expert)")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    save_figure(figure, path, dpi=150)
