"""What there is: staged agents, recipes, this machine."""

from __future__ import annotations

import json
from typing import Any

from agentzoo.config import CONFIG, RECIPE, AgentConfig, read_text
from agentzoo.evaluation.results import Results, versions
from agentzoo.locate import check_links, find_agent, local_zoo, staged_agents
from agentzoo.recipe import Recipe, load_recipe
from agentzoo.registry import families, recipe_table
from agentzoo.types import Config

RESULTS = "results.json"


class Summary(Config):
    """One line of `agentzoo list`."""

    agent_id: str
    staged: bool
    env: str | None
    target: float
    steps: int
    mean_return: float | None = None
    score: float | None = None
    low: float | None = None
    high: float | None = None


def summaries() -> list[Summary]:
    """Every agent that is staged or has a recipe, by id."""
    found: dict[str, Summary] = {}
    for agent_id, recipe in recipe_table().items():
        found[agent_id] = _of_recipe(recipe)
    for agent_id, folder in staged_agents().items():
        check_links(folder)
        config = AgentConfig.from_json(read_text(folder / CONFIG), str(folder / CONFIG))
        recipe = (
            Recipe.from_json(read_text(folder / RECIPE), str(folder / RECIPE)) if (folder / RECIPE).exists() else None
        )
        fields: dict[str, Any] = {
            "agent_id": agent_id,
            "staged": True,
            "env": config.env,
            "target": config.target_return,
        }
        if (folder / RESULTS).is_file():
            head = Results.from_json(read_text(folder / RESULTS), str(folder / RESULTS)).headline
            fields |= {"mean_return": head.mean_return, "score": head.score}
            if head.score_interval is not None:
                fields |= {"low": head.score_interval[0], "high": head.score_interval[1]}
        start = found.get(agent_id) or (_of_recipe(recipe) if recipe else None)
        base = start or Summary(agent_id=agent_id, staged=True, env=config.env, target=config.target_return, steps=0)
        found[agent_id] = base.model_copy(update=fields | ({"steps": recipe.train.steps} if recipe else {}))
    return [found[name] for name in sorted(found)]


def _of_recipe(recipe: Recipe) -> Summary:
    evaluation, steps = recipe.eval, recipe.train.steps
    return Summary(
        agent_id=recipe.agent_id, staged=False, env=evaluation.env, target=evaluation.target_return, steps=steps
    )


def list_agents(staged_only: bool = True) -> list[str]:
    """Ids of the agents that can be loaded from the local zoo, or of all that have a recipe too."""
    return [one.agent_id for one in summaries() if one.staged or not staged_only]


def describe(agent: str) -> dict[str, Any]:
    """The recipe of an agent and its headline scores, as plain data.

    Raises:
        UnknownNameError: neither staged nor a recipe.
    """
    plain = agent.removeprefix("zoo/")
    if plain in staged_agents() or plain not in recipe_table():
        folder = find_agent(agent)
        path = folder / RECIPE
        recipe = Recipe.from_json(read_text(path), str(path))
        record: dict[str, Any] = json.loads(recipe.model_dump_json())
        if (folder / RESULTS).is_file():
            head = Results.from_json(read_text(folder / RESULTS), str(folder / RESULTS)).headline
            record["results"] = head.model_dump(exclude={"returns", "lengths"})
        return record
    plain_recipe: dict[str, Any] = json.loads(load_recipe(agent).model_dump_json())
    return plain_recipe


def environment_info() -> dict[str, Any]:
    """Versions, device, folders and families."""
    import torch

    from agentzoo.data.minari import datasets_root
    from agentzoo.nn.scan import active_path

    return {
        **versions(),
        "device": "cuda" if torch.cuda.is_available() else "cpu",
        "threads": torch.get_num_threads(),
        "selective scan": active_path(),
        "local zoo": str(local_zoo()),
        "staged agents": len(staged_agents()),
        "datasets": str(datasets_root()),
        "families": ", ".join(families()),
    }
