"""`agentzoo search`: search hyperparameters of one recipe."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.live import Live
from rich.table import Table

from agentzoo.cli.console import errors_console, listing, plain, print_json, print_listing
from agentzoo.cli.grid import (
    AddressOption,
    CpusOption,
    EngineOption,
    GpusOption,
    JobsOption,
    device_of,
    make_engine,
    stoppable,
)
from agentzoo.cli.options import JsonOption, TrustOption, TrustOptionsOption, known_recipe
from agentzoo.errors import ConfigError
from agentzoo.text import amount

if TYPE_CHECKING:
    from agentzoo.recipe import Recipe
    from agentzoo.training.grid.search import Space, TrialResult

RecipeArg = Annotated[
    str, typer.Argument(metavar="AGENT", help="An id with a recipe, or a train_config.json.", callback=known_recipe)
]
SpaceOption = Annotated[
    list[str],
    typer.Option("--space", help="Values to try: FIELD=LOW..HIGH, FIELD=LOW..HIGH:log, FIELD=A,B,C; may be repeated."),
]
PrunerOption = Annotated[str, typer.Option("--pruner", help="Either halving, which stops poor trials early, or none.")]


def search(
    agent: RecipeArg,
    space: SpaceOption,
    trials: Annotated[int, typer.Option("--trials", min=1, help="Total number of runs.")] = 20,
    pruner: PrunerOption = "halving",
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="Change one field in all trials: section.field=value.")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of the sampled values.")] = 0,
    out: Annotated[Path | None, typer.Option("--out", help="Folder of trials. Default: runs/search-<agent>.")] = None,
    jobs: JobsOption = None,
    cpus: CpusOption = None,
    gpus: GpusOption = 0.0,
    address: AddressOption = None,
    engine: EngineOption = None,
    trust_env_module: TrustOption = False,
    trust_env_options: TrustOptionsOption = False,
    as_json: JsonOption = False,
) -> None:
    """Search hyperparameters of one recipe, ranked by short evaluations on seeds that no reported score uses."""
    from agentzoo.research.grid import read_dataset, run_task
    from agentzoo.training.grid.drive import only_driver
    from agentzoo.training.grid.search import search as run
    from agentzoo.training.grid.tasks import RunOptions

    chosen_pruner, recipe = _pruner(pruner), _recipe(agent, settings or [])
    wanted = _space(recipe, space, settings or [])
    out = out or Path("runs") / f"search-{recipe.agent_id}"
    with only_driver(out), stoppable():
        chosen, threads = make_engine(engine, address, jobs, cpus, gpus, None, out)
        with chosen, Live(console=errors_console, auto_refresh=False, transient=True) as live:
            if not address:
                read_dataset(recipe.data.dataset, recipe.data.obs_keys)

            def show(found: list[TrialResult]) -> None:
                if errors_console.is_terminal:
                    live.update(_trial_table(found), refresh=True)

            found = run(
                recipe,
                wanted,
                out,
                chosen,
                run_task,
                trials=trials,
                pruner=chosen_pruner,
                seed=seed,
                options=RunOptions(threads, device_of(gpus), trust_env_module, trust_env_options),
                on_change=show,
            )
    if as_json:
        print_json([one._asdict() for one in found])
    else:
        print_listing(_trial_table(found))
    _print_ends(agent, settings or [], found)
    if sum(one.state != "fail" for one in found) < trials:
        raise typer.Exit(1)


def _pruner(name: str) -> Literal["halving", "none"]:
    from agentzoo.errors import did_you_mean

    if name == "halving":
        return "halving"
    if name == "none":
        return "none"
    raise ConfigError(f"no pruner {name!r}.{did_you_mean(name, ('halving', 'none'))} Known: halving and none.")


def _recipe(agent: str, settings: list[str]) -> Recipe:
    """The recipe of all trials, with the data path and the precision of this machine."""
    from agentzoo.config import named_recipe
    from agentzoo.training.planning import with_data_here, with_free_precision

    return with_free_precision(with_data_here(named_recipe(agent).override(settings)), settings).pinned()


def _space(recipe: Recipe, space: list[str], settings: list[str]) -> Space:
    """The space of `--space`; raises ConfigError if it cannot be searched, or names a field of `--set`, too."""
    from agentzoo.training.grid.search import check_search, parse_space
    from agentzoo.training.planning import named_in

    wanted = parse_space(space)
    check_search(recipe, wanted)
    both = named_in(settings).intersection(wanted)
    if both:
        raise ConfigError(f"--set and --space both name {', '.join(sorted(both))}, which trials take from --space.")
    return wanted


def _print_ends(agent: str, fixed: list[str], found: list[TrialResult]) -> None:
    """Why trials failed, and the command that repeats the best one; `fixed`: the settings of all trials."""
    from agentzoo.training.grid.search import as_settings, best

    for one in found:
        if one.error:
            errors_console.print(plain(f"{one.folder} failed: {one.error}"))
    winner = best(found)
    if winner is not None:
        words = " ".join(f"--set {shlex.quote(setting)}" for setting in [*fixed, *as_settings(winner)])
        errors_console.print(f"best: agentzoo train {plain(agent)} {plain(words)}")


def _trial_table(found: list[TrialResult]) -> Table:
    table = listing("trial", "state", "updates", "last return", "settings")
    for one in sorted(found, key=lambda one: -float("inf") if one.value is None else one.value, reverse=True):
        value = "" if one.value is None else amount(one.value)
        settings = ", ".join(f"{name}={setting}" for name, setting in one.settings.items())
        table.add_row(one.folder, one.state, f"{one.updates:,}", value, plain(settings))
    return table
