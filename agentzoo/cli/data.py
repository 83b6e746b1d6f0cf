"""`agentzoo data`: build, list and show datasets. Heavy imports happen inside the commands."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from agentzoo.cli.console import (
    console,
    errors_console,
    listing,
    plain,
    print_facts,
    print_json,
    print_listing,
    progress_bar,
    word,
)
from agentzoo.cli.groups import CommandGroup
from agentzoo.cli.options import MAX_EPISODES, JsonOption, TokenOption
from agentzoo.data.names import absent, dataset_id, datasets_root, is_local, require_dataset_recipe, require_possible
from agentzoo.errors import AgentzooError, ConfigError, UnknownNameError
from agentzoo.text import amount, counted, duration, fixed

app = typer.Typer(
    cls=CommandGroup,
    no_args_is_help=True,
    help="Minari datasets: build, list, show, import, push; train behaviour policies.",
)

ROOM = 120  # terminal columns needed to show how a dataset was made beside its numbers

SeedOption = Annotated[
    int, typer.Option("--seed", min=0, help="Seed of every random choice; the same seed gives the same data.")
]
OverwriteOption = Annotated[bool, typer.Option("--overwrite", help="Replace an existing dataset with this id.")]


def _number(value: float | None) -> str:
    return "" if value is None else fixed(value, 1, ",")


@app.command("list")
def list_command(as_json: JsonOption = False) -> None:
    """List datasets with a recipe, built or not, and all other Minari datasets on this machine."""
    from dataclasses import asdict

    from agentzoo.data.summary import rows

    found = rows()
    if as_json:
        print_json([asdict(row) for row in found])
        return
    table = listing("dataset", "steps", "episodes", "mean", "best", "score")
    wide = console.width >= ROOM
    if wide:
        table.add_column("how it was made")
    for row in found:
        numbers = [f"({row.steps:,})" if row.steps else "", "not built", "", ""]
        if row.problem is not None:
            numbers = ["", "unreadable", "", ""]
        elif row.built:
            returns = [row.mean_return, row.best_return]
            numbers = [f"{row.steps:,}", f"{row.episodes:,}", *("" if r is None else amount(r, ",") for r in returns)]
        cells = [
            plain(row.dataset_id),
            *numbers,
            _number(row.mean_score),
            *([plain(row.made_by)] if wide else []),
        ]
        table.add_row(*cells, style="" if row.built else "dim")
    console.print(f"datasets in {plain(datasets_root())}")
    print_listing(table)
    for row in found:
        if row.problem is not None:
            console.print(f"{plain(row.dataset_id)}: {plain(row.problem)}")


@app.command()
def show(
    dataset: Annotated[str, typer.Argument(metavar="DATASET", help="A Minari id, or a recipe like hopper/medium.")],
    plot: Annotated[
        Path | None, typer.Option("--plot", help="Also draw the histogram of returns into this file.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show a dataset's episodes, steps and returns, computed from the data.

    A public one that is not on this machine is fetched.
    """
    require_possible(dataset)  # a typo is answered before the heavy imports
    from agentzoo.data import summary as summaries
    from agentzoo.data.remote import dataset_of

    summary = summaries.summarize(dataset_of(dataset))
    if plot is not None:
        summaries.plot(summary, plot)
    record = summary.as_tree()
    if as_json:
        print_json(record)
        return
    terminated = f"{100 * summary.terminated:.1f} % of them terminated"
    facts = {
        "environment": summary.env_id or "not recorded",
        "made by": summaries.made_by(summary.metadata) or "not recorded",
        "episodes": f"{record['episodes']:,}, {terminated}",
        "steps": f"{record['steps']:,}",
    }
    for key in ("build_command", "requirements", "obs_keys"):
        if key in summary.metadata:
            value = summary.metadata[key]
            facts[key.replace("_", " ")] = ", ".join(map(str, value)) if isinstance(value, list) else value
    print_facts(facts, title=summary.dataset_id)
    spread = listing("per episode", "mean", "std", *(f"{100 * q:.0f} %" for q in summaries.QUANTILES))
    for name in ("returns", "normalized", "lengths"):
        if record[name] is not None:
            values = record[name]
            cells = (values["mean"], values["std"], *values["quantiles"].values())
            spread.add_row(name, *(_number(cell) for cell in cells))
    print_listing(spread)
    console.print("returns, episodes in each bin", style="bold")
    for line in summaries.text_histogram(summary.returns):
        console.print(line)
    if plot is not None:
        console.print(f"picture: {plain(plot)}")


