"""The licence of every package that constraints.txt names: `python -m agentzoo.research.licences`, a Markdown table.

The licence is read from the installed package: an SPDX expression, a classifier, or the first line of a text.
"""

from __future__ import annotations

import sys
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path

from agentzoo.errors import printable


def constrained(path: Path) -> dict[str, str]:
    """Package -> version, of the lines `name==version` of a constraints file."""
    lines = (line.split("#")[0].split(";")[0].split("\\")[0].strip() for line in path.read_text().splitlines())
    pairs = (line.partition("==") for line in lines if "==" in line and not line.startswith("-"))
    return {name.strip(): version.strip() for name, _, version in pairs}


def licence_of(package: str) -> str | None:
    """The licence of an installed package; None if it is not installed, empty if it declares none."""
    try:
        found = metadata(package).json
    except PackageNotFoundError:
        return None
    if found.get("license_expression"):
        return printable(found["license_expression"], 80)
    named = [one.split(" :: ")[-1] for one in found.get("classifier") or [] if one.startswith("License ::")]
    named = [one for one in named if one != "OSI Approved"]
    text = str(found.get("license") or "").strip().splitlines()
    return printable(", ".join(named) or (text[0] if text else ""), 80)


def table(path: Path) -> str:
    """A Markdown table with one row per package: name, version, licence."""
    rows = [
        f"| {name} | {version} | {'not installed' if (found := licence_of(name)) is None else found or 'not stated'} |"
        for name, version in sorted(constrained(path).items(), key=lambda pair: pair[0].lower())
    ]
    return "\n".join(["| package | version | licence |", "|---|---|---|", *rows])


if __name__ == "__main__":
    print(table(Path(sys.argv[1] if len(sys.argv) > 1 else "constraints.txt")))
