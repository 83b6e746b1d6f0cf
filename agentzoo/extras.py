"""Packages that only some of the work needs: imported when it is asked for, with a message that names the extra."""

from __future__ import annotations

import importlib
from typing import Any

from agentzoo.errors import ConfigError


def needed(module: str, extra: str, what: str) -> Any:
    """An optional package.

    Args:
        module: its import name.
        extra: of agentzoo's, that installs it: "train", "video", "export", ...
        what: asks for it, the subject of a sentence: "training", "a video".

    Raises:
        ConfigError: it is not installed or does not import; says which extra installs it.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ConfigError(
            f"{what} needs {module.partition('.')[0]}, which is not here: pip install 'agentzoo[{extra}]' ({error})."
        ) from error
