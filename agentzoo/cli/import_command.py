"""`agentzoo hub import`: import checkpoints of other libraries as agents."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from agentzoo.cli.console import console, plain, word
from agentzoo.cli.options import RevisionOption, TrustOption


def import_command(
    source: Annotated[
        str, typer.Argument(metavar="SOURCE", help="A Hub repo or folder of transformers, or a .pt file of CORL.")
    ],
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The new agent's folder.")],
    target: Annotated[float, typer.Option("--target", help="Target return of the agent, in the environment's units.")],
    env: Annotated[
        str | None, typer.Option("--env", help="Gymnasium id of its environment; its spaces are checked.")
    ] = None,
    mean: Annotated[
        str | None,
        typer.Option("--mean", help="Mean of its observations: numbers separated by commas, or a .json file."),
    ] = None,
    std: Annotated[
        str | None, typer.Option("--std", help="Standard deviation of its observations, in the same form.")
    ] = None,
    rtg_scale: Annotated[
        float | None,
        typer.Option("--rtg-scale", help="Divisor of returns-to-go. Default: the checkpoint's, or 1000."),
    ] = None,
    context: Annotated[
        int | None, typer.Option("--context", min=1, help="Context in environment steps. Default: the checkpoint's.")
    ] = None,
    heads: Annotated[int | None, typer.Option("--heads", min=1, help="Attention heads of a CORL network.")] = None,
    max_action: Annotated[
        float | None,
        typer.Option("--max-action", help="Largest action of a CORL network. Default: the checkpoint's, or 1."),
    ] = None,
    name: Annotated[str | None, typer.Option("--name", help="Id of the agent. Default: the source's name.")] = None,
    revision: RevisionOption = None,
    trust_env_module: TrustOption = False,
    force: Annotated[bool, typer.Option("--force", help="Replace the folder.")] = False,
) -> None:
    """Import a Decision Transformer trained with transformers or CORL as an agent. Its actions stay the same."""
    from agentzoo.envs.env_options import trust_flags
    from agentzoo.hub.checkpoints import ImportOptions
    from agentzoo.hub.importing import import_agent
    from agentzoo.store.locate import require_free, written_whole

    require_free(folder, force)
    options = ImportOptions(
        target_return=target,
        env=env,
        mean=_numbers(mean, "mean"),
        std=_numbers(std, "std"),
        rtg_scale=rtg_scale,
        context=context,
        heads=heads,
        max_action=max_action,
        agent_id=name,
        trust_env_module=trust_env_module,
    )
    agent = import_agent(source, options, revision=revision)
    with written_whole(folder) as new:
        agent.save_pretrained(new)
    where = trust_flags(env, {}) if env else " --env YOUR-ENV"
    console.print(
        f"{plain(agent.config.agent_id)} -> {plain(folder)}: `agentzoo evaluate {word(folder)}{where}` measures it."
    )


def _numbers(text: str | None, name: str) -> list[float] | None:
    """The numbers of an option: `1,2.5,-3`, or a JSON file with a list of them."""
    import json

    from agentzoo.errors import ConfigError
    from agentzoo.store.files import read_text

    if text is None:
        return None
    try:
        listed = json.loads(read_text(Path(text))) if text.endswith(".json") else text.strip("[] ").split(",")
        return [float(value) for value in listed]
    except (ValueError, TypeError):
        raise ConfigError(
            f"--{name} takes numbers separated by commas, or a .json file with a list of numbers; got {text[:60]!r}."
        ) from None
