"""`agentzoo hub stage`: turn a finished run into `hub_cards/<id>/`; the headline is measured on the staged file."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from agentzoo.agent import Agent
from agentzoo.config import AgentConfig
from agentzoo.data.minari import load_episodes
from agentzoo.data.targets import choose_target
from agentzoo.errors import CheckpointError
from agentzoo.evaluation.results import Results, TrainingFacts
from agentzoo.evaluation.scores import with_reference
from agentzoo.hub.card import write_card
from agentzoo.hub.finished_runs import load_finished
from agentzoo.hub.place import require_free_place
from agentzoo.hub.records import write_settings
from agentzoo.hub.seed_rows import require_alike, require_other_seeds
from agentzoo.hub.staging_measurements import Measuring, Tally, facts_of
from agentzoo.hub.stored_weights import Stored, store_weights
from agentzoo.hub.studies import take_studies
from agentzoo.nn.base import parameter_count
from agentzoo.recipe import Recipe, differences
from agentzoo.record import read_record
from agentzoo.store.exclusive import only_writer
from agentzoo.store.files import CONFIG, LOG, RESULTS, WEIGHTS, write_atomic
from agentzoo.store.locate import written_whole
from agentzoo.training import log

SHARED = ("data.dataset", "eval.env", "eval.env_options", "eval.target_return")  # equal for an agent and its baselines


def stage(
    run: Path,
    zoo: Path,
    hardware: str,
    *,
    seeds: Sequence[Path] = (),
    baselines: Sequence[Path] = (),
    sweep_episodes: int = 20,
    studies: Sequence[Path] = (),
    target: str | None = None,
    trust_env_module: bool = False,
    force: bool = False,
    weights: Stored | None = None,
    max_bytes: int | None = None,
    on_progress: Callable[[str], None] = lambda _: None,
    on_episodes: Callable[[int, int], None] = lambda *_: None,
) -> Path:
    """Evaluate a finished run and write its folder, all or nothing.

    The run replaces an agent of the same id, whatever their scores. Whatever needs no measuring is checked first.

    Args:
        run: folder of the run; its agent id names the new folder in `zoo`.
        hardware: the hardware it was trained on, for the card.
        seeds, baselines: other finished runs to show on the card: the same recipe with another seed, and other methods
            on the same data and environment. Evaluations stored in a run are used if they belong to its weights.
        sweep_episodes: episodes for each of eight target returns; 0 omits the sweep.
        studies: records of experiments to show on the card, with figures beside them.
        target: the target return, a rule or a number (`data.targets`); by default the recipe's.
        trust_env_module: import the module that an environment id names.
        force: replace an agent of another environment, dataset or family.
        weights: how they are stored, and measured; by default float16, or int8 if that is larger than `max_bytes`.
        max_bytes: largest size of the weights; `ModelConfig.staged_bytes` by default.
        on_progress: called with each step that begins.
        on_episodes: called with the number of episodes played so far and of those in all.

    Raises:
        CheckpointError: the run is not finished, its weights are too large, a study is missing, or the folder holds
            another agent. ConfigError: a seed or baseline run does not match, or there are too many studies.
            StorageError: another command changes the folder, or, whatever `force` says, it holds no staged agent.
    """
    recipe, last_row = _recipe_and_last_row(run, trust_env_module)
    final = zoo / recipe.agent_id
    require_free_place(recipe, final, (run, *seeds, *baselines), force)
    episodes = load_episodes(recipe.data.dataset, recipe.data.obs_keys).best(recipe.data.best_fraction)
    _require_comparable(recipe, seeds, baselines, trust_env_module)
    if target is not None:
        recipe = recipe.with_target(choose_target(target, episodes.returns, recipe.eval.env, recipe.eval.env_options))
    with only_writer(final), written_whole(final) as folder:
        shown = take_studies(studies, folder)
        _copy(run, folder, with_reference(recipe))
        store_weights(folder, weights, max_bytes or recipe.model.staged_bytes, on_progress)
        _keep_license(final, folder, on_progress)
        facts = facts_of(recipe.data, episodes)
        measuring = Measuring(folder, facts, trust_env_module, on_progress, Tally(on_episodes))
        training = _training_facts(last_row, measuring.agent, hardware)
        results = _measured(measuring, run, training, sweep_episodes, seeds, baselines)
        write_atomic(folder / RESULTS, results.model_copy(update={"studies": shown}).to_json())
        write_card(folder, zoo=zoo)
    return final


def _recipe_and_last_row(run: Path, trust_env_module: bool) -> tuple[Recipe, dict[str, Any]]:
    """The run's recipe, and the last row of its log, which has the training time."""
    recipe = load_finished(run, trust_env_module).recipe
    assert recipe is not None
    rows = log.read_log(run)
    if not (run / LOG).exists():
        raise CheckpointError(
            f"{run} has no {LOG}: it is a saved agent, not the folder of a training. `agent.push_to_hub(REPO_ID)` "
            "publishes one as it is."
        )
    if not rows or not rows[-1].get("seconds"):
        raise CheckpointError(
            f"{run / LOG} has no row, or no `seconds` in the last row; train for at least `train.log_every` updates."
        )
    return recipe, dict(rows[-1])


