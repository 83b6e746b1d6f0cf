"""The commands of `agentzoo data`: what they print, write and refuse."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import h5py
import numpy as np
import pytest
from PIL import Image

from agentzoo.cli import main
from agentzoo.cli.console import console
from agentzoo.data.making.catalogue import DATASETS
from agentzoo.data.minari import load_episodes
from agentzoo.data.summary import text_histogram
from agentzoo.errors import DataError, UnknownNameError

ASSETS = Path(__file__).resolve().parents[1] / "assets" / "minari"


@pytest.fixture
def minari_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(ASSETS, tmp_path / "minari")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    monkeypatch.setattr(console, "width", 160)
    return tmp_path / "minari"


class Said(NamedTuple):
    """What a command printed."""

    stdout: str
    stderr: str


@pytest.fixture
def data(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Said]:
    """`agentzoo data WORDS`, in this process: starting one takes seconds."""

    def run(*words: str, code: int = 0) -> Said:
        monkeypatch.setattr(sys, "argv", ["agentzoo", "data", *words])
        capsys.readouterr()
        with pytest.raises(SystemExit) as left:
            main()
        said = Said(*capsys.readouterr())
        assert left.value.code == code, said.stderr
        return said

    return run


Data = Callable[..., Said]


def test_list_holds_what_is_built_and_what_could_be(data: Data, minari_root: Path) -> None:
    rows = {row["dataset_id"]: row for row in json.loads(data("list", "--json").stdout)}
    tiny = rows["zoo/hopper/tiny-v0"]
    assert (tiny["built"], tiny["episodes"], tiny["env_id"]) == (True, 20, "Hopper-v5")
    assert tiny["best_return"] >= tiny["mean_return"]
    medium = rows["zoo/hopper/medium-v0"]
    assert (medium["built"], medium["steps"], medium["recipe"]) == (False, 500_000, "hopper/medium")
    assert rows["zoo/hopper/medium-expert-v0"]["steps"] == 1_000_000  # each half has the steps of its own recipe
    assert "zoo/hopper/tiny-v0" in data("list").stdout


def a_copy(root: Path, name: str, **metadata: object) -> Path:
    """The tiny dataset as a stranger's, who wrote other metadata."""
    shutil.copytree(root / "zoo" / "hopper" / "tiny-v0", root / "strange" / name)
    path = root / "strange" / name / "data" / "metadata.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "dataset_id": f"strange/{name}", **metadata}))
    return path.parent


