"""Cards: made from records, valid on the Hub, harmless whatever the records hold."""

from __future__ import annotations

import json
import math
import re
import shutil
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest
from conftest import largest_file, make_agent
from huggingface_hub import ModelCard
from typer.testing import CliRunner

from agentzoo.agent import Agent
from agentzoo.cli import app
from agentzoo.errors import CheckpointError, ConfigError, StorageError
from agentzoo.evaluation.results import Baseline, Result
from agentzoo.evaluation.study import Study, write_study
from agentzoo.hub.card import card_text, check_card, write_card
from agentzoo.hub.metadata import check_metadata, code, hub_name, inline
from agentzoo.hub.records import read_records
from agentzoo.hub.studies import show_studies
from agentzoo.models.bc import BCConfig
from agentzoo.models.dt import DTConfig
from agentzoo.models.unimask import UniMaskConfig
from agentzoo.nn.base import ModelConfig
from agentzoo.store.locate import staged_agents
from agentzoo.store.remote import is_repo_id
from hub.conftest import REPO, edit
from hub.server import Hub, Repo

STAGED = sorted(staged_agents().items())
ONE_OF_EACH = {(name.split("-")[0], name.split("-")[1]): (name, folder) for name, folder in STAGED}  # family and task
SECTIONS = ["How good is it", "Use it", "Limits", "Details"]
DETAILS = ["How it was trained", "How it was measured, and all rows", "Citation"]


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (BCConfig(embed_dim=16), "It reads the last 4 observations and nothing else, and predicts the next action."),
        (
            DTConfig(embed_dim=16),
            "It reads the last 4 steps (return-to-go, observation, action) and predicts the next action.",
        ),
        (UniMaskConfig(embed_dim=16, ffn_dim=16, acts_on_returns=False), "the last 4 steps (observation, action) and"),
    ],
)
def test_a_card_says_what_its_network_reads(model: ModelConfig, words: str, tmp_path: Path) -> None:
    assert words in card_text(make_agent(model=model).save_pretrained(tmp_path / "agent"))


@pytest.mark.parametrize(("agent_id", "folder"), STAGED)
def test_staged_cards_say_all_that_a_card_must(agent_id: str, folder: Path) -> None:
    text = (folder / "README.md").read_text()
    data = check_metadata(text)
    _, recipe, results = read_records(folder)
    license_ = recipe.model.weights_license()  # a backbone's own may ask for another
    assert license_ == ("apache-2.0" if agent_id.startswith("smollm-") else "mit")
    assert (data.library_name, data.license, data.pipeline_tag) == ("agentzoo", license_, "reinforcement-learning")
    assert {"reinforcement-learning", "offline-rl"} <= set(data.tags)
    assert data.datasets is None  # the zoo's own collections are not on the Hub
    head = results.headline
    assert data.model_name == agent_id
    first, *others = data.eval_results
    assert (first.metric_type, first.metric_value) == ("mean_reward", round(head.mean_return, 2))
    assert (first.dataset_type, first.dataset_name) == (hub_name(head.env), head.env)
    low, high = head.return_interval
    assert f"95 % interval {low:.2f} to {high:.2f}" in first.metric_name
    assert [one.metric_value for one in others] == ([] if head.score is None else [round(head.score, 2)])
    differs = ["Deviations from the paper"] if recipe.model.deviations() else []
    assert re.findall(r"^## (.*)$", text, flags=re.MULTILINE) == [*SECTIONS[:-1], *differs, SECTIONS[-1]]
    assert len(differs) == (recipe.model.family in ("dm", "unimask", "dt-pixel") or agent_id.startswith("chibit"))
    start = recipe.model.origin()
    if start is not None and start.backbone in ("lm-mini", "lm-chibi", "clip-mini"):
        line = text.split(f"# {agent_id}\n")[1].splitlines()[3]
        assert f"`{start.backbone}`" in line
        assert ("bits per byte" in line and "SmolLM2" in line) or "never was a language model" in line
    assert all(f"<summary>{one}</summary>" in text for one in DETAILS)
    assert len(text.split("## Details")[0].split("---\n")[2]) < 4_500  # a page
    for words in (
        "agentzoo train train_config.json",
        results.training.hardware,
        f"{recipe.train.steps:,} updates",
        "seed",
    ):
        assert words in text
    assert f"`{head.command}`" in text
    assert "@misc{" in text


