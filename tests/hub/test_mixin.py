"""What users of huggingface_hub's mixins expect: the same arguments of pushing, saving and loading."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import make_agent

from agentzoo.agent import Agent
from agentzoo.errors import CheckpointError, ConfigError
from hub.cases import same_actions
from hub.conftest import REPO
from hub.server import Hub


def test_push_to_hub_takes_what_the_mixins_take(hub: Hub) -> None:
    agent = make_agent()
    agent.push_to_hub(REPO, commit_message="first", private=True, token=None)
    assert hub.repos[REPO].private
    assert set(hub.repos[REPO].head) >= {"config.json", "model.safetensors", "train_config.json", "README.md"}


def test_a_pull_request_leaves_the_branch_as_it_is(hub: Hub) -> None:
    agent = make_agent()
    agent.push_to_hub(REPO)
    before = hub.repos[REPO].head
    agent.target_return = 7.0
    url = agent.push_to_hub(REPO, commit_message="Ask for 7", create_pr=True)
    assert url == f"{hub.url}/{REPO}/discussions/1"
    assert hub.repos[REPO].head == before
    proposed = hub.repos[REPO].commits[hub.repos[REPO].pulls["refs/pr/1"]]
    assert proposed["config.json"] != before["config.json"]
    assert Agent.from_pretrained(REPO, revision="refs/pr/1").target_return == 7.0
    with pytest.raises(ConfigError, match="a pull request cannot have a tag"):
        agent.push_to_hub(REPO, create_pr=True, tag="v1")


def test_patterns_choose_the_files(hub: Hub) -> None:
    agent = make_agent()
    agent.push_to_hub(REPO, ignore_patterns=["*.json"])
    assert set(hub.repos[REPO].head) - {".gitattributes"} == {"model.safetensors", "README.md"}
    agent.push_to_hub(REPO, allow_patterns="config.json")
    assert set(hub.repos[REPO].head) - {".gitattributes"} == {"model.safetensors", "README.md", "config.json"}
    with pytest.raises(ConfigError, match="leave no file of"):
        agent.push_to_hub(REPO, allow_patterns=["*.bin"])


def test_save_pretrained_can_push(hub: Hub, tmp_path: Path) -> None:
    agent = make_agent()
    folder = agent.save_pretrained(tmp_path / "saved", push_to_hub=True, repo_id=REPO, commit_message="saved")
    assert same_actions(Agent.from_pretrained(REPO), Agent.from_pretrained(folder))
    for wrong in ({"push_to_hub": True}, {"repo_id": REPO}, {"private": True}):
        with pytest.raises(ConfigError, match="together"):
            agent.save_pretrained(tmp_path / "other", **wrong)
    assert not (tmp_path / "other").exists()


def test_an_agent_in_a_subfolder_loads(hub: Hub, tmp_path: Path) -> None:
    agent = make_agent()
    agent.push_to_hub(REPO)
    repo = hub.repos[REPO]
    repo.commit({f"agents/small/{name}": data for name, data in repo.head.items()})
    loaded = Agent.from_pretrained(REPO, subfolder="agents/small")
    assert same_actions(loaded, agent)
    agent.save_pretrained(tmp_path / "all" / "one")
    assert same_actions(Agent.from_pretrained(tmp_path / "all", subfolder="one"), agent)
    with pytest.raises(CheckpointError, match="has no subfolder 'two'"):
        Agent.from_pretrained(tmp_path / "all", subfolder="two")
    with pytest.raises(CheckpointError, match="has no subfolder 'two'"):
        Agent.from_pretrained(REPO, subfolder="two")
    for climbing in ("../all/one", "/etc", "one/", "a//b"):
        with pytest.raises(ConfigError, match="a path inside the repo"):
            Agent.from_pretrained(tmp_path / "all", subfolder=climbing)
