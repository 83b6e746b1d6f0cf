"""A Decision Transformer's folded pass for the newest token gives the numbers of its modules, whatever its weights."""

from __future__ import annotations

import copy
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from conftest import change_in_place, make_agent, move, random_batch
from torch import Tensor

from agentzoo.acting.history import rows, to_batch
from agentzoo.models.dt import DecisionTransformer, DTConfig
from agentzoo.nn.attention import Backbone
from agentzoo.nn.native import compiled
from agentzoo.nn.newest import NewestToken
from agentzoo.nn.newest_compiled import CompiledNewest
from agentzoo.types import ActionSpec, Batch, IOSpec, ObservationSpec

K = 5
compiled_only = pytest.mark.skipif(compiled.library() is None, reason="there is no C compiler here")


def make_model(seed: int = 0, discrete: bool = False, **changes: Any) -> DecisionTransformer:
    """In float64, where a wrong formula cannot hide; weights and biases all differ from their starting values."""
    box = ActionSpec(kind="box", size=2, low=(-1.0, -2.0), high=(1.0, 4.0))
    action = ActionSpec(kind="discrete", size=4) if discrete else box
    io = IOSpec(observation=ObservationSpec(size=3, shapes=((3,),)), action=action, context=K)
    torch.manual_seed(seed)
    model = DecisionTransformer(DTConfig(embed_dim=16, max_ep_len=9, **changes), io).double().eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    model.obs_mean.copy_(torch.tensor([1.0, -1.0, 0.5]))
    model.obs_std.copy_(torch.tensor([2.0, 0.5, 1.0]))
    return model


def make_batch(model: DecisionTransformer, steps: int = K) -> Batch:
    batch = random_batch(model.io, [steps] * 3)
    return batch.map(lambda part: part.double() if part.is_floating_point() else part)


def by_modules(model: DecisionTransformer, batch: Batch) -> Tensor:
    """What `act` is to give, from the whole pass."""
    with torch.no_grad():
        encoded = model(batch)[torch.arange(len(batch.valid)), batch.valid.sum(dim=1) - 1]
    return encoded if model.io.action.kind == "discrete" else model.decode_actions(encoded)


def act(model: DecisionTransformer, batch: Batch) -> Tensor:
    with torch.no_grad():
        return model.act(batch)


@pytest.mark.parametrize("length", [1, 2, 9])
@pytest.mark.parametrize("layers", [1, 3])
def test_newest_is_the_last_token_of_the_whole_pass(layers: int, length: int) -> None:
    torch.manual_seed(0)
    backbone = Backbone(16, layers, 1, 0.1).double().eval()
    for parameter in backbone.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    x = torch.randn(3, length, 16, dtype=torch.float64)
    kept = x.clone()
    with torch.no_grad():
        torch.testing.assert_close(NewestToken.of(backbone)(x), backbone(x)[:, -1], atol=1e-12, rtol=1e-12)
    assert torch.equal(x, kept)


def make_single(seed: int = 0, **changes: Any) -> DecisionTransformer:
    """In float32, where C takes its place."""
    model = make_model(seed, **changes).float()
    assert isinstance(model._fold()[1], CompiledNewest)
    return model


def single(batch: Batch) -> Batch:
    return batch.map(lambda part: part.float() if part.is_floating_point() else part)


@compiled_only
@pytest.mark.parametrize("length", [1, 2, 16, 17, 61])
@pytest.mark.parametrize(("dim", "layers"), [(16, 1), (20, 3), (9, 2), (128, 3)])
def test_compiled_newest_is_that_of_float64(dim: int, layers: int, length: int) -> None:
    """Widths and lengths that are no multiples of the vectors' width too; from one token on."""
    torch.manual_seed(0)
    backbone = Backbone(dim, layers, 1, 0.1).double().eval()
    for parameter in backbone.parameters():
        torch.nn.init.normal_(parameter, std=1.5 / dim**0.5)
    x = torch.randn(3, length, dim, dtype=torch.float64)
    with torch.no_grad():
        wanted = backbone(x)[:, -1]
        found = CompiledNewest(NewestToken.of(backbone.float()))
        apart = x.float().transpose(1, 2).contiguous().transpose(1, 2)
        for i in range(3):
            torch.testing.assert_close(
                found(apart[i : i + 1]), wanted[i : i + 1], atol=1e-4, rtol=1e-4, check_dtype=False
            )
        torch.testing.assert_close(found(x.float()), wanted, atol=1e-4, rtol=1e-4, check_dtype=False)


