"""Optional packages: imported on first use; if one is missing, the error names the extra that installs it."""

from __future__ import annotations

import importlib
from typing import Any

from agentzoo.errors import ConfigError


def needed(module: str, extra: str, what: str) -> Any:
    """Import an optional package.

    Args:
        module: its import name.
        extra: the extra of agentzoo that installs it: "train", "video", "export", ...
        what: the feature that needs it, the subject of the error's sentence: "training", "a video".

    Raises:
        ConfigError: it is not installed or cannot be imported; the message says which extra installs it.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ConfigError(
            f"{what} needs {module.partition('.')[0]}, which is not installed: pip install 'agentzoo[{extra}]' "
            f"({error})."
        ) from error
