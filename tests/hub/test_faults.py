"""Everything that goes wrong between here and a Hub: the message says what to do, the cache holds nothing broken."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from huggingface_hub import constants, get_session

from agentzoo.agent import Agent
from agentzoo.errors import ConfigError, HubError
from agentzoo.hub.card import card_text
from agentzoo.hub.listing import remote_agents
from agentzoo.hub.publish import push
from agentzoo.store.downloads import Where, explain, retried
from agentzoo.store.files import sha256
from agentzoo.store.watch import MAX_WAIT, StoppedError, watched
from hub.conftest import REPO, cached_files
from hub.server import TOKEN, Hub


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture
def pushed(hub: Hub, folder: Path) -> Path:
    """A folder that is on the Hub, with nothing in the cache."""
    push(folder, REPO, tag="v1")
    hub.seen.clear()
    return folder


def changed(folder: Path) -> Agent:
    """The agent with other weights."""
    agent = Agent.from_pretrained(folder)
    agent.model.obs_mean.add_(1.0)
    return agent


def mean_of(agent: Agent) -> float:
    return float(agent.model.obs_mean[0])


def is_sound(cache: Path, folder: Path) -> bool:
    """No temporary file, and whatever the cache holds of the agent is byte for byte what was pushed."""
    held = cached_files(cache)
    pushed = {path.name: path.read_bytes() for path in folder.iterdir()}
    pushed["README.md"] = card_text(folder, REPO).encode()  # a pushed card names its repo
    whole = all(data == pushed[name] for name, data in held.items())
    return whole and not list(cache.rglob("*.incomplete"))


def test_a_second_load_needs_no_download_and_the_third_no_network(
    hub: Hub, pushed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Agent.from_pretrained(REPO, revision="v1")
    downloads = hub.count("GET", "/resolve/|/storage/")
    Agent.from_pretrained(REPO, revision="v1")
    assert hub.count("GET", "/resolve/|/storage/") == downloads
    hub.seen.clear()
    Agent.from_pretrained(REPO, revision="v1", local_files_only=True)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    Agent.from_pretrained(REPO, revision="v1", local_files_only=True)
    assert hub.seen == []


def test_what_was_never_fetched_is_not_there_offline(hub: Hub, pushed: Path, cache: Path) -> None:
    with pytest.raises(HubError, match=r"not in the cache, and the Hub was not asked .* Call once with network access"):
        Agent.from_pretrained(REPO, local_files_only=True)
    assert hub.seen == []


@pytest.mark.parametrize("status", [0, 500, 503])
def test_a_hub_that_is_down_is_no_hindrance_to_what_is_cached(hub: Hub, pushed: Path, status: int) -> None:
    Agent.from_pretrained(REPO, revision="v1")
    hub.fail("GET", ".", status)
    hub.fail("HEAD", ".", status)
    if status:
        Agent.from_pretrained(REPO, revision="v1")
    Agent.from_pretrained(REPO, revision="v1", local_files_only=True)


def test_a_moved_tag_brings_the_new_agent(hub: Hub, pushed: Path) -> None:
    assert mean_of(Agent.from_pretrained(REPO, revision="v1")) == 0.0
    old = hub.repos[REPO].tags["v1"]
    changed(pushed).push_to_hub(REPO, replace_measured=True)
    hub.repos[REPO].tags["v1"] = hub.repos[REPO].branches["main"]
    assert mean_of(Agent.from_pretrained(REPO, revision="v1")) == 1.0
    assert mean_of(Agent.from_pretrained(REPO, revision=old)) == 0.0
    assert mean_of(Agent.from_pretrained(REPO, revision="v1", local_files_only=True)) == 1.0


def test_only_the_file_that_changed_is_fetched_again(hub: Hub, pushed: Path) -> None:
    Agent.from_pretrained(REPO)
    card = (pushed / "README.md").read_bytes() + b"\nEdited on the site.\n"
    hub.repos[REPO].commit({**hub.repos[REPO].head, "README.md": card})
    hub.seen.clear()
    Agent.from_pretrained(REPO)
    assert hub.count("GET", "/resolve/|/storage/") == 1
    assert hub.count("GET", "README.md") == 1


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "train_config.json"])
def test_content_that_is_not_what_its_etag_says_is_dropped(hub: Hub, pushed: Path, cache: Path, name: str) -> None:
    """Same size, other bytes: the client alone would keep it."""
    hub.corrupt = lambda path, data: data[:-2] + bytes([data[-2] ^ 1]) + data[-1:] if path == name else data
    with pytest.raises(HubError, match=rf"{name} has another hash than the Hub announced .* Call again"):
        Agent.from_pretrained(REPO)
    assert name not in cached_files(cache)
    assert is_sound(cache, pushed)
    hub.corrupt = lambda _, data: data
    assert mean_of(Agent.from_pretrained(REPO)) == 0.0


def test_a_cache_that_rotted_is_noticed_even_offline(hub: Hub, pushed: Path, cache: Path) -> None:
    Agent.from_pretrained(REPO)
    pointer = next(cache.rglob("snapshots/*/model.safetensors"))
    blob = pointer.resolve()
    blob.chmod(0o644)
    blob.write_bytes(b"x" + blob.read_bytes()[1:])
    with pytest.raises(HubError, match=r"deleted from the cache. Call again"):
        Agent.from_pretrained(REPO, local_files_only=True)
    Agent.from_pretrained(REPO)
    assert is_sound(cache, pushed)


@pytest.mark.parametrize(
    ("token", "words"),
    [
        (False, r"answered 401: there is no repo tests/dt-test, or it is private .* set HF_TOKEN"),
        ("hf_wrong", r"answered 401: it does not accept your token. Log in"),
    ],
)
def test_a_401_explains_the_token(hub: Hub, pushed: Path, cache: Path, token: str | bool, words: str) -> None:
    hub.repos[REPO].private = True
    with pytest.raises(HubError, match=words) as caught:
        Agent.from_pretrained(REPO, token=token)
    assert "hf_wrong" not in str(caught.value)
    assert cached_files(cache) == {}
    assert mean_of(Agent.from_pretrained(REPO, token=TOKEN)) == 0.0


def test_a_401_without_a_login_means_that_the_repo_does_not_exist() -> None:
    """The real Hub answers 401 to a repo that is not there where nobody is logged in; its client knows."""
    from huggingface_hub.errors import RepositoryNotFoundError
    from huggingface_hub.utils import _http as client
    from huggingface_hub.utils import hf_raise_for_status

    http: Any = next(module for name, module in vars(client).items() if name.startswith("httpx"))
    request = http.Request("GET", "https://huggingface.co/api/models/tests/nothing")
    headers = {"X-Error-Message": "Invalid username or password."}
    with pytest.raises(RepositoryNotFoundError) as caught:
        hf_raise_for_status(http.Response(401, request=request, headers=headers))
    assert "answered 401: there is no repo tests/nothing" in explain(caught.value, Where("tests/nothing"))


def test_a_gated_repo_says_whom_to_ask(hub: Hub, pushed: Path, cache: Path) -> None:
    hub.repos[REPO].gated = True
    with pytest.raises(HubError, match=r"access needs the owner's permission"):
        Agent.from_pretrained(REPO, token=False)
    assert cached_files(cache) == {}


def test_404_of_a_repo_a_revision_and_a_file(hub: Hub, pushed: Path, cache: Path) -> None:
    with pytest.raises(
        HubError,
        match=r"there is no folder .* here; as a Hub repo: .* answered 404: there is no repo tests/nothing",
    ):
        Agent.from_pretrained("tests/nothing")
    with pytest.raises(HubError, match=r"tests/dt-test has no branch, tag or commit 'v9'"):
        Agent.from_pretrained(REPO, revision="v9")
    with pytest.raises(HubError, match=r"no branch, tag or commit|there is no repo|could not be fetched"):
        Agent.from_pretrained(REPO, revision="0" * 40)
    assert cached_files(cache) == {}


class Refused(OSError):
    """As the client raises it, with the Hub's answer."""

    def __init__(self, status: int) -> None:
        super().__init__(f"answered {status}")
        self.response = SimpleNamespace(status_code=status, headers={})


