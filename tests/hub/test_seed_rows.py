"""Runs with other training seeds become rows of a staged agent, measured as it is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from agentzoo.agent import Agent
from agentzoo.cli import app
from agentzoo.errors import CheckpointError, ConfigError, StorageError
from agentzoo.evaluation.results import Result, evaluate
from agentzoo.hub.card import check_card
from agentzoo.hub.finished_runs import measured
from agentzoo.hub.records import read_records
from agentzoo.hub.remeasure import remeasure
from agentzoo.hub.seed_rows import add_seeds
from agentzoo.hub.stored_weights import convert_weights
from agentzoo.hub.verify import check_files
from agentzoo.store.files import CARD, RESULT, STORED_RESULT, VIDEO
from hub.cases import finished, invoke, quickly, rewritten


def trained(folder: Path, dataset: str, seed: int) -> Path:
    """A run with this training seed and weights of its own."""
    run = rewritten(finished(folder, dataset, family="dt"), train__seed=seed)
    agent = Agent.from_pretrained(run)
    torch.manual_seed(seed)
    with torch.no_grad():
        for parameter in agent.model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    agent.save_pretrained(run)
    return run


def rounded(run: Path, copy: Path, target: float) -> Result:
    """The evaluation of a copy with float16 weights."""
    Agent.from_pretrained(run).save_pretrained(copy)
    convert_weights(copy, "float16")
    return evaluate(Agent.from_pretrained(copy), episodes=2, target_return=target)


def test_rows_of_other_seeds_are_added_and_replaced_one_by_one(tiny_hopper: str, tmp_path: Path) -> None:
    first, second, third = (trained(tmp_path / f"run{seed}", tiny_hopper, seed) for seed in range(3))
    folder = quickly(first, tmp_path / "zoo", target="12.5")
    before = read_records(folder)[2]
    shown = invoke("hub", "seeds", str(folder), str(third), str(second))
    assert re.findall(r"^│ (\d) ", shown, re.MULTILINE) == ["0", "1", "2"]
    after = read_records(folder)[2]
    assert after.model_copy(update={"seeds": ()}) == before  # nothing else was measured
    assert [row.training_seed for row in after.seeds] == [1, 2]
    for row, run in zip(after.seeds, (second, third), strict=True):
        by_hand = rounded(run, tmp_path / f"half-{run.name}", 12.5)
        assert (row.returns, row.weights_sha256) == (by_hand.returns, by_hand.weights_sha256)
        assert row.target_return == 12.5  # the staged agent's, not the run's 100
    assert "mean of 3 training seeds" in (folder / CARD).read_text()
    check_card(folder)
    assert [check.details for check in check_files(folder)[2] if check.holds is False] == []

    again = trained(tmp_path / "again", tiny_hopper, 5)
    rewritten(again, train__seed=1)
    add_seeds(folder, [again])
    replaced = read_records(folder)[2].seeds
    assert [row.training_seed for row in replaced] == [1, 2]
    assert replaced[0].weights_sha256 != after.seeds[0].weights_sha256
    assert replaced[1] == after.seeds[1]


def test_an_agent_has_one_writer_at_a_time(tiny_hopper: str, tmp_path: Path) -> None:
    """Else the slower command would put back what the other one has changed meanwhile."""
    first, second = (trained(tmp_path / f"run{seed}", tiny_hopper, seed) for seed in range(2))
    folder = quickly(first, tmp_path / "zoo")
    refused = []

    def meanwhile(_: str) -> None:
        for command in (
            ["hub", "card", str(folder), "--license", "apache-2.0"],
            ["hub", "seeds", str(folder), str(second)],
            ["hub", "remeasure", str(folder), "--history", "1"],
            ["hub", "stage", str(first), "--zoo", str(tmp_path / "zoo"), "--hardware", "a CPU"],
        ):
            found = CliRunner().invoke(app, command)
            assert isinstance(found.exception, StorageError), found.output
            refused.append(str(found.exception))

    add_seeds(folder, [second], on_progress=meanwhile)
    assert len(refused) >= 4
    assert set(refused) == {f"another command is changing {folder}. Repeat this one when that has ended."}
    config, _, results = read_records(folder)
    assert (config.license, [row.training_seed for row in results.seeds]) == ("mit", [1])
    assert invoke("hub", "card", str(folder), "--license", "apache-2.0")
    assert read_records(folder)[0].license == "apache-2.0"


def test_a_seed_of_a_machine_with_another_precision_is_a_seed(tiny_hopper: str, tmp_path: Path) -> None:
    first, second = (trained(tmp_path / f"run{seed}", tiny_hopper, seed) for seed in range(2))
    rewritten(first, train__precision="fp32")
    rewritten(second, train__precision="bf16")
    folder = quickly(first, tmp_path / "zoo")
    assert read_records(folder)[1].train.precision == "fp32"
    assert [row.training_seed for row in add_seeds(folder, [second]).seeds] == [1]


def test_rows_have_the_history_and_the_8_bit_weights_of_the_staged_agent(tiny_hopper: str, tmp_path: Path) -> None:
    first, second = (trained(tmp_path / f"run{seed}", tiny_hopper, seed) for seed in range(2))
    folder = quickly(first, tmp_path / "zoo", weights="int8")
    remeasure(folder, history=1, sweep_episodes=0)
    (row,) = add_seeds(folder, [second]).seeds
    staged = quickly(rewritten(second, agent_id="dt-second"), tmp_path / "zoo", weights="int8")
    remeasure(staged, history=1, sweep_episodes=0)
    config, _, alone = read_records(staged)
    assert (row.history, row.weights_sha256, row.returns) == (1, config.weights_sha256, alone.headline.returns)
    check_card(folder)


def test_a_row_is_measured_once_for_the_same_weights_and_settings(tiny_hopper: str, tmp_path: Path) -> None:
    first, second = (trained(tmp_path / f"run{seed}", tiny_hopper, seed) for seed in range(2))
    own = measured(second, 2)
    folder = quickly(first, tmp_path / "zoo")
    lines: list[str] = []
    counts: list[tuple[int, int]] = []

    def add() -> None:
        add_seeds(folder, [second], on_progress=lines.append, on_episodes=lambda *both: counts.append(both))

    add()
    assert (lines, counts[-1]) == (["2 episodes of run1, its weights as float16"], (2, 2))
    kept = (second / STORED_RESULT).read_bytes()
    add()
    assert (len(lines), counts[-1]) == (1, (0, 0))
    assert (second / STORED_RESULT).read_bytes() == kept
    assert Result.from_json((second / RESULT).read_text(), "kept") == own  # of the run's own float32 weights
    remeasure(folder, target="50", drop_seeds=True)
    add()
    assert (len(lines), counts[-1]) == (2, (2, 2))


def test_a_run_that_does_not_fit_is_refused_and_the_agent_stays(tiny_hopper: str, tmp_path: Path) -> None:
    folder = quickly(trained(tmp_path / "run", tiny_hopper, 0), tmp_path / "zoo")
    good = trained(tmp_path / "good", tiny_hopper, 1)
    other = rewritten(trained(tmp_path / "other", tiny_hopper, 2), train__lr=0.5)
    same = trained(tmp_path / "same", tiny_hopper, 0)
    before = {path: path.read_bytes() for path in folder.iterdir()}
    for runs, said in (
        ([good, other], r"other cannot be shown beside dt-test: train.lr is 0.5 instead of .* not another seed"),
        ([same], "same has training seed 0 again"),
        ([good, good], "good has training seed 1 again"),
    ):
        with pytest.raises(ConfigError, match=said):
            add_seeds(folder, runs)
    assert not (good / STORED_RESULT).exists()
    assert {path: path.read_bytes() for path in folder.iterdir()} == before
    (folder / VIDEO).unlink()
    with pytest.raises(CheckpointError, match=r"lacks replay\.mp4, which its card shows"):
        add_seeds(folder, [good])
