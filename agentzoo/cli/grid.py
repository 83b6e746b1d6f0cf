"""`agentzoo grid`: train many runs at once."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.live import Live
from rich.table import Table

from agentzoo.cli.console import errors_console, listing, plain, print_listing, print_study
from agentzoo.cli.grid_status import only_shows, status
from agentzoo.cli.grid_table import live_table
from agentzoo.cli.options import TargetOption, TrustOption, TrustOptionsOption, ZooOption, folder_path, is_given
from agentzoo.cli.train import EnvOption, GraphOption, GroupOption, ProjectOption, TagsOption, TrackOption
from agentzoo.errors import ConfigError
from agentzoo.text import counted, duration

if TYPE_CHECKING:
    from agentzoo.training.grid.drive import Engine
    from agentzoo.training.grid.plan import OwnData, Plan, Row
    from agentzoo.training.tracking import Tracking

HELP = "Train many runs at once: agents x seeds.\n\n`agentzoo search` tries hyperparameters of one recipe the same way."
app = typer.Typer(help=HELP, rich_markup_mode=None)
app.command("status")(status)

JobsOption = Annotated[
    int | None, typer.Option("--jobs", min=1, help="Runs at the same time. Default: as many as fit.")
]
CpusOption = Annotated[
    int | None,
    typer.Option(
        "--cpus-per-run",
        min=1,
        help="Cores and threads per run. Default: 1; with --jobs, without Ray, an equal share of the cores.",
    ),
]
GpusOption = Annotated[float, typer.Option("--gpus-per-run", min=0.0, help="GPUs per run, e.g. 0.25; 0: CPU only.")]
AddressOption = Annotated[str | None, typer.Option("--address", help="Ray cluster to run on: HOST:PORT, or auto.")]
EngineOption = Annotated[
    str | None, typer.Option("--engine", help="Either local, the default, or ray: start Ray on this machine.")
]
OutOption = Annotated[
    Path,
    typer.Option("--out", parser=folder_path, metavar="<path>", help="Folder that holds the folders of all runs."),
]
SyncOption = Annotated[
    bool | None,
    typer.Option("--sync/--shared", help="With Ray: send folders to the driver, or share --out. Default: detected."),
]
FileOption = Annotated[Path | None, typer.Option("--file", help="A grid.toml with a [[run]] for each row.")]


def _known_agents(context: typer.Context, agents: str | None) -> str | None:
    """`agents` unchanged; reports a typo before any heavy import. Families are known only with --dataset."""
    from agentzoo.recipes._table import require_recipe, require_template

    for part in filter(None, (agents or "").split(",")):
        if not set(part) & set("*?["):
            (require_template if context.params.get("dataset") else require_recipe)(part.strip())
    return agents


AgentsOption = Annotated[
    str | None,
    typer.Option(
        "--agents",
        help="Ids, patterns allowed: dt-hopper-medium,dm-*; with --dataset also families.",
        callback=_known_agents,
    ),
]
SettingsOption = Annotated[
    list[str] | None, typer.Option("--set", help="Change one field in all recipes: section.field=value.")
]
EvaluateOption = Annotated[
    int, typer.Option("--evaluate", min=0, help="Episodes in the evaluation of each finished run.")
]
DatasetsOption = Annotated[
    str | None,
    typer.Option(
        "--dataset", is_eager=True, help="Your own datasets, ids separated by commas: each agent trains on each."
    ),
]


@app.callback(invoke_without_command=True)
def grid(
    context: typer.Context,
    agents: AgentsOption = None,
    file: FileOption = None,
    seeds: Annotated[str | None, typer.Option("--seeds", help="Training seeds, like 0-2,5. Default: 0.")] = None,
    dataset: DatasetsOption = None,
    env: EnvOption = None,
    target: TargetOption = None,
    settings: SettingsOption = None,
    out: OutOption = Path("runs"),
    jobs: JobsOption = None,
    cpus: CpusOption = None,
    gpus: GpusOption = 0.0,
    cuda_graph: GraphOption = False,
    address: AddressOption = None,
    engine: EngineOption = None,
    sync: SyncOption = None,
    evaluate: EvaluateOption = 0,
    stage: Annotated[bool, typer.Option("--stage", help="At the end, stage each agent with all its seeds.")] = False,
    zoo: ZooOption = Path("hub_cards"),
    track: TrackOption = None,
    project: ProjectOption = None,
    group: GroupOption = None,
    tags: TagsOption = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Start without asking.")] = False,
    trust_env_module: TrustOption = False,
    trust_env_options: TrustOptionsOption = False,
) -> None:
    """Train all agents with all seeds, several at a time. Run the same command again to continue."""
    if only_shows(context):
        return
    from agentzoo.cli.running import tracking_of
    from agentzoo.research import grid as work
    from agentzoo.training.grid.drive import only_driver
    from agentzoo.training.grid.plan import OwnData, datasets_in, make_plan, write_plan
    from agentzoo.training.grid.tasks import RunOptions

    tracking = tracking_of(track, project, None, group, tags)
    _check_options(context, tracking, gpus, cuda_graph)
    with _status("reading the recipes") as say:
        own = OwnData(datasets_in(dataset), env, target, partial(work.read_dataset, on_progress=say), trust_env_module)
        plan = make_plan(out, _rows(agents, file, seeds, settings or [], own), evaluate)
        if not address:
            work.check_datasets(plan)
    if stage:
        work.check_staging(plan, zoo)
    with only_driver(out), stoppable():
        with _status("starting"):
            chosen, threads = make_engine(engine, address, jobs, cpus, gpus, sync, out)
        with chosen:
            if not address:
                with _status("reading the datasets") as say:
                    work.map_datasets(plan, say)
            options = RunOptions(threads, device_of(gpus), trust_env_module, trust_env_options, tracking, cuda_graph)
            tasks = work.tasks_of(out, plan, options)
            _print_plan(out, plan, len(tasks), threads)
            _confirm(yes or not tasks)
            write_plan(out, plan)
            _drive(out, plan, tasks, chosen, work.run_task)
        _finish(out, plan, stage, zoo, trust_env_module)


def device_of(gpus: float) -> str:
    """The device of runs that have this many GPUs each."""
    return "cuda" if gpus else "cpu"


def _check_options(context: typer.Context, tracking: Tracking, gpus: float, cuda_graph: bool) -> None:
    """Raise ConfigError if this machine lacks a tracker, or an option has no effect beside the others."""
    from agentzoo.training.machine import check_machine

    check_machine(None, tracking.trackers)
    if cuda_graph and not gpus:
        raise ConfigError("--cuda-graph needs a GPU: --gpus-per-run 1 gives each run one.")
    asked = context.params
    if is_given(context, "zoo") and not asked["stage"]:
        raise ConfigError("--zoo has no effect without --stage; stage the agents at the end, or omit it.")
    if asked["sync"] is not None and asked["address"] is None and asked["engine"] != "ray":
        raise ConfigError("--sync and --shared have no effect without Ray: add --engine ray or --address, or omit it.")


def make_engine(
    engine: str | None,
    address: str | None,
    jobs: int | None,
    cpus: int | None,
    gpus: float,
    sync: bool | None,
    out: Path,
) -> tuple[Engine, int]:
    """The engine that the options select, and the number of threads per run.

    Raises:
        ConfigError: an unknown engine, Ray is not installed or does not answer, or too few cores for one run.
    """
    from agentzoo.errors import did_you_mean
    from agentzoo.training.grid.local import LocalEngine, cores

    known = ("local", "ray")
    if engine is not None and engine not in known:
        raise ConfigError(f"no engine {engine!r}.{did_you_mean(engine, known)} Known: local and ray.")
    if engine == "local" and address is not None:
        raise ConfigError("--address names a Ray cluster, but --engine is local; use only one of them.")
    if engine == "ray" or address is not None:
        from agentzoo.training.grid.cluster import RayEngine

        return RayEngine(out, address, jobs, cpus or 1, gpus, sync), cpus or 1
    here = cores()
    if cpus is None:
        cpus = max(1, here // jobs) if jobs else 1
    if cpus > here:
        raise ConfigError(f"a run needs {cpus} cores (--cpus-per-run), and this machine has {here}.")
    return LocalEngine(jobs or here // cpus, gpus), cpus


def _confirm(yes: bool) -> None:
    if not yes and errors_console.is_terminal and not typer.confirm("start?", default=True, err=True):
        raise typer.Exit(1)


def _print_plan(out: Path, plan: Plan, left: int, threads: int) -> None:
    from agentzoo.training.grid.status import estimated_seconds, is_done

    ranked = any(row.priority for row in plan.rows)
    table = listing("run", "seed", "data", "updates", *(["priority"] if ranked else []), "hours left")
    estimated = estimated_seconds(out, plan)
    for row in plan.in_order():
        seconds = estimated[row.folder]
        ends = is_done(out / row.folder, plan.evaluate)
        table.add_row(
            plain(row.folder),
            str(row.recipe.train.seed),
            plain(row.recipe.data.dataset),
            f"{row.recipe.train.steps:,}",
            *([str(row.priority or "")] if ranked else []),
            "done" if ends else "?" if seconds is None else f"{seconds / 3600:.2f}",
        )
    errors_console.print(f"{counted(len(plan.rows), 'run')} in {plain(out)}, {left} to do")
    print_listing(table, errors_console)
    known = [seconds for seconds in estimated.values() if seconds is not None]
    lacking = len(estimated) - len(known)
    parts = [f"about {duration(sum(known))} of training, estimated from earlier runs"] if known else []
    parts += [f"{counted(lacking, 'run')} without an estimate"] if lacking else []
    errors_console.print("; ".join([*parts, f"{counted(threads, 'thread')} each"]))


def _rows(agents: str | None, file: Path | None, seeds: str | None, settings: list[str], own: OwnData) -> list[Row]:
    """The grid's rows, from `--agents` or a `--file`."""
    from agentzoo.training.grid.plan import expand, read_grid_file

    if (agents is None) == (file is None):
        raise ConfigError("name either --agents or a --file.")
    if agents is not None:
        return expand(agents, "0" if seeds is None else seeds, settings, own=own)
    if own.datasets or own.env or own.target or seeds is not None:
        raise ConfigError(
            "--seeds, --dataset, --env and --target need --agents; in a --file, each row sets them itself."
        )
    return read_grid_file(file or Path(), settings, own.read, own.trust_env_module)


