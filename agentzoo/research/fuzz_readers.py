"""Every reader of untrusted files, with a valid file for each."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from agentzoo.agent import Agent
from agentzoo.config import AgentConfig
from agentzoo.data.making.behaviour_record import read_behaviour
from agentzoo.data.making.collect import Rollout, collect
from agentzoo.data.making.doorkey_walker import Walker
from agentzoo.data.making.import_files import import_file
from agentzoo.data.making.runners import ControllerRunner
from agentzoo.data.minari import load_episodes, write_dataset
from agentzoo.data.spaces import action_spec, observation_spec
from agentzoo.data.summary import rows, summarize
from agentzoo.envs import DOORKEY, make_env
from agentzoo.errors import AgentzooError, ConfigError, did_you_mean
from agentzoo.evaluation.results import DatasetFacts, Results, TrainingFacts, evaluate
from agentzoo.evaluation.study import STUDY, Study, read_study, write_study
from agentzoo.hub.card import card_text, check_card, write_card
from agentzoo.hub.front_matter import check_metadata, inline
from agentzoo.hub.verify import check_files
from agentzoo.hub.zoo import describe, summaries
from agentzoo.models.dt import DTConfig
from agentzoo.recipe import DataConfig, EvalConfig, Recipe, TrainConfig
from agentzoo.record import read_record
from agentzoo.registry import families, get_family
from agentzoo.research.analysis.gate_report import gate_curve
from agentzoo.research.fuzz_checkpoints import checkpoint_readers
from agentzoo.research.fuzz_damage import Reader
from agentzoo.store.files import CARD, CONFIG, LOG, RECIPE, RESULTS, WEIGHTS, write_atomic
from agentzoo.store.index import INDEX_VARIABLE, hub_location
from agentzoo.store.locate import ZOO_VARIABLE
from agentzoo.training.log import read_log
from agentzoo.types import IOSpec

NAME = "dt-fuzz"
DATASET = "fuzz/doorkey-v0"
INDEX = {
    "agents": {"x": {"repo_id": "org/x", "revision": "main"}, "y": {"repo_id": "org/y"}},
    "default": "o/{agent_id}",
}


def make_readers(place: Path, only: Sequence[str] = ()) -> list[Reader]:
    """All readers, or those of `only`, with their files in `place`.

    Sets the environment variables of the zoo, the index, the text and the datasets' folder, so that this process reads
    only its own files.

    Raises:
        ConfigError: `only` names no reader.
    """
    os.environ[ZOO_VARIABLE] = str(place / "zoo")
    os.environ[INDEX_VARIABLE] = str(place / "index.json")
    os.environ["MINARI_DATASETS_PATH"] = str(place / "minari")
    families()  # importing them belongs to no case
    readers = [*_agent_readers(place), *_data_readers(place), *checkpoint_readers(place / "checkpoints")]
    known = [reader.name for reader in readers]
    for name in only:
        if name not in known:
            raise ConfigError(f"no reader {name!r}.{did_you_mean(name, known)} There are {', '.join(known)}.")
    for reader in readers:
        _require_whole(reader)
    return [reader for reader in readers if not only or reader.name in only]


def _require_whole(reader: Reader) -> None:
    """Check that the undamaged file is read; otherwise the counts have no meaning."""
    for read in reader.reads:
        try:
            read()
        except AgentzooError as error:
            raise ConfigError(f"the undamaged file of {reader.name} is refused: {error}") from error


def _agent_readers(place: Path) -> list[Reader]:
    folder = _agent(place / "zoo" / NAME)
    write_atomic(place / "index.json", json.dumps(INDEX))
    study = write_study(Study(title="a", columns=("b", "c"), rows=(("d", "1"),), note="e"), place / "study")
    observation = {key: np.eye(16, dtype=np.float32)[:2] for key in ("agent", "key")}

    def act() -> object:
        return Agent.from_pretrained(folder).predict(observation)

    def card() -> object:
        return card_text(folder)

    def listed() -> object:
        return summaries()

    def described() -> object:
        return describe(NAME)

    def checked() -> object:
        return check_files(folder)

    records = [listed, described, checked, card]
    return [
        Reader(CONFIG, "json", folder / CONFIG, [act, *records]),
        Reader(WEIGHTS, "safetensors", folder / WEIGHTS, [act]),
        Reader(RECIPE, "json", folder / RECIPE, records),
        Reader(RESULTS, "json", folder / RESULTS, records),
        Reader(CARD, "text", folder / CARD, [lambda: check_metadata((folder / CARD).read_text(errors="replace"))]),
        Reader(LOG, "csv", folder / LOG, [lambda: read_log(folder), lambda: gate_curve(folder, [0]), card]),
        Reader("index.json", "json", place / "index.json", [lambda: hub_location("x"), lambda: hub_location("z")]),
        Reader(STUDY, "json", study, [lambda: inline(read_study(study).note)]),
    ]


def _agent(folder: Path) -> Path:
    """An untrained agent's folder with records, card and log. Its config has no hash, so damaged weights are read."""
    env = make_env(DOORKEY)
    io = IOSpec(observation=observation_spec(env.observation_space), action=action_spec(env.action_space), context=3)
    model = DTConfig(embed_dim=8, n_layers=1, n_heads=1, max_ep_len=50)
    recipe = Recipe(
        agent_id=NAME,
        model=model,
        data=DataConfig(dataset=DATASET, context=3),
        train=TrainConfig(steps=10),
        eval=EvalConfig(env=DOORKEY, target_return=9.0, episodes=3),
    )
    agent = Agent(get_family("dt").model(model, io), AgentConfig.of(recipe, io), recipe)
    agent.save_pretrained(folder)
    facts = DatasetFacts(dataset=DATASET, steps=20, episodes=2, mean_return=5.0, best_return=6.0, made_by="a walker.")
    training = TrainingFacts(seconds=60.0, parameters=123, hardware="a machine")
    head = evaluate(agent, episodes=3, n_envs=3)
    write_atomic(folder / RESULTS, Results(headline=head, dataset=facts, training=training).to_json())
    log = "step,loss,seconds,eval_return,gate_0,gate_1\n" + "".join(f"{n},0.5,{n}.0,1.5,0.4,0.6\n" for n in range(1, 9))
    write_atomic(folder / LOG, log)
    write_card(folder)
    check_card(folder)
    config = read_record(AgentConfig, folder / CONFIG).model_copy(update={"weights_sha256": None})
    write_atomic(folder / CONFIG, config.to_json())
    return folder