@pytest.mark.parametrize(("agent_id", "folder"), ONE_OF_EACH.values())
def test_quickstart_of_a_staged_card_runs(agent_id: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With one episode of at most 100 steps: what is asked is whether the words are right."""
    make = gym.make
    monkeypatch.setattr(gym, "make", lambda env, **options: make(env, **({"max_episode_steps": 100} | options)))
    found = re.search(r"```python\n(.*?)```", (folder / "README.md").read_text(), flags=re.DOTALL)
    assert found
    scope: dict[str, Any] = {}
    exec(found[1].replace("n_envs=4", "n_envs=1").replace("n_eval_episodes=4", "n_eval_episodes=1"), scope)
    assert math.isfinite(scope["mean"])  # a maze may be lost


def test_a_fine_tune_names_the_repo_of_its_base_if_it_came_from_one(folder: Path) -> None:
    edit(folder, "train_config.json", base="dt-hopper-medium")
    for text in (card_text(folder), card_text(folder, "me/mine")):
        assert check_metadata(text).base_model is None  # a repo of that name may not exist
        assert "fine-tuned from `dt-hopper-medium`." in text
        assert "agentzoo finetune dt-hopper-medium --recipe" in text
    edit(folder, "train_config.json", base_repo="org/hopper", base_revision="0123456789" * 4)
    for text in (card_text(folder), card_text(folder, "me/mine")):
        assert check_metadata(text).base_model == "org/hopper"
        assert "fine-tuned from `org/hopper` at commit `012345678901`." in text
        assert f"agentzoo finetune org/hopper --revision {'0123456789' * 4} --recipe" in text


def test_a_training_that_ran_out_of_patience_says_so(folder: Path) -> None:
    planned = read_records(folder)[1].train.steps
    assert f"\n{planned:,} updates of " in card_text(folder)
    results = read_records(folder)[2]
    training = results.training.model_copy(update={"updates": 3})
    (folder / "results.json").write_text(results.model_copy(update={"training": training}).to_json())
    assert "\n3 updates of " in card_text(folder)
    edit(folder, "train_config.json", train__patience=1, eval__every=1)
    assert f"\n3 updates (of at most {planned:,}; its evaluations got no better) of " in card_text(folder)


def test_a_training_in_bfloat16_says_so(folder: Path) -> None:
    assert "bfloat16" not in card_text(folder)
    train = read_records(folder)[1].train.model_copy(update={"precision": "bf16"})
    edit(folder, "train_config.json", train=train.model_dump(mode="json"))
    assert f"seed {train.seed}, matrix products in bfloat16, " in card_text(folder)


def test_a_card_says_how_far_its_agent_can_be_trusted(folder: Path) -> None:
    results = read_records(folder)[2]
    assert "These are results of one training seed." in card_text(folder)
    head = results.headline

    def reaching(*returns: float, first: float = 100.0, spread: float = 5.0, episodes: int = 20) -> tuple[Result, ...]:
        """Targets 100, 200, ... above `first`; half of the episodes `spread` above the mean, half below."""
        return tuple(
            head.model_copy(
                update={
                    "target_return": first + 100.0 * i,
                    "episodes": episodes,
                    "mean_return": value,
                    "return_interval": (value - 5.0, value + 5.0),
                    "returns": tuple(value + side * spread for side in (-1.0, 1.0) * (episodes // 2)),
                }
            )
            for i, value in enumerate(returns)
        )

    def said(**changes: Any) -> str:
        (folder / "results.json").write_text(results.model_copy(update={"plotted": True, **changes}).to_json())
        return card_text(folder)

    more, flat = "show no further gain", "It hardly reacts to what it is asked for."
    assert f"Targets above 300 {more} (20 episodes per target)." in said(
        targets=reaching(100.0, 197.0, 200.0, 190.0)
    )  # 197 is less by 3 in every single episode, however wide its interval
    some = reaching(100.0, 197.0, 200.0, 190.0)
    noisy = (some[0], some[1].model_copy(update={"returns": some[1].returns[::-1]}), *some[2:])  # by 13 or by -7
    assert f"Targets above 200 {more}" in said(targets=noisy)
    assert more not in said(targets=reaching(100.0, 197.0, 200.0, 190.0, episodes=8))
    obeying = said(targets=reaching(100.0, 200.0, 300.0))
    assert (more in obeying, flat in obeying) == (False, False)
    below = said(targets=reaching(-1000.0, -900.0, -800.0, first=-1000.0))
    assert (more in below, flat in below) == (False, False)  # the span counts, not where zero is
    for returns in ((0.0, 0.0, 0.0), (500.0, 520.0, 540.0)):
        assert flat in said(targets=reaching(*returns))
    once = said(targets=reaching(80.0))
    assert (more in once, flat in once) == (False, False)
    _, high = head.return_interval
    above = results.dataset.model_copy(update={"mean_return": high + 1})
    assert "It returns less (" in said(dataset=above)
    assert "It returns less (" not in said(dataset=above.model_copy(update={"mean_return": high}))  # by chance
    seeds = tuple(head.model_copy(update={"mean_return": head.mean_return + add}) for add in (-1.0, 2.0))
    text = said(seeds=seeds)
    assert "one training seed" not in text
    assert "3 training seeds were measured. They return " in text


def test_a_checkpoint_that_is_the_final_one_has_no_row_of_its_own(folder: Path) -> None:
    results = read_records(folder)[2]
    row = "| best checkpoint (not published) |"
    same = results.headline.model_copy(update={"checkpoint": "best"})
    other = same.model_copy(update={"returns": tuple(value + 1 for value in same.returns)})
    for best, shown in ((same, False), (other, True)):
        (folder / "results.json").write_text(results.model_copy(update={"best": best}).to_json())
        assert (row in card_text(folder)) is shown
        assert ("was chosen by short evaluations" in card_text(folder)) is shown


def test_a_dataset_of_the_zoo_is_made_before_training(folder: Path) -> None:
    assert "agentzoo data build" not in card_text(folder)
    for dataset, command in (
        (
            "zoo/hopper/medium-v0",
            "agentzoo data build hopper/medium --sources DIR --trust-policies\nagentzoo train train_config.json",
        ),
        ("zoo/doorkey/train-50-v0", "agentzoo data build doorkey/train-50\nagentzoo train train_config.json"),
    ):
        edit(folder, "train_config.json", data__dataset=dataset)
        assert command in card_text(folder)
        assert ("are not distributed" in card_text(folder)) is ("hopper" in dataset)
    (folder / "results.json").unlink()
    edit(folder, "train_config.json", data__dataset="zoo/hopper/medium-expert-v0")
    text = card_text(folder)
    assert "agentzoo data build hopper/medium-expert --sources DIR --trust-policies\n" in text
    assert "are not distributed" in text
    assert "Loading one runs the code it holds" in text


def test_what_a_masked_agent_can_be_asked_is_what_it_was_trained_on(tmp_path: Path) -> None:
    question = "agentzoo research infer zoo/dt-test --task past"
    for tasks, asked in ((("rnd",), True), (("bc",), False)):
        model = UniMaskConfig(embed_dim=16, ffn_dim=16, tasks=tasks)
        text = card_text(make_agent(model=model).save_pretrained(tmp_path / tasks[0]))
        assert (question in text) is asked
        assert ("fills in whatever of them is hidden" in text) is asked
        assert ("and predicts the next action." in text) is not asked


def test_an_agent_measured_in_two_ways_says_which_is_its_own(folder: Path) -> None:
    assert "agent.acting" not in card_text(folder)
    results = read_records(folder)[2]
    other = results.headline.model_copy(update={"acting": "recurrent", "mean_return": 1.25})
    (folder / "results.json").write_text(results.model_copy(update={"acting": (other,)}).to_json())
    text = card_text(folder)
    assert '`agent.acting` is "window" by default' in text
    assert "| **this agent**, window acting |" in text
    assert "| same weights, recurrent acting | 1.25 " in text


def test_the_published_number_stands_beside_ours(folder: Path) -> None:
    edit(folder, "config.json", agent_id="dt-hopper-medium")
    assert "published" not in card_text(folder)  # it acts somewhere else
    edit(folder, "config.json", env="Hopper-v5")
    assert "published" not in card_text(folder)  # it learned something else
    edit(folder, "train_config.json", data__dataset="mujoco/hopper/medium-v0")
    text = card_text(folder)
    assert "| published: Chen et al. 2021, arXiv:2106.01345 | 67.6 ± 1 |  |  |  |" in text.splitlines()
    learned = "mujoco/hopper/medium-v0"
    rule = "the paper does not say of which checkpoint and of which of its two targets.\n"
    assert f"not comparable one to one: this agent learned from `{learned}`; training here is shorter; {rule}" in text
    edit(folder, "train_config.json", data__dataset="zoo/hopper/medium-v0")
    own = "our data is our own collection on a newer environment version; "
    assert f"{own}training here is shorter; {rule}" in card_text(folder)
    edit(folder, "results.json", training__updates=100_000)
    assert own + rule in card_text(folder)


def test_an_agent_asked_for_less_than_a_paper_scored_says_so(folder: Path) -> None:
    edit(folder, "config.json", agent_id="dt-hopper-medium", env="Hopper-v5")
    edit(folder, "train_config.json", data__dataset="zoo/hopper/medium-v0")
    references = {"headline__random_reference": 0.0, "headline__expert_reference": 3000.0}
    edit(folder, "results.json", headline__target_return=1800.0, **references)
    text = card_text(folder)
    assert "target return 1800 (a score of 60.0), " in text
    assert "; this agent was asked for less, a score of 60.0; " in text
    edit(folder, "results.json", headline__target_return=3600.0)
    text = card_text(folder)
    assert "target return 3600 (a score of 120.0), " in text
    assert "asked for less" not in text


def test_several_training_seeds_have_a_row_of_their_mean(folder: Path) -> None:
    results = read_records(folder)[2]
    assert "training seeds" not in card_text(folder)
    shown = {"score": 10.0, "score_interval": (9.0, 11.0), "mean_return": 200.0, "mean_length": 30.0, "episodes": 100}
    head = results.headline.model_copy(update=shown)
    others = tuple(
        head.model_copy(update={"score": score, "mean_return": reached, "mean_length": steps})
        for score, reached, steps in ((20.0, 300.0, 40.0), (60.0, 400.0, 50.0))
    )
    (folder / "results.json").write_text(results.model_copy(update={"headline": head, "seeds": others}).to_json())
    row = next(line for line in card_text(folder).splitlines() if line.startswith("| this recipe, mean of"))
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert cells[0] == "this recipe, mean of 3 training seeds"
    assert cells[1] == "30.0 ± 26.5 [10.0, 60.0]"
    assert cells[2] == "300 ± 100 [200, 400]"
    assert cells[-2:] == ["40", "300"]
    lines = card_text(folder).splitlines()
    own = next(line for line in lines if line.startswith("| **this agent**, training seed"))
    assert lines.index(own) == lines.index(row) + 1  # the mean comes first
    said = "**Normalized score 30.0 ± 26.5 [10.0, 60.0]**, return 300 ± 100 [200, 400]: mean ± standard deviation of 3 "
    assert any(line.startswith(said) for line in lines)
    (folder / "results.json").write_text(results.model_copy(update={"headline": head}).to_json())
    assert "| **this agent**, one training seed | 10.0 [9.0, 11.0] | " in card_text(folder)


def test_a_card_says_when_its_training_was_as_good_as_in_the_end(folder: Path) -> None:
    rows = "".join(f"{step},{score},{step * 60}\n" for step, score in ((1_000, 10), (2_000, 49), (3_000, 50)))
    (folder / "training_log.csv").write_text(f"step,eval_score,seconds\n{rows}")
    assert "within 2 points" not in card_text(folder)
    write_card(folder, zoo=folder.parent)
    text = (folder / "README.md").read_text()
    assert "within 2 points of the last one, or above it, after 2,000 updates, 33.3 hours of training. " in text
    check_card(folder)


def test_a_card_says_what_its_backbone_knows_of_language(tmp_path: Path) -> None:
    folder = tmp_path / "agent"
    shutil.copytree(dict(STAGED)["gpt2-dt-hopper-medium"], folder)
    known = json.loads((dict(STAGED)["gpt2-dt-hopper-medium"].parent / "backbones.json").read_text())
    known["backbones"]["lm-mini"] = {"bits_per_byte": 2.5}
    (tmp_path / "backbones.json").write_text(json.dumps(known))
    write_card(folder, zoo=tmp_path)
    said = "`lm-mini`, hardly knows English: it needs 2.50 bits per byte on the first 60 kB of WikiText-2's validation "
    said += "text"
    assert f"{said}, where SmolLM2-135M-Instruct needs 1.03.\n" in (folder / "README.md").read_text()
    known["backbones"]["lm-mini"] = {"taught": "x", "bits_per_byte": 2.5}
    (tmp_path / "backbones.json").write_text(json.dumps(known))
    with pytest.raises(ConfigError, match="exactly one of bits_per_byte and taught"):
        write_card(folder, zoo=tmp_path)


def test_a_baseline_of_another_budget_says_so(folder: Path) -> None:
    results = read_records(folder)[2]
    done = results.training.updates or read_records(folder)[1].train.steps
    same, longer = (
        results.headline.model_copy(update={"agent_id": "bc-test", "updates": updates, "training_seed": 0})
        for updates in (done, 20_000)
    )
    record = results.model_copy(update={"baselines": (same, longer)}).to_json()
    (folder / "results.json").write_text(record)
    rows = [line for line in card_text(folder).splitlines() if line.startswith("| bc-test")]
    assert rows[0].startswith("| bc-test, training seed 0 | ")
    assert rows[1].startswith("| bc-test, training seed 0, 20,000 updates | ")


def columns(folder: Path) -> list[str]:
    """Of the card's table of results."""
    head = card_text(folder).split("## How good is it")[1].split("\n")[2]
    return [cell.strip() for cell in head.strip("| ").split("|")]


def test_a_table_has_the_columns_that_its_rows_fill(folder: Path) -> None:
    assert columns(folder) == ["agent", "return", "length", "episodes"]
    edit(folder, "results.json", headline__success_rate=0.125, headline__score=37.5)
    assert columns(folder) == [
        *("agent", "normalized score", "return", "success", "steps over successes", "steps over all", "episodes")
    ]
    own = next(line for line in card_text(folder).splitlines() if line.startswith("| **this agent"))
    cells = [cell.strip() for cell in own.split("|")]
    assert (cells[2], cells[4]) == ("37.5", "12 %")


def test_a_study_comes_onto_a_card_without_measuring(folder: Path, tmp_path: Path) -> None:
    for name in ("first", "second"):
        write_study(Study(title=f"The {name}", picture="drawn.png"), tmp_path / name)
        (tmp_path / name / "drawn.png").write_bytes(name.encode())
    before = read_records(folder)[2]
    done = CliRunner().invoke(app, ["hub", "card", str(folder), "--study", str(tmp_path / "first")])
    assert done.exit_code == 0, done.output
    assert "<summary>The first</summary>\n\n![The first](study-0.png)" in (folder / "README.md").read_text()
    assert (folder / "study-0.png").read_bytes() == b"first"
    show_studies(folder, [tmp_path / "second"])
    assert (folder / "study-0.png").read_bytes() == b"second"
    check_card(folder)
    after = read_records(folder)[2]
    assert [one.title for one in after.studies] == ["The second"]
    assert after.model_copy(update={"studies": ()}) == before
    kept = sorted((path.name, path.read_bytes()) for path in folder.iterdir())
    with pytest.raises(CheckpointError, match="no study at"):
        show_studies(folder, [tmp_path / "second", tmp_path / "third"])
    assert sorted((path.name, path.read_bytes()) for path in folder.iterdir()) == kept
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]


