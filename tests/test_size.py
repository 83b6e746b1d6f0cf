"""What one reads in a sitting: no file is over 350 lines, no function over 60, its docstring and options included."""

from __future__ import annotations

import ast
from pathlib import Path

import agentzoo

PACKAGE = Path(agentzoo.__file__).parent
MAX_LINES, MAX_FUNCTION = 350, 60


def functions(source: str) -> list[tuple[str, int]]:
    """Name and lines of each function, decorators not counted."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    found = [one for one in ast.walk(ast.parse(source)) if isinstance(one, kinds)]
    return [(one.name, (one.end_lineno or one.lineno) - one.lineno + 1) for one in found]


def test_the_lines_of_a_function_are_counted() -> None:
    source = "@property\ndef f(a,\n      b):\n    '''Doc.'''\n    return a\n\nclass C:\n    async def g(self): ...\n"
    assert functions(source) == [("f", 4), ("g", 1)]


def test_files_and_functions_are_short() -> None:
    sources = {str(path.relative_to(PACKAGE)): path.read_text() for path in PACKAGE.rglob("*.py")}
    assert len(sources) > 200
    files = {name: text.count("\n") for name, text in sources.items() if text.count("\n") > MAX_LINES}
    assert files == {}
    long = {
        f"{name}: {function}": lines
        for name, text in sources.items()
        for function, lines in functions(text)
        if lines > MAX_FUNCTION
    }
    assert long == {}
