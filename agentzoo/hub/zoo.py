"""List and describe agents and recipes, and report versions of this machine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from agentzoo.config import AgentConfig
from agentzoo.errors import AgentzooError
from agentzoo.evaluation.results import Results
from agentzoo.evaluation.versions import versions
from agentzoo.hub.overview import Summary, packaged, summary_of
from agentzoo.recipe import Recipe, load_recipe
from agentzoo.record import read_record
from agentzoo.registry import families, recipe_table
from agentzoo.store.files import CONFIG, RECIPE, RESULTS
from agentzoo.store.index import index_path, read_index
from agentzoo.store.locate import check_links, find_agent, local_zoo, staged_agents


def summaries() -> list[Summary]:
    """Every agent that is staged or has a recipe, by id; `problem` says why a folder cannot be read."""
    found = packaged()
    for agent_id, folder in staged_agents().items():
        try:
            _check(folder)
            found[agent_id] = summary_of(agent_id, folder, found.get(agent_id))
        except AgentzooError as error:
            found[agent_id] = Summary(agent_id=agent_id, staged=False, problem=str(error))
    return [found[name] for name in sorted(found)]


def _check(folder: Path) -> None:
    """Read all records of a staged agent.

    Raises:
        CheckpointError, ConfigError: a record cannot be used.
    """
    check_links(folder)
    read_record(AgentConfig, folder / CONFIG)
    if (folder / RECIPE).exists():
        read_record(Recipe, folder / RECIPE)
    if (folder / RESULTS).is_file():
        read_record(Results, folder / RESULTS)


def list_agents(staged_only: bool = True) -> list[str]:
    """Ids of the agents in the local zoo; with `staged_only=False` also ids that only have a recipe."""
    known = () if staged_only else recipe_table()
    return [one.agent_id for one in summaries() if one.staged or one.agent_id in known]


def describe(agent: str) -> dict[str, Any]:
    """The recipe of an agent and its measured scores, as plain data: `results` of its weights, and `over_seeds` of all
    training seeds of its recipe, if there are several.

    Raises:
        UnknownNameError: the agent is not staged and has no recipe.
    """
    plain = agent.removeprefix("zoo/")
    named = plain not in recipe_table() or plain in staged_agents() or Path(agent).is_dir()
    if named or plain in read_index(index_path()).get("agents", {}):  # its `default` also names what was never trained
        folder = find_agent(agent)
        path = folder / RECIPE
        recipe = read_record(Recipe, path)
        record: dict[str, Any] = json.loads(recipe.model_dump_json())
        if (folder / RESULTS).is_file():
            results = read_record(Results, folder / RESULTS)
            record["results"] = results.headline.model_dump(exclude={"returns", "lengths"})
            if results.seeds:
                shown = summary_of(plain, folder, None).as_shown()
                record["over_seeds"] = {name: shown[name] for name in ("mean_return", "score", "low", "high", "seeds")}
        return record
    plain_recipe: dict[str, Any] = json.loads(load_recipe(agent).model_dump_json())
    return plain_recipe


def environment_info() -> dict[str, Any]:
    """Versions, device, folders and families."""
    import torch

    from agentzoo.data.names import datasets_root
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
    """The installed runtimes."""
    version = versions("onnxruntime").get("onnxruntime")
    missing = "ONNX Runtime is not installed: pip install 'agentzoo[export]'"
    return f"PyTorch; {missing if version is None else f'ONNX Runtime {version} with --runtime onnx'}"
