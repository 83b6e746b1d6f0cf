"""What `verify` finds out: an honest agent's files agree and its score holds; each kind of lie is found."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agentzoo.agent import Agent
from agentzoo.errors import CheckpointError, ConfigError
from agentzoo.evaluation.results import Result
from agentzoo.evaluation.scores import mean_interval
from agentzoo.hub.card import card_text, write_card
from agentzoo.hub.publish import check_folder, push
from agentzoo.hub.records import read_records
from agentzoo.hub.verify import _as_often, check_files, verify
from agentzoo.models.dm import DMConfig
from hub.conftest import REPO, edit, make_folder
from hub.server import Hub


def answers(folder: Path, **options: Any) -> dict[str, bool | None]:
    return {check.name: check.holds for check in verify(folder, **options).checks}


def fits(folder: Path, name: str) -> bool | None:
    """One answer of those that need no measurement."""
    return next(check.holds for check in check_files(folder)[2] if check.name == name)


def test_verify_confirms_an_honest_agent(folder: Path) -> None:
    report = verify(folder)
    assert report.holds
    assert {check.name for check in report.checks} == {
        "weights",
        "recipe",
        "package",
        "results",
        "card",
        "settings",
        "score",
    }
    assert report.measured is not None
    head = read_records(folder)[2].headline
    assert report.measured.returns == head.returns
    same = head.return_in_words()  # two decimals below 100: the returns of mazes lie between 0 and 1
    assert report.checks[-1].details.startswith(f"return {same} over 3 episodes; the card says {same}")
    assert verify(folder, 2).holds
    with pytest.raises(ConfigError, match="episodes is a whole number from 1 on, got 0"):
        verify(folder, 0)


def test_verify_with_few_episodes_leaves_room_for_chance(folder: Path) -> None:
    """One episode beside a card's 100 with a standard deviation of 1: it may miss by 1.96 · sqrt(1 + 1/100) = 1.97."""
    measured = read_records(folder)[2].headline.returns[0]
    for off, holds in ((1.9, True), (2.1, False)):
        returns = [measured + off + side for side in (-1.0, 1.0) * 50]
        edit(
            folder,
            "results.json",
            headline__mean_return=measured + off,
            headline__episodes=100,
            headline__returns=returns,
            headline__lengths=[1] * 100,
            headline__mean_length=1.0,
            headline__std_return=float(np.std(returns, ddof=1)),
            headline__return_interval=list(mean_interval(returns)),  # type: ignore[arg-type]
        )
        assert answers(folder, episodes=1)["score"] is holds
    returns = [measured + 0.3 + side for side in (-1.0, 1.0) * 50]  # 0.3 is more than the 0.2 of 100 episodes
    edit(
        folder,
        "results.json",
        headline__mean_return=measured + 0.3,
        headline__returns=returns,
        headline__return_interval=list(mean_interval(returns)),  # type: ignore[arg-type]
    )
    assert answers(folder, episodes=1)["score"] is True


