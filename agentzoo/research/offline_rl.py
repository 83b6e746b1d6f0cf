"""TD3+BC, IQL and CQL as baselines: trained by d3rlpy, then copied into agents for our evaluator.

The policies of all three are an MLP from one observation to one action, as in the family `bc`. So a trained policy is
copied into a network of that family and compared with d3rlpy's own on random observations of the data. d3rlpy's
defaults are used throughout; observations are normalized and actions scaled to [-1, 1] before it sees them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import nn

from agentzoo.agent import Agent
from agentzoo.config import AgentConfig
from agentzoo.data.episodes import Episodes
from agentzoo.errors import CheckpointError, ConfigError
from agentzoo.extras import needed
from agentzoo.hub.baseline_rows import Making, write_making
from agentzoo.models.bc import BCConfig
from agentzoo.nn.base import SequenceModel
from agentzoo.recipe import Recipe
from agentzoo.training.loop import build_model

Method = Literal["td3+bc", "iql", "cql"]
SLUGS: dict[Method, str] = {"td3+bc": "td3-bc", "iql": "iql", "cql": "cql"}
COMPARED = 1_000  # observations on which the copy must act as the original
TOLERANCE = 1e-5  # in units of the scaled action


def baseline_recipe(method: Method, clone: Recipe, steps: int, seed: int) -> Recipe:
    """The recipe in a run's folder: the clone's data and evaluation, and the shape of d3rlpy's policies.

    d3rlpy ignores its optimizer fields and uses its own defaults.

    Raises:
        ConfigError: an unknown method, or `clone` is not of the family bc.
    """
    if method not in SLUGS:
        raise ConfigError(f"no method {method!r}; known: {', '.join(SLUGS)}.")
    if clone.model.family != "bc":
        raise ConfigError(f"{clone.agent_id} is of family {clone.model.family!r}; name a bc agent on the same data.")
    return clone.replace(
        agent_id=clone.agent_id.replace("bc-", f"{SLUGS[method]}-", 1),
        model=BCConfig(embed_dim=256, n_layers=2, dropout=0.0),
        train=clone.train.model_copy(update={"steps": steps, "seed": seed}),
    )


def train_baseline(method: Method, recipe: Recipe, episodes: Episodes, out: Path) -> Path:
    """Train with d3rlpy and write the agent into `out`.

    Raises:
        ConfigError: d3rlpy is not installed, or actions are not a bounded Box. CheckpointError: the copy acts
            differently.
    """
    if episodes.action.kind != "box" or episodes.action.low is None:
        raise ConfigError(f"{method} needs a Box of actions with bounds; {recipe.data.dataset} has none.")
    d3rlpy = needed("d3rlpy", "baselines", "this baseline")
    model = build_model(recipe, episodes)
    d3rlpy.seed(recipe.train.seed)
    algorithm = _algorithm(d3rlpy, method)
    algorithm.fit(
        _dataset(d3rlpy, model, episodes),
        n_steps=recipe.train.steps,
        n_steps_per_epoch=min(recipe.train.steps, 1_000),
        logger_adapter=d3rlpy.logging.NoopAdapterFactory(),
        show_progress=False,
    )
    copy_policy(algorithm, model, episodes)
    read = recipe.data.model_copy(update={"dataset_sha256": episodes.sha256()})
    recipe = recipe.replace(data=read)
    config = AgentConfig.of(recipe, model.io)
    Agent(model, config, recipe).save_pretrained(out)
    command = (
        f"agentzoo research offline-rl {method} {recipe.agent_id.replace(SLUGS[method], 'bc', 1)} "
        f"--steps {recipe.train.steps} --seed {recipe.train.seed} (d3rlpy {d3rlpy.__version__})"
    )
    write_making(out, Making(method=method, trained_with=command))
    return out


def copy_policy(algorithm: Any, model: SequenceModel, episodes: Episodes) -> None:
    """Copy the weights of d3rlpy's policy into `model`, a network of the family bc.

    Raises:
        CheckpointError: another number of layers, or the two act differently on observations of the data.
    """
    policy = algorithm.impl.policy
    theirs = [one for one in policy._encoder.modules() if isinstance(one, nn.Linear)]
    theirs.append(policy._mu if hasattr(policy, "_mu") else policy._fc)
    ours = [one for one in model.modules() if isinstance(one, nn.Linear)]
    if len(ours) != len(theirs):
        raise CheckpointError(f"d3rlpy's policy has {len(theirs)} layers, ours {len(ours)}.")
    for target, source in zip(ours, theirs, strict=True):
        target.load_state_dict(source.state_dict())
    rows = np.random.default_rng(0).integers(len(episodes.observations), size=COMPARED)
    observations = normalized(model, episodes.observations[rows])
    with torch.no_grad():
        net: Any = model.get_submodule("net")
        acted = net.eval()(torch.from_numpy(observations)).numpy()
    largest = float(np.abs(acted - algorithm.predict(observations)).max())
    if largest > TOLERANCE:
        raise CheckpointError(f"the copy of d3rlpy's policy differs by {largest:.1e} of the scaled action.")


def normalized(model: SequenceModel, observations: Any) -> np.ndarray[Any, np.dtype[np.float32]]:
    """(T, S) observations, normalized as in the network."""
    mean, std = model.obs_mean.numpy(), model.obs_std.numpy()
    return np.asarray((observations - mean) / std, dtype=np.float32)


def _dataset(d3rlpy: Any, model: SequenceModel, episodes: Episodes) -> Any:
    """The dataset for d3rlpy: scaled observations and actions, raw rewards."""
    ends = np.cumsum(episodes.lengths) - 1
    terminals, timeouts = np.zeros(len(episodes), np.float32), np.zeros(len(episodes), np.float32)
    terminals[ends[episodes.terminated]] = 1.0
    timeouts[ends[~episodes.terminated]] = 1.0
    return d3rlpy.dataset.MDPDataset(
        observations=normalized(model, episodes.observations),
        actions=model.encode_actions(torch.from_numpy(np.asarray(episodes.actions))).numpy(),
        rewards=np.asarray(episodes.rewards, dtype=np.float32),
        terminals=terminals,
        timeouts=timeouts,
    )


def _algorithm(d3rlpy: Any, method: Method) -> Any:
    algorithms = d3rlpy.algos
    configs = {"td3+bc": algorithms.TD3PlusBCConfig, "iql": algorithms.IQLConfig, "cql": algorithms.CQLConfig}
    return configs[method]().create(device=torch.cuda.is_available())
