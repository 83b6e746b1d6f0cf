"""Frames that make no film, and displays that do not answer."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from conftest import CountingEnv, make_agent

from agentzoo.errors import ConfigError
from agentzoo.evaluation.enjoy import has_display
from agentzoo.evaluation.film import Clip, film, save_gif


class Painted(CountingEnv):
    """Renders what its options say."""

    def __init__(
        self, dtype: str = "uint8", value: float = 0.5, grows: bool = False, render_mode: str | None = None
    ) -> None:
        super().__init__(render_mode=render_mode)
        self.dtype, self.value, self.grows, self.drawn = dtype, value, grows, 0

    def render(self) -> Any:
        self.drawn += self.grows
        return np.full((16 + 2 * self.drawn, 16, 3), self.value, self.dtype)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"dtype": "float32"}, r"renders numbers of type float32; .* 0 to 255 \(uint8\)"),
        ({"dtype": "int16", "value": 300}, "renders numbers from 300 to 300; a frame holds numbers from 0 to 255"),
        ({"dtype": "int16", "value": -1}, "renders numbers from -1 to -1"),
        ({"grows": True}, r"frames of several shapes: \(18, 16, 3\), \(20, 16, 3\)"),
    ],
)
def test_frames_that_make_no_film_are_explained(options: dict[str, Any], words: str) -> None:
    gym.register("tests/Painted-v0", Painted, kwargs=options)
    with pytest.raises(ConfigError, match=words):
        film(make_agent(), "tests/Painted-v0", every=1)


def test_a_frame_of_a_gif_lasts_at_most_as_long_as_the_format_can_say(tmp_path: Path) -> None:
    """`record out.gif --every 100000` keeps the first and the last state of an episode, almost an hour apart."""
    from PIL import Image

    frames = [np.full((16, 16, 3), shade, np.uint8) for shade in (0, 255)]
    save_gif(Clip(frames, [], 30 / 100_000), tmp_path / "a.gif")
    assert Image.open(tmp_path / "a.gif").info["duration"] == 655_350


def test_a_scene_that_stands_still_for_longer_than_a_frame_may_last(tmp_path: Path) -> None:
    """Pillow alone adds up the delays of equal frames: 3 of 400 seconds, and it fails."""
    from PIL import Image

    shades = (0, 0, 0, 255, 255, 0)
    save_gif(Clip([np.full((16, 16, 3), shade, np.uint8) for shade in shades], [], 1 / 400), tmp_path / "a.gif")
    with Image.open(tmp_path / "a.gif") as gif:
        assert gif.n_frames == 3  # type: ignore[attr-defined]
        found = []
        for i in range(3):
            gif.seek(i)
            found.append((int(np.asarray(gif.convert("L"))[0, 0]), gif.info["duration"]))
    assert found == [(0, 655_350), (255, 655_350), (0, 400_000)]


def test_a_display_is_one_that_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    for name in ("", ":987", "unix:987.0", "127.0.0.1:987", "no number", ":x", "localhost:99999", f"{'a' * 300}:1"):
        monkeypatch.setenv("DISPLAY", name)
        assert not has_display()
    with socket.socket() as server:  # as ssh forwards a display
        server.bind(("127.0.0.1", 0))
        server.listen()
        port = server.getsockname()[1]
        monkeypatch.setenv("DISPLAY", f"127.0.0.1:{port - 6000}.0")
        assert has_display()
    monkeypatch.setenv("DISPLAY", "")
    monkeypatch.setenv("WAYLAND_DISPLAY", "wayland-7")
    assert not has_display()
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "wayland-7"))
        server.listen()
        assert has_display()


def test_filming_without_a_display_prints_no_error_of_a_library(tmp_path: Path) -> None:
    folder = make_agent("CartPole-v1").save_pretrained(tmp_path / "dt-test")
    windows = ("DISPLAY", "WAYLAND_DISPLAY", "XDG_RUNTIME_DIR", "SDL_VIDEODRIVER")
    done = subprocess.run(
        [sys.executable, "-m", "agentzoo", "record", str(folder), str(tmp_path / "x.gif")],
        capture_output=True,
        text=True,
        env={name: value for name, value in os.environ.items() if name not in windows},
    )
    assert (done.returncode, "error" in done.stderr) == (0, False), done.stderr
