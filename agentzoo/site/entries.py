"""The agents of the site, read from their records."""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from agentzoo.config import AgentConfig
from agentzoo.errors import AgentzooError, printable
from agentzoo.evaluation.baselines import BASELINES, Baselines, Compared, compare_with_clones, read_baselines
from agentzoo.evaluation.method_comparison import method_of, task_of
from agentzoo.evaluation.results import Baseline, Result, Results
from agentzoo.hub.card import card_text, named_repo, published_beside, updates_done
from agentzoo.hub.overview import Summary, interval_over, measured
from agentzoo.hub.paper_scores import PUBLISHED, Published
from agentzoo.nn.base import ActingMode
from agentzoo.recipe import Recipe
from agentzoo.record import read_record
from agentzoo.registry import is_clone
from agentzoo.store.files import CARD, CONFIG, RECIPE, RESULTS
from agentzoo.store.locate import check_links, staged_in
from agentzoo.text import amount, fixed
from agentzoo.training.log import read_log

_SAFE = re.compile(r"[^a-z0-9_.-]+")


class Entry(NamedTuple):
    """One agent. `rows`: simpler methods measured on its data. `log`: the rows of its training log, as text."""

    slug: str  # of its page and files
    folder: Path
    config: AgentConfig
    recipe: Recipe
    results: Results | None
    rows: tuple[Baseline, ...]
    published: tuple[Published, ...]
    compared: Compared | None
    log: tuple[Mapping[str, str], ...]
    card: str

    @property
    def agent_id(self) -> str:
        """The id in its config."""
        return self.config.agent_id

    @property
    def family(self) -> str:
        """The family's name."""
        return self.config.model.family

    @property
    def title(self) -> str:
        """The family's full name."""
        return self.config.model.title or self.family

    @property
    def env(self) -> str:
        """The environment of its evaluation, else of its config."""
        return self.results.headline.env if self.results else self.config.env or ""

    @property
    def dataset(self) -> str:
        """The Minari id of its dataset."""
        return self.recipe.data.dataset

    @property
    def task(self) -> str:
        """The dataset's short name: `hopper-medium`."""
        return task_of(self.dataset)

    @property
    def method(self) -> str:
        """The agent's id without its task: `gpt2-dt-scratch`; the whole id if it does not contain the task."""
        return method_of(self.agent_id, self.family, self.task)

    @property
    def head(self) -> Result | None:
        """The headline evaluation."""
        return self.results.headline if self.results else None

    @property
    def trainings(self) -> tuple[Result, ...]:
        """The headline and the same recipe with other training seeds."""
        return (self.results.headline, *self.results.seeds) if self.results else ()

    @property
    def updates(self) -> int:
        """The number of training updates."""
        return updates_done(self.recipe, self.results)

    @property
    def is_clone(self) -> bool:
        """Whether it is a behaviour clone, the baseline of the others."""
        return is_clone(self.family)

    @property
    def ends_at_goal(self) -> bool:
        """Whether episodes end when the goal is reached, so that success and steps say it all."""
        return self.head is not None and self.head.ends_at_goal

    def summary(self) -> Summary:
        """Its means over training seeds, as in the README's tables."""
        found = measured(self.trainings) if self.trainings else {}
        return Summary(agent_id=self.agent_id, staged=True, **found)

    def measure(self, acting: ActingMode | None = None) -> tuple[str, str]:
        """What was measured as (number, kind): a score, else a success rate if episodes end at a goal, else a return.

        Args:
            acting: of these weights alone, in this acting mode if the record has it; by default the mean over training
                seeds.
        """
        head, summary = self.head, self.summary()
        if head is None:
            return "–", "not measured yet"
        score, reached, rates = summary.typical_score(), summary.typical_return(), self._success_rates()
        if acting is not None:
            others = self.results.acting if self.results else ()
            one = next((one for one in others if one.acting == acting), head)
            score, reached, rates = one.score, one.mean_return, [one.success_rate or 0.0]
        if score is not None:
            return fixed(score, 1), "normalized score"
        if self.ends_at_goal:
            return f"{100 * fmean(rates):.0f} %", "reach the goal"
        return amount(reached or 0.0, ","), "return"

    def _success_rates(self) -> list[float]:
        return [one.success_rate or 0.0 for one in self.trainings]

    def interval(self) -> tuple[float, float] | None:
        """The 95 % interval of `measure`; None if the record has none."""
        head = self.head
        if head is None or (head.score is None and self.ends_at_goal):
            return None
        return self.summary().score_interval() if head.score is not None else self.return_interval()

    def interval_in_words(self) -> str:
        """`interval` without brackets, `94.0 to 94.6`; empty if the record has none."""
        interval = self.interval()
        if interval is None:
            return ""
        scored = self.head is not None and self.head.score is not None
        low, high = (fixed(end, 1) if scored else amount(end) for end in interval)
        return f"{low} to {high}"

    def return_interval(self) -> tuple[float, float]:
        """The 95 % interval of the mean return: over training seeds if there are several, else over episodes."""
        first, *more = self.trainings
        return interval_over([first.mean_return, *(one.mean_return for one in more)]) if more else first.return_interval

    def return_in_words(self) -> str:
        """The mean return over training seeds and its interval: `2733 [2617, 2842]`; empty if nothing was measured."""
        reached = self.summary().typical_return()
        if reached is None:
            return ""
        low, high = self.return_interval()
        return f"{amount(reached)} [{amount(low)}, {amount(high)}]"


