"""Training from Python: the functions behind `agentzoo train` and `agentzoo finetune`."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from agentzoo.agent import Agent
from agentzoo.data.minari import load_episodes
from agentzoo.data.remote import dataset_of
from agentzoo.evaluation.during import check_environment, train_in
from agentzoo.training.finetune import finetune_recipe, start_from
from agentzoo.training.loop import Hooks
from agentzoo.training.machine import check_machine
from agentzoo.training.planning import plan

RUNS = Path("runs")


def train(
    agent: str,
    *,
    dataset: str | None = None,
    env: str | None = None,
    target: str | float | None = None,
    out: str | Path | None = None,
    settings: Iterable[str] = (),
    hooks: Hooks | None = None,
    device: str | None = None,
    cuda_graph: bool = False,
    trust_env_module: bool = False,
) -> Agent:
    """Train an agent, or continue the run in `out`, and return the agent.

    Args:
        agent: an id with a recipe, a run's folder or a `train_config.json`; with `dataset` also a family, "dt".
        dataset: your own dataset; it sets the environment, the target and the scale of returns.
        env: the Gymnasium id, if the dataset does not name it.
        target: the target return, or a rule: "max", "p90", "d4rl".
        out: the run's folder; `runs/<agent>-s<seed>` by default.
        settings: changes of the recipe, like "train.steps=2000".
        hooks: callbacks for progress.
        device: "cpu", "cuda", ...; the fastest available by default.
        cuda_graph: replay a CUDA graph, which is faster for small networks on a GPU.
        trust_env_module: import the module that an environment id names.

    Raises:
        UnknownNameError: no such agent, family or dataset. ConfigError: a setting, device or environment that cannot be
            used. SpaceError: the environment does not fit the data. TrainingError: `out` holds another run, or the loss
            is not finite.
    """
    check_machine(device, (), cuda_graph)
    wanted = None if target is None else str(target)
    recipe, episodes = plan(agent, dataset=dataset, env=env, target=wanted, settings=settings)
    recipe = recipe.pinned()
    check_environment(recipe, episodes, trust_env_module)
    folder = Path(out) if out is not None else RUNS / f"{recipe.agent_id}-s{recipe.train.seed}"
    return train_in(
        folder,
        recipe,
        episodes,
        hooks=hooks,
        device=device,
        cuda_graph=cuda_graph,
        trust_env_module=trust_env_module,
    )


def finetune(
    agent: str | Path | Agent,
    dataset: str,
    *,
    name: str | None = None,
    steps: int = 3_000,
    normalization: str = "keep",
    reinit: bool = False,
    out: str | Path | None = None,
    settings: Iterable[str] = (),
    hooks: Hooks | None = None,
    device: str | None = None,
    cuda_graph: bool = False,
    trust_env_module: bool = False,
) -> Agent:
    """Fine-tune an agent on other data and return the new agent; the given agent does not change.

    Args:
        agent: a loaded agent, or an id or path for `Agent.from_pretrained`.
        dataset: a Minari id, a name from `agentzoo data list` or an address `hf://...`.
        name: the new agent's id; `<agent>-finetuned` by default.
        steps: number of updates.
        normalization: "keep" the agent's mean and std, or "dataset" for those of the new data.
        reinit: start layers of another shape from random weights.
        out, settings, hooks, device, cuda_graph, trust_env_module: as in `train`.

    Raises:
        ConfigError: the agent has no recipe. CheckpointError: layers differ in shape. Otherwise as `train`.
    """
    check_machine(device, (), cuda_graph)
    base = agent if isinstance(agent, Agent) else Agent.from_pretrained(agent, trust_env_module=trust_env_module)
    recipe = finetune_recipe(base, dataset_of(dataset), name, steps, normalization, reinit).override(settings)
    episodes = load_episodes(recipe.data.dataset, recipe.data.obs_keys)
    start = start_from(base, recipe, episodes)
    check_environment(recipe, episodes, trust_env_module)
    folder = Path(out) if out is not None else RUNS / f"{recipe.agent_id}-s{recipe.train.seed}"
    return train_in(
        folder,
        recipe,
        episodes,
        start=start,
        hooks=hooks,
        device=device,
        cuda_graph=cuda_graph,
        trust_env_module=trust_env_module,
        license_id=base.config.license,
    )