@app.command()
def build(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="A recipe like hopper/medium; `agentzoo data list` names all.")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Build every missing dataset.")] = False,
    sources: Annotated[
        Path | None,
        typer.Option("--sources", help="Folder of policies and replay buffers. Default: $AGENTZOO_SOURCES."),
    ] = None,
    steps: Annotated[
        int | None, typer.Option("--steps", min=1, help="Record at least this many environment steps.")
    ] = None,
    seed: SeedOption = 0,
    workers: Annotated[
        int, typer.Option("--workers", min=1, help="Number of processes; the data does not depend on it.")
    ] = 1,
    trust_policies: Annotated[
        bool,
        typer.Option("--trust-policies", help="Load policies from --sources or the Hub. They can run code."),
    ] = False,
    overwrite: OverwriteOption = False,
) -> None:
    """Build one dataset or all. Each is checked against its environment and written completely or not at all.

    With --all, datasets that fail are skipped and listed at the end, with exit status 1.
    """
    if (name is None) != everything:
        raise ConfigError("give either the NAME of a dataset or --all.")
    if name is not None:
        require_dataset_recipe(name)  # before the heavy imports
    from agentzoo.data.making.build import build as run
    from agentzoo.data.making.catalogue import DATASETS, find_recipe
    from agentzoo.data.making.dataset_recipe import BuildOptions

    recipes = list(DATASETS.values()) if name is None else [find_recipe(name)]
    skipped: list[str] = []
    for recipe in recipes:
        if everything and not overwrite and (datasets_root() / recipe.dataset_id).exists():
            console.print(f"{recipe.dataset_id} already exists", style="dim")
            continue
        asked = None if everything and recipe.steps is None else steps
        began, total = time.monotonic(), 0
        with progress_bar(recipe.name, recipe.planned(asked)) as advance:

            def count(done: int) -> None:
                nonlocal total
                total += done
                advance(done, f"{total / (time.monotonic() - began):,.0f} steps/s")  # noqa: B023  (used at once)

            options = BuildOptions(sources, asked, seed, workers, trust_policies, on_steps=count)
            try:
                made = run(recipe.name, options, overwrite=overwrite)
            except AgentzooError as error:
                if not everything:
                    raise
                skipped.append(f"{recipe.dataset_id}: {error}")
                continue
        console.print(f"{plain(made)}: {counted(total, 'step')} in {duration(time.monotonic() - began)}")
    _report_skipped(skipped, len(recipes))


def _report_skipped(skipped: list[str], of: int) -> None:
    if skipped:
        errors_console.print(f"skipped {len(skipped)} of {of}:", style="red")
        for line in skipped:
            errors_console.print(plain(line))
        raise SystemExit(1)


