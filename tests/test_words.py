"""README and cards are code too: what they say runs and is what the records say."""

from __future__ import annotations

import re
import warnings
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest

from agentzoo.agent import Agent
from agentzoo.cli import app
from agentzoo.data.making.catalogue import DATASETS
from agentzoo.errors import ConfigError
from agentzoo.hub.card import card_text
from agentzoo.hub.records import read_records
from agentzoo.hub.tables import best_table, markdown_table, with_table
from agentzoo.hub.verify import check_files
from agentzoo.recipe import differences, load_recipe
from agentzoo.store.files import CARD
from agentzoo.store.index import hub_location
from agentzoo.store.locate import staged_agents, staged_backbones
from agentzoo.training.planning import plan

ROOT = Path(__file__).resolve().parents[1]
# staged agents whose packaged recipe has improved since they were trained
WAITING = (ROOT / "tests" / "waiting_for_training.txt").read_text().split()
READMES = [ROOT / "README.md", ROOT / "hub_cards" / "README.md", *sorted((ROOT / "agentzoo").glob("**/README.md"))]
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
    assert scope["state"].timesteps.min() > 0  # type: ignore[attr-defined]


def test_the_collector_of_the_data_readme_records_what_a_recipe_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("jax", reason="minari[create] is not installed")
    (block,) = python_blocks((ROOT / "agentzoo" / "data" / "README.md").read_text())
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Minari's advice
        exec(block.replace("range(100)", "range(2)"), {})
    recipe, episodes = plan("dt", dataset="my/cartpole-v0")
    assert (recipe.eval.env, len(episodes.lengths)) == ("CartPole-v1", 2)


def test_readme_is_short_and_its_links_lead_somewhere() -> None:
    text = (ROOT / "README.md").read_text()
    assert len(text.encode()) <= 8_000
    for path in READMES:
        for target in re.findall(r"\]\(([^)#:]+)\)", path.read_text()):
            assert (path.parent / target).exists(), f"{path}: {target}"


def test_tables_show_what_the_zoo_holds() -> None:
    """`agentzoo list --into README.md` and `--into hub_cards/README.md` make it so."""
    for name in ("README.md", "hub_cards/README.md"):
        text = (ROOT / name).read_text()
        assert with_table(text) == text
    text = (ROOT / "hub_cards" / "README.md").read_text()
    shown = [*staged_agents(), *staged_backbones()]
    assert [name for name in shown if f"[`{name}`]({name}/README.md)" not in text] == []


def best_rows() -> list[list[str]]:
    """The cells of the best table; every row has its environment, which the table names in the first one only."""
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in best_table().splitlines()[2:]]
    for before, row in pairwise(rows):
        row[0] = row[0] or before[0]
    return rows


def test_the_best_of_a_family_has_its_highest_score() -> None:
    rows = best_rows()
    hopper = [row for row in rows if row[0] == "Hopper-v5" and row[1].startswith("`dt-")]
    assert [row[1] for row in hopper] == ["`dt-hopper-medium-expert`"]  # 107.2; 94.3 for medium, 70.8 for replay
    assert hopper[0][2:5] == ["107.2 [104.3, 110.0]", "3,468", "3"]  # as on its card
    assert hopper[0][-1] == "40.4"  # of bc-hopper-medium-expert, whose own row is the whole table's
    assert not any(row[1].startswith("`bc-") for row in rows)


def test_an_environment_is_named_in_its_first_row() -> None:
    named = [line.split("|")[1].strip() for line in best_table().splitlines()[2:]]
    assert len(named) > len(set(named)) > 2
    assert [env for env in named if env] == sorted(set(named) - {""})


def test_an_environment_shows_its_five_best_families() -> None:
    rows = best_rows()
    assert max(Counter(row[0] for row in rows).values()) == 5
    medium = {row[1].strip("`") for row in rows if row[0] == "PointMaze_Medium-v3"}  # eight families reach the goal
    assert "smollm-dt-pointmaze-medium" in medium  # 143 steps, the fewest
    assert not medium & {"dtma-pointmaze-medium", "unimask-pointmaze-medium"}  # 153 steps; 0.99 of the goals


