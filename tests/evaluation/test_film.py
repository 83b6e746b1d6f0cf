"""Videos and GIFs: real files, read back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium as gym
import imageio.v2 as imageio
import numpy as np
import pytest
from conftest import CountingEnv, make_agent
from PIL import Image

from agentzoo.envs.making import make_env, prepare_drawing
from agentzoo.errors import ConfigError, StorageError
from agentzoo.evaluation import film as film_module
from agentzoo.evaluation.enjoy import play
from agentzoo.evaluation.film import (
    QUICK,
    SMALLER,
    THOROUGH,
    Clip,
    Effort,
    _encoded,
    _rendering_env,
    film,
    picture_of,
    save_gif,
    save_video,
)
from agentzoo.evaluation.rollout import rollout
from agentzoo.hub.staging_measurements import FILM_BYTES, video


def test_filmed_and_played_episodes_are_those_of_a_rollout() -> None:
    agent = make_agent()
    clip = film(agent, episodes=2, every=2, seed=5)
    assert clip.episodes == rollout(agent, "tests/Counting-v0", 2, n_envs=1, seed=5)
    assert clip.episodes == list(play(agent, episodes=2, seed=5, window=False))
    assert len(clip.frames) == sum((one.length + 1) // 2 + 1 for one in clip.episodes)  # the last: how it ended
    assert clip.fps == 10.0  # the environment's 20 frames a second, every other kept


def test_an_episode_is_played_on_after_max_frames() -> None:
    clip = film(make_agent(), every=1, max_frames=3)
    assert len(clip.frames) == 3
    assert clip.episodes == film(make_agent(), every=1).episodes


def test_an_environment_that_renders_nothing_is_named_rather_than_the_machine() -> None:
    class NoRender(gym.Wrapper[Any, Any, Any, Any]):
        def render(self) -> Any:
            raise NotImplementedError

    for env, message in (
        (
            NoRender(gym.make("CartPole-v1", render_mode="rgb_array")),
            r"CartPole-v1 has no render\(\); it cannot be filmed",
        ),
        (gym.make("CartPole-v1"), "CartPole-v1 renders nothing in mode rgb_array"),
    ):
        env.reset()
        with pytest.raises(ConfigError, match=message):
            picture_of(env)


@pytest.mark.parametrize("channels", [None, 1, 4])
def test_grey_and_transparent_images_get_three_channels(channels: int | None, tmp_path: Path) -> None:
    class Other(gym.Wrapper[Any, Any, Any, Any]):
        def render(self) -> Any:
            frame: Any = self.env.render()
            return frame[..., 0] if channels is None else np.concatenate([frame, frame], 2)[..., :channels]

    env = Other(gym.make("CartPole-v1", render_mode="rgb_array"))
    env.reset()
    frames = [picture_of(env), picture_of(env)]
    plain: Any = env.unwrapped.render()
    wanted = plain if channels == 4 else np.repeat(plain[..., :1], 3, axis=2)
    np.testing.assert_array_equal(frames[0], wanted)
    save_gif(Clip(frames, [], 10.0), tmp_path / "x.gif")
    assert Image.open(tmp_path / "x.gif").size == plain.shape[1::-1]


def test_a_render_that_is_not_an_image_is_refused() -> None:
    class Text(gym.Wrapper[Any, Any, Any, Any]):
        def render(self) -> Any:
            return [1, 2]

    with pytest.raises(ConfigError, match=r"renders an array of shape \(2,\), not an image \(H, W, 3\)"):
        picture_of(Text(gym.make("CartPole-v1", render_mode="rgb_array")))


def test_an_environment_without_a_size_option_is_filmed_with_the_agent_s_options() -> None:
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


def clip_of(fps: float, count: int = 10) -> Clip:
    """A bar that grows, since a GIF stores equal frames as one longer frame."""
    frames = [np.zeros((48, 64, 3), dtype=np.uint8) for _ in range(count)]
    for i, frame in enumerate(frames):
        frame[:, : 4 * i] = (200, 90, 30)
    return Clip(frames, [], fps)


@pytest.mark.parametrize(
    ("fps", "delays"),
    [
        (20.0, [50] * 10),
        (50.0, [20] * 10),
        (125.0, [20, 30, 20, 30]),  # every third: 24 ms
        (31.25, [30, 30, 40, 30, 30, 30, 30, 40, 30, 30]),  # 32 ms
        (200.0, [20] * 3),  # every fourth
    ],
)
def test_a_gif_runs_in_real_time_and_no_faster_than_browsers_show(
    fps: float, delays: list[int], tmp_path: Path
) -> None:
    save_gif(clip_of(fps), tmp_path / "x.gif")
    found = []
    with Image.open(tmp_path / "x.gif") as gif:
        for i in range(gif.n_frames):  # type: ignore[attr-defined]
            gif.seek(i)
            found.append(gif.info["duration"])
    assert found == delays


def noise(frames: int) -> Clip:
    """Random pixels, which x264 hardly compresses."""
    rng = np.random.default_rng(0)
    return Clip([rng.integers(0, 256, (96, 128, 3), dtype=np.uint8) for _ in range(frames)], [], 25.0)


def test_a_film_that_is_too_large_is_made_smaller(tmp_path: Path) -> None:
    """Compressed more, then its beginning alone, at last in smaller frames."""
    save_video(noise(49), tmp_path / "whole.mp4")
    assert (tmp_path / "whole.mp4").stat().st_size > 300_000
    for max_bytes, seconds in ((200_000, 49 / 25), (30_000, 7 / 25)):
        save_video(noise(49), tmp_path / "small.mp4", max_bytes)
        assert max_bytes / 8 < (tmp_path / "small.mp4").stat().st_size <= max_bytes
        with imageio.get_reader(tmp_path / "small.mp4") as film:
            facts, shown = film.get_meta_data(), list(film.iter_data())
        assert len(shown) / facts["fps"] == pytest.approx(seconds, abs=0.2)
    assert shown[0].shape == (96, 128, 3)
    save_video(noise(49), tmp_path / "small.mp4", 6_000)
    assert imageio.mimread(tmp_path / "small.mp4")[0].shape == (48, 64, 3)


def test_a_film_that_is_small_stays_as_it_is(tmp_path: Path) -> None:
    clip = film(make_agent(), every=1)
    save_video(clip, tmp_path / "any.mp4")
    save_video(clip, tmp_path / "limited.mp4", 250_000)
    assert (tmp_path / "any.mp4").read_bytes() == (tmp_path / "limited.mp4").read_bytes()
    with pytest.raises(StorageError, match=r"would take at least .* bytes; at most 100 are allowed"):
        save_video(clip, tmp_path / "none.mp4", 100)
    assert not (tmp_path / "none.mp4").exists()


@pytest.mark.parametrize(("place", "earlier"), [(0, [QUICK]), (2, [QUICK, SMALLER[1]])])
def test_a_limited_film_is_encoded_more_thoroughly(
    place: int, earlier: list[Effort], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Less than the limit, though x264's defaults take more at that rate factor; efforts that miss by far are left."""
    clip = film(make_agent("Hopper-v5"), every=1, size=(160, 120))
    path, tried = tmp_path / "x.mp4", []
    quick, thorough = (len(_encoded(clip, SMALLER[place], path, tuning)) for tuning in ((), THOROUGH))
    assert thorough < 0.9 * quick
    monkeypatch.setattr(film_module, "_encoded", lambda *given: tried.append(given[1]) or _encoded(*given))
    save_video(clip, path, thorough)
    assert path.stat().st_size == thorough
    assert tried == [*earlier, SMALLER[place]]


