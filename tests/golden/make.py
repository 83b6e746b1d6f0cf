"""Record how staged agents act: `python tests/golden/make.py [AGENT ...]`, all of `hub_cards/` without names.

One `<agent-id>.json` each. The agent plays two episodes, others if they end too soon. The file keeps ten observations
(at every hundredth of the time limit, at most 100 steps apart; six of the first episode, four of the second), the
rewards between them, and what `predict` answers to these ten. `test_golden.py` feeds them to the agent again.

Run this for a new agent or for new weights. A change of code that needs it changes what published agents do.
"""

from __future__ import annotations

import argparse
import base64
import itertools
import json
import zlib
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch

from agentzoo.acting.history import newest, to_batch
from agentzoo.agent import Agent
from agentzoo.envs.making import make_configured

HERE = Path(__file__).resolve().parent
STAGED = HERE.parents[1] / "hub_cards"
STEPS = 10
CUT = 6  # the step at which the second episode begins
MAX_GAP = 100  # steps between two observations, for games that end long before their limit
SPARSE = 0.05  # of the target
PICTURE = "uint8"
CLEAR = 1e-3  # between the two best choices of a recorded step


def file_of(agent_id: str) -> Path:
    return HERE / f"{agent_id}.json"


def staged() -> list[str]:
    """Ids of all agents in `hub_cards/`, without the networks that agents start from."""
    found = []
    for folder in sorted(STAGED.iterdir()):
        if (folder / "config.json").is_file() and "agent_id" in json.loads((folder / "config.json").read_text()):
            found.append(folder.name)
    return found


def play(agent: Agent) -> dict[str, Any]:
    """Ten observations of real episodes, the reward that came before each, and which of them begin an episode.

    A twentieth of the target stands for a reward of 0, so that returns-to-go also differ where rewards are rare.
    """
    config = agent.config
    assert config.env is not None
    env = make_configured(config.env, config.env_options)
    assert env.spec is not None
    apart = min(max(1, (env.spec.max_episode_steps or 0) // 100), MAX_GAP)
    kept: dict[str, list[Any]] = {"observations": [], "rewards": [], "starts": []}
    for begin, end in ((0, CUT), (CUT, STEPS)):
        found = (_piece(agent, env, seed, end - begin, apart) for seed in itertools.count(begin, STEPS))
        for key, values in next(piece for piece in found if len(piece["starts"]) == end - begin).items():
            kept[key] += values
    env.close()
    return kept


def _piece(agent: Agent, env: gym.Env[Any, Any], seed: int, count: int, apart: int) -> dict[str, Any]:
    """`count` observations of one episode, or fewer if it ends before."""
    kept: dict[str, list[Any]] = {"observations": [], "rewards": [], "starts": []}
    observation, _ = env.reset(seed=seed)
    state, reward, since, over = None, 0.0, 0.0, False
    for step in range((count - 1) * apart + 1):
        if over:
            break
        if step % apart == 0:
            kept["observations"].append(observation)
            kept["rewards"].append(round(since or SPARSE * agent.config.target_return, 6) if step else 0.0)
            kept["starts"].append(step == 0)
            since = 0.0
        action, state = agent.predict(observation, state, deterministic=True, reward=reward)
        observation, given, terminated, truncated, _ = env.step(action)
        reward = float(given)
        since, over = since + reward, terminated or truncated
    return kept


def loaded(agent_id: str) -> Agent:
    """The staged agent. It acts on windows where that is the same: `act` also asks the network about the window."""
    agent = Agent.from_pretrained(STAGED / agent_id, device="cpu")
    if agent.model.modes_agree:
        agent.acting = "window"
    return agent


def act(agent: Agent, history: dict[str, Any]) -> tuple[list[Any], list[Any]]:
    """The actions that `predict` answers to the history, and the network's outputs before a choice or a clip."""
    state, actions, outputs = None, [], []
    for observation, reward, start in zip(
        *(history[key] for key in ("observations", "rewards", "starts")), strict=True
    ):
        action, state = agent.predict(arrays(observation), state, np.array([start]), deterministic=True, reward=reward)
        read: Any = state if agent.history is None else newest(state, agent.history)  # type: ignore[arg-type]
        with torch.inference_mode():
            output = agent.model.act_deterministic(to_batch(read, agent.config.rtg_scale, agent.device))
        actions.append(action)
        outputs.append(output[0].numpy())
    return actions, outputs


def arrays(observation: Any) -> Any:
    """An observation of a JSON file as the environment gives it."""
    if isinstance(observation, dict) and PICTURE in observation:
        pixels = zlib.decompress(base64.b64decode(observation[PICTURE]))
        return np.frombuffer(pixels, dtype=np.uint8).reshape(observation["shape"])
    if isinstance(observation, dict):
        return {key: np.array(part, dtype=np.float32) for key, part in observation.items()}
    return np.array(observation, dtype=np.float32)


def plain(value: Any) -> Any:
    """For JSON: the shortest digits that give every float32 back; pictures are packed."""
    if isinstance(value, dict):
        return {key: plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    array = np.asarray(value)
    if array.dtype == np.uint8 and array.ndim > 1:
        packed = base64.b64encode(zlib.compress(array.tobytes(), 9)).decode()
        return {PICTURE: packed, "shape": list(array.shape)}
    if array.dtype.kind == "f" and not isinstance(value, float):
        return np.array([float(str(number)) for number in array.astype(np.float32).flat]).reshape(array.shape).tolist()
    return array.tolist()


def write(path: Path, record: dict[str, list[Any]]) -> None:
    """One line for each row of numbers."""
    entries = []
    for key, steps in record.items():
        rows = ",\n".join(f"  {json.dumps(step)}" for step in steps)
        entries.append(f' "{key}": ' + (f"[\n{rows}\n ]" if isinstance(steps[0], list | dict) else json.dumps(steps)))
    path.write_text("{\n" + ",\n".join(entries) + "\n}\n")


def record(agent_id: str) -> None:
    """Write the file of one staged agent."""
    agent = loaded(agent_id)
    history = plain(play(agent))
    actions, outputs = act(agent, history)
    if agent.config.io.action.kind == "discrete":
        margins = [float(np.diff(np.sort(scores)[-2:])[0]) for scores in outputs]
        if min(margins) < CLEAR:
            raise SystemExit(f"{agent_id}: two choices of a step are only {min(margins):g} apart; rounding decides.")
    write(file_of(agent_id), {**history, "actions": plain(actions), "outputs": plain(outputs)})
    print(f"{file_of(agent_id).name}: {len(actions)} actions")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("agents", nargs="*", metavar="AGENT")
    torch.set_num_threads(1)
    for agent_id in parser.parse_args().agents or staged():
        record(agent_id)


if __name__ == "__main__":
    main()
