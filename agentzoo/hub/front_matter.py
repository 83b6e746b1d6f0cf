"""The front matter of a card, built and checked with huggingface_hub's classes, and escaping of untrusted text."""

from __future__ import annotations

import html
import re
from typing import Any

from agentzoo.config import AgentConfig
from agentzoo.envs import is_game
from agentzoo.errors import CheckpointError, printable
from agentzoo.evaluation.results import Result, Results
from agentzoo.hub.licenses import LICENSES
from agentzoo.recipe import Recipe
from agentzoo.text import counted, fixed

LONGEST = 1_000  # characters in a description
FARAMA = ("D4RL", "mujoco", "minigrid", "atari", "metaworld")  # repos of Minari's own organization on the Hub
HUB_NAME = re.compile(r"(?:[\w-]+/)?[\w\-.]+")  # what the Hub accepts as a dataset of a `model-index`


def inline(text: str) -> str:
    """Text of a record as one line of Markdown, without markup, links, table cells, headings, lists or HTML."""
    flat = printable(" ".join(text.split()), LONGEST)
    escaped = re.sub(r"([\\`*\[\]<>|~&]|(?<!\w)_|_(?!\w))", r"\\\1", flat)
    return re.sub(r"^(?:([#+=-])|(\d{1,9})([.)])(?=\s|$))", _begins_no_block, escaped)


def _begins_no_block(found: re.Match[str]) -> str:
    """Escape a character at the start of a line that would begin a heading, rule or list."""
    return f"\\{found[1]}" if found[1] else f"{found[2]}\\{found[3]}"


def as_html(text: str) -> str:
    """Text of a record for use inside an HTML element, where Markdown's backslashes have no effect."""
    return html.escape(printable(" ".join(text.split()), LONGEST))


def code(text: str) -> str:
    """A name or command for use between backticks or in a code block: one line, without backticks."""
    return printable(" ".join(text.replace("`", " ").split()), LONGEST)


def hub_name(env_id: str) -> str:
    """An environment's id as a name that the Hub accepts: `agentzoo/DoorKey-4x4-v0` -> `agentzoo-DoorKey-4x4-v0`."""
    return re.sub(r"[^\w.-]+", "-", env_id)[:96] or "unknown"


def hub_datasets(dataset: str) -> list[str] | None:
    """The Hub's name of a Minari dataset; None if it is not on the Hub, such as the zoo's datasets."""
    namespace = dataset.split("/")[0]
    return [f"farama-minari/{namespace}"] if namespace in FARAMA else None


def front_matter(config: AgentConfig, recipe: Recipe, results: Results | None) -> str:
    """The YAML block at the top of a card, without its two lines of dashes.

    It names the base of a fine-tune if that was loaded from a Hub repo: the Hub links to it.
    """
    from huggingface_hub import ModelCardData

    family = config.model.family
    tags = ["reinforcement-learning", "deep-reinforcement-learning", "offline-rl", "gymnasium", "minari", family]
    data = ModelCardData(
        license=config.license,
        library_name="agentzoo",
        pipeline_tag="reinforcement-learning",
        tags=[*tags, *([code(config.env)] if config.env else [])],
        datasets=hub_datasets(recipe.data.dataset),
        base_model=recipe.base_repo,
        model_name=config.agent_id,
        eval_results=_evaluations(results.headline) if results is not None else None,
    )
    return str(data.to_yaml()).rstrip()


def _evaluations(head: Result) -> list[Any]:
    """Results with the environment as dataset: the mean return, as in stable-baselines3's cards, the score."""
    from huggingface_hub import EvalResult

    measured = [("mean_reward", head.mean_return, head.return_interval, "mean_reward")]
    if head.score is not None and head.score_interval is not None:
        whose = "gamer" if is_game(head.env) else "D4RL"
        kind = f"{whose.lower()}_normalized_score"
        measured.append((f"{whose}-normalized score", head.score, head.score_interval, kind))
    return [
        EvalResult(
            task_type="reinforcement-learning",
            task_name="offline reinforcement learning",
            dataset_type=hub_name(head.env),
            dataset_name=code(head.env),
            metric_type=kind,
            metric_name=f"{name}, {counted(head.episodes, 'episode')}, 95 % interval {low} to {high}",
            metric_value=round(value, 2) + 0.0,  # no minus before a zero
        )
        for name, value, interval, kind in measured
        for low, high in [[fixed(bound, 2) for bound in interval]]
    ]


def check_metadata(text: str, library: str = "agentzoo", pipeline: str | None = "reinforcement-learning") -> Any:
    """The front matter of a card as `ModelCardData`, after the checks that the Hub makes on a push.

    Raises:
        CheckpointError: it is missing, or the Hub would reject it.
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
    elif str(tree["license"]) not in LICENSES:
        problems.append(f"license {printable(str(tree['license']))!r} is not one that it knows (use `other`)")
    names = [one.dataset_type for one in data.eval_results or []] + list(data.datasets or [])
    problems += [f"{name!r} is not a dataset name" for name in names if not HUB_NAME.fullmatch(str(name))]
    if problems:
        raise CheckpointError(f"the Hub would reject the card's metadata: {'; '.join(problems)}.")
    return data
