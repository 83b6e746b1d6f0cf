"""Names to code: a family name finds its network class, an agent id its recipe.

A family lives in `models/<name with _ for ->.py` and its agents in a file of `recipes/`. Both are found by being there
and imported on first use, so a new family is two new files and no edit here.
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
    """A name in agent ids, the network class and the class of its config, as given to `@register`."""

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
            raise ConfigError(f"{model.__module__} registers a family {name!r}, which {known.model.__module__} has.")
        _families[name] = Family(name, model, config)
        return model

    return decorate


def _module_names(package: str) -> list[str]:
    """Files of `agentzoo/<package>/`, without those that several share (a leading underscore)."""
    folder = importlib.import_module(f"agentzoo.{package}")
    return sorted(module.name for module in pkgutil.iter_modules(folder.__path__) if not module.name.startswith("_"))


def family_names() -> list[str]:
    """The names of all families, without importing one."""
    return sorted({*_families, *(module.replace("_", "-") for module in _module_names("models"))})


def require_family(name: str) -> None:
    """Raise UnknownNameError, with the nearest name, unless a family is called so; imports none."""
    known = family_names()
    if name not in known:
        near = did_you_mean(name[:80], known)
        raise UnknownNameError(f"no family {name[:80]!r}.{near} Known: {', '.join(known)}.")


def families() -> dict[str, Family]:
    """Every family, by name; imports all of them."""
    return {name: get_family(name) for name in family_names()}


def get_family(name: str) -> Family:
    """The family called `name`; imports its file alone.

    Raises:
        UnknownNameError: no file of `agentzoo/models/` is called so. ConfigError: the file registers another name.
    """
    if name not in _families:
        require_family(name)
        module = f"agentzoo.models.{name.replace('-', '_')}"
        importlib.import_module(module)
        if name not in _families:
            raise ConfigError(f"{module} registers no family {name!r}; a file and its family have one name.")
    return _families[name]


@cache
def recipe_table() -> dict[str, Any]:
    """Agent id -> `Recipe`, gathered from the `RECIPES` of every file of `agentzoo/recipes/`."""
    table: dict[str, Any] = {}
    for module in (importlib.import_module(f"agentzoo.recipes.{name}") for name in _module_names("recipes")):
        twice = sorted(table.keys() & module.RECIPES.keys())
        if twice:
            raise ConfigError(f"{module.__name__} has a recipe {twice[0]!r}, which another file has.")
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
        UnknownNameError: there is none of this name.
    """
    if name not in _services:
        raise UnknownNameError(f"no service {name!r}.{did_you_mean(name, _services)} Known: {', '.join(_services)}.")
    module = _services[name]
    found: Callable[..., Any] = getattr(importlib.import_module(module), name)
    return found