def test_minutes_on_a_gpu_are_marked() -> None:
    rows = [[cell.strip() for cell in line.split("|")] for line in markdown_table().splitlines()[2:]]
    minutes = {row[1].partition("`](")[0].removeprefix("[`"): row[6] for row in rows}
    assert minutes["smollm-dt-pointmaze-medium"] == "3 (GPU)"
    assert minutes["dt-walker2d-medium-expert"] == "10"


def test_a_clone_has_no_target_in_the_table() -> None:
    rows = [[cell.strip() for cell in line.split("|")] for line in markdown_table().splitlines()[2:]]
    targets = {row[1].partition("`](")[0].removeprefix("[`"): row[8] for row in rows}
    assert targets["dt-hopper-medium-expert"] == "3,600"
    assert targets["bc-hopper-medium-expert"] == targets["bc-breakout-replay"] == ""


def test_a_maze_shows_steps_to_its_goals() -> None:
    found = {row[1].strip("`"): (row[3], row[-1]) for row in best_rows()}
    assert found["gpt2-dtma-pointmaze-large"] == ("1.00 in 206", "1.00 in 209")  # as on its card, over all episodes
    assert found["unimask-maze2d-dense"][0] == "1.63"  # its episodes all have 200 steps
    assert found["dt-pendulum-mixed"][0] == "-188"


def test_the_index_shown_sends_an_id_to_a_mirror(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (ROOT / "agentzoo" / "hub" / "README.md").read_text()
    (block,) = re.findall(r"```json\n(.*?)```", text, flags=re.DOTALL)
    (tmp_path / "index.json").write_text(block)
    monkeypatch.setenv("AGENTZOO_INDEX", str(tmp_path / "index.json"))
    assert hub_location("dt-hopper-medium") == ("org/dt-hopper", "v1")
    assert hub_location("dt-mine") == ("org/az-dt-mine", None)


@pytest.mark.parametrize("path", READMES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_command_and_option_that_is_shown_exists(path: Path) -> None:
    from typer.main import get_command

    tree = get_command(app)
    for line in re.findall(r"(?:^|`|=\S+ )agentzoo ([a-z0-9-]+[^`#\n]*)", path.read_text(), flags=re.MULTILINE):
        command, words = tree, line.split()
        while words and words[0] in getattr(command, "commands", {}):
            command = command.commands[words.pop(0)]  # type: ignore[attr-defined]
        assert (
            not getattr(command, "commands", None) or not words or words[0].startswith(("-", "...")) or "|" in line
        ), line
        known = {option for one in command.params for option in one.opts} | {"--help"}
        assert {word.split("=")[0] for word in words if word.startswith("--")} <= known, line


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
    if agent_id in WAITING:  # its recipe has improved since; the new training is to come
        assert differences(packaged, recipe) != {}, f"{agent_id} is trained: delete it from waiting_for_training.txt"
    else:
        assert differences(packaged, recipe) == {}
        assert recipe.unsettled(packaged) == packaged.unpinned()
    assert results.headline.weights_sha256 == config.weights_sha256
    assert results.headline.episodes >= 100


@pytest.mark.parametrize(("agent_id", "folder"), STAGED)
def test_staged_files_fit_together(agent_id: str, folder: Path) -> None:
    """What `agentzoo hub verify` says without acting."""
    unsettled = [check for check in check_files(folder)[2] if not check.holds]
    if agent_id in WAITING:
        assert [(check.name, check.holds) for check in unsettled] == [("package", None)]
    else:
        assert [check.details for check in unsettled] == []


@pytest.mark.parametrize(("agent_id", "folder"), STAGED)
def test_staged_agents_load_and_are_small(agent_id: str, folder: Path) -> None:
    recipe = Agent.from_pretrained(f"zoo/{agent_id}").recipe
    assert recipe is not None
    most = 22_000_000 if agent_id.startswith("smollm-") else 5_000_000
    assert (folder / "model.safetensors").stat().st_size < most == recipe.model.staged_bytes


def test_the_zoo_is_not_empty() -> None:
    assert STAGED


def test_readme_lists_every_dataset_that_can_be_built() -> None:
    table = (ROOT / "agentzoo" / "data" / "README.md").read_text()
    listed = re.findall(r"^\| `([^`]+)` \|", table, flags=re.MULTILINE)
    assert listed == list(DATASETS)
    for name, recipe in DATASETS.items():
        assert recipe.made_by.rstrip(".") in table, name
