"""Networks that see images: convolutions by hand, acting step by step, sizes that do not fit, ONNX Runtime."""

from __future__ import annotations

import warnings
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from conftest import PIXELS, SMALL, make_agent, random_batch, random_observations

from agentzoo.acting.modes import MemoryState
from agentzoo.agent import Agent
from agentzoo.errors import ShapeError, SpaceError
from agentzoo.hub.staging_measurements import other_modes
from agentzoo.models.bc_pixel import BCPixelConfig
from agentzoo.models.dt_pixel import DTPixelConfig, PixelDecisionTransformer
from agentzoo.nn.pixels import ATARI, FrameEncoder, PixelModel
from agentzoo.nn.recurrent import RecurrentModel
from agentzoo.registry import get_family
from agentzoo.types import ActionSpec, IOSpec, ObservationSpec

PIXEL_FAMILIES = ["bc-pixel", "chibit-pixel", "dt-pixel"]
NONE, WHITE = torch.zeros(1, 1, 1), torch.full((1, 1, 1), 255.0)


def test_an_encoder_computed_by_hand() -> None:
    """One 2x2 kernel of ones and bias -1 over a 3x3 image, then weights 1, 2, 3, 4 and tanh."""
    encoder = FrameEncoder((1, 3, 3), 1, ((1, 2, 1),))
    with torch.no_grad():
        encoder.convolutions[0].weight.fill_(1.0)
        encoder.convolutions[0].bias.fill_(-1.0)
        encoder.project.weight.copy_(torch.tensor([[1.0, 2.0, 3.0, 4.0]]))
        encoder.project.bias.fill_(0.5)
    image = torch.tensor([[[[255, 0, 0], [0, 255, 255], [0, 0, 51]]]], dtype=torch.uint8)
    # sums of the 2x2 corners, in whites: 2, 2, 1, 2.2; less 1: 1, 1, 0, 1.2
    wanted = np.tanh(1 * 1 + 2 * 1 + 3 * 0 + 4 * 1.2 + 0.5)
    assert encoder(image, NONE, WHITE).item() == pytest.approx(wanted, abs=1e-6)


def test_pixels_are_normalized_by_channel() -> None:
    torch.manual_seed(0)
    encoder = FrameEncoder((2, 6, 5), 3, ((4, 3, 2),)).double()
    images = torch.randint(256, (4, 2, 6, 5), dtype=torch.uint8)
    mean, std = torch.tensor([10.0, 200.0]).view(2, 1, 1).double(), torch.tensor([50.0, 3.0]).view(2, 1, 1).double()
    x = (images.double() - mean) / std
    wanted = torch.tanh(encoder.project(torch.relu(encoder.convolutions[0](x)).flatten(1)))
    torch.testing.assert_close(encoder(images, mean, std), wanted)


def test_sizes_of_the_published_networks() -> None:
    """84x84 -> 20x20 -> 9x9 -> 7x7, so 3,136 numbers reach the linear map."""
    encoder = FrameEncoder((4, 84, 84), 128)
    assert [tuple(layer.weight.shape) for layer in encoder.convolutions] == [
        (32, 4, 8, 8), (64, 32, 4, 4), (64, 64, 3, 3),
    ]  # fmt: skip
    assert tuple(encoder.project.weight.shape) == (128, 3136)


@pytest.mark.parametrize(
    ("image", "said"),
    [
        (
            (3, 7, 7),
            r"too small for the convolutions .*--set 'model.convolutions=\[\[16,2,1\],\[32,2,1\],\[64,2,1\]\]'",
        ),
        ((3, 500, 500), r"leaves 222,784 numbers .*, at most 65,536 are allowed: .*ResizeObservation"),
    ],
)
def test_an_image_that_does_not_fit_is_refused_with_what_to_change(image: tuple[int, int, int], said: str) -> None:
    with pytest.raises(SpaceError, match=said):
        FrameEncoder(image, 8, ATARI)


