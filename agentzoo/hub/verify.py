"""`agentzoo hub verify`: check that an agent's files agree and that the score on its card holds when measured again."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from agentzoo.agent import Agent
from agentzoo.config import AgentConfig
from agentzoo.errors import AgentzooError
from agentzoo.evaluation.results import Result, Results, evaluate
from agentzoo.evaluation.rollout import OnEpisode
from agentzoo.evaluation.scores import mean_interval, normalized_score, reference_for
from agentzoo.evaluation.sweep import MIN_RANKED, rank_correlation
from agentzoo.hub.card import check_card
from agentzoo.hub.front_matter import inline
from agentzoo.hub.records import unlike_record
from agentzoo.recipe import Recipe
from agentzoo.record import read_record
from agentzoo.registry import recipe_table
from agentzoo.store.files import CARD, CONFIG, RECIPE, RESULTS, WEIGHTS, sha256
from agentzoo.store.locate import find_agent
from agentzoo.text import counted, fixed
from agentzoo.types import Config

MAX_BOOTSTRAPPED = 20_000  # largest number of returns that are bootstrapped


class Check(Config):
    """One check and its result."""

    name: str
    holds: bool | None  # None: nothing to compare with
    details: str


class Report(Config):
    """All checks, and the new measurement if there was one."""

    agent_id: str
    checks: tuple[Check, ...]
    measured: Result | None

    @property
    def holds(self) -> bool:
        """Whether no check failed."""
        return all(check.holds is not False for check in self.checks)


def verify(
    agent: str | Path,
    episodes: int | None = None,
    *,
    revision: str | None = None,
    token: str | bool | None = None,
    n_envs: int = 20,
    trust_env_module: bool = False,
    on_episode: OnEpisode = lambda _: None,
) -> Report:
    """Check an agent's files against each other and against the package, then measure it again.

    The headline's target return, history, acting mode and sampling must be those that the loaded agent acts with.
    The score holds if the new mean return lies in the card's 95 % interval, or the card's mean in the new interval. The
    episodes use the seeds on the card, so an equal number of episodes repeats the card's protocol. With fewer episodes
    it also holds if the means differ by less than 1.96 standard errors. Success rates are compared the same way.

    Args:
        episodes: by default as many as on the card.

    Raises:
        UnknownNameError, HubError: not found. CheckpointError, ConfigError: the files cannot be checked. ConfigError:
            `episodes` or `n_envs` below 1.
    """
    folder = find_agent(agent, revision=revision, token=token)
    config, results, checks = check_files(folder)
    measured = None
    if checks[0].holds and results is not None:
        loaded = Agent.from_pretrained(folder, trust_env_module=trust_env_module)
        checks.append(_settings(loaded, results.headline))
        measured, check = _score(loaded, results.headline, episodes, n_envs, trust_env_module, on_episode)
        checks.append(check)
    else:
        checks.append(Check(name="score", holds=None, details="not measured: there is no valid record to compare with"))
    return Report(agent_id=config.agent_id, checks=tuple(checks), measured=measured)


def check_files(folder: Path) -> tuple[AgentConfig, Results | None, list[Check]]:
    """Run all checks that need no episodes: the config, the record if it is valid, and the checks.

    Raises:
        CheckpointError, ConfigError: the files cannot be checked.
    """
    config = read_record(AgentConfig, folder / CONFIG)
    results, check = check_results(folder, config)
    return config, results, [_weights(folder, config), *_recipe(folder, config), check, _card(folder)]


def _weights(folder: Path, config: AgentConfig) -> Check:
    if not (folder / WEIGHTS).is_file():
        return Check(name="weights", holds=False, details=f"{WEIGHTS} is missing")
    if config.weights_sha256 is None:
        return Check(name="weights", holds=False, details=f"{CONFIG} names no hash of {WEIGHTS}")
    found = sha256(folder / WEIGHTS)
    same = found == config.weights_sha256
    text = f"sha256 {found[:12]}... {'matches' if same else 'differs from'} {CONFIG}"
    return Check(name="weights", holds=same, details=text)


def _recipe(folder: Path, config: AgentConfig) -> list[Check]:
    """Compare the recipe with the config, and with the package's recipe of the same id."""
    if not (folder / RECIPE).is_file():
        return [Check(name="recipe", holds=False, details=f"{RECIPE} is missing")]
    recipe = read_record(Recipe, folder / RECIPE)
    expected = AgentConfig.of(recipe, config.io).model_copy(
        update={"weights_sha256": config.weights_sha256, "license": config.license}
    )
    differs = _differences(expected, config)
    checks = [Check(name="recipe", holds=not differs, details=differs or f"gives this {CONFIG}")]
    packaged = recipe_table().get(config.agent_id)
    if packaged is None:
        return [*checks, Check(name="package", holds=None, details="this package has no recipe with that id")]
    differs = _differences(packaged.unseeded(), recipe.unsettled(packaged).unseeded())
    if differs:  # another version of the package, or the user's own recipe; the card makes no claim about it
        return [*checks, Check(name="package", holds=None, details=f"not the package's recipe with that id: {differs}")]
    seed = "" if recipe.train.seed == packaged.train.seed else f", with training seed {recipe.train.seed}"
    return [*checks, Check(name="package", holds=True, details=f"equals the package's recipe{seed}")]


