"""Using agents: `agentzoo list`, `show`, `info`, `evaluate`, `enjoy` and `record`. Heavy imports happen inside."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agentzoo.cli.agents_table import matching, print_agents
from agentzoo.cli.console import console, plain, print_facts, print_json, progress_bar
from agentzoo.cli.options import (
    MAX_EPISODES,
    AgentArg,
    EpisodeSeedOption,
    HistoryOption,
    JsonOption,
    RevisionOption,
    RuntimeOption,
    TokenOption,
    TrustOption,
    TrustOptionsOption,
    load_agent,
)
from agentzoo.cli.remote_list import list_remote
from agentzoo.errors import ConfigError, UnknownNameError, did_you_mean
from agentzoo.store.files import require_writable
from agentzoo.store.named import warn_of_no_zoo
from agentzoo.text import amount, counted, fixed

if TYPE_CHECKING:
    from agentzoo.evaluation.results import Result
    from agentzoo.hub.overview import Summary

EnvOption = Annotated[
    str | None, typer.Option("--env", help="Gymnasium id to use instead of the agent's, without the agent's options.")
]
EpisodesOption = Annotated[int, typer.Option("--episodes", "-n", min=1, max=MAX_EPISODES, help="Episodes to play.")]
TargetNumberOption = Annotated[
    float | None, typer.Option("--target", help="Target return, a number in units of the environment's reward.")
]
ActingOption = Annotated[
    str | None,
    typer.Option(
        "--acting",
        help="Either window: read the last steps again for each action; or recurrent: carry a memory (Decision Mamba).",
    ),
]


def list_command(
    remote: Annotated[bool, typer.Option("--remote", help="List agents on a Hub instead.")] = False,
    author: Annotated[str | None, typer.Option("--author", help="With --remote: only repos of this account.")] = None,
    token: TokenOption = None,
    env: Annotated[str | None, typer.Option("--env", help="Only agents of this environment, e.g. Hopper-v5.")] = None,
    family: Annotated[str | None, typer.Option("--family", help="Only agents of this family, e.g. dt.")] = None,
    all_: Annotated[bool, typer.Option("--all", help="Also list agents that only have a recipe.")] = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print staged agents as a Markdown table.")] = False,
    into: Annotated[
        Path | None, typer.Option("--into", help="Renew the table of agents in this file, e.g. README.md.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """List the agents of the local zoo with their scores; with `--all`, also those that only have a recipe."""
    if remote:
        options: dict[str, object] = {
            "--env": env,
            "--family": family,
            "--all": all_,
            "--markdown": markdown,
            "--into": into,
        }
        _refuse("with --remote", options)
        list_remote(author, token, as_json)
        return
    _refuse("without --remote", {"--author": author, "--token": token})
    # options that the tables of the whole zoo ignore
    ignored: dict[str, object] = {"--env": env, "--family": family, "--all": all_, "--json": as_json}
    if into is not None:
        _refuse("with --into", {**ignored, "--markdown": markdown})
        _write_table(into)
        return
    if markdown:
        _refuse("with --markdown", ignored)
        _write_table(None)
        return
    warn_of_no_zoo()
    agents = _summaries(env, family)
    if as_json:
        found = [one for one in matching(agents, env, family) if all_ or one.staged or one.problem]
        print_json([one.as_shown() for one in found])
        return
    print_agents(agents, env, family, all_)


def _summaries(env: str | None, family: str | None) -> list[Summary]:
    """Summaries of the whole zoo; imports PyTorch only if a folder is not in order.

    Raises:
        UnknownNameError: no such family, or no agent and no recipe of this environment.
    """
    from agentzoo.hub.overview import overview
    from agentzoo.registry import require_family

    if family is not None:
        require_family(family)
    found = overview()
    if found is None:
        from agentzoo.hub.zoo import summaries

        found = summaries()
    envs = sorted({one.env for one in found if one.env})
    if env is not None and env not in envs:
        raise UnknownNameError(f"no agent plays {env!r}.{did_you_mean(env, envs)} Known: {', '.join(envs)}.")
    return found


def _write_table(into: Path | None) -> None:
    """Write the table between the marks in a file, or print it."""
    from agentzoo.hub.tables import markdown_table, with_table
    from agentzoo.store.files import read_text, write_atomic

    if into is None:
        sys.stdout.write(markdown_table() + "\n")
    else:
        write_atomic(into, with_table(read_text(into)))


def _refuse(way: str, options: dict[str, object]) -> None:
    """Raise ConfigError if any of these options, which have no effect `way`, is set."""
    given = [name for name, value in options.items() if value]
    if given:
        raise ConfigError(f"{', '.join(given)} has no effect {way}; omit it.")


def show(
    agent: Annotated[
        str, typer.Argument(metavar="AGENT", help="An id like dt-hopper-medium, a folder, or a Hub repo.")
    ],
    as_json: JsonOption = False,
) -> None:
    """Show the recipe of an agent and, if it was measured, its scores."""
    from agentzoo.recipes._table import recipe_rows
    from agentzoo.store.locate import require_known

    if agent.removeprefix("zoo/") not in recipe_rows():
        require_known(agent)  # reports a typo before the heavy imports
    from agentzoo.hub.zoo import describe

    record = describe(agent)
    if as_json:
        print_json(record)
        return
    for section, fields in record.items():
        if isinstance(fields, dict):
            values = {name: one if isinstance(one, str) else json.dumps(_rounded(one)) for name, one in fields.items()}
            print_facts(values, title=section)
        elif fields:
            console.print(f"{section}: {plain(fields if isinstance(fields, str) else json.dumps(_rounded(fields)))}")


def _rounded(value: Any) -> Any:
    """`value` rounded to six digits for reading; `--json` has all digits."""
    if isinstance(value, float):
        return float(f"{value:.6g}")
    return [_rounded(one) for one in value] if isinstance(value, list | tuple) else value


def info(as_json: JsonOption = False) -> None:
    """Show versions, device, local zoo and dataset folders, for a bug report."""
    from agentzoo.hub.zoo import environment_info

    record = environment_info()
    if as_json:
        print_json(record)
        return
    print_facts(record)


def evaluate(
    agent: AgentArg,
    episodes: EpisodesOption = 100,
    env: EnvOption = None,
    seed: EpisodeSeedOption = 0,
    n_envs: Annotated[int, typer.Option("--envs", min=1, help="Environments stepped side by side.")] = 20,
    target: TargetNumberOption = None,
    acting: ActingOption = None,
    history: HistoryOption = None,
    runtime: RuntimeOption = "pytorch",
    jobs: Annotated[int, typer.Option("--jobs", min=1, help="Processes that share the environments.")] = 1,
    device: Annotated[
        str | None,
        typer.Option("--device", help="One of cpu, cuda, cuda:N, mps. Default: cuda if available, else cpu."),
    ] = None,
    sampled: Annotated[
        bool, typer.Option("--sampled", help="Sample actions, also if the agent's recipe takes the most likely ones.")
    ] = False,
    revision: RevisionOption = None,
    trust_env_module: TrustOption = False,
    trust_env_options: TrustOptionsOption = False,
    output: Annotated[Path | None, typer.Option("--output", help="Also write the full record into this file.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Measure mean return and normalized score, with 95 % intervals over episodes."""
    from agentzoo.store.files import write_atomic

    if output is not None:
        require_writable(output)
    loaded = load_agent(agent, revision, trust_env_module, target, device=device or ("cpu" if jobs > 1 else "auto"))
    from agentzoo.evaluation.results import evaluate as run

    if acting is not None:
        loaded.acting = acting  # type: ignore[assignment]  # the setter checks the name
    if history is not None:
        loaded.history = history or None
    loaded.freeze(runtime)  # type: ignore[arg-type]  # `freeze` checks the name
    with progress_bar(f"evaluating {loaded.config.agent_id}", episodes) as bar:
        command = shlex.join(["agentzoo", *sys.argv[1:]])
        result = run(
            loaded,
            env,
            episodes,
            seed=seed,
            n_envs=n_envs,
            deterministic=False if sampled else None,
            command=command,
            trust_env_module=trust_env_module,
            jobs=jobs,
            on_episode=lambda one: bar(1, f"last return {amount(one.total_reward)}"),
        )
    if as_json:
        print_json(result.model_dump())
    else:
        _print_result(result)
    if output is not None:
        write_atomic(output, result.to_json())