class Unreadable(NamedTuple):
    """A folder of the zoo that cannot be shown, and why."""

    name: str
    problem: str


class Zoo(NamedTuple):
    """The agents of a folder."""

    entries: tuple[Entry, ...]
    unreadable: tuple[Unreadable, ...]
    baselines: Baselines


def slug_of(name: str, taken: Sequence[str] = ()) -> str:
    """A file name for an agent's folder: letters, digits, dots and dashes, and not one of `taken`."""
    plain = _SAFE.sub("-", name.lower()).strip(".-")[:80] or "agent"
    found, count = plain, 2
    while found in taken:
        found, count = f"{plain}-{count}", count + 1
    return found


def read_zoo(zoo: Path, baselines: Sequence[Path] = ()) -> Zoo:
    """The agents of a folder; unreadable ones are listed with their problem.

    Args:
        baselines: files like `baselines.json`; by default the one in the folder, if it exists.

    Raises:
        ConfigError: a file of baselines cannot be used.
    """
    known = Baselines()
    for path in baselines or (zoo / BASELINES,):
        for dataset, rows in read_baselines(path).datasets.items():
            for row in rows:
                known = known.with_row(dataset, row)
    entries: list[Entry] = []
    unreadable = []
    for name, folder in staged_in(zoo).items():
        try:
            entries.append(_read(folder, slug_of(name, [one.slug for one in entries]), known))
        except AgentzooError as error:
            unreadable.append(Unreadable(printable(name), str(error)))
    return Zoo(tuple(entries), tuple(unreadable), known)


def _read(folder: Path, slug: str, known: Baselines) -> Entry:
    """One agent.

    Raises:
        CheckpointError, ConfigError: a record is missing or cannot be used.
    """
    check_links(folder)
    config, recipe = read_record(AgentConfig, folder / CONFIG), read_record(Recipe, folder / RECIPE)
    results = read_record(Results, folder / RESULTS) if (folder / RESULTS).is_file() else None
    rows = _rows(results, known.datasets.get(recipe.data.dataset, ()))
    compared = compare_with_clones((results.headline, *results.seeds), rows) if results else None
    beside = published_beside(config, recipe)
    repo = (
        named_repo((folder / CARD).read_text(encoding="utf-8", errors="replace")) if (folder / CARD).is_file() else None
    )
    return Entry(
        slug=slug,
        folder=folder,
        config=config,
        recipe=recipe,
        results=results,
        rows=rows,
        published=PUBLISHED.get(config.agent_id, ()) if beside is not None else (),
        compared=None if is_clone(config.model.family) else compared,
        log=tuple(_finite_log(folder)),
        card=card_text(folder, repo),
    )


def _rows(results: Results | None, more: Sequence[Baseline]) -> tuple[Baseline, ...]:
    """The rows of the record and of the newer file, without duplicates."""
    found = {(one.method, one.result.training_seed): one for one in (results.yardsticks if results else ())}
    found |= {(one.method, one.result.training_seed): one for one in more}
    return tuple(found.values())


def _finite_log(folder: Path) -> list[dict[str, str]]:
    """The log; empty if it is broken, since the agent works without it."""
    try:
        return read_log(folder)
    except (AgentzooError, csv.Error):
        return []