def test_a_study_is_added_behind_those_there_are(folder: Path, tmp_path: Path) -> None:
    for name, title in (("first", "One"), ("second", "Two"), ("third", "One")):
        write_study(Study(title=title, picture="drawn.png"), tmp_path / name)
        (tmp_path / name / "drawn.png").write_bytes(name.encode())
    show_studies(folder, [tmp_path / "first"])
    done = CliRunner().invoke(app, ["hub", "card", str(folder), "--keep", "--study", str(tmp_path / "second")])
    assert done.exit_code == 0, done.output
    assert [one.title for one in read_records(folder)[2].studies] == ["One", "Two"]
    show_studies(folder, [tmp_path / "third"], keep=True)  # of the same title: it takes the place of the first
    shown = read_records(folder)[2].studies
    assert [(one.title, (folder / str(one.picture)).read_bytes()) for one in shown] == [
        ("Two", b"second"),
        ("One", b"third"),
    ]
    check_card(folder)
    with pytest.raises(ConfigError, match="at most 4 studies, got 5"):
        show_studies(folder, [tmp_path / "first"] * 4, keep=True)


def test_a_study_that_does_not_fit_on_the_disk_leaves_the_card(folder: Path, tmp_path: Path) -> None:
    write_study(Study(title="Large", picture="drawn.png"), tmp_path / "study")
    (tmp_path / "study" / "drawn.png").write_bytes(b"x" * 1_000_000)
    kept = sorted((path.name, path.read_bytes()) for path in folder.iterdir())
    with largest_file(500_000), pytest.raises(StorageError, match=r"dt-test was not written: .*File too large"):
        show_studies(folder, [tmp_path / "study"])
    assert sorted((path.name, path.read_bytes()) for path in folder.iterdir()) == kept
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]


