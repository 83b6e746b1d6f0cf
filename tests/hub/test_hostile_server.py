"""A server that is hostile or silent: nothing is written outside the cache, no token is shown, no wait is endless."""

from __future__ import annotations

import gzip
import logging
import sys
import time
import traceback
import types
from collections.abc import Callable
from pathlib import Path

import pytest
from huggingface_hub import constants, get_session

from agentzoo.agent import Agent
from agentzoo.errors import ConfigError, HubError
from agentzoo.hub.listing import remote_agents
from agentzoo.hub.publish import push
from agentzoo.store import access_tokens, watch
from hub.conftest import REPO
from hub.server import TOKEN, Hub

SECRET = "hf_very_secret_0123456789"


@pytest.fixture
def pushed(hub: Hub, folder: Path) -> Path:
    push(folder, REPO)
    hub.seen.clear()
    return folder


def files_of(place: Path) -> set[Path]:
    return {path for path in place.rglob("*") if path.is_file()}


# -- names that a server sends -------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["etag", "commit_header", "sha"])
@pytest.mark.parametrize("name", ["../../../../outside", "{tmp}/outside", "..", "a/b", "a\\..\\b", "x" * 300, "a b"])
def test_names_that_are_paths_are_refused_before_anything_is_written(
    kind: str, name: str, hub: Hub, pushed: Path, tmp_path: Path
) -> None:
    before = files_of(tmp_path)
    setattr(hub, kind, name.format(tmp=tmp_path))
    with pytest.raises(HubError, match=r"The server (sends|names) .* Nothing was written"):
        Agent.from_pretrained(REPO)
    new = files_of(tmp_path) - before
    assert all(path.is_relative_to(tmp_path / "cache" / "models--tests--dt-test") for path in new)
    assert not any("outside" in path.name for path in new)
    setattr(hub, kind, None)
    Agent.from_pretrained(REPO)


@pytest.mark.parametrize("headers", [{}, {"content-encoding": "gzip"}])
def test_an_answer_without_an_end_is_read_up_to_a_limit(headers: dict[str, str], hub: Hub, pushed: Path) -> None:
    """Neither has a length: one comes in parts, the other is a thousand times as long as what was sent."""
    body = b'{"sha": "a"}' + b" " * (2 * watch.MAX_JSON)
    parts = [gzip.compress(body)] if headers else (body[i : i + 65_536] for i in range(0, len(body), 65_536))
    library = sys.modules[type(get_session()).__module__.partition(".")[0]]  # httpx or its successor
    request = library.Request("GET", f"{hub.url}/api/models/{REPO}")
    answer = library.Response(200, headers=headers, content=iter(parts), request=request)
    with pytest.raises(watch.StoppedError, match="has more than 16,777,216 bytes"):
        watch._check_names(answer)
    small = library.Response(200, content=iter([b'{"sha": ', b'"a"}']), request=request)
    watch._check_names(small)
    assert small.json() == {"sha": "a"}


