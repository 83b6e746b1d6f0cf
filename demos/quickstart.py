"""Load an agent from this checkout, run three episodes, print how it did, write a video and a GIF to demos/out/."""

from __future__ import annotations

import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # nothing here needs a network

from pathlib import Path

from rich.console import Console
from rich.table import Table

from agentzoo import Agent, evaluate
from agentzoo.errors import ConfigError
from agentzoo.evaluation.record import film, save_gif, save_video

AGENT = "zoo/dm-hopper-medium"
OUT = Path(__file__).resolve().parent / "out"


def main() -> None:
    console = Console()
    agent = Agent.from_pretrained(AGENT)
    result = evaluate(agent, episodes=3)
    table = Table("episode", "return", "normalized score", "length", title=f"{AGENT} on {result.env}")
    assert result.random_reference is not None
    assert result.expert_reference is not None
    for i, (total, length) in enumerate(zip(result.returns, result.lengths, strict=True)):
        score = 100 * (total - result.random_reference) / (result.expert_reference - result.random_reference)
        table.add_row(str(i), f"{total:.0f}", f"{score:.1f}", str(length))
    table.add_row("mean", f"{result.mean_return:.0f}", f"{result.score:.1f}", f"{result.mean_length:.0f}")
    console.print(table)
    console.print(f"{result.steps_per_second:,.0f} environment steps a second")
    try:
        with console.status("filming"):
            clip = film(agent, episodes=1, every=8, size=(240, 180), max_frames=125)
    except ConfigError as error:
        console.print(f"no video: {error}", style="yellow")
        return
    save_video(clip, OUT / "hopper.mp4")
    save_gif(clip, OUT / "hopper.gif")
    console.print(f"wrote {OUT / 'hopper.mp4'} and {OUT / 'hopper.gif'}")


if __name__ == "__main__":
    main()