def test_staged_films_are_small() -> None:
    films = list((Path(__file__).resolve().parents[2] / "hub_cards").glob("*/replay.mp4"))
    assert len(films) > 20
    assert {str(path): size for path in films if (size := path.stat().st_size) > FILM_BYTES} == {}


@pytest.mark.parametrize(("name", "save"), [("x.mp4", save_video), ("x.gif", save_gif)])
def test_a_failed_write_leaves_the_old_file(name: str, save: Any, tmp_path: Path) -> None:
    path = tmp_path / name
    save(clip_of(20.0), path)
    old = path.read_bytes()
    broken = clip_of(20.0)
    broken.frames[5] = np.zeros((8, 8), dtype=np.uint8)  # of another size
    broken.frames[7] = np.zeros((2, 2, 7), dtype=np.uint8)  # not an image
    with pytest.raises(Exception):  # noqa: B017, PT011  each library has errors of its own
        save(broken, path)
    assert path.read_bytes() == old
    assert [one.name for one in tmp_path.iterdir()] == [name]
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="was not written"):
        save(clip_of(20.0), tmp_path / "file" / name)


class World(CountingEnv):
    """Its `width` is not the image's. Like a tutorial's, it asserts its render mode and looks actions up in a dict."""

    metadata = {"render_modes": ["human", "rgb_array"]}  # noqa: RUF012

    def __init__(self, render_mode: str | None = None, width: int = 5) -> None:
        assert render_mode is None or render_mode in self.metadata["render_modes"]
        super().__init__(width, discrete=True, render_mode=render_mode)
        self.directions = dict.fromkeys(range(2, 6), 0)

    def step(self, action: Any) -> Any:
        self.directions[action] += 1
        return super().step(action)


class Blind(World):
    metadata = {"render_modes": []}  # noqa: RUF012


@pytest.fixture
def worlds() -> Iterator[None]:
    gym.register("tests/World-v0", entry_point=World)
    gym.register("tests/Blind-v0", entry_point=Blind)
    yield
    del gym.registry["tests/World-v0"], gym.registry["tests/Blind-v0"]


