"""`agentzoo research inspect`: what it prints, draws and writes; the page is opened in a real browser."""

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
from typing import Any

import numpy as np
import pytest
import torch
from conftest import make_agent
from PIL import Image
from typer.testing import CliRunner

from agentzoo.agent import Agent
from agentzoo.cli import app
from agentzoo.errors import ConfigError, StorageError, UnknownNameError
from agentzoo.evaluation.study import read_study
from agentzoo.models.bc import BCConfig
from agentzoo.models.dm import DMConfig
from agentzoo.models.dt import DTConfig
from agentzoo.models.dtma import DTMAConfig
from agentzoo.models.gpt2_dt import GPT2DTConfig
from agentzoo.models.unimask import UniMaskConfig
from agentzoo.research.analysis import markov_report
from agentzoo.research.analysis.head_report import is_language_model
from agentzoo.research.analysis.inspection import Inspection, Options, inspect, inspect_agent
from agentzoo.research.analysis.page import explanation, page_of, write_page
from agentzoo.research.analysis.pictures import draw_all, parts_of
from agentzoo.research.analysis.tables import tables_of
from agentzoo.research.pretrain.lm import train_language_model, write_language_model
from agentzoo.research.pretrain.settings import LM_SIZES
from agentzoo.store.files import LOG

FEW = Options(episodes=1)
NETWORKS: dict[str, tuple[Any, set[str]]] = {
    "dt": (DTConfig(embed_dim=16, n_layers=2, n_heads=2), {"markov", "importance", "maps"}),
    "gated": (DTMAConfig(embed_dim=16, n_layers=2), {"markov", "importance", "gates", "maps"}),
    "mamba": (DMConfig(embed_dim=16, n_layers=2, state_size=4), {"memory"}),
    "masked": (UniMaskConfig(embed_dim=16, n_heads=4, ffn_dim=16), {"importance", "maps"}),
}


def agent_in(folder: Path, name: str = "gated") -> Path:
    agent = make_agent(model=NETWORKS[name][0])
    return agent.save_pretrained(folder / name)


def run(*arguments: object) -> str:
    result = CliRunner().invoke(app, ["research", "inspect", *map(str, arguments)])
    assert result.exit_code == 0, result.output + str(result.exception)
    return result.stdout


@pytest.mark.parametrize("name", NETWORKS)
def test_every_kind_of_network_shows_what_makes_sense_for_it(name: str, tmp_path: Path) -> None:
    found = inspect(str(agent_in(tmp_path, name)), FEW)
    assert set(parts_of(found)) == NETWORKS[name][1]
    tree = json.loads(run(agent_in(tmp_path, name), "-n", 1, "--json"))
    assert set(tree) - {"name", "kind", "attention_maps", "counted_heads"} == NETWORKS[name][1] - {"maps"}
    first, second = explanation(found)
    assert len(first) > 200
    assert "dt-test" in second or name == "masked"


def test_tables_and_json_say_the_same(tmp_path: Path) -> None:
    folder = agent_in(tmp_path)
    tree = json.loads(run(folder, "-n", 1, "--json"))
    text = run(folder, "-n", 1)
    assert tree["markov"]["threshold"] == 8.0
    assert len(tree["markov"]["heads"]) == 8
    for one in tree["markov"]["heads"]:
        assert f"{one['ratio']:.2f}" in text
    for value in tree["importance"]["mean"][0]:
        assert f"{value:.4g}" in text
    assert len(tree["gates"]["heads"]) == 1
    assert tree["gates"]["g_markov"] == pytest.approx(0.25, abs=1e-6)
    assert f"layer 0, {tree['counted_heads']}: G 0.250" in " ".join(text.split())
    assert [(one["layer"], one["head"]) for one in tree["attention_maps"]] == [(i, j) for i in (0, 1) for j in range(4)]
    for one in tree["attention_maps"]:
        assert f"{one['on_itself']:.3f}" in text
        assert one["on_itself"] < one["on_its_step"] < 1.0


def test_a_study_of_heads_says_what_the_report_says(tmp_path: Path) -> None:
    folder, out = agent_in(tmp_path), tmp_path / "study"
    tree = json.loads(run(folder, "-n", 1, "--json", "--out", out))
    study = read_study(out)
    moved = tree["importance"]["mean"]
    assert [row[0] for row in study.rows] == [f"{layer}.{head}" for layer in (0, 1) for head in range(4)]
    assert [row[1] for row in study.rows] == [f"{value:.3g}" for row in moved for value in row]
    assert [row[2] for row in study.rows] == [f"{one['on_itself']:.2f}" for one in tree["attention_maps"]]
    most = np.unravel_index(np.argmax(moved), np.shape(moved))
    assert f"Head {most[0]}.{most[1]} matters most" in study.note
    with Image.open(out / str(study.picture)) as picture:
        assert len(set(picture.convert("L").tobytes())) > 20
    done = CliRunner().invoke(app, ["research", "inspect", str(agent_in(tmp_path, "mamba")), "--out", str(out)])
    assert isinstance(done.exception, ConfigError), done.output
    assert "a study of heads needs an agent" in str(done.exception)


