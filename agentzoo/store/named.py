"""Checks names on a command line without importing PyTorch, so typos are reported at once."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable
from pathlib import Path

from agentzoo.errors import CheckpointError, ConfigError, warn
from agentzoo.store.downloads import is_repo_id
from agentzoo.store.files import CONFIG, WEIGHTS, read_text
from agentzoo.store.index import HubLocation, hub_location
from agentzoo.store.locate import ZOO_VARIABLE, find_agent, require_known, staged_agents, staged_backbones

RANDOM = "random"  # stands for random weights of every other network's size
# language models on the Hub without an owner in their name
WITHOUT_OWNER = ("gpt2", "gpt2-medium", "gpt2-large", "gpt2-xl", "distilgpt2")


def warn_of_no_zoo() -> None:
    """Warn if `$AGENTZOO_ZOO` names no folder, since nothing can be staged in it yet."""
    zoo = os.environ.get(ZOO_VARIABLE)
    if zoo and not Path(zoo).is_dir():
        warn(f"${ZOO_VARIABLE} is {zoo}, and there is no such folder, so no agent is staged.", 2)


def is_finished(run: Path) -> bool:
    """Whether this folder holds a finished training."""
    return (run / WEIGHTS).is_file() and (run / CONFIG).is_file()


def require_finished(run: Path) -> None:
    """Raise CheckpointError unless this folder holds a finished training or a staged agent."""
    if not run.exists():
        raise CheckpointError(f"{run} holds no finished run: there is no such folder.")
    if is_finished(run):
        return
    if any(is_finished(one) for one in run.glob("*")):
        raise CheckpointError(f"{run} is a folder of runs, not a run; name the runs in it: {shlex.quote(str(run))}/*.")
    raise CheckpointError(
        f"{run} holds no finished run ({WEIGHTS} and {CONFIG}); `agentzoo train` continues a stopped run."
    )


def run_folder(named: Path) -> Path:
    """The folder of a run or agent: a path, or the id of an agent, which is looked up as in `from_pretrained`.

    Raises:
        UnknownNameError: a plain name that is neither a folder nor an agent's id.
    """
    name = named.as_posix()
    return named if named.exists() or "/" in name.removeprefix("zoo/") else find_agent(name)


def require_folder(folder: Path) -> None:
    """Raise CheckpointError unless this is a folder with the config of an agent or a backbone."""
    if not folder.is_dir():
        raise CheckpointError(f"{folder} is not a folder.")
    read_text(folder / CONFIG)


def require_network(name: str, shipped: Iterable[str]) -> None:
    """Raise UnknownNameError for a plain name that is neither an agent's nor a language model's.

    Args:
        shipped: names of language models inside PyPI packages.
    """
    models = {*staged_backbones(), *shipped, *WITHOUT_OWNER}
    if name.removeprefix("zoo/") not in models and not name.lower().endswith(".gguf"):
        require_known(name)


def require_remote(agent: str) -> HubLocation:
    """The Hub location of an agent or backbone: a repo id, or the index entry of an id.

    Raises:
        ConfigError: no repo id, and none in the index.
    """
    plain = agent.removeprefix("zoo/")
    location = hub_location(plain) if "/" not in plain else None
    repo_id = location.repo_id if location is not None else plain  # never a repo of a stranger named "zoo"
    if not is_repo_id(repo_id):
        folder = staged_agents().get(plain)
        here = "" if folder is None else f" It is already in {folder}."
        raise ConfigError(f"{agent!r} is not a Hub repo, and the index has no repo for it.{here}")
    return location or HubLocation(repo_id, None)
