"""The model card, made from the records of an agent's folder and never typed by hand."""

from __future__ import annotations

from pathlib import Path

from agentzoo.config import CONFIG, RECIPE, AgentConfig, read_text
from agentzoo.evaluation.results import Result, Results
from agentzoo.hub.published import PUBLISHED
from agentzoo.recipe import Recipe

CARD = "README.md"
RESULTS = "results.json"
SWEEP_PLOT = "targets.png"
VIDEO = "replay.mp4"
TITLES = {"dt": "Decision Transformer", "bc": "behaviour cloning", "dm": "Decision Mamba"}


def read_records(folder: Path) -> tuple[AgentConfig, Recipe, Results]:
    """The three records a card is made from.

    Raises:
        CheckpointError: one is missing. ConfigError: one cannot be used.
    """
    return (
        AgentConfig.from_json(read_text(folder / CONFIG), str(folder / CONFIG)),
        Recipe.from_json(read_text(folder / RECIPE), str(folder / RECIPE)),
        Results.from_json(read_text(folder / RESULTS), str(folder / RESULTS)),
    )


def card_text(folder: Path) -> str:
    """README.md of the folder: Hub metadata and the card. The same records give the same text."""
    config, recipe, results = read_records(folder)
    sections = [
        _metadata(config, recipe, results),
        _what(config, recipe, results),
        _quickstart(config),
        _training(config, recipe, results),
        _results(config, results),
        _limits(recipe, results),
    ]
    if (folder / SWEEP_PLOT).is_file() and results.targets:
        sections.insert(5, _targets(results))
    return "\n\n".join(sections) + "\n"


def _metadata(config: AgentConfig, recipe: Recipe, results: Results) -> str:
    from huggingface_hub import EvalResult, ModelCardData

    head = results.headline
    name = "D4RL-normalized score" if head.score is not None else "mean return"
    interval = head.score_interval if head.score_interval is not None else head.return_interval
    value = head.score if head.score is not None else head.mean_return
    found = EvalResult(
        task_type="reinforcement-learning",
        task_name="offline reinforcement learning",
        dataset_type=recipe.data.dataset,
        dataset_name=f"{head.env} (trained on {recipe.data.dataset})",
        metric_type="mean_reward",
        metric_name=f"{name}, {head.episodes} episodes, 95 % interval {interval[0]:.2f} to {interval[1]:.2f}",
        metric_value=round(value, 2),
    )
    data = ModelCardData(
        license="mit",
        library_name="agentzoo",
        pipeline_tag="reinforcement-learning",
        tags=["reinforcement-learning", "offline-rl", "gymnasium", "minari", config.model.family, head.env],
        model_name=config.agent_id,
        base_model=recipe.base,
        eval_results=[found],
    )
    return f"---\n{data.to_yaml().rstrip()}\n---"


def _what(config: AgentConfig, recipe: Recipe, results: Results) -> str:
    title = TITLES.get(config.model.family, config.model.family)
    start = f" It was fine-tuned from `{recipe.base}`." if recipe.base else ""
    return (
        f"# {config.agent_id}\n\n"
        f"A {title} agent for `{config.env}` with {results.training.parameters:,} parameters, trained offline on "
        f"`{recipe.data.dataset}`.{start} It reads the last {config.io.context} steps (return-to-go, observation, "
        f"action) and answers the next action. Use it as a baseline or a starting point for fine-tuning; it controls a "
        "simulated body and nothing else." + (f"\n\n[Video of one episode]({VIDEO})" if config.env else "")
    )


def _quickstart(config: AgentConfig) -> str:
    return f"""## Use it

```python
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy

from agentzoo import Agent

vec_env = make_vec_env("{config.env}", n_envs=4)
agent = Agent.from_pretrained("zoo/{config.agent_id}", env=vec_env)
mean, std = evaluate_policy(agent, vec_env, n_eval_episodes=4)
```

`agent.target_return` (here {config.target_return:g}) is the return it is asked for, in the environment's reward."""


