"""Arguments and options shared by commands that take an agent, and `load_agent`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from agentzoo.errors import warn
from agentzoo.store.locate import ZOO_VARIABLE

if TYPE_CHECKING:
    from agentzoo.agent import Agent

MAX_EPISODES = 100_000  # as in a recipe; a record of more is too large to be read
MAX_THREADS = 1_024


def _trust_options(context: typer.Context, trusted: bool) -> bool:
    """Accept any environment option until the command ends."""
    if trusted:
        from agentzoo.envs.env_options import trust_env_options

        trust_env_options(True)
        context.call_on_close(lambda: trust_env_options(False))
    return trusted


def is_given(context: typer.Context, name: str) -> bool:
    """Whether the command line has this parameter: its value is not the default, nor from a variable."""
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def folder_path(text: str) -> Path:
    """The path of a folder to write. An empty one, as from an unset variable, would be the current folder."""
    if not text:
        raise typer.BadParameter("the path is empty; name a folder.")
    return Path(text)


def known_agent(agent: str) -> str:
    """The name of an agent. A typo is reported here, while the command line is read, before any heavy import."""
    from agentzoo.store.locate import require_known

    require_known(agent)
    return agent


def known_recipe(agent: str) -> str:
    """The id of a packaged recipe, or the path of a recipe, checked as early as in `known_agent`."""
    from agentzoo.recipes._table import require_recipe

    require_recipe(agent)
    return agent


def possible_dataset(name: str | None) -> str | None:
    """The name of a dataset that is here or that a remote can have, checked as early as in `known_agent`."""
    from agentzoo.data.names import require_possible

    if name is not None:
        require_possible(name)
    return name


def known_agents(agents: list[str]) -> list[str]:
    """The names of several agents, each as `known_agent`."""
    return [known_agent(agent) for agent in agents]


DistanceOption = Annotated[
    int,
    typer.Option("--distance", min=0, max=4096, help="Distance in tokens for rotary positions; 3 tokens are one step."),
]
AgentArg = Annotated[
    str,
    typer.Argument(metavar="AGENT", help="An id like dt-hopper-medium, a folder, or a Hub repo.", callback=known_agent),
]
AgentsArg = Annotated[
    list[str], typer.Argument(metavar="AGENT...", help="Ids, folders or Hub repos.", callback=known_agents)
]
RevisionOption = Annotated[str | None, typer.Option("--revision", help="Commit, tag or branch on the Hub.")]
ZooOption = Annotated[
    Path,
    typer.Option(
        "--zoo",
        envvar=ZOO_VARIABLE,
        help="Folder of staged agents.",
    ),
]
TrustOption = Annotated[
    bool,
    typer.Option("--trust-env-module", help="Import the module that an environment's id names. This runs its code."),
]
TrustOptionsOption = Annotated[
    bool,
    typer.Option(
        "--trust-env-options",
        help="Accept environment options outside the known list. They can load files or never return.",
        callback=_trust_options,
    ),
]
TokenOption = Annotated[
    str | None, typer.Option("--token", help="Token to use instead of HF_TOKEN or `hf auth login`.")
]
EpisodeSeedOption = Annotated[
    int, typer.Option("--seed", min=0, help="Seed of the first episode: episode e is reset with 10000*(seed+1)+e.")
]
FolderArg = Annotated[Path, typer.Argument(metavar="DIR", help="An agent's folder with its records.")]
HistoryOption = Annotated[
    int | None,
    typer.Option("--history", min=0, help="Newest steps that acting reads; 0: the whole window. Default: the agent's."),
]
TargetOption = Annotated[
    str | None,
    typer.Option(
        "--target",
        help="Target return: a number; max, the best return in the data; p90, its 90th percentile; "
        "d4rl, the published constant if the data reaches it, else max. Default: the recipe's.",
    ),
]
DeviceOption = Annotated[
    str | None, typer.Option("--device", help="One of cpu, cuda, cuda:N, mps. Default: the fastest available.")
]
RuntimeOption = Annotated[
    str,
    typer.Option("--runtime", help="Either pytorch, or onnx: a frozen network in ONNX Runtime, often faster on a CPU."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]


def load_agent(
    agent: str,
    revision: str | None = None,
    trust_env_module: bool = False,
    target: float | None = None,
    runtime: str = "pytorch",
    device: str = "auto",
) -> Agent:
    """Load the agent that a command names; `target` replaces its target return, with a warning if it reads none.

    Raises:
        AgentzooError: as `Agent.from_pretrained`.
    """
    from agentzoo.agent import Agent

    loaded = Agent.from_pretrained(agent, revision=revision, device=device, trust_env_module=trust_env_module)
    loaded.freeze(runtime)  # type: ignore[arg-type]  # `freeze` checks the name
    if target is not None:
        if not loaded.model.config.acts_on_target():
            warn(f"--target has no effect on {loaded.config.agent_id}, which does not read a return.", 2)
        loaded.target_return = target
    return loaded
