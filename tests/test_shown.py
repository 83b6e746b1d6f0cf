"""Text of strangers' files and servers reaches a terminal, a card or a report only where it does nothing there."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import numpy as np
import pytest
from hub.conftest import make_folder
from rich.console import Console
from rich.progress import Progress
from rich.text import Text
from typer.testing import CliRunner

from agentzoo.agent import Agent
from agentzoo.cli import app
from agentzoo.cli.command import _one_line
from agentzoo.cli.console import bar_columns, plain
from agentzoo.data.making.import_files import import_file
from agentzoo.errors import AgentzooError, ConfigError, StorageError, UnknownNameError, printable, warn
from agentzoo.hub.front_matter import as_html, code, inline

EVIL = "\x1b[2J\x1b]0;title\x07\r\nerror: all is well\x9b31m\u202egnp.exe\u200b\x00\ud800"


def test_shown_by_hand() -> None:
    assert printable("a\x1b[31mb\n\u202e") == r"a\x1b[31mb\n\u202e"
    assert printable("\ud800") == r"\ud800"  # could not be encoded
    assert printable("müde 漢字 🙂 a\\b") == "müde 漢字 🙂 a\\b"
    assert printable("x" * 300) == "x" * 197 + "..."
    assert printable("\x1b" * 300, 20) == "\\x1b" * 4 + "\\..."
    assert printable(printable(EVIL)) == printable(EVIL)
    assert printable(EVIL).isprintable()


@pytest.mark.parametrize("kind", [AgentzooError, ConfigError, StorageError, UnknownNameError])
def test_every_error_is_one_harmless_line(kind: type[AgentzooError]) -> None:
    error = kind(f"key {EVIL} cannot be used")
    assert str(error).isprintable()
    assert str(error).startswith(r"key \x1b[2J")
    assert len(str(kind("x" * 10**6))) <= 4_000


def test_a_key_of_a_config_and_a_member_of_an_archive_are_shown_escaped(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "dt-test")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "\x1b[2Jx": 1}))
    with pytest.raises(ConfigError, match=r"\\x1b\[2Jx"):
        Agent.from_pretrained(folder)
    np.savez(tmp_path / "x.npz", **{"\x1b[2Jx": np.zeros(1)})
    with pytest.raises(AgentzooError, match=r"it holds \\x1b\[2Jx"):
        import_file(tmp_path / "x.npz", "tests/x-v0")


def test_warnings_are_escaped_wherever_they_are_shown() -> None:
    with pytest.warns(UserWarning, match=r"\\x1b") as caught:
        warn(EVIL)
    assert str(caught[0].message).isprintable()
    assert caught[0].filename == __file__
    assert _one_line(UserWarning(EVIL), UserWarning, "", 0).removesuffix("\n").isprintable()  # of another library


def test_tables_and_progress_bars_show_text_and_no_codes() -> None:
    markup = "[red]x[/red][/]"
    assert Text.from_markup(plain(markup + EVIL)).plain == printable(markup + EVIL)
    console = Console(width=300, record=True, force_terminal=False)
    with Progress(*bar_columns(), console=console) as progress:
        progress.add_task(markup + EVIL, note="[bold]" + EVIL)
    text = console.export_text()
    assert "[red]x[/red]" in text
    assert "[bold]" in text
    assert "\x1b" not in text
    assert "\u202e" not in text


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("# heading", r"\# heading"),
        ("- item", r"\- item"),
        ("+ item", r"\+ item"),
        ("1. item", r"1\. item"),
        ("23) item", r"23\) item"),
        ("---", r"\---"),
        ("===", r"\==="),
        ("a\n\n# b\n\n- c", "a # b - c"),
        ("12.5 metres", "12.5 metres"),
        ("> quote", r"\> quote"),
        ("    code", "code"),
        (EVIL, None),
    ],
)
def test_a_note_of_a_study_starts_no_block_of_its_own(text: str, written: str | None) -> None:
    found = inline(text)
    assert found.isprintable()
    assert written is None or found == written
    assert code(text).isprintable()
    assert not {"<", ">"} & set(as_html(text))


def test_a_list_of_agents_with_a_hostile_folder_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = make_folder(tmp_path / "zoo" / "x\x1b[2J[bold]y")
    (folder / "config.json").write_text('{"agent_id": "\\u001b[2J", "\\u001b]0;t\\u0007": 1}')
    monkeypatch.setenv("AGENTZOO_ZOO", str(tmp_path / "zoo"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for command in (["list"], ["list", "--json"], ["show", str(folder)]):
            result = CliRunner().invoke(app, command)
            assert "\x1b" not in result.output
            assert result.exception is None or str(result.exception).isprintable()
