"""Markov heads of language models and agents side by side, on matrices whose ratios are known by hand."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import make_agent
from typer.testing import CliRunner

from agentzoo.agent import Agent
from agentzoo.cli import app
from agentzoo.errors import ConfigError, UnknownNameError
from agentzoo.evaluation.study import read_study
from agentzoo.models.bc import BCConfig
from agentzoo.models.gpt2_dt import GPT2DTConfig
from agentzoo.research.analysis.head_report import language_network
from agentzoo.research.pretrain.new_networks import new_clip_model, new_language_model
from agentzoo.research.studies.head_verdicts import Judged, as_study, changes, draw_heads, judge, scale

# W W^T of these rows is 2 on the diagonal and at 4 of the 12 places beside it: ratio 2 / (8/12) = 3
ROWS = torch.tensor([[1.0, 1.0, 1.0, 1.0], [1.0, -1.0, 1.0, -1.0]])


@pytest.fixture(scope="module")
def zoo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`lm-toy`: head 0 of layer 0 looks at tokens like the asking one, head 1 away from them, layer 1 the same."""
    folder = tmp_path_factory.mktemp("zoo")
    torch.manual_seed(0)
    model = new_language_model(8, 4, 2, 2, 16, "relu")
    with torch.no_grad():
        for block in model.transformer.h:
            weight = block.attn.c_attn.weight  # (in, out)
            weight[:, :4] = torch.cat([ROWS, ROWS]).T
            weight[:, 4:8] = torch.cat([ROWS, -ROWS]).T
    model.save_pretrained(folder / "lm-toy")
    return folder


