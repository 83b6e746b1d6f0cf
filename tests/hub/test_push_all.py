"""One command publishes the zoo, goes on where it stopped, and pins what it checked. Datasets go Minari's way."""

from __future__ import annotations

import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import CountingEnv
from typer.testing import CliRunner

from agentzoo.agent import Agent
from agentzoo.cli.command import app
from agentzoo.data.episodes import Episodes
from agentzoo.data.making.collect import Rollout
from agentzoo.data.minari import load_episodes, write_dataset
from agentzoo.data.names import datasets_root
from agentzoo.data.remote import dataset_of
from agentzoo.errors import ConfigError, DataError, HubError, UnknownNameError
from agentzoo.hub.datasets import card_text, push_card, push_dataset
from agentzoo.hub.publish_all import Published, _write_index, plan, push_all
from agentzoo.store import locate
from hub.cases import same_actions
from hub.conftest import edit
from hub.server import Hub

IDS = ("dt-one", "dt-two")


@pytest.fixture
def zoo(hub: Hub, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two staged agents, an empty folder of datasets, and an index of our own."""
    from agentzoo.config import AgentConfig
    from agentzoo.hub.card import write_card
    from agentzoo.record import read_record

    root = tmp_path / "zoo"
    for name in IDS:
        place = Path(shutil.copytree(folder, root / name))
        (place / "results.json").unlink()
        edit(place, "config.json", agent_id=name)
        edit(place, "train_config.json", agent_id=name)
        write_card(place)
        assert read_record(AgentConfig, place / "config.json").agent_id == name
    index = tmp_path / "index.json"
    index.write_text(json.dumps({"agents": {"old": {"repo_id": "me/old"}}}))
    monkeypatch.setenv("AGENTZOO_INDEX", str(index))
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "datasets"))
    return root


def command(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["hub", "push", "--all", *arguments])


def test_a_dry_run_checks_and_sends_nothing(hub: Hub, zoo: Path) -> None:
    found = command("--org", "me", "--dry-run")
    assert found.exit_code == 0, found.output
    assert "dt-one -> me/dt-one: 5 files" in found.output
    assert "a card of the datasets -> the dataset repo me/zoo" in found.output
    assert "2 networks" in found.output
    assert hub.repos == {}
    assert hub.seen == []
    assert [item.repo_id for item in plan("me")] == ["me/dt-one", "me/dt-two"]
    (zoo / "dt-two" / "README.md").write_text("not what the records give")
    assert command("--org", "me", "--dry-run").exception is not None
    with pytest.raises(ConfigError, match="not a repo id"):
        plan("a/b")


def test_the_zoo_goes_up_and_the_index_pins_it(hub: Hub, zoo: Path, tmp_path: Path) -> None:
    done = push_all("me")
    assert [(one.name, one.pushed) for one in done] == [("dt-one", True), ("dt-two", True)]
    index = json.loads((tmp_path / "index.json").read_text())
    assert index["agents"]["old"] == {"repo_id": "me/old"}
    assert index["agents"]["dt-one"] == {"repo_id": "me/dt-one", "revision": done[0].commit}
    assert index["datasets"]["repo_id"] == "me/zoo"
    assert b"# Datasets of agentzoo" in hub.repos["datasets:me/zoo"].head["README.md"]
    local = Agent.from_pretrained("dt-one")
    shutil.rmtree(zoo)  # so that the index is asked
    assert same_actions(Agent.from_pretrained("zoo/dt-one"), local)


def test_agents_pushed_at_the_same_time_are_all_in_the_index(tmp_path: Path) -> None:
    path, names = tmp_path / "index.json", [f"dt-{i}" for i in range(24)]

    def write(name: str) -> None:
        _write_index(path, [Published(name, f"me/{name}", "0" * 40, pushed=True)], {"repo_id": "me/zoo"})

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, names))
    assert set(json.loads(path.read_text())["agents"]) == set(names)


def test_a_dataset_whose_data_lie_behind_a_link_is_uploaded_whole(hub: Hub, zoo: Path, tmp_path: Path) -> None:
    write_small("test/small/one-v0")
    folder = datasets_root() / "test/small/one-v0"
    (folder / "data").rename(tmp_path / "elsewhere")
    (folder / "data").symlink_to(tmp_path / "elsewhere", target_is_directory=True)
    pushed = push_dataset("test/small/one-v0", "me")
    sizes = {path.name: path.stat().st_size for path in (tmp_path / "elsewhere").iterdir()}
    assert pushed.bytes == sum(sizes.values()) > 0
    assert {f"small/one-v0/data/{name}" for name in sizes} <= set(hub.repos["datasets:me/test"].head)


def test_a_push_does_not_make_public_repos_private(hub: Hub, zoo: Path) -> None:
    push_all("me")
    write_small("test/small/one-v0")
    push_dataset("test/small/one-v0", "me")
    before = {name: dict(repo.branches) for name, repo in hub.repos.items()}
    with pytest.raises(ConfigError, match="me/dt-one is public, and a push does not make"):
        push_all("me", private=True)
    with pytest.raises(ConfigError, match="me/test is public, and a push does not make"):
        push_dataset("test/small/one-v0", "me", private=True)
    assert {name: repo.branches for name, repo in hub.repos.items()} == before


def test_a_run_that_was_stopped_goes_on(hub: Hub, zoo: Path) -> None:
    hub.fail("POST", "/api/models/me/dt-two/commit", 403, times=1)
    with pytest.raises(HubError, match="1 of 2 are published; the same command continues"):
        push_all("me")
    commits = dict(hub.repos["me/dt-one"].branches)
    assert [one.pushed for one in push_all("me")] == [False, True]
    assert hub.repos["me/dt-one"].branches == commits
    assert [one.pushed for one in push_all("me")] == [False, False]
    (zoo / "dt-one" / "training_log.csv").write_text("step,loss\n2,0.4\n")
    assert [one.pushed for one in push_all("me")] == [True, False]
    repo = hub.repos["me/dt-two"]
    theirs = repo.commit({**repo.head, "LICENSE": b"a file of its owner"})
    done = push_all("me")
    assert [one.pushed for one in done] == [False, False]  # it differs, but a push changes nothing
    assert done[1].commit == theirs


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"agents": {"mine": {"repo_id": "me/mine"},},}', "cannot be used: "),
        ('{"agents": []}', "its agents are not an object, id -> entry"),
        ("[]", "neither agents nor a default"),
    ],
)
def test_a_damaged_index_is_kept_and_refused_before_anything_is_sent(
    hub: Hub, zoo: Path, tmp_path: Path, text: str, words: str
) -> None:
    (tmp_path / "index.json").write_text(text)
    with pytest.raises(ConfigError, match=words):
        push_all("me")
    assert (tmp_path / "index.json").read_text() == text
    assert hub.seen == []
    (tmp_path / "index.json").unlink()
    push_all("me")
    assert set(json.loads((tmp_path / "index.json").read_text())["agents"]) == set(IDS)


def test_what_a_wheel_brought_along_is_not_pushed(
    hub: Hub, zoo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(zoo / "dt-one", tmp_path / "bundled" / "dt-far")
    monkeypatch.setattr(locate, "_local_zoos", lambda: [zoo, tmp_path / "bundled"])
    assert "dt-far" in locate.staged_agents()
    assert [item.name for item in plan("me")] == ["dt-one", "dt-two"]


def test_a_wheel_without_a_zoo_has_nothing_to_push(
    hub: Hub, zoo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own agents are no zoo of the user's; a folder that `$AGENTZOO_ZOO` names is staged into and published."""
    monkeypatch.delenv("AGENTZOO_ZOO")
    monkeypatch.setattr(locate, "_package", lambda: tmp_path / "site-packages" / "agentzoo")
    shutil.copytree(zoo, tmp_path / "site-packages" / "agentzoo" / "bundled")
    assert "dt-one" in locate.staged_agents()
    with pytest.raises(ConfigError, match=r"hub_cards holds no agent; `agentzoo hub stage RUN .*AGENTZOO_ZOO=FOLDER"):
        plan("me")
    named = {"AGENTZOO_ZOO": str(tmp_path / "new")}
    found = CliRunner().invoke(app, ["hub", "baselines", str(zoo / "dt-one")], env=named)
    assert f"--zoo {tmp_path / 'new'} is not a folder" in str(found.exception)
    monkeypatch.setenv("AGENTZOO_ZOO", str(zoo))
    assert [item.name for item in plan("me")] == ["dt-one", "dt-two"]


def test_what_comes_back_otherwise_is_noticed(hub: Hub, zoo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    push_all("me")
    hub.corrupt = lambda path, data: data.replace(b"0.5", b"0.6") if path.endswith("training_log.csv") else data
    with pytest.raises(HubError, match="training_log"):
        push_all("me")


def test_a_repo_that_changed_after_its_push_is_noticed(hub: Hub, zoo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The hashes of its files are right, but they are others than those that were sent."""

    def changed(path: Path, done: list[Published], datasets: dict[str, str]) -> None:
        tree = hub.repos["me/dt-one"].commits[done[0].commit]
        tree["training_log.csv"] = tree["training_log.csv"].replace(b"0.5", b"0.6")

    monkeypatch.setattr("agentzoo.hub.publish_all._write_index", changed)
    with pytest.raises(HubError, match=r"me/dt-one@.* has a different training_log.csv than .*dt-one\. Push again"):
        push_all("me")


def test_all_and_one_folder_do_not_go_together(hub: Hub, zoo: Path) -> None:
    for arguments in (["--all"], ["--org", "me"], ["--all", "--org", "me", "--tag", "v1"], []):
        found = CliRunner().invoke(app, ["hub", "push", *arguments])
        assert isinstance(found.exception, ConfigError), arguments


def write_small(dataset_id: str) -> Episodes:
    env = CountingEnv()
    rng = np.random.default_rng(0)

    def episode(seed: int) -> Rollout:
        length = 5 + seed
        return Rollout(
            seed,
            rng.normal(size=(length + 1, 3)).astype(np.float32),
            rng.uniform(-1, 1, (length, 2)).astype(np.float32),
            np.arange(1.0, length + 1),
            np.arange(length) == length - 1,
            np.zeros(length, dtype=bool),
        )

    spaces = {"observation_space": env.observation_space, "action_space": env.action_space}
    write_dataset(dataset_id, (episode(i) for i in range(3)), **spaces, description="By hand.", algorithm_name="none")
    return load_episodes(dataset_id)


def test_a_dataset_goes_up_in_minaris_layout_and_minari_loads_it(
    hub: Hub, zoo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import minari

    ours = [write_small(f"test/small/{name}-v0") for name in ("one", "two")]
    pushed = [push_dataset(f"test/small/{name}-v0", "me") for name in ("one", "two")]
    assert pushed[0].address == "hf://me/test/small/one-v0"
    tree = hub.repos["datasets:me/test"].head
    assert {"small/one-v0/data/metadata.json", "small/one-v0/data/main_data.hdf5"} <= tree.keys()
    assert json.loads(tree["namespace_metadata.json"]) == {
        "datasets": ["test/small/one-v0", "test/small/two-v0"],
        "namespaces": ["test/small"],
    }
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "elsewhere"))
    assert dataset_of("hf://me/test/small/one-v0") == "test/small/one-v0"
    again = load_episodes("test/small/one-v0", download=False)
    np.testing.assert_array_equal(again.observations, ours[0].observations)
    assert not [path for path in (tmp_path / "elsewhere").iterdir() if path.name.startswith(".")]
    seen = len(hub.seen)
    assert dataset_of("hf://me/test/small/one-v0") == "test/small/one-v0"  # it is here
    assert len(hub.seen) == seen
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minaris"))
    monkeypatch.setenv("MINARI_REMOTE", "hf://me")
    assert minari.load_dataset("test/small/two-v0", download=True).total_episodes == 3


def test_a_list_of_datasets_that_cannot_be_read_is_not_replaced(hub: Hub, zoo: Path) -> None:
    """The client answers as if the file were missing, if a request for its size fails."""
    for name in ("one", "two"):
        write_small(f"test/small/{name}-v0")
    push_dataset("test/small/one-v0", "me")
    before = hub.repos["datasets:me/test"].head
    hub.fail("HEAD", r"/namespace_metadata\.json", 403)
    with pytest.raises(HubError, match="me/test was not changed"):
        push_dataset("test/small/two-v0", "me")
    assert hub.repos["datasets:me/test"].head == before
    hub.faults.clear()
    push_dataset("test/small/two-v0", "me")
    listed = json.loads(hub.repos["datasets:me/test"].head["namespace_metadata.json"])["datasets"]
    assert listed == ["test/small/one-v0", "test/small/two-v0"]


def test_the_description_of_a_namespace_stays(hub: Hub, zoo: Path) -> None:
    for name in ("one", "two"):
        write_small(f"test/small/{name}-v0")
    push_dataset("test/small/one-v0", "me")
    repo = hub.repos["datasets:me/test"]
    repo.commit({**repo.head, "small/namespace_metadata.json": b'{"description": "by hand"}'})
    push_dataset("test/small/two-v0", "me")
    assert repo.head["small/namespace_metadata.json"] == b'{"description": "by hand"}'
    assert "small/two-v0/data/metadata.json" in repo.head


def test_a_dataset_that_does_not_come_leaves_nothing(hub: Hub, zoo: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="could not be fetched"):
        dataset_of("hf://me/test/none-v0")
    assert not [path for path in (tmp_path / "datasets").rglob("*") if path.is_file()]
    with pytest.raises(ConfigError, match="looks like hf://OWNER"):
        dataset_of("hf://me/../../x-v0")
    assert dataset_of("zoo/hopper/medium-v0") == "zoo/hopper/medium-v0"


def test_a_download_that_breaks_off_leaves_nothing_and_is_repeated(
    hub: Hub, zoo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = write_small("test/small/one-v0")
    push_dataset("test/small/one-v0", "me")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "elsewhere"))
    monkeypatch.setenv("MINARI_REMOTE", "hf://me")
    for name, error in (("test/small/one-v0", UnknownNameError), ("hf://me/test/small/one-v0", DataError)):
        hub.fail("GET", "main_data", 403)
        with pytest.raises(error):
            load_episodes(dataset_of(name))
        assert not (tmp_path / "elsewhere" / "test").exists()
        hub.faults.clear()
    np.testing.assert_array_equal(load_episodes("test/small/one-v0").observations, ours.observations)


def test_a_dataset_that_trickles_in_is_given_up(
    hub: Hub, zoo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_small("test/small/one-v0")
    push_dataset("test/small/one-v0", "me")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "elsewhere"))
    monkeypatch.setenv("AGENTZOO_HUB_TIMEOUT", "1")
    hub.drip = 0.02
    with pytest.raises(DataError, match="StoppedError"):
        dataset_of("hf://me/test/small/one-v0")
    assert not (tmp_path / "elsewhere" / "test").exists()


def test_a_local_dataset_of_another_origin_is_used_with_a_warning(hub: Hub, zoo: Path, recwarn: Any) -> None:
    write_small("test/small/one-v0")
    address = push_dataset("test/small/one-v0", "me").address
    with pytest.warns(UserWarning, match=r"hf://me/test/small/one-v0 is not fetched: .* was not fetched by agentzoo"):
        dataset_of(address)
    shutil.rmtree(datasets_root() / "test")
    dataset_of(address)
    recwarn.clear()
    dataset_of(address)
    assert not recwarn
    with pytest.warns(UserWarning, match="was fetched as hf://me/test/small/one-v0 and is used instead"):
        dataset_of("hf://you/test/small/one-v0")
    pushed = push_dataset("test/small/one-v0", "you")
    assert "small/one-v0/origin.txt" not in hub.repos["datasets:you/test"].head
    assert pushed.address == "hf://you/test/small/one-v0"


def test_the_card_of_the_datasets_is_one_commit(hub: Hub, zoo: Path) -> None:
    first = push_card("me")
    assert push_card("me") == first
    assert "`zoo/hopper/medium-v0`" in card_text("me")


def test_a_card_of_somebody_s_own_stays(hub: Hub, zoo: Path) -> None:
    push_card("me")
    repo = hub.repos["datasets:me/zoo"]
    head = repo.commit({"README.md": b"---\nlicense: mit\n---\n\n# Animals\n"})
    with pytest.warns(UserWarning, match="me/zoo has a card without the tag agentzoo; it stays"):
        done = push_card("me")
    assert done == {"repo_id": "me/zoo", "revision": head}
    assert repo.head["README.md"].endswith(b"# Animals\n")
