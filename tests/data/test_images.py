"""Images as observations: which spaces they are, how a config records them, and who refuses them."""

from __future__ import annotations

import json
import re
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

from agentzoo.acting.history import append, empty_state, to_batch
from agentzoo.acting.observing import read_observation
from agentzoo.data.spaces import action_spec, describe_misfit, flatten_observations, observation_space, observation_spec
from agentzoo.errors import ConfigError, ShapeError, SpaceError
from agentzoo.registry import get_family
from agentzoo.types import IOSpec, ObservationSpec

FOUR = observation_spec(gym.spaces.Box(0, 255, (4, 8, 8), np.uint8))
CHOICES = gym.spaces.Discrete(3)


def pixels(*shape: int) -> gym.spaces.Box:
    return gym.spaces.Box(0, 255, shape, np.uint8)


@pytest.mark.parametrize(
    ("shape", "image", "channels"),
    [
        ((4, 84, 84), (4, 84, 84), "first"),
        ((84, 84, 4), (4, 84, 84), "last"),
        ((84, 84), (1, 84, 84), "none"),
        ((210, 160, 3), (3, 210, 160), "last"),
        ((7, 7, 3), (3, 7, 7), "last"),
    ],
)
def test_a_box_of_bytes_is_an_image_whose_channels_come_first(
    shape: tuple[int, ...], image: tuple[int, ...], channels: str
) -> None:
    spec = observation_spec(pixels(*shape))
    assert (spec.image, spec.row, spec.channels, spec.dtype) == (image, image, channels, "uint8")
    assert observation_space(spec) == pixels(*shape)
    one_key = observation_spec(gym.spaces.Dict({"frame": pixels(*shape), "reward": gym.spaces.Box(-1, 1, (1,))}))
    assert (one_key.image, one_key.keys) == (image, ("frame",))
    values = np.arange(2 * np.prod(shape), dtype=np.int64).reshape(2, *shape).astype(np.uint8)
    flat = flatten_observations(values, spec)
    assert flat.shape == (2, *image)
    assert flat.dtype == np.uint8
    first_channel = {"first": values[1, 0], "last": values[1, ..., 0], "none": values[1]}[channels]
    np.testing.assert_array_equal(flat[1, 0], first_channel)


@pytest.mark.parametrize("shape", [(64, 3, 64), (5, 5, 5), (3, 9, 3)])
def test_an_image_whose_channels_cannot_be_told_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(SpaceError, match="the axis of channels is not clear"):
        observation_spec(pixels(*shape))


