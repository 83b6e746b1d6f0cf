"""Files of strangers that name things: modules to import, environments, paths, other repos. Nothing is followed."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import ASSETS

from agentzoo.agent import Agent
from agentzoo.data.minari import load_episodes
from agentzoo.envs.making import check_env_id
from agentzoo.errors import AgentzooError, ConfigError, DataError, UnknownNameError
from agentzoo.hub.publish import check_folder
from agentzoo.hub.verify import check_files, verify
from agentzoo.hub.zoo import describe, summaries
from agentzoo.store.index import hub_location
from hub.cases import invoke

# -- modules that files name ---------------------------------------------------------------------------------------


@pytest.fixture
def evil(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A module `evil_module` that can be imported; the path it makes then."""
    mark = tmp_path / "imported"
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules" / "evil_module.py").write_text(f"import os\nos.mkdir({str(mark)!r})\nEvil = dict\n")
    monkeypatch.syspath_prepend(str(tmp_path / "modules"))
    yield mark
    sys.modules.pop("evil_module", None)


def spec(mark: Path, kind: str) -> str:
    """A dataset's `env_spec` that runs something once an environment is made of it."""
    fields: dict[str, Any] = {
        "module in the id": {"id": "evil_module:Evil-v0", "entry_point": "evil_module:Evil"},
        "entry point": {"id": "Hopper-v5", "entry_point": "evil_module:Evil"},
        "function": {"id": "Hopper-v5", "entry_point": "os:mkdir", "kwargs": {"path": str(mark)}},
        "wrapper": {
            "additional_wrappers": [{"name": "w", "entry_point": "os:mkdir", "kwargs": {"path": str(mark)}}],
        },
    }[kind]
    base = {"id": "CartPole-v1", "entry_point": "gymnasium.envs.classic_control:CartPoleEnv"}
    return json.dumps({"kwargs": {}, "additional_wrappers": [], **base, **fields})


@pytest.mark.parametrize("kind", ["module in the id", "entry point", "function", "wrapper"])
@pytest.mark.parametrize("missing", [(), ("observation_space",), ("observation_space", "action_space")])
def test_datasets_that_name_a_module_do_not_import_it(
    evil: Path, tiny_hopper: str, kind: str, missing: tuple[str, ...]
) -> None:
    path = Path(os.environ["MINARI_DATASETS_PATH"]) / tiny_hopper / "data" / "metadata.json"
    metadata = json.loads(path.read_text()) | {"env_spec": spec(evil, kind), "eval_env_spec": spec(evil, kind)}
    path.write_text(json.dumps({name: value for name, value in metadata.items() if name not in missing}))
    if missing:  # Minari would make the environment to know its spaces
        with pytest.raises(DataError, match=r"has no observation_space.*runs code"):
            load_episodes(tiny_hopper)
    else:
        assert len(load_episodes(tiny_hopper).lengths) == 20
        invoke("data", "show", tiny_hopper)
        invoke("data", "list")
    assert not evil.exists()
    assert "evil_module" not in sys.modules


def test_minari_alone_would_run_it(evil: Path, tiny_hopper: str) -> None:
    """So that the test above is about something: when this fails, Minari has become careful and we may relax."""
    import minari

    path = Path(os.environ["MINARI_DATASETS_PATH"]) / tiny_hopper / "data" / "metadata.json"
    metadata = json.loads(path.read_text()) | {"env_spec": spec(evil, "function")}
    path.write_text(json.dumps({name: value for name, value in metadata.items() if name != "observation_space"}))
    with contextlib.suppress(Exception):
        minari.load_dataset(tiny_hopper)
    assert evil.exists()


@pytest.mark.parametrize(
    "text", ["", "[]", "{", "null", '{"a": ' * 3000, '{"observation_space": "{", "action_space": 3}']
)
def test_malformed_metadata_raises_a_data_error(tiny_hopper: str, text: str) -> None:
    path = Path(os.environ["MINARI_DATASETS_PATH"]) / tiny_hopper / "data" / "metadata.json"
    path.write_text(text)
    with pytest.raises(DataError):
        load_episodes(tiny_hopper)


def test_dataset_ids_do_not_climb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(ASSETS, tmp_path / "outside")
    (tmp_path / "root" / "zoo").mkdir(parents=True)
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "root"))
    with pytest.raises(UnknownNameError, match="no dataset"):
        load_episodes("zoo/../../outside/zoo/hopper/tiny-v0", download=False)


@pytest.mark.parametrize("env_id", ["evil_module:Evil-v0", "GymV21Environment-v0", "GymV26Environment-v0"])
def test_environments_that_import_what_a_config_names(evil: Path, folder: Path, env_id: str) -> None:
    config = json.loads((folder / "config.json").read_text())
    config |= {"env": env_id, "env_options": {"env_id": "evil_module:Evil-v0"}}
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(ConfigError, match="runs its code"):
        Agent.from_pretrained(folder)
    check_env_id(env_id, trusted=True)
    assert not evil.exists()


# -- records -------------------------------------------------------------------------------------------------------


def test_results_cannot_send_verify_to_another_module(evil: Path, folder: Path) -> None:
    edit_results(folder, lambda head: head.update(env="evil_module:Evil-v0"))
    with pytest.raises(ConfigError, match="runs its code"):
        verify(str(folder))
    assert not evil.exists()