def _print_result(result: Result) -> None:
    facts = {"return": _with_interval(result, amount(result.mean_return), *map(amount, result.return_interval))}
    if result.score is not None and result.score_interval is not None:
        score, low, high = (fixed(one, 1) for one in (result.score, *result.score_interval))
        facts["normalized score"] = _with_interval(result, score, low, high)
    if result.success_rate is not None:
        facts["success"] = f"{100 * result.success_rate:.0f} % of episodes"
    facts |= {
        "target return": f"{result.target_return:g}",
        "episodes, mean length": f"{result.episodes}, {amount(result.mean_length)}",
        "steps per second": f"{result.steps_per_second:,.0f}",
    }
    print_facts(facts, title=f"{result.agent_id} on {result.env}")


def _with_interval(result: Result, number: str, low: str, high: str) -> str:
    return f"{number}  [{low}, {high}] (95 %)" if result.episodes > 1 else number  # one episode has no interval


def enjoy(
    agent: AgentArg,
    episodes: EpisodesOption = 3,
    env: EnvOption = None,
    seed: EpisodeSeedOption = 0,
    target: TargetNumberOption = None,
    runtime: RuntimeOption = "pytorch",
    revision: RevisionOption = None,
    trust_env_module: TrustOption = False,
    trust_env_options: TrustOptionsOption = False,
) -> None:
    """Watch an agent in a window. Without a display it plays without a window and says so."""
    loaded = load_agent(agent, revision, trust_env_module, target, runtime)
    from agentzoo.evaluation.enjoy import has_display, play

    shown = has_display()
    if not shown:
        console.print("No display found, so the agent plays without a window; `agentzoo record` makes a video.")
    for one in play(loaded, env, episodes, seed=seed, window=shown, trust_env_module=trust_env_module):
        success = {None: "", True: ", success", False: ", no success"}[one.success]
        console.print(f"seed {one.seed}: return {amount(one.total_reward)} in {counted(one.length, 'step')}{success}")