def _measured(
    measuring: Measuring,
    run: Path,
    training: TrainingFacts,
    sweep_episodes: int,
    seeds: Sequence[Path],
    baselines: Sequence[Path],
) -> Results:
    """The results of the staged folder, measured in the order in which they are listed here."""
    measuring.plan(1 + len(seeds) + len(baselines), sweep_episodes)  # 1: the best checkpoint
    return Results(
        **measuring.headline(),
        dataset=measuring.facts,
        training=training,
        best=measuring.best(run),
        **measuring.targets(sweep_episodes),
        seeds=tuple(measuring.other_seed(path) for path in seeds),
        baselines=tuple(measuring.other_run(path).model_copy(update=_updates(path)) for path in baselines),
        filmed=measuring.film(),
    )


def _training_facts(last_row: Mapping[str, Any], agent: Agent, hardware: str) -> TrainingFacts:
    return TrainingFacts(
        seconds=float(last_row["seconds"]),
        parameters=parameter_count(agent.model),
        hardware=hardware,
        updates=int(last_row["step"]),
    )


def _copy(run: Path, folder: Path, recipe: Recipe) -> None:
    """Copy the files of the run, with the target return of `recipe`."""
    for file in (CONFIG, WEIGHTS, LOG):
        shutil.copyfile(run / file, folder / file)
    write_settings(folder, recipe)


def _updates(run: Path) -> dict[str, int]:
    """The number of updates in a run's log; empty without a log."""
    rows = log.read_log(run)
    return {"updates": int(rows[-1]["step"])} if rows else {}


def _require_comparable(recipe: Recipe, seeds: Sequence[Path], baselines: Sequence[Path], trust: bool) -> None:
    """Raise ConfigError unless `seeds` share the recipe, and `baselines` its data and environment."""
    require_other_seeds(recipe, seeds, trust)
    for path in baselines:
        other = load_finished(path, trust).recipe
        assert other is not None
        changed = differences(recipe.unseeded(), other.unseeded())
        require_alike(path, recipe, {name: changed[name] for name in SHARED if name in changed})


def _keep_license(old: Path, new: Path, on_progress: Callable[[str], None]) -> None:
    """Keep the license of the replaced agent if it was set with `agentzoo hub card --license`.

    The license of a base agent, which a fine-tuned run carries, stays too.
    """
    if not (old / CONFIG).is_file():
        return
    before, config = (read_record(AgentConfig, at / CONFIG) for at in (old, new))
    set_before, set_by_run = (one.license != one.model.weights_license() for one in (before, config))
    if set_before and not set_by_run and before.license != config.license:
        on_progress(f"keeping the license of the agent it replaces, {before.license}")
        write_atomic(new / CONFIG, config.model_copy(update={"license": before.license}).to_json())
