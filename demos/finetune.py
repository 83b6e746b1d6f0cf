"""Fine-tune dt-hopper-medium on expert data, train a network from scratch on it, and plot both to demos/out/.

`agentzoo data build hopper/expert --trust-policies` makes the dataset, from a policy on the Hub whose loading runs its
code. A stopped run continues when the command is repeated.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from agentzoo import Agent, evaluate
from agentzoo.config import AgentConfig
from agentzoo.evaluation.during import short_evaluation
from agentzoo.evaluation.results import Result
from agentzoo.recipe import Recipe, differences
from agentzoo.training.finetune import plan_finetune, start_from
from agentzoo.training.hooks import Hooks
from agentzoo.training.log import read_log
from agentzoo.training.loop import train

BASE = "zoo/dt-hopper-medium"
OUT = Path(__file__).resolve().parent / "out" / "finetune"
console = Console()


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--dataset", default="zoo/hopper/expert-v0")
    options.add_argument("--steps", type=int, default=3_000)
    options.add_argument("--episodes", type=int, default=50, help="of each final evaluation")
    options.add_argument("--out", type=Path, default=OUT)
    args = options.parse_args()

    base = Agent.from_pretrained(BASE)
    name = f"dt-{args.dataset.removeprefix('zoo/').split('-v')[0].replace('/', '-')}"
    often = ["eval.every=500", "eval.every_episodes=5"]
    tuned, episodes = plan_finetune(base, args.dataset, name=name, steps=args.steps, settings=often)
    fresh = tuned.override([f'agent_id="{name}-scratch"', "base=null", 'data.normalization="dataset"'])

    results = {"before": measured(base, args.episodes, args.out / "before.json")}
    for label, recipe in {"fine-tuned": tuned, "from scratch": fresh}.items():
        folder = args.out / recipe.agent_id
        agent = trained(recipe, folder, episodes, start_from(base, recipe, episodes) if recipe.base else None)
        results[label] = measured(agent, args.episodes, folder / "result.json")

    table = Table("agent", "normalized score (95 %)", "return", "length", title=f"{args.steps:,} updates on {name}")
    for label, one in results.items():
        low, high = one.score_interval or (0.0, 0.0)
        score = f"{one.score:.1f} [{low:.1f}, {high:.1f}]"
        table.add_row(label, score, f"{one.mean_return:.0f}", f"{one.mean_length:.0f}")
    console.print(table)
    curves = {"fine-tuned": args.out / tuned.agent_id, "from scratch": args.out / fresh.agent_id}
    plot(results, curves, args.out / "finetune.png")
    console.print(f"wrote {args.out / 'finetune.png'}")


def trained(recipe: Recipe, folder: Path, episodes, start) -> Agent:
    """The agent of a finished run of this recipe, trained now if it is not."""
    if (folder / "config.json").exists():
        agent = Agent.from_pretrained(folder)
        if agent.recipe is None or differences(agent.recipe, recipe):
            raise SystemExit(f"{folder} holds an agent of another recipe; pass another --out.")
        return agent
    with Progress(console=console) as bar:
        task = bar.add_task(recipe.agent_id, total=recipe.train.steps)
        hooks = Hooks(evaluate=short_evaluation(recipe), on_step=lambda step: bar.update(task, completed=step))
        model = train(recipe, folder, episodes, start=start, hooks=hooks)
    agent = Agent(model, AgentConfig.of(recipe, model.io), recipe)
    agent.save_pretrained(folder)
    return agent


def measured(agent: Agent, episodes: int, path: Path) -> Result:
    """The evaluation kept at `path` if it is of these weights, or a new one."""
    if path.exists():
        found = Result.from_json(path.read_text(), str(path))
        if (found.weights_sha256, found.episodes) == (agent.config.weights_sha256, episodes):
            return found
    with console.status(f"{episodes} episodes of {agent.config.agent_id}"):
        found = evaluate(agent, episodes=episodes)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(found.to_json())
    return found


def plot(results: dict[str, Result], curves: dict[str, Path], path: Path) -> None:
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(9, 3.8), dpi=110, width_ratios=[3, 2])
    colors = {"before": "0.55", "fine-tuned": "#2b6cb0", "from scratch": "#c05621"}
    left.axhline(results["before"].mean_return, color=colors["before"], linestyle="--", linewidth=1, label="before")
    for label, folder in curves.items():
        rows = [row for row in read_log(folder) if row["eval_return"]]
        steps = [int(row["step"]) for row in rows]
        left.plot(steps, [float(row["eval_return"]) for row in rows], "o-", color=colors[label], label=label)
    left.set_xlabel("updates")
    left.set_ylabel("return (5 episodes)")
    left.legend(frameon=False)
    for i, (label, one) in enumerate(results.items()):
        low, high = one.return_interval
        spread = [[one.mean_return - low], [high - one.mean_return]]
        right.bar(i, one.mean_return, yerr=spread, capsize=4, color=colors[label])
    right.set_xticks(range(len(results)), list(results))
    right.set_ylabel(f"return ({results['before'].episodes} episodes, 95 % interval)")
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(path)
    pyplot.close(figure)


if __name__ == "__main__":
    main()