@compiled_only
def test_compiled_newest_keeps_what_is_no_number_and_refuses_what_it_would_read_past() -> None:
    backbone = Backbone(16, 2, 1, 0.1).eval()
    newest = CompiledNewest(NewestToken.of(backbone))
    x = torch.randn(1, 5, 16)
    x[0, 2, 3] = torch.nan
    assert newest(x).isnan().all()
    for wrong in (torch.randn(1, 5, 8), torch.randn(1, 5, 16, dtype=torch.float64), torch.randn(1, 0, 16)):
        with pytest.raises(ValueError, match="float32 tokens of 16 channels are expected"):
            newest(wrong)


@pytest.mark.parametrize("changes", [{}, {"discrete": True}, {"use_returns": False}, {"n_heads": 2}], ids=str)
@pytest.mark.parametrize("steps", [1, 3, K])
def test_acting_equals_the_modules(steps: int, changes: dict[str, Any]) -> None:
    model = make_model(**changes)
    batch = make_batch(model, steps)
    torch.testing.assert_close(act(model, batch), by_modules(model, batch), atol=1e-12, rtol=1e-12)


def load(model: DecisionTransformer) -> None:
    model.load_state_dict(make_model(seed=5).state_dict())


def load_others(model: DecisionTransformer) -> None:
    model.load_state_dict(make_model(seed=6).state_dict(), assign=True)


def train(model: DecisionTransformer) -> None:
    train_without_saying(model.train())
    model.eval()


def train_without_saying(model: DecisionTransformer) -> None:
    """In eval mode, as a user may who wants no dropout."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, fused=True)
    torch.autograd.backward(torch.stack(list(model.loss(fitting(model)).values())).sum())
    optimizer.step()


both_kinds = pytest.mark.parametrize(
    ("make", "rounding"), [(make_model, 1e-12), pytest.param(make_single, 1e-4, marks=compiled_only)]
)


def fitting(model: DecisionTransformer) -> Batch:
    batch = make_batch(model)
    return single(batch) if model.obs_mean.dtype == torch.float32 else batch


@both_kinds
@pytest.mark.parametrize("change", [change_in_place, load, load_others, move, train, train_without_saying])
def test_new_weights_act_at_once(change: Any, make: Any, rounding: float) -> None:
    model = make()
    batch = fitting(model)
    before = act(model, batch)
    change(model)
    model.to(before.dtype)
    wanted = by_modules(model, batch)
    assert not torch.allclose(before, wanted, atol=1e-3)
    torch.testing.assert_close(act(model, batch), wanted, atol=rounding, rtol=rounding)


def through_memory_that_is_used_again(model: DecisionTransformer) -> None:
    """What an evolution strategy does: other vectors come to lie where those before them lay."""
    torch.manual_seed(7)
    center = torch.nn.utils.parameters_to_vector(model.parameters()).detach()
    for _ in range(6):
        torch.nn.utils.vector_to_parameters(center + 0.3 * torch.randn_like(center), model.parameters())
        act(model, fitting(model))
        torch.nn.utils.vector_to_parameters(center.clone(), model.parameters())
    torch.nn.utils.vector_to_parameters(center + 0.3 * torch.randn_like(center), model.parameters())


@both_kinds
def test_vectors_put_into_the_weights_act_at_once(make: Any, rounding: float) -> None:
    model = make()
    through_memory_that_is_used_again(model)
    batch = fitting(model)
    torch.testing.assert_close(act(model, batch), by_modules(model, batch), atol=rounding, rtol=rounding)


class Adapted(torch.nn.Linear):
    """Around a layer, as adapters are: more than its weight says."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + 0.5 * x.sum(-1, keepdim=True)


