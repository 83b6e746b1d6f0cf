"""`agentzoo train` and `agentzoo finetune`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeElapsedColumn, TimeRemainingColumn

from agentzoo.cli.console import Words, console, errors_console, plain
from agentzoo.cli.options import RevisionOption, TargetOption, TrustOption

OutOption = Annotated[Path | None, typer.Option("--out", help="folder of the run; default runs/<agent>-s<seed>")]
SetOption = Annotated[list[str] | None, typer.Option("--set", help="section.field=value, e.g. train.steps=2000")]
SeedOption = Annotated[int | None, typer.Option("--seed", min=0, help="short for --set train.seed=N")]
ThreadsOption = Annotated[
    int | None, typer.Option("--threads", min=1, help="CPU threads; 1 makes runs repeat to the bit")
]
TrackerOption = Annotated[list[str] | None, typer.Option("--tracker", help="tensorboard, wandb or trackio; repeatable")]
DeviceOption = Annotated[str | None, typer.Option("--device", help="cpu or cuda; the fastest there is by default")]


def train(
    agent_id: Annotated[
        str,
        typer.Argument(metavar="AGENT", help="an id (`agentzoo list --all`), a run's folder or a train_config.json"),
    ],
    out: OutOption = None,
    settings: SetOption = None,
    target: TargetOption = None,
    seed: SeedOption = None,
    threads: ThreadsOption = None,
    tracker: TrackerOption = None,
    device: DeviceOption = None,
    trust_env_module: TrustOption = False,
) -> None:
    """Train an agent from its recipe. A run that was stopped goes on where its last checkpoint is."""
    from agentzoo.config import named_recipe
    from agentzoo.data.minari import load_episodes
    from agentzoo.data.targets import choose_target
    from agentzoo.training.machine import check_machine

    check_machine(device, tracker or ())
    recipe = named_recipe(agent_id).override(_settings(settings, seed)).pinned()
    out = out or _unfinished(agent_id)
    episodes = load_episodes(recipe.data.dataset, recipe.data.obs_keys)
    if target is not None:
        returns = episodes.best(recipe.data.best_fraction).returns
        recipe = recipe.asked_for(choose_target(target, returns, recipe.eval.env))
    _run(recipe, episodes, out, None, threads, tracker, device, trust_env_module)


def finetune(
    agent: Annotated[str, typer.Argument(metavar="AGENT", help="the agent to start from: id, folder or Hub repo")],
    dataset: Annotated[str | None, typer.Option("--dataset", help="Minari id of the data to train on")] = None,
    recipe_file: Annotated[
        Path | None, typer.Option("--recipe", help="train_config.json of a fine-tune to repeat, instead of --dataset")
    ] = None,
    name: Annotated[str | None, typer.Option("--name", help="id of the new agent; default <agent>-finetuned")] = None,
    steps: Annotated[int | None, typer.Option("--steps", min=1, help="updates; 3,000 by default")] = None,
    normalization: Annotated[
        str | None, typer.Option(help="keep, the default: the start's mean and std; dataset: of the new data")
    ] = None,
    revision: RevisionOption = None,
    reinit: Annotated[
        bool, typer.Option("--reinit", help="start layers of another shape afresh, leave out what has no place")
    ] = False,
    out: OutOption = None,
    settings: SetOption = None,
    seed: SeedOption = None,
    threads: ThreadsOption = None,
    tracker: TrackerOption = None,
    device: DeviceOption = None,
    trust_env_module: TrustOption = False,
) -> None:
    """Train a trained agent further, on other data."""
    from agentzoo.agent import Agent
    from agentzoo.config import read_recipe
    from agentzoo.data.minari import load_episodes
    from agentzoo.data.remote import dataset_of
    from agentzoo.errors import ConfigError
    from agentzoo.training.finetune import finetune_recipe, start_from
    from agentzoo.training.machine import check_machine

    check_machine(device, tracker or ())
    base = Agent.from_pretrained(agent, revision=revision, trust_env_module=trust_env_module)
    if dataset is not None and recipe_file is None:
        recipe = finetune_recipe(base, dataset_of(dataset), name, steps or 3_000, normalization or "keep", reinit)
    elif recipe_file is not None and dataset is None:
        given = {"--name": name, "--steps": steps, "--normalization": normalization, "--reinit": reinit or None}
        said = [option for option, value in given.items() if value is not None]
        if said:
            raise ConfigError(f"--recipe has it all; change it with --set instead of {', '.join(said)}.")
        recipe = read_recipe(recipe_file)
    else:
        raise ConfigError("name either the data, with --dataset, or a fine-tune to repeat, with --recipe.")
    recipe = recipe.override(_settings(settings, seed))
    episodes = load_episodes(recipe.data.dataset, recipe.data.obs_keys)
    start = start_from(base, recipe, episodes)
    _run(recipe, episodes, out, start, threads, tracker, device, trust_env_module, base.config.license)


def _unfinished(named: str) -> Path | None:
    """The folder that was named, if it is a run's: it goes on there. A staged agent is trained anew elsewhere."""
    from agentzoo.store.files import RECIPE, WEIGHTS
    from agentzoo.training.state import CHECKPOINT

    folder = Path(named)
    is_run = (folder / CHECKPOINT).is_file() or not (folder / WEIGHTS).exists()
    return folder if (folder / RECIPE).is_file() and is_run else None


