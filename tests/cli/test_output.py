"""What the command line prints: whole sentences, nothing cut, at once."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import PIPE

import pytest
from conftest import make_agent
from rich.console import Console
from typer.testing import CliRunner

from agentzoo.cli import app
from agentzoo.cli.command import _one_line
from agentzoo.cli.console import console, listing, print_facts, print_listing, word
from agentzoo.hub.overview import overview
from agentzoo.hub.zoo import summaries
from agentzoo.recipes._table import TABLE, table_text
from agentzoo.store.files import RESULTS
from agentzoo.store.locate import staged_agents
from agentzoo.text import counted, duration

# Reads (words, environment variables, file) a line and runs the command in this process, which imports nothing else.
COMMANDS = """
import json, os, sys, traceback
from agentzoo.cli import main
answers = os.fdopen(os.dup(1), "w")
os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
for line in sys.stdin:
    words, variables, path = json.loads(line)
    os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT), 2)
    os.environ.update(variables)
    sys.argv, status = ["agentzoo", *words], 0
    try:
        main()
    except SystemExit as end:
        status = end.code or 0
    except BaseException:
        status = traceback.print_exc() or 1
    heavy = {"torch", "gymnasium", "minari", "huggingface_hub", "numpy"} & set(sys.modules)
    print("heavy:", sorted(heavy), file=sys.stderr, flush=True)
    print(status, file=answers, flush=True)
"""
Running = Callable[..., tuple[int, str]]


@pytest.fixture(scope="module")
def run_light(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Runs a command where none before has imported anything heavy -> its exit status, and what it says on stderr."""
    folder = tmp_path_factory.mktemp("said")
    with subprocess.Popen([sys.executable, "-c", COMMANDS], stdin=PIPE, stdout=PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None

        def run(words: str, **variables: str) -> tuple[int, str]:
            path = folder / f"{len(list(folder.iterdir()))}.txt"
            print(json.dumps([words.split(), variables, str(path)]), file=process.stdin, flush=True)
            return int(process.stdout.readline()), path.read_text()

        yield run
        process.stdin.close()


@pytest.mark.parametrize(
    "words",
    [
        "list",
        "list --all --json",
        "list --family dt",
        "show dt-hoper-medium",
        "evaluate dt-hoper-medium",
        "record dt-hoper-medium x.gif",
        "train dt-hoper-medium",
        "finetune dt-hoper-medium --dataset a",
        "hub verify dt-hoper-medium",
        "hub export dt-hoper-medium x.onnx",
        "research sweep dt-hoper-medium --up-to 10",
        "research infer dt-hoper-medium",
        "research heads random dt-hoper-medium",
        "research gates context dt-hoper-medium",
        "research unimask maze2d dt-hoper-medium",
        "research unimask optimum dt-hoper-medium",
        "research offline-rl iql bc-hoper-medium",
        "search dt-hoper-medium --space train.lr=1,2",
        "train dtt --dataset my/cartpole-v0",
        "grid --agents dt-hopper-medium,dt-hoper-medium",
        "grid --agents dt,dtt --dataset my/cartpole-v0",
        "train dt --dataset hoper/medium",
        "finetune dt-hopper-medium --dataset hoper/medium",
        "list --env Hoper-v5",
        "list --family dtt",
        "lst",
    ],
)
def test_lists_and_typos_are_answered_without_heavy_imports(words: str, run_light: Running) -> None:
    status, said = run_light(words)
    assert "heavy: []" in said
    assert ("Did you mean" in said) == (status != 0)
    assert (status == 0) == (words in ("list", "list --all --json", "list --family dt"))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("data show hoper/medium", "Did you mean 'hopper/medium'"),
        ("data show zoo/hopper/medium-v0", "agentzoo data build hopper/medium"),
        ("data build hoper/medium", "Did you mean 'hopper/medium'"),
        ("data push hoper/medium --org me", "Did you mean 'hopper/medium'"),
        ("research inspect dt-hoper-medium", "Did you mean 'dt-hopper-medium'"),
        ("research bench dtt", "Did you mean 'dt'"),
        ("hub push hub_cards/dt-hoper-medium me/dt", "is not a folder"),
        ("hub card hub_cards/dt-hoper-medium", "is not a folder"),
        ("hub stage runs/nowhere --hardware x", "holds no finished run: there is no such folder"),
        ("hub baselines runs/nowhere", "holds no finished run"),
        ("hub baselines hub_cards/bc-hopper-medium --zoo hub_cardz", "is not a folder"),
        ("research compare runs/nowhere", "holds no finished run"),
        ("hub pull dt-hoper-medium", "is not a Hub repo"),
    ],
)
def test_what_is_not_there_is_named_without_heavy_imports(
    words: str, said: str, run_light: Running, tmp_path: Path
) -> None:
    _, found = run_light(words, MINARI_DATASETS_PATH=str(tmp_path))
    assert said in " ".join(found.split())
    assert "heavy: []" in found


def test_the_table_of_recipes_is_of_these_recipes() -> None:
    """`python -m agentzoo.recipes._table` writes it again."""
    assert TABLE.read_text() == table_text()