def test_the_client_alone_would_write_there(
    hub: Hub, pushed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that the test above is about something: when this fails, the client checks ETags and we may relax."""
    from huggingface_hub import hf_hub_download

    hub.etag = str(tmp_path / "outside")
    hf_hub_download(REPO, "config.json", cache_dir=tmp_path / "other")
    assert (tmp_path / "outside").is_file()


def test_a_redirect_is_called_one(hub: Hub, pushed: Path) -> None:
    hub.redirect = f"{hub.url.replace('127.0.0.1', 'localhost')}/nothing"
    with pytest.raises(HubError, match=r"redirect.* Set HF_ENDPOINT to the address of the Hub itself"):
        Agent.from_pretrained(REPO)


# -- tokens --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "token", [f"{SECRET}\nX-Evil: 1", f"{SECRET}\x00", f"{SECRET} more", "hf_sécret_0123456", "", "  "]
)
@pytest.mark.parametrize("stored", [False, True])
def test_a_token_that_cannot_be_one_is_refused_and_not_shown(
    token: str, stored: bool, hub: Hub, pushed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if stored:
        if "\x00" in token or not token.strip():
            return  # no variable holds that, or none is set
        monkeypatch.setenv("HF_TOKEN", token)
    calls: list[Callable[[], object]] = [
        lambda: Agent.from_pretrained(REPO, token=None if stored else token),
        lambda: push(pushed, REPO, token=None if stored else token),
        lambda: remote_agents(token=None if stored else token),
    ]
    for call in calls:
        with pytest.raises(ConfigError, match=r"token.* (is empty|is not allowed in a token)") as caught:
            call()
        said = "".join(traceback.format_exception(caught.value))
        assert "secret" not in said
        assert "sécret" not in said
    assert hub.seen == []


def test_space_around_a_token_does_no_harm(hub: Hub, pushed: Path) -> None:
    hub.repos[REPO].private = True
    Agent.from_pretrained(REPO, token=f" {TOKEN}\n")


def test_a_server_that_repeats_the_token_does_not_show_it(
    hub: Hub, pushed: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    hub.echo = True
    calls: list[Callable[[], object]] = [
        lambda: Agent.from_pretrained(REPO, token=SECRET),
        lambda: push(pushed, REPO, token=SECRET),
    ]
    with caplog.at_level(logging.DEBUG):
        for call in calls:
            with pytest.raises(HubError) as caught:
                call()
            assert SECRET not in "".join(traceback.format_exception(caught.value))
            error: BaseException | None = caught.value
            while error is not None:
                assert SECRET not in f"{error!r} {vars(error)}"
                error = error.__cause__ or error.__context__
    assert caplog.records
    assert SECRET not in caplog.text
    assert not any(SECRET in str(vars(record)) for record in caplog.records)
    assert SECRET not in "".join(capfd.readouterr())


def test_a_token_is_cut_out_of_tracebacks_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    with access_tokens.silenced((SECRET,)):
        try:
            raise ValueError(f"header {SECRET}")
        except ValueError:
            logging.getLogger("huggingface_hub.file_download").exception("failed with %s", SECRET)
    assert SECRET not in caplog.text
    assert "ValueError: header <token>" in caplog.text


# -- limits --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["silent", "a byte at a time"])
@pytest.mark.parametrize("cached", [False, True])
def test_a_call_without_progress_ends(
    kind: str, cached: bool, hub: Hub, pushed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if cached:
        Agent.from_pretrained(REPO)
        hub.repos[REPO].commit({**hub.repos[REPO].head, "README.md": b"new"})
    monkeypatch.setenv(watch.LIMIT_VARIABLE, "1.5")
    if kind == "silent":
        hub.silent.clear()
    else:
        hub.drip = 0.05
    began = time.monotonic()
    try:
        if cached and kind == "silent":
            Agent.from_pretrained(REPO)  # as with any Hub that is down
        elif not cached:
            with pytest.raises(HubError, match=r"No progress in 1.5 seconds|broke several times|No connection"):
                Agent.from_pretrained(REPO)
    finally:
        hub.silent.set()
    assert time.monotonic() - began < 6.0


def test_xet_which_no_limit_reaches_is_off_while_we_call(
    hub: Hub, pushed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client alone would ask for it; what the user set stays for everything else."""
    from huggingface_hub import hf_hub_download

    hub.xet = True
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", False)
    Agent.from_pretrained(REPO)
    push(pushed, "tests/dt-other")
    assert hub.count("GET", "xet") == 0
    assert constants.HF_HUB_DISABLE_XET is False
    with pytest.raises(Exception, match="xet"):
        hf_hub_download(REPO, "model.safetensors", cache_dir=tmp_path / "other")
    assert hub.count("GET", "/xet-token") > 0


def test_a_push_to_a_silent_server_ends(hub: Hub, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(watch.LIMIT_VARIABLE, "1")
    monkeypatch.setattr("agentzoo.hub.publish.SHORT", 1.0)
    hub.silent.clear()
    began = time.monotonic()
    try:
        with pytest.raises(HubError, match="was not pushed"):
            push(folder, REPO)
    finally:
        hub.silent.set()
    assert time.monotonic() - began < 6.0


def test_each_retry_is_a_line(hub: Hub, pushed: Path, caplog: pytest.LogCaptureFixture) -> None:
    hub.fail("GET", "/api/models/", 503, times=2)
    Agent.from_pretrained(REPO)
    lines = [record.getMessage() for record in caplog.records if record.name == "agentzoo.hub"]
    assert lines == [
        "the Hub answered 503; trying again in 1 seconds, attempt 2 of 3",
        "the Hub answered 503; trying again in 2 seconds, attempt 3 of 3",
    ]
    hub.fail("GET", "/storage/", after=100, times=1)
    Agent.from_pretrained(REPO, force_download=True)
    assert any("asking the Hub again, try 2: GET" in record.getMessage() for record in caplog.records)


def test_an_unknown_id_without_a_network_is_answered_at_once(
    monkeypatch: pytest.MonkeyPatch, hub: Hub, tmp_path: Path
) -> None:
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")  # nothing listens
    began = time.monotonic()
    with pytest.raises(HubError, match=r"No connection to http://127\.0\.0\.1:9"):
        Agent.from_pretrained("tests/nothing")
    assert time.monotonic() - began < 4.0


def test_a_request_waits_three_seconds_for_a_connection_and_no_longer_than_the_limit_for_an_answer() -> None:
    """The client sets none of these."""
    asked = types.SimpleNamespace(method="GET", url="http://host/x", extensions={"timeout": {"read": None}})
    watch.Watch(300.0).request(asked)
    limits = asked.extensions["timeout"]
    assert limits["connect"] == 3.0
    assert 299.0 < limits["read"] <= 300.0


@pytest.mark.parametrize(("given", "waits"), [("20", 20.0), ("1", 3.0), ("soon", 3.0)])
def test_a_user_behind_a_slow_network_gives_a_connection_longer(
    given: str, waits: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_ETAG_TIMEOUT", given)
    asked = types.SimpleNamespace(method="GET", url="http://host/x", extensions={})
    watch.Watch(300.0).request(asked)
    assert asked.extensions["timeout"]["connect"] == waits


@pytest.mark.parametrize("text", ["", "soon", "0", "-1", "nan"])
def test_a_malformed_time_limit_is_refused(text: str, hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(watch.LIMIT_VARIABLE, text)
    with pytest.raises(ConfigError, match="it takes seconds"):
        Agent.from_pretrained(REPO)
