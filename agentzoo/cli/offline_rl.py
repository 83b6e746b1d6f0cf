"""`agentzoo research offline-rl`: TD3+BC, IQL and CQL through d3rlpy."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from agentzoo.cli.console import console, errors_console, plain, word


def offline_rl(
    method: Annotated[str, typer.Argument(metavar="METHOD", help="One of td3+bc, iql, cql.")],
    clone: Annotated[str, typer.Argument(metavar="BC_AGENT", help="A bc agent on the same data: bc-hopper-medium.")],
    steps: Annotated[int, typer.Option("--steps", min=1, help="Updates to make.")] = 100_000,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of the training.")] = 0,
    out: Annotated[Path | None, typer.Option("--out", help="Folder of the run. Default: runs/<agent>-s<seed>.")] = None,
) -> None:
    """Train a baseline with d3rlpy on an agent's dataset and write it as an agent. A stopped run cannot continue."""
    from agentzoo.recipes._table import require_recipe

    require_recipe(clone)  # reports a typo before the heavy imports
    from agentzoo.data.minari import load_episodes
    from agentzoo.evaluation.during import default_folder
    from agentzoo.recipe import load_recipe
    from agentzoo.research.offline_rl import baseline_recipe, train_baseline

    recipe = baseline_recipe(method, load_recipe(clone), steps, seed)  # type: ignore[arg-type]
    folder = out or default_folder(recipe)
    episodes = load_episodes(recipe.data.dataset, recipe.data.obs_keys)
    with errors_console.status(f"{plain(recipe.agent_id)}: {steps:,} updates"):
        train_baseline(method, recipe, episodes, folder)  # type: ignore[arg-type]
    console.print(f"done: `agentzoo hub baselines {word(folder)}` measures it and shows it on the cards.")