def test_json_of_a_vector_is_as_it_was_and_an_image_comes_back() -> None:
    vector = observation_spec(gym.spaces.Box(-1.0, 1.0, (3,), np.float32))
    assert json.loads(vector.to_json()) == {"size": 3, "keys": None, "shapes": [[3]]}
    io = IOSpec(observation=FOUR, action=action_spec(CHOICES), context=2)
    assert IOSpec.from_json(io.to_json(), "here") == io
    assert json.loads(io.to_json())["observation"] == {
        "size": 256,
        "keys": None,
        "shapes": [[4, 8, 8]],
        "dtype": "uint8",
        "channels": "first",
    }


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"channels": None}, "a vector has neither"),
        ({"dtype": "float32"}, "a vector has neither"),
        ({"shapes": [[4, 64]]}, r"one shape \(channels, height, width\)"),
        ({"channels": "none"}, "has one channel"),
        ({"size": 2_000_000, "shapes": [[2, 1000, 1000]]}, "1048576"),
    ],
)
def test_a_config_with_half_an_image_is_refused(change: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        ObservationSpec.from_json(json.dumps({**json.loads(FOUR.to_json()), **change}), "config.json")


@pytest.mark.parametrize("family", ["dt", "bc", "dm"])
def test_a_family_of_vectors_names_those_that_read_images(family: str) -> None:
    io = IOSpec(observation=FOUR, action=action_spec(CHOICES), context=2)
    found = get_family(family)
    with pytest.raises(SpaceError, match=f"'{family}' reads vectors.*dt-pixel"):
        found.model(found.config(), io)


@pytest.mark.parametrize("shape", [(4, 8, 8), (8, 8, 4)])
@pytest.mark.parametrize("made_for", [(4, 8, 8), (8, 8, 4)])
def test_frames_in_either_order_of_axes_are_read(made_for: tuple[int, ...], shape: tuple[int, ...]) -> None:
    spec = observation_spec(pixels(*made_for))
    canonical = np.random.default_rng(0).integers(256, size=(3, 4, 8, 8), dtype=np.uint8)
    given = canonical if shape[0] == 4 else np.moveaxis(canonical, 1, -1)
    batch, one = read_observation(given, spec, "agent"), read_observation(given[0], spec, "agent")
    assert (batch.single, one.single) == (False, True)
    np.testing.assert_array_equal(batch.flat, canonical)
    np.testing.assert_array_equal(one.flat, canonical[:1])
    assert not describe_misfit(spec, action_spec(CHOICES), pixels(*shape), CHOICES)


@pytest.mark.parametrize(
    ("shape", "fix"),
    [
        ((8, 8), r"FrameStackObservation\(env, 4\)"),
        ((8, 8, 1), r"VecFrameStack\(env, 4\)"),
        ((8, 32), "grayscale_newaxis=True"),
        ((4, 9, 9), "ResizeObservation"),
        ((4, 8, 8, 3), "grey before stacking"),
        ((8, 8, 3), "right size, but there are not 4 channels"),
    ],
)
def test_an_image_that_does_not_fit_comes_with_the_wrapper_that_helps(shape: tuple[int, ...], fix: str) -> None:
    with pytest.raises(ShapeError, match=fix):
        read_observation(np.zeros(shape, np.uint8), FOUR, "agent")
    if len(shape) < 4:
        keyed = FOUR.model_copy(update={"keys": ("frame",)})
        for spec, space in ((FOUR, pixels(*shape)), (keyed, gym.spaces.Dict({"frame": pixels(*shape)}))):
            assert re.search(fix, describe_misfit(spec, action_spec(CHOICES), space, CHOICES))


@pytest.mark.parametrize("shape", [(4, 8, 8), (8, 8, 4)])
def test_a_space_of_scaled_pixels_needs_no_stacking(shape: tuple[int, ...]) -> None:
    scaled = gym.spaces.Box(0.0, 1.0, shape, np.float32)
    found = describe_misfit(FOUR, action_spec(CHOICES), scaled, CHOICES)
    assert "scale_obs=False" in found
    assert "FrameStack" not in found


def test_scaled_pixels_are_refused_and_whole_numbers_are_not() -> None:
    with pytest.raises(ShapeError, match="scale_obs=False"):
        read_observation(np.zeros((4, 8, 8), np.float32), FOUR, "agent")
    with pytest.raises(ShapeError, match="whole numbers from 0 to 255"):
        read_observation(np.full((4, 8, 8), 256), FOUR, "agent")
    assert read_observation(np.full((4, 8, 8), 255), FOUR, "agent").flat.dtype == np.uint8


def test_a_history_of_images_keeps_bytes() -> None:
    io = IOSpec(observation=FOUR, action=action_spec(CHOICES), context=2)
    state, starts = empty_state(io, 2), np.ones(2, dtype=bool)
    for value in (1, 2, 3):
        state = append(state, np.full((2, 4, 8, 8), value, np.uint8), np.zeros(2), starts)
        starts = np.zeros(2, dtype=bool)
    batch = to_batch(state, 1.0, torch.device("cpu"))
    assert batch.observations.dtype == torch.uint8
    assert batch.observations[:, :, 0, 0, 0].tolist() == [[2, 3], [2, 3]]
