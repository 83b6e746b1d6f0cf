"""Commands that measure: `agentzoo research sweep`, `histories`, `compare`, `pairs` and `bench`.

Heavy imports happen inside.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from agentzoo.cli.console import errors_console, plain, print_json, print_listing, print_study, progress_bar
from agentzoo.cli.options import (
    MAX_EPISODES,
    MAX_THREADS,
    AgentsArg,
    EpisodeSeedOption,
    JsonOption,
    RevisionOption,
    TrustOption,
    TrustOptionsOption,
    load_agent,
)
from agentzoo.errors import ConfigError, UnknownNameError, did_you_mean
from agentzoo.store.files import SWEEP_PLOT
from agentzoo.store.named import require_finished, run_folder
from agentzoo.text import amount

if TYPE_CHECKING:
    from agentzoo.agent import Agent
    from agentzoo.evaluation.results import Result

MINIMUM = "Minimum episodes of each run. A staged agent keeps the episodes of its card."


def sweep(
    agents: AgentsArg,
    highest: Annotated[float, typer.Option("--up-to", help="The largest target return.")],
    lowest: Annotated[float, typer.Option("--from", help="The targets are evenly spaced above this value.")] = 0.0,
    count: Annotated[int, typer.Option("--targets", min=3, max=100, help="Number of target returns.")] = 8,
    episodes: Annotated[
        int, typer.Option("--episodes", "-n", min=1, max=MAX_EPISODES, help="Episodes for each target.")
    ] = 20,
    seed: EpisodeSeedOption = 0,
    plot: Annotated[
        Path | None, typer.Option("--plot", help="Plot achieved return against target return into this file.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="Write a study.json and its picture, for a card, into this folder.")
    ] = None,
    best: Annotated[float | None, typer.Option("--best-in-data", help="Draw this return as a line.")] = None,
    revision: RevisionOption = None,
    trust_env_module: TrustOption = False,
    trust_env_options: TrustOptionsOption = False,
    as_json: JsonOption = False,
) -> None:
    """Measure agents at several target returns. Targets far above the data show how they extrapolate."""
    from agentzoo.evaluation.study import write_study
    from agentzoo.evaluation.sweep import as_study, by_title, even_targets, plot_sweeps
    from agentzoo.evaluation.sweep import sweep as run

    named = list(dict.fromkeys(agents))
    _check_pictures(len(named), plot, out, best)
    targets = even_targets(highest, count, lowest)
    loaded = by_title({name: load_agent(name, revision, trust_env_module) for name in named})
    found = {}
    with progress_bar("targets", len(loaded) * count) as bar:
        for title, agent in loaded.items():
            found[title] = run(
                agent,
                targets,
                episodes,
                seed=seed,
                trust_env_module=trust_env_module,
                on_target=lambda: bar(1, title),  # noqa: B023  (called at once)
            )
    if plot is not None:
        plot_sweeps(found, plot, best)
    if out is not None:
        plot_sweeps(found, out / SWEEP_PLOT, best)
        write_study(as_study(found, SWEEP_PLOT, best), out)
    if as_json:
        print_json([one.model_dump() for results in found.values() for one in results])
        return
    for title, results in found.items():
        _print_sweep(title, results)


def _check_pictures(agents: int, plot: Path | None, out: Path | None, best: float | None) -> None:
    from agentzoo.plots import require_picture

    if best is not None and plot is None and out is None:
        raise ConfigError("--best-in-data draws a line in the plot; add --plot or --out, or omit it.")
    if out is not None:
        _require_room(agents, ", or omit --out")
    for picture in (plot, None if out is None else out / SWEEP_PLOT):
        if picture is not None:
            require_picture(picture)


def _require_room(agents: int, otherwise: str = "") -> None:
    from agentzoo.evaluation.sweep import MAX_AGENTS

    if agents > MAX_AGENTS:
        raise ConfigError(f"a study has room for {MAX_AGENTS} agents, got {agents}; name fewer{otherwise}.")


def _print_sweep(title: str, results: Sequence[Result]) -> None:
    from agentzoo.evaluation.sweep import rank_correlation

    ranks = rank_correlation(results)
    name = f"{title}: " + ("the same return at every target" if ranks is None else f"rank correlation {ranks:.2f}")
    table = Table("target", "achieved (95 %)", "length", title=plain(name))
    for one in results:
        table.add_row(f"{one.target_return:g}", one.return_in_words(), amount(one.mean_length))
    print_listing(table)


def histories(
    agents: AgentsArg,
    lengths: Annotated[
        list[int] | None,
        typer.Option("--steps", min=1, help="Steps that acting reads; repeatable. Default: 1, 2, 5, 10, 20, 50, all."),
    ] = None,
    trained: Annotated[
        bool,
        typer.Option(
            "--trained", help="The agents are trainings with windows of different lengths. Each reads them whole."
        ),
    ] = False,
    episodes: Annotated[
        int, typer.Option("--episodes", "-n", min=1, max=MAX_EPISODES, help="Episodes for each length.")
    ] = 20,
    seed: EpisodeSeedOption = 0,
    out: Annotated[Path, typer.Option("--out", help="Folder for study.json and its picture.")] = Path("runs/histories"),
    revision: RevisionOption = None,
    trust_env_module: TrustOption = False,
    trust_env_options: TrustOptionsOption = False,
    as_json: JsonOption = False,
) -> None:
    """Measure agents at several context lengths: how much of their window do they need?"""
    from agentzoo.evaluation.history_lengths import PICTURE, as_study, draw_histories, measure_histories
    from agentzoo.evaluation.study import write_study
    from agentzoo.plots import require_picture

    if trained and lengths:
        raise ConfigError("--trained agents read their whole windows; omit --steps.")
    require_picture(out / PICTURE)
    named = list(dict.fromkeys(agents))
    if not trained:
        _require_room(len(named))
    plan = _plan({name: load_agent(name, revision, trust_env_module) for name in named}, lengths, trained)
    found: dict[str, list[Result]] = {title: [] for title, _, _ in plan}
    with progress_bar("lengths", sum(len(chosen) for _, _, chosen in plan)) as bar:
        for title, agent, chosen in plan:
            found[title] += measure_histories(
                agent,
                chosen,
                episodes,
                seed=seed,
                trust_env_module=trust_env_module,
                on_length=lambda: bar(1, title),  # noqa: B023  (called at once)
            )
    draw_histories(found, out / PICTURE, trained)
    study = as_study(found, trained=trained)
    write_study(study, out)
    print_study(study, f"{study.title}, drawn in {out}", as_json)


def _plan(loaded: dict[str, Agent], lengths: Sequence[int] | None, trained: bool) -> list[tuple[str, Agent, list[int]]]:
    """(title of the curve, agent, lengths to measure it at) for `histories`."""
    from agentzoo.evaluation.history_lengths import lengths_of, require_fitting, trained_lengths
    from agentzoo.evaluation.sweep import by_title

    titled = by_title(loaded)
    if not trained:
        require_fitting(list(loaded.values()), lengths or ())
        return [(title, agent, lengths_of(agent, lengths or ())) for title, agent in titled.items()]
    grouped = trained_lengths(list(loaded.values()))
    _require_room(len(grouped))
    return [(title, one, [one.config.io.context]) for title, each in grouped.items() for one in each]


def compare(
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN...", help="Finished runs, or ids of agents; seeds are grouped.")
    ],
    out: Annotated[Path, typer.Option("--out", help="Folder for study.json and its picture.")] = Path(
        "runs/comparison"
    ),
    title: Annotated[str, typer.Option("--title", help="Title of the table.")] = "Side by side",
    finding: Annotated[str, typer.Option("--finding", help="The finding, one sentence for the card.")] = "",
    episodes: Annotated[int, typer.Option("--episodes", "-n", min=1, max=MAX_EPISODES, help=MINIMUM)] = 100,
    trust_env_module: TrustOption = False,
    trust_env_options: TrustOptionsOption = False,
    as_json: JsonOption = False,
) -> None:
    """Compare trainings in one table and one picture; the first of each environment is the reference.

    `agentzoo hub stage --study` puts it on a card, `agentzoo research pairs` draws learning curves.

    Families that share tasks with scores get a second table and picture, in OUT/families: interquartile means,
    performance profiles, and how likely one beats another.
    """
    runs = [run_folder(named) for named in runs]
    for run in runs:
        require_finished(run)  # a typo is answered before the heavy imports
    from agentzoo.evaluation.study import write_study
    from agentzoo.plots import require_picture
    from agentzoo.research.studies import families
    from agentzoo.research.studies.comparison import PICTURE, as_study, draw_comparison
    from agentzoo.research.studies.comparison import compare as read

    require_picture(out / PICTURE)
    with errors_console.status("reading") as status:
        compared = read(runs, episodes, on_progress=status.update, trust_env_module=trust_env_module)
    draw_comparison(compared, out / PICTURE)
    study = as_study(compared, title, finding=finding)
    write_study(study, out)
    methods = families.over_families(compared)
    second = None if methods is None else families.as_study(methods)
    if methods is None or second is None:
        families.remove(out)  # of an earlier comparison
    else:
        families.draw_profiles(methods, out / families.FOLDER / families.PICTURE)
        write_study(second, out / families.FOLDER)
    if as_json:
        print_json({**study.model_dump(), "families": None if second is None else second.model_dump()})
        return
    print_study(study, f"{title}, drawn in {out}")
    if second is not None:
        print_study(second, f"{second.title}, drawn in {out / families.FOLDER}")


def pairs(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Runs, or ids of agents; seeds are grouped.")],
    out: Annotated[Path, typer.Option("--out", help="Folder for study.json and curves.png.")] = Path("runs/pairs"),
    episodes: Annotated[int, typer.Option("--episodes", "-n", min=2, max=MAX_EPISODES, help=MINIMUM)] = 100,
    trust_env_module: TrustOption = False,
    trust_env_options: TrustOptionsOption = False,
    as_json: JsonOption = False,
) -> None:
    """Compare pretrained agents with the same agents trained from scratch: learning curves, final scores, speed."""
    from agentzoo.evaluation.study import write_study
    from agentzoo.plots import require_picture
    from agentzoo.research.studies.pairs import PICTURE, as_study, draw_curves, read_curves

    require_picture(out / PICTURE)
    with errors_console.status("reading") as status:
        curves = read_curves([run_folder(named) for named in runs], episodes, status.update, trust_env_module)
    draw_curves(curves, out / PICTURE)
    study = as_study(curves, PICTURE)
    write_study(study, out)
    print_study(study, f"{study.title}, drawn in {out}", as_json)


def bench(
    name: Annotated[
        str,
        typer.Argument(metavar="BENCHMARK", help="One of dt, dt-pixel, dm, dtma, language, threads, context, grid."),
    ],
    runs: Annotated[int, typer.Option("--runs", min=1, help="Repetitions of each timing.")] = 20,
    threads: Annotated[int, typer.Option("--threads", min=1, max=MAX_THREADS, help="CPU threads.")] = 2,
    plot: Annotated[
        Path | None, typer.Option("--plot", help="Also draw a plot into this file, if the benchmark has one.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Measure speed as a ratio to another implementation that does the same work in the same run."""
    import importlib
    import pkgutil

    from agentzoo.research import bench as package

    known = sorted(found.name.replace("_", "-") for found in pkgutil.iter_modules(package.__path__))
    if name not in known:
        raise UnknownNameError(f"no benchmark {name!r}.{did_you_mean(name, known)} Known: {', '.join(known)}.")
    import torch

    from agentzoo.plots import require_picture

    torch.set_num_threads(threads)
    module = importlib.import_module(f"agentzoo.research.bench.{name.replace('-', '_')}")
    if plot is not None:
        if not hasattr(module, "plot"):
            raise ConfigError(f"the benchmark {name!r} draws no plot; omit --plot.")
        require_picture(plot)
    with errors_console.status(f"timing {name}, {runs} runs"):
        figures = module.run(runs)
    if plot is not None:
        module.plot(figures, plot)
    if as_json:
        print_json([figure._asdict() for figure in figures])
        return
    table = Table("figure", "ours", "peer", "ratio", "unit", title=f"agentzoo research bench {name}, {threads} threads")
    for figure in figures:
        table.add_row(figure.figure, f"{figure.ours:.2f}", f"{figure.peer:.2f}", f"{figure.ratio:.3f}", figure.unit)
    print_listing(table)
