"""The sections of a card that hold measurements."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from agentzoo.config import AgentConfig
from agentzoo.data.making.catalogue import recipe_of
from agentzoo.evaluation.results import Result, Results
from agentzoo.evaluation.scores import amount, mean_interval, over_seeds
from agentzoo.evaluation.study import Study
from agentzoo.hub.metadata import code, inline
from agentzoo.hub.paper_scores import PUBLISHED, SELECTION, Published
from agentzoo.recipe import Recipe, TrainConfig
from agentzoo.registry import recipe_table
from agentzoo.store.files import SWEEP_PLOT
from agentzoo.store.locate import STUDY_PICTURES

REACTS = 0.2  # of the span asked for: an agent whose returns span less hardly reacts
TELLING = 10  # episodes a target; fewer tell too little to say what asking for more brings
COLUMNS = ("agent", "normalized score", "return", "success", "length", "episodes")


def _row(label: str, result: Result) -> tuple[str, ...]:
    success = "" if result.success_rate is None else f"{100 * result.success_rate:.0f} %"
    shown = (result.score_in_words(), result.return_in_words(), success, _length(result), str(result.episodes))
    return label, *shown


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


def results_section(config: AgentConfig, recipe: Recipe, results: Results) -> str:
    """The table of results, and what must be known to read it."""
    head, updates = results.headline, updates_done(recipe.train, results)
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
    paper = published_beside(config, recipe)
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
    again = f"`agentzoo hub verify {config.agent_id}` checks the files and measures again."
    lines += ["", f"Measured {how}({used}). {again}"]
    return "\n".join(lines)


def published_beside(config: AgentConfig, recipe: Recipe) -> Published | None:
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


def targets_section(results: Results) -> str:
    """The plot, and what it shows in words."""
    asked = [amount(value) for value in extremes(one.target_return for one in results.targets)]
    achieved = [amount(value) for value in extremes(one.mean_return for one in results.targets)]
    ranks = "" if results.spearman is None else f" (rank correlation {results.spearman:.2f}, Spearman)"
    return (
        f"## Asked and achieved return\n\n![achieved over asked return]({SWEEP_PLOT})\n\n"
        f"{len(results.targets)} targets, {results.targets[0].episodes} episodes each. Asked for "
        f"{' to '.join(asked)}, it achieved {' to '.join(achieved)} on average{ranks}.{_obedience(results)}"
    )


def _obedience(results: Results) -> str:
    """Whether it does what it is asked, which a rank correlation does not tell; with a space before it."""
    low, high = extremes(one.mean_return for one in results.targets)
    least, most = extremes(one.target_return for one in results.targets)
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


def extremes(values: Iterable[float]) -> tuple[float, float]:
    """The least and the most."""
    found = list(values)
    return min(found), max(found)


def study_section(study: Study) -> str:
    """Picture, table and note of a study."""
    lines = [f"## {inline(study.title)}"]
    if study.picture is not None and study.picture in STUDY_PICTURES:
        lines.append(f"![{inline(study.title)}]({study.picture})")
    if study.rows:
        rows = [tuple(map(inline, row)) for row in study.rows]
        lines.append("\n".join(_table(tuple(map(inline, study.columns)), rows)))
    if study.note:
        lines.append(inline(study.note))
    return "\n\n".join(lines)


def updates_done(train: TrainConfig, results: Results | None) -> int:
    """Updates of the training."""
    return train.steps if results is None or results.training.updates is None else results.training.updates
