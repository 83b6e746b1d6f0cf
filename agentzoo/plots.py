"""The one place that asks for matplotlib, which only pictures need."""

from __future__ import annotations

from typing import Any

from agentzoo.errors import ConfigError


def figure_class() -> Any:
    """matplotlib's `Figure`, which unlike pyplot needs no display and leaves no global state.

    Raises:
        ConfigError: matplotlib is not installed; says how to get it.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ConfigError("pictures need matplotlib: pip install 'agentzoo[plots]'.") from error
    return Figure
