"""Film an agent twice, with a high and a low target return, and write videos and GIFs to demos/out/."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # nothing here needs a network

from rich.console import Console

from agentzoo import Agent
from agentzoo.evaluation.film import film, save_gif, save_video

OUT = Path(__file__).resolve().parent / "out" / "record"


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--agent", default="zoo/dt-hopper-medium")
    options.add_argument("--targets", type=float, nargs="+", default=[3600.0, 1000.0], help="returns to ask for")
    options.add_argument("--every", type=int, default=8, help="keep every Nth frame")
    options.add_argument("--frames", type=int, default=125, help="most frames of a video")
    options.add_argument("--out", type=Path, default=OUT)
    args = options.parse_args()
    console = Console()

    agent = Agent.from_pretrained(args.agent)
    for target in args.targets:
        agent.target_return = target
        with console.status(f"filming, asked for {target:g}"):
            clip = film(agent, every=args.every, max_frames=args.frames)
        video, gif = (args.out / f"asked-{target:g}.{kind}" for kind in ("mp4", "gif"))
        save_video(clip, video)
        save_gif(clip, gif, every=2)
        (episode,) = clip.episodes
        console.print(f"asked for {target:g}: return {episode.total_reward:.0f} in {episode.length} steps, {video}")


if __name__ == "__main__":
    main()
