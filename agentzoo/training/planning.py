"""The recipe and data that a command line names: an agent, or a family and a dataset.

For a family and a dataset, the environment, the target return and the scale of returns come from the data. Network and
optimizer are those of the family's agent on hopper/medium.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from agentzoo.config import named_recipe
from agentzoo.data.episodes import Episodes
from agentzoo.data.minari import dataset_metadata, load_episodes, stored_metadata, stored_observation
from agentzoo.data.remote import dataset_of
from agentzoo.data.targets import choose_target
from agentzoo.errors import ConfigError, warn
from agentzoo.nn.base import MAX_TIMESTEPS, ModelConfig, require_kind
from agentzoo.recipe import EvalConfig, Recipe
from agentzoo.recipes._table import require_template
from agentzoo.record import checked
from agentzoo.registry import get_family, recipe_table
from agentzoo.store.files import RECIPE
from agentzoo.training.environment import environment_for_data, reference_for_data
from agentzoo.types import MAX_TARGET, FloatArray

Reader = Callable[[str, tuple[str, ...] | None], Episodes]  # dataset id, observation keys -> episodes
TEMPLATE = "hopper-medium"  # each family's agent whose network and optimizer other datasets get


def plan(
    named: str | Recipe,
    *,
    dataset: str | None = None,
    env: str | None = None,
    target: str | None = None,
    settings: Iterable[str] = (),
    read: Reader = load_episodes,
    trust_env_module: bool = False,
) -> tuple[Recipe, Episodes]:
    """The recipe to train and its data.

    Args:
        named: an agent's id, a run's folder, a `train_config.json` or a recipe; with `dataset` also a family, `dt`.
        dataset: Minari's id, a name of `agentzoo data list` or an address `hf://...`. It then gives the environment,
            the target, the scale of returns and the agent's name.
        env: the Gymnasium id, if the dataset does not name it; options and references of another one are dropped.
        target: a number or a rule of `data.targets`.
        settings: `section.field=value`, applied last. Without `train.precision=bf16` among them, a bf16 recipe trains
            in fp32 on a machine where bf16 is slow.
        read: the function that reads a dataset.
        trust_env_module: import the module that the environment's id names, to learn its usual options.

    Raises:
        UnknownNameError: no such agent, family or dataset. ConfigError: the dataset names no environment or one that a
            recipe cannot hold, or a setting does not fit or names another dataset than `dataset`.
    """
    settings = listed(settings)
    target_asked(target, settings)
    if dataset is not None:
        recipe, episodes = recipe_for(named, dataset_of(dataset), env, read, settings, trust_env_module, target)
    else:
        env = environment_asked(env, settings)
        settings = [*([] if env is None else [f"eval.env={env}"]), *settings]
        recipe = with_data_here(_named_recipe(named).override(settings))
        episodes = read_fitting(read, recipe.model, recipe.data.dataset, recipe.data.obs_keys)
    returns = episodes.best(recipe.data.best_fraction).returns
    if target is not None:
        recipe = recipe.with_target(choose_target(target, returns, recipe.eval.env, recipe.eval.env_options))
    warn_of_high_target(recipe, returns)
    return with_free_precision(recipe, settings), episodes


def listed(settings: str | Iterable[str]) -> list[str]:
    """The settings; a single one may be a plain string."""
    return [settings] if isinstance(settings, str) else list(settings)


def with_data_here(recipe: Recipe) -> Recipe:
    """The recipe with the plain id of its dataset; a dataset named by an address is fetched first (`dataset_of`)."""
    data = recipe.data.model_copy(update={"dataset": dataset_of(recipe.data.dataset)})
    return recipe.replace(data=data)


def with_free_precision(recipe: Recipe, settings: Iterable[str]) -> Recipe:
    """The recipe with "auto" for "bf16", so that the machine decides; a `train.precision` in the settings stays."""
    if recipe.train.precision != "bf16" or "train.precision" in named_in(settings):
        return recipe
    return recipe.replace(train=recipe.train.model_copy(update={"precision": "auto"}))


def recipe_for(
    named: str | Recipe,
    dataset_id: str,
    env: str | None = None,
    read: Reader = load_episodes,
    settings: Iterable[str] = (),
    trust_env_module: bool = False,
    target: str | None = None,
) -> tuple[Recipe, Episodes]:
    """A recipe for a dataset of this machine or Minari's remote, and the dataset.

    Args:
        named: a family, or an agent whose network and optimizer it gets.
        env, read, settings, trust_env_module, target: as in `plan`.

    Raises:
        As `plan`.
    """
    settings, template = listed(settings), _template(named)
    names = named_in(settings)
    if template.base is not None and "base" not in names:
        raise ConfigError(_no_new_network(named, template, dataset_id))
    changed = template.override(one for one in settings if one.lstrip().startswith(("data", "model")))
    model, wanted = changed.model, changed.data
    require_one_dataset(dataset_id, wanted.dataset, names)
    keys_set = not names.isdisjoint(("data", "data.obs_keys"))
    obs_keys = wanted.obs_keys if keys_set or dataset_id == template.data.dataset else None
    free = obs_keys is None and not keys_set
    obs_keys = _own_keys(stored_metadata(dataset_id)) if free else obs_keys
    episodes = read_fitting(read, model, dataset_id, obs_keys)  # downloads or builds it if possible
    metadata = dataset_metadata(dataset_id)
    if free and obs_keys is None and (obs_keys := _own_keys(metadata)) is not None:
        episodes = read_fitting(read, model, dataset_id, obs_keys)
    env_id, options = environment_for_data(metadata, environment_asked(env, settings), trust_env_module)
    returns = episodes.best(wanted.best_fraction).returns
    chosen_target = choose_target(target_asked(target, settings) or "d4rl", returns, env_id, options)
    # a table of timesteps has at most 100,000 rows; later steps use the last. One row stays one: it says that actions
    # do not depend on the timestep
    rows, longest = template.model.max_ep_len, min(int(episodes.lengths.max()), MAX_TIMESTEPS)
    data = template.data.model_copy(
        update={"dataset": dataset_id, "obs_keys": obs_keys, "rtg_scale": scale_of(returns)}
    )
    if dataset_id != template.data.dataset:  # what a run has filled in from other data
        data = data.model_copy(update={"dataset_sha256": None, "held_out": None})
    about_data = {
        "env": env_id,
        "env_options": options,
        "target_return": chosen_target.value,
        "target_rule": chosen_target.rule,
        "reference": reference_for_data(metadata, env_id, options),
    }
    fields = {**template.eval.model_dump(), **about_data}
    evaluation = checked(EvalConfig, f"the evaluation of an agent of {dataset_id}", **fields)
    recipe = template.replace(
        agent_id=name_for(_name(named, template), dataset_id, template.data.dataset),
        model=template.model.model_copy(update={"max_ep_len": 1 if rows == 1 else max(rows, longest)}),
        data=data,
        eval=evaluation,
    )
    return Recipe.from_json(recipe.to_json(), f"the recipe for {dataset_id}").override(settings), episodes


def _no_new_network(named: str | Recipe, recipe: Recipe, dataset_id: str) -> str:
    """An error message: the recipe of a fine-tune makes no new network, what does, and what continues this one."""
    folder = recipe.agent_id if isinstance(named, Recipe) else str(Path(named).parent if _is_file(named) else named)
    return (
        f"{recipe.agent_id!r} is a fine-tune of {recipe.base!r}, and `train` makes new networks only. `agentzoo "
        f"finetune {folder} --dataset {dataset_id}` trains its weights on; `agentzoo train {recipe.model.family} "
        f"--dataset {dataset_id}` trains a new network."
    )


def read_fitting(read: Reader, model: ModelConfig, dataset_id: str, obs_keys: tuple[str, ...] | None) -> Episodes:
    """The dataset; images for a family that reads vectors raise SpaceError before it is read, and the reverse."""
    observation = stored_observation(dataset_id, obs_keys)
    if observation is not None:
        require_kind(model.family, observation, get_family(model.family).model.takes_images)
    return read(dataset_id, obs_keys)


def _own_keys(metadata: Mapping[str, Any]) -> tuple[str, ...] | None:
    """The keys of a Dict observation that a dataset names for networks to read."""
    found = metadata.get("obs_keys")
    return tuple(map(str, found)) if isinstance(found, list) and found else None


def require_one_dataset(asked: str, set_to: str, names: set[str]) -> None:
    """Raise ConfigError if the settings that change `names` set another dataset than the one asked for."""
    if not names.isdisjoint(("data", "data.dataset")) and set_to != asked:
        raise ConfigError(
            f"--dataset (dataset=) names {asked!r}, but a setting names data.dataset={set_to!r}; name one."
        )


def named_in(settings: Iterable[str]) -> set[str]:
    """The fields that settings change."""
    return {one.partition("=")[0].strip() for one in settings}


def value_in(settings: Iterable[str], field: str) -> str | None:
    """The last value that settings give this field, if there is one."""
    found = [one.partition("=")[2].strip().strip('"') for one in settings if named_in([one]) == {field}]
    return found[-1] if found else None


def environment_asked(env: str | None, settings: Iterable[str]) -> str | None:
    """The environment of `--env` or of a setting. ConfigError: both name one, and not the same."""
    return asked_once("--env (env=)", env, "eval.env", settings)


def target_asked(target: str | None, settings: Iterable[str]) -> str | None:
    """The target of `--target` or of a setting. ConfigError: both name one, and not the same."""
    return asked_once("--target (target=)", target, "eval.target_return", settings)


def asked_once(option: str, asked: str | None, field: str, settings: Iterable[str]) -> str | None:
    """The value of an option or of the setting of `field`. ConfigError: both name one, and not the same."""
    found = value_in(settings, field)
    if asked is not None and found is not None and found != asked:
        raise ConfigError(f"{option} is {asked!r}, but a setting is {field}={found}; name one.")
    return found if asked is None else asked


def scale_of(returns: FloatArray) -> float:
    """The divisor of returns: the power of ten at or below the largest absolute return, 1000 for 3600; at most 1e9."""
    largest = min(float(np.abs(returns).max()), MAX_TARGET)
    return 1.0 if largest == 0.0 else 10.0 ** math.floor(math.log10(largest))


def name_for(named: str, dataset_id: str, before: str) -> str:
    """`dt` and `my/x-v0` -> `dt-my-x`; the zoo's own namespace is left out.

    Args:
        named: a family, or an agent's id, whose own dataset is replaced: `dm-hopper-medium-no-ilo` -> `dm-my-x-no-ilo`.
        before: that dataset.
    """
    family, _, ending = named.partition(f"-{_plain(before)}")
    return f"{family}-{_plain(dataset_id)}"[: 96 - len(ending)].strip("-") + ending


def _plain(dataset_id: str) -> str:
    """A dataset's id as a part of an agent's id."""
    plain = re.sub(r"-v\d+$", "", dataset_id.removeprefix("zoo/")).lower()
    return re.sub(r"[^a-z0-9_]+", "-", plain)


def _name(named: str | Recipe, template: Recipe) -> str:
    """The family or agent that `named` means, which may be a path or a recipe."""
    return template.agent_id if isinstance(named, Recipe) or _is_recipe(named) else named.removeprefix("zoo/")


def _is_recipe(named: str) -> bool:
    return _is_file(named) or (Path(named) / RECIPE).is_file()


def _is_file(named: str) -> bool:
    return named.endswith(".json")


def _named_recipe(named: str | Recipe) -> Recipe:
    return named if isinstance(named, Recipe) else named_recipe(named)


def _template(named: str | Recipe) -> Recipe:
    if isinstance(named, Recipe):
        return named
    require_template(named)
    table = recipe_table()
    name = named.removeprefix("zoo/")
    if name in table or _is_recipe(named):
        return named_recipe(named)
    of_family = [one for one, recipe in table.items() if recipe.model.family == name]
    found = [f"{name}-{TEMPLATE}", *(one for one in table if one.startswith(f"{name}-")), *of_family]
    known = [table[one] for one in found if one in table]
    return known[0] if known else named_recipe(named)  # a folder without a recipe: an error that says so


def warn_of_high_target(recipe: Recipe, returns: FloatArray) -> None:
    """Warn of a target return that no episode of the data reaches."""
    best = float(returns.max())
    if recipe.model.acts_on_target() and recipe.eval.target_return > best + 1e-6 * abs(best):
        warn(
            f"the target return {recipe.eval.target_return:g} is above the best return in {recipe.data.dataset}, "
            f"{best:g}; `--target max` (target='max') sets that one instead.",
            depth=3,
        )
