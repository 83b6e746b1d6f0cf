"""The seeds of evaluation episodes: one set for headline numbers, another for every choice.

Episode e of an evaluation with seed s is reset with 10,000 (s + 1) + e. A headline has seed 0, so its 100 episodes are
reset with 10,000 to 10,099. Whatever is chosen by looking at episodes (a checkpoint, a target return, a setting) is
chosen with seed 99, whose episodes are reset with 1,000,000 and up. The two sets share no number.
"""

from __future__ import annotations

HEADLINE = 0
VALIDATION = 99


def episode_seed(seed: int, episode: int) -> int:
    """The number that the environment is reset with."""
    return 10_000 * (seed + 1) + episode
