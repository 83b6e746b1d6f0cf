"""Lookup by name: a family name gives its network class, an agent id its recipe.

A family is one file, `models/<name with _ for ->.py`, and its agents are in one file of `recipes/`. Files are found by
name and imported on first use, so a new family needs two new files and no edit here. Another package adds a family with
an entry point of the group `agentzoo.families`: `my-family = "my_package.my_family"`.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from functools import cache
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from agentzoo.errors import ConfigError, UnknownNameError, did_you_mean

if TYPE_CHECKING:
    from agentzoo.nn.base import ModelConfig, SequenceModel

C = TypeVar("C", bound=type)
GROUP = "agentzoo.families"  # entry points of installed packages: family -> module
CLONE = "bc"  # the baseline that every agent is compared with; on images it is `bc-pixel`


def is_clone(family: str | None) -> bool:
    """Whether this family is a behaviour clone, the baseline of the others: `bc` or `bc-...`."""
    return family is not None and family.split("-")[0] == CLONE


class Family(NamedTuple):
    """A family's name, network class and config class, as passed to `@register`."""

    name: str
    model: type[SequenceModel]
    config: type[ModelConfig]


_families: dict[str, Family] = {}


def register(name: str, config: type[ModelConfig]) -> Callable[[C], C]:
    """Class decorator that registers a network class and its config class as the family `name`.

    Raises:
        ConfigError: another file registers the same name.
    """

    def decorate(model: C) -> C:
        known = _families.get(name)
        if known is not None and (known.model.__module__, known.model.__qualname__) != (
            model.__module__,
            model.__qualname__,
        ):
            raise ConfigError(
                f"{model.__module__} registers the family {name!r}, but {known.model.__module__} already does."
            )
        _families[name] = Family(name, model, config)
        return model

    return decorate


def _module_names(package: str) -> list[str]:
    """Modules of `agentzoo/<package>/`, except shared ones, whose names start with an underscore."""
    folder = importlib.import_module(f"agentzoo.{package}")
    return sorted(module.name for module in pkgutil.iter_modules(folder.__path__) if not module.name.startswith("_"))


@cache
def _installed() -> dict[str, str]:
    """Family -> module, as installed packages name them."""
    return {one.name: one.value for one in entry_points(group=GROUP)}


def _modules() -> dict[str, str]:
    """Family -> module: those of installed packages and, before them, the files of `agentzoo/models/`."""
    own = {module.replace("_", "-"): f"agentzoo.models.{module}" for module in _module_names("models")}
    return _installed() | own


def family_names() -> list[str]:
    """The names of all families; imports none of them."""
    return sorted({*_families, *_modules()})


def require_family(name: str) -> None:
    """Raise UnknownNameError, with the nearest name, unless this family exists; imports none."""
    known = family_names()
    if name not in known:
        near = did_you_mean(name[:80], known)
        raise UnknownNameError(f"no family {name[:80]!r}.{near} Known: {', '.join(known)}.")


def families() -> dict[str, Family]:
    """Every family, by name; imports all of them."""
    return {name: get_family(name) for name in family_names()}


def get_family(name: str) -> Family:
    """The family called `name`; imports only its file.

    Raises:
        UnknownNameError: neither `agentzoo/models/` nor an installed package has it. ConfigError: its file registers
            another name, or another package's cannot be imported.
    """
    if name not in _families:
        require_family(name)
        module = _modules()[name]
        try:
            importlib.import_module(module)
        except ImportError as error:
            if module.startswith("agentzoo.models."):
                raise
            raise ConfigError(
                f"an installed package offers the family {name!r} in {module}, which cannot be imported: {error}. "
                "Repair or uninstall that package."
            ) from error
        if name not in _families:
            raise ConfigError(f"{module} registers no family {name!r}; a file must have the name of its family.")
    return _families[name]


@cache
def recipe_table() -> dict[str, Any]:
    """Agent id -> `Recipe`, collected from the `RECIPES` of every file in `agentzoo/recipes/`."""
    table: dict[str, Any] = {}
    for module in (importlib.import_module(f"agentzoo.recipes.{name}") for name in _module_names("recipes")):
        twice = sorted(table.keys() & module.RECIPES.keys())
        if twice:
            raise ConfigError(f"{module.__name__} has a recipe {twice[0]!r}, which another file already has.")
        table.update(module.RECIPES)
    return dict(sorted(table.items()))


_services: dict[str, str] = {}  # function -> its module


def provide(name: str, module: str) -> None:
    """Register the function `name` of `module`, so that `service(name)` returns it."""
    _services[name] = module


def service(name: str) -> Callable[..., Any]:
    """A function of a higher layer that a lower layer calls: `Agent.push_to_hub` calls `push_agent`.

    `agentzoo/__init__.py` registers them; their modules are imported on first use.

    Raises:
        UnknownNameError: no function of this name is registered.
    """
    if name not in _services:
        raise UnknownNameError(f"no service {name!r}.{did_you_mean(name, _services)} Known: {', '.join(_services)}.")
    module = _services[name]
    found: Callable[..., Any] = getattr(importlib.import_module(module), name)
    return found
