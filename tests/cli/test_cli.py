"""The command line, run as a user runs it."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import subprocess
import sys
import warnings
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from statistics import mean
from unittest import mock

import pytest
from conftest import make_agent
from masked.cases import doorkey_agent
from typer.testing import CliRunner

from agentzoo import __version__
from agentzoo.cli import app, main
from agentzoo.cli.command import GROUPS
from agentzoo.data.minari import load_episodes
from agentzoo.envs import MAZE2D_DENSE
from agentzoo.errors import CheckpointError, ConfigError, SpaceError
from agentzoo.evaluation.during import check_environment
from agentzoo.hub.tables import markdown_table
from agentzoo.hub.zoo import list_agents, summaries
from agentzoo.models.dt import DecisionTransformer
from agentzoo.recipe import load_recipe
from agentzoo.store.files import WEIGHTS

PYTHON = sys.executable
ROOT = Path(__file__).resolve().parents[2]


def agentzoo(*words: str, env: dict[str, str] | None = None, code: int = 0) -> subprocess.CompletedProcess[str]:
    """The command in this process: one of its own would spend seconds on importing PyTorch."""
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.setattr(sys, "argv", ["agentzoo", *words])
        patch.setattr(warnings, "formatwarning", warnings.formatwarning)  # `main` sets it
        patch.setattr(warnings, "showwarning", lambda *said: print(warnings.formatwarning(*said[:4]), file=err, end=""))
        with mock.patch.dict(os.environ, {"COLUMNS": "200", **(env or {})}), pytest.raises(SystemExit) as ended:
            main()
    done = subprocess.CompletedProcess(list(words), int(ended.value.code or 0), out.getvalue(), err.getvalue())
    assert done.returncode == code, done.stdout + done.stderr
    return done


@pytest.fixture
def zoo(tmp_path: Path) -> dict[str, str]:
    make_agent("Hopper-v5", context=5, target_return=100.0).save_pretrained(tmp_path / "zoo" / "dt-test")
    return {"AGENTZOO_ZOO": str(tmp_path / "zoo")}


def test_import_is_light() -> None:
    """Under half a second on an idle machine; here the reason: nothing heavy is loaded."""
    heavy = "{'torch', 'transformers', 'minari', 'mujoco', 'gymnasium'}"
    for module in ("agentzoo", "agentzoo.cli"):
        code = f"import sys, {module}; print({heavy} & set(sys.modules))"
        assert subprocess.run([PYTHON, "-c", code], capture_output=True, text=True, check=True).stdout == "set()\n"


def test_loading_an_agent_needs_neither_transformers_nor_minari(zoo: dict[str, str]) -> None:
    code = (
        "import sys, agentzoo; agentzoo.Agent.from_pretrained('zoo/dt-test');"
        "print([m for m in ('transformers','minari','mujoco') if m in sys.modules])"
    )
    done = subprocess.run([PYTHON, "-c", code], capture_output=True, text=True, check=True, env={**os.environ, **zoo})
    assert done.stdout.strip() == "[]"


def test_ids_that_begin_alike_stay_apart_on_a_narrow_terminal(tmp_path: Path) -> None:
    names = {"dt-hopper-medium", "dt-hopper-medium-replay", "dt-hopper-medium-replay-from-scratch-again"}
    for name in names:
        agent = make_agent("Hopper-v5", context=5, target_return=3600.0)
        agent.config = agent.config.model_copy(update={"agent_id": name})
        agent.save_pretrained(tmp_path / name)
    shutil.copyfile(ROOT / "hub_cards" / "unimask-doorkey" / "results.json", tmp_path / "dt-hopper-medium/results.json")
    narrow = CliRunner().invoke(app, ["list"], env={"AGENTZOO_ZOO": str(tmp_path), "COLUMNS": "60"}).output
    shown = {line.split()[0]: line.split() for line in narrow.splitlines() if line.startswith("dt-h")}
    assert set(shown) == names
    assert "chibit-hopper-medium" not in narrow  # a recipe nobody trained
    assert "agentzoo list --all" in narrow
    everything = CliRunner().invoke(app, ["list", "--all"], env={"AGENTZOO_ZOO": str(tmp_path), "COLUMNS": "80"}).output
    assert "chibit-hopper-medium" in everything
    assert "agentzoo list --all" not in everything
    results = json.loads((tmp_path / "dt-hopper-medium/results.json").read_text())
    reached = mean(one["mean_return"] for one in [results["headline"], *results["seeds"]])
    assert 0 < reached < 100
    assert shown["dt-hopper-medium"][1] == f"{reached:.2f}"


def test_a_list_that_is_empty_says_what_there_is(tmp_path: Path) -> None:
    """It was a row of headings without a row."""
    make_agent("Hopper-v5", context=5, target_return=3600.0).save_pretrained(tmp_path / "dt-test")

    def listed(*words: str) -> list[str]:
        done = CliRunner().invoke(app, ["list", *words], env={"AGENTZOO_ZOO": str(tmp_path), "COLUMNS": "300"})
        assert done.exit_code == 0, done.output
        return list(done.output.splitlines())

    (line,) = listed("--env", "CartPole-v1", "--family", "unimask")
    assert line.startswith("no agent of family unimask for CartPole-v1. unimask has agents for Hopper-v5, Point")
    assert line.endswith("; CartPole-v1 has agents of bc, dt.")
    unstaged = listed("--env", "CartPole-v1")
    assert unstaged == ["no staged agent for CartPole-v1", "2 have a recipe to train: `agentzoo list --all`"]
    assert listed("--env", "Hopper-v5", "--family", "dt")[1].startswith("dt-test ")
    assert listed("--env", "CartPole-v1", "--family", "unimask", "--json") == ["[]"]


def test_one_folder_that_cannot_be_read_cuts_no_id_of_the_others(tmp_path: Path) -> None:
    """What is wrong with it is folded into what room there is."""
    make_agent("Hopper-v5", context=5, target_return=100.0).save_pretrained(tmp_path / "dt-test")
    (tmp_path / "broken").mkdir()
    shutil.copyfile(tmp_path / "dt-test" / "model.safetensors", tmp_path / "broken" / "model.safetensors")
    (tmp_path / "broken" / "config.json").write_text('{"format": 1, "model": {"family": "none"}}')
    said = CliRunner().invoke(app, ["list"], env={"AGENTZOO_ZOO": str(tmp_path), "COLUMNS": "100"}).output
    lines = said.splitlines()
    assert " ".join(lines[0].split()) == "agent score (95 %) return seeds target updates environment"
    assert {line.split()[0] for line in lines if line.startswith(("dt-", "broken"))} == {"dt-test", "broken"}
    assert all(len(line) <= 100 for line in lines)


def test_help_shows_a_dozen_commands_in_groups_with_whole_summaries() -> None:
    said = agentzoo("--help").stdout
    titles = re.findall(r"^([A-Z][a-z]+):$", said, flags=re.MULTILINE)
    assert titles == ["Options", *GROUPS]
    assert sum(map(len, GROUPS.values())) <= 12
    for words in ((), ("research",), ("hub",), ("data",), ("research", "gates")):
        assert "..." not in agentzoo(*words, "--help").stdout.partition("\n")[2]


def test_version_list_filters_and_rounded_numbers(zoo: dict[str, str]) -> None:
    assert CliRunner().invoke(app, ["--version"]).output == f"agentzoo {__version__}\n"
    for words, count in (("--env Hopper-v5 --family dt", 1), ("--env Ant-v5", 0), ("--family dm", 0)):
        done = CliRunner().invoke(app, ["list", *words.split(), "--json"], env=zoo)
        assert len(json.loads(done.output)) == count, words
    assert "Did you mean 'dm'" in str(CliRunner().invoke(app, ["list", "--family", "dmm"], env=zoo).exception)
    shown = CliRunner().invoke(app, ["show", "dm-hopper-medium"], env={"COLUMNS": "100"}).output
    assert "3089.6\n" in shown
    assert "3089.59" not in shown


def test_masked_agents_of_environments_elsewhere_can_be_asked_when_trusted(tmp_path: Path) -> None:
    """The error that refuses them recommends an option, which must be there."""
    agent = doorkey_agent()
    agent.config = agent.config.model_copy(update={"env": f"agentzoo.envs:{agent.config.env}"})
    folder = str(agent.save_pretrained(tmp_path / "unimask-test"))
    words = ["research", "infer", folder, "--out", str(tmp_path / "answer.png")]
    assert "--trust-env-module" in str(CliRunner().invoke(app, words).exception)
    assert CliRunner().invoke(app, [*words, "--trust-env-module"]).exit_code == 0
    assert (tmp_path / "answer.png").stat().st_size > 1_000


def test_evaluate_prints_success_where_the_environment_knows_it(tmp_path: Path) -> None:
    for env, said in ((MAZE2D_DENSE, True), ("tests/Counting-v0", False)):
        folder = str(make_agent(env).save_pretrained(tmp_path / str(said)))
        done = CliRunner().invoke(app, ["evaluate", folder, "-n", "2"], env={"COLUMNS": "100"})
        assert done.exit_code == 0, done.output
        assert ("% of episodes" in done.output) is said


def test_sampled_actions_can_be_asked_for(tmp_path: Path) -> None:
    folder = str(make_agent("tests/CountingDiscrete-v0").save_pretrained(tmp_path / "dt-test"))
    for more, deterministic in (["--sampled"], False), ([], True):
        done = CliRunner().invoke(app, ["evaluate", folder, "-n", "2", "--json", *more])
        assert json.loads(done.stdout)["deterministic"] is deterministic


def test_list_and_show(zoo: dict[str, str]) -> None:
    listed = json.loads(agentzoo("list", "--json", env=zoo).stdout)
    assert {one["agent_id"]: one["staged"] for one in listed}["dt-test"] is True
    assert "dt-test" in agentzoo("list", env=zoo).stdout
    shown = json.loads(agentzoo("show", "dt-hopper-medium", "--json", env=zoo).stdout)
    assert shown["train"]["steps"] == 12_000
    printed = agentzoo("show", "dt-test", env=zoo).stdout
    assert "target_return" in printed
    assert "None" not in printed
    assert json.loads(agentzoo("info", "--json", env=zoo).stdout)["staged agents"] == 1


@pytest.mark.parametrize(
    ("words", "idle"),
    [
        ("--author someone", "--author has no effect without --remote"),
        ("--all --author someone --token x", "--author, --token has no effect without --remote"),
        ("--markdown --json", "--json has no effect with --markdown"),
        ("--into README.md --all --markdown", "--all, --markdown has no effect with --into"),
        ("--markdown --env Hopper-v5", "--env has no effect with --markdown"),
        ("--into README.md --family dt", "--family has no effect with --into"),
        ("--remote --all --json", "--all has no effect with --remote"),
    ],
)
def test_list_refuses_options_that_would_do_nothing(
    words: str, idle: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["list", *words.split()])
    assert isinstance(done.exception, ConfigError), done.output
    assert str(done.exception).startswith(idle)


def test_a_folder_that_is_no_readable_agent_does_not_hide_the_others(
    zoo: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENTZOO_ZOO", zoo["AGENTZOO_ZOO"])
    configs = {"gpt2": {"model_type": "gpt2"}, "torn[": {"agent_id": "torn"}, "dt-hopper-medium": {}}
    for name, config in configs.items():
        folder = Path(zoo["AGENTZOO_ZOO"]) / name
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps(config))
        (folder / "model.safetensors").touch()
    listed = {one.agent_id: one for one in summaries()}
    assert "gpt2" not in listed
    assert listed["dt-test"].staged
    for name in ("torn[", "dt-hopper-medium"):
        assert not listed[name].staged
        assert "config.json cannot be used" in str(listed[name].problem)
    assert list_agents() == ["dt-test"]
    assert {"dt-test", "dt-hopper-medium"} == set(configs | {"dt-test": {}}) & set(list_agents(staged_only=False))
    done = CliRunner().invoke(app, ["list"], env={"COLUMNS": "200"})
    assert done.output.count("unreadable") == 2
    assert "torn[" in done.output
    assert "backbones: gpt2 " in done.output
    with pytest.raises(CheckpointError, match="dt-hopper-medium cannot be read: "):
        markdown_table()


@pytest.mark.slow
def test_evaluate_prints_and_writes_the_record(zoo: dict[str, str], tmp_path: Path) -> None:
    output = tmp_path / "result.json"
    done = agentzoo("evaluate", "dt-test", "-n", "3", "--json", "--output", str(output), env=zoo)
    record = json.loads(done.stdout)
    assert record == json.loads(output.read_text())
    assert (record["episodes"], len(record["returns"]), record["env"]) == (3, 3, "Hopper-v5")
    assert record["score_interval"][0] <= record["score"] <= record["score_interval"][1]
    assert record["command"].startswith("agentzoo evaluate dt-test")
    assert "normalized score" in agentzoo("evaluate", "dt-test", "-n", "1", env=zoo).stdout


def test_errors_are_one_line_with_the_nearest_name(zoo: dict[str, str]) -> None:
    done = agentzoo("evaluate", "dt-tset", env=zoo, code=2)
    assert "no agent 'dt-tset'. Did you mean 'dt-test'?" in done.stderr
    assert "Traceback" not in done.stderr
    assert "Did you mean 'dt'" in agentzoo("research", "bench", "dtx", code=2).stderr
    assert "must end in .mp4 or .gif" in agentzoo("record", "dt-test", "x.avi", env=zoo, code=2).stderr
    missing = agentzoo("train", "dt-hopper-medium", env={"MINARI_DATASETS_PATH": "/nonexistent/minari"}, code=2).stderr
    assert "agentzoo data build hopper/medium" in missing


def test_enjoy_says_that_there_is_no_display(zoo: dict[str, str]) -> None:
    done = agentzoo("enjoy", "dt-test", "-n", "1", env={**zoo, "DISPLAY": "", "WAYLAND_DISPLAY": ""})
    assert "No display found" in done.stdout
    assert "return" in done.stdout


def test_a_training_that_is_interrupted_says_how_to_go_on(
    tiny_hopper: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(*words: str) -> tuple[int, str]:
        monkeypatch.setattr("sys.argv", ["agentzoo", *words])
        with pytest.raises(SystemExit) as ended:
            main()
        return ended.value.code, " ".join(capsys.readouterr().err.split())  # type: ignore[return-value]

    def press_ctrl_c(self: DecisionTransformer, step: int, total: int) -> None:
        if step == 7:
            raise KeyboardInterrupt

    monkeypatch.setattr(warnings, "formatwarning", warnings.formatwarning)  # so that it is put back
    fields = ["train.steps=10", "train.checkpoint_every=5", "train.batch_size=4", "model.embed_dim=16", "eval.every=0"]
    settings = [word for field in (*fields, f"data.dataset={tiny_hopper}") for word in ("--set", field)]
    folder = tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr(DecisionTransformer, "begin_step", press_ctrl_c)
        code, said = run("train", "dt-hopper-medium", *settings, "--device", "cpu", "--out", str(folder))
    assert code == 130
    assert "stopped at update 7; the same command continues from update 5" in said
    assert said.endswith("interrupted")
    assert warnings.formatwarning("too few", UserWarning, "train.py", 1) == "warning: too few\n"
    code, said = run("evaluate", str(folder))
    assert code == 2
    assert f"{folder} holds an unfinished training. Continue it with `agentzoo train {folder}`" in said
    code, said = run("train", str(folder), "--device", "cpu")
    assert code == 0
    assert "continuing from update 5" in said
    assert (folder / WEIGHTS).is_file()


def test_an_environment_that_does_not_fit_the_data_is_named(tiny_hopper: str, tmp_path: Path) -> None:
    for env in ("CartPole-v1", "FrozenLake-v1"):
        recipe = load_recipe("dt-hopper-medium").override([f"data.dataset={tiny_hopper}", f"eval.env={env}"])
        with pytest.raises(SpaceError, match=rf"^{env} does not fit {tiny_hopper}: .*Set eval\.env; .*MODULE:Env-v0"):
            check_environment(recipe, load_episodes(tiny_hopper))


@pytest.mark.slow
def test_train_then_finetune_then_evaluate(tiny_hopper: str, tmp_path: Path) -> None:
    small = [
        "--set",
        "train.steps=12",
        "--set",
        "train.batch_size=4",
        "--set",
        "model.embed_dim=16",
        "--set",
        "eval.every=6",
    ]
    small += ["--set", "eval.every_episodes=2", "--set", f"data.dataset={tiny_hopper}", "--device", "cpu"]
    first, second = str(tmp_path / "first"), str(tmp_path / "second")
    done = agentzoo("train", "dt-hopper-medium", *small, "--out", first)
    assert "update 6: score" in done.stderr
    agentzoo("hub", "card", first, "--license", "cc-by-4.0")
    agentzoo(
        "finetune",
        first,
        "--dataset",
        tiny_hopper,
        "--steps",
        "4",
        "--name",
        "mine",
        "--out",
        second,
        "--set",
        "eval.every=0",
    )
    shown = json.loads(agentzoo("show", second, "--json").stdout)
    assert (shown["base"], shown["agent_id"], shown["data"]["normalization"]) == ("dt-hopper-medium", "mine", "keep")
    assert json.loads((tmp_path / "second" / "config.json").read_text())["license"] == "cc-by-4.0"
    recipe, third = str(tmp_path / "second" / "train_config.json"), tmp_path / "third"
    agentzoo("finetune", first, "--recipe", recipe, "--out", str(third))
    assert "either the data" in agentzoo("finetune", first, code=2).stderr
    assert "instead of --steps" in agentzoo("finetune", first, "--recipe", recipe, "--steps", "9", code=2).stderr
    assert (third / "model.safetensors").read_bytes() == (tmp_path / "second" / "model.safetensors").read_bytes()
    assert json.loads(agentzoo("evaluate", second, "-n", "2", "--json").stdout)["episodes"] == 2
    in_module = ["--set", "eval.env=gymnasium.envs.mujoco:Hopper-v5", "--trust-env-module", "--set", "eval.every=2"]
    done = agentzoo("finetune", first, "--recipe", recipe, *in_module, "--out", str(tmp_path / "fourth"))
    assert "before: " in done.stdout
    assert ", after: " in done.stdout
