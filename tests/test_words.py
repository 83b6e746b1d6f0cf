"""README and cards are code too: what they say runs and is what the records say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from agentzoo.agent import Agent
from agentzoo.data.catalogue import DATASETS
from agentzoo.hub.card import CARD, card_text, read_records
from agentzoo.locate import staged_agents
from agentzoo.recipe import load_recipe

ROOT = Path(__file__).resolve().parents[1]
STAGED = sorted(staged_agents().items())


def python_blocks(text: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)


@pytest.mark.slow
def test_readme_code_runs() -> None:
    blocks = python_blocks((ROOT / "README.md").read_text())
    assert blocks
    for block in blocks:
        scope: dict[str, object] = {}
        exec(block, scope)
        assert float(scope["mean"]) > 0  # type: ignore[arg-type]


@pytest.mark.parametrize(("agent_id", "folder"), STAGED)
def test_a_staged_card_is_what_its_records_give(agent_id: str, folder: Path) -> None:
    assert (folder / CARD).read_text() == card_text(folder)


@pytest.mark.parametrize(("agent_id", "folder"), STAGED)
def test_staged_recipes_are_the_packaged_ones(agent_id: str, folder: Path) -> None:
    config, recipe, results = read_records(folder)
    assert config.agent_id == recipe.agent_id == results.headline.agent_id == agent_id
    assert recipe == load_recipe(agent_id)
    assert results.headline.weights_sha256 == config.weights_sha256
    assert results.headline.episodes >= 100


@pytest.mark.parametrize(("agent_id", "folder"), STAGED)
def test_staged_agents_load_and_are_small(agent_id: str, folder: Path) -> None:
    Agent.from_pretrained(f"zoo/{agent_id}")
    assert (folder / "model.safetensors").stat().st_size < 5_000_000


def test_the_zoo_is_not_empty() -> None:
    assert STAGED


def test_readme_lists_every_dataset_that_can_be_built() -> None:
    table = (ROOT / "README.md").read_text().split("## Datasets")[1].split("\n## ")[0]
    listed = re.findall(r"^\| `([^`]+)` \|", table, flags=re.MULTILINE)
    assert listed == list(DATASETS)
    for name, recipe in DATASETS.items():
        assert recipe.made_by.rstrip(".") in table, name
