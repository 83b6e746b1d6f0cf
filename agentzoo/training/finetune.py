"""Fine-tuning: a run that starts from a trained agent."""

from __future__ import annotations

import json

from torch import Tensor

from agentzoo.agent import Agent
from agentzoo.data.episodes import Episodes
from agentzoo.errors import CheckpointError, ConfigError
from agentzoo.nn.base import SequenceModel
from agentzoo.recipe import Recipe
from agentzoo.store.files import RECIPE
from agentzoo.store.tensors import first_names
from agentzoo.training.loop import build_model

NORMALIZATION = ("obs_mean", "obs_std")


def finetune_recipe(
    base: Agent, dataset: str, name: str | None, steps: int, normalization: str, reinit: bool = False
) -> Recipe:
    """The recipe of a fine-tune: the base's recipe on other data, for `steps` updates, at most a tenth of them warm-up.

    Args:
        reinit: layers of another shape start from random weights (`train.seed`), and layers that the new network lacks
            are dropped; without it both are an error.

    Raises:
        ConfigError: the base has no recipe, or a value is out of range.
    """
    if base.recipe is None:
        raise ConfigError(f"{base.config.agent_id} has no {RECIPE}, which a fine-tune needs.")
    recipe = base.recipe
    settings = [
        f"data.dataset={json.dumps(dataset)}",
        f"data.normalization={json.dumps(normalization)}",
        f"train.steps={steps}",
        f"train.warmup_steps={min(recipe.train.warmup_steps, steps // 10)}",
        f"agent_id={json.dumps(name or f'{base.config.agent_id}-finetuned')}",
        f"base={json.dumps(base.config.agent_id)}",
    ]
    repo, commit = base.origin or (None, None)
    origin = {"base_weights_sha256": base.weights_sha256, "base_repo": repo, "base_revision": commit}
    return recipe.override(settings).replace(**origin, reinit=reinit)


def start_from(base: Agent, recipe: Recipe, episodes: Episodes) -> SequenceModel:
    """A network for `episodes` with the weights of `base`.

    Normalization stays the base's if `recipe.data.normalization` is "keep", else it is computed from `episodes`.

    Raises:
        ConfigError: the recipe is not for a fine-tune, or it keeps a mean and std of another size. CheckpointError:
            `base` is another agent than the recipe names, or has other weights; or layers differ in shape or are
            unknown, and the recipe does not `reinit` them.
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
    taken = fitting if keeps else fitting.difference(NORMALIZATION)
    model.load_state_dict({name: source[name] if name in taken else value for name, value in target.items()})
    return model


def _shape(tensor: Tensor | None) -> str:
    return "absent" if tensor is None else str(tuple(tensor.shape))