@pytest.mark.parametrize(
    ("status", "waited"), [*((busy, [1.0, 2.0]) for busy in (408, 429, 500, 502, 503, 504)), (401, []), (404, [])]
)
def test_a_busy_hub_is_asked_three_times_and_waited_for_longer(
    status: int, waited: list[float], waits: list[float]
) -> None:
    def ask() -> None:
        raise Refused(status)

    with pytest.raises(Refused):
        retried(ask)
    assert waits == waited


@pytest.mark.parametrize("path", ["/api/models/", "/tree/", "/resolve/", "/storage/"])
def test_429_waits_as_long_as_it_is_asked_to(hub: Hub, pushed: Path, waits: list[float], path: str) -> None:
    for method in ("GET", "HEAD"):
        hub.fail(method, path, 429, headers={"Retry-After": "7"}, times=1)
    assert mean_of(Agent.from_pretrained(REPO)) == 0.0
    assert any(7 <= wait <= 8 for wait in waits)


LONG = ({"Retry-After": "3600"}, {"RateLimit": '"api";r=0;t=3600', "Retry-After": "1"})


@pytest.mark.parametrize("headers", LONG)
@pytest.mark.parametrize("path", ["/api/models/", "/resolve/"])
def test_429_that_asks_for_too_long_is_reported(
    hub: Hub, pushed: Path, waits: list[float], cache: Path, path: str, headers: dict[str, str]
) -> None:
    for method in ("GET", "HEAD"):
        hub.fail(method, path, 429, headers=headers)
    with pytest.raises(HubError, match=r"too many requests. Call again in 3600 seconds"):
        Agent.from_pretrained(REPO)
    assert waits == []
    assert cached_files(cache) == {}
    if path == "/api/models/":
        with pytest.raises(HubError, match=r"Call again in 3600 seconds"):
            push(pushed, REPO)


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize("headers", LONG)
def test_a_cached_agent_loads_while_the_hub_is_busy(
    hub: Hub, pushed: Path, waits: list[float], status: int, headers: dict[str, str]
) -> None:
    Agent.from_pretrained(REPO)
    hub.fail("GET", "/api/models/", status, headers=headers)
    assert mean_of(Agent.from_pretrained(REPO)) == 0.0
    assert sum(waits) <= MAX_WAIT


