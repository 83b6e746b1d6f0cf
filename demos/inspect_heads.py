"""Look into the heads of an agent from this checkout: Markov report, what each head is worth, where it looks.

Writes a picture and a page to demos/out/. Any attention agent's id or folder may be given instead.
"""

from __future__ import annotations

import argparse
import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # nothing here needs a network

from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

from agentzoo import Agent
from agentzoo.errors import AgentzooError, ConfigError
from agentzoo.nn.markov import head_matrix
from agentzoo.research.analysis import (
    attention_maps,
    decision_windows,
    head_importance,
    markov_report,
    ratio_of_random_tokens,
)
from agentzoo.research.analysis.agent_windows import fullest
from agentzoo.research.analysis.inspection import Inspection
from agentzoo.research.analysis.inspection_page import write_page
from agentzoo.research.analysis.layers import attention_layers
from agentzoo.research.analysis.pictures import draw_all

OUT = Path(__file__).resolve().parent / "out"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--agent", default="zoo/dt-hopper-medium")
    parser.add_argument("--episodes", type=int, default=2)
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args()
    console = Console()
    try:
        inspect(Agent.from_pretrained(options.agent), options.episodes, options.out, console)
    except AgentzooError as error:  # such as a family without attention
        raise SystemExit(str(error)) from None


def inspect(agent: Agent, episodes: int, out: Path, console: Console) -> None:
    """Print a table of heads, and write a picture and a page."""
    layers = attention_layers(agent.model)
    if not layers or not layers[0].causal:
        name = agent.config.agent_id
        raise ConfigError(f"{name} has no causal attention; `agentzoo research inspect {name}` shows what it has.")

    # what the weights say, without an environment
    report = markov_report(agent)

    # what the agent does without each head, on the windows of its own episodes
    windows = decision_windows(agent, episodes, most=500)
    worth = head_importance(agent, windows)

    title = f"{agent.config.agent_id}: {report.dim} numbers a token, threshold {report.threshold:g}"
    table = Table("layer", "head", "ratio", "on random tokens", "diagonal > 0", "action moves by", title=title)
    for one in report.heads:
        layer = layers[one.layer]
        matrix = head_matrix(layer.qkv, layer.n_heads, one.head)
        drawn = ratio_of_random_tokens(matrix, torch.Generator().manual_seed(0), tokens=20, draws=50)
        table.add_row(
            str(one.layer),
            str(one.head),
            f"{one.ratio:.2f}",
            f"{drawn.mean:.2f}",
            f"{100 * one.positive_share:.0f} %",
            f"{worth.mean[one.layer][one.head]:.3f} ± {worth.standard_error[one.layer][one.head]:.3f}",
        )
    console.print(table)
    found = [one for one in report.heads if one.markov]
    console.print(f"{len(found)} Markov heads. {report.scale()}", highlight=False)

    maps = attention_maps(agent, fullest(windows))  # where each head looks in one window
    name, family = agent.config.agent_id, agent.model.config.family
    everything = Inspection(name, family, markov=report, importance=worth, maps=maps)
    picture = draw_all(everything, out / "heads.png")
    page = write_page(everything, out / "heads")
    console.print(f"wrote {picture} and {page}", highlight=False)


if __name__ == "__main__":
    main()