def test_a_glance_at_the_zoo_sees_what_a_full_check_sees(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert overview() == summaries()
    make_agent("Hopper-v5", context=5, target_return=100.0).save_pretrained(tmp_path / "dt-mine")
    monkeypatch.setenv("AGENTZOO_ZOO", str(tmp_path))
    assert overview() == summaries()
    (tmp_path / "dt-mine" / "train_config.json").write_text("{")
    assert overview() is None  # the full check says what is wrong
    assert "train_config.json cannot be used" in str({one.agent_id: one for one in summaries()}["dt-mine"].problem)


def test_a_record_without_episodes_is_a_problem_of_its_agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "dt-pointmaze-umaze"
    shutil.copytree(staged_agents()[folder.name], folder)
    results = json.loads((folder / RESULTS).read_text())
    results["seeds"][0]["lengths"] = []
    (folder / RESULTS).write_text(json.dumps(results))
    monkeypatch.setenv("AGENTZOO_ZOO", str(tmp_path))
    assert overview() is None
    assert "seeds.0.lengths" in str({one.agent_id: one for one in summaries()}[folder.name].problem)


def test_colors_of_others_warnings_do_not_leak() -> None:
    import gymnasium

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        gymnasium.logger.warn("Overriding environment %s", "Hopper-v5")
    assert "\x1b" in str(caught[0].message)
    assert _one_line(caught[0].message, UserWarning, "x.py", 1) == "warning: Overriding environment Hopper-v5\n"


def test_in_a_pipe_nothing_is_wrapped_or_cut(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    path, prose = "/" + "x" * 300, "many words " * 60
    console.print(f"done: {path}, {prose}")
    print_facts({"path": path, "text": prose}, title=f"title {path}")
    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert len(lines) == 4
    assert lines[0] == f"done: {path}, {prose}".rstrip()
    assert lines[1] == f"title {path}"
    assert lines[2].split() == ["path", path]


def test_on_a_narrow_terminal_what_is_copied_stays_whole(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Console, "is_terminal", property(lambda _: True))
    monkeypatch.setenv("COLUMNS", "40")
    url = "https://hub.example.org/some-organization/some-agent/commit/0123456789abcdef"
    console.print(url)
    print_facts({"where": url})
    assert capsys.readouterr().out.count(url) == 2


def test_a_table_for_a_narrow_terminal_is_whole_while_standard_output_is_a_file(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`agentzoo grid` prints its plan on standard error."""
    monkeypatch.delenv("COLUMNS", raising=False)
    table, narrow = listing("run", "updates", "hours left"), Console(stderr=True, width=40)
    table.add_row("dt-hopper-medium-replay-s0", "100,000", "12.34")
    print_listing(table, narrow)
    found = capsys.readouterr().err.splitlines()
    assert [line.split() for line in found] == [
        ["run", "updates", "hours", "left"],
        ["dt-hopper-medium-replay-s0", "100,000", "12.34"],
    ]


@pytest.mark.parametrize("columns", ["40", "500"])
def test_no_line_of_a_table_ends_in_spaces_that_a_terminal_would_wrap(
    columns: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Console, "is_terminal", property(lambda _: True))
    monkeypatch.setenv("COLUMNS", columns)
    print_facts({"short": 1, "long": "x" * 200, "empty": ""}, title="facts")
    table = listing("agent", "environment")
    table.add_row("dt", "y" * 200)
    print_listing(table)
    lines = [re.sub(r"\x1b\[\d*m", "", line) for line in capsys.readouterr().out.splitlines()]
    assert lines == ["facts", "short  1", f"long   {'x' * 200}", "empty", "agent  environment", f"dt     {'y' * 200}"]


def test_info_and_show_are_whole_in_80_columns() -> None:
    said = CliRunner().invoke(app, ["show", "dt-halfcheetah-medium"], env={"COLUMNS": "80"}).output
    assert "agentzoo evaluate dt-halfcheetah-medium -n 100 --seed 0 --target 5067.7352116" in said
    assert "…" not in said


def test_a_path_in_a_command_is_one_word_of_a_shell() -> None:
    assert word(Path("runs/dt s0")) == "'runs/dt s0'"
    assert word(Path("runs/dt-s0")) == "runs/dt-s0"


def test_counts_and_durations() -> None:
    assert [counted(n, "episode") for n in (0, 1, 2, 1277)] == [
        "0 episodes",
        "1 episode",
        "2 episodes",
        "1,277 episodes",
    ]
    said = [duration(seconds) for seconds in (1.2, 119, 120, 4860, 35_000, 41_400)]
    assert said == ["1 second", "119 seconds", "2 minutes", "81 minutes", "583 minutes", "11.5 hours"]


def test_what_moves_on_the_screen_stays_out_of_standard_output() -> None:
    """`FORCE_COLOR=1`, which many CI systems set, writes a spinner's codes between the lines of `--json`."""
    paths = list((Path(__file__).parents[2] / "agentzoo" / "cli").glob("*.py"))
    assert len(paths) > 20
    for path in paths:
        assert not re.search(r"(?<!errors_)console\.status|Progress\((?!.*errors_console)", path.read_text()), path.name


@pytest.mark.parametrize(
    "words", ["evaluate dt-hopper-medium -n 1000000000000", "train dt-hopper-medium --threads 200000"]
)
def test_numbers_that_are_too_large_are_refused_at_once(words: str) -> None:
    done = CliRunner().invoke(app, words.split())
    assert done.exit_code == 2
    assert "should be less than or equal to" in " ".join(done.output.split())


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs Linux's /dev/full")
def test_a_full_disk_behind_standard_output_is_one_line() -> None:
    command = [sys.executable, "-m", "agentzoo", "list", "--json"]
    with open("/dev/full", "w") as full:  # noqa: PTH123
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 2
    assert done.stderr.startswith("error: the output was not written:")
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr
