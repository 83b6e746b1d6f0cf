"""`agentzoo hub stage`: a finished run becomes `hub_cards/<id>/`, every number measured on the file that is staged."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import torch

from agentzoo.agent import Agent
from agentzoo.config import AgentConfig, read_record
from agentzoo.data.minari import dataset_metadata, load_episodes
from agentzoo.errors import AgentzooError, CheckpointError, ConfigError, StorageError
from agentzoo.evaluation.film import film, save_video
from agentzoo.evaluation.results import DatasetFacts, Result, Results, TrainingFacts, evaluate, with_command
from agentzoo.evaluation.study import Study, read_study
from agentzoo.evaluation.sweep import even_targets, plot_sweeps, rank_correlation, sweep
from agentzoo.hub.card import write_card
from agentzoo.hub.measured import load_finished, measured
from agentzoo.hub.records import read_records
from agentzoo.nn.base import ActingMode, parameter_count
from agentzoo.nn.recurrent import RecurrentModel
from agentzoo.plots import figure_class
from agentzoo.recipe import DataConfig, Recipe, differences
from agentzoo.store.files import (
    CONFIG,
    LOG,
    RECIPE,
    RESULTS,
    SWEEP_PLOT,
    VIDEO,
    WEIGHTS,
    sha256,
    staging,
    swap_in,
    write_atomic,
)
from agentzoo.store.locate import STUDY_PICTURES, check_links, is_backbone, require_replaceable, written_whole
from agentzoo.store.tensors import load_strict, read_tensors, save_tensors
from agentzoo.training import log
from agentzoo.training.finetune import NORMALIZATION
from agentzoo.training.loop import BEST

MAX_BYTES = 5_000_000  # of one agent's weights in this zoo
FRAMES = 250  # of an episode's video at most; a short episode shows every step
SHARED = ("data.dataset", "eval.env", "eval.env_options", "eval.target_return")  # by an agent and its baselines


def stage(
    run: Path,
    zoo: Path,
    hardware: str,
    *,
    seeds: Sequence[Path] = (),
    baselines: Sequence[Path] = (),
    sweep_episodes: int = 20,
    studies: Sequence[Path] = (),
    trust_env_module: bool = False,
    force: bool = False,
    max_bytes: int = MAX_BYTES,
    note: Callable[[str], None] = lambda _: None,
) -> Path:
    """Evaluate a finished run and write its folder, whole or not at all.

    All that can be wrong without measuring is found before anything is measured.

    Args:
        run: folder of the run; its agent id names the new folder of `zoo`.
        hardware: what it was trained on, for the card.
        seeds, baselines: other finished runs to show beside it, of the same recipe but for its seed and on the same
            data and environment; a `result.json` in them is used if it was measured on their weights.
        sweep_episodes: episodes for each of eight target returns; 0 leaves the sweep out.
        studies: records of experiments to show on the card, with their pictures beside them.
        trust_env_module: import the module an environment id names.
        force: replace an agent of another environment, dataset or family.
        max_bytes: of the weights; more are stored as float16, and refused if that is more still.
        note: hears what is being done.

    Raises:
        CheckpointError: the run is not finished, its weights are too large, a study is not there, or the agent in the
            new folder's place has another environment, dataset or family.
        ConfigError: a run to show beside it is of something else, or there are too many studies. StorageError: the new
            folder's place is taken by something that is no staged agent; `force` does not help.
    """
    agent = load_finished(run, trust_env_module)
    recipe = agent.recipe
    assert recipe is not None
    rows = log.read_log(run)
    if not rows:
        raise CheckpointError(f"{run / LOG} has no row; train for at least `train.log_every` updates.")
    _require_comparable(recipe, seeds, baselines, trust_env_module)
    final = zoo / recipe.agent_id
    if final.exists():
        _require_apart(final, (run, *seeds, *baselines))
        if not force:
            _require_same_task(recipe, final)
    with written_whole(final) as folder:
        shown = _take_studies(studies, folder)
        facts = _dataset(recipe.data)
        plots = sweep_episodes > 0 and _can_plot(note)
        for file in (CONFIG, WEIGHTS, RECIPE, LOG):
            shutil.copyfile(run / file, folder / file)
        _keep_license(final, folder, note)
        if (folder / WEIGHTS).stat().st_size > max_bytes:
            note("storing weights as float16")
            as_float16(folder, max_bytes)
        staged = Agent.from_pretrained(folder, trust_env_module=trust_env_module)
        note(f"{recipe.eval.episodes} episodes of {recipe.agent_id}")
        episodes, trust = recipe.eval.episodes, trust_env_module
        head = evaluate(staged, episodes=episodes, trust_env_module=trust)
        acting = tuple(_other_ways(staged, episodes, trust, note))
        others = [measured(path, episodes, note, trust) for path in seeds]
        compared = [measured(path, episodes, note, trust).model_copy(update=_updates(path)) for path in baselines]
        best = _best(run, episodes, trust, note)
        targets: tuple[Result, ...] = ()
        if sweep_episodes:
            note("eight target returns")
            asked = sweep_targets(staged.target_return, facts)
            targets = sweep(staged, asked, sweep_episodes, trust_env_module=trust)
            if plots:
                plot_sweeps({recipe.agent_id: targets}, folder / SWEEP_PLOT, facts.best_return)
        filmed = _video(staged, folder / VIDEO, head.lengths[0], trust, note)
        named = partial(with_command, agent=staged, named=recipe.agent_id)  # which leads here after the swap
        results = Results(
            headline=named(head),
            dataset=facts,
            training=TrainingFacts(
                seconds=float(rows[-1]["seconds"]),
                parameters=parameter_count(staged.model),
                hardware=hardware,
                updates=int(rows[-1]["step"]),
            ),
            best=best,
            targets=tuple(map(named, targets)),
            seeds=tuple(others),
            baselines=tuple(compared),
            acting=tuple(map(named, acting)),
            studies=shown,
            spearman=rank_correlation(targets) if targets else None,
            plotted=plots,
            filmed=filmed,
        )
        write_atomic(folder / RESULTS, results.to_json())
        write_card(folder)
    return final


def _updates(run: Path) -> dict[str, int]:
    """How many updates a run has, by its log; nothing where that is lost."""
    rows = log.read_log(run)
    return {"updates": int(rows[-1]["step"])} if rows else {}


def _require_comparable(recipe: Recipe, seeds: Sequence[Path], baselines: Sequence[Path], trust: bool) -> None:
    """The card says "same recipe" of the ones, and that the others learned and acted in the same place."""
    known = {recipe.train.seed}
    for path in (*seeds, *baselines):
        other = load_finished(path, trust).recipe
        assert other is not None
        if path in seeds:
            if other.train.seed in known:
                raise ConfigError(f"{path} has training seed {other.train.seed} again; a --seed-run has its own.")
            known.add(other.train.seed)
        changed = differences(recipe.unseeded(), other.unseeded())
        if path not in seeds:
            changed = {name: changed[name] for name in SHARED if name in changed}
        if changed:
            said = "; ".join(f"{name} is {new!r} instead of {old!r}" for name, (old, new) in changed.items())
            hint = " Another recipe is a --baseline, no --seed-run." if path in seeds else ""
            raise ConfigError(f"{path} cannot stand beside {recipe.agent_id}: {said}.{hint}")


def _require_apart(final: Path, runs: Sequence[Path]) -> None:
    """What is staged replaces the folder at `final`, so that must be no run and hold nothing else."""
    for run in runs:
        if run.resolve() == final.resolve():
            raise StorageError(f"{final} is the run itself, which would be replaced. Stage into another --zoo.")
    require_replaceable(final)


def _keep_license(old: Path, new: Path, note: Callable[[str], None]) -> None:
    """A better agent is under the license that the one it replaces was given (`agentzoo hub card --license`)."""
    if not (old / CONFIG).is_file():
        return
    before, config = (read_record(AgentConfig, at / CONFIG) for at in (old, new))
    if before.license != config.license:
        note(f"under the license of the agent it replaces, {before.license}")
        write_atomic(new / CONFIG, config.model_copy(update={"license": before.license}).to_json())


def _require_same_task(recipe: Recipe, final: Path) -> None:
    """Raise CheckpointError unless the agent staged at `final` has the environment, dataset and family of `recipe`."""
    if is_backbone(final):
        raise CheckpointError(f"{final} holds a backbone, which agents start from. Stage into another --zoo.")
    config = read_record(AgentConfig, final / CONFIG)
    there = {
        "model.family": config.model.family,
        "eval.env": config.env,
        "eval.env_options": config.env_options,
    }
    if (final / RECIPE).is_file():
        there["data.dataset"] = read_record(Recipe, final / RECIPE).data.dataset
    new = {
        "model.family": recipe.model.family,
        "eval.env": recipe.eval.env,
        "eval.env_options": recipe.eval.env_options,
        "data.dataset": recipe.data.dataset,
    }
    other = [f"{name} is {value!r} there, {new[name]!r} here" for name, value in there.items() if value != new[name]]
    if other:
        raise CheckpointError(
            f"{final} holds another agent, {config.agent_id}: {'; '.join(other)}. Replace it with --force "
            "(force=True), or stage into another --zoo."
        )


def _can_plot(note: Callable[[str], None]) -> bool:
    try:
        figure_class()
    except ConfigError as error:
        note(f"no plot: {error}")
        return False
    return True


def _video(staged: Agent, path: Path, steps: int, trust: bool, note: Callable[[str], None]) -> bool:
    """Film one episode of about `steps`, if its environment renders: measurements must not be lost for a picture."""
    note("a video")
    every = math.ceil(steps / FRAMES)
    try:
        save_video(film(staged, episodes=1, every=every, max_frames=4 * FRAMES, trust_env_module=trust), path)
    except Exception as error:  # whatever an environment raises when it is asked for pictures
        note(f"no video: {error if isinstance(error, AgentzooError) else f'{type(error).__name__}: {error}'}")
        return False
    return True


def _other_ways(staged: Agent, episodes: int, trust: bool, note: Callable[[str], None]) -> Iterator[Result]:
    """The same weights acting in every way that is not the agent's own."""
    own = staged.acting
    ways: tuple[ActingMode, ...] = ("window", "recurrent") if isinstance(staged.model, RecurrentModel) else ("window",)
    for way in ways:
        if way != own:
            note(f"{episodes} episodes, {way} acting")
            staged.acting = way
            yield evaluate(staged, episodes=episodes, trust_env_module=trust)
    staged.acting = own


