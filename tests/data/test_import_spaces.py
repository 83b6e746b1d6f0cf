"""Spaces of imported data: those of an environment, or those that the numbers suggest."""

from __future__ import annotations

from pathlib import Path

import minari
import numpy as np
import pytest

from agentzoo.data.making.import_files import import_file
from agentzoo.data.minari import load_episodes
from agentzoo.errors import ConfigError, DataError, SpaceError, UnknownNameError
from data.importing_cases import ID, columns, write_h5


def test_whole_number_actions_are_discrete_without_an_environment(root: Path, tmp_path: Path) -> None:
    arrays = columns(4, terminals=[3], timeouts=[])
    arrays["actions"] = np.array([0, 2, 1, 0])
    import_file(write_h5(tmp_path / "h.hdf5", arrays), ID)
    episodes = load_episodes(ID)
    assert (episodes.action.kind, episodes.action.size) == ("discrete", 3)
    assert episodes.actions.tolist() == [0, 2, 1, 0]


def test_choices_in_a_column_of_their_own_are_choices(root: Path, tmp_path: Path) -> None:
    """As SB3's replay buffer keeps them."""
    arrays = columns(4, terminals=[3], timeouts=[])
    arrays["actions"] = np.array([[0], [2], [1], [0]])
    import_file(write_h5(tmp_path / "h.hdf5", arrays), ID)
    assert load_episodes(ID).actions.tolist() == [0, 2, 1, 0]


@pytest.mark.parametrize("shape", [(4,), (4, 1)])
def test_choices_stored_as_floats_are_those_of_the_environment(
    shape: tuple[int, ...], root: Path, tmp_path: Path
) -> None:
    arrays = columns(4, terminals=[3], timeouts=[])
    arrays["observations"], arrays["actions"] = np.zeros((4, 6)), np.array([0.0, 2.0, 1.0, 0.0]).reshape(shape)
    file = write_h5(tmp_path / "h.hdf5", arrays)
    import_file(file, ID, env_id="Acrobot-v1")
    episodes = load_episodes(ID)
    assert (episodes.action.kind, episodes.actions.tolist()) == ("discrete", [0, 2, 1, 0])
    (note,) = [one for one in import_file(file, ID, overwrite=True).notes if "choices" in one]
    assert note.startswith("actions are the whole numbers from 0 to 2, stored as float64, and imported as a number")
    assert load_episodes(ID).action.kind == "box"
    arrays["actions"] -= 1
    with pytest.raises(DataError, match=r"action -1\.0 at step 0 is not in 0 to 2\. .*choices counted from 0\?"):
        import_file(write_h5(tmp_path / "low.hdf5", arrays), ID, env_id="Acrobot-v1", overwrite=True)


def test_the_axis_of_a_vector_environment_is_named(root: Path, tmp_path: Path) -> None:
    """As SB3's replay buffer keeps the steps of one environment."""
    arrays = columns(4, terminals=[3], timeouts=[])
    arrays["observations"] = arrays["observations"][:, None]
    file = write_h5(tmp_path / "h.hdf5", arrays)
    with pytest.raises(SpaceError, match=r"shape \(1, 11\), but Hopper-v5 has \(11,\)\. .*store observations\[:, 0\]"):
        import_file(file, ID, env_id="Hopper-v5")
    assert any("observations have shape (1, 11), and" in note for note in import_file(file, ID).notes)
    arrays["actions"] = arrays["actions"][:, None]
    with pytest.raises(DataError, match=r"an action has shape \(1, 3\); networks act .*store actions\[:, 0\]"):
        import_file(write_h5(tmp_path / "both.hdf5", arrays), "other/both-v0")
    assert [*minari.list_local_datasets()] == [ID]


def test_actions_an_environment_does_not_know_are_not_imported(root: Path, tmp_path: Path) -> None:
    arrays = columns(4, terminals=[3], timeouts=[])
    arrays["observations"], arrays["actions"] = np.zeros((4, 4)), np.array([[0], [1], [7], [0]])
    with pytest.raises(DataError, match=r"h\.hdf5: action 7 at step 2 is not in 0 to 1"):
        import_file(write_h5(tmp_path / "h.hdf5", arrays), ID, env_id="CartPole-v1")
    with pytest.raises(UnknownNameError, match="Did you mean 'CartPole-v1'"):
        import_file(tmp_path / "h.hdf5", ID, env_id="CartPol-v1")
    with pytest.raises(ConfigError, match="'a/b-v0' is not a dataset id"):  # Minari's own rule
        import_file(tmp_path / "h.hdf5", "a/b-v0")
    for name in ("noversion", "a b-v0", "../../evil-v0", "a/../b-v0", "/abs-v0"):
        with pytest.raises(ConfigError, match=r"is not a dataset id. Minari's form is NAMESPACE/NAME-v0"):
            import_file(tmp_path / "h.hdf5", name)
    assert minari.list_local_datasets() == {}


def test_actions_outside_an_environments_box_are_not_imported(root: Path, tmp_path: Path) -> None:
    arrays = columns(4, terminals=[3], timeouts=[])
    arrays["observations"], arrays["actions"] = np.zeros((4, 3)), np.array([2.0, -2.00001, 0.5, 0.0], np.float32)
    import_file(write_h5(tmp_path / "fits.hdf5", arrays), ID, env_id="Pendulum-v1")
    assert load_episodes(ID).actions[0].tolist() == [2.0]  # one number a step, in a column of its own
    arrays["actions"] = np.array([[2.0], [0.0], [-4.0], [0.0]])
    with pytest.raises(DataError, match=r"action \[-4.\] at step 2 lies outside Box\(-2.0, 2.0, \(1,\), float32\)"):
        import_file(write_h5(tmp_path / "far.hdf5", arrays), "other/far-v0", env_id="Pendulum-v1")
    assert [*minari.list_local_datasets()] == [ID]


def test_actions_beyond_one_by_rounding_are_bounded_by_one(root: Path, tmp_path: Path) -> None:
    arrays = columns(4, terminals=[3], timeouts=[])
    arrays["actions"][1, 0] = np.nextafter(np.float32(1.0), np.float32(2.0))
    import_file(write_h5(tmp_path / "h.hdf5", arrays), ID)
    assert load_episodes(ID).action.high == (1.0, 1.0, 1.0)


@pytest.mark.parametrize("number", [5.0, np.nan])
def test_steps_that_are_dropped_do_not_widen_the_action_space(number: float, root: Path, tmp_path: Path) -> None:
    arrays = columns(6, terminals=[3], timeouts=[])
    arrays["actions"][5, 0] = number
    assert import_file(write_h5(tmp_path / "h.hdf5", arrays), ID).dropped_steps == 2
    assert load_episodes(ID).action.high == (1.0, 1.0, 1.0)


def test_spaces_that_do_not_fit_the_environment_are_named(root: Path, tmp_path: Path) -> None:
    file = write_h5(tmp_path / "h.hdf5", columns(4, terminals=[3], timeouts=[]))
    with pytest.raises(SpaceError, match=r"\(11,\).*\(17,\)"):
        import_file(file, ID, env_id="Walker2d-v5")
    with pytest.raises(SpaceError, match=r"shape \(11,\), but PointMaze_UMaze-v3 has Dict\("):
        import_file(file, ID, env_id="PointMaze_UMaze-v3")