def test_a_title_of_a_study_is_no_markup(folder: Path, tmp_path: Path) -> None:
    write_study(Study(title="<img src=x> & **all**"), tmp_path / "study")
    show_studies(folder, [tmp_path / "study"])
    assert "<summary>&lt;img src=x&gt; &amp; **all**</summary>" in (folder / "README.md").read_text()


def test_a_card_names_the_repo_it_is_pushed_to_and_the_extras(folder: Path) -> None:
    assert 'from_pretrained("zoo/dt-test"' in card_text(folder)
    assert "This environment needs no extra." in card_text(folder)
    edit(folder, "config.json", env="Hopper-v5")
    (folder / "README.md").write_text(card_text(folder, "me/mine"))
    text = (folder / "README.md").read_text()
    assert 'from_pretrained("me/mine"' in text
    assert "zoo/dt-test" not in text
    assert "`pip install -e '.[mujoco]'`. This environment needs the extra `mujoco`." in text
    check_card(folder)
    write_card(folder)  # keeps the repo
    assert (folder / "README.md").read_text() == text


def test_only_datasets_of_the_hub_are_in_the_metadata(folder: Path) -> None:
    assert check_metadata(card_text(folder)).datasets is None
    edit(folder, "train_config.json", data__dataset="mujoco/hopper/medium-v0")
    assert check_metadata(card_text(folder)).datasets == ["farama-minari/mujoco"]


