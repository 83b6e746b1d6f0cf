"""Fine-tuning, and what a trained agent's folder holds."""

from __future__ import annotations

import json
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
import torch
from conftest import make_agent
from data.cases import episodes_of
from models.acting_cases import small_config
from models.cases import coin_episodes

from agentzoo.agent import Agent
from agentzoo.config import AgentConfig
from agentzoo.data.episodes import Episodes
from agentzoo.data.minari import load_episodes
from agentzoo.errors import CheckpointError, ConfigError
from agentzoo.models.dt import DTConfig
from agentzoo.recipe import Recipe
from agentzoo.store.files import LOG, sha256
from agentzoo.training.finetune import finetune_recipe, start_from
from agentzoo.training.log import read_log
from agentzoo.training.loop import train
from agentzoo.types import ActionSpec, ObservationSpec
from training.cases import recipe


def test_finetune_starts_from_the_weights_and_keeps_normalization(tiny_hopper: str, tmp_path: Path) -> None:
    base = make_agent("Hopper-v5", context=4)
    base.model.obs_mean.fill_(0.5)
    episodes = load_episodes(tiny_hopper)
    made = finetune_recipe(base, tiny_hopper, None, 20, "keep")
    assert (made.agent_id, made.base, made.train.steps, made.train.warmup_steps) == (
        "dt-test-finetuned",
        "dt-test",
        20,
        2,
    )
    start = start_from(base, made, episodes)
    assert all(
        torch.equal(a, b) for a, b in zip(start.state_dict().values(), base.model.state_dict().values(), strict=True)
    )
    recomputed = start_from(base, finetune_recipe(base, tiny_hopper, None, 20, "dataset"), episodes)
    np.testing.assert_allclose(recomputed.obs_mean.numpy(), episodes.observations.mean(0), atol=1e-5)
    model = train(made, tmp_path, episodes, start=start, device="cpu")
    assert torch.equal(model.obs_mean, base.model.obs_mean)


def test_a_fine_tune_warms_up_no_longer_than_its_base() -> None:
    base = make_agent()
    assert base.recipe is not None
    base.recipe = base.recipe.override(["train.warmup_steps=3"])
    assert finetune_recipe(base, "a/b-v0", None, 1000, "keep").train.warmup_steps == 3


def test_a_fine_tune_is_repeated_from_the_same_weights_alone(tiny_hopper: str, tmp_path: Path) -> None:
    folder = make_agent("Hopper-v5", context=4).save_pretrained(tmp_path / "base")
    base, episodes = Agent.from_pretrained(folder, device="cpu"), load_episodes(tiny_hopper)
    made = finetune_recipe(base, tiny_hopper, None, 20, "keep")
    assert made.base_weights_sha256 == sha256(folder / "model.safetensors")
    made = Recipe.from_json(made.to_json(), "as stored")
    start_from(base, made, episodes)
    with torch.no_grad():
        next(base.model.parameters()).add_(1.0)
    base.save_pretrained(folder)
    newer = Agent.from_pretrained(folder, device="cpu")
    with pytest.raises(
        CheckpointError, match=rf"'dt-test' with weights of sha256 {made.base_weights_sha256[:12]}.*--rev"
    ):
        start_from(newer, made, episodes)
    before = {k: v for k, v in json.loads(made.to_json()).items() if k != "base_weights_sha256"}
    start_from(newer, Recipe.from_json(json.dumps(before), "of before"), episodes)


def test_a_recipe_is_trained_from_where_it_says(tiny_hopper: str, tmp_path: Path) -> None:
    base, episodes = make_agent("Hopper-v5", context=4), load_episodes(tiny_hopper)
    made = finetune_recipe(base, tiny_hopper, None, 20, "keep")
    with pytest.raises(
        ConfigError, match=r"fine-tunes 'dt-test'; repeat it with `agentzoo finetune dt-test --recipe FILE`"
    ):
        train(made, tmp_path / "run", episodes, device="cpu")
    hub = made.replace(base_repo="zoo/tiny", base_revision=None)
    with pytest.raises(ConfigError, match=r"`agentzoo finetune zoo/tiny --recipe FILE`. If dt-test is a run of yours,"):
        train(hub, tmp_path / "run", episodes, device="cpu")
    assert not (tmp_path / "run").exists()
    with pytest.raises(ConfigError, match="'dt-test' has no base, so it trains a new network"):
        start_from(base, made.replace(agent_id="dt-test", base=None), episodes)
    with pytest.raises(CheckpointError, match="the recipe fine-tunes 'another', not 'dt-test'"):
        start_from(base, made.replace(base="another"), episodes)


def test_a_finetune_of_changed_weights_names_no_file(tiny_hopper: str, tmp_path: Path) -> None:
    made = recipe(steps=1)
    model = train(made, tmp_path / "run", coin_episodes(), device="cpu")
    saved = Agent(model, AgentConfig.of(made, model.io), made).save_pretrained(tmp_path / "agent")
    base = Agent.from_pretrained(saved)
    assert finetune_recipe(base, tiny_hopper, None, 3, "keep").base_weights_sha256 == base.config.weights_sha256
    with torch.no_grad():
        next(base.model.parameters()).add_(1.0)
    assert finetune_recipe(base, tiny_hopper, None, 3, "keep").base_weights_sha256 is None


@pytest.mark.parametrize(
    ("content", "said"), [(b"a,b\n1,2\n", "has no column `step`"), (b"step\n\xff\n", "not a training log")]
)
def test_a_file_that_is_no_log_raises_a_checkpoint_error(content: bytes, said: str, tmp_path: Path) -> None:
    (tmp_path / LOG).write_bytes(content)
    with pytest.raises(CheckpointError, match=said):
        read_log(tmp_path)


