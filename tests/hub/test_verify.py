"""What `verify` finds out: an honest agent's files agree and its score holds; each kind of lie is found."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from agentzoo.agent import Agent
from agentzoo.evaluation.scores import mean_interval
from agentzoo.hub.card import card_text, read_records
from agentzoo.hub.verify import verify
from hub.conftest import REPO, edit
from hub.server import Hub


def answers(folder: Path, **options: Any) -> dict[str, bool | None]:
    return {check.name: check.holds for check in verify(folder, **options).checks}


def test_verify_confirms_an_honest_agent(folder: Path) -> None:
    report = verify(folder)
    assert report.holds
    assert {check.name for check in report.checks} == {"weights", "recipe", "package", "results", "card", "score"}
    assert report.measured is not None
    assert report.measured.returns == read_records(folder)[2].headline.returns
    assert verify(folder, 2).holds


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
        headline__return_interval=list(mean_interval(returns)),  # type: ignore[arg-type]
        headline__returns=returns,
    )
    (folder / "README.md").write_text(card_text(folder))
    found = answers(folder)
    assert (found["results"], found["card"], found["score"]) == (True, True, False)
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