def test_a_request_that_is_left_needs_no_long_wait(hub: Hub, pushed: Path, waits: list[float]) -> None:
    hub.fail("GET", "/api/models/", 429, headers={"RateLimit": '"api";r=4;t=3600'}, times=1)
    assert mean_of(Agent.from_pretrained(REPO)) == 0.0
    assert sum(waits) <= 2


@pytest.mark.parametrize("path", ["/api/models/", "/tree/", "/resolve/", "/storage/"])
@pytest.mark.parametrize("status", [500, 502, 503])
def test_a_500_and_then_success(hub: Hub, pushed: Path, path: str, status: int) -> None:
    for method in ("GET", "HEAD"):
        hub.fail(method, path, status, times=1)
    assert mean_of(Agent.from_pretrained(REPO)) == 0.0


def test_a_500_that_stays_is_reported(hub: Hub, pushed: Path, cache: Path, waits: list[float]) -> None:
    hub.fail("GET", "/storage/", 500)
    with pytest.raises(HubError, match=r"answered 500: a server error. Call again later"):
        Agent.from_pretrained(REPO)
    assert "model.safetensors" not in cached_files(cache)
    assert is_sound(cache, pushed)
    hub.faults.clear()
    assert mean_of(Agent.from_pretrained(REPO)) == 0.0
    hub.fail("GET", "/api/models", 500)
    with pytest.raises(HubError, match="answered 500"):
        remote_agents()


