"""The model card, made from the records of an agent's folder and never typed by hand."""

from __future__ import annotations

import json
from pathlib import Path

from agentzoo.config import AgentConfig, read_record, read_text
from agentzoo.data.making.catalogue import OTHERS, OWN, recipe_of
from agentzoo.envs import ROBOTICS
from agentzoo.errors import CheckpointError
from agentzoo.evaluation.results import Results
from agentzoo.evaluation.scores import amount
from agentzoo.hub.card_results import (
    extremes,
    published_beside,
    results_section,
    study_section,
    targets_section,
    updates_done,
)
from agentzoo.hub.metadata import check_metadata, code, front_matter, inline
from agentzoo.hub.paper_scores import SOURCES
from agentzoo.papers import D4RL
from agentzoo.recipe import Recipe, TrainConfig
from agentzoo.store.files import CARD, CONFIG, RECIPE, RESULTS, VIDEO, write_atomic


def card_text(folder: Path) -> str:
    """README.md of the folder: Hub metadata and the card. The same records give the same text, whatever other files are
    there: a cache or a wheel may hold fewer.

    Without `results.json` the card says that nothing was measured.
    """
    config = read_record(AgentConfig, folder / CONFIG)
    recipe = read_record(Recipe, folder / RECIPE)
    path = folder / RESULTS
    results = read_record(Results, path) if path.is_file() else None
    unmeasured = "## Results\n\nNothing has been measured yet."
    sections = [
        front_matter(config, recipe, results),
        _what(config, recipe, results),
        _quickstart(config, results),
        _training(recipe, results),
        unmeasured if results is None else results_section(config, recipe, results),
    ]
    if results is not None and results.targets and results.plotted:
        sections.append(targets_section(results))
    sections += [study_section(study) for study in (results.studies if results is not None else ())]
    sections += [_limits(recipe, results), _citation(config, recipe, results)]
    return "\n\n".join(sections) + "\n"


def write_card(folder: Path, license_id: str | None = None) -> None:
    """Make README.md of the folder again; `license_id`: under this license from now on.

    Raises:
        ConfigError: no name of a license. CheckpointError: a record is missing.
    """
    if license_id is not None:
        config = read_record(AgentConfig, folder / CONFIG)
        tree = {**json.loads(config.to_json()), "license": license_id}
        write_atomic(folder / CONFIG, AgentConfig.from_json(json.dumps(tree), f"license {license_id!r}").to_json())
    write_atomic(folder / CARD, card_text(folder))


def check_card(folder: Path) -> None:
    """Raise CheckpointError unless README.md is what the records give and has metadata the Hub accepts."""
    found = read_text(folder / CARD)
    if found != card_text(folder):
        raise CheckpointError(
            f"{folder / CARD} is not what the records beside it give; `agentzoo hub card {folder}` writes it."
        )
    check_metadata(found)


def _what(config: AgentConfig, recipe: Recipe, results: Results | None) -> str:
    title = config.model.title or config.model.family
    start = f" It was fine-tuned from `{code(recipe.base)}`." if recipe.base else config.model.origin()
    size = f" with {results.training.parameters:,} parameters" if results is not None else ""
    where = f" for `{code(config.env)}`" if config.env else ""
    limit = "acts in that environment and nowhere else" if config.env else "acts in what its data was taken from"
    return (
        f"# {config.agent_id}\n\n"
        f"A {title} agent{where}{size}, trained offline on `{code(recipe.data.dataset)}`.{start} It reads "
        f"{config.model.reads(config.io.context)} and answers {config.model.answers()}. Use it as a "
        f"baseline or a starting point for fine-tuning; it {limit}."
        + (f"\n\n[Video of one episode]({VIDEO})" if results is not None and results.filmed else "")
    )


WAYS = {
    "window": '`agent.acting = "window"` runs its last steps again for every action, as it was trained',
    "recurrent": '`agent.acting = "recurrent"` carries a memory, so that an action costs the same at any step',
}


def _ways(results: Results) -> str:
    """What `agent.acting` is by default and what else it may be, of an agent that was measured in several ways."""
    own = results.headline.acting
    others = "; ".join(WAYS[one.acting] for one in results.acting)
    return f"By default {WAYS[own]}. {others}. Both are measured below."


def _quickstart(config: AgentConfig, results: Results | None) -> str:
    env = config.env or "YOUR/Env-v0"
    options = "".join(f", {name}={value!r}" for name, value in config.env_options.items())
    imports, trust = ["from agentzoo import Agent"], ", trust_env_module=True" if ":" in env else ""
    maker = f'"{env}"'  # `EnvId` allows no quotes
    if options or env.startswith(("agentzoo/", *ROBOTICS)):
        imports.append("from agentzoo.envs import make_env")
        maker = f"lambda: make_env({maker}{options})"
    return "\n".join(
        [
            "## Use it",
            "",
            "```python",
            "from stable_baselines3.common.env_util import make_vec_env",
            "from stable_baselines3.common.evaluation import evaluate_policy",
            "",
            *imports,
            "",
            f"vec_env = make_vec_env({code(maker)}, n_envs=4)",
            f'agent = Agent.from_pretrained("zoo/{config.agent_id}", env=vec_env{trust})',
            "mean, std = evaluate_policy(agent, vec_env, n_eval_episodes=4)",
            "```",
            "",
            f"`zoo/{config.agent_id}` is found in a checkout's `hub_cards/` and in the folder `$AGENTZOO_ZOO`; "
            "`agentzoo list` says what an installation has. If you read this on the Hub, name the page instead, "
            "`OWNER/NAME`; a folder may be named as well. `pip install -e '.[mujoco]'` in a checkout of agentzoo "
            f"installs what the code above needs.{_target(config)}",
            *(["", _ways(results)] if results is not None and results.acting else []),
            *(["", _questions(config)] if config.model.takes_questions() else []),
        ]
    )


