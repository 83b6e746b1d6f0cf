"""The front matter of a card, made and checked with huggingface_hub's classes, and text of others made harmless."""

from __future__ import annotations

import re
from typing import Any

from agentzoo.config import AgentConfig
from agentzoo.errors import CheckpointError, shown
from agentzoo.evaluation.results import Result, Results
from agentzoo.recipe import Recipe

LONGEST = 1_000  # characters of a description
HUB_NAME = re.compile(r"(?:[\w-]+/)?[\w\-.]+")  # what the Hub accepts as a dataset of a `model-index`


def inline(text: str) -> str:
    """Text of a record as one line of Markdown: `shown`, and no markup, link, table cell, heading, list or HTML."""
    flat = shown(" ".join(text.split()), LONGEST)
    escaped = re.sub(r"([\\`*\[\]<>|~&]|(?<!\w)_|_(?!\w))", r"\\\1", flat)
    return re.sub(r"^(?:([#+=-])|(\d{1,9})([.)])(?=\s|$))", _begins_no_block, escaped)


def _begins_no_block(found: re.Match[str]) -> str:
    """A heading, rule or list needs its sign at the start of a line: written after a backslash it is text."""
    return f"\\{found[1]}" if found[1] else f"{found[2]}\\{found[3]}"


def code(text: str) -> str:
    """A name or command between backticks, or inside a code block: one line, no backtick of its own."""
    return shown(" ".join(text.replace("`", " ").split()), LONGEST)


def hub_name(dataset: str) -> str:
    """A Minari id as a name the Hub accepts: `zoo/hopper/medium-v0` -> `zoo-hopper-medium-v0`."""
    return re.sub(r"[^\w.-]+", "-", dataset)[:96] or "unknown"


def front_matter(config: AgentConfig, recipe: Recipe, results: Results | None) -> str:
    """The YAML block on top of a card."""
    from huggingface_hub import ModelCardData

    family = config.model.family
    tags = ["reinforcement-learning", "deep-reinforcement-learning", "offline-rl", "gymnasium", "minari", family]
    data = ModelCardData(
        license=config.license,
        library_name="agentzoo",
        pipeline_tag="reinforcement-learning",
        tags=[*tags, *([code(config.env)] if config.env else [])],
        datasets=[hub_name(recipe.data.dataset)],
        model_name=config.agent_id,
        eval_results=_evaluations(recipe, results.headline) if results is not None else None,
    )
    return f"---\n{data.to_yaml().rstrip()}\n---"


def _evaluations(recipe: Recipe, head: Result) -> list[Any]:
    from huggingface_hub import EvalResult

    measured = [("mean return", head.mean_return, head.return_interval, "mean_reward")]
    if head.score is not None and head.score_interval is not None:
        measured.insert(0, ("D4RL-normalized score", head.score, head.score_interval, "d4rl_normalized_score"))
    return [
        EvalResult(
            task_type="reinforcement-learning",
            task_name="offline reinforcement learning",
            dataset_type=hub_name(recipe.data.dataset),
            dataset_name=f"{code(head.env)} (trained on {code(recipe.data.dataset)})",
            metric_type=kind,
            metric_name=f"{name}, {head.episodes} episodes, 95 % interval {low:.2f} to {high:.2f}",
            metric_value=round(value, 2),
        )
        for name, value, (low, high), kind in measured
    ]


def check_metadata(text: str, library: str = "agentzoo", pipeline: str | None = "reinforcement-learning") -> Any:
    """The front matter of a card as `ModelCardData`, after the checks that the Hub makes when it is pushed.

    Raises:
        CheckpointError: there is none, or the Hub would refuse it.
    """
    from huggingface_hub import ModelCard

    try:
        data: Any = ModelCard(text).data
        tree: dict[str, Any] = data.to_dict()
    except Exception as error:  # yaml's errors and plain ValueErrors
        raise CheckpointError(f"the card's metadata cannot be read: {' '.join(str(error).split())[:200]}") from None
    problems = [
        f"{key} is {tree.get(key)!r}, not {wanted!r}"
        for key, wanted in (("library_name", library), ("pipeline_tag", pipeline))
        if tree.get(key) != wanted
    ]
    if not tree.get("license"):
        problems.append("license is missing")
    names = [one.dataset_type for one in data.eval_results or []] + list(data.datasets or [])
    problems += [f"{name!r} is no name of a dataset" for name in names if not HUB_NAME.fullmatch(str(name))]
    if problems:
        raise CheckpointError(f"the card's metadata would not do on the Hub: {'; '.join(problems)}.")
    return data
