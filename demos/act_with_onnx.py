"""Act with an exported agent: ONNX Runtime and NumPy alone, without agentzoo or PyTorch.

`agentzoo hub export dt-hopper-medium agent.onnx` writes the file; `agentzoo hub export --help` says what it reads.
"""

import sys

import gymnasium as gym
import numpy as np
import onnxruntime


def play(path: str, seed: int = 0, steps: int = 1_000) -> float:
    """The return of one episode (at most `steps` steps) of the agent in this file, in its environment."""
    session = onnxruntime.InferenceSession(path)
    about, read = session.get_modelmeta().custom_metadata_map, {one.name: one for one in session.get_inputs()}
    k, scale, rtg = int(about["context"]), float(about["rtg_scale"]), float(about["target_return"])
    env, done, total = gym.make(about["env"]), False, 0.0
    observation, _ = env.reset(seed=seed)
    history = {"observations": [], "actions": [], "returns_to_go": [], "timesteps": [], "valid": []}
    while not done and len(history["valid"]) < steps:
        newest = (observation, np.zeros(env.action_space.shape), rtg / scale, len(history["valid"]), True)
        for past, value in zip(history.values(), newest, strict=True):
            past.append(value)
        windows = {name: np.array(past[-k:]) for name, past in history.items() if name in read}
        length = min(k, len(history["valid"]))
        fed = {n: np.pad(w, [(0, k - length)] + [(0, 0)] * (w.ndim - 1))[None] for n, w in windows.items()}
        kinds = {"tensor(float)": np.float32, "tensor(int64)": np.int64, "tensor(bool)": np.bool_}
        action = session.run(None, {n: w.astype(kinds[read[n].type]) for n, w in fed.items()})[0][0]
        history["actions"][-1] = action
        observation, reward, terminated, truncated, _ = env.step(action)
        rtg, total, done = rtg - reward, total + reward, terminated or truncated
    return float(total)


if __name__ == "__main__":
    print(f"return {play(sys.argv[1]):.1f}")
