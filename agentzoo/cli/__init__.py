"""The `agentzoo` command: a module for each group of commands, all of them put together in `command`."""

from agentzoo.cli.command import app, main

__all__ = ["app", "main"]
