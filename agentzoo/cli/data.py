"""`agentzoo data`: make, list and look at datasets. Heavy imports happen inside the commands."""

from __future__ import annotations

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
)
from agentzoo.cli.groups import Whole
from agentzoo.cli.options import JsonOption, TokenOption
from agentzoo.text import amount, counted, duration

app = typer.Typer(
    cls=Whole, no_args_is_help=True, help="Minari datasets: build, list, show, import; train behaviour policies."
)

ROOM = 120  # columns of a terminal that words about a dataset have room in, beside its numbers

SeedOption = Annotated[
    int, typer.Option("--seed", min=0, help="Seed of every random choice; the same seed gives the same data.")
]
OverwriteOption = Annotated[bool, typer.Option("--overwrite", help="Replace the dataset of this id.")]


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:,.1f}"


@app.command("list")
def list_command(as_json: JsonOption = False) -> None:
    """Datasets with a recipe, built or not, and every other Minari dataset on this machine."""
    from dataclasses import asdict

    from agentzoo.data.minari import datasets_root
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
    """Episodes, steps, returns and their spread, from the data itself."""
    from agentzoo.data import summary as summaries
    from agentzoo.data.making.catalogue import DATASETS
    from agentzoo.data.remote import dataset_of

    summary = summaries.summarize(DATASETS[dataset].dataset_id if dataset in DATASETS else dataset_of(dataset))
    if plot is not None:
        summaries.plot(summary, plot)
    record = summary.to_json()
    if as_json:
        print_json(record)
        return
    terminated = f"{100 * summary.terminated:.1f} % of them terminated"
    facts = {
        "environment": summary.env_id or "not recorded",
        "made by": summary.metadata.get("description", ""),
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
    everything: Annotated[bool, typer.Option("--all", help="Make every dataset that is not there yet.")] = False,
    sources: Annotated[
        Path | None,
        typer.Option("--sources", help="Folder of policies and replay buffers. Default: $AGENTZOO_SOURCES."),
    ] = None,
    steps: Annotated[
        int | None, typer.Option("--steps", min=1, help="Make at least this many environment steps.")
    ] = None,
    seed: SeedOption = 0,
    workers: Annotated[
        int, typer.Option("--workers", min=1, help="Processes that share the work; the data does not depend on it.")
    ] = 1,
    trust_policies: Annotated[
        bool,
        typer.Option("--trust-policies", help="Load policies of --sources or the Hub, which run the code they hold."),
    ] = False,
    overwrite: OverwriteOption = False,
) -> None:
    """Make one dataset, or all; each appears whole or not at all, checked against the environment.

    With --all, what cannot be made is left out and listed in the end, with status 1.
    """
    import time

    from agentzoo.data.making.build import build as run
    from agentzoo.data.making.catalogue import DATASETS, BuildOptions, find_recipe
    from agentzoo.data.minari import datasets_root
    from agentzoo.errors import AgentzooError, ConfigError

    if (name is None) != everything:
        raise ConfigError("give either the NAME of a dataset or --all.")
    recipes = list(DATASETS.values()) if name is None else [find_recipe(name)]
    left_out: list[str] = []
    for recipe in recipes:
        if everything and not overwrite and (datasets_root() / recipe.dataset_id).exists():
            console.print(f"{recipe.dataset_id} is there already", style="dim")
            continue
        asked = None if everything and recipe.steps is None else steps
        began, total = time.monotonic(), 0
        with progress_bar(recipe.name, asked or recipe.steps) as advance:

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
                left_out.append(f"{recipe.dataset_id}: {error}")
                continue
        console.print(f"{plain(made)}: {counted(total, 'step')} in {duration(time.monotonic() - began)}")
    _report_left_out(left_out, len(recipes))


def _report_left_out(left_out: list[str], of: int) -> None:
    if left_out:
        errors_console.print(f"left out {len(left_out)} of {of}:", style="red")
        for line in left_out:
            errors_console.print(plain(line))
        raise SystemExit(1)


