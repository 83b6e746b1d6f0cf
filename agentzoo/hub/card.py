"""The model card, made from the records of an agent's folder and never typed by hand."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from agentzoo.config import AgentConfig, read_record, read_text
from agentzoo.data.catalogue import OTHERS, OWN, recipe_of
from agentzoo.envs import ROBOTICS
from agentzoo.errors import CheckpointError
from agentzoo.evaluation.results import Result, Results
from agentzoo.evaluation.scores import amount, mean_interval, over_seeds
from agentzoo.evaluation.study import Study
from agentzoo.files import CARD, CONFIG, LOG, RECIPE, RESULTS, SWEEP_PLOT, VIDEO, write_atomic
from agentzoo.hub.metadata import check_metadata, code, front_matter, inline
from agentzoo.hub.published import PUBLISHED, SELECTION, SOURCES, Published
from agentzoo.locate import STUDY_PICTURES
from agentzoo.papers import D4RL
from agentzoo.recipe import Recipe, TrainConfig
from agentzoo.registry import recipe_table

REACTS = 0.2  # of the span asked for: an agent whose returns span less hardly reacts
TELLING = 10  # episodes a target; fewer tell too little to say what asking for more brings
COLUMNS = ("agent", "normalized score", "return", "success", "length", "episodes")


def read_records(folder: Path) -> tuple[AgentConfig, Recipe, Results]:
    """The three records a card is made from.

    Raises:
        CheckpointError: one is missing. ConfigError: one cannot be used.
    """
    return (
        read_record(AgentConfig, folder / CONFIG),
        read_record(Recipe, folder / RECIPE),
        read_record(Results, folder / RESULTS),
    )


def card_text(folder: Path) -> str:
    """README.md of the folder: Hub metadata and the card. The same records give the same text, whatever other files are
    there: a cache or a wheel may hold fewer.

    Without `results.json` the card says that nothing was measured.
    """
    config = read_record(AgentConfig, folder / CONFIG)
    recipe = read_record(Recipe, folder / RECIPE)
    path = folder / RESULTS
    results = read_record(Results, path) if path.is_file() else None
    sections = [
        front_matter(config, recipe, results),
        _what(config, recipe, results),
        _quickstart(config, results),
        _training(recipe, results),
        _results(config, recipe, results) if results is not None else "## Results\n\nNothing has been measured yet.",
    ]
    if results is not None and results.targets and results.plotted:
        sections.append(_targets(results))
    sections += [_study(study) for study in (results.studies if results is not None else ())]
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
            f"{folder / CARD} is not what the records beside it give; `agentzoo card {folder}` writes it."
        )
    check_metadata(found)


def require_promised(folder: Path) -> None:
    """Raise CheckpointError unless every file that the card of measured records shows or names is there."""
    results = read_records(folder)[2]
    studies = [one.picture for one in results.studies if one.picture is not None]
    shown = [VIDEO] * results.filmed + [SWEEP_PLOT] * bool(results.targets and results.plotted)
    missing = [name for name in (LOG, *shown, *studies) if not (folder / name).is_file()]
    if missing:
        raise CheckpointError(
            f"{folder} lacks {', '.join(missing)}, which its card shows. A folder that was loaded from the Hub holds "
            "only what an agent needs; `agentzoo pull` brings all of it."
        )


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
            f"installs what the code above needs. `agent.target_return` (here {config.target_return:g}) is the return "
            "it is asked for, in the environment's reward.",
            *(["", _ways(results)] if results is not None and results.acting else []),
            *(["", _questions(config)] if config.model.takes_questions() else []),
        ]
    )


def _questions(config: AgentConfig) -> str:
    """What a masked agent is for besides acting."""
    return (
        f"It takes questions, too: `agentzoo infer zoo/{config.agent_id} --task past --out past.png` runs an episode, "
        "hides the past from it and draws its answer (other tasks: `agentzoo infer --help`). In Python, "
        "`agentzoo.evaluation.windows.run_window` runs an episode, `agent.infer` takes arrays and a mask of your own, "
        "and `agent.condition` makes it act towards goals and waypoints; `demos/ask_unimask.py` in a checkout shows "
        "them."
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
    return (
        f"{text}\n\n"
        f"The data{_share(recipe)}: {data.steps:,} steps in {data.episodes:,} episodes. {inline(data.made_by)} Mean "
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
    planned, done = train.steps, _done(train, results)
    early = f" (of at most {planned:,}; its evaluations got no better)" if done < planned and train.patience else ""
    return f"{done:,} updates{early}"


def _done(train: TrainConfig, results: Results | None) -> int:
    """Updates of the training."""
    return train.steps if results is None or results.training.updates is None else results.training.updates


def _row(label: str, result: Result) -> tuple[str, ...]:
    low, high = result.return_interval
    score = "" if result.score is None else f"{result.score:.1f}"
    if result.score_interval is not None:
        score += f" [{result.score_interval[0]:.1f}, {result.score_interval[1]:.1f}]"
    returned = f"{amount(result.mean_return)} [{amount(low)}, {amount(high)}]"
    success = "" if result.success_rate is None else f"{100 * result.success_rate:.0f} %"
    return label, score, returned, success, _length(result), str(result.episodes)


def _mean_row(seeds: Sequence[Result]) -> tuple[str, ...]:
    """Mean, standard deviation and interval over training seeds, each of which counts as one number."""
    scores = [one.score for one in seeds if one.score is not None]
    returns = [one.mean_return for one in seeds]
    successes = [one.success_rate for one in seeds if one.success_rate is not None]
    return (
        f"mean ± std of these {len(seeds)} training seeds",
        over_seeds(scores, 1) if len(scores) == len(seeds) else "",
        over_seeds(returns, 0 if max(map(abs, returns)) >= 100 else 2),
        f"{100 * np.mean(successes):.0f} %" if len(successes) == len(seeds) else "",
        f"{np.mean([one.mean_length for one in seeds]):.0f}",
        str(sum(one.episodes for one in seeds)),
    )


def _length(result: Result) -> str:
    """With an interval where an episode ends at a goal, so that it is a figure of its own."""
    if result.success_rate is None:
        return f"{result.mean_length:.0f}"
    low, high = mean_interval(np.array(result.lengths))
    return f"{result.mean_length:.0f} [{low:.0f}, {high:.0f}]"


def _results(config: AgentConfig, recipe: Recipe, results: Results) -> str:
    head, updates = results.headline, _done(recipe.train, results)
    own = f"**this agent, final weights{f', {head.acting} acting' if results.acting else ''}**"
    rows = [_row(own, head)]
    best = results.best if results.best is not None and results.best.returns != head.returns else None
    if best is not None:
        rows.append(_row("its checkpoint that did best while it trained, not in this folder", best))
    rows += [_row(f"same weights, {one.acting} acting", one) for one in results.acting]
    rows += [_row(_seeded("same recipe", one), one) for one in results.seeds]
    if results.seeds:
        rows.append(_mean_row((head, *results.seeds)))
    for one in results.baselines:
        longer = f", {one.updates:,} updates" if one.updates not in (None, updates) else ""
        rows.append(_row(_seeded(inline(one.agent_id), one) + longer, one))
    paper = _published(config, recipe)
    if paper is not None:
        rows.append(_published_row(paper))
    over = " (over training seeds in the row of their mean)" if results.seeds else ""
    acting = "deterministic" if head.deterministic else "sampled"
    asked = "" if head.target_score is None else f" (a score of {head.target_score:.1f})"
    lines = [
        "## Results",
        "",
        *_table(COLUMNS, rows),
        "",
        f"Brackets hold 95 % bootstrap intervals of the mean over episodes{over}. Environment `{code(head.env)}`, "
        f"target return {head.target_return:g}{asked}, {acting} actions, episode e "
        f"reset with seed {10_000 * (head.seed + 1)} + e.",
    ]
    if head.success_rate is not None:
        lines.append("Length is in steps; an episode that misses the goal counts all it had.")
    if head.random_reference is not None and head.expert_reference is not None:
        lines.append(
            f"Score 0 is a return of {head.random_reference:g}, 100 is {head.expert_reference:g} (D4RL's references, "
            "measured on older versions of the environment)."
        )
    if best is not None:
        lines.append(
            "The checkpoint that did best was picked by short evaluations in this environment, on other seeds; data "
            "alone would not have told when to stop."
        )
    if paper is not None:
        lines += [
            "",
            f"The published row is of {paper.origin()}{_published_data(paper)} The numbers are not comparable one to "
            f"one: {_unlike(paper, recipe, head, updates)}.",
        ]
    used = ", ".join(f"{inline(name)} {inline(version)}" for name, version in head.versions.items())
    how = f"with `{code(head.command)}` " if head.command is not None else ""
    lines += ["", f"Measured {how}({used}). `agentzoo verify {config.agent_id}` checks the files and measures again."]
    return "\n".join(lines)


def _published(config: AgentConfig, recipe: Recipe) -> Published | None:
    """A paper's number for the agent of this id, if it acts where that one does."""
    known = recipe_table().get(config.agent_id)
    if known is not None and (known.eval.env, known.eval.env_options) != (config.env, config.env_options):
        return None
    return next(iter(PUBLISHED.get(config.agent_id, ())), None)


