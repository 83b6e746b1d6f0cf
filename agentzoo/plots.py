"""The one place that asks for matplotlib and writes its figures."""

from __future__ import annotations

import io
import textwrap
from pathlib import Path
from typing import Any

from agentzoo.errors import ConfigError
from agentzoo.extras import needed
from agentzoo.store.files import write_atomic

KINDS = (".png", ".pdf", ".svg")


def figure_class() -> Any:
    """matplotlib's `Figure`, which unlike pyplot needs no display and leaves no global state.

    Raises:
        ConfigError: matplotlib is not installed; says how to get it.
    """
    return needed("matplotlib.figure", "plots", "a picture").Figure


def new_figure(width: float, height: float, layout: str | None = "constrained", dpi: int = 110) -> Any:
    """A figure of so many inches.

    Raises:
        ConfigError: matplotlib is not installed.
    """
    return figure_class()(figsize=(width, height), dpi=dpi, layout=layout)


def wrapped(words: str, width: int = 44) -> str:
    """A legend's label in lines that fit a panel of half a figure."""
    return textwrap.fill(words, width, break_long_words=False)


def entitle(figure: Any, text: str, size: float) -> None:
    """Write `text` over the whole figure, in as many lines as its width asks for."""
    room = int(72.0 * figure.get_figwidth() / (0.55 * size))  # a letter is about so wide
    lines = (part for line in text.splitlines() for part in textwrap.wrap(line, room, break_on_hyphens=False) or [""])
    figure.suptitle("\n".join(lines), fontsize=size)


def require_picture(path: Path) -> None:
    """Raise ConfigError unless a picture can be drawn there: asked before what takes long."""
    figure_class()
    if path.suffix not in KINDS:
        raise ConfigError(f"a picture ends in .png, .pdf or .svg, not {path.suffix!r}.")


def save_figure(figure: Any, path: Path, **options: Any) -> Path:
    """Write it whole, the same bytes for the same figure; `options` of matplotlib's `savefig`.

    Raises:
        ConfigError: `path` ends in nothing we write. StorageError: no space or permission.
    """
    require_picture(path)
    write_atomic(path, image_of(figure, path.suffix[1:], **options))
    return path


def image_of(figure: Any, kind: str = "png", **options: Any) -> bytes:
    """The file's content."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format=kind, metadata={"Software": None} if kind == "png" else None, **options)
    return buffer.getvalue()
