"""README and cards are code too: what they say runs and is what the records say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from agentzoo.agent import Agent
from agentzoo.cli import app
from agentzoo.data.making.catalogue import DATASETS
from agentzoo.errors import ConfigError
from agentzoo.hub.card import card_text
from agentzoo.hub.records import read_records
from agentzoo.hub.verify import check_files
from agentzoo.hub.zoo import with_table
from agentzoo.recipe import differences, load_recipe
from agentzoo.store.files import CARD
from agentzoo.store.locate import hub_location, staged_agents, staged_backbones

ROOT = Path(__file__).resolve().parents[1]
STAGED = sorted(staged_agents().items())


def python_blocks(text: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)


@pytest.mark.slow
def test_readme_code_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = python_blocks((ROOT / "README.md").read_text())
    assert len(blocks) == 2
    monkeypatch.chdir(tmp_path)
    scope: dict[str, object] = {}
    for block in blocks:
        exec(block, scope)
    assert float(scope["mean"]) > 0  # type: ignore[arg-type]
    assert (tmp_path / "hopper.mp4").stat().st_size > 1_000


def test_readme_shows_what_the_zoo_holds() -> None:
    """`agentzoo list --into README.md` makes it so."""
    text = (ROOT / "README.md").read_text()
    assert with_table(text) == text
    shown = [*staged_agents(), *staged_backbones()]
    assert [name for name in shown if f"[`{name}`](hub_cards/{name}/README.md)" not in text] == []


def test_readme_index_sends_an_id_to_a_mirror(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (block,) = re.findall(r"```json\n(.*?)```", (ROOT / "README.md").read_text(), flags=re.DOTALL)
    (tmp_path / "index.json").write_text(block)
    monkeypatch.setenv("AGENTZOO_INDEX", str(tmp_path / "index.json"))
    assert hub_location("dt-hopper-medium") == ("org/dt-hopper", "v1")
    assert hub_location("dt-mine") == ("org/az-dt-mine", None)


def test_every_command_the_readme_shows_exists() -> None:
    from typer.main import get_command

    shown = re.findall(
        r"^agentzoo ([a-z0-9-]+)(?: ([a-z0-9-]+))?", (ROOT / "README.md").read_text(), flags=re.MULTILINE
    )
    commands = get_command(app).commands  # type: ignore[attr-defined]
    for first, second in shown:
        inner = getattr(commands[first], "commands", None)
        assert inner is None or second in inner, f"{first} {second}"
    assert {"list", "train", "finetune", "hub"} <= {first for first, _ in shown}


def test_a_file_without_marks_for_the_table_is_left_alone(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="the file needs the two lines"):
        with_table("# nothing\n")


@pytest.mark.parametrize(("agent_id", "folder"), STAGED)
def test_a_staged_card_is_what_its_records_give(agent_id: str, folder: Path) -> None:
    assert (folder / CARD).read_text() == card_text(folder)


@pytest.mark.parametrize(("agent_id", "folder"), STAGED)
def test_staged_recipes_are_the_packaged_ones(agent_id: str, folder: Path) -> None:
    config, recipe, results = read_records(folder)
    assert config.agent_id == recipe.agent_id == results.headline.agent_id == agent_id
    packaged = load_recipe(agent_id).pinned()  # with the hash of the backbone that is staged beside it
    assert differences(packaged, recipe) == {}
    assert recipe.unsettled(packaged) == packaged.unpinned()
    assert results.headline.weights_sha256 == config.weights_sha256
    assert results.headline.episodes >= 100


@pytest.mark.parametrize(("agent_id", "folder"), STAGED)
def test_staged_files_fit_together(agent_id: str, folder: Path) -> None:
    """What `agentzoo hub verify` says without acting."""
    assert [check.said for check in check_files(folder)[2] if not check.holds] == []


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
