"""`agentzoo train` and `agentzoo finetune`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from agentzoo.cli.options import RevisionOption, TargetOption, TrustOption, TrustOptionsOption

OutOption = Annotated[Path | None, typer.Option("--out", help="folder of the run; default runs/<agent>-s<seed>")]
SetOption = Annotated[list[str] | None, typer.Option("--set", help="section.field=value, e.g. train.steps=2000")]
SeedOption = Annotated[int | None, typer.Option("--seed", min=0, help="short for --set train.seed=N")]
ThreadsOption = Annotated[
    int | None,
    typer.Option("--threads", min=1, help="CPU threads; the free cores by default; 1 makes runs repeat to the bit"),
]
TrackOption = Annotated[list[str] | None, typer.Option("--track", help="tensorboard, wandb or trackio; repeatable")]
ProjectOption = Annotated[str | None, typer.Option("--project", help="of the tracker; the agent's id by default")]
RunNameOption = Annotated[str | None, typer.Option("--run-name", help="in the tracker; <agent>-s<seed> by default")]
GroupOption = Annotated[str | None, typer.Option("--group", help="group of runs in the tracker")]
TagsOption = Annotated[str | None, typer.Option("--tags", help="of the run in the tracker, with commas between them")]
DeviceOption = Annotated[
    str | None, typer.Option("--device", help="cpu, cuda, cuda:N or mps; the fastest there is by default")
]


def train(
    agent_id: Annotated[
        str,
        typer.Argument(
            metavar="AGENT",
            help="an id (`agentzoo list --all`), a run's folder or a train_config.json; with --dataset also a family",
        ),
    ],
    dataset: Annotated[
        str | None,
        typer.Option(
            "--dataset", help="data of your own: environment, target and scale come from it; an id or hf://..."
        ),
    ] = None,
    env: Annotated[str | None, typer.Option("--env", help="Gymnasium id, where the dataset does not name it")] = None,
    out: OutOption = None,
    settings: SetOption = None,
    target: TargetOption = None,
    seed: SeedOption = None,
    threads: ThreadsOption = None,
    track: TrackOption = None,
    project: ProjectOption = None,
    run_name: RunNameOption = None,
    group: GroupOption = None,
    tags: TagsOption = None,
    device: DeviceOption = None,
    trust_env_module: TrustOption = False,
    trust_env_options: TrustOptionsOption = False,
) -> None:
    """Train an agent from its recipe. A run that was stopped goes on where its last checkpoint is."""
    from agentzoo.cli.running import run_training, settings_of, tracking_of
    from agentzoo.training.machine import check_machine
    from agentzoo.training.planning import plan

    trackers = tracking_of(track, project, run_name, group, tags)
    check_machine(device, trackers.trackers)
    chosen = [*(settings or []), *([] if seed is None else [f"train.seed={seed}"])]
    recipe, episodes = plan(agent_id, dataset=dataset, env=env, target=target, settings=chosen)
    recipe = settings_of(recipe, [one for one in chosen if one.startswith("train.")], None).pinned()  # its precision
    if dataset is None:
        out = out or _unfinished(agent_id)
    run_training(recipe, episodes, out, None, threads, trackers, device, trust_env_module)


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
    track: TrackOption = None,
    project: ProjectOption = None,
    run_name: RunNameOption = None,
    group: GroupOption = None,
    tags: TagsOption = None,
    device: DeviceOption = None,
    trust_env_module: TrustOption = False,
    trust_env_options: TrustOptionsOption = False,
) -> None:
    """Train a trained agent further, on other data."""
    from agentzoo.agent import Agent
    from agentzoo.cli.running import run_training, settings_of, tracking_of
    from agentzoo.config import read_recipe
    from agentzoo.data.minari import load_episodes
    from agentzoo.data.remote import dataset_of
    from agentzoo.errors import ConfigError
    from agentzoo.training.finetune import finetune_recipe, start_from
    from agentzoo.training.machine import check_machine

    trackers = tracking_of(track, project, run_name, group, tags)
    check_machine(device, trackers.trackers)
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
    recipe = settings_of(recipe, settings, seed)
    episodes = load_episodes(recipe.data.dataset, recipe.data.obs_keys)
    start = start_from(base, recipe, episodes)
    licensed = base.config.license
    run_training(recipe, episodes, out, start, threads, trackers, device, trust_env_module, licensed, True)


def _unfinished(named: str) -> Path | None:
    """The folder that was named, if it is a run's: it goes on there. A staged agent is trained anew elsewhere."""
    from agentzoo.store.files import RECIPE, WEIGHTS
    from agentzoo.training.state import CHECKPOINT

    folder = Path(named)
    is_run = (folder / CHECKPOINT).is_file() or not (folder / WEIGHTS).exists()
    return folder if (folder / RECIPE).is_file() and is_run else None
