"""Every command and option: help, names, what must be there together."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import click
from typer.main import get_command
from typer.testing import CliRunner

from agentzoo.cli import app
from agentzoo.cli.command import MOVED
from agentzoo.errors import ConfigError


def every_option(command: click.Command, name: str = "agentzoo") -> Iterator[tuple[str, click.Parameter]]:
    for one in command.params:
        yield name, one
    for inner, other in getattr(command, "commands", {}).items():
        yield from every_option(other, f"{name} {inner}")


def test_help_of_every_option_is_a_whole_phrase() -> None:
    found = list(every_option(get_command(app)))
    assert len(found) > 200
    for name, one in found:
        said = getattr(one, "help", None) or ""
        assert said[:1].isupper() or said.startswith("`"), f"{name} {one.name}: {said!r}"
        assert said.endswith("."), f"{name} {one.name}: {said!r}"


def test_help_of_evaluate_says_which_device_it_takes() -> None:
    """Training also takes Apple's GPU by itself, `pick_device` does not."""
    said = {name: one.help for name, one in every_option(get_command(app)) if one.name == "device"}
    assert said["agentzoo evaluate"].endswith("Default: cuda if available, else cpu.")
    assert said["agentzoo train"].endswith("Default: the fastest available.")


def options_by_command() -> dict[str, set[str]]:
    found: dict[str, set[str]] = defaultdict(set)
    for name, one in every_option(get_command(app)):
        found[name.removeprefix("agentzoo ")] |= set(one.opts)
    return found


def test_every_command_that_takes_an_agent_can_be_told_which_and_whether_to_trust_it() -> None:
    found = options_by_command()
    research = ("research sweep", "research infer", "research unimask maze2d")
    for name in ("evaluate", "enjoy", "record", "finetune", "hub export", *research):
        assert {"--revision", "--trust-env-module"} <= found[name], name


def test_every_command_that_imports_an_environments_module_also_accepts_its_options() -> None:
    """Errors about options name `--trust-env-options`."""
    both = {"--trust-env-module", "--trust-env-options"}
    trusting = {name: options & both for name, options in options_by_command().items() if options & both}
    assert len(trusting) > 15
    assert [name for name, found in trusting.items() if found != both] == ["hub import"]  # which sets no options


def test_old_names_of_commands_stop_and_say_the_new_one() -> None:
    for old, new in MOVED.items():
        done = CliRunner().invoke(app, [old, "dt-test", "--json"])
        assert isinstance(done.exception, ConfigError)
        assert str(done.exception) == f"`agentzoo {old}` is now `agentzoo {new}`."
        command = get_command(app)
        for word in new.split():
            command = command.commands[word]  # type: ignore[attr-defined]
