"""`agentzoo hub stage`, `remeasure` and `seeds`: measuring what is published. Heavy imports happen inside."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.progress import Progress
from rich.table import Table

from agentzoo.cli.console import bar_columns, console, errors_console, plain, print_listing
from agentzoo.cli.options import FolderArg, HistoryOption, TargetOption, TrustOption, TrustOptionsOption, ZooOption
from agentzoo.store.named import require_finished, require_folder
from agentzoo.text import amount

ForceOption = Annotated[bool, typer.Option("--force", help="Replace an agent of another task, dataset or family.")]
HardwareOption = Annotated[
    str, typer.Option("--hardware", help="What it was trained on, for the card: 'two cores of ...'.")
]
MaxOption = Annotated[
    float | None,
    typer.Option(
        "--max-mb",
        min=0.1,
        help="Largest size of the weights in megabytes.",
        show_default="the family's limit, 5 for most",
    ),
]
StoredAs = Literal["float16", "int8"]  # `hub.stored_weights.Stored`, whose import takes seconds
WEIGHTS_HELP = "Type of the stored weights, which are the measured ones. int8: large matrices as 8-bit integers."


@contextmanager
def staging_progress(title: str) -> Iterator[tuple[Callable[[str], None], Callable[[int, int], None]]]:
    """A progress bar of episodes; yields the callbacks for a step that begins and for the counts."""

    def on_progress(what: str) -> None:
        progress.update(task, note=what)
        if what.startswith("no ") or not errors_console.is_terminal:  # warnings stay on screen; a log gets every line
            errors_console.print(plain(what))

    def on_episodes(played: int, planned: int) -> None:
        progress.update(task, completed=played, total=planned)

    hidden = not errors_console.is_terminal
    with Progress(*bar_columns(), console=errors_console, transient=True, disable=hidden) as progress:
        task = progress.add_task(title, total=None, note="")
        yield on_progress, on_episodes


def stage(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a finished run.")],
    hardware: HardwareOption,
    zoo: ZooOption = Path("hub_cards"),
    seeds: Annotated[
        list[Path] | None,
        typer.Option("--seed-run", help="A run of the same recipe with another seed; may be repeated."),
    ] = None,
    baselines: Annotated[
        list[Path] | None,
        typer.Option("--baseline", help="A run of a simpler method to show on the card; may be repeated."),
    ] = None,
    sweep_episodes: Annotated[
        int, typer.Option(min=0, help="Episodes for each of eight target returns; 0 leaves the sweep out.")
    ] = 20,
    studies: Annotated[
        list[Path] | None, typer.Option("--study", help="A study.json to show on the card; may be repeated.")
    ] = None,
    force: ForceOption = False,
    target: TargetOption = None,
    weights: Annotated[
        StoredAs | None,
        typer.Option(help=WEIGHTS_HELP, show_default="float16, or int8 if that is larger than --max-mb"),
    ] = None,
    max_mb: MaxOption = None,
    trust_env_module: TrustOption = False,
    trust_env_options: TrustOptionsOption = False,
) -> None:
    """Measure a finished run and write its Hub folder: weights, records, plot, video, card."""
    for named in (run, *(seeds or []), *(baselines or [])):
        require_finished(named)  # a typo is answered before the heavy imports
    from agentzoo.hub.stage import stage as run_stage

    with staging_progress("staging, episodes") as (on_progress, on_episodes):
        folder = run_stage(
            run,
            zoo,
            hardware,
            seeds=seeds or [],
            baselines=baselines or [],
            sweep_episodes=sweep_episodes,
            studies=studies or [],
            trust_env_module=trust_env_module,
            force=force,
            target=target,
            weights=weights,
            max_bytes=None if max_mb is None else int(1e6 * max_mb),
            on_progress=on_progress,
            on_episodes=on_episodes,
        )
    console.print(f"staged {plain(folder)}")


def remeasure(
    folder: FolderArg,
    target: TargetOption = None,
    history: HistoryOption = None,
    weights: Annotated[StoredAs | None, typer.Option(help=WEIGHTS_HELP, show_default="as they are")] = None,
    sweep_episodes: Annotated[
        int,
        typer.Option(
            min=0, help="Episodes for each of eight target returns, with another history or --weights; 0: none."
        ),
    ] = 20,
    drop_seeds: Annotated[
        bool, typer.Option("--drop-seeds", help="Drop the rows of other training seeds, whose weights are not there.")
    ] = False,
    trust_env_module: TrustOption = False,
    trust_env_options: TrustOptionsOption = False,
) -> None:
    """Give a staged agent another target return or history, or smaller weights, and measure it again."""
    require_folder(folder)
    from agentzoo.hub.remeasure import remeasure as run

    with staging_progress("measuring, episodes") as (on_progress, on_episodes):
        head = run(
            folder,
            target=target,
            history=history,
            weights=weights,
            sweep_episodes=sweep_episodes,
            drop_seeds=drop_seeds,
            trust_env_module=trust_env_module,
            on_progress=on_progress,
            on_episodes=on_episodes,
        )
    asked = f"asked for {amount(head.target_return)}, it returns {head.return_in_words()}"
    console.print(f"{plain(folder.resolve().name)}: {asked}")


def seeds(
    folder: FolderArg,
    runs: Annotated[
        list[Path],
        typer.Argument(metavar="RUN...", help="Folders of finished runs of its recipe, each with another seed."),
    ],
    trust_env_module: TrustOption = False,
    trust_env_options: TrustOptionsOption = False,
) -> None:
    """Measure runs with other training seeds and show them on a staged agent's card, beside its own."""
    require_folder(folder)
    for run in runs:
        require_finished(run)
    from agentzoo.hub.seed_rows import add_seeds

    with staging_progress("measuring, episodes") as (on_progress, on_episodes):
        results = add_seeds(
            folder, runs, trust_env_module=trust_env_module, on_progress=on_progress, on_episodes=on_episodes
        )
    table = Table("training seed", "score", "return", "episodes")
    for one in (results.headline, *results.seeds):
        table.add_row(str(one.training_seed), one.score_in_words(), one.return_in_words(), str(one.episodes))
    print_listing(table)