@pytest.mark.parametrize("share", [0.25, 0.5])
def test_a_connection_cut_in_the_middle_of_the_weights_goes_on_there(
    hub: Hub, pushed: Path, share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(constants, "DOWNLOAD_CHUNK_SIZE", 1_000)  # by default 10 MB, and parts of one are dropped
    size = (pushed / "model.safetensors").stat().st_size
    hub.fail("GET", r"/storage/.*model.safetensors", after=int(size * share), times=2)
    assert mean_of(Agent.from_pretrained(REPO)) == 0.0
    ranges = [headers.get("range", headers.get("Range")) for _, path, headers in hub.seen if "/storage/" in path]
    assert any(value and value != "bytes=0-" for value in ranges)


def test_a_connection_that_is_always_cut_leaves_no_part_behind(hub: Hub, pushed: Path, cache: Path) -> None:
    hub.fail("GET", r"/storage/.*model.safetensors")  # no byte ever
    with pytest.raises(HubError, match=r"The connection broke several times. Call again"):
        Agent.from_pretrained(REPO)
    assert "model.safetensors" not in cached_files(cache)
    assert is_sound(cache, pushed)
    with pytest.raises(HubError, match=r"holds only a part of it"):
        Agent.from_pretrained(REPO, local_files_only=True)
    hub.faults.clear()
    assert mean_of(Agent.from_pretrained(REPO)) == 0.0
    assert sha256(next(cache.rglob("snapshots/*/model.safetensors"))) == sha256(pushed / "model.safetensors")


def test_a_server_that_announces_more_than_it_sends(hub: Hub, pushed: Path, cache: Path) -> None:
    hub.corrupt = lambda path, data: data[:-100] if path == "model.safetensors" else data
    with pytest.raises(HubError, match=r"The connection broke several times"):
        Agent.from_pretrained(REPO)
    assert is_sound(cache, pushed)


def test_a_hub_without_a_connection_is_an_error_that_names_it(
    hub: Hub, pushed: Path, monkeypatch: pytest.MonkeyPatch, cache: Path
) -> None:
    nowhere = "http://127.0.0.1:9"  # the discard port: nothing listens
    monkeypatch.setattr(constants, "ENDPOINT", nowhere)
    with pytest.raises(HubError, match=rf"No connection to {nowhere}. Check the network and HF_ENDPOINT"):
        Agent.from_pretrained(REPO)
    with pytest.raises(HubError, match=r"No connection to .* Nothing was uploaded"):
        push(pushed, REPO)
    assert not cache.exists() or cached_files(cache) == {}


@pytest.mark.parametrize("revision", ["../../../../tmp/x", "", "a//b", "-x", "a\nb", "a..b", "x" * 300, "refs/../../y"])
def test_revisions_that_are_paths_never_reach_the_cache(hub: Hub, pushed: Path, tmp_path: Path, revision: str) -> None:
    with pytest.raises(ConfigError, match="is not a branch, tag or commit"):
        Agent.from_pretrained(REPO, revision=revision)
    assert not (tmp_path / "cache").exists()
    assert hub.seen == []


def test_force_download_asks_again(hub: Hub, pushed: Path) -> None:
    Agent.from_pretrained(REPO)
    hub.seen.clear()
    observations = np.zeros((1, 3), dtype=np.float32)
    forced = Agent.from_pretrained(REPO, force_download=True)
    assert hub.count("GET", "/storage/") == 1
    assert np.array_equal(forced.predict(observations)[0], Agent.from_pretrained(pushed).predict(observations)[0])


@pytest.mark.parametrize(("status", "message"), [(403, "does not allow this"), (404, "no repo"), (500, "server error")])
def test_a_forced_download_never_returns_an_older_copy(
    hub: Hub, pushed: Path, waits: list[float], status: int, message: str
) -> None:
    Agent.from_pretrained(REPO)
    changed(pushed).push_to_hub(REPO, replace_measured=True)
    hub.fail("GET", "/api/models/", status)
    assert mean_of(Agent.from_pretrained(REPO)) == 0.0  # the client's cache
    with pytest.raises(HubError, match=message):
        Agent.from_pretrained(REPO, force_download=True)
    hub.faults.clear()
    hub.fail("GET", f"/api/models/{REPO}/revision/", status)  # the second request of a forced download
    with pytest.raises(HubError, match=r"the client found .*Call again"):
        Agent.from_pretrained(REPO, force_download=True)
    hub.faults.clear()
    assert mean_of(Agent.from_pretrained(REPO, force_download=True)) == 1.0


def test_two_threads_that_ask_the_same_do_not_count_as_a_retry(hub: Hub, pushed: Path) -> None:
    """The second asks while the first waits for its answer; only one thread that asks again has no connection."""
    url, found = f"{hub.url}/api/models/{REPO}", []

    def ask() -> None:
        with watched():
            found.append(get_session().get(url).status_code)

    with watched() as first:
        first.requests[f"GET {url}"] = 1  # asked, not answered yet
        thread = threading.Thread(target=ask)
        thread.start()
        thread.join()
        assert found == [200]
        first.answers = 0
        with pytest.raises(StoppedError, match="no connection to"):
            get_session().get(url)
