"""Training from Python: what `agentzoo train` and `agentzoo finetune` do, as functions."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from rich.console import Console

from agentzoo.agent import Agent
from agentzoo.data.episodes import Episodes
from agentzoo.envs.env_options import trusting_env_options
from agentzoo.evaluation.during import check_environment, default_folder, train_in
from agentzoo.recipe import Recipe
from agentzoo.training.finetune import plan_finetune, start_from
from agentzoo.training.hooks import Hooks
from agentzoo.training.machine import check_machine
from agentzoo.training.planning import plan
from agentzoo.training.processes import process_index
from agentzoo.training.progress_bar import run_progress
from agentzoo.training.settle import run_to_continue


def train(
    agent: str | Path | Recipe,
    *,
    dataset: str | None = None,
    env: str | None = None,
    target: str | float | None = None,
    out: str | Path | None = None,
    settings: Iterable[str] = (),
    progress_bar: bool = False,
    hooks: Hooks | None = None,
    device: str | None = None,
    cuda_graph: bool = False,
    trust_env_module: bool = False,
    trust_env_options: bool = False,
) -> Agent:
    """Train an agent, or continue the run in `out`, and return the agent.

    Args:
        agent: an id with a recipe, a run's folder, a `train_config.json` or a `Recipe`; with `dataset`
            also a family, "dt".
        dataset: your own dataset; it sets the environment, the target and the scale of returns.
        env: the Gymnasium id, if the dataset does not name it.
        target: the target return, or a rule: "max", "p90", "d4rl".
        out: the run's folder; by default `agent`, if it is the folder of a run, else `runs/<agent>-s<seed>`.
        settings: changes of the recipe, like "train.steps=2000"; one string is one change. A bf16 recipe trains in fp32
            on a machine where bf16 is slow, unless "train.precision=bf16" is among them.
        progress_bar: show progress, the loss and short evaluations, on stderr or in a notebook.
        hooks: callbacks for progress.
        device: "cpu", "cuda", ...; the fastest available by default.
        cuda_graph: replay a CUDA graph, which is faster for small networks on a GPU.
        trust_env_module: import the module that an environment id names.
        trust_env_options: accept any option of the environment (`envs.env_options`).

    Raises:
        UnknownNameError: no such agent, family or dataset. ConfigError: a setting, device or environment that cannot be
            used. SpaceError: the environment does not fit the data. TrainingError: `out` holds another run, or the loss
            is not finite.
    """
    check_machine(device, (), cuda_graph)
    named = agent if isinstance(agent, Recipe) else str(agent)
    wanted = None if target is None else str(target)
    with trusting_env_options() if trust_env_options else nullcontext():
        recipe, episodes = plan(
            named,
            dataset=dataset,
            env=env,
            target=wanted,
            settings=settings,
            trust_env_module=trust_env_module,
        )
        recipe = recipe.pinned()
        if out is None and dataset is None and isinstance(named, str):
            out = run_to_continue(named)
        options = {"device": device, "cuda_graph": cuda_graph}
        return _checked_run(recipe, episodes, out, trust_env_module, progress_bar, hooks, **options)


def finetune(
    agent: str | Path | Agent,
    dataset: str,
    *,
    name: str | None = None,
    steps: int | None = None,
    normalization: str | None = None,
    reinit: bool = False,
    env: str | None = None,
    target: str | float | None = None,
    out: str | Path | None = None,
    settings: Iterable[str] = (),
    progress_bar: bool = False,
    hooks: Hooks | None = None,
    device: str | None = None,
    cuda_graph: bool = False,
    trust_env_module: bool = False,
    trust_env_options: bool = False,
) -> Agent:
    """Fine-tune an agent on other data and return the new agent; the given agent does not change.

    Args:
        agent: a loaded agent, or an id or path for `Agent.from_pretrained`.
        dataset: a Minari id, a name from `agentzoo data list` or an address `hf://...`.
        name: the new agent's id; `<agent>-finetuned` by default.
        steps: number of updates, 3,000 by default.
        normalization: "keep" the agent's mean and std, the default, or "dataset" for those of the new data.
        reinit: start layers whose shape differs from the agent's from random weights.
        env: the Gymnasium id, instead of the one that the dataset names; if it names none, the agent's by default.
        target: the target return, or a rule: "max", "p90", "d4rl". By default the agent's rule chooses it for the data.
        out, settings, progress_bar, hooks, device, cuda_graph, trust_env_module, trust_env_options: as in `train`.

    Raises:
        ConfigError: the agent has no recipe. CheckpointError: layers differ in shape. Otherwise as `train`.
    """
    check_machine(device, (), cuda_graph)
    with trusting_env_options() if trust_env_options else nullcontext():
        base = agent if isinstance(agent, Agent) else Agent.from_pretrained(agent, trust_env_module=trust_env_module)
        recipe, episodes = plan_finetune(
            base,
            dataset,
            name=name,
            steps=steps,
            normalization=normalization,
            reinit=reinit,
            env=env,
            target=None if target is None else str(target),
            settings=settings,
            trust_env_module=trust_env_module,
        )
        options = {"device": device, "cuda_graph": cuda_graph, "license_id": base.config.license}
        start = start_from(base, recipe, episodes)
        return _checked_run(recipe, episodes, out, trust_env_module, progress_bar, hooks, start=start, **options)


def _checked_run(
    recipe: Recipe,
    episodes: Episodes,
    out: str | Path | None,
    trust_env_module: bool,
    progress_bar: bool,
    hooks: Hooks | None,
    **given: Any,
) -> Agent:
    """Train after a look at the environment; `given` are options of `during.train_in`."""
    check_environment(recipe, episodes, trust_env_module)
    folder = default_folder(recipe) if out is None else Path(out)
    if not progress_bar or process_index() > 0:
        return train_in(folder, recipe, episodes, hooks=hooks, trust_env_module=trust_env_module, **given)
    with run_progress(recipe, Console(stderr=True, highlight=False)) as shown:
        return train_in(folder, recipe, episodes, hooks=shown.hooks(hooks), trust_env_module=trust_env_module, **given)
