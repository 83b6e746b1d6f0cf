"""Videos and GIFs: real files, read back."""

from __future__ import annotations

from pathlib import Path

import imageio.v2 as imageio
import numpy as np
import pytest
from conftest import make_agent
from PIL import Image

from agentzoo.errors import ConfigError
from agentzoo.evaluation.record import _rendering_env, film, save_gif, save_video
from agentzoo.evaluation.rollout import rollout


def test_filmed_episodes_are_those_of_a_rollout() -> None:
    agent = make_agent()
    clip = film(agent, episodes=2, every=2)
    assert clip.episodes == rollout(agent, "tests/Counting-v0", 2, n_envs=1)
    assert len(clip.frames) == sum((one.length + 1) // 2 + 1 for one in clip.episodes)  # the last: how it ended
    assert clip.fps == 10.0  # the environment's 20 frames a second, every other kept


def test_an_agent_with_options_is_filmed_where_no_size_can_be_chosen() -> None:
    clip = film(make_agent(env_options={"length": 3}), every=1)
    assert clip.frames[0].shape == (48, 64, 3)
    orange = [int((frame[0] == (200, 90, 30)).all(-1).sum()) for frame in clip.frames]
    assert orange == [8 * now for now in range(len(orange))]  # every step, and how it ended
    assert 4 <= len(clip.frames) <= 6


def test_gif_and_video_hold_the_frames(tmp_path: Path) -> None:
    clip = film(make_agent(), episodes=1, every=1)
    save_gif(clip, tmp_path / "a" / "x.gif")
    with Image.open(tmp_path / "a" / "x.gif") as gif:
        assert gif.n_frames == len(clip.frames)  # type: ignore[attr-defined]
        gif.seek(gif.n_frames - 1)  # type: ignore[attr-defined]
        last = np.asarray(gif.convert("RGB"))
    assert np.abs(last.astype(int) - clip.frames[-1]).mean() < 12  # 64 colours
    save_video(clip, tmp_path / "x.mp4")
    with imageio.get_reader(tmp_path / "x.mp4") as video:
        shown = list(video.iter_data())
    assert len(shown) == len(clip.frames)
    assert shown[0].shape == (48, 64, 3)


def test_the_camera_follows_a_hopper() -> None:
    """gymnasium 1.4 renders through a camera that stands still unless one is named."""
    agent = make_agent("Hopper-v5")
    env = _rendering_env(agent, None, (64, 48), False)
    renderer = env.unwrapped.mujoco_renderer
    camera = env.unwrapped.model.camera(renderer.camera_id)
    assert camera.name == "track"
    assert (renderer.width, renderer.height) == (64, 48)
    env.close()


def test_bad_sizes_are_explained() -> None:
    with pytest.raises(ConfigError, match="width and height must be even"):
        film(make_agent(), size=(321, 240))
