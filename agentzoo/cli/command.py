"""All commands of `agentzoo` in the order of `--help`, and its entry point.

Heavy imports happen inside the commands, so that `--help` is fast.
"""

from __future__ import annotations

import errno
import os
import sys
import warnings
from typing import Annotated

import typer

from agentzoo import __version__
from agentzoo.cli import data, grid, hub, research, search, site, train, use
from agentzoo.cli.console import errors_console
from agentzoo.cli.groups import Command, Groups, make_app
from agentzoo.errors import MAX_MESSAGE, AgentzooError, printable, without_colors

GROUPS: Groups = {
    "Use": {
        "list": use.list_command,
        "show": use.show,
        "evaluate": use.evaluate,
        "enjoy": use.enjoy,
        "record": use.record,
    },
    "Train": {"train": train.train, "finetune": train.finetune, "grid": grid.app},
    "Data": {"data": data.app},
    "Publish": {"hub": hub.app, "site": site.site},
    "Research": {"research": research.app},
}
HIDDEN: dict[str, Command] = {"info": use.info, "search": search.search}  # the help of --version and of grid names them
MOVED = {
    **{name: f"hub {name}" for name in ("stage", "card", "verify", "push", "pull", "import", "export")},
    **{name: f"research {name}" for name in ("inspect", "gates", "infer", "compare", "pairs", "sweep", "bench")},
    **{name: f"research {name}" for name in ("unimask", "pretrain")},
    "markov": "research heads",
}
INTERRUPTED = 130  # typer's exit status after Ctrl-C

app = make_app(GROUPS, "Pretrained offline-RL sequence agents: use, train and publish them.", MOVED, HIDDEN)


def _print_version(asked: bool) -> None:
    if asked:
        sys.stdout.write(f"agentzoo {__version__}\n")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            is_eager=True,
            callback=_print_version,
            help="Print the version and exit; `agentzoo info` prints more, for a bug report.",
        ),
    ] = False,
) -> None: ...


def main() -> None:
    """Entry point. An error of agentzoo is printed as one line, without a traceback."""
    os.environ.setdefault("HF_HUB_VERBOSITY", "error")  # it would print every retry before our error
    if not errors_console.is_terminal:
        os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")  # terminal codes do not belong in a log
    warnings.formatwarning = _one_line
    try:
        app()
    except AgentzooError as error:
        errors_console.print("error:", str(error), markup=False, style="red")
        raise SystemExit(2) from None
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python writes what is left as it ends
        errors_console.print("error:", f"the output was not written: {error}.", markup=False, style="red")
        raise SystemExit(2) from None
    except SystemExit as end:
        if end.code == INTERRUPTED:
            errors_console.print("interrupted")
        raise


def _one_line(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, line: str | None = None
) -> str:
    """A warning as one line, without the source file and line number, which do not help users."""
    text = without_colors(str(message)).removeprefix("WARN: ")  # from Gymnasium, in yellow
    return f"warning: {printable(text, MAX_MESSAGE)}\n"
