"""Load an agent from this checkout, run three episodes, print how it did, write a video and a GIF to demos/out/."""

from __future__ import annotations

import argparse
import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # nothing here needs a network

from pathlib import Path

from rich.console import Console
from rich.table import Table

from agentzoo import Agent, evaluate
from agentzoo.errors import ConfigError
from agentzoo.evaluation.film import film, save_gif, save_video
from agentzoo.evaluation.scores import normalized_score, reference_of
from agentzoo.text import amount

OUT = Path(__file__).resolve().parent / "out"


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--agent", default="zoo/dm-hopper-medium")
    options.add_argument("--episodes", type=int, default=3)
    options.add_argument("--out", type=Path, default=OUT)
    args = options.parse_args()
    console = Console()

    agent = Agent.from_pretrained(args.agent)
    result = evaluate(agent, episodes=args.episodes)
    reference = reference_of(result.env)
    scores = [f"{score:.1f}" for score in normalized_score(result.returns, reference)] if reference else []
    table = Table("episode", "return", "normalized score", "length", title=f"{args.agent} on {result.env}")
    for i, (total, length) in enumerate(zip(result.returns, result.lengths, strict=True)):
        table.add_row(str(i), amount(total), scores[i] if scores else "-", str(length))
    score = "-" if result.score is None else f"{result.score:.1f}"
    table.add_row("mean", amount(result.mean_return), score, f"{result.mean_length:.0f}")
    console.print(table)
    if result.success_rate is not None:
        console.print(f"{result.success_rate:.0%} reached the goal")
    console.print(f"{result.steps_per_second:,.0f} environment steps per second")
    try:
        with console.status("filming"):
            clip = film(agent, episodes=1, every=8, size=(240, 180), max_frames=125)
    except ConfigError as error:
        console.print(f"no video: {error}", style="yellow")
        return
    video, gif = (args.out / f"{agent.config.agent_id}.{kind}" for kind in ("mp4", "gif"))
    save_video(clip, video)
    save_gif(clip, gif)
    console.print(f"wrote {video} and {gif}")


if __name__ == "__main__":
    main()
