"""A small zoo of real records, one agent whose records were written by somebody hostile, and its site."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

from agentzoo.errors import HubError
from agentzoo.site.build_site import build_site
from agentzoo.site.live import npm
from agentzoo.site.render import static
from agentzoo.store.files import CONFIG, LOG, RECIPE, RESULTS, SWEEP_PLOT, VIDEO, WEIGHTS
from agentzoo.store.locate import STUDY_PICTURES

ROOT = Path(__file__).resolve().parents[2]
AGENTS = ("dm-hopper-medium", "dt-hopper-medium", "gpt2-dtma-pointmaze-medium", "unimask-doorkey")
HOSTILE = "dt-hostile"
ATTACK = "<img src=x onerror=\"document.title='owned'\"></script><script>document.title='owned'</script>\x1b[31m\u202e"
LONG = "W" * 190
AXE = "axe-core@4.14.1"
AXE_SHA512 = "FHfa+lmNjQZfJz1q8wKqIDwC6DExcHt/pkjNQb09a3NPjCKg2rhu5qb2S4r76ASyFNNtuFooJpZe37OgudVGtQ=="
RECORDS = (CONFIG, RECIPE, RESULTS, LOG, VIDEO, SWEEP_PLOT, *STUDY_PICTURES)


def copy_agent(name: str, folder: Path) -> Path:
    """The records of a staged agent; the site reads no weights, so theirs are an empty file."""
    folder.mkdir(parents=True)
    for file in RECORDS:
        if (ROOT / "hub_cards" / name / file).is_file():
            shutil.copyfile(ROOT / "hub_cards" / name / file, folder / file)
    (folder / WEIGHTS).touch()
    return folder


def spoil(folder: Path, agent_id: str, words: str) -> None:
    """Put `words` wherever a record may hold free text."""
    results: dict[str, Any] = json.loads((folder / RESULTS).read_text())
    results["dataset"]["made_by"] = words
    results["training"]["hardware"] = words
    results["headline"] |= {"agent_id": words, "env": words, "command": words, "versions": {words[:90]: words}}
    study = {"title": words[:190], "columns": [words[:190]] * 2, "rows": [[words[:190]] * 2], "note": words}
    results["studies"] = [study]
    results["baselines"] = [{**results["headline"], "training_seed": 0}]
    (folder / RESULTS).write_text(json.dumps(results))
    for name in (CONFIG, RECIPE):
        tree = json.loads((folder / name).read_text())
        (folder / name).write_text(json.dumps({**tree, "agent_id": agent_id}))
    (folder / VIDEO).write_bytes(b"\0" * 1000)


@pytest.fixture(scope="session")
def small_zoo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    zoo = tmp_path_factory.mktemp("zoo")
    for name in AGENTS:
        copy_agent(name, zoo / name)
    spoil(copy_agent("dt-hopper-medium", zoo / HOSTILE), HOSTILE, ATTACK + LONG)
    return zoo


@pytest.fixture(scope="session")
def site(small_zoo: Path, tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """With documentation, without datasets, as most machines are. Built once for all of pytest's workers."""
    own = tmp_path_factory.getbasetemp()
    shared = own if worker_id == "master" else own.parent
    folder = shared / "site" / "out"
    with FileLock(shared / "site.lock"), pytest.MonkeyPatch.context() as patch:
        if not folder.exists():
            patch.setenv("MINARI_DATASETS_PATH", str(tmp_path_factory.mktemp("data")))
            build_site(folder, small_zoo, docs=True)
    return folder


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    sync_api = pytest.importorskip("playwright.sync_api")
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if found is None:
        pytest.skip("no Chromium here: apt-get install chromium")
    with sync_api.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=found, args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()


def collect_faults(page: Any) -> None:
    """Keep what goes wrong on a page in its `.faults`: errors, and requests that fail."""
    page.faults = []
    page.on("console", lambda said: page.faults.append(said.text) if said.type == "error" else None)
    page.on("pageerror", lambda error: page.faults.append(str(error)))
    page.on("requestfailed", lambda asked: page.faults.extend(_failure(asked)))


def _failure(asked: Any) -> list[str]:
    """The failure of a request. One that the page itself gives up, as an image that gets another source, is none."""
    return [] if asked.failure == "net::ERR_ABORTED" else [f"{asked.failure}: {asked.url}"]


@pytest.fixture(scope="module")
def axe(tmp_path_factory: pytest.TempPathFactory) -> str:
    """axe-core's script, from npm, if it is the one we know."""
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("no npm here to fetch axe-core with")
    folder = tmp_path_factory.mktemp("axe")
    done = subprocess.run([npm, "pack", AXE], cwd=folder, capture_output=True, text=True, timeout=60)
    found = list(folder.glob("*.tgz"))
    if not found:
        pytest.skip(f"npm gave no {AXE}: {done.stderr[-300:]}")
    packed = found[0].read_bytes()
    assert base64.b64encode(hashlib.sha512(packed).digest()).decode() == AXE_SHA512
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        script = archive.extractfile("package/axe.min.js")
        assert script is not None
        return script.read().decode()


def serious_faults(tab: Any, axe: str) -> list[tuple[Any, ...]]:
    """What axe-core finds on the page that is open in `tab`."""
    tab.evaluate(axe)
    found = tab.evaluate("axe.run({resultTypes: ['violations']}).then(found => found.violations)")
    return [
        (one["id"], one["nodes"][0]["html"][:150], one["nodes"][0]["failureSummary"][:200], len(one["nodes"]))
        for one in found
        if one["impact"] in ("serious", "critical")
    ]


@pytest.fixture(scope="session")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder `live/` with our scripts and what npm has."""
    folder = tmp_path_factory.mktemp("live")
    try:
        npm.unpack(folder)
    except HubError as error:
        pytest.skip(f"npm's registry is not reached: {error}")
    for name in ("environments.js", "acting.js"):
        (folder / name).write_text(static(f"live/{name}"))
    return folder
