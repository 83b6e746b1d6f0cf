"""`agentzoo data`."""

import typer

app = typer.Typer()
