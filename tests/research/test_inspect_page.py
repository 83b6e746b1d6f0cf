"""The page that `agentzoo research inspect --report` writes, opened in a real browser, too."""

from __future__ import annotations

import base64
import html
import json
import os
import re
import shutil
import subprocess
import sys
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import make_agent
from PIL import Image
from typer.testing import CliRunner

from agentzoo.agent import Agent
from agentzoo.cli import app
from agentzoo.errors import ConfigError, StorageError
from agentzoo.research.analysis import markov_report
from agentzoo.research.analysis.inspection import inspect, inspect_agent
from agentzoo.research.analysis.inspection_page import page_of, write_page
from agentzoo.research.analysis.inspection_tables import tables_of
from research.inspect_cases import FEW, NETWORKS, agent_in, run


@pytest.mark.parametrize("suffix", [".png", ".svg", ".pdf"])
def test_a_picture_holds_every_part(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"new{suffix}"
    assert str(path.name) in run(agent_in(tmp_path), "-n", 1, "--picture", path).replace("\n", "")
    if suffix == ".svg":
        text = path.read_text()
        for title in ("Markov ratio", "Head importance", "Gates of layer 0", "head 3 -->", "layer 1 -->"):
            assert f"<!-- {title}" in text
    elif suffix == ".png":
        assert is_drawn(Image.open(path))


def test_a_picture_of_another_kind_is_refused(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["research", "inspect", str(agent_in(tmp_path)), "-n", "1", "--picture", "a.bmp"])
    assert isinstance(result.exception, ConfigError)
    assert ".png, .pdf or .svg" in str(result.exception)


def test_random_weights_are_never_shown_as_the_agents(tmp_path: Path) -> None:
    page = page_of(inspect(str(agent_in(tmp_path)), FEW._replace(random=True)))
    assert "<title>dt-test (random weights) inspected</title>" in page
    assert "<h1>dt-test (random weights) inspected</h1>" in page
    assert "<p>dt-test (random weights) has " in page


def test_a_report_does_not_replace_a_file(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("mine")
    asked = ["research", "inspect", str(agent_in(tmp_path)), "-n", "1", "--report", str(tmp_path / "taken")]
    result = CliRunner().invoke(app, asked)
    assert isinstance(result.exception, StorageError)
    assert (tmp_path / "taken").read_text() == "mine"


# -- the page ----------------------------------------------------------------------------------------------------------


def is_drawn(image: Image.Image) -> bool:
    """Not blank: many shades, and neither nearly all white nor nearly all of one colour."""
    pixels = np.asarray(image.convert("L"), dtype=float)
    return len(np.unique(pixels)) > 20 and float(pixels.std()) > 10 and 0.01 < float((pixels < 200).mean()) < 0.95


def test_a_blank_picture_does_not_count_as_drawn() -> None:
    assert not is_drawn(Image.new("RGB", (300, 200), "white"))
    assert not is_drawn(Image.new("RGB", (300, 200), "navy"))


def page(folder: Path) -> Path:
    agent = Agent.from_pretrained(agent_in(folder))
    with torch.no_grad():
        for name, parameter in agent.model.named_parameters():
            if ".gate." in name:
                parameter.normal_(std=0.3)
    return write_page(inspect_agent(agent, FEW), folder / "report")


def test_a_page_needs_nothing_but_itself(tmp_path: Path) -> None:
    path = page(tmp_path)
    text = path.read_text()
    assert sorted(path.parent.iterdir()) == [path]
    assert not re.search(r"https?://|<script|<link|src=\"(?!data:image/png;base64,)", text)
    found = re.findall(r'<img id="(\w+)"[^>]*src="data:image/png;base64,([^"]+)"', text)
    assert [name for name, _ in found] == ["markov", "importance", "gates", "maps"]
    for _, data in found:
        assert is_drawn(Image.open(BytesIO(base64.b64decode(data))))
    assert len(re.findall(r"<p>.{150,}?</p>", text)) == 2


def test_every_picture_of_the_page_has_its_numbers_as_a_table(tmp_path: Path) -> None:
    agent = make_agent(model=NETWORKS["gated"][0])
    found = inspect_agent(agent, FEW)
    text, tables = page_of(found), {table.part: table for table in tables_of(found)}
    assert list(tables) == re.findall(r'<img id="(\w+)"', text)
    assert found.importance is not None
    for table in tables.values():
        assert html.escape(table.title) in text.replace("&#39;", "&#x27;")
        assert all(len(row) == len(table.columns) for row in table.rows)
    shown = [row[2] for row in tables["importance"].rows]
    assert shown == [f"{value:.4g}" for layer in found.importance.mean for value in layer]
    assert all(f"<td>{value}</td>" in text for value in shown)


def test_a_name_cannot_write_into_the_page(tmp_path: Path) -> None:
    agent = make_agent(model=NETWORKS["dt"][0])
    found = inspect_agent(agent, FEW)._replace(name="<script>alert(1)</script>")
    text = write_page(found, tmp_path).read_text()
    assert "<script>" not in text
    assert "&lt;script&gt;" in text


def browser() -> str:
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if found is None:
        pytest.skip("no Chromium here: apt-get install chromium")
    return found


def chromium(folder: Path, *arguments: str) -> str:
    command = [browser(), "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run"]
    command += ["--disable-background-networking", "--disable-component-update", "--disable-sync"]
    command += [f"--user-data-dir={folder / 'profile'}", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


PROBE = """<script>
addEventListener("load", () => {
  const seen = [...document.images].map(image => {
    const canvas = document.createElement("canvas");
    canvas.width = image.naturalWidth; canvas.height = image.naturalHeight;
    const drawing = canvas.getContext("2d");
    drawing.drawImage(image, 0, 0);
    const data = drawing.getImageData(0, 0, canvas.width, canvas.height).data;
    const shades = new Set(); let dark = 0;
    for (let i = 0; i < data.length; i += 4) { shades.add(data[i]); if (data[i] < 200) dark += 1; }
    const box = image.getBoundingClientRect();
    return [image.id, image.complete && image.naturalWidth, box.width, shades.size, dark / (data.length / 4)];
  });
  document.title = JSON.stringify(seen);
});
</script>"""


@pytest.mark.slow
def test_a_browser_shows_every_picture(tmp_path: Path) -> None:
    """In a copy of the page with a probe that draws each picture to a canvas and counts what is on it."""
    browser()
    path = page(tmp_path)
    probed = tmp_path / "probed.html"
    probed.write_text(path.read_text().replace("</body>", PROBE + "</body>"))
    title = re.search(r"<title>(\[.*?\])</title>", chromium(tmp_path, "--dump-dom", probed.as_uri()))
    assert title is not None
    seen = json.loads(title.group(1).replace("&quot;", '"'))
    assert [one[0] for one in seen] == ["markov", "importance", "gates", "maps"]
    for _, natural, width, shades, dark in seen:
        assert natural > 500
        assert 300 < width <= 960
        assert shades > 20
        assert 0.01 < dark < 0.95


@pytest.mark.slow
def test_a_screenshot_of_the_page_is_not_blank(tmp_path: Path) -> None:
    browser()
    shot = tmp_path / "shot.png"
    chromium(tmp_path, f"--screenshot={shot}", "--window-size=1000,1400", page(tmp_path).as_uri())
    assert is_drawn(Image.open(shot))


@pytest.mark.slow
def test_the_demo_looks_into_a_bundled_agent(tmp_path: Path) -> None:
    demo = Path(__file__).resolve().parents[2] / "demos" / "inspect_heads.py"
    command = [sys.executable, str(demo), "--episodes", "1", "--out", str(tmp_path)]
    environ = {**os.environ, "COLUMNS": "200", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True, env=environ)
    report = markov_report(Agent.from_pretrained("zoo/dt-hopper-medium"))
    for one in report.heads:
        assert f"{one.ratio:.2f}" in done.stdout
    assert f"{sum(one.markov for one in report.heads)} Markov heads" in done.stdout
    assert is_drawn(Image.open(tmp_path / "heads.png"))
    assert (tmp_path / "heads" / "index.html").stat().st_size > 50_000
