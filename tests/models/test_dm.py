"""Decision Mamba: causality, padding, both ways of acting, transformers' blocks, sizes and recipes."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest
import torch
from dm_cases import SMALL, K, hide, make_batch, make_io, make_model, play, variants

from agentzoo.models.dm import PRESETS, DecisionMamba, DMConfig, Layer, Memory
from agentzoo.nn.base import parameter_count
from agentzoo.nn.recurrent import RecurrentModel, reset_rows
from agentzoo.recipe import load_recipe

# --- causality and padding -------------------------------------------------------------------------------------------


@variants
def test_nothing_at_or_after_an_action_changes_it(variant: dict[str, Any]) -> None:
    model, batch, t = make_model(**variant), make_batch(), 3
    wanted = model(batch)
    for name in ("actions", "observations", "returns_to_go"):
        first = t if name == "actions" else t + 1
        values = getattr(batch, name).clone()
        values[:, first:] += 5.0
        found = model(dataclasses.replace(batch, **{name: values}))
        assert torch.equal(found[:, : t + 1], wanted[:, : t + 1]), name
        assert not torch.allclose(found[:, t + 1 :], wanted[:, t + 1 :], atol=1e-4), name


@variants
def test_an_action_changes_what_its_token_predicts(variant: dict[str, Any]) -> None:
    model, batch, t = make_model(**variant), make_batch(), 3
    actions = batch.actions.clone()
    actions[:, t] += 1.0
    tokens = [
        model.predict_next_obs(model._hidden(b)[:, 2::3]) for b in (batch, dataclasses.replace(batch, actions=actions))
    ]
    assert torch.equal(tokens[0][:, :t], tokens[1][:, :t])
    assert not torch.allclose(tokens[0][:, t], tokens[1][:, t], atol=1e-4)


def test_the_fine_branch_sees_exactly_its_step() -> None:
    """gather="step": R_t sees R_t; s_t also s_t; a_t all three. Read from the derivatives of the gather alone."""
    gather = make_model(gather="step").layers[0].gather
    u = torch.randn(1, 3 * K, 16, dtype=torch.float64, requires_grad=True)
    out = gather(u)
    for token in range(3 * K):
        grad = torch.autograd.grad(out[0, token].sum(), u, retain_graph=True)[0][0].abs().sum(-1)
        assert grad.nonzero().flatten().tolist() == list(range(token - token % 3, token + 1))
    weight, bias = gather.conv.weight, gather.conv.bias  # the action token by hand: all three taps, oldest first
    assert torch.allclose(out[0, 5], sum(weight[:, :, i] @ u[0, 3 + i] for i in range(3)) + bias, atol=1e-12)


@variants
@pytest.mark.parametrize("junk", [0.0, 1e6, math.nan])
def test_padding_changes_nothing(variant: dict[str, Any], junk: float) -> None:
    model, batch, lengths = make_model(**variant), make_batch(), [2, 6, 1]
    padded = hide(batch, lengths, junk)
    whole, actions, newest = model(batch), model(padded), model.act(padded)
    for i, n in enumerate(lengths):
        short = batch.map(lambda part: part[i : i + 1, :n])  # noqa: B023  (called at once)
        assert torch.allclose(model(short)[0], actions[i, :n], atol=1e-9)
        assert torch.allclose(whole[i, :n], actions[i, :n], atol=1e-9)
        assert torch.allclose(model.act(short)[0], newest[i], atol=1e-9)


def test_padding_changes_neither_loss_nor_gradient() -> None:
    model = make_model()
    results = []
    for junk in (0.0, 1e3):
        loss = torch.stack(list(model.loss(hide(make_batch(), [2, 6, 1], junk)).values())).sum()
        results.append((loss, *torch.autograd.grad(loss, list(model.parameters()))))
    assert all(torch.allclose(a, b, atol=1e-12) for a, b in zip(*results, strict=True))


# --- acting ----------------------------------------------------------------------------------------------------------


@variants
def test_recurrent_equals_full_history(variant: dict[str, Any]) -> None:
    model, batch = make_model(**variant), make_batch(steps=9)
    assert isinstance(model, RecurrentModel)
    assert torch.allclose(play(model, batch)[0], model.decode_actions(model(batch)), atol=1e-10)


def test_recurrent_equals_full_history_in_float32_over_300_steps() -> None:
    model, batch = make_model().float(), make_batch(2, steps=300)
    batch = batch.map(lambda part: part.float() if part.is_floating_point() else part)
    with torch.no_grad():
        assert float((play(model, batch)[0] - model.decode_actions(model(batch))).abs().max()) < 1e-5


def test_recurrent_equals_full_history_with_discrete_actions() -> None:
    model, batch = make_model(discrete=True), make_batch(discrete=True)
    assert torch.allclose(play(model, batch)[0], model(batch), atol=1e-10)


@variants
def test_a_reset_row_starts_empty_and_the_others_continue(variant: dict[str, Any]) -> None:
    model, first, second = make_model(**variant), make_batch(seed=1), make_batch(seed=2)
    _, state = play(model, first)
    kept = [tensor.clone() for tensor in state]
    fresh = torch.tensor([False, True, False])
    reset = reset_rows(state, fresh)
    assert isinstance(reset, Memory)
    found, _ = play(model, second, reset)
    assert torch.allclose(found[1], play(model, second)[0][1], atol=1e-12)
    assert torch.allclose(found[~fresh], play(model, second, state)[0][~fresh], atol=1e-12)
    assert not torch.allclose(found[0], play(model, second)[0][0], atol=1e-4)
    assert all(torch.equal(a, b) for a, b in zip(kept, state, strict=True))  # a step leaves its input as it was


def test_the_action_before_the_first_step_is_not_read() -> None:
    model = make_model().eval()
    rtg, obs, action, time = torch.rand(2), torch.randn(2, 3), torch.rand(2, 2), torch.zeros(2, dtype=torch.int64)
    now = [value.double() if value.is_floating_point() else value for value in (rtg, obs, action, time)]
    wanted = model.step(model.initial_state(2), *now)[0]
    now[2] = torch.full_like(now[2], torch.nan)
    assert torch.equal(model.step(model.initial_state(2), *now)[0], wanted)


def test_memory_does_not_grow() -> None:
    model = make_model()
    shapes = [tensor.shape for tensor in model.initial_state(3)]
    assert [tensor.shape for tensor in play(model, make_batch(steps=30))[1]] == shapes


def test_a_memory_holds_no_graph() -> None:
    model, batch = make_model(), make_batch()
    now = (batch.returns_to_go[:, 0], batch.observations[:, 0], batch.actions[:, 0], batch.timesteps[:, 0])
    action, memory = model.step(model.initial_state(3), *now)
    assert not any(tensor.requires_grad for tensor in (action, *memory))


def test_timesteps_beyond_the_table_use_its_last_row() -> None:
    model, batch = make_model(max_ep_len=4), make_batch()
    clamped = dataclasses.replace(batch, timesteps=batch.timesteps.clamp(max=3))
    assert torch.equal(model(batch), model(clamped))
    assert torch.allclose(play(model, batch)[0], model.decode_actions(model(batch)), atol=1e-10)


# --- the network against others, sizes, config -----------------------------------------------------------------------


def test_without_fine_branch_it_is_transformers_mamba() -> None:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.MambaConfig(
        vocab_size=2, hidden_size=32, state_size=8, num_hidden_layers=2, time_step_rank=2, use_cache=False
    )
    theirs = transformers.MambaModel(config).eval()
    io = make_io()
    ours = DecisionMamba(DMConfig(embed_dim=32, n_layers=2, state_size=8, use_fine=False, fusion="release"), io)
    for mine, block in zip(ours.layers, theirs.layers, strict=True):
        mine.norm.load_state_dict(block.norm.state_dict())  # type: ignore[union-attr]
        mine.coarse.load_state_dict(block.mixer.state_dict())  # type: ignore[union-attr]
    h = x = torch.randn(2, 12, 32)
    for layer in ours.layers:
        h = layer(h)
    assert torch.allclose(ours.norm_f(h), theirs(inputs_embeds=x).last_hidden_state, atol=1e-5)


def test_sizes_of_both_presets() -> None:
    """0.30 M and 9.9 M a layer: two mixers, the gather and the projection."""
    small = DecisionMamba(DMConfig(), make_io())
    assert parameter_count(small.layers[0]) == pytest.approx(0.30e6, rel=0.01)
    paper = load_recipe("dm-hopper-medium").override(["model.preset=paper"]).model
    assert isinstance(paper, DMConfig)
    assert paper.n_layers == 24
    assert parameter_count(Layer(paper)) == pytest.approx(9.9e6, rel=0.01)
    assert DMConfig.presets() == PRESETS


def test_no_decay_on_what_mamba_exempts() -> None:
    model = make_model()
    decayed = {name for name, _ in model.named_parameters() if model.decays(name)}
    assert {"layers.0.coarse.in_proj.weight", "layers.0.fine.conv1d.weight", "embed_obs.up.weight"} <= decayed
    for name in decayed:
        assert not name.endswith(("A_log", ".D", "bias", "norm.weight", "norm_f.weight", "embed_ln.weight")), name
    assert "embed_timestep.weight" not in decayed


@pytest.mark.parametrize(("discrete", "expected"), [(False, math.tanh(3.0)), (True, 3.0)])
def test_a_head_with_tanh_bounds_actions_and_no_logits(discrete: bool, expected: float) -> None:
    model: Any = make_model(discrete=discrete, action_head="tanh_linear")
    with torch.no_grad():
        model.predict_action.weight.zero_()
        model.predict_action.bias.fill_(3.0)
        said = model(make_batch(discrete=discrete))
    torch.testing.assert_close(said, torch.full_like(said, expected))


def test_residual_projection_starts_as_the_identity() -> None:
    layer = DecisionMamba(DMConfig(**SMALL), make_io()).layers[0]
    assert torch.equal(layer.project.weight, torch.eye(16))  # type: ignore[union-attr]
    assert not layer.project.bias.any()  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "broken", [{"gather": "leak"}, {"beta_final": 1.5}, {"ilo_weights": (1.0, 0.0)}, {"state_size": 0}]
)
def test_config_refuses(broken: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(broken))):
        DMConfig(**broken)


@pytest.mark.parametrize(
    ("ending", "change"),
    [
        ("no-mg", {"use_fine": False}),
        ("no-pser", {"beta_final": 0.0, "beta_min": 0.0}),
        ("no-ilo", {"ilo_weights": None}),
        ("beta-1", {"beta_final": 1.0, "beta_min": 0.0}),
        ("beta-0.75", {"beta_final": 0.75, "beta_min": 0.0}),
        ("beta-0.5", {"beta_final": 0.5, "beta_min": 0.0}),
        ("beta-0.25", {"beta_final": 0.25, "beta_min": 0.0}),
    ],
)
def test_ablation_recipes_differ_only_in_the_setting_they_are_named_after(ending: str, change: dict[str, Any]) -> None:
    base = load_recipe("dm-halfcheetah-medium-replay")
    recipe = load_recipe(f"{base.agent_id}-{ending}")
    assert recipe.model == base.model.model_copy(update=change)
    assert (recipe.data, recipe.train, recipe.eval) == (base.data, base.train, base.eval)


def test_short_trainings_read_no_timesteps() -> None:
    for agent_id, windows, rows in (
        ("dm-hopper-medium", 8_000 * 128, 1000),
        ("dm-hopper-medium-replay", 4_000 * 128, 1),
        ("dm-hopper-medium-expert", 4_000 * 128, 1),
        ("dm-pointmaze-umaze", 7_000 * 320, 1000),
        ("dm-pointmaze-medium", 7_000 * 320, 1),
        ("dm-pointmaze-large", 14_000 * 320, 1),
    ):
        recipe = load_recipe(agent_id)
        assert isinstance(recipe.model, DMConfig)
        assert (recipe.train.steps * recipe.train.batch_size, recipe.model.max_ep_len) == (windows, rows)
        assert recipe.train.steps == 40 * recipe.model.teacher_period
