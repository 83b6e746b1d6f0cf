"""What every command that takes an agent has in common: its argument, the options of loading it, and the loading."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from agentzoo.agent import Agent


def _trust_options(context: typer.Context, trusted: bool) -> bool:
    """Trust the options of environments while the command runs, wherever it makes one."""
    from agentzoo.envs.options import trust_env_options

    trust_env_options(trusted)
    context.call_on_close(lambda: trust_env_options(False))
    return trusted


AgentArg = Annotated[str, typer.Argument(metavar="AGENT", help="an id like dt-hopper-medium, a folder, or a Hub repo")]
RevisionOption = Annotated[str | None, typer.Option("--revision", help="commit, tag or branch on the Hub")]
TrustOption = Annotated[bool, typer.Option("--trust-env-module", help="import the module an env id names")]
TrustOptionsOption = Annotated[
    bool,
    typer.Option("--trust-env-options", help="accept any option of an environment", callback=_trust_options),
]
TokenOption = Annotated[str | None, typer.Option("--token", help="instead of HF_TOKEN or `hf auth login`")]
TargetOption = Annotated[
    str | None,
    typer.Option(
        "--target",
        help="the return to ask for: a number; max, the best return in the data; p90, the 90th percentile; d4rl, the "
        "published constant where the data reaches it, else max. The recipe's own by default",
    ),
]
RuntimeOption = Annotated[
    str, typer.Option("--runtime", help="pytorch, or onnx: a frozen network in ONNX Runtime, often faster on a CPU")
]
JsonOption = Annotated[bool, typer.Option("--json", help="print JSON instead of a table")]


def load_agent(
    agent: str,
    revision: str | None = None,
    trust_env_module: bool = False,
    target: float | None = None,
    runtime: str = "pytorch",
) -> Agent:
    """The agent a command names, asked for `target` if one is given.

    Raises:
        AgentzooError: as `Agent.from_pretrained`.
    """
    from agentzoo.agent import Agent

    loaded = Agent.from_pretrained(agent, revision=revision, trust_env_module=trust_env_module)
    loaded.freeze(runtime)  # type: ignore[arg-type]  # it checks the word
    if target is not None:
        loaded.target_return = target
    return loaded
