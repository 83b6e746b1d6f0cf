"""Act with an exported agent: ONNX Runtime and NumPy alone, without agentzoo or PyTorch.

`agentzoo hub export dt-hopper-medium agent.onnx` writes the file; `agentzoo hub export --help` says what it reads.
"""

import json
import sys

import gymnasium as gym
import numpy as np
import onnxruntime


def play(path: str, seed: int = 0, steps: int = 1_000) -> float:
    """The return of one episode (at most `steps` steps) of the agent in this file, in its environment."""
    session = onnxruntime.InferenceSession(path)
    about, read = session.get_modelmeta().custom_metadata_map, {one.name: one for one in session.get_inputs()}
    k, scale, rtg = int(about["context"]), float(about["rtg_scale"]), float(about["target_return"])
    keys, rng = json.loads(about["obs_keys"]), np.random.default_rng(seed)
    name = about["env"].rpartition(":")[2]  # without its module, which Gymnasium would import
    if name not in gym.registry:
        raise SystemExit(f"Gymnasium does not know {about['env']!r}. First import the package that registers it.")
    env, done, total = gym.make(name, **json.loads(about["env_options"])), False, 0.0
    observation, _ = env.reset(seed=seed)
    history = {"observations": [], "actions": [], "returns_to_go": [], "timesteps": [], "valid": []}
    while not done and len(history["valid"]) < steps:
        parts = [observation] if keys is None else [observation[key] for key in keys]
        seen = flat_or_image(parts, read["observations"].shape[2:])
        newest = (seen, np.zeros(env.action_space.shape), rtg / scale, len(history["valid"]), True)
        for past, value in zip(history.values(), newest, strict=True):
            past.append(value)
        windows = {name: np.array(past[-k:]) for name, past in history.items() if name in read}
        length = min(k, len(history["valid"]))
        fed = {n: np.pad(w, [(0, k - length)] + [(0, 0)] * (w.ndim - 1))[None] for n, w in windows.items()}
        kinds = {"tensor(float)": np.float32, "tensor(int64)": np.int64, "tensor(bool)": np.bool_}
        kinds["tensor(uint8)"] = np.uint8  # images
        action = session.run(None, {n: w.astype(kinds[read[n].type]) for n, w in fed.items()})[0][0]
        if isinstance(env.action_space, gym.spaces.Discrete):  # one logit a choice
            chances = np.exp(action - action.max(), dtype=np.float64)
            sampled = about["sampled"] == "true"
            action = rng.choice(len(chances), p=chances / chances.sum()) if sampled else chances.argmax()
        history["actions"][-1] = action
        observation, reward, terminated, truncated, _ = env.step(action + getattr(env.action_space, "start", 0))
        rtg, total, done = rtg - reward * (about["rewards"] == "dense"), total + reward, terminated or truncated
    return float(total)


def flat_or_image(parts: list[np.ndarray], shape: list[int]) -> np.ndarray:
    """One observation in the network's shape: (S,), or (C, H, W) for an image that may be (H, W, C) or (H, W)."""
    if len(shape) == 1:
        return np.concatenate([np.ravel(part) for part in parts])
    (pixels,) = parts
    return pixels if list(pixels.shape) == shape else np.moveaxis(np.atleast_3d(pixels), -1, 0)


if __name__ == "__main__":
    print(f"return {play(sys.argv[1]):.1f}")
