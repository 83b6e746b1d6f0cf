"""What every command that takes an agent has in common: its argument, the options of loading it, and the loading."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from agentzoo.agent import Agent


def _trust_options(context: typer.Context, trusted: bool) -> bool:
    """Trust the options of environments while the command runs, wherever it makes one."""
    if trusted:
        from agentzoo.envs.options import trust_env_options

        trust_env_options(True)
        context.call_on_close(lambda: trust_env_options(False))
    return trusted


DistanceOption = Annotated[
    int,
    typer.Option("--distance", min=0, max=4096, help="Tokens back at which rotary positions turn keys: 3 is one step."),
]
AgentArg = Annotated[str, typer.Argument(metavar="AGENT", help="An id like dt-hopper-medium, a folder, or a Hub repo.")]
RevisionOption = Annotated[str | None, typer.Option("--revision", help="Commit, tag or branch on the Hub.")]
TrustOption = Annotated[
    bool, typer.Option("--trust-env-module", help="Import the module that an environment's id names.")
]
TrustOptionsOption = Annotated[
    bool,
    typer.Option("--trust-env-options", help="Accept any option of an environment.", callback=_trust_options),
]
TokenOption = Annotated[
    str | None, typer.Option("--token", help="Token to use instead of HF_TOKEN or `hf auth login`.")
]
TargetOption = Annotated[
    str | None,
    typer.Option(
        "--target",
        help="The return to ask for: a number; max, the best return in the data; p90, its 90th "
        "percentile; d4rl, the published constant where the data reaches it, else max. "
        "Default: the recipe's own.",
    ),
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
) -> Agent:
    """The agent a command names, asked for `target` if one is given.

    Raises:
        AgentzooError: as `Agent.from_pretrained`.
    """
    from agentzoo.store.locate import require_known

    require_known(agent)  # before the heavy imports, so that a typo is answered at once
    from agentzoo.agent import Agent

    loaded = Agent.from_pretrained(agent, revision=revision, trust_env_module=trust_env_module)
    loaded.freeze(runtime)  # type: ignore[arg-type]  # it checks the word
    if target is not None:
        loaded.target_return = target
    return loaded
