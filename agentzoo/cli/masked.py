"""`agentzoo research infer` and `agentzoo research unimask ...`: inference with masked agents, studies of Uni[MASK]."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from agentzoo.cli.console import console, errors_console, plain, print_json, print_listing, print_study, progress_bar
from agentzoo.cli.groups import CommandGroup
from agentzoo.cli.options import (
    MAX_EPISODES,
    MAX_THREADS,
    EpisodeSeedOption,
    JsonOption,
    RevisionOption,
    TrustOption,
    TrustOptionsOption,
    known_agent,
    load_agent,
)
from agentzoo.text import counted

app = typer.Typer(cls=CommandGroup, help="Studies of Uni[MASK].", no_args_is_help=True)


def infer(
    agent: Annotated[
        str, typer.Argument(metavar="AGENT", help="A masked agent: id, folder or Hub repo.", callback=known_agent)
    ],
    task: Annotated[str, typer.Option(help="One of past, future, bc, rc, goal, waypoint, forward, inverse.")] = "past",
    step: Annotated[
        int | None,
        typer.Option(min=0, help="Step of the window at which the task is asked, from 0. Default: the middle."),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the episode.")] = 0,
    start: Annotated[int, typer.Option(min=0, help="The window's first step in the episode.")] = 0,
    out: Annotated[Path, typer.Option("--out", help="Picture to write: .png, .pdf or .svg.")] = Path("answer.png"),
    revision: RevisionOption = None,
    trust_env_module: TrustOption = False,
    trust_env_options: TrustOptionsOption = False,
    as_json: JsonOption = False,
) -> None:
    """Play an episode, hide a part of one window as the task defines, and draw what the agent predicts for it."""
    from agentzoo.evaluation.answer_picture import draw_answer
    from agentzoo.evaluation.played_window import run_window
    from agentzoo.masked.answer import infer as ask_about
    from agentzoo.nn.masking import steps_of
    from agentzoo.plots import require_picture

    require_picture(out)
    loaded = load_agent(agent, revision, trust_env_module)
    loaded.require_masked("asked about a window")
    truth = run_window(loaded, seed, start, trust_env_module=trust_env_module)
    steps = steps_of(task, truth.mask.actions.shape[1])  # type: ignore[arg-type]  # `steps_of` checks the name
    at = (steps.first + steps.last + 1) // 2 if step is None else step
    answer = ask_about(loaded, window=truth, task=task, step=at)  # type: ignore[arg-type]
    draw_answer(answer, truth, out, f"{loaded.config.agent_id}: {task} at step {at}")
    if as_json:
        print_json(_as_tree(answer))
        return
    console.print(f"{task} at step {at} of {truth.mask.actions.shape[1]}: drawn in {plain(out)}")


def _as_tree(answer: Any) -> dict[str, Any]:
    observations = answer.observations
    if isinstance(observations, dict):
        tree: Any = {key: values.tolist() for key, values in observations.items()}
    else:
        tree = observations.tolist()
    shown = {name: values.tolist() for name, values in answer.window.mask._asdict().items()}
    return {"observations": tree, "actions": answer.actions.tolist(), "shown": shown}


@app.command()
def heatmap(
    out: Annotated[Path, typer.Option("--out", help="Folder of all runs and the result.")] = Path("runs/heatmap"),
    seeds: Annotated[
        list[int] | None, typer.Option("--seed", min=0, help="Training seed; may be repeated. Default: 0, 1 and 2.")
    ] = None,
    episodes: Annotated[int, typer.Option("--episodes", help="DoorKey trajectories: 50, 500 or 1000.")] = 500,
    epochs: Annotated[int, typer.Option("--epochs", min=1, help="Largest number of epochs per network.")] = 2_000,
    train: Annotated[
        bool, typer.Option("--train/--no-train", help="Train missing networks, or only draw finished ones.")
    ] = True,
    threads: Annotated[int, typer.Option("--threads", min=1, max=MAX_THREADS, help="CPU threads.")] = 1,
    as_json: JsonOption = False,
) -> None:
    """Train every network of the paper's DoorKey heat-map and test each on every task. A stopped run continues.

    Several of these commands can share a folder if their seeds differ.
    """
    import torch

    from agentzoo.data.minari import load_episodes
    from agentzoo.envs import DOORKEY_STEPS
    from agentzoo.evaluation.study import write_study
    from agentzoo.plots import require_picture
    from agentzoo.research.studies import heatmap as study
    from agentzoo.research.studies.heatmap_plot import draw_heatmap
    from agentzoo.store.files import write_atomic

    require_picture(out / study.PICTURE)
    torch.set_num_threads(threads)
    chosen = list(dict.fromkeys(seeds or [0, 1, 2]))
    if train:
        windows = study.held_out_windows(load_episodes(study.HELD_OUT), DOORKEY_STEPS)
        todo = [cell for seed in chosen for cell in study.cells(seed, episodes, epochs)]
        with progress_bar("updates", sum(cell.recipe.train.steps for cell in todo)) as bar:
            for cell in todo:
                done = 0

                def on_progress(update: int, cell: Any = cell) -> None:
                    nonlocal done
                    bar(update - done, cell.name)
                    done = update

                study.run_cell(cell, out, windows, on_progress)
                bar(cell.recipe.train.steps - done, cell.name)
    found = study.collect(out, chosen, episodes, epochs)
    write_atomic(out / "heatmap.json", found.to_json())
    draw_heatmap(found, out / study.PICTURE)
    draw_heatmap(found, out / "heatmap-normalized.png", relative=True)
    write_study(study.as_study(found), out)
    if as_json:
        print_json(found._asdict())
        return
    table = Table("trained on", *study.COLUMNS, title=f"validation loss, {episodes} trajectories, mean of seeds")
    for row, cells in found.means().items():
        table.add_row(row, *(f"{cells[c]:.3f}" if c in cells else "" for c in study.COLUMNS))
    print_listing(table)
    console.print(f"drawn in {plain(out / study.PICTURE)}")


@app.command()
def maze2d(
    agent: Annotated[
        str, typer.Argument(metavar="AGENT", help="A masked agent of the dense maze.", callback=known_agent)
    ],
    out: Annotated[Path, typer.Option("--out", help="Folder for the result.")] = Path("runs/maze2d"),
    episodes: Annotated[
        int, typer.Option("--episodes", "-n", min=2, max=MAX_EPISODES, help="Episodes for each way of acting.")
    ] = 100,
    seed: EpisodeSeedOption = 0,
    revision: RevisionOption = None,
    trust_env_module: TrustOption = False,
    trust_env_options: TrustOptionsOption = False,
    as_json: JsonOption = False,
) -> None:
    """Let one network act in three ways: behaviour cloning, return-conditioned, goal-conditioned."""
    from agentzoo.data.minari import load_episodes
    from agentzoo.errors import ConfigError
    from agentzoo.evaluation.study import write_study
    from agentzoo.research.studies.three_ways import as_study, three_ways

    loaded = load_agent(agent, revision, trust_env_module)
    if loaded.recipe is None:
        raise ConfigError(f"{agent} has no recipe, which names the dataset that the targets come from.")
    data = load_episodes(loaded.recipe.data.dataset, loaded.recipe.data.obs_keys)
    with errors_console.status(f"{counted(episodes, 'episode')} in three ways"):
        found = as_study(three_ways(loaded, data, episodes, seed, trust_env_module=trust_env_module), data)
    write_study(found, out)
    print_study(found, found.title, as_json)


@app.command()
def optimum(
    agent: Annotated[str, typer.Argument(metavar="AGENT", help="A staged agent of DoorKey.", callback=known_agent)],
    out: Annotated[Path, typer.Option("--out", help="Folder for the result.")] = Path("runs/optimum"),
    as_json: JsonOption = False,
) -> None:
    """Compare the stored episodes of a DoorKey agent with the best that their starts allow."""
    from agentzoo.evaluation.study import write_study
    from agentzoo.hub.records import read_records
    from agentzoo.research.studies.doorkey_optimum import optimum as compared
    from agentzoo.store.locate import find_agent

    found = compared(read_records(find_agent(agent))[2].headline)
    write_study(found, out)
    print_study(found, found.title, as_json)
