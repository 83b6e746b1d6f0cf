"""What is installed beside agentzoo: pinned, hashed, and under licences that allow it."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from agentzoo.research.licences import constrained, licence_of, table

ROOT = Path(__file__).resolve().parents[1]
CONSTRAINTS, HASHED = ROOT / "constraints.txt", ROOT / "constraints-hashed.txt"
# licences that ask to share a larger work's source, or forbid uses
COPYLEFT = re.compile(r"(?<!L)GPL|AGPL|SSPL|non-?commercial|CC BY-NC|proprietary", re.IGNORECASE)

GAMES = "ale-py"  # games' console, under the GPL: in an extra of its own, which no other extra of a user names
EMACS = "docutils"  # one file of its sources, an Emacs mode, is under the GPL; what pip installs is not


def plain(name: str) -> str:
    """A package's name as indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def test_every_version_but_torch_s_has_hashes() -> None:
    """`make hashes` writes the file again."""
    versions = {plain(name): version for name, version in constrained(CONSTRAINTS).items() if name != "torch"}
    assert {plain(name): version for name, version in constrained(HASHED).items()} == versions
    text = HASHED.read_text()
    for entry in re.split(r"\n(?=[A-Za-z])", text.split("\n\n", 1)[-1]):
        if "==" in entry and not entry.startswith("#"):
            assert re.search(r"--hash=sha256:[0-9a-f]{64}", entry), entry[:60]


def test_the_build_uses_the_setuptools_that_is_pinned() -> None:
    found = re.search(r"requires = \[\"setuptools==([\d.]+)\"\]", (ROOT / "pyproject.toml").read_text())
    assert found is not None
    assert found[1] == constrained(CONSTRAINTS)["setuptools"]


def test_nothing_that_fetches_code_from_the_hub_is_installed() -> None:
    """`kernels` runs compiled code of any repo that a config names."""
    assert "kernels" not in constrained(CONSTRAINTS)
    assert licence_of("kernels") is None


def test_licences_are_known_and_allow_use() -> None:
    found = {name: licence_of(name) for name in constrained(CONSTRAINTS)}
    installed = {name: licence for name, licence in found.items() if licence is not None}
    assert len(installed) > 60
    assert [
        name for name, licence in installed.items() if COPYLEFT.search(licence) and name not in (EMACS, GAMES)
    ] == []
    assert [name for name, licence in installed.items() if not licence] == []
    assert f"| numpy | {constrained(CONSTRAINTS)['numpy']} | " in table(CONSTRAINTS)


def test_what_is_under_the_gpl_is_installed_on_request_alone() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    holding = {name for name, needs in extras.items() if any(GAMES in need for need in needs)}
    naming = {name for name, needs in extras.items() if any("atari" in need for need in needs)}
    assert (holding, naming) == ({"atari"}, {"dev"})


@pytest.mark.parametrize("line", ["a==1.0 \\", "a==1.0 ; python_version < '3'", "a==1.0  # why"])
def test_a_line_of_constraints_is_read(line: str, tmp_path: Path) -> None:
    (tmp_path / "c.txt").write_text(f"# b==2\n{line}\n    --hash=sha256:00\n")
    assert constrained(tmp_path / "c.txt") == {"a": "1.0"}
