"""The studies of gates: logs and gates with values known by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from conftest import make_agent, newest_steps, random_batch
from typer.testing import CliRunner

from agentzoo.agent import Agent
from agentzoo.cli import app
from agentzoo.data.minari import load_episodes
from agentzoo.errors import CheckpointError, ConfigError, DataError
from agentzoo.evaluation.study import read_study
from agentzoo.models.dtma import DTMAConfig
from agentzoo.plots import wrapped
from agentzoo.recipe import DataConfig, EvalConfig, Recipe, TrainConfig
from agentzoo.research.analysis.head_report import markov_report
from agentzoo.research.analysis.layers import attention_layers, layer_inputs
from agentzoo.research.studies import contexts, gate_curves
from agentzoo.store.files import CONFIG, LOG, RECIPE, WEIGHTS
from agentzoo.training import state
from agentzoo.training.loop import train

ROWS = "step,loss,gate_0,gate_1,gate_2,gate_3\n5,1,.25,.25,.25,.25\n10,1,.1,.5,.3,.1\n"


def gated(
    markov: int | None = None, context: int = 4, seed: int = 0, agent_id: str = "dtma-test", share: float = 0.25
) -> Agent:
    """Four heads; `markov` is one by its weights; every token gives `share` to head 1 and the rest evenly to others."""
    made = make_agent(model=DTMAConfig(embed_dim=256, n_layers=1, n_heads=4, dropout=0.0), context=context)
    layer = attention_layers(made.model)[0]
    assert layer.gate is not None
    with torch.no_grad():
        if markov is not None:
            rows = slice(64 * markov, 64 * markov + 64)
            layer.qkv[256:512][rows] = layer.qkv[:256][rows]  # its keys = its queries
        for parameter in layer.gate.parameters():
            parameter.zero_()
        bias = next(parameter for parameter in layer.gate.parameters() if parameter.ndim == 1)
        bias[1] = torch.tensor(3 * share / (1 - share)).log()
    assert made.recipe is not None
    train = made.recipe.train.model_copy(update={"seed": seed, "steps": 10})
    recipe = made.recipe.replace(agent_id=agent_id, train=train)
    return Agent(made.model, made.config.model_copy(update={"agent_id": agent_id}), recipe)


def a_run(folder: Path, agent: Agent, rows: str = ROWS) -> Path:
    agent.save_pretrained(folder)
    (folder / LOG).write_text(rows)
    return folder


# -- over training -----------------------------------------------------------------------------------------------------


def test_the_last_row_by_hand(tmp_path: Path) -> None:
    run = a_run(tmp_path / "a", gated(markov=2))
    (found,) = gate_curves.read_gates([run])
    assert found.counted[:2] == ((2,), "markov")
    study = gate_curves.as_study([found])
    others = f"{(0.1 + 0.5 + 0.1) / 3:.3f}"
    assert study.rows == (
        ("dtma-test, seed 0", "10 of 10", "Markov head 2", "0.300", others, "0.300", "0.250"),
    )  # fmt: skip
    assert study.columns[5] == "G_Markov (their sum)"
    assert f"after 10 updates: Markov head 2: mean gate 0.300, the other heads {others}, 1/N = 0.250." in study.note


def test_several_heads_that_are_named_are_summed_and_called_that(tmp_path: Path) -> None:
    run = a_run(tmp_path / "a", gated(markov=2))
    for file in (WEIGHTS, CONFIG):
        (run / file).unlink()  # who names heads needs no weights
    (found,) = gate_curves.read_gates([run], [1, 3, 1])
    study = gate_curves.as_study([found])
    assert study.rows[0][2:] == ("heads 1, 3, as named", "0.300", "0.200", "0.600", "0.500")
    assert study.columns[5] == "G (their sum)"
    with pytest.raises(ConfigError, match=r"heads, 0 to 3; .* got \[4\]"):
        gate_curves.read_gates([run], [4])


def test_without_a_markov_head_the_nearest_is_drawn_and_called_that(tmp_path: Path) -> None:
    run = a_run(tmp_path / "a", gated(markov=1))
    (found,) = gate_curves.read_gates([run], threshold=50.0)
    ratio = markov_report(gated(markov=1)).heads[1].ratio
    words = f"head 1, nearest to Markov (ratio {ratio:.2f}, r = 50)"
    study = gate_curves.as_study([found])
    assert study.rows[0][2:4] == (words, "0.500")
    assert words in study.note
    assert study.columns[5] == "G (their sum)"
    drawn = gate_curves.draw_curves([found], tmp_path / "x.svg").read_text()
    label = wrapped(words).splitlines()
    assert len(label) == 2
    assert all(f"<!-- {line} -->" in drawn for line in label)


def test_heads_are_those_of_the_backbone_however_training_went(tmp_path: Path) -> None:
    """Where the recipe notes them; an agent is found by its id too."""
    agent = gated(markov=2)
    assert agent.recipe is not None
    noted = {"markov_at_start": ((0.5, 1.0), (0.6, 1.1), (0.4, 1.2), (0.5, 0.9))}
    agent.recipe = agent.recipe.replace(model=agent.recipe.model.model_copy(update=noted))
    agent.config = agent.config.model_copy(update={"model": agent.recipe.model})
    (found,) = gate_curves.read_gates([a_run(tmp_path / "a", agent)])
    assert found.counted[:4] == ((1,), "nearest", True, 1.1)
    study = gate_curves.as_study([found])
    assert "G_Markov" not in study.note
    assert study.rows[0][2] == "head 1, nearest to Markov when training began (ratio 1.10, r = 8)"


def test_environments_stand_side_by_side_and_seeds_in_one_panel(tmp_path: Path) -> None:
    runs = [
        a_run(tmp_path / "a", gated(markov=0)),
        a_run(tmp_path / "b", gated(markov=0, seed=1), ROWS + "15,1,.1,"),  # cut off while it was written
        a_run(tmp_path / "c", gated(markov=3, agent_id="dtma-maze"), ROWS.replace("10,1", "7,1")),
    ]
    found = gate_curves.read_gates(runs)
    drawn = gate_curves.draw_curves(found, tmp_path / "x.svg").read_text()
    for title in ("dtma-test, 2 seeds", "dtma-maze"):
        assert f"<!-- {title} -->" in drawn
    assert drawn.count("<!-- Markov head 0 -->") == drawn.count("<!-- Markov head 3 -->") == 1
    assert [row[0] for row in gate_curves.as_study(found).rows] == [
        "dtma-test, seed 0",
        "dtma-test, seed 1",
        "dtma-maze, seed 0",
    ]
    assert gate_curves.as_study(found).rows[2][1] == "7 of 10"
    assert "after 7 updates: " in gate_curves.as_study(found).note  # finished: it ran out of patience
    assert len(gate_curves.as_study(found * 10).note) <= 1_000


def test_a_running_training_is_read_from_its_checkpoint(tiny_hopper: str, tmp_path: Path) -> None:
    recipe = Recipe(
        agent_id="dtma-hopper-tiny",
        model=DTMAConfig(embed_dim=16, n_layers=1, n_heads=2),
        data=DataConfig(dataset=tiny_hopper, context=3, rtg_scale=100.0),
        train=TrainConfig(steps=2, batch_size=4, warmup_steps=1, log_every=1, checkpoint_every=2),
        eval=EvalConfig(env="Hopper-v5", target_return=100.0),
    )
    folder = tmp_path / "run"
    network = train(recipe, folder, load_episodes(tiny_hopper), device="cpu")
    (folder / WEIGHTS).unlink()
    found = gate_curves.run_report(folder, recipe, 8.0)
    assert found.heads == gate_curves.markov_report(network, 8.0).heads
    (run,) = gate_curves.read_gates([folder])
    assert run.counted.chosen == "nearest"
    assert run.curve.steps == [1, 2]
    assert "after 2 updates: " in run.words()
    longer = recipe.replace(train=recipe.train.model_copy(update={"steps": 9}))
    assert "after 2 updates (7 to come): " in run._replace(recipe=longer).words()
    assert run.curve.counted[0] == pytest.approx(0.5, abs=1e-3)
    (folder / state.CHECKPOINT).unlink()
    with pytest.raises(CheckpointError, match=r"neither model\.safetensors nor .* name them with --markov-head"):
        gate_curves.read_gates([folder])


def test_a_training_without_gates_or_recipe_is_refused(tmp_path: Path) -> None:
    run = a_run(tmp_path / "a", make_agent(), "step,loss\n10,1\n")
    with pytest.raises(ConfigError, match="has no gates; families with gates end in 'dtma'"):
        gate_curves.read_gates([run])
    (run / RECIPE).unlink()
    with pytest.raises(CheckpointError):
        gate_curves.read_gates([run])


def test_the_command_writes_a_study_that_a_card_can_show(tmp_path: Path) -> None:
    runs = [a_run(tmp_path / "a", gated(markov=1)), a_run(tmp_path / "b", gated(markov=1, agent_id="dtma-maze"))]
    out = tmp_path / "out"
    done = CliRunner().invoke(app, ["research", "gates", "training", *map(str, runs), "--out", str(out), "--json"])
    assert done.exit_code == 0, done.output
    study = read_study(out)
    assert json.loads(done.stdout)["rows"] == [list(row) for row in study.rows]
    assert (out / str(study.picture)).read_bytes().startswith(b"\x89PNG")


# -- against context length --------------------------------------------------------------------------------------------

FEW = contexts.Looks(episodes=1)


def test_agents_trained_with_each_context_by_hand(tmp_path: Path) -> None:
    """Their gates ignore the token: head 1 gets a half with K = 2 and a quarter with K = 4."""
    agents = [gated(1, context=4, share=0.25), gated(1, context=2, share=0.5)]
    points = contexts.gates_by_context(agents, looks=FEW)
    assert [(one.context, *one.counted[:2]) for one in points] == [(2, (1,), "markov"), (4, (1,), "markov")]
    assert [one.g for one in points] == [pytest.approx(0.5), pytest.approx(0.25)]
    assert contexts.relative(points) == {2: 100.0, 4: pytest.approx(50.0)}
    study = contexts.as_study(points)
    assert study.rows[1] == ("4", "dtma-test", "Markov head 1", "0.250", "0.250", "50.0 %", "", "")
    assert study.columns[3] == "G_Markov"
    assert study.columns[5] == "R_Markov (of K = 2)"
    assert study.note.startswith("Each agent was trained with its K; ")
    named = contexts.gates_by_context(agents, looks=FEW._replace(heads=(0, 1)))
    assert named[0].g == pytest.approx(0.5 + 0.5 / 3)
    assert contexts.as_study(named).columns[3] == "G"
    drawn = contexts.draw_contexts(named, tmp_path / "x.svg").read_text()
    assert "<!-- heads 0, 1, as named -->" in drawn
    assert "each trained with its K" in drawn


def test_published_figures_stand_beside_ours_at_their_own_context() -> None:
    (point, _) = contexts.gates_by_context([gated(1)], [2, 4], FEW)
    points = [point._replace(context=k, g=0.4 * k) for k in (10, 15, 20)]
    rows = contexts.as_study(points).rows
    assert [row[5:] for row in rows] == [
        ("100.0 %", "100.0 %", "100.0 %"),
        ("150.0 %", "", ""),
        ("200.0 %", "78.1 %", "96.6 %"),
    ]
    none = contexts.as_study([point._replace(counted=point.counted._replace(chosen="nearest", ratio=1.1))])
    assert none.rows[0][2] == "head 1, nearest to Markov (ratio 1.10, r = 8)"
    assert none.columns[3] == "G"


def test_a_shorter_window_changes_which_tokens_are_counted_and_no_gate() -> None:
    """As the note says of one agent: what the first layer reads of a token is the same in every window."""
    agent = gated(1)
    windows = random_batch(agent.config.io, [4, 3, 4, 1])
    layers = attention_layers(agent.model)[:1]
    whole, cut = (layer_inputs(agent.model, one, layers)[0] for one in (windows, newest_steps(windows, 2)))
    torch.testing.assert_close(cut[0], whole[0, 6:12])
    torch.testing.assert_close(cut[1], whole[1, 3:9])
    points = contexts.gates_by_context([agent], [2, 4], FEW)
    assert points[0].windows == points[1].windows > 4
    assert "K changes which tokens are counted, but no gate" in contexts.as_study(points).note


def test_contexts_that_cannot_be_are_refused() -> None:
    for asked in ([2], [2, 5], None):
        with pytest.raises(ConfigError, match="trained with context 4; name at least two of 1 to 4 with --context"):
            contexts.gates_by_context([gated(1)], asked, FEW)
    with pytest.raises(DataError, match="trained with contexts 4, 4; all must differ"):
        contexts.gates_by_context([gated(1), gated(1)], looks=FEW)
    with pytest.raises(DataError, match=r"K = 2: Markov head 2; K = 4: Markov head 1\).*Name the same.*--markov-head"):
        contexts.gates_by_context([gated(1), gated(2, context=2)], looks=FEW)
    elsewhere = gated(1, context=2)
    elsewhere.config = elsewhere.config.model_copy(update={"env": "Hopper-v5"})
    with pytest.raises(DataError, match="these agents act in Hopper-v5, tests/Counting-v0"):
        contexts.gates_by_context([gated(1), elsewhere], looks=FEW)
    with pytest.raises(ConfigError, match="Omit --context"):
        contexts.gates_by_context([gated(1), gated(1, context=2)], [2], FEW)
    with pytest.raises(ConfigError, match="has no gates"):
        contexts.gates_by_context([make_agent()], [2, 4], FEW)


def test_the_context_command_writes_a_study(tmp_path: Path) -> None:
    folder, out = gated(1).save_pretrained(tmp_path / "a"), tmp_path / "out"
    asked = [
        "research",
        "gates",
        "context",
        str(folder),
        "--context",
        "4",
        "--context",
        "2",
        "-n",
        "1",
        "--out",
        str(out),
        "--json",
    ]
    done = CliRunner().invoke(app, asked)
    assert done.exit_code == 0, done.output
    study = read_study(out)
    assert [row[0] for row in study.rows] == ["2", "4"]
    assert json.loads(done.stdout)["rows"] == [list(row) for row in study.rows]
    assert (out / str(study.picture)).read_bytes().startswith(b"\x89PNG")