def _differences(expected: Config, found: Config) -> str:
    """The names `section.field` of unequal values, or an empty string."""
    wanted, got = expected.model_dump(), found.model_dump()
    names = []
    for section, value in wanted.items():
        other = got.get(section)
        if isinstance(value, dict) and isinstance(other, dict):
            names += [f"{section}.{key}" for key in sorted({*value, *other}) if value.get(key) != other.get(key)]
        elif value != other:
            names.append(section)
    return f"differs in {', '.join(names)}" if names else ""


def check_results(folder: Path, config: AgentConfig) -> tuple[Results | None, Check]:
    """Check that the card's numbers belong to these weights and follow from the recorded episodes.

    Returns:
        The record if it is valid, and the check.
    """
    if not (folder / RESULTS).is_file():
        return None, Check(name="results", holds=None, details=f"no {RESULTS}, so the card claims nothing")
    results = read_record(Results, folder / RESULTS)
    head, problems = results.headline, []
    recipe = read_record(Recipe, folder / RECIPE) if (folder / RECIPE).is_file() else None
    for one in (head, *results.targets, *results.acting):
        if one.agent_id != config.agent_id or one.weights_sha256 != config.weights_sha256:
            problems.append(f"{_which(one, head)} was measured on other weights")
    others = () if results.best is None else (results.best,)
    yardsticks = [one.result for one in results.yardsticks]
    for one in (head, *others, *results.targets, *results.seeds, *results.baselines, *yardsticks, *results.acting):
        wrongs = _wrong(one, config.options_in(one.env), recipe)
        problems += [f"{_which(one, head)}: {wrong}" for wrong in wrongs]
    problems += _not_seeds((head, *results.seeds))
    if not problems and results.targets:
        ranks = rank_correlation(results.targets) if len(results.targets) >= MIN_RANKED else None
        if not _close(ranks, results.spearman):
            problems.append("the rank correlation does not follow from its targets")
    text = "; ".join(problems) or f"{counted(head.episodes, 'episode')} of these weights, with a correct summary"
    return (None if problems else results), Check(name="results", holds=not problems, details=text)


def _which(one: Result, head: Result) -> str:
    if one is head:
        return "the headline"
    return f"{inline(one.agent_id)} ({one.checkpoint}, {one.acting}) asked for {one.target_return:g}"


def _not_seeds(rows: Sequence[Result]) -> list[str]:
    """Reasons why these rows are not separate trainings, measured in one environment; the first is the headline."""
    seeds = [one.training_seed for one in rows]
    weights = [one.weights_sha256 for one in rows if one.weights_sha256 is not None]
    found = [f"training seed {seed} occurs twice" for seed in set(seeds) if seed is not None and seeds.count(seed) > 1]
    if len(set(weights)) < len(weights):
        found.append("two training seeds have the same weights")
    if len({one.env for one in rows}) > 1:
        found.append("seeds were measured in different environments")
    return found


def _wrong(one: Result, options: Iterable[str], recipe: Recipe | None) -> list[str]:
    """Parts of a record that do not follow from its episodes, in an environment with these options."""
    if not len(one.returns) == len(one.lengths) == one.episodes:
        return [f"{counted(one.episodes, 'episode')}, but {len(one.returns)} returns and {len(one.lengths)} lengths"]
    reference = reference_for(one.env, options, recipe)
    expected: dict[str, Any] = {
        "mean_length": float(np.mean(one.lengths)),
        "std_return": float(np.std(one.returns, ddof=1)) if one.episodes > 1 else 0.0,
        "random_reference": reference and reference.random,
        "expert_reference": reference and reference.expert,
        "score": reference and float(normalized_score(np.array(one.mean_return), reference)),
        "score_interval": reference and tuple(normalized_score(np.array(one.return_interval), reference)),
    }
    wrong = [name for name, value in expected.items() if not _close(value, getattr(one, name))]
    if not _succeeds_as_said(one):
        wrong.append("success_rate")
    found = [f"{', '.join(wrong)} cannot be right"] if wrong else []
    if not _sums_up(one):
        found.append(f"mean and interval do not follow from its {one.episodes} returns")
    return found