@pytest.mark.parametrize("place", ["backbone.blocks.0.attn.qkv", "backbone.blocks.1.attn.qkv", "backbone.blocks.0.up"])
def test_layers_put_in_place_of_ours_are_run(place: str) -> None:
    model = make_model()
    batch = make_batch(model)
    before = by_modules(model, batch)
    layer = model.get_submodule(place)
    adapted = Adapted(*reversed(layer.weight.shape)).double()  # type: ignore[arg-type]
    adapted.load_state_dict(layer.state_dict())
    model.set_submodule(place, adapted)
    after = by_modules(model, batch)
    assert not torch.allclose(before, after, atol=1e-3)
    torch.testing.assert_close(act(model, batch), after, atol=1e-12, rtol=1e-12)


class Halved(torch.nn.Module):
    """Around a whole block."""

    def __init__(self, inner: torch.nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor, read: slice | None = None) -> Tensor:
        out: Tensor = 0.5 * self.inner(x, read)
        return out


def wrap_a_block(model: DecisionTransformer) -> None:
    model.backbone.blocks[1] = Halved(model.backbone.blocks[1])


def hook_a_block(model: DecisionTransformer) -> None:
    model.backbone.blocks[0].register_forward_hook(lambda _, __, out: 0.5 * out)


def hook_a_layer(model: DecisionTransformer) -> None:
    model.get_submodule("backbone.blocks.0.up").register_forward_hook(lambda _, __, out: 0.5 * out)


def hook_what_a_layer_reads(model: DecisionTransformer) -> None:
    model.get_submodule("backbone.blocks.0.up").register_forward_pre_hook(lambda _, args: (0.5 * args[0],))


@pytest.mark.parametrize("change", [wrap_a_block, hook_a_block, hook_a_layer, hook_what_a_layer_reads])
def test_wrapped_blocks_and_hooks_are_run(change: Any) -> None:
    model = make_model()
    batch = make_batch(model)
    before = by_modules(model, batch)
    change(model)
    after = by_modules(model, batch)
    assert not torch.allclose(before, after, atol=1e-3)
    torch.testing.assert_close(act(model, batch), after, atol=1e-12, rtol=1e-12)


@both_kinds
def test_copies_act_with_their_own_weights(make: Any, rounding: float) -> None:
    model = make()
    batch = fitting(model)
    before = act(model, batch)
    other = copy.deepcopy(model)
    change_in_place(other)
    assert torch.equal(act(model, batch), before)
    torch.testing.assert_close(act(other, batch), by_modules(other, batch), atol=rounding, rtol=rounding)


def test_gradients_reach_the_weights_through_act() -> None:
    model = make_model()
    act(model, make_batch(model))
    torch.autograd.backward(model.act(make_batch(model)).sum())
    assert all(p.grad is not None for p in (model.embed_obs.weight, *model.backbone.blocks[0].parameters()))


def test_episodes_longer_than_the_window_that_end_at_different_times() -> None:
    """In float32, at the published sizes: each environment acts as its own window, run through the modules, says."""
    torch.manual_seed(0)
    agent = make_agent(model=DTConfig(), context=20)
    rng, n = np.random.default_rng(1), 3
    size, space = agent.config.io.observation.size, agent.action_space
    assert isinstance(space, gym.spaces.Box)
    state: Any = None
    starts = np.ones(n, dtype=bool)
    for t in range(90):
        observations = rng.normal(size=(n, size)).astype(np.float32)
        actions, state = agent.predict(observations, state, starts, deterministic=True, reward=rng.random(n))
        for i in range(n):
            window = to_batch(rows(state, np.array([i])), agent.config.rtg_scale, agent.device)
            wanted = by_modules(agent.model, window)[0].numpy()  # type: ignore[arg-type]
            np.testing.assert_allclose(actions[i], np.clip(wanted, space.low, space.high), rtol=0, atol=1e-5)
        starts = np.array([t % 37 == 36, t == 50, False])