@pytest.mark.usefixtures("worlds")
def test_filming_does_not_change_a_width_that_is_not_the_image_s() -> None:
    agent = make_agent("tests/World-v0")
    (played,) = rollout(agent, "tests/World-v0", 1, n_envs=1)
    (filmed,) = film(agent).episodes
    assert (filmed.total_reward, filmed.length) == (played.total_reward, played.length)


@pytest.mark.usefixtures("worlds")
def test_an_environment_that_asserts_its_render_mode_is_named(tmp_path: Path) -> None:
    blind = make_agent("tests/Blind-v0")
    with pytest.raises(ConfigError, match="tests/Blind-v0 cannot be created: AssertionError"):
        film(blind)
    progress_lines: list[str] = []
    assert not video(blind, tmp_path / "x.mp4", 5, False, progress_lines.append)
    assert progress_lines[-1].startswith("no video: tests/Blind-v0 cannot be created")


def test_an_environment_that_takes_no_render_mode_is_explained() -> None:
    gym.register("tests/Mute-v0", entry_point=lambda: CountingEnv())
    try:
        agent = make_agent("tests/Mute-v0")
        with pytest.raises(ConfigError, match=r"tests/Mute-v0 cannot be created with render_mode='rgb_array'"):
            film(agent)
        with pytest.raises(ConfigError, match=r"tests/Mute-v0.* cannot be (made|created).*render_mode"):
            list(play(agent, window=True))
        assert len(list(play(agent, window=False))) == 1
    finally:
        del gym.registry["tests/Mute-v0"]


def test_the_camera_follows_a_hopper() -> None:
    """Without a name of a camera, gymnasium 1.4 renders with one that stands still."""
    agent = make_agent("Hopper-v5")
    env = _rendering_env(agent, None, (64, 48), False)
    renderer = env.unwrapped.mujoco_renderer
    camera = env.unwrapped.model.camera(renderer.camera_id)
    assert camera.name == "track"
    assert (renderer.width, renderer.height) == (64, 48)
    env.close()


def test_a_gif_keeps_the_color_of_something_small(tmp_path: Path) -> None:
    """An orange body of 60 pixels before a sky and a floor of thousands of shades."""
    rng, orange, frames = np.random.default_rng(0), np.array([160, 90, 40]), []
    for step in range(12):
        sky = np.linspace(40, 110, 160 * 120).reshape(120, 160, 1) * np.array([0.7, 0.85, 1.0])
        frame = (sky + rng.uniform(-6, 6, sky.shape)).astype(np.uint8)
        frame[40:60, 30 + 5 * step : 33 + 5 * step] = orange
        frames.append(frame)
    save_gif(Clip(frames, [], fps=20.0), tmp_path / "x.gif")
    with Image.open(tmp_path / "x.gif") as gif:
        for step in (0, 6, 11):
            gif.seek(step)
            body = np.asarray(gif.convert("RGB"), dtype=int)[42:58, 31 + 5 * step]
            assert np.abs(body - orange).max() <= 20


@pytest.mark.parametrize("size", [(321, 240), (320, 14), (320, 100_000), (32.0, 32)])
def test_bad_sizes_are_explained(size: tuple[int, int]) -> None:
    with pytest.raises(ConfigError, match="width and height are even whole numbers from 16 to 4096, got"):
        film(make_agent(), size=size)


def test_a_film_without_frames_is_refused() -> None:
    for nothing in ({"episodes": 0}, {"max_frames": 0}, {"every": 0}, {"every": 1.5}):
        name, value = next(iter(nothing.items()))
        with pytest.raises(ConfigError, match=f"{name} is a whole number from 1 on, got {value}"):
            film(make_agent(), **nothing)  # type: ignore[arg-type]


def test_the_floor_is_drawn_as_far_as_a_cheetah_runs() -> None:
    """The cheetah moves as before; its ground is drawn by default for 40 m only."""
    plain, wide = (make_env("HalfCheetah-v5", render_mode="rgb_array", width=64, height=48) for _ in range(2))
    prepare_drawing(wide)
    rng = np.random.default_rng(0)
    for env in (plain, wide):
        env.reset(seed=0)
    for _ in range(20):
        action = rng.uniform(-1, 1, 6).astype(np.float32)
        ours, theirs = wide.step(action)[0], plain.step(action)[0]
        assert np.array_equal(ours, theirs)
    seen = []
    for env in (plain, wide):
        inner: Any = env.unwrapped
        position = inner.data.qpos.copy()
        position[0] = 200.0
        inner.set_state(position, inner.data.qvel)
        seen.append(float(np.asarray(env.render(), dtype=float)[-12:].std()))  # the lowest rows: chequered or empty
        env.close()
    assert seen[1] > 2 * seen[0]


def test_a_floor_of_one_color_changes_no_other_surface() -> None:
    env = make_env("HalfCheetah-v5")
    model: Any = env.unwrapped.model  # type: ignore[attr-defined]
    model.geom_matid[:] = -1
    before = model.mat_texrepeat.copy()
    prepare_drawing(env)
    assert np.array_equal(model.mat_texrepeat, before)
    env.close()
