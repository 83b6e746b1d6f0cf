"""The model card: facts from the records of an agent's folder, rendered by the template `card.md.j2`."""

from __future__ import annotations

import json
import math
import re
from functools import cache
from pathlib import Path
from typing import Any

import jinja2

from agentzoo.config import AgentConfig
from agentzoo.data.making.catalogue import recipe_of
from agentzoo.data.making.dataset_recipe import SOURCES_OPTION, TRUST_OPTION
from agentzoo.data.references import source_of
from agentzoo.envs import extras_of, is_game, needs_make_env, package_of
from agentzoo.envs.env_options import trust_flags
from agentzoo.errors import CheckpointError
from agentzoo.evaluation.backbones import BACKBONES, read_backbones
from agentzoo.evaluation.baselines import BASELINES, compare_with_clones, read_baselines
from agentzoo.evaluation.method_comparison import task_of
from agentzoo.evaluation.results import Results
from agentzoo.evaluation.seeds import episode_seed
from agentzoo.evaluation.statistics import convergence_in
from agentzoo.hub.front_matter import as_html, check_metadata, code, front_matter, inline
from agentzoo.hub.licenses import require_license
from agentzoo.hub.lines import all_lines, best_differs, learned_elsewhere, mean_line, summary
from agentzoo.hub.paper_scores import PUBLISHED, SELECTION, SOURCES, Published
from agentzoo.hub.sweeps import extremes, sweep_facts
from agentzoo.papers import D4RL
from agentzoo.recipe import Recipe
from agentzoo.record import read_record
from agentzoo.registry import is_clone, recipe_table
from agentzoo.store.downloads import is_repo_id
from agentzoo.store.files import CARD, CONFIG, RECIPE, RESULTS, SWEEP_PLOT, VIDEO, read_text, write_atomic
from agentzoo.store.locate import STUDY_PICTURES
from agentzoo.text import amount, amounts, counted, duration
from agentzoo.training.log import read_log

TEMPLATE = "card.md.j2"
_ADDRESS = re.compile(r'Agent\.from_pretrained\("([^"]+)"')


def card_text(folder: Path, repo_id: str | None = None) -> str:
    """The text of the folder's README.md: Hub metadata and the card.

    It depends only on the records, since a cache or a wheel may lack other files. Without `results.json` the card says
    that nothing was measured.

    Args:
        repo_id: the Hub repo in the card's example; by default the agent's id in the local zoo.
    """
    config = read_record(AgentConfig, folder / CONFIG)
    recipe = read_record(Recipe, folder / RECIPE)
    path = folder / RESULTS
    results = read_record(Results, path) if path.is_file() else None
    facts = {
        "config": config,
        "recipe": recipe,
        "results": results,
        "model": config.model,
        "repo_id": repo_id,
        "metadata": front_matter(config, recipe, results),
        "title": config.model.title or config.model.family,
        "start": config.model.origin(),
        **_use(config, repo_id),
        **_training(recipe, results),
        **_measured(config, recipe, results),
        "command": _command(config, results, repo_id),
    }
    return _template().render(facts)


@cache
def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("agentzoo.hub", ""),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # Markdown; `code`, `inline` and `as_html` escape untrusted text
    )
    environment.filters.update(code=code, inline=inline, as_html=as_html, amount=amount, grouped=_grouped)
    environment.filters.update(counted=counted, duration=duration, amounts=amounts)
    return environment.get_template(TEMPLATE)


def _grouped(value: int) -> str:
    return f"{value:,}"


def write_card(
    folder: Path, license_id: str | None = None, repo_id: str | None = None, zoo: Path | None = None
) -> None:
    """Write the folder's README.md again.

    Args:
        license_id: the new license, stored in the config; by default the license stays.
        repo_id: the Hub repo that the card names; by default the one that the present card names, if any.
        zoo: folder of `baselines.json` and `backbones.json`. Their rows for the agent's dataset and backbone, if they
            have some, and the convergence shown in its log, are first written into `results.json`.

    Raises:
        ConfigError: not a license name. CheckpointError: a record is missing.
    """
    if license_id is not None:
        require_license(license_id)
        config = read_record(AgentConfig, folder / CONFIG)
        tree = {**json.loads(config.to_json()), "license": license_id}
        write_atomic(folder / CONFIG, AgentConfig.from_json(json.dumps(tree), f"license {license_id!r}").to_json())
    if zoo is not None and (folder / RESULTS).is_file():
        _take_records(folder, zoo)
    if repo_id is None and (folder / CARD).is_file():
        repo_id = named_repo(read_text(folder / CARD))
    write_atomic(folder / CARD, card_text(folder, repo_id))


def _take_records(folder: Path, zoo: Path) -> None:
    recipe = read_record(Recipe, folder / RECIPE)
    results = read_record(Results, folder / RESULTS)
    soon = convergence_in(read_log(folder))
    taken: dict[str, Any] = {"training": results.training.model_copy(update={"converged": soon})}
    rows = read_baselines(zoo / BASELINES).datasets if (zoo / BASELINES).is_file() else {}
    if recipe.data.dataset in rows:  # else the zoo says nothing of it, and the agent may have rows of another zoo
        taken["yardsticks"] = rows[recipe.data.dataset]
    known, start = read_backbones(zoo / BACKBONES), recipe.model.origin()
    language = None if known is None else known.of(None if start is None else start.backbone)
    if language is not None:
        taken["language"] = language
    found = results.model_copy(update=taken)
    if found != results:
        write_atomic(folder / RESULTS, found.to_json())


def named_repo(text: str) -> str | None:
    """The Hub repo in a card's example; None if the example loads an agent of the local zoo."""
    found = _ADDRESS.search(text)
    name = found[1] if found else ""
    return name if is_repo_id(name) and not name.startswith("zoo/") else None