def _published_data(paper: Published) -> str:
    if paper.unit == "score":
        return ", on D4RL's dataset of the same name."
    return ". It is on a maze of D4RL that the paper does not name further."


def _unlike(paper: Published, recipe: Recipe, head: Result, updates: int) -> str:
    """What stands between a published number and ours."""
    newer = " on a newer environment version" if paper.unit == "score" else ""  # D4RL's is known
    own = f"our data is our own collection{newer}"
    found = [own if recipe_of(recipe.data.dataset) else f"this agent learned from `{code(recipe.data.dataset)}`"]
    if updates < paper.updates:
        found.append("training here is shorter")
    asked = head.target_score
    if paper.unit == "score" and asked is not None and asked < paper.score:
        found.append(f"this agent was asked for less, a score of {asked:.1f}")
    return "; ".join([*found, SELECTION[paper.source]])


def _seeded(label: str, result: Result) -> str:
    return label if result.training_seed is None else f"{label}, training seed {result.training_seed}"


def _published_row(paper: Published) -> tuple[str, ...]:
    told = paper.text()
    return ("published", "", "", "", told, "") if paper.unit == "steps" else ("published", told, "", "", "", "")


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """In Markdown, without the columns that are empty."""
    shown = [i for i in range(len(columns)) if any(row[i] for row in rows)]
    head, *body = (f"| {' | '.join(line[i] for i in shown)} |" for line in (columns, *rows))
    return [head, "|" + "---|" * len(shown), *body]


