"""Make the tiny dataset of the tests: `python tests/assets/make_tiny.py --sources DIR`, for sac-hopper-medium.zip.

20 episodes of the sampled medium policy in `Hopper-v5` cut at 300 steps, so that some fall (terminated) and some run
out of time (truncated). Run it again only for a new Hopper version: tests compare it with the environment, replayed.
"""

import argparse
import os
from pathlib import Path

from agentzoo.data.making.collect import BLOCK
from agentzoo.data.making.policies import PolicyFile
from agentzoo.data.making.runners import PolicyRunner
from agentzoo.data.minari import write_dataset
from agentzoo.data.references import reference_of
from agentzoo.envs import make_env

HERE = Path(__file__).resolve().parent
EPISODES = 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sources", type=Path, required=True)
    policy = parser.parse_args().sources / "sac-hopper-medium.zip"
    options = (("max_episode_steps", 300),)
    os.environ["MINARI_DATASETS_PATH"] = str(HERE / "minari")
    reference = reference_of("Hopper-v5")
    assert reference is not None
    write_dataset(
        "zoo/hopper/tiny-v0",
        PolicyRunner("Hopper-v5", PolicyFile(str(policy)), options=options)(0, 0, BLOCK)[:EPISODES],
        overwrite=True,
        env=make_env("Hopper-v5", **dict(options)),
        algorithm_name="SAC",
        author="agentzoo",
        description=f"{EPISODES} episodes of the sampled medium policy, cut at 300 steps: for tests.",
        ref_min_score=reference.random,
        ref_max_score=reference.expert,
        extra={"build_seed": 0},
    )


if __name__ == "__main__":
    main()