def test_a_card_says_which_rule_gave_the_target(folder: Path) -> None:
    assert "The target was set by hand in the recipe." in card_text(folder)
    best = read_records(folder)[2].dataset.best_return
    edit(folder, "train_config.json", eval__target_rule="max", eval__target_return=best)
    assert "The target is the best return in the data." in card_text(folder)
    edit(folder, "train_config.json", eval__target_return=best + 1.0)
    other = f"The target was the best return in another collection of this dataset; here it is {best:g}."
    assert other in card_text(folder)


def cloned(folder: Path, *shifts: float, steps: int = 0, success: bool = False) -> str:
    """The line under the score, with clones that return as much as the agent plus `shifts`."""
    results = read_records(folder)[2]
    head = results.headline.model_copy(update={"success_rate": 1.0 if success else None})
    rows = tuple(
        Baseline(
            method="bc",
            trained_with="agentzoo train bc-test",
            dataset_sha256="c" * 64,
            result=head.model_copy(
                update={
                    "training_seed": seed,
                    "weights_sha256": f"{seed:064}",
                    "returns": tuple(value + shift for value in head.returns),
                    "lengths": tuple(length + steps for length in head.lengths),
                }
            ),
        )
        for seed, shift in enumerate(shifts)
    )
    (folder / "results.json").write_text(results.model_copy(update={"headline": head, "yardsticks": rows}).to_json())
    lines = card_text(folder).splitlines()
    return lines[next(i for i, text in enumerate(lines) if "95 % interval in brackets." in text) + 1]