def edit_results(folder: Path, change: Any) -> None:
    results = json.loads((folder / "results.json").read_text())
    change(results["headline"])
    (folder / "results.json").write_text(json.dumps(results))


@pytest.mark.parametrize(
    "change",
    [
        {"mean_return": float("nan")},
        {"mean_return": "12"},
        {"mean_return": 10**400},
        {"score_interval": [1.0]},
        {"episodes": 0},
        {"episodes": 1e9},
        {"returns": {}},
        {"lengths": [1.5]},
        {"versions": {"numpy": ["x"]}},
        {"command": 7},
        {"checkpoint": "last"},
        {"__class__": "os.system"},
        {"agent_id": ["x"] * 1000},
    ],
)
def test_hostile_results_are_refused_wherever_they_are_read(
    folder: Path, change: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    edit_results(folder, lambda head: head.update(change))
    refused_everywhere(folder, ConfigError, "results.json cannot be used", monkeypatch)


@pytest.mark.parametrize("text", ["[" * 100_000, "", "\x00", '{"headline": ' * 1000, "7", " " * (5 * 1024 * 1024)])
def test_malformed_results_are_refused_everywhere(folder: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "results.json").write_text(text)
    refused_everywhere(folder, AgentzooError, r"results.json (cannot be used|holds 5242880 bytes)", monkeypatch)


@pytest.mark.parametrize(("shift", "holds"), [(0.0, True), (0.5, False)])
def test_an_interval_of_100_000_returns_is_checked_in_seconds(folder: Path, shift: float, holds: bool) -> None:
    returns = np.random.default_rng(0).normal(10.0, 1.0, 100_000).round(3)
    mean, half = float(returns.mean()), 1.96 * float(returns.std()) / len(returns) ** 0.5
    edit_results(
        folder,
        lambda head: head.update(
            episodes=len(returns),
            returns=returns.tolist(),
            lengths=[1] * len(returns),
            mean_length=1.0,
            mean_return=mean,
            std_return=float(returns.std(ddof=1)),
            return_interval=[mean - half + shift, mean + half],
        ),
    )
    began = time.process_time()
    _, results, checks = check_files(folder)
    assert time.process_time() - began < 20.0
    assert (results is not None) == holds
    assert [one.holds for one in checks if one.name == "results"] == [holds]


def refused_everywhere(folder: Path, kind: type[Exception], words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTZOO_ZOO", str(folder.parent))
    for attempt in (
        lambda: describe("dt-test"),
        lambda: check_folder(folder),
        lambda: invoke("hub", "card", str(folder)),
    ):
        with pytest.raises(kind, match=words):
            attempt()
    (problem,) = (one.problem for one in summaries() if one.agent_id == "dt-test")
    assert re.search(words, str(problem))
    Agent.from_pretrained(folder)  # acting needs no results


def test_results_with_terminal_codes_and_markup_are_shown_as_they_are(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    edit_results(folder, lambda head: head.update(env="[red]x[/red]\x1b]0;title\x07", command="\x1b[2J[/]"))
    monkeypatch.setenv("AGENTZOO_ZOO", str(folder.parent))
    for command in (["list"], ["show", "dt-test"]):
        output = invoke(*command)
        assert "\x1b]0" not in output
        assert "\x1b[2J" not in output


# -- the index -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "index",
    [
        {"agents": {"x": {"repo_id": "../../etc/x"}}},
        {"agents": {"x": {"repo_id": "/etc/passwd"}}},
        {"agents": {"x": {"repo_id": "a/../b"}}},
        {"agents": {"x": {"repo_id": "a/b/../../c"}}},
        {"agents": {"x": {"repo_id": "a/b", "revision": "../../../../tmp/x"}}},
        {"agents": {"x": {"repo_id": "a/b", "revision": ["main"]}}},
        {"agents": {"x": {"repo_id": "https://evil.example/a"}}},
        {"agents": {"x": {"repo_id": "a/b\nc"}}},
        {"agents": {"x": "a/b"}},
        {"agents": ["x"]},
        {"agents": {}, "default": "../{agent_id}"},
        {"agents": {}, "default": "{agent_id}/{agent_id}/{agent_id}"},
        {"agents": {}, "default": "a/{agent_id.__class__}"},
        {"agents": {}, "default": 7},
        {},
    ],
)
def test_an_index_that_leads_elsewhere_is_refused(index: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "index.json").write_text(json.dumps(index))
    monkeypatch.setenv("AGENTZOO_INDEX", str(tmp_path / "index.json"))
    monkeypatch.setenv("AGENTZOO_ZOO", str(tmp_path / "none"))
    with pytest.raises(ConfigError, match="agent index"):
        hub_location("x")
    with pytest.raises(ConfigError, match="agent index"):
        Agent.from_pretrained("zoo/x", cache_dir=tmp_path / "cache")
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize("agent_id", ["..", "../x", "zoo/../x", "a\x00b", "x/../../y", "C:\\x", "~root/x", "."])
def test_ids_that_climb_never_reach_the_index(agent_id: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "index.json").write_text(json.dumps({"agents": {}, "default": "org/{agent_id}"}))
    monkeypatch.setenv("AGENTZOO_INDEX", str(tmp_path / "index.json"))
    monkeypatch.setenv("AGENTZOO_ZOO", str(tmp_path / "none"))
    with pytest.raises(AgentzooError):
        Agent.from_pretrained(agent_id, cache_dir=tmp_path / "cache", local_files_only=True)
    assert not (tmp_path / "cache").exists()
