"""Names to code: a family name finds its network class, an agent id its recipe.

Both are found by looking into the package folders `models/` and `recipes/` and imported on first use, so a new
family is two new files and no edit here.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from agentzoo.errors import ConfigError, UnknownNameError, did_you_mean

if TYPE_CHECKING:
    from agentzoo.nn.base import ModelConfig, SequenceModel

C = TypeVar("C", bound=type)


class Family(NamedTuple):
    """What `@register` was told: the name in agent ids, the network class and the class of its config."""

    name: str
    model: type[SequenceModel]
    config: type[ModelConfig]


_families: dict[str, Family] = {}


def register(name: str, config: type[ModelConfig]) -> Callable[[C], C]:
    """Class decorator: `name` now builds this network, configured by `config`.

    Raises:
        ConfigError: another file has a family of that name.
    """

    def decorate(model: C) -> C:
        known = _families.get(name)
        if known is not None and (known.model.__module__, known.model.__qualname__) != (
            model.__module__,
            model.__qualname__,
        ):
            raise ConfigError(
                f"{model.__module__} registers a family {name!r}, which {known.model.__module__} has; name it anew."
            )
        _families[name] = Family(name, model, config)
        return model

    return decorate


def _import_all(package: str) -> list[Any]:
    folder = importlib.import_module(f"agentzoo.{package}")
    names = sorted(module.name for module in pkgutil.iter_modules(folder.__path__) if not module.name.startswith("_"))
    return [importlib.import_module(f"agentzoo.{package}.{name}") for name in names]


@cache
def families() -> dict[str, Family]:
    """Every family of the package, by name."""
    _import_all("models")
    return dict(sorted(_families.items()))


def get_family(name: str) -> Family:
    """The family called `name`.

    Raises:
        UnknownNameError: no file of `agentzoo/models/` registers it.
    """
    if name not in _families and name not in families():
        near = did_you_mean(name[:80], families())
        raise UnknownNameError(f"no family {name[:80]!r}.{near} Known: {', '.join(families())}.")
    return _families[name]


@cache
def recipe_table() -> dict[str, Any]:
    """Agent id -> `Recipe`, gathered from the `RECIPES` of every file of `agentzoo/recipes/`."""
    table: dict[str, Any] = {}
    for module in _import_all("recipes"):
        twice = sorted(table.keys() & module.RECIPES.keys())
        if twice:
            raise ConfigError(
                f"{module.__name__} has a recipe {twice[0]!r}, which another file has; name it otherwise."
            )
        table.update(module.RECIPES)
    return dict(sorted(table.items()))


_services: dict[str, str] = {}  # function -> its module


def provide(name: str, module: str) -> None:
    """`service(name)` is from now on the function of this name in `module`."""
    _services[name] = module


def service(name: str) -> Callable[..., Any]:
    """A function of a later layer that an earlier one offers to users, as `Agent.push_to_hub` offers `push_agent`.

    `agentzoo/__init__.py` says which there are; their modules are imported on first use.

    Raises:
        UnknownNameError: nobody provides it.
    """
    if name not in _services:
        raise UnknownNameError(f"no service {name!r}.{did_you_mean(name, _services)} Known: {', '.join(_services)}.")
    module = _services[name]
    found: Callable[..., Any] = getattr(importlib.import_module(module), name)
    return found
