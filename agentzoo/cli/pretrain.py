"""`agentzoo research pretrain lm | clip`. Heavy imports happen inside."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import Progress
from rich.table import Table

from agentzoo.cli.console import bar_columns, errors_console, plain, print_json, print_listing
from agentzoo.cli.groups import CommandGroup
from agentzoo.cli.options import MAX_THREADS, JsonOption, folder_path
from agentzoo.errors import UnknownNameError, did_you_mean

app = typer.Typer(
    cls=CommandGroup, no_args_is_help=True, help="Pre-train backbones of language agents.", rich_markup_mode=None
)

OutOption = Annotated[
    Path | None,
    typer.Option("--out", parser=folder_path, metavar="<path>", help="Folder of the run. Default: runs/<name>."),
]
HubOption = Annotated[Path | None, typer.Option("--to", help="The Hub folder to write. Default: <run>/hub.")]
SetOption = Annotated[
    list[str] | None, typer.Option("--set", help="Change one setting: field=value, e.g. steps=2000; may be repeated.")
]
ThreadsOption = Annotated[
    int | None, typer.Option("--threads", min=1, max=MAX_THREADS, help="CPU threads; 1 makes runs repeat bit for bit.")
]
HardwareOption = Annotated[str, typer.Option("--hardware", help="The hardware it is trained on, for the card.")]


@app.command()
def lm(
    corpus: Annotated[
        list[Path], typer.Option("--corpus", help="A text file or a folder of .txt files; may be repeated.")
    ],
    size: Annotated[str, typer.Option("--size", help="Either chibi or mini.")] = "chibi",
    validation: Annotated[
        list[Path] | None, typer.Option("--validation", help="A text file to measure on only; may be repeated.")
    ] = None,
    out: OutOption = None,
    to: HubOption = None,
    settings: SetOption = None,
    threads: ThreadsOption = None,
    hardware: HardwareOption = "a CPU",
    as_json: JsonOption = False,
) -> None:
    """Train a tokenizer and a GPT-2 language model on text. A stopped run continues; a finished one is rewritten."""
    from agentzoo.research.pretrain.lm import train_language_model, write_language_model
    from agentzoo.research.pretrain.settings import LM_SIZES

    if size not in LM_SIZES:
        raise UnknownNameError(f"no size {size!r}.{did_you_mean(size, LM_SIZES)} Known: {', '.join(LM_SIZES)}.")
    chosen = LM_SIZES[size].override(settings or [])
    run = out or Path("runs") / chosen.name
    _threads(threads)
    with _bar(chosen.name, chosen.steps) as (on_step, on_row, on_progress):
        task = train_language_model(
            chosen, run, corpus, validation or [], on_step=on_step, on_row=on_row, on_progress=on_progress
        )  # fmt: skip
        on_progress("measuring")
        figures = write_language_model(task, run, to or run / "hub", hardware)
    _finish(figures, to or run / "hub", as_json)


@app.command()
def clip(
    out: OutOption = None,
    to: HubOption = None,
    settings: SetOption = None,
    threads: ThreadsOption = None,
    hardware: HardwareOption = "a CPU",
    as_json: JsonOption = False,
) -> None:
    """Train a small CLIP on rendered worlds and their missions. A stopped run continues."""
    from agentzoo.research.pretrain.clip import train_clip, write_clip
    from agentzoo.research.pretrain.settings import CLIP_MINI

    chosen = CLIP_MINI.override(settings or [])
    run = out or Path("runs") / chosen.name
    _threads(threads)
    with _bar(chosen.name, chosen.steps) as (on_step, on_row, on_progress):
        task = train_clip(chosen, run, on_step=on_step, on_row=on_row, on_progress=on_progress)
        on_progress("measuring")
        figures = write_clip(task, run, to or run / "hub", hardware)
    _finish(figures, to or run / "hub", as_json)


def _threads(threads: int | None) -> None:
    if threads is not None:
        import torch

        torch.set_num_threads(threads)


def _finish(figures: dict[str, float], folder: Path, as_json: bool) -> None:
    if as_json:
        print_json(figures)
        return
    table = Table("figure", "value", title=plain(folder))
    for name, value in figures.items():
        table.add_row(plain(name), f"{value:.4g}")
    print_listing(table)


@contextmanager
def _bar(
    name: str, steps: int
) -> Iterator[tuple[Callable[[int], None], Callable[[dict[str, Any]], None], Callable[[str], None]]]:
    with Progress(*bar_columns(), console=errors_console) as progress:
        task = progress.add_task(name, total=steps, note="")

        def on_row(row: dict[str, Any]) -> None:
            figures = {
                k: v
                for k, v in row.items()
                if k.startswith(("loss", "steps_per_s")) or k.endswith(("ity", "top1_accuracy"))
            }
            text = "  ".join(f"{k} {v:.3f}" for k, v in figures.items())
            progress.update(task, note=text)
            if not progress.console.is_terminal and len(figures) > 2:  # a log file gets lines instead of the bar
                errors_console.print(f"step {row['step']}: {text}")

        yield (
            lambda step: progress.update(task, completed=step),
            on_row,
            lambda text: progress.update(task, note=text),
        )
