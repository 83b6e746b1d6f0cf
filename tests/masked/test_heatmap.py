"""The heat-map study on a few trajectories and epochs: every cell trained, resumed, measured, drawn."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from agentzoo import cli
from agentzoo.data.making.build import build
from agentzoo.data.making.dataset_recipe import BuildOptions
from agentzoo.errors import ConfigError, TrainingError
from agentzoo.models.decision_gpt import DecisionGPT, DecisionGPTConfig
from agentzoo.nn.masking import STEP_TASKS, draw
from agentzoo.recipe import load_recipe
from agentzoo.recipes._doorkey import doorkey_budget
from agentzoo.recipes.unimask import PUBLISHED
from agentzoo.research.studies import heatmap
from agentzoo.research.studies.heatmap import (
    COLUMNS,
    ROWS,
    HeatMap,
    as_study,
    cells,
    collect,
    normalized,
    rank_agreement,
    run_cell,
    task_loss,
)
from agentzoo.research.studies.heatmap_plot import draw_heatmap
from agentzoo.research.studies.heatmap_published import published_losses
from masked.cases import any_batch, network


def test_budgets_are_epochs_of_the_data() -> None:
    assert doorkey_budget(250).steps == 2_000 * 2  # 500 trajectories fill two batches of 250
    assert doorkey_budget(50).steps == 2_000 * 10
    assert doorkey_budget(100, episodes=1000, epochs=30).steps == 30 * 10
    assert doorkey_budget(250, episodes=50).steps == 2_000  # never less than one update


def test_recipes_hold_the_published_sizes() -> None:
    for name, (batch, dim, ffn, layers, heads, weight) in PUBLISHED.items():
        recipe = load_recipe("unimask-doorkey" if name == "rnd" else f"unimask-doorkey-{name}")
        model = recipe.model.model_dump()
        got = (recipe.train.batch_size, *(model[k] for k in ("embed_dim", "ffn_dim", "n_layers", "n_heads")))
        assert got == (batch, dim, ffn, layers, heads)
        assert model["state_weight"] == weight
        assert model["acts_on_returns"] == (name.removeprefix("mlp-") in ("rc", "all", "rnd"))
    assert load_recipe("unimask-doorkey-all").model.model_dump()["tasks"] == STEP_TASKS
    assert isinstance(load_recipe("decision-gpt-doorkey-rc").model, DecisionGPTConfig)


def test_a_cloning_decision_gpt_sees_no_return_whatever_it_is_asked() -> None:
    io = network().io
    batch = any_batch(io, 20)
    other = replace(batch, returns_to_go=batch.returns_to_go + 1.0)
    masking = draw("rc", *batch.shape, torch.Generator().manual_seed(0))
    assert masking.returns.any()
    for uses in (True, False):
        torch.manual_seed(0)
        model = DecisionGPT(DecisionGPTConfig(embed_dim=16, n_layers=2, n_heads=2, use_returns=uses), io).eval()
        losses = [float(model.factor_losses(each, masking)["action"].detach()) for each in (batch, other)]
        assert (losses[0] != losses[1]) is uses


def test_cells_of_a_seed() -> None:
    found = list(cells(3))
    names = [cell.name for cell in found]
    assert len(found) == 8 + 2 + 2 + 2 + 8
    assert len(set(names)) == len(names)
    assert all(cell.recipe.train.seed == 3 and cell.recipe.train.patience > 0 for cell in found)
    for place, cell in enumerate(found):
        assert cell.start is None or cell.start in names[:place]
    tuned = {cell.columns[0]: cell for cell in found if cell.start}
    assert tuned["inverse"].recipe.train.batch_size == 50
    assert tuned["goal"].recipe.train.lr == 1e-5
    assert tuned["rc"].recipe.train.steps == 500 * 10
    assert tuned["bc"].recipe.train.steps == 2_000 * 2  # the published 10,000 epochs are cut like all others
    assert tuned["past"].recipe.base == "unimask-doorkey"


def test_task_loss_counts_every_factor_once_and_repeats() -> None:
    model = network()
    batch = any_batch(model.io, 30)
    first = task_loss(model, batch, "past", 100, seed=1)
    assert first == task_loss(model, batch, "past", 100, seed=1)
    assert first != task_loss(model, batch, "past", 100, seed=2)
    terms = task_loss(model, batch, "bc", 30, seed=1)
    assert terms > 0


LOSSES = {
    "bc": {"bc": [1.0, 3.0], "rc": [4.0, 4.0]},
    "rc": {"bc": [4.0, 4.0], "rc": [1.0, 3.0]},
    "dt-bc": {"bc": [1.0]},
}
MAP = HeatMap(500, 10, LOSSES)


def test_means_and_multiples_by_hand() -> None:
    assert MAP.means() == {"bc": {"bc": 2.0, "rc": 4.0}, "rc": {"bc": 4.0, "rc": 2.0}, "dt-bc": {"bc": 1.0}}
    assert normalized(MAP.means()) == {"bc": {"bc": 2.0, "rc": 2.0}, "rc": {"bc": 4.0, "rc": 1.0}, "dt-bc": {"bc": 1.0}}


def test_seeds_are_counted_once_and_the_note_says_how_many_each_cell_has(tmp_path: Path) -> None:
    assert "500 trajectories, mean of 1 to 2 training seeds, at most" in as_study(MAP).note  # dt-bc has one
    assert "mean of 2 training seeds," in as_study(MAP._replace(losses={"bc": LOSSES["bc"]})).note
    assert "mean of 1 training seed," in as_study(MAP._replace(losses={"dt-bc": LOSSES["dt-bc"]})).note
    finished_cell(tmp_path)
    assert collect(tmp_path, [0, 0], 500, 2_000).losses == {"bc": {"bc": [1.0]}}


def test_the_drawn_map_names_its_rows_and_columns(tmp_path: Path) -> None:
    drawn = draw_heatmap(MAP, tmp_path / "map.svg").read_text()
    assert drawn.count("<!-- trained on -->") == 1  # both maps have the same rows
    assert drawn.count("<!-- tested on -->") == 2


def test_the_published_map_is_the_papers() -> None:
    found = published_losses(500)
    assert set(found) == set(ROWS)
    assert found["rnd-ft"]["forward"] == 0.000304
    assert found["bc"] == dict(zip(COLUMNS, (1.08, 1.08, 1.1, 1.12, 7.25, 6.9, 5.64, 5.66), strict=True))
    assert found["dt-rc"] == {"bc": 1.12, "rc": 1.08}
    # its own normalized map: every column's best is 1, and the printed multiples come out
    multiples = normalized(found)
    assert multiples["rnd"]["inverse"] == pytest.approx(1.151, abs=0.01)
    assert multiples["waypoint"]["waypoint"] == pytest.approx(1.249, abs=0.01)
    assert published_losses(77) == {}


def test_agreement_with_a_map_is_one_for_itself_and_minus_one_for_its_mirror() -> None:
    published = published_losses(500)
    assert rank_agreement(published, published) == {column: pytest.approx(1.0) for column in COLUMNS}
    mirrored = {row: {c: -v for c, v in values.items()} for row, values in published.items()}
    assert rank_agreement(mirrored, published)["past"] == pytest.approx(-1.0)


def test_the_note_averages_the_correlations_of_columns() -> None:
    """Losses of past are several times those of bc, which alone would make a rank correlation over both 0.94."""
    losses = {row: {"bc": [1.0 + i], "past": [10.0 + i]} for i, row in enumerate(("bc", "rc", "goal"))}
    # published bc: 1.08, 1.12, 1.26, as ours; past: 7.25, 7.19, 7.47, so 1 - 6 (1 + 1 + 0) / (3 * 8) = 0.5
    study = as_study(MAP._replace(losses=losses))
    assert study.rows[-1][1:6] == ("1", "", "", "", "0.5")
    assert study.note.endswith(" The rank correlation with it is 0.75, the mean over columns.")


def finished_cell(folder: Path) -> heatmap.Cell:
    """The first of seed 0, with a loss of 1."""
    cell = next(cells(0))
    (folder / cell.name).mkdir()
    (folder / cell.name / "train_config.json").write_text(cell.recipe.to_json())
    (folder / cell.name / heatmap.LOSSES).write_text('{"bc": 1.0}')
    return cell


@pytest.mark.parametrize(("episodes", "epochs"), [(50, 2_000), (500, 10)])
def test_finished_cells_of_other_settings_are_not_taken(tmp_path: Path, episodes: int, epochs: int) -> None:
    cell = finished_cell(tmp_path)
    nothing = any_batch(network().io, 1)
    assert run_cell(cell, tmp_path, nothing) == {"bc": 1.0}
    assert collect(tmp_path, [0], 500, 2_000).losses == {"bc": {"bc": [1.0]}}
    other = next(cells(0, episodes, epochs))
    with pytest.raises(TrainingError, match=r"bc-s0 holds a run .*train.steps: 4000 there.*another --out"):
        run_cell(other, tmp_path, nothing)
    with pytest.raises(TrainingError, match="bc-s0 holds a run"):
        collect(tmp_path, [0], episodes, epochs)
    with pytest.raises(ConfigError, match="holds no finished training on 500 trajectories with seed 3 or 4"):
        collect(tmp_path, [3, 4], 500, 2_000)


@pytest.mark.slow
def test_a_small_map_end_to_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    build("doorkey/train-50", BuildOptions())
    monkeypatch.setattr(heatmap, "HELD_OUT", "zoo/doorkey/train-50-v0")  # fewer windows to measure on
    monkeypatch.setattr(heatmap, "WINDOWS", 50)
    out = tmp_path / "map"
    settings = ["--seed", "0", "--episodes", "50", "--epochs", "4", "--json"]
    command = ["research", "unimask", "heatmap", "--out", str(out), *settings]
    done = CliRunner().invoke(cli.app, command)
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert set(found["losses"]) == set(ROWS)
    assert all(set(found["losses"][row]) == set(COLUMNS) for row in ROWS if not row.startswith("dt-"))
    assert set(found["losses"]["dt-bc"]) == {"bc", "rc"}
    assert all(np.isfinite(value) for row in found["losses"].values() for v in row.values() for value in v)
    for name in ("heatmap.png", "heatmap-normalized.png"):
        assert (out / name).stat().st_size > 20_000
    # a fine-tune starts from the network of random masks, not from noise
    rows = (out / "rnd-ft-past-s0" / "training_log.csv").read_text().splitlines()
    assert float(dict(zip(rows[0].split(","), rows[1].split(","), strict=True))["eval_return"]) < 0
    # a cell that was lost is made again, bit for bit; the others stay
    before = {path: path.stat().st_mtime_ns for path in out.glob("*/losses.json")}
    lost = out / "bc-s0" / "losses.json"
    kept = lost.read_text()
    lost.unlink()
    (out / "goal-s0" / "checkpoint.safetensors").unlink()  # what is measured needs none
    assert set(collect(out, [0], 50, 4).losses) == set(ROWS) - {"bc"}
    assert CliRunner().invoke(cli.app, command).exit_code == 0
    assert lost.read_text() == kept
    assert all(path.stat().st_mtime_ns == at for path, at in before.items() if path != lost)