@pytest.mark.parametrize(
    ("name", "head", "said"),
    [
        ("dt", 0, "dt-test has no gates, so there are no heads to count; families with gates"),
        ("mamba", 0, "dt-test has no gates"),
        ("masked", 0, "dt-test has no gates"),
        ("gated", 99, r"the first layer has heads 0 to 3, got \[99\]"),
    ],
)
def test_heads_that_are_not_there_are_said_before_anything_is_run(
    name: str, head: int, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr("agentzoo.research.analysis.inspection.decision_windows")
    done = CliRunner().invoke(app, ["research", "inspect", str(agent_in(tmp_path, name)), "--markov-head", str(head)])
    assert isinstance(done.exception, ConfigError), done.output + repr(done.exception)
    assert re.search(said, str(done.exception))


def test_options_reach_the_instruments(tmp_path: Path) -> None:
    folder = agent_in(tmp_path)
    low = json.loads(run(folder, "-n", 1, "--threshold", 0.0, "--markov-head", 1, "--markov-head", 2, "--json"))
    assert [one["markov"] for one in low["markov"]["heads"]] == [one["positive"] for one in low["markov"]["heads"]]
    assert low["gates"]["heads"] == [1, 2]
    ratios = [one["ratio"] for one in low["markov"]["heads"]]
    random = json.loads(run(folder, "-n", 1, "--random", "--seed", 5, "--json"))
    assert random["kind"] == "dtma, random weights"
    assert [one["ratio"] for one in random["markov"]["heads"]] != ratios
    few = json.loads(run(folder, "-n", 2, "--windows", 3, "--json"))
    assert few["importance"]["decisions"] == 3


def test_the_same_command_gives_the_same_answer(tmp_path: Path) -> None:
    folder = agent_in(tmp_path)
    assert run(folder, "-n", 1, "--json") == run(folder, "-n", 1, "--json")


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


def test_a_network_of_nothing_to_see_says_so() -> None:
    with pytest.raises(ConfigError, match="'bc' network has no attention layers and no Mamba"):
        inspect_agent(make_agent(model=BCConfig(embed_dim=16)), FEW)


def test_gates_over_training_are_shown_where_there_is_a_log(tmp_path: Path) -> None:
    folder = agent_in(tmp_path)
    (folder / LOG).write_text("step,loss,gate_0,gate_1,gate_2,gate_3\n10,1,.2,.5,.2,.1\n20,1,.1,.8,.05,.05\n")
    found = inspect(str(folder), FEW._replace(heads=(1,)))
    assert found.curve is not None
    assert found.curve.counted == [0.5, 0.8]
    assert "curve" in parts_of(found)


def test_the_curve_is_of_the_markov_heads_the_report_finds(tmp_path: Path) -> None:
    agent = make_agent(model=NETWORKS["gated"][0])
    with torch.no_grad():
        qkv = agent.model.get_parameter("backbone.blocks.0.attn.qkv.weight")
        qkv[20:24] = qkv[4:8]  # keys of head 1 = its queries: Markov, once one number is made much larger than others
        agent.model.get_parameter("backbone.blocks.0.ln_1.weight")[0] = 100.0
    folder = agent.save_pretrained(tmp_path / "gated")
    (folder / LOG).write_text("step,loss,gate_0,gate_1,gate_2,gate_3\n10,1,.2,.5,.2,.1\n")
    plain, folded = (inspect(str(folder), FEW._replace(fold_ln_gain=fold)) for fold in (False, True))
    for found in (plain, folded):
        assert found.counted is not None
        assert found.curve is not None
        assert found.gates is not None
        assert found.curve.heads == found.gates.heads == list(found.counted.heads)
    assert folded.counted is not None
    assert folded.counted.words() == "Markov head 1"
    assert folded.curve is not None
    assert folded.curve.counted == [0.5]
    assert plain.counted is not None
    assert plain.counted.chosen == "nearest"  # and its curve is drawn all the same
    assert "the norm's gain counted" in draw_all(folded, tmp_path / "x.svg").read_text()
    assert "diag(g) W_q W_k^T diag(g)" in page_of(folded)
    assert "diag(g)" not in page_of(plain)


def without_markov_heads() -> Agent:
    """The queries of head 1 look away from tokens like the asking one, so it is not Markov at any threshold."""
    agent = make_agent(model=NETWORKS["gated"][0])
    with torch.no_grad():
        qkv = agent.model.get_parameter("backbone.blocks.0.attn.qkv.weight")
        qkv[20:24] = -qkv[4:8]
    return agent


def test_a_network_without_markov_heads_says_so_and_counts_the_nearest() -> None:
    found = inspect_agent(without_markov_heads(), FEW)
    assert found.gates is not None
    assert found.markov is not None
    assert found.counted is not None
    ratio = max(one.ratio for one in found.markov.heads if one.layer == 0 and one.head == found.counted.heads[0])
    words = explanation(found)[1]
    assert "has no Markov head among 8" in words
    assert f", nearest to Markov (ratio {ratio:.2f}, r = 8): 0.250; with equal gates it would" in words


def test_heads_that_are_named_are_not_called_markov(tmp_path: Path) -> None:
    found = inspect_agent(without_markov_heads(), FEW._replace(heads=(2,)))
    words = explanation(found)[1]
    assert "has no Markov head among 8" in words
    assert " Sum of the gates, head 2, as named: 0.250; with equal gates it would be 0.250." in words
    drawn = draw_all(found, tmp_path / "named.svg").read_text()
    assert "<!-- 2 * -->" in drawn
    assert "<!-- head (*: head 2, as named) -->" in drawn
    assert "G = 0.250, 0.250 if all had the same -->" in drawn


def test_markov_heads_are_called_that(tmp_path: Path) -> None:
    agent = make_agent(model=DTMAConfig(embed_dim=128, n_layers=1, n_heads=2))
    with torch.no_grad():
        qkv = agent.model.get_parameter("backbone.blocks.0.attn.qkv.weight")
        qkv[128:192] = qkv[:64]  # keys of head 0 = its queries: Markov
    words = explanation(inspect_agent(agent, FEW))[1]
    assert "Sum of the gates, Markov head 0: 0.500" in words
    assert "Sum of the gates, head 1, as named: 0.500" in explanation(inspect_agent(agent, FEW._replace(heads=(1,))))[1]
    drawn = draw_all(inspect_agent(agent, FEW), tmp_path / "b.svg").read_text()
    assert "Gates of layer 0; G_Markov = 0.500" in drawn
    assert "<!-- head (*: Markov head 0) -->" in drawn


def test_random_weights_are_never_shown_as_the_agents(tmp_path: Path) -> None:
    page = page_of(inspect(str(agent_in(tmp_path)), FEW._replace(random=True)))
    assert "<title>dt-test (random weights) inspected</title>" in page
    assert "<h1>dt-test (random weights) inspected</h1>" in page
    assert "<p>dt-test (random weights) has " in page


def test_maps_are_drawn_sharper_and_counted_as_they_are(tmp_path: Path) -> None:
    agent = make_agent(model=NETWORKS["gated"][0])
    plain, sharp = (inspect_agent(agent, FEW._replace(temperature=t)) for t in (1.0, 0.1))
    assert plain.as_tree()["attention_maps"] == sharp.as_tree()["attention_maps"]
    drawn = draw_all(sharp, tmp_path / "x.svg").read_text()
    assert "temperature 0.1 -->" in drawn
    assert "temperature" not in draw_all(plain, tmp_path / "y.svg").read_text()
    assert "at temperature 0.1, sharper" in page_of(sharp)


def test_maps_that_are_left_out_are_said(tmp_path: Path) -> None:
    agent = make_agent(model=DTConfig(embed_dim=26, n_layers=5, n_heads=13))
    drawn = draw_all(inspect_agent(agent, FEW), tmp_path / "x.svg").read_text()
    assert "; 4 of 5 layers; 12 of 13 heads -->" in drawn


def test_one_decision_has_no_standard_error(tmp_path: Path) -> None:
    text = run(agent_in(tmp_path), "-n", 1, "--windows", 1, "--json")
    assert "NaN" not in text
    assert json.loads(text)["importance"]["standard_error"] == [[None] * 4] * 2
    run(agent_in(tmp_path), "-n", 1, "--windows", 1, "--picture", tmp_path / "x.png")


def test_a_page_where_a_file_is_says_so(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("mine")
    asked = ["research", "inspect", str(agent_in(tmp_path)), "-n", "1", "--report", str(tmp_path / "taken")]
    result = CliRunner().invoke(app, asked)
    assert isinstance(result.exception, StorageError)
    assert (tmp_path / "taken").read_text() == "mine"


def test_the_network_that_training_began_with(
    language_zoo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The backbone's blocks, fresh maps: what tuning changed is seen beside it."""
    monkeypatch.setenv("AGENTZOO_ZOO", str(language_zoo))
    sizes: dict[str, Any] = {"embed_dim": 16, "n_layers": 2, "n_heads": 2}
    agent = make_agent(model=GPT2DTConfig(**sizes, backbone="lm-tiny", cosine_weight=0.1, lm_weight=0.1))
    folder = agent.save_pretrained(tmp_path / "a")
    found = inspect(str(folder), FEW._replace(before=True))
    assert found.title == "dt-test (before training)"
    language = inspect("lm-tiny").markov
    assert language is not None
    assert found.markov is not None
    assert found.markov.heads == language.heads
    assert found.maps is not None
    for options in (FEW._replace(before=True, random=True),):
        with pytest.raises(ConfigError, match="use only one of them"):
            inspect(str(folder), options)
    with pytest.raises(ConfigError, match="--before is for agents"):
        inspect("lm-tiny", FEW._replace(before=True))
    with pytest.raises(ConfigError, match="lm-tiny has no gates"):
        inspect("lm-tiny", FEW._replace(heads=(0,)))
    with pytest.raises(ConfigError, match="dt-test started from random weights"):
        inspect(str(agent_in(tmp_path)), FEW._replace(before=True))


# -- language models ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def language_zoo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("language")
    (root / "a.txt").write_text("the cat sat on a mat and saw another cat that sat there too\n" * 300)
    changes = ["embed_dim=16", "n_layers=2", "n_heads=2", "vocab_size=280", "context=32", "steps=4", "held_out=0.1"]
    settings = LM_SIZES["chibi"].override([*changes, "warmup_steps=2", "log_every=2", "evaluate_every=2"])
    settings = settings.override(["checkpoint_every=2"])
    task = train_language_model(settings, root / "run", [root / "a.txt"], [])
    write_language_model(task, root / "run", root / "zoo" / "lm-tiny", "a test")
    return root / "zoo"


def test_language_models_are_read_by_id_and_folder(language_zoo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTZOO_ZOO", str(language_zoo))
    by_id = json.loads(run("lm-tiny", "--json"))
    by_folder = json.loads(run(language_zoo / "lm-tiny", "--json"))
    assert by_id["kind"] == "language model"
    assert by_id["markov"]["heads"] == by_folder["markov"]["heads"]
    assert len(by_id["markov"]["heads"]) == 4
    random = json.loads(run("lm-tiny", "--random", "--json"))
    assert random["kind"] == "language model, random weights"
    assert random["markov"]["heads"] != by_id["markov"]["heads"]


def test_a_folder_of_transformers_is_read_like_our_own(language_zoo: Path, tmp_path: Path) -> None:
    shutil.copytree(language_zoo / "lm-tiny", tmp_path / "plain", ignore=lambda *_: ["pretrain.json"])
    assert not (tmp_path / "plain" / "pretrain.json").exists()
    plain, ours = (inspect(str(folder)).markov for folder in (tmp_path / "plain", language_zoo / "lm-tiny"))
    assert plain is not None
    assert ours is not None
    assert plain.heads == ours.heads


def test_agents_are_told_from_what_they_start_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTZOO_ZOO", str(tmp_path))
    folder = agent_in(tmp_path)
    assert is_language_model("gpt2")
    assert not any(is_language_model(name) for name in (str(folder), "gated", "zoo/gated", "gpt2-dt-hopper-medium"))
    with pytest.raises(UnknownNameError, match="Did you mean 'gated'"):
        inspect("gatted")


# -- the page ----------------------------------------------------------------------------------------------------------


def is_drawn(image: Image.Image) -> bool:
    """Not blank: many shades, and neither nearly all white nor nearly all of one colour."""
    pixels = np.asarray(image.convert("L"), dtype=float)
    return len(np.unique(pixels)) > 20 and float(pixels.std()) > 10 and 0.01 < float((pixels < 200).mean()) < 0.95


def test_a_blank_picture_is_told_apart() -> None:
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


def test_what_is_found_survives_json() -> None:
    found = inspect_agent(make_agent(model=NETWORKS["gated"][0]), FEW)
    assert isinstance(found, Inspection)
    assert json.loads(json.dumps(found.as_tree()))["kind"] == "dtma"


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
