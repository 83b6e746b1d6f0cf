"""`agentzoo research inspect`: what it prints and records of agents and language models."""

from __future__ import annotations

import json
import re
import shutil
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
from agentzoo.errors import ConfigError, UnknownNameError
from agentzoo.evaluation.study import read_study
from agentzoo.models.bc import BCConfig
from agentzoo.models.dt import DTConfig
from agentzoo.models.dtma import DTMAConfig
from agentzoo.models.gpt2_dt import GPT2DTConfig
from agentzoo.research.analysis.head_report import is_language_model
from agentzoo.research.analysis.inspection import Inspection, Options, inspect, inspect_agent
from agentzoo.research.analysis.inspection_page import explanation, page_of
from agentzoo.research.analysis.pictures import draw_all, parts_of
from agentzoo.research.pretrain.lm import train_language_model, write_language_model
from agentzoo.research.pretrain.settings import LM_SIZES
from agentzoo.store.files import LOG
from research.inspect_cases import FEW, NETWORKS, agent_in, run


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
def test_heads_that_do_not_exist_are_refused_before_the_agent_acts(
    name: str, head: int, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr("agentzoo.research.analysis.inspection.decision_windows")
    done = CliRunner().invoke(app, ["research", "inspect", str(agent_in(tmp_path, name)), "--markov-head", str(head)])
    assert isinstance(done.exception, ConfigError), done.output + repr(done.exception)
    assert re.search(said, str(done.exception))


@pytest.mark.parametrize(
    ("name", "option", "said"),
    [
        ("dt", "--distance=3", r"--distance \(distance=\) is for networks with rotary positions; dt-test has none"),
        ("masked", "--distance=3", "--distance has no effect: only causal attention has Markov heads, and dt-test is"),
        ("masked", "--fold-ln-gain", "--fold-ln-gain has no effect: .* heads, and dt-test is a 'unimask' network"),
        ("masked", "--threshold=3", "--threshold has no effect: .* heads, and dt-test is a 'unimask' network. Omit it"),
        ("mamba", "--fold-ln-gain", "--fold-ln-gain has no effect: .* and dt-test is a 'dm' network"),
        ("mamba", "--temperature=0.1", "--temperature has no effect: dt-test is a 'dm' network, without attention"),
    ],
)
def test_options_without_effect_are_refused_before_the_agent_acts(
    name: str, option: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table of `dt` said that its heads were rotated, with the numbers of distance 0."""
    monkeypatch.delattr("agentzoo.research.analysis.inspection.decision_windows")
    done = CliRunner().invoke(app, ["research", "inspect", str(agent_in(tmp_path, name)), option])
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


def test_a_network_without_attention_or_mamba_is_refused() -> None:
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
    drawn = draw_all(folded, tmp_path / "x.svg").read_text()
    assert "Markov ratio; +: positive diagonal, framed: Markov head" in drawn
    assert "the norm's gain counted" in drawn
    assert "diag(g) W_q W_k^T diag(g)" in page_of(folded)
    assert "diag(g)" not in page_of(plain)


def without_markov_heads() -> Agent:
    """The queries of head 1 look away from tokens like the asking one, so it is not Markov at any threshold."""
    agent = make_agent(model=NETWORKS["gated"][0])
    with torch.no_grad():
        qkv = agent.model.get_parameter("backbone.blocks.0.attn.qkv.weight")
        qkv[20:24] = -qkv[4:8]
    return agent


def test_without_markov_heads_the_explanation_counts_the_nearest_head() -> None:
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


def test_maps_are_drawn_sharper_and_counted_as_they_are(tmp_path: Path) -> None:
    agent = make_agent(model=NETWORKS["gated"][0])
    plain, sharp = (inspect_agent(agent, FEW._replace(temperature=t)) for t in (1.0, 0.1))
    assert plain.as_tree()["attention_maps"] == sharp.as_tree()["attention_maps"]
    drawn = draw_all(sharp, tmp_path / "x.svg").read_text()
    assert "temperature 0.1 -->" in drawn
    assert "temperature" not in draw_all(plain, tmp_path / "y.svg").read_text()
    assert "at temperature 0.1, sharper" in page_of(sharp)


def test_a_picture_states_how_many_layers_and_heads_it_leaves_out(tmp_path: Path) -> None:
    agent = make_agent(model=DTConfig(embed_dim=26, n_layers=5, n_heads=13))
    drawn = draw_all(inspect_agent(agent, FEW), tmp_path / "x.svg").read_text()
    assert "; 4 of 5 layers; 12 of 13 heads -->" in drawn


def test_one_decision_has_no_standard_error(tmp_path: Path) -> None:
    text = run(agent_in(tmp_path), "-n", 1, "--windows", 1, "--json")
    assert "NaN" not in text
    assert json.loads(text)["importance"]["standard_error"] == [[None] * 4] * 2
    run(agent_in(tmp_path), "-n", 1, "--windows", 1, "--picture", tmp_path / "x.png")


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
    for idle, option in (("-n3", "--episodes"), ("--temperature=.1", "--temperature"), ("--seed=1", "--seed")):
        done = CliRunner().invoke(app, ["research", "inspect", "lm-tiny", idle])
        assert str(done.exception).startswith(f"{option} has no effect: lm-tiny is a language model, whose weights")
    inspect("lm-tiny", Options(seed=1, random=True))
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


def test_what_is_found_survives_json() -> None:
    found = inspect_agent(make_agent(model=NETWORKS["gated"][0]), FEW)
    assert isinstance(found, Inspection)
    assert json.loads(json.dumps(found.as_tree()))["kind"] == "dtma"