def _settings(settings: list[str] | None, seed: int | None) -> list[str]:
    return [*(settings or []), *([f"train.seed={seed}"] if seed is not None else [])]


def _run(
    recipe: Any,
    episodes: Any,
    out: Path | None,
    start: Any,
    threads: int | None,
    trackers: list[str] | None,
    device: str | None,
    trust: bool,
    license_id: str = "mit",
) -> None:
    import torch

    from agentzoo.evaluation.during import check_environment, train_in
    from agentzoo.training.loop import Hooks

    if threads is not None:
        torch.set_num_threads(threads)
    check_environment(recipe, episodes, trust)
    folder = out or Path("runs") / f"{recipe.agent_id}-s{recipe.train.seed}"
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
    console.print(
        f"{recipe.agent_id}: {len(episodes):,} steps of {plain(recipe.data.dataset)} -> {plain(folder)}",
        highlight=False,
    )
    with Progress(*columns, console=errors_console) as progress:
        task = progress.add_task(recipe.agent_id, total=recipe.train.steps, rate="", loss="-", reached="")
        done = 0

        def on_resume(step: int) -> None:
            if step < recipe.train.steps:
                errors_console.print(f"going on from update {step:,}", highlight=False)
            on_step(step)

        def on_step(step: int) -> None:
            nonlocal done
            done = step
            progress.update(task, completed=step)

        def on_row(row: dict[str, Any]) -> None:
            progress.update(task, loss=f"{row['loss']:.4f}", rate=f"{row['steps_per_s']:.1f}/s")
            if row["eval_return"] is not None:
                score = row["eval_score"]
                reached = f"return {row['eval_return']:.1f}" if score is None else f"score {score:.1f}"
                progress.update(task, reached=reached)
                if not progress.console.is_terminal:  # a log file gets lines, a terminal the bar
                    errors_console.print(f"step {row['step']}: return {row['eval_return']:.1f}", highlight=False)

        hooks = Hooks(on_resume=on_resume, on_step=on_step, on_row=on_row)
        try:
            train_in(
                folder,
                recipe,
                episodes,
                start=start,
                hooks=hooks,
                trackers=trackers or (),
                device=device,
                trust_env_module=trust,
                license_id=license_id,
            )
        except KeyboardInterrupt:
            kept = done // recipe.train.checkpoint_every * recipe.train.checkpoint_every
            errors_console.print(
                f"stopped at update {done:,}; the same command goes on from update {kept:,}", highlight=False
            )
            raise
    console.print(
        f"done: `agentzoo evaluate {plain(folder)}` measures it, `agentzoo record {plain(folder)} demo.mp4` shows it."
    )