def test_the_line_under_the_score_compares_with_behaviour_cloning(folder: Path) -> None:
    lines = card_text(folder).splitlines()
    at = next(i for i, text in enumerate(lines) if "95 % interval in brackets." in text)
    assert lines[at + 1].startswith("It is not compared with behaviour cloning (`bc`): train `bc` on this dataset,")
    paired = "(paired bootstrap over the same 3 episode seeds; 1 training seed of it, 1 of `bc`)."
    words = "behaviour cloning (`bc`): the difference in return is"
    assert cloned(folder, -2.0) == f"It **beats** {words} 2.00 [2.00, 2.00] {paired}"
    assert cloned(folder, 2.0) == f"It **loses to** {words} -2.00 [-2.00, -2.00] {paired}"
    assert cloned(folder, 0.0) == f"It **ties with** {words} 0.00 [0.00, 0.00] {paired}"
    several = cloned(folder, 1.0, -1.0, 0.0)
    assert several.startswith(f"It **ties with** {words} 0.00 [")
    assert "and over training seeds; 1 training seed of it, 3 of `bc`" in several
    slower = cloned(folder, 0.0, steps=-4, success=True)
    assert slower.startswith(f"It **loses to** {words} 0.00 [0.00, 0.00], in steps 4.00 [4.00, 4.00] ")


def test_clones_of_other_episodes_are_not_compared_and_the_card_says_so(folder: Path) -> None:
    words = "It is not compared with behaviour cloning (`bc`), whose runs were measured on other episodes"
    cloned(folder, 0.0)
    results = read_records(folder)[2]
    (clone,) = results.yardsticks
    for options, compared in ((None, True), ({"g": 5.0}, True), ({}, False)):  # None: not recorded
        row = clone.model_copy(update={"result": clone.result.model_copy(update={"env_options": options})})
        head = results.headline.model_copy(update={"env_options": {"g": 5.0}})
        changed = results.model_copy(update={"headline": head, "yardsticks": (row,)})
        (folder / "results.json").write_text(changed.to_json())
        assert (words not in card_text(folder)) is compared
    assert f"{words} or in an environment with other options." in card_text(folder)


