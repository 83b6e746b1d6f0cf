"""The best return that a start of DoorKey allows, by hand and by trying every way."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path

import pytest
from typer.testing import CliRunner

from agentzoo.cli import app
from agentzoo.envs.doorkey_rules import LEFT_CELLS, GridState, path_distance, transition
from agentzoo.errors import ConfigError
from agentzoo.hub.records import read_records
from agentzoo.research.studies.doorkey_optimum import best_return, optimum
from agentzoo.store.locate import find_agent


@pytest.mark.parametrize(
    ("agent", "key", "best"),
    [
        ((2, 1), (2, 2), 5),  # down, up, right through the door, and on: 5 from the start, 7 steps
        ((1, 4), (1, 3), 9),  # the key lies on the way: 9 steps
        ((2, 1), (1, 4), 2),  # 4 steps to the key, 4 back; one into the door, one behind it: 5 - 3
    ],
)
def test_the_best_return_from_a_start_by_hand(agent: tuple[int, int], key: tuple[int, int], best: int) -> None:
    assert best_return(GridState(agent, key)) == best


def test_the_best_return_is_that_of_the_best_sequence() -> None:
    for agent in LEFT_CELLS[:3]:
        start = GridState(agent, LEFT_CELLS[4])
        found = []
        for actions in product(range(4), repeat=5):
            state = start
            for action in actions:
                state = transition(state, action)
            found.append(path_distance(start.agent) - path_distance(state.agent))
        assert best_return(start, 5) == max(found)


def test_the_staged_agent_is_never_better_than_the_best(tmp_path: Path) -> None:
    headline = read_records(find_agent("unimask-doorkey"))[2].headline
    study = optimum(headline)
    assert sum(int(row[1]) for row in study.rows[:-1]) == int(study.rows[-1][1]) == headline.episodes
    assert all(float(row[2]) <= float(row[0].removeprefix("all: ")) for row in study.rows)
    done = CliRunner().invoke(app, ["research", "unimask", "optimum", "unimask-doorkey", "--out", str(tmp_path)])
    assert done.exit_code == 0, done.output
    assert json.loads((tmp_path / "study.json").read_text())["rows"] == [list(row) for row in study.rows]
    with pytest.raises(ConfigError, match="was evaluated in Hopper-v5; the best return is known for"):
        optimum(headline.model_copy(update={"env": "Hopper-v5"}))