def _targets(results: Results) -> str:
    """The plot, and what it shows in words."""
    asked = [amount(value) for value in _range(one.target_return for one in results.targets)]
    achieved = [amount(value) for value in _range(one.mean_return for one in results.targets)]
    ranks = "" if results.spearman is None else f" (rank correlation {results.spearman:.2f}, Spearman)"
    return (
        f"## Asked and achieved return\n\n![achieved over asked return]({SWEEP_PLOT})\n\n"
        f"{len(results.targets)} targets, {results.targets[0].episodes} episodes each. Asked for "
        f"{' to '.join(asked)}, it achieved {' to '.join(achieved)} on average{ranks}.{_obedience(results)}"
    )


def _obedience(results: Results) -> str:
    """Whether it does what it is asked, which a rank correlation does not tell; with a space before it."""
    low, high = _range(one.mean_return for one in results.targets)
    least, most = _range(one.target_return for one in results.targets)
    if high - low <= REACTS * (most - least):
        return " It hardly reacts to what it is asked for." if most > least else ""
    best = max(results.targets, key=lambda one: one.mean_return)
    if min(one.episodes for one in results.targets) < TELLING:
        return ""
    enough = min(one.target_return for one in results.targets if not _surely_less(one, best))
    if enough == most:
        return ""
    return (
        f" That asking for more than {amount(enough)} brings more does not show in {best.episodes} episodes a target."
    )


def _surely_less(one: Result, best: Result) -> bool:
    """By the difference of episodes from the same seeds, whose 95 % interval lies above 0."""
    if (one.seed, len(one.returns)) != (best.seed, len(best.returns)):
        return one.return_interval[1] < best.return_interval[0]
    return mean_interval(np.subtract(best.returns, one.returns))[0] > 0.0


def _range(values: Iterable[float]) -> tuple[float, float]:
    found = list(values)
    return min(found), max(found)


def _study(study: Study) -> str:
    lines = [f"## {inline(study.title)}"]
    if study.picture is not None and study.picture in STUDY_PICTURES:
        lines.append(f"![{inline(study.title)}]({study.picture})")
    if study.rows:
        rows = [tuple(map(inline, row)) for row in study.rows]
        lines.append("\n".join(_table(tuple(map(inline, study.columns)), rows)))
    if study.note:
        lines.append(inline(study.note))
    return "\n\n".join(lines)


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
    returns = [amount(value) for value in _range(one.mean_return for one in (head, *results.seeds))]
    return f"{text} {len(results.seeds) + 1} training seeds were measured; they return {' to '.join(returns)}."


def _citation(config: AgentConfig, recipe: Recipe, results: Results | None) -> str:
    papers = [] if config.model.paper is None else [config.model.paper]
    shown = None if results is None else _published(config, recipe)
    papers += [] if shown is None else [SOURCES[shown.source]]
    if results is not None and results.headline.score is not None:
        papers.append(D4RL)
    if not papers:
        return "## Citation\n\nNo paper is known to the zoo for this family."
    entries = "\n\n".join(paper.bibtex() for paper in dict.fromkeys(papers))
    also = ", and where numbers beside or behind ours are from" if len(papers) > 1 else ""
    return f"## Citation\n\nThe method{also}:\n\n```bibtex\n{entries}\n```"
