"""Ask one masked network several questions about a DoorKey episode, and draw its answers to demos/out/unimask/."""

from __future__ import annotations

import argparse
import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # nothing here needs a network

from dataclasses import replace
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from agentzoo import Agent
from agentzoo.envs.doorkey_rules import path_distance, possible_rows, states_of
from agentzoo.evaluation.answer_picture import draw_answer
from agentzoo.evaluation.played_window import run_window
from agentzoo.masked.answer import infer
from agentzoo.masked.histories import histories
from agentzoo.masked.question import Mask

AGENT = "zoo/unimask-doorkey"
OUT = Path(__file__).resolve().parent / "out" / "unimask"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=OUT, help="folder of the pictures")
    parser.add_argument("--samples", type=int, default=200, help="histories to draw")
    asked_for = parser.parse_args()
    console = Console()
    agent = Agent.from_pretrained(AGENT)
    truth = run_window(agent, seed=3)
    for task, step in (("past", 6), ("future", 3), ("waypoint", 4)):
        answer = infer(agent, window=truth, task=task, step=step)  # type: ignore[arg-type]
        draw_answer(answer, truth, asked_for.out / f"{task}.png", f"{AGENT}: {task} at step {step}")
    console.print(f"the past, the future and the way past the waypoints: drawn in {asked_for.out}")

    # sample the beginnings of an episode of which only the last three steps are known
    shown = Mask(np.arange(10)[None] >= 7, np.arange(10)[None] >= 7, np.array([False]))
    asked = replace(truth, mask=shown).take(np.zeros(asked_for.samples, dtype=int))
    found = histories(agent, asked, possible_rows, seed=0)
    begun = [states_of(row[None])[0] for row in found.window.observations[found.consistent, 0]]
    table = Table(
        "start", "share", "distance to the goal", title=f"{len(begun)} of {asked_for.samples} histories are possible"
    )
    cells, counts = np.unique([state.agent for state in begun], axis=0, return_counts=True)
    for place in np.argsort(-counts)[:5]:
        cell = (int(cells[place][0]), int(cells[place][1]))
        table.add_row(str(cell), f"{counts[place] / len(begun):.0%}", str(path_distance(cell)))
    console.print(table)
    console.print(f"the episode began at {states_of(truth.observations[:, 0])[0].agent}")


if __name__ == "__main__":
    main()
