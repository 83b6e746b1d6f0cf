"""`agentzoo research heads` and `research gates ...`: Markov heads and gates. Heavy imports happen inside."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from agentzoo.cli.console import console, errors_console, plain, print_json, print_study
from agentzoo.cli.groups import CommandGroup
from agentzoo.cli.inspect import as_rich
from agentzoo.cli.options import (
    MAX_EPISODES,
    DistanceOption,
    JsonOption,
    TrustOption,
    TrustOptionsOption,
    known_agents,
)
from agentzoo.nn.language.wheels import SHIPPED
from agentzoo.store.named import RANDOM, require_network

app = typer.Typer(
    cls=CommandGroup,
    help="Show the weights that gates give to Markov heads: over training, against context length.",
    no_args_is_help=True,
)

ThresholdOption = Annotated[
    float, typer.Option("--threshold", min=0.0, help="Ratio r above which a head counts as a Markov head.")
]
HeadOption = Annotated[
    list[int] | None,
    typer.Option(
        "--markov-head", min=0, help="Head of layer 0 to count as a Markov head; may be repeated. Default: heads above "
"the threshold, or the head nearest to it."
    ),
]  # fmt: skip


def heads(
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME...", help="Agents and language models; `random`: random weights of the same size."
        ),
    ],
    threshold: ThresholdOption = 8.0,
    fold_ln_gain: Annotated[
        bool, typer.Option("--fold-ln-gain", help="Count the gain of the norm before the head.")
    ] = False,
    distance: DistanceOption = 0,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of the random weights.")] = 0,
    out: Annotated[
        Path | None, typer.Option("--out", help="Write a study.json and its picture, for a card, into this folder.")
    ] = None,
    trust_env_module: TrustOption = False,
    trust_env_options: TrustOptionsOption = False,
    as_json: JsonOption = False,
) -> None:
    """Compare which heads are Markov heads: before training, after training, and with random weights."""
    for name in names:
        require_network(name, (*SHIPPED, RANDOM))  # a typo is answered before the heavy imports
    from agentzoo.evaluation.study import write_study
    from agentzoo.plots import require_picture
    from agentzoo.research.analysis.inspection_tables import markov_table
    from agentzoo.research.studies.head_verdicts import PICTURE, as_study, changes, draw_heads, judge, scale

    if out is not None:
        require_picture(out / PICTURE)
    with errors_console.status("reading"):
        found = judge(
            names, threshold, fold_ln_gain=fold_ln_gain, distance=distance, seed=seed, trust_env_module=trust_env_module
        )
    if out is not None:
        draw_heads(found, out / PICTURE)
        write_study(as_study(found), out)
    if as_json:
        print_json({"networks": [one.as_tree() for one in found], "changes": list(changes(found))})
        return
    for one in found:
        console.print(as_rich(markov_table(one.report, f"{one.name} ({one.kind})")))
    for sentence in (*(one.summary() for one in found), *changes(found), scale(found)):
        console.print(plain(sentence))
    if out is not None:
        console.print(f"wrote {plain(out)}")


@app.command()
def training(
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN...", help="Finished or running trainings, or staged agents.")
    ],
    heads: HeadOption = None,
    threshold: ThresholdOption = 8.0,
    out: Annotated[Path, typer.Option("--out", help="Folder for study.json and its picture.")] = Path("runs/gates"),
    trust_env_module: TrustOption = False,
    trust_env_options: TrustOptionsOption = False,
    as_json: JsonOption = False,
) -> None:
    """Plot the gates of Markov heads and other heads over training, one panel per environment."""
    from agentzoo.evaluation.study import write_study
    from agentzoo.plots import require_picture
    from agentzoo.research.studies.gate_curves import PICTURE, as_study, draw_curves, read_gates

    require_picture(out / PICTURE)
    with errors_console.status("reading"):
        found = read_gates(runs, heads, threshold, trust_env_module=trust_env_module)
    draw_curves(found, out / PICTURE)
    study = as_study(found)
    write_study(study, out)
    print_study(study, f"{study.title}, drawn in {out}", as_json)


@app.command()
def context(
    agents: Annotated[
        list[str],
        typer.Argument(
            metavar="AGENT...",
            help="One agent, measured on shorter windows; or several agents of different contexts.",
            callback=known_agents,
        ),
    ],
    contexts: Annotated[
        list[int] | None,
        typer.Option("--context", min=1, help="Context K for one agent; may be repeated. Default: 10, 20, ..."),
    ] = None,
    heads: HeadOption = None,
    threshold: ThresholdOption = 8.0,
    episodes: Annotated[
        int, typer.Option("--episodes", "-n", min=1, max=MAX_EPISODES, help="Episodes that windows are taken from.")
    ] = 5,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of the first of these episodes.")] = 0,
    windows: Annotated[int, typer.Option("--windows", min=1, help="Largest number of windows, evenly spaced.")] = 2_000,
    out: Annotated[Path, typer.Option("--out", help="Folder for study.json and its picture.")] = Path("runs/contexts"),
    trust_env_module: TrustOption = False,
    trust_env_options: TrustOptionsOption = False,
    as_json: JsonOption = False,
) -> None:
    """Plot G_Markov and R_Markov against context length, beside the published values."""
    from agentzoo.agent import Agent
    from agentzoo.evaluation.study import write_study
    from agentzoo.plots import require_picture
    from agentzoo.research.studies.contexts import PICTURE, Looks, as_study, draw_contexts, gates_by_context

    require_picture(out / PICTURE)
    loaded = [Agent.from_pretrained(agent, trust_env_module=trust_env_module) for agent in agents]
    looks = Looks(episodes, seed, windows, None if heads is None else tuple(heads), threshold)
    with errors_console.status("looking") as status:
        found = gates_by_context(loaded, contexts, looks, status.update, trust_env_module=trust_env_module)
    draw_contexts(found, out / PICTURE)
    study = as_study(found)
    write_study(study, out)
    print_study(study, f"{study.title}, drawn in {out}", as_json)
