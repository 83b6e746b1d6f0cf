"""How a dataset of the zoo is built: its recipe, and the options of `agentzoo data build`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from agentzoo.data.making.collect import EnvOptions, Rollout
from agentzoo.data.making.policies import PolicyFile, resolve_policy
from agentzoo.data.names import dataset_id
from agentzoo.errors import ConfigError, UnknownNameError
from agentzoo.store.files import sha256

SOURCES_VARIABLE = "AGENTZOO_SOURCES"
SOURCES_KEY = "source_sha256"  # key in a dataset's metadata; its lines have the format of sha256sum
DEFAULT_STEPS = 500_000
SOURCES_OPTION = "--sources DIR"  # a folder of policies and replay buffers, which are not distributed
TRUST_OPTION = "--trust-policies"  # loading a policy in SB3's format can run code
MADE_BY = "`agentzoo data behaviour ENV --threshold R` makes such a folder, behaviour/<env>."


@dataclass(frozen=True)
class BuildOptions:
    """Folder of policies and buffers, number of steps, seed and number of processes.

    trust_policies: load policies in SB3's format, from `sources` or the Hub, which can run code.
    on_steps: called with the steps of each written episode. on_source: called with name and sha256 of each source file
    before the first episode.
    """

    sources: Path | None = None
    steps: int | None = None
    seed: int = 0
    workers: int = 1
    trust_policies: bool = False
    on_steps: Callable[[int], None] = lambda _: None
    on_source: Callable[[str, str], None] = lambda *_: None

    def buffer(self, name: str) -> Path:
        """A replay buffer in the sources folder; it holds arrays and no code.

        Raises:
            UnknownNameError: no folder is set, or the file is not in it.
        """
        found = self._in_sources(name)
        if found is None:
            raise UnknownNameError(f"{self._needed(name)} Pass {SOURCES_OPTION}. {MADE_BY}")
        self.on_source(name, sha256(found))
        return found

    def policy(self, name: str, hub: str | None = None) -> PolicyFile:
        """A policy in the sources folder, else the one in the Hub repo `hub`.

        Raises:
            UnknownNameError: it is in neither. ConfigError: policies are not trusted, and SB3's format uses pickle.
                DataError: the download from the Hub failed.
        """
        found = self._in_sources(name)
        if found is None and hub is None:
            raise UnknownNameError(f"{self._needed(name)} Pass {SOURCES_OPTION} {TRUST_OPTION}. {MADE_BY}")
        if not self.trust_policies:
            if found is None:
                loads = f"{TRUST_OPTION} downloads {hub} from the Hub instead; loading it can run code."
                raise UnknownNameError(f"{self._needed(name)} {loads}")
            raise ConfigError(
                f"{found} is a policy in stable-baselines3's format: loading it uses pickle, which can run code. "
                f"If you trust the file, pass trust_policies=True ({TRUST_OPTION})."
            )
        path = found if found is not None else resolve_policy(str(hub))
        digest = sha256(path)
        self.on_source(name, digest)
        return PolicyFile(str(path), digest)

    def _folder(self) -> Path | None:
        named = os.environ.get(SOURCES_VARIABLE)
        return self.sources or (Path(named) if named else None)

    def _in_sources(self, name: str) -> Path | None:
        folder = self._folder()
        return folder / name if folder is not None and (folder / name).is_file() else None

    def _needed(self, name: str) -> str:
        folder = self._folder()
        if folder is None:
            return f"building this needs {name!r}, and neither --sources nor ${SOURCES_VARIABLE} names a folder."
        where = f"which is not in {folder}." if folder.is_dir() else f"and there is no folder {folder}."
        return f"building this needs {name!r}, {where}"


@dataclass(frozen=True)
class DatasetRecipe:
    """How one dataset is built. `episodes` yields its rollouts; the other fields go to Minari's metadata."""

    name: str  # hopper/medium
    env_id: str
    made_by: str  # one sentence: the dataset's description
    algorithm: str
    episodes: Callable[[BuildOptions], Iterable[Rollout]]
    steps: int | None = DEFAULT_STEPS  # default number; None: fixed by its source
    parts: int = 1  # datasets that it joins, each of so many steps
    options: EnvOptions = ()  # keyword arguments of `gymnasium.make`
    obs_keys: tuple[str, ...] | None = None  # keys of a Dict observation that agents read
    build_options: str = ""  # options of `agentzoo data build` that this dataset needs
    frames: bool = False  # observations are single frames, which agents see in stacks (`dqn_replay.METADATA`)

    @property
    def dataset_id(self) -> str:
        """The Minari id, e.g. `zoo/hopper/medium-v0`."""
        return dataset_id(self.name)

    def planned(self, steps: int | None = None) -> int | None:
        """The steps of all parts, by default or with `--steps`; None if its source fixes them."""
        return None if self.steps is None else self.parts * (steps or self.steps)