def record(
    agent: AgentArg,
    output: Annotated[Path, typer.Argument(metavar="FILE", help="The .mp4 or .gif file to write.")],
    episodes: EpisodesOption = 1,
    env: EnvOption = None,
    seed: EpisodeSeedOption = 0,
    target: TargetNumberOption = None,
    runtime: RuntimeOption = "pytorch",
    every: Annotated[int, typer.Option("--every", min=1, help="Keep every Nth frame.")] = 4,
    width: Annotated[int, typer.Option(min=16, help="Width of the picture in pixels, even.")] = 320,
    height: Annotated[int, typer.Option(min=16, help="Height of the picture in pixels, even.")] = 240,
    revision: RevisionOption = None,
    trust_env_module: TrustOption = False,
    trust_env_options: TrustOptionsOption = False,
) -> None:
    """Render episodes to a video or a GIF."""
    if output.suffix not in (".mp4", ".gif"):
        raise ConfigError(f"the output must end in .mp4 or .gif, got {output.name!r}.")
    require_writable(output)
    loaded = load_agent(agent, revision, trust_env_module, target, runtime)
    from agentzoo.evaluation.film import film, save_gif, save_video

    with progress_bar(f"filming {loaded.config.agent_id}", None) as bar:
        clip = film(
            loaded,
            env,
            episodes,
            seed=seed,
            every=every,
            size=(width, height),
            trust_env_module=trust_env_module,
            on_step=lambda: bar(1, ""),
        )
    (save_video if output.suffix == ".mp4" else save_gif)(clip, output)
    returns = ", ".join(amount(one.total_reward) for one in clip.episodes)
    what = "return" if len(clip.episodes) == 1 else "returns"
    console.print(f"{plain(output)}: {counted(len(clip.frames), 'frame')}, {what} {returns}")