def show_studies(folder: Path, studies: Sequence[Path]) -> None:
    """Put other studies on the card of a staged agent. Nothing is measured again, and no number changes.

    Raises:
        CheckpointError: a record of the agent or a study is not there. ConfigError: too many studies.
    """
    folder = check_links(folder).resolve()
    _, _, results = read_records(folder)
    with staging(folder.parent, ".staging-") as place:
        new = Path(shutil.copytree(folder, place / folder.name))
        for name in STUDY_PICTURES:
            (new / name).unlink(missing_ok=True)
        results = results.model_copy(update={"studies": _take_studies(studies, new)})
        write_atomic(new / RESULTS, results.to_json())
        write_card(new)
        swap_in(new, folder)


def sweep_targets(target: float, facts: DatasetFacts) -> list[float]:
    """Returns to ask for up to `target`: from nothing on, or, where returns are negative, from what the data brings."""
    if target > 0.0:
        return even_targets(target)
    usual = facts.mean_return
    return even_targets(target, lowest=usual if usual < target else target - max(abs(target), 1.0))


def _take_studies(studies: Sequence[Path], folder: Path) -> tuple[Study, ...]:
    if len(studies) > len(STUDY_PICTURES):
        raise ConfigError(f"a card shows at most {len(STUDY_PICTURES)} studies, got {len(studies)}.")
    return tuple(_with_picture(path, folder, i) for i, path in enumerate(studies))