def test_what_is_measured_again_is_what_the_record_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of it is what evaluating the agent would take by itself."""
    folder = make_folder(tmp_path / "dt-test", DMConfig(embed_dim=16, n_layers=1, state_size=4))
    head = read_records(folder)[2].headline
    told = {"seed": 4, "deterministic": False, "target_return": 12.5, "env": "tests/CountingLong-v0"}
    told["acting"] = {"window": "recurrent", "recurrent": "window"}[head.acting]
    asked: dict[str, Any] = {}

    def evaluate(agent: Agent, env: str | None, episodes: int, **options: Any) -> Result:
        asked.update(options, env=env, episodes=episodes, acting=agent.acting)
        return head

    monkeypatch.setattr("agentzoo.hub.verify.evaluate", evaluate)
    verify(folder, 2)
    assert (asked["env"], asked["episodes"]) == (None, 2)  # its own, with the options it was made for
    edit(folder, "results.json", **{f"headline__{name}": value for name, value in told.items()})
    verify(folder, n_envs=7)
    assert {name: asked[name] for name in told} == told
    assert (asked["episodes"], asked["n_envs"]) == (3, 7)


def test_a_revision_is_the_one_that_is_verified(hub: Hub, folder: Path) -> None:
    push(folder, REPO, tag="v1")
    edit(folder, "results.json", headline__target_return=1.0)
    edit(folder, "config.json", target_return=1.0)
    edit(folder, "train_config.json", eval__target_return=1.0)
    write_card(folder)
    push(folder, REPO)
    for revision, target in (("v1", 50.0), (None, 1.0)):
        measured = verify(REPO, 1, revision=revision).measured
        assert measured is not None
        assert measured.target_return == target


def test_verify_of_an_agent_on_the_hub(hub: Hub, folder: Path) -> None:
    Agent.from_pretrained(folder).push_to_hub(REPO)
    report = verify(REPO)
    assert {check.name: check.holds for check in report.checks}["results"] is None  # none were pushed
    assert report.holds


def test_verify_finds_each_kind_of_lie(folder: Path) -> None:
    records = {name: (folder / name).read_text() for name in ("results.json", "train_config.json", "README.md")}

    def restored() -> None:
        for name, text in records.items():
            (folder / name).write_text(text)

    edit(folder, "results.json", headline__mean_return=1e4, headline__return_interval=[9e3, 2e4])
    found = answers(folder)
    assert (found["results"], found["card"], found["score"]) == (False, False, None)
    restored()
    returns = [9e3, 1e4, 1.1e4]  # a consistent lie: only measuring again tells
    edit(
        folder,
        "results.json",
        headline__mean_return=1e4,
        headline__std_return=1e3,
        headline__return_interval=list(mean_interval(returns)),  # type: ignore[arg-type]
        headline__returns=returns,
    )
    (folder / "README.md").write_text(card_text(folder))
    found = answers(folder)
    assert (found["results"], found["card"], found["score"]) == (True, True, False)
    restored()
    edit(folder, "results.json", headline__score=99.9)
    (folder / "README.md").write_text(card_text(folder))
    report = verify(folder)
    assert {check.name: check.holds for check in report.checks}["results"] is False
    assert "the headline: score cannot be right" in report.checks[3].details
    restored()
    edit(folder, "train_config.json", data__rtg_scale=2.0)
    assert answers(folder)["recipe"] is False
    restored()
    (folder / "README.md").write_text("# The best agent\n")
    assert answers(folder)["card"] is False
    restored()
    weights = bytearray((folder / "model.safetensors").read_bytes())
    weights[-1] ^= 1
    (folder / "model.safetensors").write_bytes(weights)
    assert answers(folder)["weights"] is False


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("target_return", 9.0, "target_return is 50.0, measured with 9.0"),
        ("history", 2, "history is None, measured with 2"),
        ("deterministic", False, "deterministic is True, measured with False"),
    ],
)
def test_an_agent_that_acts_otherwise_than_it_was_measured_does_not_hold(
    hub: Hub, folder: Path, field: str, value: Any, said: str
) -> None:
    edit(folder, "results.json", **{f"headline__{field}": value})
    write_card(folder)
    check = next(check for check in verify(folder, 2).checks if check.name == "settings")
    assert (check.holds, check.details) == (False, said)
    with pytest.raises(CheckpointError, match=f"does not act as it was measured: {said}"):
        push(folder, REPO)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("score", 99.9),
        ("score_interval", [98.0, 101.0]),
        ("random_reference", 1.0),
        ("expert_reference", 100.0),
        ("mean_length", 1000.0),
        ("std_return", 0.5),
        ("success_rate", 1.5),
        ("successes", [True, False, True]),  # without a rate
        ("lengths", [1]),
    ],
)
def test_every_number_of_a_record_must_follow_from_its_episodes(folder: Path, field: str, value: Any) -> None:
    edit(folder, "results.json", **{f"headline__{field}": value})
    assert answers(folder)["results"] is False


def test_many_episodes_with_a_rare_reward_are_verified(folder: Path) -> None:
    """A normal interval would be another one than the bootstrap's."""
    returns = np.zeros(1_001)
    returns[:2] = 10.0
    low, high = mean_interval(returns)
    head = {"returns": returns.tolist(), "lengths": [3] * 1_001, "episodes": 1_001, "mean_return": 20 / 1_001}
    rows = {f"headline__{name}": value for name, value in {**head, "return_interval": [low, high]}.items()}
    edit(folder, "results.json", **rows)
    check = next(check for check in check_files(folder)[2] if check.name == "results")
    assert "do not follow" not in check.details