def test_the_convolutions_that_the_error_names_fit_a_grid_of_seven_cells() -> None:
    env = gym.wrappers.TransformObservation(
        gym.make("tests/CountingImage-v0"),
        lambda seen: np.zeros((7, 7, 3), np.uint8),
        gym.spaces.Box(0, 255, (7, 7, 3), np.uint8),
    )
    gym.register("tests/Cells-v0", entry_point=lambda **_: env, disable_env_checker=True)
    config = DTPixelConfig(n_layers=1, n_heads=1, embed_dim=8, convolutions=((16, 2, 1), (32, 2, 1), (64, 2, 1)))
    agent = make_agent("tests/Cells-v0", config)
    assert agent.config.io.observation.image == (3, 7, 7)
    assert agent.predict(np.ones((7, 7, 3), np.uint8))[0].shape == (2,)


@pytest.mark.parametrize("kind", ["", "Discrete", "Dict"])
@pytest.mark.parametrize("family", PIXEL_FAMILIES)
def test_step_by_step_equals_the_window(family: str, kind: str) -> None:
    """Two environments, one of which begins again, for twice the context."""
    agent = make_agent(f"tests/CountingImage{kind}-v0", SMALL[family])
    assert isinstance(agent.model, RecurrentModel)
    seen, rewards = random_observations(agent.config.io, (9, 2)), np.random.default_rng(1).random((9, 2))

    def play(acting: Any) -> np.ndarray[Any, Any]:
        agent.acting, state, actions = acting, None, []
        for t in range(9):
            obs = {"a": seen[t]} if kind == "Dict" else seen[t]
            starts = np.array([t == 0, t in (0, 3)])
            action, state = agent.predict(obs, state, starts, deterministic=True, reward=rewards[t])
            actions.append(action)
        return np.stack(actions)

    assert agent.acting == ("window" if family == "bc-pixel" else "recurrent")
    np.testing.assert_allclose(play("recurrent"), play("window"), atol=1e-5)
    assert other_modes(agent) == []  # so staging measures one


@pytest.mark.parametrize("family", PIXEL_FAMILIES)
def test_a_step_leaves_its_memory_and_gives_the_logits_of_the_window(family: str) -> None:
    agent = make_agent("tests/CountingImageDiscrete-v0", SMALL[family])
    model: Any = agent.model
    batch = random_batch(agent.config.io, [4, 4, 4])
    memory = model.initial_state(3)
    for t in range(4):
        kept = [part.clone() for part in memory]
        before = batch.actions[:, t - 1] if t else torch.full((3,), 3)  # ignored at the first step
        logits, after = model.step(
            memory, batch.returns_to_go[:, t], batch.observations[:, t], before, batch.timesteps[:, t]
        )
        assert all(torch.equal(a, b) for a, b in zip(kept, memory, strict=True))
        memory = after
    with torch.no_grad():
        torch.testing.assert_close(logits, model.act(batch))
    assert memory.length.tolist() == [4, 4, 4]
    assert torch.equal(memory.timesteps, batch.timesteps)
    assert memory.actions[:, -1].tolist() == [0, 0, 0]


@pytest.mark.parametrize("acting", ["window", "recurrent"])
def test_flipped_and_read_only_images_are_read(acting: Any) -> None:
    agent = make_agent(model=SMALL["dt-pixel"])
    agent.acting = acting
    image = random_observations(agent.config.io, ())[..., ::-1]
    wanted, _ = agent.predict(np.ascontiguousarray(image), None, np.ones(1, bool), deterministic=True)
    image.flags.writeable = False
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_array_equal(agent.predict(image, None, np.ones(1, bool), deterministic=True)[0], wanted)


def test_frames_seen_are_not_encoded_again(monkeypatch: pytest.MonkeyPatch) -> None:
    agent = make_agent("tests/CountingImage-v0", SMALL["dt-pixel"])
    counts: list[int] = []
    agent.model.embed_obs.register_forward_hook(lambda _, inputs, __: counts.append(len(inputs[0])))
    state = None
    for obs in random_observations(agent.config.io, (6, 2)):
        _, state = agent.predict(obs, state, reward=np.zeros(2))
    assert counts == [2] * 6


def test_another_agents_memory_is_refused() -> None:
    agent, other = (
        make_agent(model=DTPixelConfig(**{**PIXELS, "embed_dim": d}, n_layers=1, n_heads=1)) for d in (8, 16)
    )
    obs = random_observations(agent.config.io, ())
    _, state = agent.predict(obs)
    assert isinstance(state, MemoryState)
    with pytest.raises(ShapeError, match=r"state.memory has shape .* this agent needs"):
        other.predict(obs, state)


