"""Episodes as video (mp4, h264) and GIF."""

from __future__ import annotations

import io
import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agentzoo.agent import Agent
from agentzoo.envs.making import draw_wide_floor
from agentzoo.errors import AgentzooError, ConfigError, StorageError
from agentzoo.evaluation.rollout import EpisodeResult, env_of, run_episode
from agentzoo.evaluation.seeds import episode_seed
from agentzoo.extras import needed
from agentzoo.store.files import write_atomic

# where environments are from whose `width` and `height` are those of the picture
SIZED = ("gymnasium.envs.mujoco.", "gymnasium_robotics.", "agentzoo.envs.maze2d")
PALETTE_FRAMES = 8  # that a GIF's colors are chosen from, evenly spaced
SHORTEST_DELAY = 2  # of a GIF's frame, in hundredths of a second: browsers show a shorter one as ten


@dataclass(frozen=True)
class Clip:
    """Frames (F, H, W, 3) uint8 of episodes, the results of these episodes, and the frames per second of real time."""

    frames: list[NDArray[np.uint8]]
    episodes: list[EpisodeResult]
    fps: float


def film(
    agent: Agent,
    env_id: str | None = None,
    episodes: int = 1,
    *,
    seed: int = 0,
    every: int = 4,
    size: tuple[int, int] = (320, 240),
    max_frames: int | None = None,
    trust_env_module: bool = False,
    on_step: Callable[[], None] = lambda: None,
) -> Clip:
    """Run episodes one after another and keep every `every`-th frame.

    Args:
        size: (width, height) in pixels, even numbers; environments that choose their own size keep it.
        max_frames: stop rendering, not playing, after so many.

    Raises:
        ConfigError: no environment, an odd size, or nothing here can render (says what to install).
    """
    if any(side % 2 or side < 16 for side in size) or every < 1:
        raise ConfigError(f"width and height must be even and at least 16, every at least 1; got {size} and {every}.")
    env = _rendering_env(agent, env_id, size, trust_env_module)
    draw_wide_floor(env)
    frames: list[NDArray[np.uint8]] = []

    def before_step(step: int) -> None:
        if step % every == 0 and (max_frames is None or len(frames) < max_frames):
            frames.append(picture_of(env))
        on_step()

    found = []
    try:
        for e in range(episodes):
            found.append(run_episode(agent, env, episode_seed(seed, e), before_step))
            if max_frames is None or len(frames) < max_frames:
                frames.append(picture_of(env))  # how it ended
    finally:
        env.close()
    return Clip(frames, found, float(env.metadata.get("render_fps") or 30) / every)


def _rendering_env(agent: Agent, env_id: str | None, size: tuple[int, int], trust: bool) -> Any:
    def make(**options: Any) -> Any:
        own = {} if env_id not in (None, agent.config.env) else agent.config.env_options
        options = {name: value for name, value in options.items() if name not in own}
        return env_of(agent, env_id, render_mode="rgb_array", trust_env_module=trust, **options)

    try:
        env = make()
    except AgentzooError:
        raise
    except Exception as error:  # of an environment that does not know the mode
        name = env_id or agent.config.env
        raise ConfigError(f"{name} cannot be made to render as rgb_array: {type(error).__name__}: {error}") from error
    return sized_env(make, size, env)


def sized_env(make: Callable[..., Any], size: tuple[int, int], env: Any = None) -> Any:
    """An environment whose pictures have this size, if it lets one choose, and that looks at what moves.

    Args:
        make: makes it, with further options by keyword; ConfigError where it does not take one.
        env: made without them, if there is one already.
    """
    env = make() if env is None else env
    if not type(env.unwrapped).__module__.startswith(SIZED):
        return env  # a width of its own may be that of its world
    env.close()
    sized = {"width": size[0], "height": size[1]}
    # Left to itself gymnasium 1.4 looks through a free camera, and a hopper runs out of the picture.
    for options in ({**sized, "camera_name": "track"}, sized):
        try:
            return make(**options)
        except ConfigError:  # it takes no camera, or no size
            continue
    return make()


def picture_of(env: Any) -> NDArray[np.uint8]:
    """(H, W, 3): what it renders now.

    Raises:
        ConfigError: this machine cannot render, or the environment does not.
    """
    try:
        frame = env.render()
    except Exception as error:  # each rendering back end has errors of its own
        opengl = " On Debian: apt-get install libegl1 libgl1; or set MUJOCO_GL=osmesa with libosmesa6 installed."
        hint = opengl if type(env.unwrapped).__module__.startswith(SIZED) else ""  # MuJoCo's
        raise ConfigError(f"this machine cannot render: {type(error).__name__}: {error}.{hint}") from error
    if frame is None:
        raise ConfigError(f"{env.spec.id if env.spec else env} renders nothing in mode rgb_array; it cannot be filmed.")
    return np.asarray(frame, dtype=np.uint8)


def save_video(clip: Clip, path: Path) -> None:
    """mp4: h264, yuv420p, so that every browser plays it.

    Raises:
        ConfigError: imageio is not installed. StorageError: it could not be written.
    """
    imageio = needed("imageio.v2", "video", "a video")
    needed("imageio_ffmpeg", "video", "a video")
    options = {"codec": "libx264", "pixelformat": "yuv420p", "quality": 6, "macro_block_size": 2}
    try:
        video = imageio.mimwrite("<bytes>", clip.frames, format="mp4", fps=clip.fps, **options)
    except OSError as error:
        raise StorageError(f"{path} was not written: {error}") from error
    write_atomic(path, video)


def save_gif(clip: Clip, path: Path, colors: int = 64, every: int = 1) -> None:
    """An endless GIF in real time, with one palette for all frames.

    Keeps every `every`-th frame, fewer where more than 50 a second would be left: no browser shows them that fast.

    Raises:
        ConfigError: pillow is not installed. StorageError: it could not be written.
    """
    Image = needed("PIL.Image", "video", "a GIF")

    every *= math.ceil(SHORTEST_DELAY * clip.fps / (100.0 * every))
    images = [Image.fromarray(frame) for frame in clip.frames[::every]]
    shown = [round(100.0 * every * i / clip.fps) for i in range(len(images) + 1)]  # hundredths of a second
    delays = [10 * (end - start) for start, end in itertools.pairwise(shown)]
    drawn_from = np.concatenate([np.asarray(image) for image in images[:: math.ceil(len(images) / PALETTE_FRAMES)]])
    # median cut, the usual way, gives its colors to the sky and none to a hopper of a few hundred pixels
    palette = Image.fromarray(drawn_from).quantize(colors, method=Image.Quantize.MAXCOVERAGE, kmeans=2)
    small = [image.quantize(palette=palette, dither=Image.Dither.NONE) for image in images]
    gif = io.BytesIO()
    small[0].save(gif, "GIF", save_all=True, append_images=small[1:], duration=delays, loop=0, optimize=True)
    write_atomic(path, gif.getvalue())