def _data_readers(place: Path) -> list[Reader]:
    import h5py

    rollouts = list(collect(ControllerRunner(DOORKEY, Walker), 40, seed=0, workers=1))
    write_dataset(DATASET, rollouts, env=make_env(DOORKEY), algorithm_name="walker", description="for damage")
    data = place / "minari" / DATASET / "data"
    arrays = _buffer(rollouts)
    npz, d4rl, behaviour = place / "buffer.npz", place / "d4rl.hdf5", place / "behaviour.json"
    np.savez_compressed(npz, **arrays)  # type: ignore[arg-type]  # its stub takes one name for an option
    with h5py.File(d4rl, "w") as file:
        names = {"terminations": "terminals", "truncations": "timeouts"}
        for name, values in arrays.items():
            if name != "final_observations":
                file.create_dataset(names.get(name, name), data=values, compression="gzip")
    record = {"env_id": "Hopper-v5", "seed": 0, "scores": [[10, 1.0, 0.5]], "reached": False, "steps": 10}
    options = {"threshold": 1.0, "max_steps": 10, "seed": 0, "evaluate_every": 5, "episodes": 1, "learning_starts": 1}
    write_atomic(behaviour, json.dumps({**record, "options": options, "policy": None, "replay": None}))

    def dataset() -> object:
        return load_episodes(DATASET, download=False)

    def summary() -> object:
        return summarize(DATASET).as_tree()

    return [
        Reader("metadata.json", "json", data / "metadata.json", [dataset, summary, rows]),
        Reader("main_data.hdf5", "hdf5", data / "main_data.hdf5", [dataset, summary]),
        Reader("npz", "npz", npz, [lambda: import_file(npz, "fuzz/x-v0", overwrite=True)]),
        Reader("d4rl", "hdf5", d4rl, [lambda: import_file(d4rl, "fuzz/x-v0", overwrite=True)]),
        Reader("behaviour.json", "json", behaviour, [lambda: read_behaviour(behaviour)]),
    ]


def _buffer(rollouts: Sequence[Rollout]) -> dict[str, np.ndarray]:
    """The episodes as a replay buffer of Box observations."""

    def flat(one: Rollout) -> np.ndarray:
        return np.concatenate([one.observations["agent"], one.observations["key"]], axis=1)

    return {
        "observations": np.concatenate([flat(one)[:-1] for one in rollouts]),
        "actions": np.concatenate([one.actions for one in rollouts]),
        "rewards": np.concatenate([one.rewards for one in rollouts]),
        "terminations": np.concatenate([one.terminations for one in rollouts]),
        "truncations": np.concatenate([one.truncations for one in rollouts]),
        "final_observations": np.stack([flat(one)[-1] for one in rollouts]),
    }