@app.command()
def behaviour(
    env: Annotated[
        str,
        typer.Argument(metavar="ENV", help="A Gymnasium id: Box spaces (SAC), or images and Discrete actions (PPO)."),
    ],
    threshold: Annotated[float, typer.Option("--threshold", help="Stop at this mean return of sampled actions.")],
    out: Annotated[Path | None, typer.Option("--out", help="Folder of the run. Default: behaviour/<env>.")] = None,
    max_steps: Annotated[
        int, typer.Option("--max-steps", min=1, help="Stop after this many environment steps in any case.")
    ] = 1_000_000,
    seed: SeedOption = 0,
    evaluate_every: Annotated[
        int, typer.Option("--every", min=1, help="Environment steps between evaluations.")
    ] = 10_000,
    episodes: Annotated[
        int, typer.Option("--episodes", min=1, max=MAX_EPISODES, help="Episodes of each evaluation.")
    ] = 10,
    learning_starts: Annotated[
        int, typer.Option("--learning-starts", min=0, help="Steps of random actions before SAC learns.")
    ] = 10_000,
    batch_size: Annotated[
        int, typer.Option("--batch-size", min=1, help="SAC's minibatch; half of it trains faster, with more noise.")
    ] = 256,
) -> None:
    """Train a policy from scratch (SAC; PPO for images) and keep every step.

    A stopped run continues, also with another --threshold or --max-steps.
    """
    from agentzoo.data.making.behaviour import train_behaviour
    from agentzoo.data.making.behaviour_record import BehaviourOptions, Score, short_name

    folder = out or Path("behaviour") / short_name(env)
    options = BehaviourOptions(threshold, max_steps, seed, evaluate_every, episodes, learning_starts, batch_size)
    done, note = 0, ""
    with progress_bar(f"a policy for {env}", max_steps) as advance:

        def on_steps(steps: int) -> None:
            nonlocal done
            advance(steps - done, note)
            done = steps

        def on_score(score: Score) -> None:
            nonlocal note
            note = f"return {score.mean:.1f} ± {score.std:.1f}"
            advance(0, note)

        record = train_behaviour(env, folder, options, on_steps, on_score)
    last = record.scores[-1]
    verdict = "reached" if last.mean >= threshold else "not reached"  # older folders do not store the threshold
    console.print(
        f"threshold {threshold:g} {verdict}: return {last.mean:.1f} ± {last.std:.1f} after "
        f"{counted(last.steps, 'step')}"
    )
    console.print(f"policy: {plain(folder / str(record.policy))}")
    console.print(f"replay: {plain(folder / str(record.replay))}, {counted(record.replay_episodes, 'episode')}")
    console.print(
        f"as a dataset: agentzoo data import {word(folder / str(record.replay))} --env {plain(env)} "
        "--id NAMESPACE/NAME-v0"
    )


@app.command("import")
def import_command(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="A D4RL .hdf5 file, the .npz of a replay buffer, or a folder of DQN's Atari replay (observation.gz).",
            exists=True,
        ),
    ],
    dataset_id: Annotated[str, typer.Option("--id", help="Minari id of the new dataset, e.g. d4rl/hopper/medium-v2.")],
    env: Annotated[str | None, typer.Option("--env", help="Gymnasium id of the environment to evaluate in.")] = None,
    limit: Annotated[
        int | None,
        typer.Option("--max-episode-steps", min=1, help="Length of an episode, if the file marks no timeouts."),
    ] = None,
    overwrite: OverwriteOption = False,
) -> None:
    """Import a file of another project as a Minari dataset."""
    from agentzoo.data.making.import_files import import_file
    from agentzoo.data.minari import open_dataset

    found: Any = import_file(file, dataset_id, env_id=env, max_episode_steps=limit, overwrite=overwrite)
    dataset = open_dataset(dataset_id, download=False)
    console.print(
        f"{plain(dataset_id)}: {counted(dataset.total_episodes, 'episode')}, {counted(dataset.total_steps, 'step')}"
    )
    if found.dropped_steps:
        console.print(
            f"left out the last {counted(found.dropped_steps, 'step')}: the file ends in the middle of their episode"
        )
    for note in found.notes:
        console.print(plain(note))


@app.command()
def push(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="A dataset on this machine: a Minari id, or hopper/medium.")
    ],
    org: Annotated[str, typer.Option("--org", help="The Hub account or organization to upload to.")],
    private: Annotated[
        bool, typer.Option("--private", help="Create a private repo; refuse one that is public.")
    ] = False,
    token: TokenOption = None,
    as_json: JsonOption = False,
) -> None:
    """Upload a dataset to a Hub in Minari's layout, so that Minari and agentzoo can load it from hf://."""
    found = dataset_id(name)
    if not is_local(found):
        raise UnknownNameError(absent(found))
    from agentzoo.hub.datasets import push_dataset

    with errors_console.status(f"pushing {plain(found)}"):
        done = push_dataset(found, org, token=token, private=private or None)
    if as_json:
        print_json(done._asdict())
        return
    console.print(f"{plain(done.url)}\n{done.bytes / 1e6:.1f} MB; `--dataset {plain(done.address)}` trains on it.")