def test_baselines_have_rows_in_the_first_table(folder: Path) -> None:
    cloned(folder, -1.0, 1.0)
    edit(folder, "train_config.json", data__dataset_sha256="c" * 64)
    table = card_text(folder).split("## How good is it")[1].split("## Use it")[0]
    assert "| `bc`, behaviour cloning, mean of 2 training seeds | " in table
    assert "over episodes, and over training seeds in a row of their mean." in table
    assert "another collection" not in table
    edit(folder, "train_config.json", data__dataset_sha256="d" * 64)
    table = card_text(folder).split("## How good is it")[1].split("## Use it")[0]
    assert "The rows of `bc` are of another collection of this dataset: the same policies, other episodes." in table


def test_a_clone_is_not_a_baseline_of_itself(folder: Path) -> None:
    cloned(folder, -1.0, 1.0)
    results = read_records(folder)[2]
    mine = results.headline.weights_sha256
    rows = [
        one.model_copy(update={"result": one.result.model_copy(update={"weights_sha256": mine})})
        for one in results.yardsticks[:1]
    ]
    (folder / "results.json").write_text(results.model_copy(update={"yardsticks": tuple(rows)}).to_json())
    assert "| `bc`, behaviour cloning" not in card_text(folder)


def test_an_environment_with_options_is_made_with_them(folder: Path) -> None:
    edit(folder, "config.json", env="PointMaze_Medium-v3", env_options={"continuing_task": False})
    text = card_text(folder)
    assert 'make_vec_env(lambda: make_env("PointMaze_Medium-v3", continuing_task=False), n_envs=4)' in text
    assert "\nEnvironment `tests/Counting-v0` with `continuing_task=False`, target return 50, " in text


HOSTILE = (
    "fine](http://evil.example) <script>alert(1)</script>\n\n# Not a heading\n---\nlicense: stolen\n---\n"
    "```\nrm -rf /\n``` | a | b | ![x](http://evil.example/x.png) \x1b[31m [red]rich[/red] [/oops] &lt;b&gt; `code`"
)


def test_markup_in_the_records_has_no_effect_on_the_card(folder: Path) -> None:
    plain = card_text(folder)
    edit(
        folder,
        "results.json",
        dataset__made_by=HOSTILE,
        training__hardware=HOSTILE,
        headline__command=HOSTILE,
        headline__env=HOSTILE,
        headline__versions={HOSTILE: HOSTILE},
    )
    edit(folder, "config.json", env_options={"x": HOSTILE})
    text = card_text(folder)
    body = ModelCard(text).content.split("\n---\n", 1)[1]
    assert ModelCard(text).data.license == "mit"
    assert re.findall(r"^#+ .*$", body, flags=re.MULTILINE) == re.findall(r"^#+ .*$", plain, flags=re.MULTILINE)
    assert body.count("```") == plain.count("```")
    outside = re.sub(r"```.*?```|(?<!\\)`[^`\n]*`", "", body, flags=re.DOTALL)  # where Markdown means something
    own = re.compile(r"^(?:</?details>|<summary>[^<>]*</summary>)$", flags=re.MULTILINE)  # the template's
    assert len(own.findall(outside)) == len(own.findall(plain))
    outside = own.sub("", outside)
    assert not re.search(r"(?<!\\)[<>]|(?<!\\)\[fine|(?<!\\)\]\(http|\x1b", outside)
    snippet = re.search(r"```python\n(.*?)```", body, flags=re.DOTALL)
    assert snippet
    compile(snippet[1], "quickstart", "exec")
    assert "__import__" not in snippet[1]


@pytest.mark.parametrize(
    ("name", "field"),
    [
        ("train_config.json", "data__dataset"),
        ("train_config.json", "eval__env"),
        ("train_config.json", "base"),
        ("train_config.json", "base_repo"),
        ("train_config.json", "base_revision"),
        ("config.json", "env"),
        ("config.json", "agent_id"),
    ],
)
@pytest.mark.parametrize("value", [HOSTILE, "x\", n_envs=__import__('os').getpid()) #", "../../etc", "a b", ""])
def test_names_that_are_none_are_refused(folder: Path, name: str, field: str, value: str) -> None:
    edit(folder, name, **{field: value})
    with pytest.raises(ConfigError, match=rf"{name} cannot be used: {field.replace('__', '.')}: String should match"):
        card_text(folder)
    edit(folder, "config.json", env_options={value: 1})
    with pytest.raises(ConfigError):
        Agent.from_pretrained(folder)