def test_one_bad_dataset_is_a_row_and_descriptions_are_plain_text(
    data: Data, minari_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    a_copy(minari_root, "words-v0", description="closes [/b] what [a, b] holds", requirements=["[/b]", 3])
    a_copy(minari_root, "steps-v0", total_steps="many")
    a_copy(minari_root, "spec-v0", env_spec="[1]")
    cut = a_copy(minari_root, "cut-v0", return_mean=None) / "main_data.hdf5"
    cut.write_bytes(cut.read_bytes()[:10_000])
    (a_copy(minari_root, "no-v0") / "metadata.json").write_text("{")
    (minari_root / "my backup" / "data").mkdir(parents=True)  # Minari's own list ends there
    rows = {row["dataset_id"]: row for row in json.loads(data("list", "--json").stdout)}
    assert {name: bool(rows[f"strange/{name}-v0"]["problem"]) for name in ("words", "steps", "spec", "cut", "no")} == {
        "words": False, "steps": True, "spec": True, "cut": True, "no": True
    }  # fmt: skip
    assert "metadata.json cannot be read" in rows["strange/no-v0"]["problem"]
    with pytest.raises(DataError, match=r"strange/cut-v0/data/main_data\.hdf5 cannot be read"):
        load_episodes("strange/cut-v0")
    with pytest.raises(UnknownNameError, match="Did you mean 'strange/cut-v0'"):
        load_episodes("strange/cutt-v0", download=False)
    assert rows["zoo/hopper/tiny-v0"]["episodes"] == 20
    assert "strange/cut-v0/data/main_data.hdf5 cannot be read" in rows["strange/cut-v0"]["problem"]
    said = data("list").stdout
    assert said.count("unreadable") == 4
    for word in ("[/b]", "[a,", "ValueError"):
        assert word in said
    monkeypatch.setattr(console, "width", 80)
    narrow = data("list").stdout
    (tiny,) = (line for line in narrow.splitlines() if line.startswith("zoo/hopper/tiny-v0 "))
    assert f"{rows['zoo/hopper/tiny-v0']['mean_score']:.1f}" in tiny.split()  # nothing is cut
    assert narrow.count("unreadable") == 4
    assert f"strange/cut-v0: {rows['strange/cut-v0']['problem']}\n" in narrow
    shown = data("show", "strange/words-v0").stdout
    assert "closes [/b] what [a, b] holds" in shown
    assert "[/b], 3" in shown


def test_list_reads_the_rewards_of_a_strangers_dataset_and_not_its_observations(data: Data, minari_root: Path) -> None:
    with h5py.File(a_copy(minari_root, "x-v0", return_mean=None, return_max=None) / "main_data.hdf5", "r+") as file:
        for episode in file.values():
            del episode["observations"]
    rows = {row["dataset_id"]: row for row in json.loads(data("list", "--json").stdout)}
    own, strange = (rows[name] for name in ("zoo/hopper/tiny-v0", "strange/x-v0"))
    assert strange["problem"] is None
    for name in ("mean_return", "best_return"):
        assert strange[name] == pytest.approx(own[name], rel=1e-12)


@pytest.mark.parametrize(
    ("lost", "made_by"),
    [((), "A walker."), (("description",), "QR-SAC"), (("description", "algorithm_name"), "")],
    ids=["described", "only its algorithm", "neither"],
)
def test_a_dataset_was_made_as_described_or_else_by_its_algorithm(
    data: Data, minari_root: Path, lost: tuple[str, ...], made_by: str
) -> None:
    path = a_copy(minari_root, "x-v0", description="A walker.", algorithm_name="QR-SAC") / "metadata.json"
    kept = {key: value for key, value in json.loads(path.read_text()).items() if key not in lost}
    path.write_text(json.dumps(kept))
    shown = data("show", "strange/x-v0").stdout
    assert f"\nmade by      {made_by or 'not recorded'}\n" in shown
    (row,) = (line for line in data("list").stdout.splitlines() if line.startswith("strange/x-v0 "))
    assert " ".join(row.split()).split("5,792 20 937 1,000 29.4")[1].strip() == made_by
    rows = {one["dataset_id"]: one for one in json.loads(data("list", "--json").stdout)}
    assert rows["strange/x-v0"]["made_by"] == made_by


def test_show_counts_and_draws(data: Data, minari_root: Path, tmp_path: Path) -> None:
    picture = tmp_path / "returns.png"
    record = json.loads(data("show", "zoo/hopper/tiny-v0", "--json", "--plot", str(picture)).stdout)
    assert record["episodes"] == 20
    quantiles = list(record["returns"]["quantiles"].values())
    assert quantiles == sorted(quantiles)
    score = (record["returns"]["mean"] + 20.272305) / (3234.3 + 20.272305) * 100
    assert record["normalized"]["mean"] == pytest.approx(score)
    assert len(np.unique(np.asarray(Image.open(picture)).reshape(-1, 4), axis=0)) > 10
    text = data("show", "zoo/hopper/tiny-v0").stdout
    assert "per episode" in text
    assert "█" in text


def test_equal_returns_are_one_bin(data: Data, minari_root: Path, tmp_path: Path) -> None:
    """Equal up to rounding, that is: numpy finds no bins between such numbers."""
    assert text_histogram(np.full(3, 5.0)) == text_histogram(np.array([5.0, 5.0, 5.0]))
    for values in ([0.1 + 0.2, 0.3, 0.3], [1e17, 1e17], [0.0], [-1e-300, 1e-300 - 2e-300]):
        (line,) = text_histogram(np.array(values))
        assert line.endswith(f" {len(values)}")
    with h5py.File(a_copy(minari_root, "even-v0") / "main_data.hdf5", "a") as file:
        for number, episode in enumerate(file.values()):
            episode["rewards"][:] = 0.0
            episode["rewards"][0] = 0.3 if number % 2 else 0.1 + 0.2
    picture = tmp_path / "returns.png"
    assert data("show", "strange/even-v0", "--plot", str(picture)).stdout.count("█ 20") == 1
    assert picture.exists()


def test_data_of_an_environment_with_options_has_no_score_of_the_plain_one(data: Data, minari_root: Path) -> None:
    spec = json.loads(json.loads((minari_root / "zoo/hopper/tiny-v0/data/metadata.json").read_text())["env_spec"])
    plain = {"ref_min_score": None, "ref_max_score": None}
    for name, more in (("kwargs", {"kwargs": {"healthy_reward": 0.0}}), ("limit", {"max_episode_steps": 50})):
        a_copy(minari_root, f"{name}-v0", env_spec=json.dumps({**spec, **more}), **plain)
    rows = {row["dataset_id"]: row["mean_score"] for row in json.loads(data("list", "--json").stdout)}
    assert (rows["strange/kwargs-v0"], rows["strange/limit-v0"]) == (None, None)
    assert rows["zoo/hopper/tiny-v0"] is not None
    assert json.loads(data("show", "strange/kwargs-v0", "--json").stdout)["reference"] is None
    a_copy(minari_root, "own-v0", env_spec=json.dumps({**spec, **more}), ref_min_score=1.0, ref_max_score=2.0)
    own = json.loads(data("show", "strange/own-v0", "--json").stdout)["reference"]
    assert own == {"random": 1.0, "expert": 2.0}
    to_play = json.dumps({**spec, "id": "Walker2d-v5"})  # as training, which evaluates there
    a_copy(minari_root, "played-v0", env_spec=json.dumps(spec), eval_env_spec=to_play)
    assert json.loads(data("show", "strange/played-v0", "--json").stdout)["env_id"] == "Walker2d-v5"


def test_wrong_names_get_the_nearest_one(data: Data, minari_root: Path) -> None:
    assert "zoo/hopper/tiny-v0" in data("show", "zoo/hopper/tinny-v0", code=2).stderr
    assert "hopper/medium" in data("build", "hopper/meduim", code=2).stderr
    assert "agentzoo data build hopper/medium" in data("show", "zoo/hopper/medium-v0", code=2).stderr.replace("\n", "")
    assert "NAME of a dataset or --all" in data("build", code=2).stderr


def test_build_once_then_again_with_overwrite(data: Data, minari_root: Path) -> None:
    assert "500 steps" in data("build", "doorkey/train-50").stdout
    assert "--overwrite" in data("build", "doorkey/train-50", code=2).stderr
    data("build", "doorkey/train-50", "--overwrite")
    assert json.loads(data("show", "doorkey/train-50", "--json").stdout)["episodes"] == 50


def test_build_all_goes_on_after_what_cannot_be_made(
    data: Data, minari_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = {name: DATASETS[name] for name in ("hopper/medium", "doorkey/train-50")}
    monkeypatch.setattr("agentzoo.data.making.catalogue.DATASETS", few)
    monkeypatch.delenv("AGENTZOO_SOURCES", raising=False)
    said = data("build", "--all", code=1)
    assert "zoo/doorkey/train-50-v0: 500 steps" in said.stdout
    assert "skipped 1 of 2" in said.stderr
    assert "zoo/hopper/medium-v0: building this needs 'sac-hopper-medium.zip'" in said.stderr
    assert "already exists" in data("build", "--all", code=1).stdout


def test_a_picture_without_matplotlib_says_what_to_install(
    data: Data, minari_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("matplotlib", "matplotlib.figure"):
        monkeypatch.setitem(sys.modules, module, None)
    said = data("show", "zoo/hopper/tiny-v0", "--plot", str(tmp_path / "returns.png"), code=2).stderr
    assert "agentzoo[plots]" in said


def test_import_says_what_it_left_out(data: Data, minari_root: Path, tmp_path: Path) -> None:
    with h5py.File(tmp_path / "h.hdf5", "w") as file:
        file["observations"] = np.zeros((5, 11), np.float32)
        file["actions"] = np.zeros((5, 3), np.float32)
        file["rewards"] = np.ones(5, np.float32)
        file["terminals"] = np.array([0, 0, 1, 0, 0], bool)
    said = data("import", str(tmp_path / "h.hdf5"), "--id", "d4rl/hopper/mini-v2", "--env", "Hopper-v5").stdout
    assert "1 episode, 3 steps" in said
    assert "last 2 steps" in said
    assert data("import", str(tmp_path / "h.hdf5"), "--id", "d4rl/hopper/mini-v2", code=2).stderr


@pytest.mark.slow
def test_behaviour_then_import(data: Data, minari_root: Path, tmp_path: Path) -> None:
    few = ["--max-steps", "400", "--every", "400", "--episodes", "1", "--learning-starts", "400"]
    said = data("behaviour", "Pendulum-v1", "--threshold", "0", "--out", str(tmp_path / "run"), *few).stdout
    assert "not reached" in said
    buffer = tmp_path / "run" / "pendulum-medium-replay.npz"
    data("import", str(buffer), "--env", "Pendulum-v1", "--id", "me/pendulum-v0")
    assert json.loads(data("show", "me/pendulum-v0", "--json").stdout)["steps"] == 400
