"""Publishing with the real client: a push is one commit, whole or not at all, and loads by branch, tag and commit."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import make_agent
from huggingface_hub import HfApi

from agentzoo.agent import Agent
from agentzoo.errors import CheckpointError, ConfigError, HubError
from agentzoo.hub.card import card_text, write_card
from agentzoo.hub.listing import remote_agents
from agentzoo.hub.publish import pull, push
from agentzoo.store.locate import find_agent
from hub.cases import same_actions
from hub.conftest import REPO, edit
from hub.server import READ_TOKEN, TOKEN, Hub


def test_push_then_load_by_branch_tag_and_commit(hub: Hub, folder: Path) -> None:
    first = push(folder, REPO, tag="v1")
    assert first.files == (
        "config.json",
        "model.safetensors",
        "train_config.json",
        "results.json",
        "README.md",
        "training_log.csv",
    )
    assert hub.repos[REPO].tags == {"v1": first.commit}
    assert len(hub.repos[REPO].commits) == 2  # the one of the creation, and one for the push
    for revision in (None, "main", "v1", first.commit):
        loaded = Agent.from_pretrained(REPO, revision=revision)
        assert same_actions(loaded, Agent.from_pretrained(folder))
    assert loaded.recipe == Agent.from_pretrained(folder).recipe


def test_the_index_sends_an_id_to_its_repo(
    hub: Hub, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = push(folder, "someone/else", tag="v1")
    push(folder, "someone/az-dt-test")
    for index in (
        {"agents": {"dt-test": {"repo_id": "someone/else", "revision": done.commit}}},
        {"default": "someone/az-{agent_id}"},
    ):
        (tmp_path / "index.json").write_text(json.dumps(index))
        monkeypatch.setenv("AGENTZOO_INDEX", str(tmp_path / "index.json"))
        assert same_actions(Agent.from_pretrained("zoo/dt-test"), Agent.from_pretrained(folder))


@pytest.mark.parametrize("call", [find_agent, pull])
def test_a_revision_that_is_asked_for_comes_before_the_indexs(
    call: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Asked(Exception):
        pass

    seen: dict[str, Any] = {}

    def fetch(repo_id: str, files: tuple[str, ...], **options: Any) -> Path:
        seen.update(options, repo_id=repo_id)
        raise Asked

    for module in ("store.locate", "hub.publish"):
        monkeypatch.setattr(f"agentzoo.{module}.fetch", fetch)
    index = tmp_path / "index.json"
    index.write_text(json.dumps({"agents": {"x": {"repo_id": "org/x", "revision": "abc"}}}))
    monkeypatch.setenv("AGENTZOO_INDEX", str(index))
    options: dict[str, Any] = {"token": "t", "cache_dir": tmp_path, "local_files_only": True}
    for revision, wanted in (("v2", "v2"), (None, "abc")):
        with pytest.raises(Asked):
            call("zoo/x", revision=revision, **options)
        expected = {**options, "repo_id": "org/x", "revision": wanted}
        assert {name: seen[name] for name in expected} == expected


def test_tokens_stay_on_the_hub(hub: Hub, folder: Path) -> None:
    """Storage is another host: the client must not take its token there."""
    push(folder, REPO)
    Agent.from_pretrained(REPO)
    storage = [headers for method, path, headers in hub.seen if path.startswith("/storage/") and method == "GET"]
    assert storage
    assert not any("authorization" in {name.lower() for name in headers} for headers in storage)


def test_what_is_asked_of_a_push_and_a_list_reaches_the_hub(
    hub: Hub, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: dict[str, dict[str, Any]] = {}

    def watch(name: str) -> None:
        asked = getattr(HfApi, name)

        def call(self: HfApi, *args: Any, **options: Any) -> Any:
            seen[name] = options
            return asked(self, *args, **options)

        monkeypatch.setattr(HfApi, name, call)

    for name in ("create_commit", "create_tag", "list_models"):
        watch(name)
    done = push(folder, REPO, commit_message="why", branch="main", tag="v1")
    remote_agents(limit=3)
    commit, tag = seen["create_commit"], seen["create_tag"]
    assert (commit["commit_message"], commit["revision"]) == ("why", "main")
    assert (tag["tag"], tag["revision"]) == ("v1", done.commit)
    assert seen["list_models"]["limit"] == 3


def test_the_same_push_again_makes_no_commit(hub: Hub, folder: Path) -> None:
    first = push(folder, REPO)
    assert push(folder, REPO).commit == first.commit
    assert len(hub.repos[REPO].commits) == 2


def test_a_second_push_is_one_commit_that_also_deletes(hub: Hub, folder: Path) -> None:
    push(folder, REPO)
    (folder / "training_log.csv").unlink()
    (folder / "results.json").unlink()
    (folder / "README.md").write_text(card_text(folder))
    (folder / "notes.txt").write_text("mine")
    done = push(folder, REPO)
    assert len(hub.repos[REPO].commits) == 3
    assert done.left_out == ("notes.txt",)
    names = {".gitattributes", "README.md", "config.json", "model.safetensors", "train_config.json"}
    assert set(hub.repos[REPO].head) == names


def test_a_folder_that_is_replaced_during_a_push_goes_up_as_it_was_checked(hub: Hub, folder: Path) -> None:
    """`hub seeds` or `hub remeasure` may end while the Hub is asked."""
    was = {path.name: path.read_bytes() for path in folder.iterdir()}

    def replaced(said: str) -> None:
        if said.startswith("checking"):
            (folder / "model.safetensors").write_bytes(b"others")
            (folder / "training_log.csv").unlink()

    push(folder, REPO, on_progress=replaced)
    there = hub.repos[REPO].head
    assert there["model.safetensors"] == was["model.safetensors"]
    assert there["training_log.csv"] == was["training_log.csv"]


def test_push_to_hub_of_an_agent_in_memory(hub: Hub) -> None:
    agent = make_agent()
    url = agent.push_to_hub(REPO, private=True, tag="v1")
    assert url.startswith(f"{hub.url}/{REPO}/commit/")
    assert hub.repos[REPO].private
    assert "Nothing has been measured yet" in hub.repos[REPO].head["README.md"].decode()
    assert same_actions(Agent.from_pretrained(REPO, token=TOKEN), agent)
    agent.recipe = None
    with pytest.raises(ConfigError, match="has no recipe"):
        agent.push_to_hub(REPO)


def test_push_to_hub_deletes_no_measurements_unasked(hub: Hub, folder: Path) -> None:
    done = push(folder, REPO)
    agent = Agent.from_pretrained(REPO)
    with pytest.raises(ConfigError, match=r"holds measurements \(results.json\).*replace_measured=True"):
        agent.push_to_hub(REPO)
    assert hub.repos[REPO].branches["main"] == done.commit
    agent.push_to_hub(REPO, replace_measured=True)
    assert "results.json" not in hub.repos[REPO].head


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("POST", "/api/repos/create", 0),
        ("GET", "/tree/", 0),
        ("POST", "/preupload/", 0),
        ("POST", "/objects/batch", 0),
        ("PUT", "/storage/", 0),
        ("PUT", "/storage/", 500),
        ("POST", "/commit/", 0),
        ("POST", "/commit/", 500),
    ],
)
def test_a_push_that_breaks_off_leaves_the_remote_as_it_was(
    hub: Hub, folder: Path, method: str, path: str, status: int
) -> None:
    push(folder, REPO)
    before = dict(hub.repos[REPO].branches), dict(hub.repos[REPO].head)
    agent = Agent.from_pretrained(folder)
    agent.model.obs_mean.add_(1.0)
    hub.fail(method, path, status)
    with pytest.raises(HubError, match=r"was not pushed to tests/dt-test: .*(broke several times|a server error)"):
        agent.push_to_hub(REPO, replace_measured=True)
    assert (hub.repos[REPO].branches, hub.repos[REPO].head) == before
    hub.faults.clear()
    agent.push_to_hub(REPO, replace_measured=True)
    assert same_actions(Agent.from_pretrained(REPO), agent)


def test_a_push_onto_someone_elses_change_is_refused(hub: Hub, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    push(folder, REPO)
    upload = HfApi.preupload_lfs_files

    def meanwhile(*args: object, **kwargs: object) -> None:
        hub.repos[REPO].commit({**hub.repos[REPO].head, "theirs.txt": b"x"})
        upload(*args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(HfApi, "preupload_lfs_files", meanwhile)
    agent = Agent.from_pretrained(folder)
    agent.model.obs_mean.add_(1.0)
    with pytest.raises(HubError, match="tests/dt-test has changed in the meantime"):
        agent.push_to_hub(REPO, replace_measured=True)
    assert "theirs.txt" in hub.repos[REPO].head


@pytest.mark.parametrize(
    ("token", "words"),
    [(READ_TOKEN, "403: your token does not allow this"), ("hf_wrong", "401: it does not accept your token")],
)
def test_a_push_that_the_token_does_not_allow_uploads_nothing(hub: Hub, folder: Path, token: str, words: str) -> None:
    with pytest.raises(HubError, match=words) as caught:
        push(folder, REPO, token=token)
    assert token not in str(caught.value)
    assert hub.repos == {}


def test_a_tag_that_exists_is_not_moved(hub: Hub, folder: Path) -> None:
    first = push(folder, REPO, tag="v1")
    agent = Agent.from_pretrained(folder)
    agent.model.obs_mean.add_(1.0)
    with pytest.raises(HubError, match=r"was pushed to .* but not tagged 'v1'"):
        agent.push_to_hub(REPO, tag="v1", replace_measured=True)
    assert hub.repos[REPO].tags == {"v1": first.commit}


def spoil(folder: Path, name: str, text: str) -> None:
    (folder / name).write_text(text)


def test_only_sound_folders_are_pushed(hub: Hub, folder: Path) -> None:
    card = (folder / "README.md").read_text()
    spoil(folder, "README.md", card.replace("84", "99") + "It is the best.\n")
    with pytest.raises(CheckpointError, match="does not match the records beside it; `agentzoo hub card"):
        push(folder, REPO)
    spoil(folder, "README.md", card)
    results = (folder / "results.json").read_text()
    spoil(folder, "results.json", results.replace(json.loads(results)["headline"]["weights_sha256"], "0" * 64))
    with pytest.raises(CheckpointError, match="measured on other weights"):
        push(folder, REPO)
    edit(folder, "results.json", headline__weights_sha256=None)  # nobody can say which
    with pytest.raises(CheckpointError, match="measured on other weights"):
        push(folder, REPO)
    spoil(folder, "results.json", results)
    edit(folder, "train_config.json", agent_id="other")
    with pytest.raises(CheckpointError, match="the config is for dt-test, the recipe for other"):
        push(folder, REPO)
    (folder / "train_config.json").unlink()
    with pytest.raises(CheckpointError, match="lacks train_config"):
        push(folder, REPO)
    for repo_id in ("one", "a/b/c", "../x/y", "a--b/c", "a/.."):
        with pytest.raises(ConfigError, match="not a repo id"):
            push(folder, repo_id)
    assert hub.seen == []


def test_the_same_tag_again_is_no_fault_and_another_commit_does_not_get_it(hub: Hub, folder: Path) -> None:
    first = push(folder, REPO, tag="v1")
    assert push(folder, REPO, tag="v1").commit == first.commit
    edit(folder, "results.json", training__hardware="another machine")
    write_card(folder)
    with pytest.raises(HubError, match=rf"not tagged 'v1': that tag points to {first.commit}; choose another\."):
        push(folder, REPO, tag="v1")
    assert hub.repos[REPO].tags["v1"] == first.commit != hub.repos[REPO].branches["main"]