@app.command()
def behaviour(
    env: Annotated[str, typer.Argument(metavar="ENV", help="A Gymnasium id with Box observations and actions.")],
    threshold: Annotated[float, typer.Option("--threshold", help="Stop at this mean return, actions sampled.")],
    out: Annotated[Path | None, typer.Option("--out", help="Folder of the run. Default: behaviour/<env>.")] = None,
    max_steps: Annotated[
        int, typer.Option("--max-steps", min=1, help="Stop after this many environment steps anyway.")
    ] = 1_000_000,
    seed: SeedOption = 0,
    evaluate_every: Annotated[
        int, typer.Option("--every", min=1, help="Evaluate every so many environment steps.")
    ] = 10_000,
    episodes: Annotated[int, typer.Option("--episodes", min=1, help="Episodes of each evaluation.")] = 10,
    learning_starts: Annotated[
        int, typer.Option("--learning-starts", min=0, help="Steps of random actions before learning starts.")
    ] = 10_000,
) -> None:
    """Train a SAC policy from scratch and keep all it saw; a run that was stopped goes on."""
    from agentzoo.data.making.behaviour import BehaviourOptions, Score, short_name, train_behaviour

    folder = out or Path("behaviour") / short_name(env)
    options = BehaviourOptions(threshold, max_steps, seed, evaluate_every, episodes, learning_starts)
    done, note = 0, ""
    with progress_bar(f"SAC on {env}", max_steps) as advance:

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
    verdict = "reached" if last.mean >= threshold else "not reached"  # folders of before keep no threshold
    console.print(
        f"threshold {threshold:g} {verdict}: return {last.mean:.1f} ± {last.std:.1f} after "
        f"{counted(last.steps, 'step')}"
    )
    console.print(f"policy: {plain(folder / str(record.policy))}")
    console.print(f"replay: {plain(folder / str(record.replay))}, {counted(record.replay_episodes, 'episode')}")
    console.print(
        f"as a dataset: agentzoo data import {plain(folder / str(record.replay))} --env {plain(env)} "
        "--id NAMESPACE/NAME-v0"
    )


@app.command("import")
def import_command(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="A D4RL .hdf5 file, or the .npz of a replay buffer.", exists=True)
    ],
    dataset_id: Annotated[str, typer.Option("--id", help="Minari id of the new dataset, e.g. d4rl/hopper/medium-v2.")],
    env: Annotated[str | None, typer.Option("--env", help="Gymnasium id of the environment to evaluate in.")] = None,
    limit: Annotated[
        int | None,
        typer.Option("--max-episode-steps", min=1, help="Length of an episode, where the file marks no timeouts."),
    ] = None,
    overwrite: OverwriteOption = False,
) -> None:
    """Turn a file of another project into a Minari dataset."""
    from agentzoo.data.making.importing import import_file
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
        str, typer.Argument(metavar="NAME", help="A dataset of this machine: a Minari id, or hopper/medium.")
    ],
    org: Annotated[str, typer.Option("--org", help="The Hub account or organization it goes to.")],
    private: Annotated[bool, typer.Option("--private", help="Create the repo as a private one.")] = False,
    token: TokenOption = None,
    as_json: JsonOption = False,
) -> None:
    """Upload a dataset to a Hub in Minari's own layout, so that Minari and agentzoo load it from hf://."""
    from agentzoo.data.making.catalogue import DATASETS
    from agentzoo.hub.datasets import push_dataset

    dataset_id = DATASETS[name].dataset_id if name in DATASETS else name
    with console.status(f"pushing {plain(dataset_id)}"):
        done = push_dataset(dataset_id, org, token=token, private=private or None)
    if as_json:
        print_json(done._asdict())
        return
    console.print(f"{plain(done.url)}\n{done.bytes / 1e6:.1f} MB; `--dataset {plain(done.address)}` trains on it.")
