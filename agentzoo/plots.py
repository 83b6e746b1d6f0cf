"""Figures: the only module that imports matplotlib."""

from __future__ import annotations

import io
import textwrap
from pathlib import Path
from typing import Any

from agentzoo.errors import ConfigError
from agentzoo.extras import needed
from agentzoo.store.files import require_writable, write_atomic

KINDS = (".png", ".pdf", ".svg")


def figure_class() -> Any:
    """matplotlib's `Figure`, which unlike pyplot needs no display and leaves no global state.

    Raises:
        ConfigError: matplotlib is not installed; the message says how to install it.
    """
    return needed("matplotlib.figure", "plots", "a picture").Figure


def new_figure(width: float, height: float, layout: str | None = "constrained", dpi: int = 110) -> Any:
    """A figure of `width` by `height` inches.

    Raises:
        ConfigError: matplotlib is not installed.
    """
    return figure_class()(figsize=(width, height), dpi=dpi, layout=layout)


def wrapped(words: str, width: int = 44) -> str:
    """A legend label, wrapped to fit a panel half as wide as the figure."""
    return textwrap.fill(words, width, break_long_words=False)


def entitle(figure: Any, text: str, size: float) -> None:
    """Write `text` above the whole figure, wrapped to its width; `size` is in points."""
    room = int(72.0 * figure.get_figwidth() / (0.55 * size))  # a letter is about 0.55 of the font size wide
    lines = (part for line in text.splitlines() for part in textwrap.wrap(line, room, break_on_hyphens=False) or [""])
    figure.suptitle("\n".join(lines), fontsize=size)


def require_picture(path: Path) -> None:
    """Raise ConfigError or StorageError unless a figure can be saved at `path`. Call it before slow work."""
    figure_class()
    if path.suffix not in KINDS:
        raise ConfigError(f"a picture ends in .png, .pdf or .svg, not {path.suffix!r}.")
    require_writable(path)


def save_figure(figure: Any, path: Path, **options: Any) -> Path:
    """Write the figure atomically; as .png, equal figures give the same bytes. `options` go to matplotlib's `savefig`.

    Raises:
        ConfigError: `path` has another suffix than `KINDS`. StorageError: no space or permission.
    """
    require_picture(path)
    write_atomic(path, image_of(figure, path.suffix[1:], **options))
    return path


def image_of(figure: Any, kind: str = "png", **options: Any) -> bytes:
    """The bytes of the figure as a file of this kind; a PNG has a palette of 256 colours."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format=kind, **options)
    return _with_palette(buffer.getvalue()) if kind == "png" else buffer.getvalue()


def _with_palette(png: bytes) -> bytes:
    """The same picture in 256 colours, which takes a third of the bytes and looks alike in a plot."""
    from PIL import Image  # matplotlib brings it

    small = io.BytesIO()
    colours = Image.open(io.BytesIO(png)).convert("RGB")
    colours.quantize(256, dither=Image.Dither.NONE).save(small, "PNG", optimize=True)
    return small.getvalue()