def test_rows_beside_the_headline_are_checked_too(folder: Path) -> None:
    head = read_records(folder)[2].headline.model_dump(mode="json")
    targets = [{**head, "target_return": asked} for asked in (1.0, 2.0, 3.0)]  # it always achieves the same
    edit(folder, "results.json", targets=targets, spearman=None)
    assert answers(folder)["results"] is True
    edit(folder, "results.json", targets=targets, spearman=1.0)
    assert answers(folder)["results"] is False
    for row in ("targets", "seeds", "baselines", "acting"):
        edit(folder, "results.json", **{"targets": [], "spearman": None, row: [{**head, "mean_return": 1e4}]})
        assert answers(folder)["results"] is False, row
        edit(folder, "results.json", **{row: []})
    yardstick = {"method": "bc", "trained_with": "elsewhere", "result": head}
    for mean, holds in ((head["mean_return"], True), (1e4, False)):
        edit(folder, "results.json", yardsticks=[{**yardstick, "result": {**head, "mean_return": mean}}])
        assert fits(folder, "results") is holds


@pytest.mark.parametrize(
    ("rate", "successes", "holds"),
    [
        (2 / 3, [True, False, True], True),
        (1.0, [True, False, True], False),
        (1.0, [True, True], False),  # three episodes
        (0.0, [], False),
    ],
)
def test_a_success_rate_follows_from_the_successes(
    folder: Path, rate: float, successes: list[bool], holds: bool
) -> None:
    edit(folder, "results.json", headline__success_rate=rate, headline__successes=successes)
    assert fits(folder, "results") is holds
    write_card(folder)
    if holds:
        assert "results.json" in check_folder(folder)[0]
    else:
        with pytest.raises(CheckpointError, match=r"results.json does not add up: .* success_rate cannot be right"):
            check_folder(folder)


@pytest.mark.parametrize(
    ("field", "value"), [("weights_sha256", "0" * 64), ("weights_sha256", None), ("agent_id", "other")]
)
@pytest.mark.parametrize("row", ["headline", "targets", "acting"])
def test_rows_of_this_agent_are_of_its_weights(folder: Path, row: str, field: str, value: str | None) -> None:
    head = read_records(folder)[2].headline.model_dump(mode="json")
    other = {**head, field: value}
    edit(folder, "results.json", **{row: other if row == "headline" else [other]})
    assert fits(folder, "results") is False


def test_seeds_are_separate_trainings_in_one_environment(folder: Path) -> None:
    edit(folder, "results.json", headline__training_seed=0)
    head = read_records(folder)[2].headline.model_dump(mode="json")
    other = {**head, "agent_id": "dt-test-s1", "training_seed": 1, "weights_sha256": "1" * 64}
    third = {**other, "agent_id": "dt-test-s2", "training_seed": 2, "weights_sha256": "2" * 64}
    for seeds, said in (
        ([other, third], None),
        ([{**other, "weights_sha256": None}, {**third, "weights_sha256": None}], None),  # not recorded
        ([other, {**third, "training_seed": 1}], "training seed 1 occurs twice"),
        ([{**other, "training_seed": 0}], "training seed 0 occurs twice"),
        ([other, {**third, "weights_sha256": "1" * 64}], "two training seeds have the same weights"),
        ([other, {**third, "env": "tests/CountingLong-v0"}], "seeds were measured in different environments"),
    ):
        edit(folder, "results.json", seeds=seeds)
        check = next(check for check in check_files(folder)[2] if check.name == "results")
        assert check.holds is (said is None), check.details
        assert said is None or said in check.details