@contextmanager
def _status(text: str) -> Iterator[Callable[[str], None]]:
    """A status line with a spinner; the yielded function changes its text."""
    with errors_console.status(text) as status:
        yield lambda line: status.update(plain(line))


@contextmanager
def stoppable() -> Iterator[None]:
    """Handle SIGTERM, which batch systems send, like Ctrl-C."""

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
        found = grid_status(out, plan, running)
        return live_table(found, f"grid in {out}", *errors_console.size)

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
        say("stopped; the same command continues from the last checkpoints")
        raise


def _finish(out: Path, plan: Plan, stage: bool, zoo: Path, trust: bool) -> None:
    from agentzoo.research import grid as work

    with _status("comparing"):
        summary = work.summarize(out, plan, trust)
    if summary.study is not None:
        print_study(summary.study, summary.study.title)
    errors_console.print(f"all runs: {plain(out / work.RESULTS_JSON)} and {plain(out / work.RESULTS_CSV)}")
    if summary.remark:
        errors_console.print(plain(summary.remark))
    unfinished = [row for row in summary.rows if row["state"] != "done"]
    for row in unfinished:
        errors_console.print(f"[red]{row['state']}[/] {plain(row['folder'])}: {plain(row['error'])}")
        for line in row["log"]:
            errors_console.print(f"    {plain(line)}")
    staged = []
    if stage:
        with _status("staging") as say:
            staged = work.stage_finished(out, plan, zoo, trust, say)
    for each in staged:
        words = f"staged {each.folder}" if each.folder else f"{each.agent_id} is not staged: {each.said}"
        errors_console.print(plain(words))
    if unfinished or any(each.folder is None for each in staged):
        raise typer.Exit(1)