def _training(config: AgentConfig, recipe: Recipe, results: Results) -> str:
    train, data = recipe.train, results.dataset
    command = f"agentzoo train {config.agent_id} --seed {train.seed}"
    if recipe.base:
        command = f"agentzoo finetune {recipe.base} --dataset {recipe.data.dataset} --steps {train.steps}"
    kept = "kept from its start" if recipe.data.normalization == "keep" else "computed from this dataset"
    minutes = f"{results.training.seconds / 60:.0f} minutes on {results.training.hardware}"
    return (
        f"## How it was trained\n\n```\n{command}\n```\n\n"
        f"{train.steps:,} updates of {train.batch_size} windows, learning rate {train.lr:g} ({train.schedule} "
        f"after {train.warmup_steps:,} updates of warm-up), seed {train.seed}, {minutes}. The whole "
        f"recipe is in `{RECIPE}`, the losses are in `training_log.csv`. Observation mean and std are {kept}.\n\n"
        f"The data: {data.steps:,} steps in {data.episodes:,} episodes. {data.made_by} Mean return of its episodes "
        f"{data.mean_return:.0f}, best {data.best_return:.0f}."
    )


def _row(label: str, result: Result) -> str:
    low, high = result.return_interval
    score = "" if result.score is None else f"{result.score:.1f}"
    if result.score_interval is not None:
        score += f" [{result.score_interval[0]:.1f}, {result.score_interval[1]:.1f}]"
    return (
        f"| {label} | {score} | {result.mean_return:.0f} [{low:.0f}, {high:.0f}] | {result.mean_length:.0f} | "
        f"{result.episodes} |"
    )


def _results(config: AgentConfig, results: Results) -> str:
    head = results.headline
    rows = [_row("**this agent, final weights**", head)]
    if results.best is not None:
        rows.append(_row("best short evaluation during training (optimistic)", results.best))
    rows += [_row(f"same recipe, seed {i + 1}", one) for i, one in enumerate(results.seeds)]
    rows += [_row(one.agent_id, one) for one in results.baselines]
    lines = [
        "## Results",
        "",
        "| agent | normalized score | return | length | episodes |",
        "|---|---|---|---|---|",
        *rows,
        "",
        f"Brackets hold 95 % bootstrap intervals of the mean over episodes. Environment `{head.env}`, target return "
        f"{head.target_return:g}, deterministic actions, episode e reset with seed {10_000 * (head.seed + 1)} + e.",
    ]
    if head.random_reference is not None and head.expert_reference is not None:
        lines.append(
            f"Score 0 is a return of {head.random_reference:g}, 100 is {head.expert_reference:g} (D4RL's references, "
            "measured on older versions of the environment)."
        )
    paper = PUBLISHED.get(config.agent_id)
    if paper is not None:
        spread = "" if paper.spread is None else f" ± {paper.spread:g}"
        lines += [
            "",
            f"Published for this family on D4RL's dataset of the same name: {paper.score:g}{spread} ({paper.source}). "
            "The numbers are not comparable one to one: our data is our own collection on a newer environment version, "
            "and training here is shorter.",
        ]
    lines += ["", f"Measured with `{head.command}`."]
    return "\n".join(lines)


def _targets(results: Results) -> str:
    said = "" if results.spearman is None else f" Rank correlation (Spearman): {results.spearman:.2f}."
    return (
        f"## Asked and achieved return\n\n![achieved over asked return]({SWEEP_PLOT})\n\n"
        f"{len(results.targets)} targets, {results.targets[0].episodes} episodes each.{said}"
    )


def _limits(recipe: Recipe, results: Results) -> str:
    return (
        "## Limits\n\n"
        f"It has only seen `{recipe.data.dataset}`: states that data does not visit, and targets above its best return "
        f"({results.dataset.best_return:.0f}), are extrapolation. An interval over episodes says nothing about the "
        "spread between training seeds."
    )