def test_finetune_on_other_shapes_names_the_layers(tiny_hopper: str) -> None:
    base = make_agent("tests/Counting-v0", context=4)
    episodes = load_episodes(tiny_hopper)
    made = finetune_recipe(base, tiny_hopper, "mine", 10, "keep")
    shapes = r"embed_obs.weight \(16, 3\) -> \(16, 11\).*predict_action.*--reinit --normalization dataset"
    with pytest.raises(CheckpointError, match=shapes):
        start_from(base, made, episodes)
    with pytest.raises(ConfigError, match="mean and std cannot be kept"):
        start_from(base, finetune_recipe(base, tiny_hopper, "mine", 10, "keep", reinit=True), episodes)
    made = finetune_recipe(base, tiny_hopper, "mine", 10, "dataset", reinit=True)
    assert Recipe.from_json(made.to_json(), "it says how it started").reinit
    start = start_from(base, made, episodes)
    kept = base.model.get_parameter("backbone.blocks.0.attn.qkv.weight")
    assert torch.equal(start.get_parameter("backbone.blocks.0.attn.qkv.weight"), kept)
    np.testing.assert_allclose(start.obs_mean.numpy(), episodes.observations.mean(0), atol=1e-5)
    deeper = make_agent("Hopper-v5", context=4, model=DTConfig(embed_dim=16, n_layers=2))
    made = finetune_recipe(deeper, tiny_hopper, "mine", 10, "keep").override(["model.n_layers=1"])
    lost = r"blocks.1.ln_1.weight \(16,\) -> absent; .* and 2 more.*drop layers that the new network lacks"
    with pytest.raises(CheckpointError, match=lost):
        start_from(deeper, made, episodes)
    kept = start_from(deeper, made.replace(reinit=True), episodes).state_dict()
    assert all(torch.equal(deeper.model.state_dict()[name], value) for name, value in kept.items())
    base.recipe = None
    with pytest.raises(ConfigError, match=r"has no train_config.json"):
        finetune_recipe(base, tiny_hopper, None, 10, "keep")


def acting(kind: Literal["box", "discrete"], bound: float | None = None) -> Episodes:
    """Three steps as `tests/Counting-v0` has them, with two choices, or two numbers in [-bound, bound]."""
    bounds = {} if bound is None else {"low": (-bound,) * 2, "high": (bound,) * 2}
    return replace(
        episodes_of([1.0, 2.0, 3.0]),
        observation=ObservationSpec(size=3, shapes=((3,),)),
        observations=np.ones((3, 3), np.float32),
        action=ActionSpec(kind=kind, size=2, **bounds),  # type: ignore[arg-type]
        actions=np.zeros((3, 2), np.float32) if kind == "box" else np.zeros(3, np.int64),
    )


@pytest.mark.parametrize("family", ["dt", "dm", "unimask"])
@pytest.mark.parametrize("kind", ["box", "discrete"])
def test_actions_of_another_kind_do_not_fit(kind: Literal["box", "discrete"], family: str) -> None:
    """Their layers have the same shapes, but a number in [-2, 2] is no logit, and no number without bounds."""
    base = make_agent("tests/Counting-v0", small_config(family), context=4)
    made = finetune_recipe(base, "hand", "mine", 10, "keep")
    words = {"box": r"an unbounded Box\(2\)", "discrete": r"Discrete\(2\)"}[kind]
    with pytest.raises(CheckpointError, match=rf"actions Box\(2\) -> {words}\. Pass --reinit to start these layers"):
        start_from(base, made, acting(kind))
    started = start_from(base, made.replace(reinit=True), acting(kind)).state_dict()
    old = base.model.state_dict()
    changed = {name for name, value in started.items() if not torch.equal(value, old[name])}
    assert 0 < len(changed) < len(started)
    if family == "dt":
        assert changed == {"embed_action.weight", "predict_action.weight"}  # its bias starts at 0 in both


def test_actions_with_other_bounds_are_warned_of() -> None:
    base = make_agent("tests/Counting-v0", context=4)
    made = finetune_recipe(base, "hand", "mine", 10, "keep")
    with pytest.warns(
        UserWarning, match=r"of hand are Box\(2\) whose number 0 lies in \[-0\.5, 0\.5\], those of dt-test"
    ):
        start_from(base, made, acting("box", 0.5))
    wide = replace(acting("box", 0.5), observation=ObservationSpec(size=4, shapes=((4,),)))
    wide = replace(wide, observations=np.ones((3, 4), np.float32))
    with pytest.warns(UserWarning, match="another action there"):  # layers of the observation alone start again
        start_from(base, finetune_recipe(base, "hand", "mine", 10, "dataset", reinit=True), wide)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        start_from(base, made, acting("box", 2.0))


def test_a_trained_agent_is_a_folder_that_loads(tiny_hopper: str, tmp_path: Path) -> None:
    from agentzoo.config import AgentConfig

    episodes = load_episodes(tiny_hopper)
    made = recipe(steps=3).override([f"data.dataset={tiny_hopper}", "eval.env=Hopper-v5"])
    model = train(made, tmp_path, episodes, device="cpu")
    Agent(model, AgentConfig.of(made, model.io), made).save_pretrained(tmp_path)
    obs = np.zeros(11, dtype=np.float32)
    loaded = Agent.from_pretrained(tmp_path)
    assert loaded.predict(obs)[0].shape == (3,)
    np.testing.assert_allclose(loaded.model.obs_mean.numpy(), episodes.observations.mean(0), atol=1e-5)