@pytest.mark.parametrize("text", [HOSTILE, "", "a" * 10_000, "\x00\x1b]0;title\x07", "ünï ✓"])
def test_words_of_others_become_one_line(text: str) -> None:
    for made in (inline(text), code(text)):
        assert made.isprintable()
        assert len(made) <= 2_000
    assert "`" not in code(text)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda t: t.replace("license: mit\n", ""), "license is missing"),
        (lambda t: t.replace("library_name: agentzoo", "library_name: other"), "library_name is 'other'"),
        (lambda t: t.replace("type: tests-Counting-v0", "type: a/b/c"), "'a/b/c' is not a dataset name"),
        (lambda t: t.replace("---\n", "---\n: [", 1), "cannot be read"),
        (lambda t: t.replace("model-index:", "model-index: 3 #"), "cannot be read"),
    ],
)
def test_metadata_the_hub_would_refuse_is_refused_here(folder: Path, change: Any, words: str) -> None:
    with pytest.raises(CheckpointError, match=words):
        check_metadata(change(card_text(folder)))


@pytest.mark.parametrize(
    "name", ["a/b/c", "..", "a/..", "../a", "a/b\n", "a--b/c", "a /b", "", "/", "a/", "x" * 200 + "/y"]
)
def test_repo_ids_that_are_none(name: str) -> None:
    assert not is_repo_id(name)


def test_commands(hub: Hub, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """push, list --remote, pull, card and verify as a user runs them."""
    runner = CliRunner()
    monkeypatch.chdir(tmp_path)
    done = json.loads(runner.invoke(app, ["hub", "push", str(folder), REPO, "--tag", "v1", "--json"]).stdout)
    assert done["commit"] == hub.repos[REPO].tags["v1"]
    listed = json.loads(runner.invoke(app, ["list", "--remote", "--json"]).stdout)
    assert [one["repo_id"] for one in listed] == [REPO]
    assert REPO in runner.invoke(app, ["list", "--remote"]).stdout
    assert runner.invoke(app, ["hub", "pull", REPO, "--revision", "v1"]).exit_code == 0
    before = (tmp_path / "dt-test" / "README.md").read_bytes()
    assert runner.invoke(app, ["hub", "card", "dt-test"]).exit_code == 0
    assert (tmp_path / "dt-test" / "README.md").read_bytes() == before
    verified = runner.invoke(app, ["hub", "verify", "dt-test", "-n", "2", "--json"])
    assert (verified.exit_code, json.loads(verified.stdout)["holds"]) == (0, True)
    edit(tmp_path / "dt-test", "train_config.json", data__rtg_scale=2.0)
    refused = runner.invoke(app, ["hub", "verify", "dt-test", "-n", "2"])
    assert refused.exit_code == 1
    assert "NO" in refused.stdout


def test_names_with_markup_are_shown_as_they_are(hub: Hub, folder: Path) -> None:
    hub.repos["x/y"] = Repo()
    card = card_text(folder).replace("name: mean_reward, 3 episodes", "name: mean [/red] [bold]return, 3")
    hub.repos["x/y"].commit({"README.md": card.encode()})
    done = CliRunner().invoke(app, ["list", "--remote"], env={"COLUMNS": "200"})
    assert done.exit_code == 0, done.output
    assert "mean [/red] [bold]return" in done.stdout
    edit(folder, "train_config.json", eval__env_options={"x": "[/oops][red]x"})
    shown = CliRunner().invoke(app, ["show", str(folder)], env={"COLUMNS": "200"})
    assert shown.exit_code == 0, shown.output
    assert "[/oops][red]x" in shown.stdout


def test_a_license_is_written_into_config_and_card_or_refused(folder: Path) -> None:
    before = (folder / "README.md").read_text()
    write_card(folder, "apache-2.0")
    assert ModelCard.load(folder / "README.md").data.license == "apache-2.0"
    assert Agent.from_pretrained(folder).config.license == "apache-2.0"
    check_card(folder)
    write_card(folder)
    assert ModelCard.load(folder / "README.md").data.license == "apache-2.0"
    kept = (folder / "config.json").read_text()
    for name, words in (
        ("My own words: pay me", "license"),
        ("apache-2", "Did you mean 'apache-2.0'"),
        ("MIT", "Did you mean 'mit'"),
        ("nonsense", "mit"),
    ):
        with pytest.raises(ConfigError, match=words):
            write_card(folder, name)
    assert (folder / "config.json").read_text() == kept
    (folder / "config.json").write_text(kept.replace('"apache-2.0"', '"nonsense"'))
    write_card(folder)
    with pytest.raises(CheckpointError, match=r"license 'nonsense' is not one that it knows \(use `other`\)"):
        check_card(folder)
    write_card(folder, "openrail++")
    check_card(folder)
    assert Agent.from_pretrained(folder).config.license == "openrail++"
    write_card(folder, "mit")
    assert (folder / "README.md").read_text() == before
