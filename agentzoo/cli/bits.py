"""`agentzoo research bits`. Heavy imports happen inside."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from agentzoo.cli.console import errors_console, listing, plain, print_json, print_listing
from agentzoo.cli.options import JsonOption


def bits(
    names: Annotated[list[str], typer.Argument(metavar="NAME...", help="Language models: folder, id, GGUF file.")],
    text: Annotated[Path, typer.Option("--text", help="A text file that they were not trained on.")],
    size: Annotated[int, typer.Option("--bytes", min=100, help="Read only the first BYTES bytes of it.")] = 60_000,
    window: Annotated[int, typer.Option("--window", min=2, help="Largest number of tokens per window.")] = 1024,
    as_json: JsonOption = False,
) -> None:
    """Measure language models on a text, in bits per byte."""
    from agentzoo.nn.language.corpus import read_document
    from agentzoo.nn.language.pretrained import load_backbone
    from agentzoo.research.analysis.bits import bits_per_byte

    read = read_document(text).text.encode()[:size].decode(errors="ignore")
    found = []
    with errors_console.status("reading") as status:
        for name in names:
            status.update(f"reading with {plain(name)}")
            found.append(bits_per_byte(load_backbone(name), read, window))
    if as_json:
        print_json([one._asdict() for one in found])
        return
    table = listing("model", "bits per byte", "tokens", "tokens per window")
    for one in found:
        table.add_row(plain(one.name), f"{one.bits_per_byte:.2f}", f"{one.tokens:,}", str(one.window))
    print_listing(table)
