"""Layout of `--help`: commands in groups with titles, whole summaries, and messages for renamed commands."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import typer
from typer.core import TyperGroup

from agentzoo.errors import ConfigError

Command = Callable[..., None] | typer.Typer
Groups = Mapping[str, Mapping[str, Command]]  # title -> name -> command, in the order of `--help`


class CommandGroup(TyperGroup):
    """A group of commands. Typer truncates their summaries; this shows them whole."""

    def sections(self) -> Mapping[str, list[str]]:
        """Title -> names of commands, in order."""
        return {"Commands": list(self.commands)}

    def list_commands(self, ctx: Any) -> list[str]:
        """All names in the order of the sections; typer alone puts groups last."""
        return [name for names in self.sections().values() for name in names]

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the list of commands; click calls this."""
        for title, names in self.sections().items():
            with formatter.section(title):
                formatter.write_dl([(name, _summary(self.commands[name])) for name in names])


def make_app(
    groups: Groups, summary: str, moved: Mapping[str, str] | None = None, hidden: Mapping[str, Command] | None = None
) -> typer.Typer:
    """An app with these commands.

    Args:
        moved: old name -> new name. An old name fails with an error that says the new name.
        hidden: commands left out of the list to keep it short; the help of other commands names them.
    """
    gone = moved or {}

    class Grouped(CommandGroup):
        def sections(self) -> Mapping[str, list[str]]:
            return {title: list(group) for title, group in groups.items()}

        def get_command(self, ctx: Any, cmd_name: str) -> Any:
            if cmd_name in gone:
                raise ConfigError(f"`agentzoo {cmd_name}` is now `agentzoo {gone[cmd_name]}`.")
            return super().get_command(ctx, cmd_name)

    app = typer.Typer(
        cls=Grouped, no_args_is_help=True, help=summary, pretty_exceptions_enable=False, rich_markup_mode=None
    )
    for group in (*groups.values(), hidden or {}):
        for name, command in group.items():
            if isinstance(command, typer.Typer):
                app.add_typer(command, name=name)
            else:
                app.command(name)(command)
    return app


def _summary(command: Any) -> str:
    """The first paragraph of a command's help, on one line."""
    return " ".join((command.help or "").split("\n\n")[0].split())
