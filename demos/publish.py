"""From a finished run to a folder that is exactly a Hub repo: measured, with card and video, and verified.

Uses the run of demos/finetune_small.py, which it makes if it is not there. Writes to demos/out/zoo/.
"""

from __future__ import annotations

import argparse
import os
import platform
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # nothing here needs a network

import finetune_small
from rich.console import Console
from rich.table import Table

from agentzoo import Agent
from agentzoo.hub.publish import check_folder
from agentzoo.hub.stage import stage
from agentzoo.hub.verify import verify

OUT = Path(__file__).resolve().parent / "out" / "zoo"


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--from", dest="made", type=Path, default=finetune_small.OUT, help="of finetune_small.py")
    options.add_argument("--sweep", type=int, default=0, help="episodes for each of eight target returns; 0: none")
    options.add_argument("--out", type=Path, default=OUT)
    args = options.parse_args()
    console = Console()

    if not (args.made / "run" / "config.json").exists():
        finetune_small.main(["--out", str(args.made)])
    os.environ["MINARI_DATASETS_PATH"] = str(args.made / "datasets")
    with console.status("staging") as status:
        hardware = f"{os.cpu_count()} cores, {platform.machine()}"
        folder = stage(args.made / "run", args.out, hardware, sweep_episodes=args.sweep, on_progress=status.update)
    files, _ = check_folder(folder)
    console.print(f"{folder}: {', '.join(files)}")

    os.environ["AGENTZOO_ZOO"] = str(args.out)
    agent = Agent.from_pretrained(f"zoo/{folder.name}")
    with console.status("measuring again"):
        report = verify(folder)
    table = Table("check", "holds", "details", title=str(agent))
    for check in report.checks:
        table.add_row(check.name, {None: "-", True: "yes", False: "NO"}[check.holds], check.details)
    console.print(table)
    console.print(f"`agentzoo hub push {folder} YOUR-NAME/{folder.name} --tag v1` puts it on the Hub in one commit.")


if __name__ == "__main__":
    main()