@pytest.fixture(autouse=True)
def _here(zoo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTZOO_ZOO", str(zoo))


def tuned(zoo: Path, folder: Path, agent_id: str = "gpt2-dt-toy") -> Path:
    """From `lm-toy`; in layer 0 the heads have changed places."""
    config = GPT2DTConfig(backbone="zoo/lm-toy", embed_dim=4, n_layers=2, n_heads=2, activation="relu")
    made = make_agent(model=config)
    made.model.get_submodule("backbone").load_state_dict(language_network(str(zoo / "lm-toy")).state_dict())
    with torch.no_grad():
        made.model.get_parameter("backbone.blocks.0.attn.qkv.weight")[4:8] *= -1
    agent = Agent(made.model, made.config.model_copy(update={"agent_id": agent_id}), made.recipe)
    return agent.save_pretrained(folder)


def test_the_verdicts_of_a_backbone_worked_out_by_hand() -> None:
    (found,) = judge(["lm-toy"], threshold=2.0)
    assert (found.name, found.kind, found.started_from) == ("lm-toy", "language model", None)
    seen = [(one.layer, one.head, one.positive, one.markov) for one in found.report.heads]
    assert seen == [(0, 0, True, True), (0, 1, False, False), (1, 0, True, True), (1, 1, False, False)]
    assert [one.ratio for one in found.report.heads] == [pytest.approx(3.0)] * 4
    rule = math.log(3) + 1
    assert found.summary() == (
        "lm-toy: 1 of 2 heads of the first layer are Markov, 2 of 4 in all layers (r = 2); with the paper's rule for "
        f"this size, r = {rule:.2f}, 1 of 2."
    )
    assert "0 of 2 heads of the first layer are Markov, 0 of 4" in judge(["lm-toy"])[0].summary()  # r = 8


def test_the_study_tells_which_verdicts_training_changed(zoo: Path, tmp_path: Path) -> None:
    judged = judge(["zoo/lm-toy", str(tuned(zoo, tmp_path / "run"))], threshold=2.0)
    assert [one.name for one in judged] == ["lm-toy", "gpt2-dt-toy"]
    (change,) = changes(judged)
    assert change == (
        "lm-toy → gpt2-dt-toy: head 0 of layer 0 is no longer a Markov head; head 1 of layer 0 became a Markov head, "
        "ratios moved by at most 0.0 %."
    )
    assert list(changes([judged[1]])) == []
    same = [judged[0], Judged("x", "gpt2-dt", judged[0].report, "lm-toy")]
    assert list(changes(same)) == ["lm-toy → x: none of 4 verdicts changed, ratios moved by at most 0.0 %."]
    study = as_study(judged)
    assert study.rows == (
        ("lm-toy", "language model", "4", "2: 0.0, 1.0", "2", "3.00 to 3.00"),
        ("gpt2-dt-toy", "gpt2-dt from zoo/lm-toy", "4", "2: 0.1, 1.0", "2", "3.00 to 3.00"),
    )
    assert " 4 of the 8 trained heads are. " in study.note
    assert " None of the 4 trained heads is. " in as_study(judge(["zoo/lm-toy"])).note  # r = 8
    assert change in study.note
    assert len(as_study(judged * 60).note) <= 1_000
    assert len(as_study(judged * 60).rows) == 100


def test_random_weights_come_once_for_each_size(zoo: Path, tmp_path: Path) -> None:
    folder = tuned(zoo, tmp_path / "run")
    found = judge(["random", "lm-toy", str(folder)])
    assert [one.name for one in found] == ["lm-toy", "gpt2-dt-toy", "random, as lm-toy"]
    assert [(one.layer, one.head) for one in found[2].report.heads] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert found[2].report.heads != found[0].report.heads
    assert judge(["lm-toy", "random"])[1] == found[2]
    assert judge(["lm-toy", "random"], seed=1)[1] != found[2]
    (_, agent_alone) = judge([str(folder), "random"])
    assert agent_alone.name == "random, as gpt2-dt-toy"
    other = judge([str(folder), str(tuned(zoo, tmp_path / "other")), "random"])
    assert [one.name for one in other] == ["gpt2-dt-toy", str(tmp_path / "other"), "random, as gpt2-dt-toy"]
    with pytest.raises(ConfigError, match="takes its size from another network: name one too"):
        judge(["random"])


def test_a_clip_text_tower_is_read_too(tmp_path: Path) -> None:
    torch.manual_seed(0)
    sizes: dict[str, Any] = {"vocab_size": 8, "end_of_text": 1, "positions": 8, "vision_layers": 1}
    model = new_clip_model(width=8, layers=1, heads=2, projection=8, pixels=8, patch=4, **sizes)
    with torch.no_grad():
        attention = model.text_model.encoder.layers[0].self_attn
        attention.k_proj.weight.copy_(attention.q_proj.weight)
    model.save_pretrained(tmp_path / "clip-toy")
    (found,) = judge([str(tmp_path / "clip-toy")])
    assert (found.name, found.kind) == ("clip-toy", "text tower")
    assert [one.positive for one in found.report.heads] == [True, True]
    assert found.report.head_size == 4
    assert scale([found]).endswith(f"{math.sqrt(2 * math.pi):.1f} for heads of 4 numbers.")


def test_an_unknown_name_is_refused_with_where_language_models_come_from(tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match=r"no agent 'lm-mini'.*`agentzoo research pretrain` makes one"):
        judge(["lm-mini"])
    folder = make_agent(model=BCConfig(embed_dim=16)).save_pretrained(tmp_path / "bc")
    with pytest.raises(ConfigError, match="'bc' network has no attention layers"):
        judge([str(folder)])


def test_the_picture_has_a_panel_for_each_network(zoo: Path, tmp_path: Path) -> None:
    judged = judge(["lm-toy", str(tuned(zoo, tmp_path / "run")), "random"], threshold=2.0)
    drawn = draw_heads(judged, tmp_path / "x.svg").read_text()
    for title in (
        "lm-toy (language model): 2 of 4",
        "gpt2-dt-toy (gpt2-dt): 2 of 4",
        "random, as lm-toy (random weights)",
    ):
        assert f"<!-- {title}" in drawn
    assert drawn.count("<!-- 3.00 + -->") == 4
    assert "gain" not in drawn + as_study(judged).note
    folded = judge(["lm-toy"], threshold=2.0, fold_ln_gain=True)
    assert "Markov ratio (the norm's gain counted)" in draw_heads(folded, tmp_path / "y.svg").read_text()
    assert (
        "the diagonal of diag(g) W_q W_k^T diag(g), g the gain of the norm before, is positive" in as_study(folded).note
    )
    assert "3.5 for heads of 2 numbers" not in drawn  # sqrt(pi) is
    assert "1.8 for heads of 2 numbers" in drawn


def test_the_command_prints_and_writes_the_same(zoo: Path, tmp_path: Path) -> None:
    folder, out = tuned(zoo, tmp_path / "run"), tmp_path / "out"
    asked = ["research", "heads", "lm-toy", str(folder), "random", "--threshold", "2"]
    done = CliRunner().invoke(app, [*asked, "--out", str(out), "--json"])
    assert done.exit_code == 0, done.output
    tree = json.loads(done.stdout)
    assert [one["kind"] for one in tree["networks"]] == ["language model", "gpt2-dt", "random weights"]
    assert tree["networks"][0]["heads"][0]["ratio"] == pytest.approx(3.0)
    assert tree["networks"][1]["started_from"] == "zoo/lm-toy"
    study = read_study(out)
    assert len(study.rows) == 3
    assert (out / str(study.picture)).read_bytes().startswith(b"\x89PNG")
    text = CliRunner().invoke(app, asked).stdout.replace("\n", " ")
    for words in ("Markov heads of lm-toy (language model), r = 2", tree["changes"][0], tree["networks"][0]["summary"]):
        assert words in text


def test_a_long_title_stays_in_its_picture() -> None:
    from agentzoo.plots import entitle, new_figure

    figure = new_figure(4.0, 2.0)
    entitle(figure, "short\n" + "a sentence that is far too long for four inches " * 3, 9)
    figure.canvas.draw()
    box = figure._suptitle.get_window_extent()
    assert 0 <= box.x0 < box.x1 <= figure.bbox.width
    assert figure._suptitle.get_text().startswith("short\na sentence")