def _target(config: AgentConfig) -> str:
    if not config.model.acts_on_target():
        return " It acts alike whatever `agent.target_return` says."
    return (
        f" `agent.target_return` (here {config.target_return:g}) is the return it is asked for, in the environment's "
        "reward."
    )


def _questions(config: AgentConfig) -> str:
    """What a masked agent is for besides acting."""
    return (
        f"It takes questions, too: `agentzoo research infer zoo/{config.agent_id} --task past --out past.png` runs an "
        "episode, hides the past from it and draws its answer (other tasks: `agentzoo research infer --help`). "
        "In Python, `agentzoo.evaluation.played_window.run_window` runs an episode, `agent.infer` takes arrays and a "
        "mask of your own, and `agent.condition` makes it act towards goals and waypoints; `demos/ask_unimask.py` in a "
        "checkout shows them."
    )


def _training(recipe: Recipe, results: Results | None) -> str:
    train = recipe.train
    variables = "".join(f"{name}={value} " for name, value in recipe.model.environment().items())
    command = f"{variables}agentzoo train {RECIPE}"
    if recipe.base:
        command = f"agentzoo finetune {code(recipe.base)} --recipe {RECIPE}"
    command += " --trust-env-module" if ":" in recipe.eval.env else ""
    normalization = {
        "keep": "Observation mean and std are kept from its start.",
        "dataset": "Observation mean and std are computed from this dataset.",
        "none": "Observations are read as they are.",
    }[recipe.data.normalization]
    warm_up = f" after {train.warmup_steps:,} updates of warm-up" if train.warmup_steps else ""
    spent = ""
    if results is not None:
        spent = f", {results.training.seconds / 60:.0f} minutes on {inline(results.training.hardware)}"
    products = ", products of matrices in bfloat16" if train.precision == "bf16" else ""
    text = (
        f"## How it was trained\n\n```\n{_data_command(recipe)}{command}\n```\n\n"
        f"{_updates(train, results)} of {train.batch_size} windows, learning rate {train.lr:g} "
        f"({train.schedule}{warm_up}), seed {train.seed}{products}{spent}. The whole "
        f"recipe is in `{RECIPE}`, the losses are in `training_log.csv`. {normalization}"
        f"{_sources(recipe)}"
    )
    if results is None:
        return text
    data = results.dataset
    made = f" {inline(data.made_by)}" if data.made_by else ""
    return (
        f"{text}\n\n"
        f"The data{_share(recipe)}: {data.steps:,} steps in {data.episodes:,} episodes.{made} Mean "
        f"return of {'these' if _share(recipe) else 'its'} episodes {amount(data.mean_return)}, best "
        f"{amount(data.best_return)}."
    )


def _share(recipe: Recipe) -> str:
    """Of the dataset that is trained on, where that is not all of it."""
    fraction = recipe.data.best_fraction
    return f", the best episodes up to {100 * fraction:g} % of its steps" if fraction < 1.0 else ""


def _data_command(recipe: Recipe) -> str:
    """The line that makes a dataset of the zoo."""
    made = recipe_of(recipe.data.dataset)
    return "" if made is None else f"agentzoo data build {made.name} {made.told}".rstrip() + "\n"


def _sources(recipe: Recipe) -> str:
    """What the options of that line mean, with a space before it."""
    made = recipe_of(recipe.data.dataset)
    told = "" if made is None else made.told
    own = (
        " `DIR` holds policies and buffers of your own (`agentzoo data behaviour` makes them): what our data was made "
        "of is not distributed, so yours will be like it and agents trained on it will score differently."
    )
    others = " `--trust-policies` fetches an expert that others trained from the Hub; loading it runs its code."
    return own * (OWN in told) + others * (OTHERS in told)


def _updates(train: TrainConfig, results: Results | None) -> str:
    planned, done = train.steps, updates_done(train, results)
    early = f" (of at most {planned:,}; its evaluations got no better)" if done < planned and train.patience else ""
    return f"{done:,} updates{early}"


def _limits(recipe: Recipe, results: Results | None) -> str:
    best = f" ({amount(results.dataset.best_return)})" if results is not None else ""
    start = " and what the agent it was tuned from has seen" if recipe.base else ""
    text = (
        "## Limits\n\n"
        f"It has only seen `{code(recipe.data.dataset)}`{start}: states that data does not visit, and targets above "
        f"its best return{best}, are extrapolation."
    )
    if results is None:
        return text
    head, data = results.headline, results.dataset
    if head.return_interval[1] < data.mean_return:
        text += (
            f" It returns less ({amount(head.mean_return)}) than the episodes it learned from do on average "
            f"({amount(data.mean_return)})."
        )
    if not results.seeds:
        return f"{text} The results above are of one training seed; another may do quite differently."
    returns = [amount(value) for value in extremes(one.mean_return for one in (head, *results.seeds))]
    return f"{text} {len(results.seeds) + 1} training seeds were measured; they return {' to '.join(returns)}."


def _citation(config: AgentConfig, recipe: Recipe, results: Results | None) -> str:
    papers = [] if config.model.paper is None else [config.model.paper]
    shown = None if results is None else published_beside(config, recipe)
    papers += [] if shown is None else [SOURCES[shown.source]]
    if results is not None and results.headline.score is not None:
        papers.append(D4RL)
    if not papers:
        return "## Citation\n\nNo paper is known to the zoo for this family."
    entries = "\n\n".join(paper.bibtex() for paper in dict.fromkeys(papers))
    also = ", and where numbers beside or behind ours are from" if len(papers) > 1 else ""
    return f"## Citation\n\nThe method{also}:\n\n```bibtex\n{entries}\n```"
