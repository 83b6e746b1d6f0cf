"""Modules import each other in one direction only, also inside functions."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import agentzoo
from agentzoo.errors import UnknownNameError
from agentzoo.registry import service

ROOT = Path(agentzoo.__file__).parent


def module_names() -> dict[str, Path]:
    found = {}
    for path in ROOT.rglob("*.py"):
        parts = ("agentzoo", *path.relative_to(ROOT).with_suffix("").parts)
        found[".".join(parts).removesuffix(".__init__")] = path
    return found


def imported(path: Path, known: dict[str, Path]) -> set[str]:
    """Modules of the package that this file imports anywhere, unless for type checking alone."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    typing_only = {
        inner
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    found = set()
    for node in ast.walk(tree):
        if node in typing_only:
            continue
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("agentzoo"):
            inner = {f"{node.module}.{name.name}" for name in node.names}
            found |= {one if one in known else str(node.module) for one in inner}
        elif isinstance(node, ast.Import):
            found |= {name.name for name in node.names if name.name in known}
    return found


def test_no_module_imports_itself_through_others() -> None:
    known = module_names()
    edges = {name: imported(path, known) - {name} for name, path in known.items()}
    while True:  # modules that import nothing that is left cannot be part of a circle
        free = [name for name, wanted in edges.items() if not wanted & edges.keys()]
        if not free:
            break
        for name in free:
            del edges[name]
    assert not edges, f"import circles among {sorted(edges)}"


def test_the_map_of_the_package_is_complete_and_in_the_order_of_imports() -> None:
    table = (ROOT / "README.md").read_text().split("## ")[0]
    rows = re.findall(r"^\| (.*?) \|", table, flags=re.MULTILINE)
    order = [name.removesuffix(".py") for row in rows for name in re.findall(r"`([\w.]+)`", row)]
    folders = {path.parent.name for path in ROOT.glob("*/__init__.py")}
    assert {name for name in order if (ROOT / name).is_dir()} == folders
    known = module_names()
    upwards = set()
    for place, room in enumerate(order):
        later = set(order[place + 1 :])
        for name in (one for one in known if one.split(".")[1:2] == [room]):
            upwards |= {(name, one) for one in imported(known[name], known) if set(one.split(".")[1:2]) & later}
    assert upwards == {("agentzoo.store.locate", "agentzoo.recipes._table")}  # as the text says


def test_an_agent_acts_without_what_publishes_evaluates_or_trains() -> None:
    code = (
        "import sys, agentzoo.agent; "
        "print([m for m in sys.modules if m.startswith(('agentzoo.hub', 'agentzoo.evaluation', 'agentzoo.training'))])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT.parent)
    assert ran.stdout.strip() == "[]"


def test_a_service_is_found_by_its_name() -> None:
    from agentzoo.hub.publish import push_agent

    assert service("push_agent") is push_agent
    with pytest.raises(UnknownNameError, match="Did you mean 'push_agent'"):
        service("push_agnet")


def test_no_module_needs_one_operating_system() -> None:
    """Windows has none of these modules; locks are filelock's and processes psutil's, which run everywhere."""
    absent = {
        "fcntl",
        "grp",
        "posix",
        "pty",
        "pwd",
        "resource",
        "syslog",
        "termios",
        "tty",
        "curses",
        "msvcrt",
        "winreg",
    }
    for path in module_names().values():
        tree = ast.parse(path.read_text(encoding="utf-8"))
        names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
        names |= {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
        assert not names & absent, path
        calls = {
            f"{node.value.id}.{node.attr}"
            for node in ast.walk(tree)
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
        }
        unix = {
            "os.kill",
            "os.fork",
            "os.getuid",
            "os.geteuid",
            "os.setsid",
            "os.mkfifo",
            "signal.SIGKILL",
            "signal.SIGALRM",
        }
        assert not calls & unix, path
