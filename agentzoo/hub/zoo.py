"""What there is: staged agents, recipes, this machine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from agentzoo.config import AgentConfig, read_record
from agentzoo.errors import AgentzooError
from agentzoo.evaluation.results import Results, versions
from agentzoo.recipe import Recipe, load_recipe
from agentzoo.registry import families, recipe_table
from agentzoo.store.files import CONFIG, RECIPE, RESULTS
from agentzoo.store.locate import check_links, find_agent, local_zoo, staged_agents
from agentzoo.types import Config


class Summary(Config):
    """One line of `agentzoo list`."""

    agent_id: str
    staged: bool
    family: str | None = None
    env: str | None = None
    target: float | None = None
    steps: int | None = None
    dataset: str | None = None
    mean_return: float | None = None
    data_return: float | None = None  # mean return of the episodes it was trained on
    score: float | None = None
    low: float | None = None
    high: float | None = None
    problem: str | None = None  # why a folder of the local zoo cannot be read; nothing else is known then

    def shown_score(self) -> str:
        """`93.7 [92.4, 94.9]`, or nothing where there is no score with an interval."""
        if self.score is None or self.low is None:
            return ""
        return f"{self.score:.1f} [{self.low:.1f}, {self.high:.1f}]"


def summaries() -> list[Summary]:
    """Every agent that is staged or has a recipe, by id; one whose folder cannot be read says why."""
    found: dict[str, Summary] = {}
    for agent_id, recipe in recipe_table().items():
        found[agent_id] = _of_recipe(recipe)
    for agent_id, folder in staged_agents().items():
        try:
            found[agent_id] = _of_folder(agent_id, folder, found.get(agent_id))
        except AgentzooError as error:
            found[agent_id] = Summary(agent_id=agent_id, staged=False, problem=str(error))
    return [found[name] for name in sorted(found)]


def _of_folder(agent_id: str, folder: Path, packaged: Summary | None) -> Summary:
    """A staged agent; `packaged` is what its packaged recipe says, where there is one.

    Raises:
        CheckpointError, ConfigError: a file cannot be used.
    """
    check_links(folder)
    config = read_record(AgentConfig, folder / CONFIG)
    recipe = read_record(Recipe, folder / RECIPE) if (folder / RECIPE).exists() else None
    fields: dict[str, Any] = {
        "agent_id": agent_id,
        "staged": True,
        "family": config.model.family,
        "env": config.env,
        "target": config.target_return,
    }
    updates = recipe.train.steps if recipe else 0
    if (folder / RESULTS).is_file():
        results = read_record(Results, folder / RESULTS)
        head, updates = results.headline, results.training.updates or updates
        fields |= {"mean_return": head.mean_return, "score": head.score, "data_return": results.dataset.mean_return}
        if head.score_interval is not None:
            fields |= {"low": head.score_interval[0], "high": head.score_interval[1]}
    start = packaged or (_of_recipe(recipe) if recipe else Summary(agent_id=agent_id, staged=True, steps=0))
    return start.model_copy(update=fields | ({"steps": updates, "dataset": recipe.data.dataset} if recipe else {}))


def _of_recipe(recipe: Recipe) -> Summary:
    evaluation, steps = recipe.eval, recipe.train.steps
    return Summary(
        agent_id=recipe.agent_id,
        staged=False,
        family=recipe.model.family,
        env=evaluation.env,
        target=evaluation.target_return,
        steps=steps,
        dataset=recipe.data.dataset,
    )


def list_agents(staged_only: bool = True) -> list[str]:
    """Ids of the agents that can be loaded from the local zoo, or of all that have a recipe too."""
    known = () if staged_only else recipe_table()
    return [one.agent_id for one in summaries() if one.staged or one.agent_id in known]


def describe(agent: str) -> dict[str, Any]:
    """The recipe of an agent and its headline scores, as plain data.

    Raises:
        UnknownNameError: neither staged nor a recipe.
    """
    plain = agent.removeprefix("zoo/")
    if plain in staged_agents() or plain not in recipe_table():
        folder = find_agent(agent)
        path = folder / RECIPE
        recipe = read_record(Recipe, path)
        record: dict[str, Any] = json.loads(recipe.model_dump_json())
        if (folder / RESULTS).is_file():
            head = read_record(Results, folder / RESULTS).headline
            record["results"] = head.model_dump(exclude={"returns", "lengths"})
        return record
    plain_recipe: dict[str, Any] = json.loads(load_recipe(agent).model_dump_json())
    return plain_recipe


def environment_info() -> dict[str, Any]:
    """Versions, device, folders and families."""
    import torch

    from agentzoo.data.minari import datasets_root
    from agentzoo.nn.native.scan import active_path

    return {
        **versions(),
        "device": "cuda" if torch.cuda.is_available() else "cpu",
        "threads": torch.get_num_threads(),
        "acting": _runtimes(),
        "selective scan": active_path(),
        "local zoo": str(local_zoo()),
        "staged agents": len(staged_agents()),
        "datasets": str(datasets_root()),
        "families": ", ".join(families()),
    }


def _runtimes() -> str:
    """What can run a network here."""
    version = versions("onnxruntime").get("onnxruntime")
    missing = "ONNX Runtime is not installed: pip install 'agentzoo[export]'"
    return f"PyTorch; {missing if version is None else f'ONNX Runtime {version} with --runtime onnx'}"
