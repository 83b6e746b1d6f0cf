"""Episodes as video (mp4, h264) and GIF."""

from __future__ import annotations

import io
import itertools
import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from agentzoo.acting.observing import is_count
from agentzoo.agent import Agent
from agentzoo.envs.making import prepare_drawing
from agentzoo.errors import AgentzooError, ConfigError, StorageError
from agentzoo.evaluation.enjoy import has_display
from agentzoo.evaluation.environments import env_of, require_positive
from agentzoo.evaluation.rollout import EpisodeResult, run_episode
from agentzoo.evaluation.seeds import episode_seed
from agentzoo.extras import needed
from agentzoo.store.files import write_atomic

MAX_SIDE = 4096  # pixels
# modules of environments whose options `width` and `height` are the size of the image
SIZED = ("gymnasium.envs.mujoco.", "gymnasium_robotics.", "agentzoo.envs.maze2d")
PALETTE_FRAMES = 8  # a GIF's colors are chosen from this many frames, evenly spaced
SHORTEST_DELAY = 2  # hundredths of a second per GIF frame; browsers replace a shorter delay by ten
LONGEST_DELAY = 65_535  # likewise; the format has 16 bits for it


class Effort(NamedTuple):
    """Settings that make a film smaller.

    crf: x264's rate factor; a higher one compresses more. every: keep each n-th frame. parts: keep the first 1/n of the
    film. shrink: 1/n of a side.
    """

    crf: int
    every: int = 1
    parts: int = 1
    shrink: int = 1

    @property
    def size(self) -> float:
        """About what a film takes, as a multiple of that at crf 0; six more halve it."""
        return float(2.0 ** (-self.crf / 6) / (self.every**0.6 * self.parts * self.shrink))


QUICK = Effort(20)  # tried first, with x264's defaults
SMALLER = (  # tried next, in this order, with `THOROUGH`
    *(Effort(crf) for crf in (20, 24, 28, 30)),
    *(Effort(crf, 2) for crf in (28, 32)),  # with fewer frames it would not look like a film
    *(Effort(28, 1, parts) for parts in (2, 4, 8)),
    *(Effort(40, 2, parts, 2) for parts in (2, 4, 8)),
)
# At one mean squared error a film of MuJoCo takes a third less than with x264's defaults, and six times as long.
THOROUGH = ("-preset", "veryslow", "-tune", "ssim")
SAVED = 0.6  # the size of a film with `THOROUGH`, as a share of that with x264's defaults
TOLERANCE = 1.2  # an effort is tried if its expected size is at most the limit times this