def _with_picture(path: Path, folder: Path, place: int) -> Study:
    """The study at `path`, its picture copied into the agent's folder under a name that belongs there."""
    study = read_study(path)
    if study.picture is None:
        return study
    beside = (path if path.is_dir() else path.parent) / study.picture
    if not beside.is_file():
        raise CheckpointError(f"{path} names the picture {study.picture}, which is not beside it.")
    shutil.copyfile(beside, folder / STUDY_PICTURES[place])
    return study.model_copy(update={"picture": STUDY_PICTURES[place]})


def as_float16(folder: Path, max_bytes: int = MAX_BYTES) -> None:
    """Halve an agent's weights where they lie; observation mean and std keep their precision.

    Raises:
        CheckpointError: they are larger than `max_bytes` all the same, or a number does not fit.
    """
    tensors, _ = read_tensors(folder / WEIGHTS)
    halved = {name: value if name in NORMALIZATION else value.half() for name, value in tensors.items()}
    broken = [name for name, value in halved.items() if not value.isfinite().all()]
    if broken:
        raise CheckpointError(f"{folder / WEIGHTS} holds numbers too large for float16, in {broken[0]}.")
    save_tensors(folder / WEIGHTS, halved)
    size = (folder / WEIGHTS).stat().st_size
    if size > max_bytes:
        raise CheckpointError(
            f"the weights take {size:,} bytes as float16, a staged agent may take {max_bytes:,}; a zoo of your own may "
            "hold larger ones with --max-mb."
        )
    config = read_record(AgentConfig, folder / CONFIG)
    config = config.model_copy(update={"weights_sha256": sha256(folder / WEIGHTS)})
    write_atomic(folder / CONFIG, config.to_json())


def _best(run: Path, episodes: int, trust: bool, note: Callable[[str], None]) -> Result | None:
    if not (run / BEST).is_file():
        return None
    best, last = read_tensors(run / BEST)[0], read_tensors(run / WEIGHTS)[0]
    if all(torch.equal(best[name], value) for name, value in last.items()):
        return None  # the final weights did best
    note("the best checkpoint of the run")
    agent = Agent.from_pretrained(run, trust_env_module=trust)
    load_strict(agent.model, run / BEST)
    return evaluate(agent, episodes=episodes, checkpoint="best", trust_env_module=trust)


def _dataset(data: DataConfig) -> DatasetFacts:
    """Of the episodes that are trained on."""
    episodes = load_episodes(data.dataset, data.obs_keys).best(data.best_fraction)
    returns = episodes.returns
    return DatasetFacts(
        dataset=data.dataset,
        steps=len(episodes),
        episodes=len(returns),
        mean_return=float(returns.mean()),
        best_return=float(returns.max()),
        made_by=str(dataset_metadata(data.dataset).get("description", "")),
    )
