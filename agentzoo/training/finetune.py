"""Fine-tuning: a run that starts from a trained agent."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor

from agentzoo.agent import Agent
from agentzoo.data.episodes import Episodes
from agentzoo.data.metadata import named_environment
from agentzoo.data.minari import load_episodes, stored_metadata
from agentzoo.data.remote import dataset_of
from agentzoo.data.spaces import other_actions
from agentzoo.data.targets import choose_target
from agentzoo.env_ids import same_environment
from agentzoo.envs.making import import_module_of
from agentzoo.errors import CheckpointError, ConfigError, warn
from agentzoo.nn.base import SequenceModel
from agentzoo.recipe import EvalConfig, Recipe
from agentzoo.store.files import RECIPE
from agentzoo.store.tensors import first_names
from agentzoo.training.environment import Environment, environment_for_data, reference_for_data
from agentzoo.training.loop import build_model
from agentzoo.training.planning import (
    Reader,
    asked_once,
    environment_asked,
    listed,
    named_in,
    read_fitting,
    require_one_dataset,
    target_asked,
    warn_of_high_target,
    with_data_here,
    with_free_precision,
)
from agentzoo.types import ActionSpec, FloatArray

NORMALIZATION = ("obs_mean", "obs_std")
STEPS = 3_000  # updates, if none are asked for
FAR = 10.0  # times: returns this much larger or smaller are warned of


def plan_finetune(
    base: Agent,
    dataset: str,
    *,
    name: str | None = None,
    steps: int | None = None,
    normalization: str | None = None,
    reinit: bool = False,
    env: str | None = None,
    target: str | None = None,
    settings: Iterable[str] = (),
    read: Reader = load_episodes,
    trust_env_module: bool = False,
) -> tuple[Recipe, Episodes]:
    """The recipe of a fine-tune and its data, read with the base's observation keys.

    The environment is that of the data, as for new agents, and the base's if the data names none. The target return
    follows from the data by the base's rule; a number set by hand stays if the environment does.

    Args:
        dataset: Minari's id, a name of `agentzoo data list` or an address `hf://...`.
        name: the new agent's id; `<base>-finetuned` by default.
        steps: updates, 3,000 by default.
        normalization: "keep" (default) or "dataset", see `start_from`.
        reinit: as in `finetune_recipe`.
        env: a Gymnasium id instead of the data's.
        target: a number or a rule of `data.targets`.
        settings, read, trust_env_module: as in `planning.plan`.

    Raises:
        UnknownNameError: no such dataset. ConfigError: the base has no recipe, a setting does not fit or differs from
            an argument, or a recipe cannot hold the data's environment. SpaceError: the data lacks one of the base's
            keys.
    """
    settings = listed(settings)
    dataset = dataset_of(dataset)
    name = asked_once("--name (name=)", name, "agent_id", settings)
    normalization = asked_once("--normalization (normalization=)", normalization, "data.normalization", settings)
    reinit = asked_once("--reinit (reinit=)", "true" if reinit else None, "reinit", settings) == "true"
    recipe = finetune_recipe(base, dataset, name, _updates(steps, settings), normalization or "keep", reinit)
    changed = recipe.override(settings)
    asked = changed.data
    require_one_dataset(dataset, asked.dataset, named_in(settings))
    episodes = read_fitting(read, changed.model, asked.dataset, asked.obs_keys)
    returns = episodes.best(asked.best_fraction).returns
    env, wanted = environment_asked(env, settings), target_asked(target, settings)
    before = frozenset(gym.registry)
    if trust_env_module:
        import_module_of(env or recipe.eval.env)
    imported = frozenset(gym.registry) - before
    metadata = stored_metadata(asked.dataset)
    recipe = recipe.replace(eval=_evaluation(recipe.eval, metadata, env, returns, wanted, imported))
    recipe = Recipe.from_json(recipe.to_json(), f"the recipe for {asked.dataset}").override(settings)
    if target is not None:
        recipe = recipe.with_target(choose_target(target, returns, recipe.eval.env, recipe.eval.env_options))
    warn_of_high_target(recipe, returns)
    return with_free_precision(recipe, settings), episodes


def _updates(steps: int | None, settings: list[str]) -> int:
    """The updates asked for, 3,000 by default; a setting that is no number is refused later."""
    found = asked_once("--steps (steps=)", None if steps is None else str(steps), "train.steps", settings)
    if steps is None and found is not None and found.isdecimal():
        return int(found)
    return STEPS if steps is None else steps


def plan_repeat(recipe: Recipe, settings: Iterable[str], read: Reader = load_episodes) -> tuple[Recipe, Episodes]:
    """The recipe of a fine-tune that is repeated, with these settings, and its data."""
    settings = listed(settings)
    recipe = with_free_precision(with_data_here(recipe.override(settings)), settings)
    return recipe, read_fitting(read, recipe.model, recipe.data.dataset, recipe.data.obs_keys)


def _evaluation(
    own: EvalConfig,
    metadata: dict[str, Any],
    env: str | None,
    returns: FloatArray,
    wanted: str | None,
    imported: Collection[str],
) -> EvalConfig:
    """The base's evaluation with the environment, references and target return of other data.

    Args:
        wanted: the target asked for; None: by the base's rule.
        imported: ids that the module of the base's environment has registered.
    """
    named = named_environment(metadata)
    if env is None and named is None:
        found = Environment(own.env, own.env_options)
    elif env is not None and same_environment(env, own.env) and not (named and same_environment(env, named)):
        found = Environment(env, own.env_options)
    else:
        found = environment_for_data(metadata, env)
    known = same_environment(found.env, own.env)
    same = known and found.options == own.env_options
    where = own.env if known and env is None else found.env  # its module may register it
    if where in imported:
        where = f"{own.env.partition(':')[0]}:{where}"  # so that the new agent imports it, too
    target = own.target_return, own.target_rule
    if wanted is not None or own.target_rule != "number" or not same:
        rule = "d4rl" if own.target_rule == "number" else own.target_rule
        target = choose_target(wanted or rule, returns, where, found.options)
    reference = reference_for_data(metadata, where, found.options) or (own.reference if same else None)
    changed = {"env": where, "env_options": found.options, "reference": reference}
    return own.model_copy(update={**changed, "target_return": target[0], "target_rule": target[1]})


def _warn_of_other_scale(base: Agent, recipe: Recipe, episodes: Episodes) -> None:
    """Warn of returns far from those that the base was trained for, since both are divided by the same number.

    The base's returns are at most about as large as its target or its scale, whichever is larger: data of returns
    from -1,600 to -0.1 has a scale of 1,000 and a target of -0.1.
    """
    if base.recipe is None:
        return
    returns = episodes.best(recipe.data.best_fraction).returns
    scale, largest = recipe.data.rtg_scale, float(np.abs(returns).max())
    usual = max(abs(base.recipe.eval.target_return), scale)
    known = recipe.data.dataset == base.recipe.data.dataset or scale != base.recipe.data.rtg_scale
    if known or not recipe.model.acts_on_target() or largest == 0.0:
        return
    if not 1.0 / FAR <= largest / usual <= FAR:
        warn(
            f"returns of {recipe.data.dataset} have sizes of up to {largest:g}, those of {recipe.base} of about "
            f"{usual:g}: divided by {scale:g}, they are far from the numbers its network knows. --set data.rtg_scale="
            f"{scale * largest / usual:.3g} brings them close.",
            depth=3,
        )


def _warn_of_longer_episodes(recipe: Recipe, longest: int) -> None:
    rows = recipe.model.max_ep_len
    if recipe.model.has_timestep_table and 1 < rows < longest:
        warn(
            f"episodes of {recipe.data.dataset} have up to {longest:,} steps, and {recipe.base} has {rows:,} "
            "timesteps: all later steps share the last one. A new agent (`agentzoo train FAMILY --dataset DATASET`) "
            "has one for each step.",
            depth=3,
        )


def finetune_recipe(
    base: Agent, dataset: str, name: str | None, steps: int, normalization: str, reinit: bool = False
) -> Recipe:
    """The recipe of a fine-tune: the base's recipe on other data, for `steps` updates, at most a tenth of them warm-up.

    It reads the base's observation keys.

    Args:
        normalization: "keep", "dataset" or "none". "keep" becomes "none" if the base does not normalize.
        reinit: layers of another shape start from random weights (`train.seed`), and layers that the new network lacks
            are dropped; without it both are an error.

    Raises:
        ConfigError: the base has no recipe, or a value is out of range.
    """
    if base.recipe is None:
        raise ConfigError(f"{base.config.agent_id} has no {RECIPE}, which a fine-tune needs.")
    recipe = base.recipe
    if normalization == "keep" and recipe.data.normalization == "none":
        normalization = "none"
    settings = [
        f"data.dataset={json.dumps(dataset)}",
        f"data.normalization={json.dumps(normalization)}",
        f"data.obs_keys={json.dumps(recipe.data.obs_keys or base.config.io.observation.keys)}",
        "data.held_out=null",  # the run decides by the number of its episodes
        f"train.steps={steps}",
        f"train.warmup_steps={min(recipe.train.warmup_steps, steps // 10)}",
        f"agent_id={json.dumps(name or f'{base.config.agent_id}-finetuned')}",
        f"base={json.dumps(base.config.agent_id)}",
    ]
    repo, commit = base.origin if base.origin and base.weights_sha256 else (None, None)  # unless changed since
    origin = {"base_weights_sha256": base.weights_sha256, "base_repo": repo, "base_revision": commit}
    return recipe.override(settings).replace(**origin, reinit=reinit)


def start_from(base: Agent, recipe: Recipe, episodes: Episodes) -> SequenceModel:
    """A network for `episodes` with the weights of `base`.

    Normalization stays the base's if `recipe.data.normalization` is "keep", else it is computed from `episodes`.
    Warnings say if actions have other bounds, returns another scale, or episodes more steps than the base knows.

    Raises:
        ConfigError: the recipe is not for a fine-tune, or it keeps a mean and std of another size. CheckpointError:
            `base` is another agent than the recipe names, or has other weights; or layers differ in shape or in the
            kind of their actions, or are unknown, and the recipe does not `reinit` them.
    """
    if recipe.base is None:
        raise ConfigError(
            f"the recipe {recipe.agent_id!r} has no base, so it trains a new network, with `agentzoo train`. To "
            f"fine-tune {base.config.agent_id}, name the data with --dataset."
        )
    if recipe.base_weights_sha256 is None and recipe.base != base.config.agent_id:
        raise CheckpointError(f"the recipe fine-tunes {recipe.base!r}, not {base.config.agent_id!r}.")
    known, found = recipe.base_weights_sha256, base.weights_sha256
    if known is not None and found != known:
        raise CheckpointError(
            f"the recipe fine-tunes {recipe.base!r} with weights of sha256 {known[:12]}..., but the weights found have "
            f"{found[:12] + '...' if found else 'none'}. Pass the version it started from: a folder, or a Hub repo "
            "with --revision."
        )
    model = build_model(recipe, episodes)
    target, source = model.state_dict(), base.model.state_dict()
    fitting = {name for name in target if name in source and source[name].shape == target[name].shape}
    differs = [
        f"{name} {_shape(source.get(name))} -> {_shape(target.get(name))}"
        for name in dict.fromkeys((*target, *source))
        if name not in fitting
    ]
    known_action, new_action = base.config.io.action, model.io.action
    actions, same_kind = other_actions(known_action, new_action), _kind(known_action) == _kind(new_action)
    if actions and not same_kind:
        fitting -= _action_layers(model)
        differs.append("actions {} -> {}".format(*actions))
    keeps = recipe.data.normalization == "keep"
    fits = fitting.issuperset(NORMALIZATION)
    if differs and not recipe.reinit:
        listed = first_names(differs, 10, "; ")
        raise CheckpointError(
            f"{base.config.agent_id} does not fit the recipe for {recipe.data.dataset!r}: {listed}. "
            f"Pass --reinit{'' if fits or not keeps else ' --normalization dataset'} to start these layers from random "
            "weights, drop layers that the new network lacks, and keep the others."
        )
    if keeps and not fits:
        raise ConfigError(
            f"observations of {recipe.data.dataset!r} have another size than those of {base.config.agent_id}, so its "
            "mean and std cannot be kept. Pass --normalization dataset."
        )
    if actions and same_kind and known_action.size == new_action.size:
        _warn_of_other_actions(base, recipe, *actions)
    _warn_of_other_scale(base, recipe, episodes)
    _warn_of_longer_episodes(recipe, int(episodes.lengths.max()))
    taken = fitting if keeps else fitting.difference(NORMALIZATION)
    model.load_state_dict({name: source[name] if name in taken else value for name, value in target.items()})
    return model


def _kind(action: ActionSpec) -> tuple[str, bool]:
    """What decides how a network's outputs become actions: discrete or box, bounded or not."""
    return action.kind, action.low is not None


def _action_layers(model: SequenceModel) -> set[str]:
    """The tensors of a network that read or write actions: those that have another shape for one more action."""
    action = ActionSpec(kind=model.io.action.kind, size=model.io.action.size + 1)
    with torch.random.fork_rng(devices=[]):
        wider = type(model)(model.config, model.io.model_copy(update={"action": action})).state_dict()
    return {name for name, tensor in model.state_dict().items() if wider[name].shape != tensor.shape}


def _warn_of_other_actions(base: Agent, recipe: Recipe, before: str, now: str) -> None:
    warn(
        f"actions of {recipe.data.dataset} are {now}, those of {base.config.agent_id} {before}: the same output of the "
        "network is another action there, until it has learned the new ones.",
        depth=3,
    )


def _shape(tensor: Tensor | None) -> str:
    return "absent" if tensor is None else str(tuple(tensor.shape))
