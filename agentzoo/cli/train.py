"""`agentzoo train` and `agentzoo finetune`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agentzoo.cli.options import (
    MAX_THREADS,
    DeviceOption,
    RevisionOption,
    TargetOption,
    TrustOption,
    TrustOptionsOption,
    folder_path,
    known_agent,
    possible_dataset,
)
from agentzoo.data.names import require_possible
from agentzoo.errors import UnknownNameError
from agentzoo.registry import family_names

if TYPE_CHECKING:
    from agentzoo.agent import Agent
    from agentzoo.data.episodes import Episodes
    from agentzoo.recipe import Recipe

EnvOption = Annotated[str | None, typer.Option("--env", help="Gymnasium id, if the dataset does not name it.")]
OutOption = Annotated[
    Path | None,
    typer.Option(
        "--out", parser=folder_path, metavar="<path>", help="Folder of the run. Default: runs/<agent>-s<seed>."
    ),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", help="Change one field: section.field=value, e.g. train.steps=2000; may be repeated."),
]
SeedOption = Annotated[int | None, typer.Option("--seed", min=0, help="Training seed; short for --set train.seed=N.")]
ThreadsOption = Annotated[
    int | None,
    typer.Option(
        "--threads",
        min=1,
        max=MAX_THREADS,
        help="CPU threads; 1 makes runs repeat bit for bit. Default: the free cores.",
    ),
]
TrackOption = Annotated[
    list[str] | None, typer.Option("--track", help="One of tensorboard, wandb, trackio; may be repeated.")
]
ProjectOption = Annotated[
    str | None, typer.Option("--project", help="Project of the tracker. Default: the agent's id.")
]
RunNameOption = Annotated[
    str | None, typer.Option("--run-name", help="Name of the run in the tracker. Default: <agent>-s<seed>.")
]
GroupOption = Annotated[str | None, typer.Option("--group", help="Group of runs in the tracker.")]
TagsOption = Annotated[str | None, typer.Option("--tags", help="Tags of the run in the tracker, separated by commas.")]
GraphOption = Annotated[
    bool,
    typer.Option("--cuda-graph", help="Replay loss and gradients as a CUDA graph: faster for small networks on a GPU."),
]


def train(
    agent_id: Annotated[
        str,
        typer.Argument(
            metavar="AGENT",
            help="An id (`agentzoo list --all`), a run's folder or a train_config.json; with --dataset also a family.",
        ),
    ],
    dataset: Annotated[
        str | None,
        typer.Option("--dataset", help="Your own dataset, an id or hf://...; it sets environment, target and scale."),
    ] = None,
    env: EnvOption = None,
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
    cuda_graph: GraphOption = False,
    trust_env_module: TrustOption = False,
    trust_env_options: TrustOptionsOption = False,
) -> None:
    """Train an agent from its recipe. A stopped run continues from its last checkpoint."""
    from agentzoo.recipes._table import require_recipe, require_template

    if dataset is None:
        _require_no_family(agent_id)
        require_recipe(agent_id)  # reports a typo before the heavy imports
    else:
        require_template(agent_id)
        require_possible(dataset)
    from agentzoo.cli.running import run_training, settings_with, tracking_of
    from agentzoo.training.machine import check_machine
    from agentzoo.training.planning import plan
    from agentzoo.training.settle import run_to_continue

    trackers = tracking_of(track, project, run_name, group, tags)
    check_machine(device, trackers.trackers, cuda_graph)
    chosen = settings_with(settings, seed)
    recipe, episodes = plan(
        agent_id, dataset=dataset, env=env, target=target, settings=chosen, trust_env_module=trust_env_module
    )
    if dataset is None:
        out = out or run_to_continue(agent_id)
    run_training(
        recipe.pinned(),
        episodes,
        out,
        threads=threads,
        trackers=trackers,
        device=device,
        cuda_graph=cuda_graph,
        trust=trust_env_module,
    )


def _require_no_family(named: str) -> None:
    """Raise UnknownNameError for a family, which is trained on a dataset that the user names."""
    if named in family_names() and not Path(named).exists():
        raise UnknownNameError(
            f"{named!r} is a family, not an agent: name your data with --dataset, or an agent (`agentzoo list --all`)."
        )


StartArg = Annotated[
    str,
    typer.Argument(
        metavar="AGENT",
        help="The agent to start from: id, folder or Hub repo.",
        callback=known_agent,
        is_eager=True,  # a typo here is reported before one in --dataset
    ),
]
NewDataOption = Annotated[
    str | None, typer.Option("--dataset", help="Data to train on: an id or hf://...", callback=possible_dataset)
]
NewEnvOption = Annotated[
    str | None, typer.Option("--env", help="Gymnasium id. Default: the dataset's, else the agent's.")
]
NewTargetOption = Annotated[
    str | None, typer.Option("--target", help="A number, max, p90 or d4rl. Default: the data's, by the agent's rule.")
]


def finetune(
    agent: StartArg,
    dataset: NewDataOption = None,
    recipe_file: Annotated[
        Path | None,
        typer.Option("--recipe", help="A train_config.json of a fine-tune to repeat, instead of --dataset."),
    ] = None,
    name: Annotated[str | None, typer.Option("--name", help="Id of the new agent. Default: <agent>-finetuned.")] = None,
    steps: Annotated[int | None, typer.Option("--steps", min=1, help="Updates to make. Default: 3,000.")] = None,
    normalization: Annotated[
        str | None,
        typer.Option(
            help="Mean and std of observations: keep (default), the base agent's; dataset, those of the new data."
        ),
    ] = None,
    revision: RevisionOption = None,
    reinit: Annotated[
        bool, typer.Option("--reinit", help="Start layers whose shape differs from the agent's from random weights.")
    ] = False,
    env: NewEnvOption = None,
    target: NewTargetOption = None,
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
    cuda_graph: GraphOption = False,
    trust_env_module: TrustOption = False,
    trust_env_options: TrustOptionsOption = False,
) -> None:
    """Continue the training of an agent on other data."""
    from agentzoo.agent import Agent
    from agentzoo.cli.running import run_training, settings_with, tracking_of
    from agentzoo.training.finetune import start_from
    from agentzoo.training.machine import check_machine

    trackers = tracking_of(track, project, run_name, group, tags)
    check_machine(device, trackers.trackers, cuda_graph)
    base = Agent.from_pretrained(agent, revision=revision, trust_env_module=trust_env_module)
    chosen = settings_with(settings, seed)
    asked: dict[str, Any] = {"name": name, "steps": steps, "normalization": normalization, "env": env, "target": target}
    asked["reinit"] = reinit
    recipe, episodes = _planned(base, dataset, recipe_file, asked, chosen, trust_env_module)
    run_training(
        recipe,
        episodes,
        out,
        start=start_from(base, recipe, episodes),
        threads=threads,
        trackers=trackers,
        device=device,
        cuda_graph=cuda_graph,
        trust=trust_env_module,
        license_id=base.config.license,
    )


def _planned(
    base: Agent, dataset: str | None, recipe_file: Path | None, asked: dict[str, Any], settings: list[str], trust: bool
) -> tuple[Recipe, Episodes]:
    """The recipe and data of a new fine-tune, or of one to repeat. ConfigError: neither is named, or both."""
    from agentzoo.errors import ConfigError
    from agentzoo.training.finetune import plan_finetune, plan_repeat

    if dataset is not None and recipe_file is None:
        return plan_finetune(base, dataset, settings=settings, trust_env_module=trust, **asked)
    if recipe_file is not None and dataset is None:
        return plan_repeat(_repeated(recipe_file, asked), settings)
    raise ConfigError("name either the data, with --dataset, or a fine-tune to repeat, with --recipe.")


def _repeated(recipe_file: Path, given: dict[str, Any]) -> Recipe:
    """The recipe of a fine-tune to repeat; other options raise ConfigError."""
    from agentzoo.config import read_recipe
    from agentzoo.errors import ConfigError

    options = [f"--{option}" for option, value in given.items() if value is not None and value is not False]
    if options:
        raise ConfigError(f"--recipe sets everything; change a field of it with --set instead of {', '.join(options)}.")
    return read_recipe(recipe_file)
