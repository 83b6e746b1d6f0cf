"""`agentzoo grid` and `agentzoo search`: many runs at once."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.live import Live
from rich.table import Table

from agentzoo.cli.console import console, errors_console, listing, plain, print_json, print_listing, print_study
from agentzoo.cli.options import JsonOption, TrustOption, TrustOptionsOption
from agentzoo.errors import ConfigError
from agentzoo.text import counted

if TYPE_CHECKING:
    from agentzoo.training.grid.drive import Engine
    from agentzoo.training.grid.plan import Plan
    from agentzoo.training.grid.search import TrialResult
    from agentzoo.training.grid.status import RunStatus

HELP = "Train many runs at once: agents x seeds.\n\n`agentzoo search` tries hyperparameters of one recipe the same way."
app = typer.Typer(help=HELP, rich_markup_mode=None)
STYLES = {"running": "cyan", "evaluating": "cyan", "done": "green", "failed": "red"}
MOST_SHOWN = 30  # rows of the live table

JobsOption = Annotated[int | None, typer.Option("--jobs", min=1, help="Runs side by side. Default: as many as fit.")]
CpusOption = Annotated[
    int | None, typer.Option("--cpus-per-run", min=1, help="Cores, and threads, of each run. Default: 1.")
]
GpusOption = Annotated[float, typer.Option("--gpus-per-run", min=0.0, help="GPUs of each run, e.g. 0.25; 0: CPUs.")]
AddressOption = Annotated[str | None, typer.Option("--address", help="Ray cluster to run on: HOST:PORT, or auto.")]
EngineOption = Annotated[
    str | None, typer.Option("--engine", help="Either local, the default, or ray: a Ray of its own on this machine.")
]
OutOption = Annotated[Path, typer.Option("--out", help="Folder of the runs' folders.")]


@app.callback(invoke_without_command=True)
def grid(
    context: typer.Context,
    agents: Annotated[
        str | None, typer.Option("--agents", help="Ids, patterns allowed: dt-hopper-medium,dm-*.")
    ] = None,
    file: Annotated[Path | None, typer.Option("--file", help="A grid.toml with a [[run]] for each row.")] = None,
    seeds: Annotated[str, typer.Option("--seeds", help="Training seeds, like 0-2,5.")] = "0",
    settings: Annotated[list[str] | None, typer.Option("--set", help="One field of all: section.field=value.")] = None,
    out: OutOption = Path("runs"),
    jobs: JobsOption = None,
    cpus: CpusOption = None,
    gpus: GpusOption = 0.0,
    address: AddressOption = None,
    engine: EngineOption = None,
    sync: Annotated[
        bool | None,
        typer.Option(
            "--sync/--shared", help="With Ray: send folders to the driver, or share --out. Default: found out."
        ),
    ] = None,
    evaluate: Annotated[int, typer.Option("--evaluate", min=0, help="Episodes to evaluate each finished run on.")] = 0,
    stage: Annotated[bool, typer.Option("--stage", help="Stage each agent with all its seeds in the end.")] = False,
    zoo: Annotated[Path, typer.Option("--zoo", help="Folder that staged agents go to.")] = Path("hub_cards"),
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before the start.")] = False,
    trust_env_module: TrustOption = False,
    trust_env_options: TrustOptionsOption = False,
) -> None:
    """Train all agents with all seeds, several at a time. The same command goes on with what is left."""
    if context.invoked_subcommand is not None:
        return
    from agentzoo.research import grid as work
    from agentzoo.training.grid.drive import only_driver
    from agentzoo.training.grid.plan import expand, make_plan, read_grid_file, write_plan

    if (agents is None) == (file is None):
        raise ConfigError("name either --agents or a --file.")
    rows = expand(agents, seeds, settings or ()) if agents else read_grid_file(file or Path(), settings or ())
    plan = make_plan(out, rows, evaluate)
    if stage:
        work.staging_groups(plan)
    with only_driver(out), _stoppable():
        with errors_console.status("starting"):
            chosen, threads = make_engine(engine, address, jobs, cpus, gpus, sync, out)
        with chosen:
            device = "cuda" if gpus else "cpu"
            if not address:
                with errors_console.status("reading the datasets") as status:
                    work.map_datasets(plan, lambda said: status.update(plain(said)))
            tasks = work.tasks_of(out, plan, threads, device, trust_env_module)
            _print_plan(out, plan, len(tasks), threads)
            if tasks and not yes and errors_console.is_terminal and not typer.confirm("start?", default=True, err=True):
                raise typer.Exit(1)
            write_plan(out, plan)
            _drive(out, plan, tasks, chosen, work.run_task)
        _finish(out, plan, work, stage, zoo, trust_env_module)


@app.command("status")
def status(
    out: Annotated[Path, typer.Argument(metavar="OUT", help="The grid's folder, as --out named it.")] = Path("runs"),
    as_json: JsonOption = False,
) -> None:
    """How far the runs of a grid are, from their files; works beside the grid and after it."""
    from agentzoo.training.grid.plan import read_plan
    from agentzoo.training.grid.status import grid_status

    found = grid_status(out, read_plan(out))
    if as_json:
        print_json([one._asdict() for one in found])
        return
    print_listing(status_table(found, f"grid in {out}"))
    for one in found:
        if one.error:
            console.print(f"{plain(one.folder)}: {plain(one.error)}")


def make_engine(
    engine: str | None,
    address: str | None,
    jobs: int | None,
    cpus: int | None,
    gpus: float,
    sync: bool | None,
    out: Path,
) -> tuple[Engine, int]:
    """The engine that the options name, and the threads of a run.

    Raises:
        ConfigError: an unknown engine, no Ray, no answer, or less than one run needs.
    """
    from agentzoo.errors import did_you_mean
    from agentzoo.training.grid.local import LocalEngine, cores

    known = ("local", "ray")
    if engine is not None and engine not in known:
        raise ConfigError(f"no engine {engine!r}.{did_you_mean(engine, known)} Known: local and ray.")
    if engine == "local" and address is not None:
        raise ConfigError("--address is of a Ray cluster, and --engine is local; leave one away.")
    if engine == "ray" or address is not None:
        from agentzoo.training.grid.cluster import RayEngine

        return RayEngine(out, address, jobs, cpus or 1, gpus, sync), cpus or 1
    here = cores()
    if cpus is None:
        cpus = max(1, here // jobs) if jobs else 1
    if cpus > here:
        raise ConfigError(f"a run needs {cpus} cores (--cpus-per-run), and this machine has {here}.")
    return LocalEngine(jobs or here // cpus, gpus), cpus


def status_table(found: list[RunStatus], title: str) -> Table:
    """A line a run: where it is and how fast it gets on."""
    done = sum(one.state == "done" for one in found)
    table = listing("run", "state", "update", "updates/s", "loss", "last score", "time left")
    table.title, table.title_justify = f"{plain(title)}: {done} of {len(found)} done", "left"
    for one in found:
        table.add_row(
            plain(one.folder),
            f"[{STYLES.get(one.state, 'default')}]{one.state}[/]",
            f"{one.step:,} / {one.steps:,}",
            "" if one.steps_per_second is None else f"{one.steps_per_second:.1f}",
            "" if one.loss is None else f"{one.loss:.4f}",
            "" if one.score is None else f"{one.score:.1f}",
            "" if one.state in ("done", "failed") else clock(one.seconds_left),
        )
    return table


def clock(seconds: float | None) -> str:
    """`1:02:03`; `?` where it is not known."""
    if seconds is None:
        return "?"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}"


def _print_plan(out: Path, plan: Plan, left: int, threads: int) -> None:
    from agentzoo.training.grid.status import estimated_seconds, is_done

    table = listing("run", "seed", "data", "updates", "priority", "hours left")
    estimated = estimated_seconds(out, plan)
    for row in plan.in_order():
        seconds = estimated[row.folder]
        ends = is_done(out / row.folder, plan.evaluate)
        table.add_row(
            plain(row.folder),
            str(row.recipe.train.seed),
            plain(row.recipe.data.dataset),
            f"{row.recipe.train.steps:,}",
            str(row.priority or ""),
            "done" if ends else "?" if seconds is None else f"{seconds / 3600:.2f}",
        )
    errors_console.print(f"{counted(len(plan.rows), 'run')} in {plain(out)}, {left} to do")
    print_listing(table, errors_console)
    hours = [seconds / 3600 for row in plan.rows if (seconds := estimated[row.folder]) is not None]
    errors_console.print(
        f"{sum(hours):.1f} hours of runs by the last steps a second known, {counted(threads, 'thread')} each"
    )


@contextmanager
def _stoppable() -> Iterator[None]:
    """SIGTERM, which batch systems send, ends a grid as Ctrl-C does."""

    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _drive(out: Path, plan: Plan, tasks: list[Any], engine: Engine, job: Callable[..., None]) -> None:
    from agentzoo.training.grid.drive import drive
    from agentzoo.training.grid.status import grid_status

    def say(text: str) -> None:
        errors_console.print(plain(text))

    def table(running: list[Path]) -> Table:
        found = grid_status(out.resolve(), plan, running)
        busy = [one for one in found if one.state != "done"]
        return status_table([*found] if len(found) <= MOST_SHOWN else busy[:MOST_SHOWN], f"grid in {out}")

    terminal = errors_console.is_terminal
    try:
        with Live(console=errors_console, auto_refresh=False, transient=True) as live:
            drive(
                tasks,
                engine,
                job,
                on_start=lambda task: None if terminal else say(f"started {task.folder.name}"),
                on_end=lambda outcome: say(f"{outcome.state}: {outcome.folder.name} {outcome.said}".rstrip()),
                on_tick=lambda running: live.update(table(running), refresh=True) if terminal else None,
            )
    except KeyboardInterrupt:
        say("stopped; the same command goes on from the last checkpoints")
        raise


def _finish(out: Path, plan: Plan, work: Any, stage: bool, zoo: Path, trust: bool) -> None:
    with errors_console.status("comparing"):
        summary = work.summarize(out, plan, trust)
    if summary.study is not None:
        print_study(summary.study, summary.study.title)
    errors_console.print(f"all runs: {plain(out / work.RESULTS_JSON)} and {plain(out / work.RESULTS_CSV)}")
    if summary.remark:
        errors_console.print(plain(summary.remark))
    failed = [row for row in summary.rows if row["state"] != "done"]
    for row in failed:
        errors_console.print(f"[red]{row['state']}[/] {plain(row['folder'])}: {plain(row['error'])}")
        for line in row["log"]:
            errors_console.print(f"    {plain(line)}")
    if stage:
        with errors_console.status("staging") as status:
            done = work.stage_finished(out, plan, zoo, trust, lambda said: status.update(plain(said)))
        for folder in done:
            errors_console.print(f"staged {plain(folder)}")
    if failed:
        raise typer.Exit(1)


def search(
    agent: Annotated[str, typer.Argument(metavar="AGENT", help="An id with a recipe, or a train_config.json.")],
    space: Annotated[
        list[str],
        typer.Option(
            "--space", help="Values to try: FIELD=LOW..HIGH, FIELD=LOW..HIGH:log or FIELD=A,B,C; may be repeated."
        ),
    ],
    trials: Annotated[int, typer.Option("--trials", min=1, help="Runs in all.")] = 20,
    pruner: Annotated[
        str, typer.Option("--pruner", help="Either halving, which stops poor trials early, or none.")
    ] = "halving",
    settings: Annotated[list[str] | None, typer.Option("--set", help="One field of all: section.field=value.")] = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of the values that are drawn.")] = 0,
    out: Annotated[Path | None, typer.Option("--out", help="Folder of trials. Default: runs/search-<agent>.")] = None,
    jobs: JobsOption = None,
    cpus: CpusOption = None,
    gpus: GpusOption = 0.0,
    address: AddressOption = None,
    engine: EngineOption = None,
    trust_env_module: TrustOption = False,
    as_json: JsonOption = False,
) -> None:
    """Search hyperparameters of one recipe by its short evaluations, on seeds that headline numbers never use."""
    from agentzoo.config import named_recipe
    from agentzoo.data.mapped import map_dataset
    from agentzoo.errors import did_you_mean
    from agentzoo.research.grid import run_task
    from agentzoo.training.grid.drive import only_driver
    from agentzoo.training.grid.search import as_settings, best, check_search, parse_space
    from agentzoo.training.grid.search import search as run

    known = ("halving", "none")
    if pruner not in known:
        raise ConfigError(f"no pruner {pruner!r}.{did_you_mean(pruner, known)} Known: halving and none.")
    recipe = named_recipe(agent).override(settings or ()).pinned()
    wanted = parse_space(space)
    check_search(recipe, wanted)
    out = out or Path("runs") / f"search-{recipe.agent_id}"
    with only_driver(out), _stoppable():
        chosen, threads = make_engine(engine, address, jobs, cpus, gpus, None, out)
        with chosen, Live(console=errors_console, auto_refresh=False, transient=True) as live:
            if not address:
                map_dataset(recipe.data.dataset, recipe.data.obs_keys)

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
                pruner="halving" if pruner == "halving" else "none",
                seed=seed,
                threads=threads,
                device="cuda" if gpus else "cpu",
                trust_env_module=trust_env_module,
                on_change=show,
            )
    if as_json:
        print_json([one._asdict() for one in found])
    else:
        print_listing(_trial_table(found))
    winner = best(found)
    if winner is not None:
        words = " ".join(f"--set {setting}" for setting in as_settings(winner))
        errors_console.print(f"best: agentzoo train {plain(agent)} {plain(words)}")
    if any(one.state == "fail" for one in found):
        raise typer.Exit(1)


def _trial_table(found: list[TrialResult]) -> Table:
    table = listing("trial", "state", "updates", "last return", "settings")
    for one in sorted(found, key=lambda one: -float("inf") if one.value is None else one.value, reverse=True):
        value = "" if one.value is None else f"{one.value:.1f}"
        settings = ", ".join(f"{name}={setting}" for name, setting in one.settings.items())
        table.add_row(one.folder, one.state, f"{one.updates:,}", value, plain(settings))
    return table