def check_card(folder: Path) -> None:
    """Raise CheckpointError unless README.md matches the records and the Hub accepts its metadata."""
    found = read_text(folder / CARD)
    if found != card_text(folder, named_repo(found)):
        raise CheckpointError(
            f"{folder / CARD} does not match the records beside it; `agentzoo hub card {folder}` writes it again."
        )
    check_metadata(found)


def _use(config: AgentConfig, repo_id: str | None) -> dict[str, Any]:
    """Facts for the quickstart."""
    env = config.env or "YOUR/Env-v0"
    options = "".join(f", {name}={value!r}" for name, value in config.env_options.items())
    needs_maker = bool(options) or needs_make_env(env)
    return {
        "address": repo_id or f"zoo/{config.agent_id}",
        "named": repo_id or config.agent_id,
        "trust": trust_flags(config.env, config.env_options),
        "extras": extras_of(env),
        "package": package_of(env) if config.env else "the package of your environment",
        "sees_images": config.io.observation.image is not None,
        "options": options.removeprefix(", "),
        "needs_maker": needs_maker,
        "maker": f'lambda: make_env("{env}"{options})' if needs_maker else f'"{env}"',  # an env id holds no quotes
        "nearly_markov": env.startswith("PointMaze_"),
    }


def _command(config: AgentConfig, results: Results | None, repo_id: str | None) -> str | None:
    """The command that measures the agent again; on a repo's card it names the repo."""
    command = None if results is None else results.headline.command
    own = f"agentzoo evaluate {config.agent_id} "
    if command is None or repo_id is None or not command.startswith(own):
        return command
    return f"agentzoo evaluate {repo_id} {command.removeprefix(own)}"


def _training(recipe: Recipe, results: Results | None) -> dict[str, Any]:
    """Facts about the training."""
    variables = "".join(f"{name}={value} " for name, value in recipe.model.environment().items())
    command = f"{variables}agentzoo train {RECIPE}"
    if recipe.base:
        pinned = f" --revision {recipe.base_revision}" if recipe.base_repo and recipe.base_revision else ""
        command = f"agentzoo finetune {code(recipe.base_repo or recipe.base)}{pinned} --recipe {RECIPE}"
    command += trust_flags(recipe.eval.env, recipe.eval.env_options)
    made = recipe_of(recipe.data.dataset)
    options = "" if made is None else made.build_options
    updates = updates_done(recipe, results)
    return {
        "train_command": command,
        "data_command": "" if made is None else f"agentzoo data build {made.name} {options}".rstrip(),
        "own_data": SOURCES_OPTION in options,
        "others_policy": TRUST_OPTION in options,
        "own_collection": made is not None,
        "updates": updates,
        "stopped_early": updates < recipe.train.steps and recipe.train.patience > 0,
    }


def _measured(config: AgentConfig, recipe: Recipe, results: Results | None) -> dict[str, Any]:
    """Facts about the results, and the papers to cite."""
    paper = None if results is None else published_beside(config, recipe)
    papers = [] if config.model.paper is None else [config.model.paper]
    papers += [] if paper is None else [SOURCES[paper.source]]
    if results is not None and results.headline.score is not None and not is_game(recipe.eval.env):
        papers.append(D4RL)
    shared = {
        "paper": paper,
        "reference_source": source_of(recipe.eval.env),
        "citations": [one.bibtex() for one in dict.fromkeys(papers)],
    }
    if results is None:
        return {"head": None, "below_data": False, **shared}
    head, updates = results.headline, updates_done(recipe, results)
    lines = all_lines(results, updates, paper)
    asked = head.target_score
    everyone = (head, *results.seeds)
    return {
        **shared,
        "head": head,
        "own": lines[0],
        "over": mean_line("mean", everyone) if results.seeds else None,
        "scored": any(one.score for one in lines),
        "goal": head.success_rate is not None,
        "ends_at_goal": head.ends_at_goal,
        "lines": lines,
        "summary": summary(results, paper),
        "is_clone": is_clone(config.model.family),
        "compared": compare_with_clones(everyone, results.yardsticks),
        "elsewhere": learned_elsewhere(results, recipe.data.dataset_sha256),
        "target_of_other_data": recipe.eval.target_rule == "max"
        and not math.isclose(recipe.eval.target_return, results.dataset.best_return, rel_tol=1e-6),
        "below_data": head.return_interval[1] < results.dataset.mean_return,
        "seed_range": extremes(one.mean_return for one in everyone),
        "best_differs": best_differs(results),
        "first_seed": episode_seed(head.seed, 0),
        "selection": "" if paper is None else SELECTION[paper.source],
        "asked_less": paper is not None and paper.unit == "score" and asked is not None and asked < paper.score,
        "sweep": sweep_facts(results.targets) if results.targets else None,
        "sweep_plot": SWEEP_PLOT,
        "study_pictures": STUDY_PICTURES,
        "video": VIDEO,
    }


def published_beside(config: AgentConfig, recipe: Recipe) -> Published | None:
    """A paper's number for the agent with this id, if it acts in the same environment and learned from the same task.

    The dataset may be of another collection: `mujoco/hopper/medium-v0` for `zoo/hopper/medium-v0`.
    """
    known = recipe_table().get(config.agent_id)
    if known is not None:
        task = task_of(known.data.dataset)
        if (known.eval.env, known.eval.env_options) != (config.env, config.env_options):
            return None
        if not f"-{task_of(recipe.data.dataset)}".endswith(f"-{task}"):
            return None
    return next(iter(PUBLISHED.get(config.agent_id, ())), None)


def updates_done(recipe: Recipe, results: Results | None) -> int:
    """Number of updates of the training run."""
    known = None if results is None else results.training.updates
    return recipe.train.steps if known is None else known
