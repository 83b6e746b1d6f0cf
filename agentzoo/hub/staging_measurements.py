"""Measure an agent that is being staged, and count the episodes for a progress bar."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from agentzoo.agent import Agent
from agentzoo.data.episodes import Episodes
from agentzoo.data.minari import dataset_metadata
from agentzoo.data.summary import how_made
from agentzoo.errors import AgentzooError, ConfigError
from agentzoo.evaluation.film import film, save_video
from agentzoo.evaluation.results import DatasetFacts, Result, evaluate, with_command
from agentzoo.evaluation.sweep import even_targets, plot_sweeps, rank_correlation, sweep
from agentzoo.hub.finished_runs import measured, measured_as_staged
from agentzoo.hub.records import write_settings
from agentzoo.hub.stored_weights import Stored, convert_weights
from agentzoo.nn.base import ActingMode
from agentzoo.nn.recurrent import RecurrentModel
from agentzoo.plots import figure_class
from agentzoo.recipe import DataConfig, Recipe
from agentzoo.store.files import CONFIG, SWEEP_PLOT, VIDEO, WEIGHTS
from agentzoo.store.tensors import read_tensors
from agentzoo.text import counted
from agentzoo.training.run import BEST

FRAMES = 250  # of an episode's video at most; a short episode shows every step
FILM_BYTES = 150_000  # of a staged film at most: git and the Hub keep each one for good
TARGETS = 8  # of a sweep
OnProgress = Callable[[str], None]


class Tally:
    """Counts played and planned episodes.

    Args:
        on_count: called with both numbers when one changes.
    """

    def __init__(self, on_count: Callable[[int, int], None] = lambda *_: None) -> None:
        self.played = self.planned = 0
        self._on_count = on_count

    def plan(self, episodes: int) -> None:
        """Add `episodes`, possibly negative, to the plan."""
        self.planned += episodes
        self._on_count(self.played, self.planned)

    def played_one(self, _: object = None) -> None:
        """Count one finished episode."""
        self.played += 1
        self._on_count(self.played, self.planned)

    @contextmanager
    def part(self, episodes: int) -> Iterator[None]:
        """Count the episodes of the block; those that were not played leave the plan."""
        end = self.played + episodes
        yield
        if self.played != end:
            self.plan(self.played - end)


class Measuring:
    """The measurements of one staged folder."""

    def __init__(
        self, folder: Path, facts: DatasetFacts, trust_env_module: bool, on_progress: OnProgress, tally: Tally
    ) -> None:
        self.folder, self.facts = folder, facts
        self._trust, self._on_progress, self._tally = trust_env_module, on_progress, tally
        self.agent = Agent.from_pretrained(folder, trust_env_module=trust_env_module)
        assert self.agent.recipe is not None
        self.recipe = self.agent.recipe
        self._length = 0  # length of the headline's first episode

    def plan(self, others: int, sweep_episodes: int) -> None:
        """Plan all episodes: the agent in each acting mode, `others`, the sweep and the video."""
        episodes = self.recipe.eval.episodes
        modes = 1 + len(other_modes(self.agent))
        self._tally.plan(episodes * (modes + others) + TARGETS * sweep_episodes + 1)

    def _with_command(self, one: Result) -> Result:
        """The result, with the command that repeats it after the agent is staged."""
        return with_command(one, self.agent, self.recipe.agent_id)

    def headline(self) -> dict[str, Any]:
        """Fields of `Results`: the evaluation, one for each other acting mode, and the type of the weights."""
        episodes, played_one = self.recipe.eval.episodes, self._tally.played_one
        self._on_progress(f"{counted(episodes, 'episode')} of {self.recipe.agent_id}")
        head = evaluate(self.agent, episodes=episodes, trust_env_module=self._trust, on_episode=played_one)
        self._length = head.lengths[0]
        acting = in_other_modes(self.agent, episodes, self._trust, self._on_progress, self._tally)
        return {
            "headline": self._with_command(head),
            "acting": tuple(map(self._with_command, acting)),
            "int8": self._weights == "int8",
        }

    @property
    def _weights(self) -> Stored:
        return "int8" if torch.int8 in self.agent.model.stored_types.values() else "float16"

    def other_seed(self, run: Path) -> Result:
        """The result of a run with another training seed, with the staged agent's settings and type of weights."""
        settings, played_one = self.recipe.eval, self._tally.played_one
        with self._tally.part(settings.episodes):
            return measured_as_staged(run, settings, self._weights, self._on_progress, self._trust, played_one)

    def other_run(self, run: Path) -> Result:
        """The result of another run on the same number of episodes, asked for the same return."""
        episodes = self.recipe.eval.episodes
        with self._tally.part(episodes):
            return measured(
                run,
                episodes,
                self._on_progress,
                self._trust,
                on_episode=self._tally.played_one,
                target_return=float(self.agent.target_return),
            )

    def best(self, run: Path) -> Result | None:
        """The result of the run's best checkpoint, if it is not the final one."""
        with self._tally.part(self.recipe.eval.episodes):
            return best_of(run, self.recipe, self._weights, self._trust, self._on_progress, self._tally)

    def targets(self, episodes: int) -> dict[str, Any]:
        """Fields of `Results`: the sweep over eight targets, and whether it is plotted."""
        if not episodes:
            return {}
        plots = _can_plot(self._on_progress)
        self._on_progress("eight target returns")
        asked = sweep_targets(self.agent.target_return, self.facts)
        found = sweep(self.agent, asked, episodes, trust_env_module=self._trust, on_episode=self._tally.played_one)
        if plots:
            plot_sweeps({self.recipe.agent_id: found}, self.folder / SWEEP_PLOT, self.facts.best_return)
        return {"targets": tuple(map(self._with_command, found)), "spearman": rank_correlation(found), "plotted": plots}

    def film(self) -> bool:
        """Make a video; returns whether it succeeded."""
        made = video(self.agent, self.folder / VIDEO, self._length, self._trust, self._on_progress)
        self._tally.played_one()
        return made