def _succeeds_as_said(one: Result) -> bool:
    """Whether the success rate is that of the recorded successes; without these, whether it is a rate."""
    if one.successes is None:
        return one.success_rate is None or 0.0 <= one.success_rate <= 1.0
    return len(one.successes) == one.episodes and _close(float(np.mean(one.successes)), one.success_rate)


def _close(expected: Any, found: Any) -> bool:
    """Whether both are None, or nearly equal numbers."""
    if expected is None or found is None:
        return expected is found
    return bool(np.allclose(expected, found, rtol=1e-3, atol=1e-3))


def _sums_up(one: Result) -> bool:
    """Whether mean and interval follow from the returns; for many returns the bootstrap is approximated."""
    returns = np.array(one.returns)
    mean = float(returns.mean())
    if len(returns) <= MAX_BOOTSTRAPPED:
        interval, slack = mean_interval(returns), 1e-3
    else:
        half = 1.96 * float(returns.std()) / len(returns) ** 0.5
        interval, slack = (mean - half, mean + half), 1e-3 + 0.2 * half
    return _close(mean, one.mean_return) and np.allclose(interval, one.return_interval, rtol=1e-3, atol=slack)


def _card(folder: Path) -> Check:
    if not (folder / CARD).is_file():
        return Check(name="card", holds=None, details=f"no {CARD}")
    try:
        check_card(folder)
    except AgentzooError as error:
        return Check(name="card", holds=False, details=str(error))
    return Check(name="card", holds=True, details="matches the records")


def _settings(agent: Agent, head: Result) -> Check:
    """Check that the agent acts as it did when the headline was measured."""
    differs = unlike_record(agent, head)
    return Check(name="settings", holds=not differs, details=differs or "it acts as it was measured")


def _score(
    agent: Agent, head: Result, episodes: int | None, n_envs: int, trust: bool, on_episode: OnEpisode
) -> tuple[Result, Check]:
    agent.acting = head.acting
    agent.history = head.history
    new = evaluate(
        agent,
        head.env if head.env != agent.config.env else None,
        head.episodes if episodes is None else episodes,
        seed=head.seed,
        n_envs=n_envs,
        deterministic=head.deterministic,
        target_return=head.target_return,
        trust_env_module=trust,
        on_episode=on_episode,
    )
    low, high = head.return_interval
    again_low, again_high = new.return_interval
    slack = 1e-6 * max(1.0, abs(head.mean_return))  # equal returns give intervals of zero width
    chance = 0.0
    if new.episodes < head.episodes:
        deviation = float(np.std(head.returns, ddof=1))
        chance = 1.96 * deviation * (1 / new.episodes + 1 / head.episodes) ** 0.5
    holds = (
        low - slack <= new.mean_return <= high + slack
        or again_low - slack <= head.mean_return <= again_high + slack
        or abs(new.mean_return - head.mean_return) <= chance + slack
    )
    text = (
        f"return {new.return_in_words()} over {counted(new.episodes, 'episode')}; the card says "
        f"{head.return_in_words()}"
    )
    if new.score is not None and head.score is not None:
        text += f"; score {fixed(new.score, 1)} against {fixed(head.score, 1)}"
    if new.success_rate is not None and head.success_rate is not None:
        text += f"; success {100 * new.success_rate:.0f} % against {100 * head.success_rate:.0f} %"
        holds = holds and _as_often(new.success_rate, new.episodes, head.success_rate, head.episodes)
    return new, Check(name="score", holds=holds, details=text)


def _as_often(first: float, of_first: int, second: float, of_second: int) -> bool:
    """Whether two success rates differ by at most 1.96 standard errors of the difference, or by one episode."""
    both = (first * of_first + second * of_second) / (of_first + of_second)
    error = (both * (1.0 - both) * (1 / of_first + 1 / of_second)) ** 0.5
    return bool(abs(first - second) <= max(1.96 * error, 1.0 / min(of_first, of_second)) + 1e-9)