def test_the_best_checkpoint_is_of_other_weights_and_its_numbers_follow_from_its_episodes_too(folder: Path) -> None:
    head = read_records(folder)[2].headline.model_dump(mode="json")
    best = {**head, "checkpoint": "best", "weights_sha256": None}
    for row, holds in ((best, True), ({**best, "mean_return": 1e4}, False)):
        edit(folder, "results.json", best=row)
        assert fits(folder, "results") is holds


def test_an_environment_made_with_options_has_no_score_to_miss(folder: Path) -> None:
    edit(folder, "results.json", headline__env="Hopper-v5")  # score and references: null
    for options, holds in (({"ctrl_cost_weight": 0.1}, True), ({}, False)):
        edit(folder, "config.json", env="Hopper-v5", env_options=options)
        assert fits(folder, "results") is holds


def test_weights_without_a_hash_and_a_recipe_that_is_missing_do_not_fit(folder: Path) -> None:
    edit(folder, "config.json", weights_sha256=None)
    assert fits(folder, "weights") is False
    for name in ("train_config.json", "README.md"):  # of which there is no card
        (folder / name).unlink()
    assert fits(folder, "recipe") is False


def measured_as(folder: Path, monkeypatch: pytest.MonkeyPatch, **new: Any) -> bool | None:
    """Whether the card's headline holds beside a measurement that differs from it in `new`."""
    found = read_records(folder)[2].headline.model_copy(update=new)
    monkeypatch.setattr("agentzoo.hub.verify.evaluate", lambda *_, **__: found)
    return answers(folder)["score"]


def test_successes_count_beside_returns(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    edit(folder, "results.json", headline__success_rate=1.0)
    assert measured_as(folder, monkeypatch) is True
    assert measured_as(folder, monkeypatch, success_rate=0.0) is False  # however alike the returns are


def test_one_mean_lies_in_the_interval_of_the_other_and_as_many_episodes_have_no_more_room(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 10, 20 and 60: mean 30, and 1.96 standard errors of a difference would be 42."""
    edit(
        folder,
        "results.json",
        headline__returns=[10.0, 20.0, 60.0],
        headline__mean_return=30.0,
        headline__std_return=700**0.5,
        headline__return_interval=[10.0, 60.0],
    )
    for mean, interval, holds in (
        (59.0, (59.0, 59.0), True),
        (61.0, (25.0, 90.0), True),
        (61.0, (31.0, 90.0), False),
    ):
        assert measured_as(folder, monkeypatch, mean_return=mean, return_interval=interval) is holds


def test_a_recipe_that_differs_from_the_packaged_one_is_named_and_does_not_fail(
    monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    recipe = read_records(folder)[1]
    for packaged, holds, said in (
        (recipe.override(["train.seed=5"]), True, f"the package's recipe, with training seed {recipe.train.seed}"),
        (recipe.override(["train.lr=0.5"]), None, "not the package's recipe with that id: differs in train.lr"),
    ):
        monkeypatch.setattr("agentzoo.hub.verify.recipe_table", lambda packaged=packaged: {recipe.agent_id: packaged})
        check = next(check for check in verify(folder).checks if check.name == "package")
        assert check.holds is holds
        assert said in check.details


def test_success_rates_may_differ_by_chance_only(folder: Path) -> None:
    """Of 100 and 100 episodes, 1.96 · sqrt(2 · 0.5 · 0.5 / 100) = 0.139 around one half."""
    assert _as_often(0.44, 100, 0.56, 100)
    assert not _as_often(0.42, 100, 0.58, 100)
    assert _as_often(1.0, 2, 0.5, 100)  # one episode of two
    assert not _as_often(1.0, 100, 0.9, 100)
