"""Trainings side by side: real evaluations of small agents, and the staged agents' own records."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from hub.conftest import edit
from PIL import Image
from rich.table import Table
from typer.testing import CliRunner

from agentzoo.agent import Agent
from agentzoo.cli import app
from agentzoo.cli.console import console, fits
from agentzoo.errors import CheckpointError, ConfigError, DataError
from agentzoo.evaluation.results import evaluate
from agentzoo.evaluation.study import read_study
from agentzoo.hub.paper_scores import elsewhere
from agentzoo.models.gpt2_dt import GPT2DTConfig
from agentzoo.recipe import Recipe, Stretch, load_recipe
from agentzoo.record import read_record
from agentzoo.research.studies.comparison import as_study, compare, differences, draw_comparison, several
from agentzoo.research.studies.families import as_study as families_study
from agentzoo.research.studies.families import draw_profiles, over_families
from agentzoo.store.files import RECIPE
from research.cases import a_run

CARDS = Path(__file__).resolve().parents[2] / "hub_cards"
THREE_SEEDS = CARDS / "bc-hopper-medium"


def test_runs_are_measured_once_and_seeds_go_together(tmp_path: Path) -> None:
    runs = [
        a_run(tmp_path / "a", "dt-test"),
        a_run(tmp_path / "b", "dt-test", 1),
        a_run(tmp_path / "c", "bc-test", 0, "bc"),
    ]
    progress_lines: list[str] = []
    whole, cloned = compare(runs, 3, progress_lines.append)
    assert len(progress_lines) == 3
    assert [result.training_seed for result in whole.results] == [0, 1]
    assert cloned.results[0].returns == evaluate(Agent.from_pretrained(runs[2]), episodes=3).returns
    assert compare(runs, 3, progress_lines.append)[0] == whole
    assert len(progress_lines) == 3
    study = as_study([whole, cloned], "x")
    assert study.columns == ("agent", "differs in", "return", "each seed", "length")
    assert [row[1] for row in study.rows] == ["—", "behaviour cloning, model.n_layers=3"]
    low, high = whole.results[0].return_interval
    first = f"{whole.results[0].mean_return:.1f} [{low:.1f}, {high:.1f}]"
    mean = f"{whole.results[0].mean_return:.1f}"
    assert study.rows[0][2:4] == (f"{mean} ± 0.0 [{mean}, {mean}]", f"{first}; {first}")  # of the same weights here
    assert study.rows[1][2].endswith("], one seed")
    assert study.rows[1][3] == ""


def test_a_single_episode_has_no_interval(tmp_path: Path) -> None:
    runs = [a_run(tmp_path / "a", "dt-test"), a_run(tmp_path / "b", "dt-test", 1), a_run(tmp_path / "c", "dt-two")]
    (both, alone) = compared = compare(runs, 1)
    mean = f"{alone.results[0].mean_return:.1f}"
    study = as_study(compared, "x")
    assert study.columns == ("agent", "differs in", "return", "each seed", "length")
    assert [row[3] for row in study.rows] == [f"{mean}; {mean}", ""]
    assert study.rows[1][2:] == (f"{mean}, one seed", "", "8.00")
    assert study.note.startswith("1 episode of each with ")
    draw_comparison(compared, tmp_path / "x.svg")
    assert both.scores()[0][0] == alone.results[0].mean_return


def test_a_rounded_zero_has_no_minus_sign() -> None:
    assert several([(-0.001, -0.004, 0.002)]) == "0.00 [0.00, 0.00]"


def test_a_folder_of_runs_is_told_from_a_stopped_run(tmp_path: Path) -> None:
    a_run(tmp_path / "my grid" / "a", "dt-test")
    with pytest.raises(
        CheckpointError, match=r"is a folder of runs, not a run; name the runs in it: '.*/my grid'/\*\."
    ):
        compare([tmp_path / "my grid"], 1)
    with pytest.raises(CheckpointError, match="`agentzoo train` continues a stopped run"):
        compare([tmp_path], 1)


def test_seeds_that_were_trained_on_other_machines_go_together(tmp_path: Path) -> None:
    runs = [a_run(tmp_path / "a", "dt-test"), a_run(tmp_path / "b", "dt-test", 1)]
    at = runs[1] / RECIPE
    stretch = Stretch(
        from_update=0, processes=1, devices=("cuda (NVIDIA H200)",), precision="bf16", threads=1, torch="2.11.0"
    )
    at.write_text(read_record(Recipe, at).replace(ran=(stretch,)).to_json())
    (both,) = compare(runs, 2)
    assert [result.training_seed for result in both.results] == [0, 1]


def with_data_hash(run: Path, data: str | None) -> Path:
    """The run with this hash of its data in the recipe."""
    recipe = read_record(Recipe, run / RECIPE)
    (run / RECIPE).write_text(recipe.replace(data=recipe.data.model_copy(update={"dataset_sha256": data})).to_json())
    return run


def test_a_missing_dataset_hash_does_not_split_seeds(tmp_path: Path) -> None:
    runs = [
        with_data_hash(a_run(tmp_path / f"{seed}", "dt-test", seed), data)
        for seed, data in enumerate((None, "a" * 64, "a" * 64, "b" * 64))
    ]
    three, other = compare(runs, 2)
    assert [one.training_seed for one in three.results] == [0, 1, 2]
    assert [one.training_seed for one in other.results] == [3]
    again = with_data_hash(a_run(tmp_path / "again", "dt-test", 1), None)
    with pytest.raises(DataError, match=r"1 and .*again have the same recipe and training seed"):
        compare([*runs, again], 2)


def test_runs_of_one_name_that_differ_in_more_than_the_seed_get_rows_of_their_own(tmp_path: Path) -> None:
    runs = [
        a_run(tmp_path / "a", "dt-test"),
        a_run(tmp_path / "b", "dt-test", 1),
        a_run(tmp_path / "c", "dt-test", lr=0.5),
    ]
    both, faster = compared = compare(runs, 2)
    assert [len(both.results), len(faster.results)] == [2, 1]
    assert [row[:2] for row in as_study(compared, "x").rows] == [("dt-test", "—"), ("dt-test", "train.lr=0.5")]
    draw_comparison(compared, tmp_path / "x.svg")
    assert "<!-- train.lr=0.5 -->" in (tmp_path / "x.svg").read_text()


def test_many_seeds_and_a_long_title_fit_the_record() -> None:
    (staged,) = compare([THREE_SEEDS], 100)
    for count, cell in ((12, "; ".join(["41.7"] * 12)), (70, ("41.7; " * 40)[:189] + "…")):
        study = as_study([staged._replace(results=staged.results[:1] * count)], "long " * 50)
        assert study.rows[0][2] == "41.7 ± 0.0 [41.7, 41.7]"
        assert study.rows[0][3] == cell
        assert len(study.title) == 190


def test_staged_agents_bring_their_headline_and_their_seeds() -> None:
    several, alone = compare([THREE_SEEDS, CARDS / "dtma-hopper-medium"], 100)
    study = as_study([several, alone], "x")
    assert study.columns == (
        *("agent", "differs in", "normalized score", "each seed", "length", "within 2 points of its end", "published"),
    )
    name, _, over, each, _, soon, published = study.rows[0]
    assert (name, published) == ("bc-hopper-medium", "63.9")
    assert over == "44.9 ± 6.7 [40.4, 52.7]"  # as on its card
    assert each == "41.7 [37.3, 46.7]; 52.7 [47.1, 58.4]; 40.4 [36.1, 45.1]"
    assert re.fullmatch(r"[\d,]+ updates, \d+ minutes, from 1 of 3 seeds", soon)  # its only log
    assert "a staged agent holds the log of one seed" in study.note
    assert study.rows[1][2:4] == ("95.2 [94.5, 95.6], one seed", "")
    assert re.fullmatch(r"[\d,]+ updates, \d+ minutes", study.rows[1][5])
    assert study.rows[1][6] == "65.2 ± 2.3"


def test_a_seed_that_a_staged_agent_brings_is_not_counted_twice(tmp_path: Path) -> None:
    staged = THREE_SEEDS
    shutil.copytree(staged, tmp_path / "run")
    recipe = read_record(Recipe, staged / "train_config.json").override(["train.seed=2"])
    (tmp_path / "run" / "train_config.json").write_text(recipe.to_json())
    with pytest.raises(DataError, match="training seed 0 of bc-hopper-medium occurs twice"):
        compare([staged, tmp_path / "run"], 100)


def test_families_share_tasks_by_hand(tmp_path: Path) -> None:
    """chibit has three runs on each task, dm one, of which others are dropped here; bc has neither task."""
    folders = [CARDS / "chibit-hopper-medium", CARDS / "chibit-hopper-medium-replay", CARDS / "bc-walker2d-medium"]
    for name in ("dm-hopper-medium", "dm-hopper-medium-replay"):
        folders.append(Path(shutil.copytree(CARDS / name, tmp_path / name)))
        edit(tmp_path / name, "results.json", seeds=[])
    found = over_families(compare(folders, 100))
    assert found is not None
    assert found.tasks == ("hopper-medium", "hopper-medium-replay")
    assert found.single == ("dm",)
    assert found.means["dm"].value == pytest.approx((95.55 + 44.84) / 2, abs=0.01)
    chance = found.improvement["dm", "chibit"].value
    assert chance == pytest.approx((3 / 3 + 2 / 3) / 2)  # on one task it beats every run, on the other two of three
    assert found.means["chibit"].value == pytest.approx((27.9 + 72.5 + 84.4 + 87.2) / 4, abs=0.05)  # no 26.2, no 97.7
    first, second = families_study(found).rows
    assert first == ("dm", "2", "70.2, one run per task", "")
    assert second == ("chibit", "6", "68.0 [49.8, 91.0]", "0.17 [0.00, 0.50]")
    draw_profiles(found, tmp_path / "x.svg")
    assert "<!-- share of runs above it -->" in (tmp_path / "x.svg").read_text()
    assert over_families(compare([CARDS / "dt-hopper-medium", CARDS / "bc-walker2d-medium"], 100)) is None


def test_a_comparison_of_one_family_removes_the_study_of_several(tmp_path: Path) -> None:
    arguments = ["research", "compare", "--out", str(tmp_path / "out")]
    several = [str(CARDS / name) for name in ("dt-hopper-medium", "bc-hopper-medium")]
    for agents, kept in ((several, ["profiles.png", "study.json"]), (several[:1], [])):
        done = CliRunner().invoke(app, [*arguments, *agents], catch_exceptions=False)
        assert done.exit_code == 0
        assert sorted(path.name for path in (tmp_path / "out" / "families").glob("*")) == kept


def test_two_recipes_of_one_family_are_two_methods() -> None:
    (staged,) = compare([CARDS / "dt-hopper-medium"], 100)
    faster = staged._replace(recipe=staged.recipe.override(["train.lr=0.5"]))
    found = over_families([staged, faster])
    assert found is not None
    assert list(found.means) == ["dt", "dt, train.lr=0.5"]
    assert found.improvement["dt", "dt, train.lr=0.5"].value == pytest.approx(0.5)


def test_recipes_whose_names_are_cut_to_the_same_text_stay_apart() -> None:
    (staged,) = compare([CARDS / "dt-hopper-medium"], 100)
    long = ["model.dropout=0.25", "train.lr=0.00025", "train.weight_decay=0.5", "train.batch_size=32"]
    others = [staged._replace(recipe=staged.recipe.override([*long, f"eval.every={every}"])) for every in (10, 20)]
    found = over_families([staged, *others])
    assert found is not None
    first, second, third = found.means
    assert (first, third) == ("dt", f"{second} (2)")
    assert second.startswith("dt, model.dropout=0.25, ")
    assert families_study(found).rows[0][1] == "3"  # runs


def test_a_panel_with_a_run_that_has_no_score_shows_returns(tmp_path: Path) -> None:
    (staged,) = compare([CARDS / "dt-hopper-medium"], 100)
    plain = tuple(one.model_copy(update={"score": None, "score_interval": None}) for one in staged.results)
    other = staged._replace(recipe=staged.recipe.override(["train.lr=0.5"]), results=plain)
    assert (staged.normalized, other.normalized) == (True, False)
    draw_comparison([staged, other], tmp_path / "x.svg")
    drawn = (tmp_path / "x.svg").read_text()
    assert "<!-- return, 95 % interval -->" in drawn  # no cross: papers print scores
    assert "<!-- 3040 -->" in drawn  # a tick: the seeds return about 3,046, 3,039 and 3,060
    draw_comparison([staged], tmp_path / "y.svg")
    assert "<!-- normalized score, 95 % interval (cross: published) -->" in (tmp_path / "y.svg").read_text()


def test_a_finding_stands_before_what_the_columns_mean() -> None:
    compared = compare([CARDS / "dt-hopper-medium"], 100)
    plain = as_study(compared, "x").note
    assert as_study(compared, "x", finding="No difference.").note == f"No difference. {plain}"
    room = 1_000 - 1 - len(plain)
    assert len(as_study(compared, "x", finding="a" * room).note) == 1_000
    with pytest.raises(ConfigError, match=f"has {room + 1} characters; the note has room for {room}"):
        as_study(compared, "x", finding="a" * (room + 1))


def test_differences_are_what_one_would_set() -> None:
    whole, cut = load_recipe("dm-halfcheetah-medium-replay"), load_recipe("dm-halfcheetah-medium-replay-no-pser")
    assert differences(whole, cut) == "model.beta_final=0, model.beta_min=0"
    assert differences(whole, whole.override(["train.seed=3", "train.lr=0.01"])) == "train.lr=0.01"
    sizes = ["model.embed_dim=256", "model.n_heads=4", "model.timestep_rank=64", "model.max_ep_len=1000"]
    plain = load_recipe("dt-pointmaze-medium").override(sizes)
    mixed = "Decision Transformer with mixed attention, model.activation=gelu_pytorch_tanh"
    assert differences(plain, load_recipe("dtma-pointmaze-medium")) == mixed
    sized = plain.override(["model.embed_dim=64"])
    assert (
        differences(load_recipe("dtma-pointmaze-medium"), sized)
        == "Decision Transformer, model.embed_dim=64, model.activation=relu"
    )
    pretrained = load_recipe("gpt2-dtma-pointmaze-medium")
    pretrained = pretrained.replace(model=pretrained.model.model_copy(update={"markov_at_start": ((0.5, 1.0),) * 4}))
    assert differences(load_recipe("dtma-pointmaze-medium"), pretrained).endswith(
        ", model.backbone=lm-mini, train.batch_size=128"
    )
    mine, yours = (whole.replace(model=GPT2DTConfig(backbone="lm-x", backbone_sha256=c * 64)) for c in "ab")
    assert differences(mine, yours.override(["train.seed=1"])) == f"model.backbone_sha256={'b' * 64}"
    assert differences(mine, yours.override(["model.backbone=lm-y"])) == "model.backbone=lm-y"
    long = whole.override([f"data.dataset=zoo/{'x' * 180}-v0"])
    assert len(differences(whole, long)) == 190


def test_environments_share_a_table_and_have_panels_of_their_own(tmp_path: Path) -> None:
    """The first of each is what the others there are compared with."""
    slow, fast = a_run(tmp_path / "a", "dt-test"), a_run(tmp_path / "b", "dt-test", lr=0.5)
    staged, cloned = CARDS / "dt-hopper-medium", CARDS / "chibit-hopper-medium"
    compared = compare([slow, staged, fast, cloned], 3)
    counting = "tests/Counting-v0"
    assert [each.env for each in compared] == [counting, counting, "Hopper-v5", "Hopper-v5"]
    study = as_study(compared, "x")
    assert study.columns == (
        *("agent", "environment", "differs in", "normalized score", "return", "each seed", "length"),
        *("within 2 points of its end", "published"),
    )
    changes = [row[2] for row in study.rows]
    assert changes[:3] == ["—", "train.lr=0.5", "—"]
    assert changes[3].startswith("GPT-2 Decision Transformer, ")
    assert [bool(row[3]) for row in study.rows] == [False, False, True, True]
    assert [bool(row[4]) for row in study.rows] == [True, True, False, False]
    draw_comparison(compared, tmp_path / "x.svg")
    drawn = (tmp_path / "x.svg").read_text()
    for words in (counting, "Hopper-v5", "return, 95 % interval", "normalized score, 95 % interval"):
        assert f"<!-- {words}" in drawn


def test_methods_that_are_not_here_are_named_where_the_table_is_of_their_paper() -> None:
    whole, other = compare([CARDS / "gpt2-dt-hopper-medium", CARDS / "dt-hopper-medium"], 100)
    said = "Also there, for hopper-medium: CQL 57.7 ± 1.6 and DC 79.7 ± 1.1."
    assert as_study([whole, other], "x").note.endswith(said)
    assert "CQL" not in as_study([other], "x").note  # of the paper that has no DC
    assert elsewhere(["dt-pointmaze-medium", "x-hopper-medium-frozen"], "nobody") == {}


def test_a_folder_without_a_finished_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="no finished run"):
        compare([tmp_path], 1)


def test_a_narrow_terminal_gets_blocks_instead_of_broken_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = [str(CARDS / name) for name in ("bc-hopper-medium", "unimask-pointmaze-medium")]
    monkeypatch.setenv("COLUMNS", "80")  # without it, a pipe has no end of line
    shown = {}
    for width in (80, 300):
        monkeypatch.setattr(console, "width", width)
        shown[width] = CliRunner().invoke(app, ["research", "compare", *runs, "--out", str(tmp_path / "out")]).output
        for words in ("normalized score", "44.9 ± 6.7 [40.4, 52.7]", "unimask-pointmaze-medium", "0.99 [0.97, 1.00]"):
            assert words in shown[width]
    narrow = Table("a very long name of a column", "b")
    narrow.columns[0].no_wrap = True
    narrow.add_row("x", "y")
    for width, enough in ((28, False), (60, True)):
        monkeypatch.setattr(console, "width", width)
        assert fits(narrow) is enough
    assert shown[80].count("environment") == 2
    assert shown[300].count("environment") == 1


def test_the_command_draws_a_study_for_a_card(tmp_path: Path) -> None:
    runs = ["dt-hopper-medium", "zoo/dm-hopper-medium"]
    unknown = CliRunner().invoke(app, ["research", "compare", "dt-hoper-medium", "--out", str(tmp_path / "no")])
    assert "Did you mean 'dt-hopper-medium'" in str(unknown.exception)
    words = ["research", "compare", *runs, "--out", str(tmp_path / "out"), "--title", "A [b]title[/b]"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    assert "A [b]title[/b]" in done.output
    assert "success" not in done.output  # nothing to reach in Hopper
    assert read_study(tmp_path / "out" / "families").title == "Over hopper-medium"
    assert (tmp_path / "out" / "families" / "profiles.png").stat().st_size > 1_000
    study = read_study(tmp_path / "out")
    assert study.picture is not None
    assert "Chen et al. 2021" in study.note
    with Image.open(tmp_path / "out" / study.picture) as picture:
        assert len(picture.convert("RGB").getcolors(1 << 24)) > 10  # type: ignore[arg-type]


def test_a_score_beyond_its_interval_by_a_bit_is_drawn(tmp_path: Path) -> None:
    """Old records have this where all returns are equal."""
    (one,) = compare([a_run(tmp_path / "a", "dt-test")], 2)
    score = -3.198692505253328
    odd = one.results[0].model_copy(update={"score": score, "score_interval": (-3.198692505253327,) * 2})
    draw_comparison([one._replace(results=(odd,))], tmp_path / "x.svg")
    assert (tmp_path / "x.svg").stat().st_size > 1_000
