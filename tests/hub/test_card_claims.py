"""What a card claims is so: its commands load the repo they stand on, its numbers are of this task and measured so."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from agentzoo.agent import Agent
from agentzoo.hub.card import card_text
from agentzoo.hub.publish import push
from agentzoo.hub.records import read_records
from agentzoo.recipe import Recipe
from agentzoo.store.locate import staged_agents
from agentzoo.training.finetune import finetune_recipe
from hub.conftest import REPO, edit
from hub.server import Hub


def copy_of(agent_id: str, place: Path) -> Path:
    return Path(shutil.copytree(staged_agents()[agent_id], place / agent_id))


def test_a_fine_tune_of_a_hub_agent_records_its_repo_and_commit(hub: Hub, folder: Path) -> None:
    pushed = push(folder, REPO)
    base = Agent.from_pretrained(REPO)
    recipe = finetune_recipe(base, "tests/other-v0", None, 3, "keep")
    assert (recipe.base, recipe.base_repo, recipe.base_revision) == ("dt-test", REPO, pushed.commit)
    assert Recipe.from_json(recipe.to_json(), "again") == recipe
    local = finetune_recipe(Agent.from_pretrained(folder), "tests/other-v0", None, 3, "keep")
    assert (local.base_repo, local.base_revision) == (None, None)
    assert "base_repo" not in local.to_json()


def test_a_fine_tune_names_no_repo_for_weights_that_were_saved_since(hub: Hub, folder: Path, tmp_path: Path) -> None:
    push(folder, REPO)
    base = Agent.from_pretrained(REPO)
    base.save_pretrained(tmp_path / "same")
    assert finetune_recipe(base, "tests/other-v0", None, 3, "keep").base_repo == REPO
    with torch.no_grad():
        next(base.model.parameters()).add_(1.0)
    base.save_pretrained(tmp_path / "changed")
    recipe = finetune_recipe(base, "tests/other-v0", None, 3, "keep")
    assert (recipe.base_repo, recipe.base_revision) == (None, None)
    assert recipe.base_weights_sha256 == Agent.from_pretrained(tmp_path / "changed").weights_sha256


def test_commands_on_a_repo_s_card_name_the_repo(folder: Path) -> None:
    edit(folder, "results.json", headline__command="agentzoo evaluate dt-test -n 3 --seed 0")
    own, pushed = card_text(folder), card_text(folder, REPO)
    for name, text in (("dt-test", own), (REPO, pushed)):
        assert f"`agentzoo hub verify {name}`" in text
        assert f"`agentzoo evaluate {name} -n 3 --seed 0`" in text


@pytest.mark.parametrize(("agent_id", "sampled"), [("dt-breakout-replay", True), ("dt-cartpole-mixed", False)])
def test_the_snippet_acts_as_the_agent_was_measured(agent_id: str, sampled: bool) -> None:
    folder = staged_agents()[agent_id]
    assert read_records(folder)[2].headline.deterministic is not sampled
    text = card_text(folder)
    found = re.search(r"evaluate_policy\((.*)\)\n", text)
    assert found is not None
    assert found[1].endswith(", deterministic=False") is sampled
    assert ("It was measured with sampled actions" in text) is sampled


def test_a_task_whose_episodes_do_not_end_at_the_goal_is_headed_by_its_return(tmp_path: Path) -> None:
    dense, sparse = (card_text(staged_agents()[name]) for name in ("unimask-maze2d-dense", "unimask-pointmaze-medium"))
    assert "\n**Return " in dense
    assert "Reaches the goal" not in dense
    assert "| agent | return | success | length | episodes |" in dense
    assert "in steps" not in dense
    assert "\n**Reaches the goal in " in sparse
    assert "| steps over successes | steps over all |" in sparse


@pytest.mark.parametrize(
    ("dataset", "shown"),
    [
        ("zoo/hopper/medium-v0", True),
        ("mujoco/hopper/medium-v0", True),
        ("zoo/hopper/expert-v0", False),
        ("zoo/hopper/medium-expert-v0", False),
    ],
)
def test_a_published_score_stands_beside_agents_of_its_task_only(tmp_path: Path, dataset: str, shown: bool) -> None:
    folder = copy_of("dt-hopper-medium", tmp_path)
    changes: dict[str, Any] = {"data__dataset": dataset}
    edit(folder, "train_config.json", **changes)
    assert ("| published: Chen et al. 2021" in card_text(folder)) is shown