@dataclass(frozen=True)
class Clip:
    """Frames (F, H, W, 3) uint8 of episodes, the episodes' results, and the frames per second for real time."""

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
        max_frames: stop rendering, but not playing, after this many frames.

    Raises:
        ConfigError: no environment, `episodes` or `max_frames` below 1, an odd size, frames of several sizes, or this
            machine cannot render (the message says what to install).
    """
    if any(not is_count(side) or side % 2 or not 16 <= side <= MAX_SIDE for side in size):
        raise ConfigError(f"width and height are even whole numbers from 16 to {MAX_SIDE}, got {size}.")
    require_positive(episodes=episodes, every=every, max_frames=1 if max_frames is None else max_frames)
    env = _rendering_env(agent, env_id, size, trust_env_module)
    frames: list[NDArray[np.uint8]] = []

    def keep_frame() -> None:
        if max_frames is not None and len(frames) >= max_frames:
            return
        frames.append(picture_of(env))
        if frames[-1].shape != frames[0].shape:
            raise ConfigError(
                f"{_name_of(env)} renders frames of several shapes: {frames[0].shape}, {frames[-1].shape}."
            )

    def before_step(step: int) -> None:
        if step % every == 0:
            keep_frame()
        on_step()

    found = []
    try:
        prepare_drawing(env)
        for e in range(episodes):
            found.append(run_episode(agent, env, episode_seed(seed, e), before_step))
            keep_frame()  # the last state
    finally:
        env.close()
    return Clip(frames, found, float(env.metadata.get("render_fps") or 30) / every)


def _rendering_env(agent: Agent, env_id: str | None, size: tuple[int, int], trust: bool) -> Any:
    def make(**options: Any) -> Any:
        own = agent.config.options_in(env_id)
        options = {name: value for name, value in options.items() if name not in own}
        return env_of(agent, env_id, render_mode="rgb_array", trust_env_module=trust, **options)

    if not has_display():
        os.environ.setdefault("SDL_VIDEODRIVER", "dummy")  # else SDL, under pygame, prints an error
    try:
        env = make()
    except AgentzooError:
        raise
    except Exception as error:  # environments without this mode raise many types
        name = env_id or agent.config.env
        raise ConfigError(f"{name} does not render as rgb_array: {type(error).__name__}: {error}") from error
    return sized_env(make, size, env)


def sized_env(make: Callable[..., Any], size: tuple[int, int], env: Any = None) -> Any:
    """An environment that renders in this size, if it supports one, with a camera that follows the body.

    Args:
        make: creates the environment with the given options; raises ConfigError for an unsupported option.
        env: an existing environment without these options.
    """
    env = make() if env is None else env
    if not type(env.unwrapped).__module__.startswith(SIZED):
        return env  # its option `width` may have a different meaning
    env.close()
    sized = {"width": size[0], "height": size[1]}
    # By default gymnasium 1.4 uses a free camera, and a hopper runs out of the image.
    for options in ({**sized, "camera_name": "track"}, sized):
        try:
            return make(**options)
        except ConfigError:  # it has no camera option, or no size option
            continue
    return make()


def picture_of(env: Any) -> NDArray[np.uint8]:
    """(H, W, 3) image of the environment now.

    Raises:
        ConfigError: this machine or the environment cannot render, or renders something else than an image.
    """
    try:
        frame = env.render()
    except NotImplementedError as error:
        raise ConfigError(f"{_name_of(env)} has no render(); it cannot be filmed.") from error
    except Exception as error:  # each rendering back end raises other types
        opengl = " On Debian: apt-get install libegl1 libgl1; or set MUJOCO_GL=osmesa with libosmesa6 installed."
        hint = opengl if type(env.unwrapped).__module__.startswith(SIZED) else ""  # for MuJoCo
        raise ConfigError(f"this machine cannot render: {type(error).__name__}: {error}.{hint}") from error
    if frame is None:
        raise ConfigError(f"{_name_of(env)} renders nothing in mode rgb_array; it cannot be filmed.")
    image = np.asarray(frame)
    if image.dtype.kind not in "iu":
        raise ConfigError(
            f"{_name_of(env)} renders numbers of type {image.dtype}; a frame holds whole numbers from 0 to 255 (uint8)."
        )
    if image.size and not 0 <= image.min() <= image.max() <= 255:
        raise ConfigError(
            f"{_name_of(env)} renders numbers from {image.min()} to {image.max()}; a frame holds numbers from 0 to 255."
        )
    image = image.astype(np.uint8)
    if image.ndim == 2:
        image = image[..., None]
    if image.ndim != 3 or image.shape[2] not in (1, 3, 4):
        raise ConfigError(
            f"{_name_of(env)} renders an array of shape {np.shape(frame)}, not an image (H, W, 3); it cannot be filmed."
        )
    # grey becomes three equal channels; transparency is dropped
    return np.repeat(image, 3, axis=2) if image.shape[2] == 1 else np.ascontiguousarray(image[..., :3])


def _name_of(env: Any) -> str:
    return str(env.spec.id if env.spec else env)


def save_video(clip: Clip, path: Path, most_bytes: int | None = None) -> None:
    """Write an mp4 (h264, yuv420p), which every browser plays.

    Args:
        most_bytes: a larger film is encoded more thoroughly, which takes six times as long, and compressed more; then
            it loses every second frame, then its end, then half of its width and height (`SMALLER`), until it fits.

    Raises:
        ConfigError: imageio is not installed. StorageError: it could not be written, or not so small.
    """
    video = _encoded(clip, QUICK, path)
    if most_bytes is not None and len(video) > most_bytes:
        video = _small(clip, most_bytes, path, SAVED * len(video) / QUICK.size)
    write_atomic(path, video)


def _small(clip: Clip, most_bytes: int, path: Path, unit: float) -> bytes:
    """The first film of `SMALLER` that fits.

    Efforts that are expected to miss the limit by far are not tried, except the last: each takes seconds.

    Args:
        unit: the expected bytes of a film of `Effort.size` 1.
    """
    video = b""
    for effort in SMALLER:
        if unit * effort.size > TOLERANCE * most_bytes and effort != SMALLER[-1]:
            continue
        video = _encoded(clip, effort, path, THOROUGH)
        if len(video) <= most_bytes:
            return video
        unit = len(video) / effort.size
    least = f"{path} would take at least {len(video):,} bytes; at most {most_bytes:,} are allowed."
    raise StorageError(f"{least} Film fewer steps.")


def _encoded(clip: Clip, effort: Effort, path: Path, tuning: tuple[str, ...] = ()) -> bytes:
    imageio = needed("imageio.v2", "video", "a video")
    needed("imageio_ffmpeg", "video", "a video")
    shown = math.ceil(len(clip.frames) / effort.parts)
    kept = clip.frames[: shown : effort.every]
    if (shown - 1) % effort.every:
        kept = [*kept, clip.frames[shown - 1]]  # the last state
    frames = [_shrunk(frame, effort.shrink) for frame in kept]
    options = {"codec": "libx264", "pixelformat": "yuv420p", "quality": None, "macro_block_size": 2}
    output = ["-crf", str(effort.crf), *tuning]
    try:
        video: bytes = imageio.mimwrite(
            "<bytes>", frames, format="mp4", fps=clip.fps / effort.every, output_params=output, **options
        )
    except OSError as error:
        raise StorageError(f"{path} was not written: {error}") from error
    return video


def _shrunk(frame: NDArray[np.uint8], by: int) -> NDArray[np.uint8]:
    """(H, W, 3) -> (H / by, W / by, 3), means over squares; even sides."""
    if by == 1:
        return frame
    height, width = (side // (2 * by) * 2 for side in frame.shape[:2])
    squares = frame[: height * by, : width * by].reshape(height, by, width, by, 3)
    return np.asarray(squares.mean(axis=(1, 3)).round().astype(np.uint8))


def save_gif(clip: Clip, path: Path, colors: int = 64, every: int = 1) -> None:
    """Write an endless GIF in real time, with one palette for all frames.

    It keeps every `every`-th frame, and at most 50 frames per second, the fastest that browsers show.
    No frame lasts longer than 655 seconds.

    Raises:
        ConfigError: pillow is not installed. StorageError: it could not be written.
    """
    Image = needed("PIL.Image", "video", "a GIF")

    every *= math.ceil(SHORTEST_DELAY * clip.fps / (100.0 * every))
    images = [Image.fromarray(frame) for frame in clip.frames[::every]]
    drawn_from = np.concatenate([np.asarray(image) for image in images[:: math.ceil(len(images) / PALETTE_FRAMES)]])
    # the default, median cut, uses all colors for the sky and leaves none for a hopper of a few hundred pixels
    palette = Image.fromarray(drawn_from).quantize(colors, method=Image.Quantize.MAXCOVERAGE, kmeans=2)
    small = [image.quantize(palette=palette, dither=Image.Dither.NONE) for image in images]
    # Pillow would add up the delays of equal neighbours, beyond what the format holds
    drawn = itertools.groupby(enumerate(small), key=lambda one: one[1].convert("RGB").tobytes())
    changes = [next(equal)[0] for _, equal in drawn]
    shown = [round(100.0 * every * i / clip.fps) for i in (*changes, len(small))]  # hundredths of a second
    delays = [10 * min(end - start, LONGEST_DELAY) for start, end in itertools.pairwise(shown)]
    small = [small[i] for i in changes]
    gif = io.BytesIO()
    small[0].save(gif, "GIF", save_all=True, append_images=small[1:], duration=delays, loop=0, optimize=True)
    write_atomic(path, gif.getvalue())
