"""All commands of `agentzoo` in the order of `--help`, and its entry point.

Heavy imports happen inside the commands, so that `--help` answers at once.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from typing import Any

import typer
from rich.console import Console
from typer.core import TyperGroup

from agentzoo.cli import data, grid, hub, importing, inspect, markov, measure, pretrain, train, unimask, use
from agentzoo.cli.console import errors_console
from agentzoo.errors import MOST_SAID, AgentzooError, shown

COMMANDS: dict[str, Callable[..., None] | typer.Typer] = {
    # to use
    "list": use.list_command,
    "show": use.show,
    "info": use.info,
    "evaluate": use.evaluate,
    "enjoy": use.enjoy,
    "record": use.record,
    "infer": unimask.infer,
    # to make
    "data": data.app,
    "train": train.train,
    "finetune": train.finetune,
    "import": importing.import_command,
    "grid": grid.app,
    "pretrain": pretrain.app,
    "stage": hub.stage,
    # to find out
    "compare": measure.compare,
    "pairs": measure.pairs,
    "sweep": measure.sweep,
    "inspect": inspect.inspect,
    "markov": markov.markov,
    "gates": markov.app,
    "unimask": unimask.app,
    "bench": measure.bench,
    # to share
    "push": hub.push,
    "pull": hub.pull,
    "verify": hub.verify,
    "card": hub.card,
    "export": hub.export,
}


INTERRUPTED = 130  # what typer makes of Ctrl-C


class _InOrder(TyperGroup):
    def list_commands(self, ctx: Any) -> list[str]:
        """For `--help`; typer alone would put groups of commands last."""
        return list(COMMANDS)


app = typer.Typer(
    cls=_InOrder,
    no_args_is_help=True,
    help="Pretrained offline-RL sequence agents: list, show, evaluate, record, train, fine-tune.",
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
for _name, _command in COMMANDS.items():
    if isinstance(_command, typer.Typer):
        app.add_typer(_command, name=_name)
    else:
        app.command(_name)(_command)


def main() -> None:
    """Entry point: our own errors are one line, not a traceback."""
    os.environ.setdefault("HF_HUB_VERBOSITY", "error")  # it would print every retry before we say what is wrong
    warnings.formatwarning = _one_line
    try:
        app()
    except AgentzooError as error:
        Console(stderr=True, soft_wrap=True).print("error:", str(error), markup=False, highlight=False, style="red")
        raise SystemExit(2) from None
    except SystemExit as end:
        if end.code == INTERRUPTED:
            errors_console.print("interrupted")
        raise


def _one_line(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, line: str | None = None
) -> str:
    """A warning without the file and line that made it, of which users know nothing."""
    return f"warning: {shown(message, MOST_SAID)}\n"