def test_tokens_are_positions_beginning_and_contents() -> None:
    """With tables of known numbers: token j of a window that begins at step 7 holds its content + j + 100 * 7."""
    model = make_agent("tests/CountingImageDiscrete-v0", SMALL["dt-pixel"]).model.eval()
    assert isinstance(model, PixelDecisionTransformer)
    with torch.no_grad():
        rows = torch.arange(12.0)
        model.embed_position.weight.copy_(rows[:, None].expand(-1, 16))
        model.embed_timestep.weight.copy_(100.0 * torch.arange(len(model.embed_timestep.weight))[:, None])
        batch = random_batch(model.io, [4, 4])
        batch.timesteps[:] = torch.arange(7, 11)
        tokens = model._tokens(batch)
        contents = tokens - 700.0 - rows[None, :, None]
        action = torch.tanh(model.embed_action.weight[:, batch.actions[1, 2]])
        torch.testing.assert_close(contents[1, 3 * 2 + 2], action, atol=1e-4, rtol=0)
        rtg = torch.tanh(model.embed_return(batch.returns_to_go[1, 2].view(1, 1)))[0]
        torch.testing.assert_close(contents[1, 3 * 2], rtg, atol=1e-4, rtol=0)
        image = model.embed_obs(batch.observations[1, 2:3], model.obs_mean, model.obs_std)[0]
        torch.testing.assert_close(contents[1, 3 * 2 + 1], image, atol=1e-4, rtol=0)


def test_what_decays_is_what_the_reference_decays() -> None:
    """Linear maps and convolutions; no biases, norms, positions and tables."""
    model = make_agent("tests/CountingImageDiscrete-v0", SMALL["dt-pixel"]).model
    decayed = {name for name, _ in model.named_parameters() if model.decays(name)}
    layers = {
        f"{name}.weight" for name, part in model.named_modules() if isinstance(part, torch.nn.Linear | torch.nn.Conv2d)
    }
    assert decayed == layers - {"embed_action.weight"}


@pytest.mark.parametrize("family", PIXEL_FAMILIES)
def test_vectors_are_refused(family: str) -> None:
    action = ActionSpec(kind="discrete", size=3, dtype="int64")
    io = IOSpec(observation=ObservationSpec(size=3, shapes=((3,),)), action=action, context=2)
    with pytest.raises(SpaceError, match="reads images"):
        get_family(family).model(SMALL[family], io)


def test_bfloat16_gives_nearly_the_same_tokens() -> None:
    agent = make_agent("tests/CountingImage-v0", SMALL["dt-pixel"])
    model: Any = agent.model
    batch = random_batch(agent.config.io, [4, 4])
    with torch.no_grad():
        whole = model.encoded(batch)
        with torch.autocast("cpu", torch.bfloat16):
            half = model.encoded(batch)
    assert half.dtype == torch.bfloat16
    torch.testing.assert_close(half.float(), whole, atol=0.05, rtol=0)


def test_an_agent_is_saved_with_its_images(tmp_path: Any) -> None:
    agent = make_agent("tests/CountingImageDict-v0", BCPixelConfig(**PIXELS, hidden_dim=8), context=1)
    loaded = Agent.from_pretrained(agent.save_pretrained(tmp_path / "agent"))
    obs = {"a": random_observations(agent.config.io, ())}
    np.testing.assert_array_equal(loaded.predict(obs, deterministic=True)[0], agent.predict(obs, deterministic=True)[0])
    assert issubclass(type(loaded.model), PixelModel)


@pytest.mark.slow
@pytest.mark.usefixtures("one_table_of_operators")
def test_the_benchmark_times_a_step_a_batch_and_an_action(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    from agentzoo.research.bench import dt_pixel as benchmark

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(benchmark, "BATCH", 2)
    monkeypatch.setattr(benchmark, "PAPER", ("data.context=5", "model.n_layers=1"))
    monkeypatch.setattr(benchmark, "LENGTHS", (60, 60))
    figures = benchmark.run(1)
    assert [one.figure for one in figures] == ["train_step", "draw", "action", "action, onnx"]
    assert all(one.ours > 0 and one.peer > 0 for one in figures)
