"""The progress bar of a training run, in a terminal or a notebook."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeElapsedColumn, TimeRemainingColumn

from agentzoo.progress import Words
from agentzoo.recipe import Recipe
from agentzoo.text import amount
from agentzoo.training.hooks import Hooks


@contextmanager
def run_progress(recipe: Recipe, console: Console) -> Iterator[RunProgress]:
    """Show the progress of a run inside the block; nothing if the console is quiet."""
    columns = (
        Words(),
        BarColumn(),
        MofNCompleteColumn(),
        Words("rate"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        Words("loss", before="loss "),
        Words("reached"),
    )
    with Progress(*columns, console=console, disable=console.quiet) as progress:
        yield RunProgress(recipe, progress)


class RunProgress:
    """The progress bar of a run and the lines above it."""

    def __init__(self, recipe: Recipe, progress: Progress) -> None:
        self.steps, self.progress = recipe.train.steps, progress
        self.task = progress.add_task(recipe.agent_id, total=self.steps, rate="", loss="-", reached="")
        self.console: Console = progress.console
        self.done: int | None = None  # updates; None before the first one, or before the checkpoint is read
        self.saved = 0

    def say(self, line: str) -> None:
        """Print a line above the bar."""
        self.console.print(line)

    def hooks(self, beside: Hooks | None = None) -> Hooks:
        """The callbacks that move the bar; those of `beside` are called first."""
        others = beside or Hooks()
        return replace(
            others,
            on_resume=_both(others.on_resume, self.on_resume),
            on_step=_both(others.on_step, self.on_step),
            on_row=_both(others.on_row, self.on_row),
            on_save=_both(others.on_save, self.on_save),
            on_interrupt=_both(others.on_interrupt, self.on_interrupt),
        )

    def on_resume(self, step: int) -> None:
        """See `Hooks`."""
        if step < self.steps:
            self.say(f"continuing from update {step:,}")
        self.saved = step
        self.on_step(step)

    def on_step(self, step: int) -> None:
        """See `Hooks`."""
        self.done = step
        self.progress.update(self.task, completed=step)

    def on_save(self, step: int) -> None:
        """See `Hooks`."""
        self.saved = step

    def on_interrupt(self) -> None:
        """See `Hooks`."""
        self.say("saving a checkpoint after this update; press Ctrl-C again to stop at once")

    def on_row(self, row: dict[str, Any]) -> None:
        """See `Hooks`. Without a terminal, each evaluation is a line."""
        self.progress.update(self.task, loss=f"{row['loss']:.4f}", rate=f"{row['steps_per_s']:.1f}/s")
        if row["eval_return"] is None:
            return
        score = row["eval_score"]
        reached = f"return {amount(row['eval_return'])}" if score is None else f"score {score:.1f}"
        self.progress.update(self.task, reached=reached)
        if not self.console.is_terminal:  # a log file gets lines instead of the bar
            self.say(f"update {row['step']:,}: {reached}")


def _both(first: Callable[..., None], then: Callable[..., None]) -> Callable[..., None]:
    def call(*arguments: Any) -> None:
        first(*arguments)
        then(*arguments)

    return call
