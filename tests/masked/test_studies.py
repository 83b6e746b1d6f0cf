"""Studies as records on cards, and the dense maze acted in three ways."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import io_of

from agentzoo.agent import Agent
from agentzoo.config import AgentConfig
from agentzoo.data.episodes import Episodes
from agentzoo.envs import MAZE2D_DENSE
from agentzoo.envs.making import make_env
from agentzoo.errors import CheckpointError, ConfigError, ShapeError
from agentzoo.evaluation.results import Results
from agentzoo.evaluation.study import Study, read_study, write_study
from agentzoo.hub.card import card_text
from agentzoo.models.unimask import UniMask, UniMaskConfig
from agentzoo.recipe import load_recipe
from agentzoo.research.studies.three_ways import GoalAhead, as_study, nearest_targets, three_ways, usual_reach
from agentzoo.types import ActionSpec, ObservationSpec
from masked.cases import SIZES, doorkey_agent

CARDS = Path(__file__).resolve().parents[2] / "hub_cards"
STUDY = Study(title="A *study*", columns=("a|b", "c"), rows=(("<b>", "1"),), picture="study-0.png", note="[x](y)")


def test_a_study_stands_on_the_card_and_its_markup_does_not(tmp_path: Path) -> None:
    folder = tmp_path / "dt-hopper-medium"
    shutil.copytree(CARDS / "dt-hopper-medium", folder)
    results = Results.from_json((folder / "results.json").read_text(), "results.json")

    def card_with(*studies: Study) -> str:
        (folder / "results.json").write_text(results.model_copy(update={"studies": studies}).to_json())
        return card_text(folder)

    plain, text = card_with(), card_with(STUDY)
    without_picture = card_with(STUDY.model_copy(update={"picture": None}))
    assert (
        "<summary>A *study*</summary>\n\n![A \\*study\\*](study-0.png)\n\n| a\\|b | c |\n|---|---|\n| \\<b\\> | 1 |\n"
        in text
    )
    assert "\\[x\\](y)" in text
    assert "](study-0.png)" not in without_picture
    assert "study" not in plain


def test_studies_are_kept_and_checked(tmp_path: Path) -> None:
    write_study(STUDY, tmp_path)
    assert read_study(tmp_path) == read_study(tmp_path / "study.json") == STUDY
    with pytest.raises(CheckpointError, match=r"no study at .*nowhere"):
        read_study(tmp_path / "nowhere")
    for bad in ('{"title": "x", "columns": ["a"], "rows": [["1", "2"]]}', '{"title": "x", "picture": "../x.png"}'):
        (tmp_path / "study.json").write_text(bad)
        with pytest.raises(ConfigError, match=r"every row needs 1 cells|picture"):
            read_study(tmp_path)


def data() -> Episodes:
    """Three episodes of two steps with returns 1, 2 and 3."""
    starts = np.array([[0, 0, 1, 1], [5, 5, 1, 1], [0, 0, 4, 4]], dtype=np.float32)
    return Episodes(
        dataset="tests/maze-v0",
        observation=ObservationSpec(size=4, shapes=((4,),)),
        action=ActionSpec(kind="box", size=2, low=(-1.0, -1.0), high=(1.0, 1.0)),
        observations=np.repeat(starts, 2, axis=0),
        actions=np.zeros((6, 2), np.float32),
        rewards=np.array([0.5, 0.5, 1.0, 1.0, 1.5, 1.5]),
        lengths=np.array([2, 2, 2]),
        terminated=np.zeros(3, dtype=bool),
    )


def test_targets_are_those_of_the_nearest_training_episode() -> None:
    starts = np.array([[4, 4, 1, 1], [0.1, 0, 3.5, 4], [0, 0, 1, 1.2]], dtype=np.float32)
    np.testing.assert_allclose(nearest_targets(starts, data(), factor=2.0), [4.0, 6.0, 2.0])


def walks() -> Episodes:
    """Two episodes of five steps, 1 m a step along x: one to a goal it reaches at its fourth step, one far from its."""
    x = np.arange(5, dtype=np.float32)
    nothing = np.zeros_like(x)
    reached = np.stack([np.minimum(x, 3), nothing, nothing + 3, nothing], axis=1)
    far = np.stack([2 * x, nothing, nothing + 20, nothing], axis=1)
    return replace(
        data(),
        observations=np.concatenate([reached, far]),
        actions=np.zeros((10, 2), np.float32),
        rewards=np.ones(10),
        lengths=np.array([5, 5]),
        terminated=np.zeros(2, dtype=bool),
    )


def test_usual_reach_by_hand() -> None:
    """Two steps that end away from the goal move 2 m once in the first episode, 4 m three times in the second."""
    assert usual_reach(walks(), 2) == 4.0
    assert usual_reach(walks(), 1) == 2.0  # 1, 1 and 2, 2, 2, 2
    with pytest.raises(ConfigError, match="no 7 steps that end away from the goal"):
        usual_reach(walks(), 7)


def test_the_goal_ahead_lies_on_the_way() -> None:
    env = GoalAhead(make_env(MAZE2D_DENSE), reach=[0.1, 0.3, 0.5])
    seen, _ = env.reset(seed=0)
    point, goal = seen["observation"][:2], seen["observation"][2:]
    ahead = seen["goal"]
    assert np.linalg.norm(ahead[:2] - point) == pytest.approx(0.5)
    assert np.linalg.norm(goal - ahead[:2]) == pytest.approx(np.linalg.norm(goal - point) - 0.5)
    assert env.observation_space.contains(seen)
    near = env.observation(np.array([1.0, 1.0, 1.2, 1.0]))
    assert near["goal"].tolist() == [1.2, 1.0, 1.2, 1.0]
    assert env.observation(np.ones(4))["goal"].tolist() == [1.0] * 4
    far = np.array([1.0, 1.0, 5.0, 1.0])
    reaches = []
    for _ in range(5):  # the end of a window of four: three steps away, two, one, and then always one
        reaches.append(env.observation(far)["goal"][0] - 1.0)
        env.step(env.action_space.sample())
    assert reaches == pytest.approx([0.5, 0.3, 0.1, 0.1, 0.1])
    env.reset(seed=0)
    assert env.observation(far)["goal"][0] == pytest.approx(1.5)
    env.close()
    short = GoalAhead(make_env(MAZE2D_DENSE), reach=[0.1, 0.3, 0.5], history=2)
    short.reset(seed=0)
    reaches = []
    for _ in range(4):  # two steps of the window are read, so its end stays two steps away
        reaches.append(short.observation(far)["goal"][0] - 1.0)
        short.step(short.action_space.sample())
    assert reaches == pytest.approx([0.5, 0.3, 0.3, 0.3])
    short.close()


def test_masked_agents_that_see_no_point_and_goal_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"a 'unimask' network for agentzoo/DoorKey.*can be run in three ways"):
        three_ways(doorkey_agent(), walks(), 2)


@pytest.mark.slow
def test_three_ways_to_act_in_the_maze() -> None:
    env = make_env(MAZE2D_DENSE)
    io = io_of(env, 4)
    env.close()
    recipe = load_recipe("unimask-maze2d-dense").replace(model=UniMaskConfig(**SIZES))
    torch.manual_seed(0)
    agent = Agent(UniMask(UniMaskConfig(**SIZES), io), AgentConfig.of(recipe, io), recipe)
    ways = three_ways(agent, walks(), 2)
    assert [way.name for way in ways] == ["cloned", "with a return", "with a goal"]
    assert all(way.returns.shape == (2,) for way in ways)
    assert len({way.returns.tobytes() for way in ways}) == 3
    assert agent.target_return == 3.3
    assert three_ways(agent, walks(), 2)[1].returns.tolist() == ways[1].returns.tolist()
    study = as_study(ways, walks())
    assert study.rows[0][1].startswith(f"{ways[0].returns.mean():.3f} [")
    assert study.rows[1][3] == "2.306 ± 0.061"


def test_a_target_for_each_environment() -> None:
    env = make_env(MAZE2D_DENSE)
    io = io_of(env, 4)
    env.close()
    recipe = load_recipe("unimask-maze2d-dense").replace(model=UniMaskConfig(**SIZES))
    agent = Agent(UniMask(UniMaskConfig(**SIZES), io), AgentConfig.of(recipe, io), recipe)
    agent.condition(target_return=[1.0, 5.0])
    _, state = agent.predict(np.zeros((2, 4)), None)
    assert state.returns_to_go[:, 0].tolist() == [1.0, 5.0]  # type: ignore[union-attr]
    _, state = agent.predict(np.zeros((2, 4)), state, reward=[0.25, 0.5])
    assert state.returns_to_go[:, 1].tolist() == [0.75, 4.5]  # type: ignore[union-attr]
    with pytest.raises(ShapeError, match="2 target returns were given, the observation has 3 rows"):
        agent.predict(np.zeros((3, 4)), None)
    agent.condition(target_return=2.0)
    _, state = agent.predict(np.zeros((3, 4)), None)
    assert state.returns_to_go[:, 0].tolist() == [2.0] * 3  # type: ignore[union-attr]
