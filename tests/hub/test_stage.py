"""Staging a run: what is wrong is found before measuring, and nothing is lost to a picture."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from conftest import make_agent
from typer.testing import CliRunner

from agentzoo.agent import Agent
from agentzoo.cli import app
from agentzoo.data.making.collect import Rollout
from agentzoo.data.minari import load_episodes, write_dataset
from agentzoo.data.targets import CONSTANTS
from agentzoo.errors import CheckpointError, ConfigError, SpaceError, StorageError, UnknownNameError
from agentzoo.evaluation.baselines import Baselines, write_baselines
from agentzoo.evaluation.results import Baseline, Result, Results, evaluate
from agentzoo.evaluation.study import Study, write_study
from agentzoo.hub.card import card_text
from agentzoo.hub.finished_runs import RESULT, headline, measured
from agentzoo.hub.records import read_records
from agentzoo.hub.stage import stage
from agentzoo.hub.staging_measurements import Tally, best_of, facts_of, in_other_modes, video
from agentzoo.hub.stored_weights import convert_weights
from agentzoo.hub.studies import show_studies
from agentzoo.hub.verify import check_files
from agentzoo.models.dm import DMConfig
from agentzoo.recipe import DataConfig, Recipe
from agentzoo.record import read_record
from agentzoo.store.tensors import check_header, load_strict, read_tensors, save_tensors
from agentzoo.training import log
from hub.cases import finished, quickly, rewritten
from hub.conftest import edit, make_folder


class Blind(gym.Wrapper[Any, Any, Any, Any]):
    """A Hopper that renders nothing."""

    def render(self) -> Any:
        return None


def blind_hopper(render_mode: str | None = None) -> gym.Env[Any, Any]:
    return Blind(gym.make("Hopper-v5", max_episode_steps=20, render_mode=render_mode))


def test_a_target_is_staged_with_its_rule(tiny_hopper: str, tmp_path: Path) -> None:
    counts: list[tuple[int, int]] = []
    run = finished(tmp_path / "run", tiny_hopper)
    folder = quickly(run, tmp_path / "zoo", target="max", on_episodes=lambda *count: counts.append(count))
    config, recipe, results = read_records(folder)
    best = float(load_episodes(tiny_hopper).returns.max())
    assert (recipe.eval.target_return, recipe.eval.target_rule) == (best, "max")
    assert config.target_return == results.headline.target_return == best
    assert "The target is the best return in the data." in card_text(folder)
    stored = {kind for name, (kind, _) in check_header(folder / "model.safetensors").items() if "obs_" not in name}
    assert stored == {"F16"}
    assert results.headline.weights_sha256 == config.weights_sha256  # of what is stored
    planned = results.headline.episodes + 1  # and the video
    assert counts[-1] == (planned, planned)
    assert [played for played, _ in counts] == sorted(played for played, _ in counts)


def test_other_seeds_are_asked_for_the_staged_target_and_keep_their_own_measurement(
    tiny_hopper: str, tmp_path: Path
) -> None:
    run = finished(tmp_path / "run", tiny_hopper, family="dt")
    other = rewritten(finished(tmp_path / "other", tiny_hopper, family="dt"), train__seed=1)
    own = measured(other, 2)
    folder = quickly(run, tmp_path / "zoo", target="12.5", seeds=[other])
    (row,) = read_records(folder)[2].seeds
    assert (row.target_return, row.training_seed) == (12.5, 1)
    rounded = quickly(rewritten(other, agent_id="dt-other"), tmp_path / "zoo", target="12.5")
    assert row.returns == read_records(rounded)[2].headline.returns
    assert row.weights_sha256 == read_records(rounded)[0].weights_sha256
    assert Result.from_json((other / RESULT).read_text(), "kept") == own
    assert own.target_return == 100.0


def test_options_of_the_environment_leave_a_staged_target_without_a_constant(
    tiny_hopper: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(CONSTANTS, "Hopper", 10.0)  # these episodes reach it
    run = finished(tmp_path / "run", tiny_hopper)
    edit(run, "config.json", env_options={"ctrl_cost_weight": 0.1})
    edit(run, "train_config.json", eval__env_options={"ctrl_cost_weight": 0.1})
    assert read_records(quickly(run, tmp_path / "zoo", target="d4rl"))[1].eval.target_rule == "max"


def test_a_staged_agent_has_the_baselines_of_its_dataset(tiny_hopper: str, tmp_path: Path) -> None:
    run, zoo = finished(tmp_path / "run", tiny_hopper, family="dt"), tmp_path / "zoo"
    head = read_records(quickly(run, zoo))[2].headline
    row = Baseline(method="bc", trained_with="by hand", result=head)
    write_baselines(zoo / "baselines.json", Baselines().with_row(tiny_hopper, row).with_row("other/x-v0", row))
    folder = quickly(run, zoo)
    assert read_records(folder)[2].yardsticks == (row,)
    assert "It **ties with** behaviour cloning" in card_text(folder)


@pytest.mark.slow
def test_an_agent_that_ignores_its_target_in_an_environment_without_render_is_staged(
    tiny_hopper: str, tmp_path: Path
) -> None:
    gym.register("tests/Blind-v0", entry_point=blind_hopper)
    try:
        run = finished(tmp_path / "run", tiny_hopper, "tests/Blind-v0")
        progress_lines: list[str] = []
        folder = stage(run, tmp_path / "zoo", "a test machine", sweep_episodes=1, on_progress=progress_lines.append)
    finally:
        del gym.registry["tests/Blind-v0"]
    assert any("renders nothing" in what for what in progress_lines)
    results = Results.from_json((folder / "results.json").read_text(), "results.json")
    assert results.spearman is None
    for one in (results.headline, *results.targets):  # measured before anything lies there
        assert str(one.command).startswith(f"agentzoo evaluate dt-test -n {one.episodes} --seed 0 --target ")
    assert (results.plotted, results.filmed) == (True, False)
    assert "replay.mp4" not in card_text(folder)
    assert all(check.holds is not False for check in check_files(folder)[2])
    for name in ("targets.png", "training_log.csv"):  # what a Hub's cache and the wheel leave out
        (folder / name).unlink()
    assert all(check.holds is not False for check in check_files(folder)[2])


def test_what_can_be_wrong_is_found_before_anything_is_measured(tiny_hopper: str, tmp_path: Path) -> None:
    run, zoo = finished(tmp_path / "run", tiny_hopper), tmp_path / "zoo"
    write_study(Study(title="no picture here", picture="gone.png"), tmp_path / "study")
    write_study(Study(title="words"), tmp_path / "words")
    other = rewritten(finished(tmp_path / "other", tiny_hopper), train__lr=0.5, train__seed=1)
    again = finished(tmp_path / "again", tiny_hopper)
    twins = [rewritten(finished(tmp_path / name, tiny_hopper), train__seed=1) for name in ("twin", "second")]
    elsewhere = rewritten(finished(tmp_path / "elsewhere", tiny_hopper), data__dataset="zoo/hopper/medium-v0")
    progress_lines: list[str] = []
    wrong: tuple[tuple[dict[str, Any], type[Exception], str], ...] = (
        ({"studies": [tmp_path / "study"]}, CheckpointError, "gone.png, which is missing beside it"),
        ({"studies": [tmp_path / "nothing"]}, CheckpointError, "no study at"),
        ({"studies": [tmp_path / "words"] * 5}, ConfigError, "at most 4 studies, got 5"),
        ({"seeds": [other]}, ConfigError, r"other cannot be shown beside dt-test: train.lr is 0.5 instead of 0.0001"),
        ({"seeds": [again]}, ConfigError, r"again has training seed 0 again; each run needs another seed"),
        ({"seeds": twins}, ConfigError, r"second has training seed 1 again"),
        (
            {"baselines": [elsewhere]},
            ConfigError,
            r"data.dataset is 'zoo/hopper/medium-v0' instead of 'zoo/hopper/tiny",
        ),
    )
    saved = make_agent("Hopper-v5").save_pretrained(tmp_path / "saved")
    with pytest.raises(
        CheckpointError, match=r"saved has no training_log.csv: it is a saved agent, not the folder of a"
    ):
        stage(saved, zoo, "a test machine", on_progress=progress_lines.append)
    for options, error, said in wrong:
        with pytest.raises(error, match=said):
            stage(run, zoo, "a test machine", on_progress=progress_lines.append, **options)
    assert progress_lines == []
    assert not list(zoo.iterdir())
    notes = finished(tmp_path / "dt-test", tiny_hopper) / "notes.txt"
    notes.write_text("mine")
    for start, said in ((notes.parent, "is the run itself"), (run, r"also holds notes\.txt")):
        for force in (False, True):
            with pytest.raises(StorageError, match=said):
                stage(start, tmp_path, "a test machine", force=force, on_progress=progress_lines.append)
    assert progress_lines == []
    assert notes.read_text() == "mine"


def test_the_facts_on_a_card_are_of_what_it_learned_from(tiny_hopper: str, tmp_path: Path) -> None:
    run = rewritten(finished(tmp_path / "run", tiny_hopper), data__best_fraction=0.5)
    folder = quickly(run, tmp_path / "zoo")
    episodes = load_episodes(tiny_hopper)
    order = sorted(zip(episodes.returns, episodes.lengths, strict=True), reverse=True)
    best = [one for i, one in enumerate(order) if sum(length for _, length in order[: i + 1]) <= len(episodes) / 2]
    assert 0 < len(best) < len(order)
    facts = read_records(folder)[2].dataset
    assert (facts.episodes, facts.steps) == (len(best), sum(length for _, length in best))
    assert facts.mean_return == pytest.approx(np.mean([value for value, _ in best]))
    assert "The data, the best episodes up to 50 % of its steps: " in card_text(folder)


@pytest.mark.parametrize(
    ("made", "said"),
    [
        ({"algorithm_name": "chance"}, "Made by the algorithm chance."),
        ({"description": "Played by hand", "algorithm_name": "chance"}, "Played by hand."),
        ({"description": "Played by hand."}, "Played by hand."),
    ],
)
def test_a_card_says_in_a_sentence_how_data_was_made(
    made: dict[str, str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    cart, ends = gym.make("CartPole-v1"), np.array([False, True])
    one = Rollout(0, np.zeros((3, 4), np.float32), np.zeros(2, int), np.ones(2), ends, np.zeros(2, bool))
    write_dataset("my/cart-v0", [one], env=cart, **made)
    assert facts_of(DataConfig(dataset="my/cart-v0"), load_episodes("my/cart-v0")).made_by == said


def test_final_weights_that_did_best_have_no_second_row(tiny_hopper: str, tmp_path: Path) -> None:
    run = finished(tmp_path / "run", tiny_hopper)
    recipe = read_record(Recipe, run / "train_config.json").override(["eval.episodes=1"])
    assert best_of(run, recipe, "float16", False, lambda _: None, Tally()) is None  # nothing was kept
    shutil.copyfile(run / "model.safetensors", run / "best.safetensors")
    assert best_of(run, recipe, "float16", False, lambda _: None, Tally()) is None
    tensors, _ = read_tensors(run / "best.safetensors")
    next(iter(tensors.values())).add_(1.0)
    save_tensors(run / "best.safetensors", tensors)
    last = evaluate(Agent.from_pretrained(run), episodes=1)
    found = best_of(run, recipe, "float16", False, lambda _: None, Tally())
    assert found is not None
    assert (found.checkpoint, found.weights_sha256) == ("best", None)  # no weights that are staged
    agent = Agent.from_pretrained(run)
    load_strict(agent.model, run / "best.safetensors")
    wide = evaluate(agent, episodes=1)
    shutil.copyfile(run / "best.safetensors", run / "model.safetensors")
    convert_weights(run, "float16")
    assert found.returns == evaluate(Agent.from_pretrained(run), episodes=1).returns
    assert len({found.returns, wide.returns, last.returns}) == 3


@pytest.mark.slow
def test_without_matplotlib_an_agent_is_staged_without_its_plot(
    tiny_hopper: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("matplotlib", "matplotlib.figure"):
        monkeypatch.setitem(sys.modules, module, None)
    progress_lines: list[str] = []
    run = finished(tmp_path / "run", tiny_hopper)
    folder = stage(run, tmp_path / "zoo", "a test machine", sweep_episodes=1, on_progress=progress_lines.append)
    assert any("agentzoo[plots]" in what for what in progress_lines)
    results = Results.from_json((folder / "results.json").read_text(), "results.json")
    assert (len(results.targets), results.plotted) == (8, False)
    assert not (folder / "targets.png").exists()
    assert "targets.png" not in (folder / "README.md").read_text()


def test_the_video_of_a_short_episode_shows_every_step(tmp_path: Path) -> None:
    agent = make_agent()
    (length,) = evaluate(agent, episodes=1).lengths
    assert video(agent, tmp_path / "replay.mp4", length, False, lambda _: None)
    import imageio.v2 as imageio

    with imageio.get_reader(tmp_path / "replay.mp4") as reader:
        assert reader.count_frames() >= length


def test_a_headline_is_of_the_weights_beside_it(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "dt-test")
    assert headline(folder, 1).episodes == 3
    weights = bytearray((folder / "model.safetensors").read_bytes())
    weights[-1] ^= 1
    (folder / "model.safetensors").write_bytes(weights)
    with pytest.raises(CheckpointError, match=r"no valid record: sha256 .* differs from"):
        headline(folder, 1)


def test_pictures_of_one_name_stay_apart(tmp_path: Path) -> None:
    agent, studies = make_folder(tmp_path / "dt-test"), [tmp_path / "a", tmp_path / "b"]
    for path in studies:
        write_study(Study(title=f"study {path.name}", picture="plot.png"), path)
        (path / "plot.png").write_text(path.name)
    show_studies(agent, studies)
    shown = {one.title: (agent / str(one.picture)).read_text() for one in read_records(agent)[2].studies}
    assert shown == {"study a": "a", "study b": "b"}


def test_after_the_other_acting_modes_an_agent_has_its_own_again() -> None:
    agent = make_agent(model=DMConfig(embed_dim=16, n_layers=1, state_size=4))
    own = agent.acting
    (found,) = in_other_modes(agent, 1, False, lambda _: None, Tally())
    assert {found.acting, own} == {"window", "recurrent"}
    assert agent.acting == own


def test_time_and_updates_on_a_card_are_of_the_last_rows(
    tiny_hopper: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agentzoo.hub.staging_measurements.video", lambda *_: False)
    run, baseline = (finished(tmp_path / name, tiny_hopper) for name in ("run", "baseline"))
    for folder, step in ((run, 20), (baseline, 30)):
        columns = [*log.COLUMNS, "eval_return", "eval_score", "action_mse"]
        log.append_row(folder, columns, {"step": step, "loss": 0.1, "action_mse": 0.1, "seconds": step / 10})
    results = read_records(quickly(run, tmp_path / "zoo", baselines=[baseline]))[2]
    assert (results.training.seconds, results.training.updates, results.baselines[0].updates) == (2.0, 20, 30)


def test_a_recipe_file_trains_what_it_says_and_a_wrong_environment_is_found_at_once(
    tiny_hopper: str, tmp_path: Path
) -> None:
    run = finished(tmp_path / "run", tiny_hopper, family="dt")
    recipe = Recipe.from_json((run / "train_config.json").read_text(), "recipe")
    settings = ["--set", "train.steps=2", "--set", "eval.every=0", "--device", "cpu", "--out", str(tmp_path / "again")]
    done = CliRunner().invoke(app, ["train", str(run / "train_config.json"), *settings])
    assert done.exit_code == 0, done.output
    trained = Agent.from_pretrained(tmp_path / "again")
    assert trained.recipe is not None
    assert trained.recipe.model == recipe.model
    assert np.isfinite(trained.predict(np.zeros(11, np.float32))[0]).all()
    done = CliRunner().invoke(app, ["train", str(tmp_path / "nofile.json")])
    assert isinstance(done.exception, ConfigError)
    assert "no recipe file" in str(done.exception)
    for env, error in (("Hoper-v5", UnknownNameError), ("Walker2d-v5", SpaceError)):
        wrong = ["--set", "eval.every=1", "--set", f"eval.env={env}", "--out", str(tmp_path / "wrong")]
        done = CliRunner().invoke(app, ["train", str(run / "train_config.json"), *wrong])
        assert isinstance(done.exception, error), done.output
        assert not (tmp_path / "wrong").exists()