def _can_plot(on_progress: OnProgress) -> bool:
    try:
        figure_class()
    except ConfigError as error:
        on_progress(f"no plot: {error}")
        return False
    return True


def video(staged: Agent, path: Path, steps: int, trust_env_module: bool, on_progress: OnProgress) -> bool:
    """Film one episode of about `steps`. A failure is only reported, so that no measurement is lost."""
    on_progress("a video")
    every = math.ceil(steps / FRAMES)
    try:
        clip = film(staged, episodes=1, every=every, max_frames=4 * FRAMES, trust_env_module=trust_env_module)
        save_video(clip, path, FILM_BYTES)
    except Exception as error:  # whatever an environment raises when it is asked for pictures
        on_progress(f"no video: {error if isinstance(error, AgentzooError) else f'{type(error).__name__}: {error}'}")
        return False
    return True


def other_modes(agent: Agent) -> list[ActingMode]:
    """The acting modes of its network other than the current one, if their actions differ."""
    if agent.model.modes_agree:
        return []
    modes: tuple[ActingMode, ...] = ("window", "recurrent") if isinstance(agent.model, RecurrentModel) else ("window",)
    return [mode for mode in modes if mode != agent.acting]


def in_other_modes(
    staged: Agent, episodes: int, trust_env_module: bool, on_progress: OnProgress, tally: Tally
) -> Iterator[Result]:
    """Evaluate the same weights in each other acting mode."""
    own = staged.acting
    for mode in other_modes(staged):
        on_progress(f"{counted(episodes, 'episode')}, {mode} acting")
        staged.acting = mode
        yield evaluate(staged, episodes=episodes, trust_env_module=trust_env_module, on_episode=tally.played_one)
    staged.acting = own


def sweep_targets(target: float, facts: DatasetFacts) -> list[float]:
    """Target returns up to `target`: from 0, or for negative returns from the mean return of the data."""
    if target > 0.0:
        return even_targets(target, TARGETS)
    usual = facts.mean_return
    return even_targets(target, TARGETS, lowest=usual if usual < target else target - max(abs(target), 1.0))


def best_of(
    run: Path, recipe: Recipe, weights: Stored, trust_env_module: bool, on_progress: OnProgress, tally: Tally
) -> Result | None:
    """The result of the run's best checkpoint, stored and asked as the agent is; None if the last one is the best."""
    if not (run / BEST).is_file():
        return None
    best, last = read_tensors(run / BEST)[0], read_tensors(run / WEIGHTS)[0]
    if all(torch.equal(best[name], value) for name, value in last.items()):
        return None
    on_progress("the best checkpoint of the run")
    with TemporaryDirectory() as name:
        copy = Path(name)
        shutil.copyfile(run / CONFIG, copy / CONFIG)
        shutil.copyfile(run / BEST, copy / WEIGHTS)
        write_settings(copy, recipe)
        convert_weights(copy, weights)
        agent = Agent.from_pretrained(copy, trust_env_module=trust_env_module)
    found = evaluate(
        agent,
        episodes=recipe.eval.episodes,
        checkpoint="best",
        trust_env_module=trust_env_module,
        on_episode=tally.played_one,
    )
    return found.model_copy(update={"weights_sha256": None})  # they are not kept


def facts_of(data: DataConfig, episodes: Episodes) -> DatasetFacts:
    """Facts about the episodes of a training, the held-out ones included."""
    returns = episodes.returns
    return DatasetFacts(
        dataset=data.dataset,
        steps=len(episodes),
        episodes=len(returns),
        mean_return=float(returns.mean()),
        best_return=float(returns.max()),
        made_by=how_made(dataset_metadata(data.dataset)),
    )
