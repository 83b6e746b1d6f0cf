"""The recipe and data that a command line names: an agent, or a family and a dataset.

For a family and a dataset, the environment, the target return and the scale of returns come from the data. Network and
optimizer are those of the family's agent on hopper/medium.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from agentzoo.config import named_recipe
from agentzoo.data.episodes import Episodes
from agentzoo.data.metadata import changed_options, environment_spec
from agentzoo.data.minari import dataset_metadata, load_episodes
from agentzoo.data.references import reference_in
from agentzoo.data.remote import dataset_of
from agentzoo.data.targets import choose_target
from agentzoo.errors import ConfigError, warn
from agentzoo.recipe import EvalConfig, Recipe
from agentzoo.recipes._table import require_template
from agentzoo.registry import recipe_table
from agentzoo.types import FloatArray

Reader = Callable[[str, tuple[str, ...] | None], Episodes]  # dataset id, observation keys -> episodes
TEMPLATE = "hopper-medium"  # each family's agent whose network and optimizer other datasets get


def plan(
    named: str,
    *,
    dataset: str | None = None,
    env: str | None = None,
    target: str | None = None,
    settings: Iterable[str] = (),
    read: Reader = load_episodes,
) -> tuple[Recipe, Episodes]:
    """The recipe to train and its data.

    Args:
        named: an agent's id, a run's folder or a `train_config.json`; with `dataset` also a family such as `dt`.
        dataset: Minari's id, a name of `agentzoo data list` or an address `hf://...`. It then gives the environment,
            the target, the scale of returns and the agent's name.
        env: the Gymnasium id, if the dataset does not name it.
        target: a number or a rule of `data.targets`.
        settings: `section.field=value`, applied last.
        read: the function that reads a dataset.

    Raises:
        UnknownNameError: no such agent, family or dataset. ConfigError: the dataset names no environment, or a setting
            does not fit.
    """
    settings = list(settings)
    if dataset is not None:
        recipe, episodes = recipe_for(named, dataset_of(dataset), env, read)
        recipe = recipe.override(settings)
    else:
        if env is not None:
            settings.append(f"eval.env={env}")
        recipe = with_data_here(named_recipe(named).override(settings))
        episodes = read(recipe.data.dataset, recipe.data.obs_keys)
    returns = episodes.best(recipe.data.best_fraction).returns
    if target is not None:
        recipe = recipe.asked_for(choose_target(target, returns, recipe.eval.env))
    _warn_of_high_target(recipe, returns)
    return recipe, episodes


def with_data_here(recipe: Recipe) -> Recipe:
    """The recipe with the plain id of its dataset; a dataset named by an address is fetched first (`dataset_of`)."""
    data = recipe.data.model_copy(update={"dataset": dataset_of(recipe.data.dataset)})
    return recipe.replace(data=data)


def with_precision_of(recipe: Recipe, settings: Iterable[str]) -> Recipe:
    """Replace bf16 by fp32 on a machine where bf16 is slow, unless `train.precision=bf16` is among the settings."""
    insists = any(one.partition("=")[0].strip() == "train.precision" for one in settings)
    if recipe.train.precision != "bf16" or insists:
        return recipe
    return recipe.replace(train=recipe.train.model_copy(update={"precision": "auto"}))


def recipe_for(
    named: str, dataset_id: str, env: str | None = None, read: Reader = load_episodes
) -> tuple[Recipe, Episodes]:
    """A recipe for a dataset of this machine or Minari's remote, and the dataset.

    Args:
        named: a family, or an agent whose network and optimizer it gets.

    Raises:
        As `plan`.
    """
    template = _template(named)
    metadata_keys = template.data.obs_keys if dataset_id == template.data.dataset else None
    episodes = read(dataset_id, metadata_keys)
    metadata = dataset_metadata(dataset_id)
    own = metadata.get("obs_keys")
    if metadata_keys is None and isinstance(own, list) and own:
        metadata_keys = tuple(map(str, own))
        episodes = read(dataset_id, metadata_keys)
    env_id, options = _environment(metadata, env)
    returns = episodes.best(template.data.best_fraction).returns
    target = choose_target("d4rl", returns, env_id)
    longest = int(episodes.lengths.max())
    data = template.data.model_copy(
        update={"dataset": dataset_id, "obs_keys": metadata_keys, "rtg_scale": scale_of(returns)}
    )
    evaluation = EvalConfig(
        env=env_id,
        env_options=options,
        target_return=target.value,
        target_rule=target.rule,
        every=template.eval.every,
        sampled=template.eval.sampled,
        reference=reference_in(metadata, env_id, options),
    )
    recipe = template.replace(
        agent_id=name_for(named, dataset_id),
        model=template.model.model_copy(update={"max_ep_len": max(template.model.max_ep_len, longest)}),
        data=data,
        eval=evaluation,
    )
    return Recipe.from_json(recipe.to_json(), f"the recipe for {dataset_id}"), episodes


def scale_of(returns: FloatArray) -> float:
    """The divisor of returns: the power of ten at or below the largest absolute return, 1000 for 3600."""
    largest = float(np.abs(returns).max())
    return 1.0 if largest == 0.0 else 10.0 ** math.floor(math.log10(largest))


def name_for(named: str, dataset_id: str) -> str:
    """`dt` and `my/x-v0` -> `dt-my-x`; the zoo's own namespace is left out."""
    family = named.split("-" + TEMPLATE)[0]
    plain = re.sub(r"-v\d+$", "", dataset_id.removeprefix("zoo/")).lower()
    return f"{family}-{re.sub(r'[^a-z0-9_]+', '-', plain)}"[:96].strip("-")


def _template(named: str) -> Recipe:
    require_template(named)
    table = recipe_table()
    name = named.removeprefix("zoo/")
    if name in table or Path(named).exists() or named.endswith(".json"):
        return named_recipe(named)
    of_family = [one for one, recipe in table.items() if recipe.model.family == name]
    found = [f"{name}-{TEMPLATE}", *(one for one in table if one.startswith(f"{name}-")), *of_family]
    recipe: Recipe = next(table[one] for one in found if one in table)
    return recipe


def _environment(metadata: dict[str, Any], env: str | None) -> tuple[str, dict[str, Any]]:
    """The Gymnasium id and options of the data's environment, unless `env` is given."""
    spec = environment_spec(metadata, ("eval_env_spec", "env_spec"))
    if env is not None:
        spec = spec if spec.get("id") == env else {"id": env}
    name = spec.get("id")
    if not isinstance(name, str):
        raise ConfigError("the dataset does not name its environment; pass its Gymnasium id with --env (env=).")
    options = {
        key: value
        for key, value in changed_options(spec).items()
        if isinstance(value, bool | int | float | str) and key not in ("render_mode", "seed", "width", "height")
    }
    return name, options


def _warn_of_high_target(recipe: Recipe, returns: FloatArray) -> None:
    best = float(returns.max())
    if recipe.model.acts_on_target() and recipe.eval.target_return > best + 1e-6 * abs(best):
        warn(
            f"the target return {recipe.eval.target_return:g} is above the best return in {recipe.data.dataset}, "
            f"{best:g}; `--target max` (target='max') sets that one instead.",
            depth=3,
        )
