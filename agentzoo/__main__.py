"""`python -m agentzoo` is the `agentzoo` command."""

from agentzoo.cli import main

main()
