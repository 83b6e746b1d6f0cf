"""The seeds of evaluation episodes: one set for headline results, others for validation.

Episode e of an evaluation with seed s is reset with 10,000 (s + 1) + e. Headline results use seed 0, so their 100
episodes are reset with 10,000 to 10,099. Short evaluations, which choose the best checkpoint, use seed 99: 1,000,000
and up. Settings are chosen with other seeds than 0 (`--seed 5`). These sets do not overlap, and the episodes of
datasets are reset with other seeds (`data.making.collect.reset_seed`).
"""

from __future__ import annotations

from agentzoo.acting.observing import is_count
from agentzoo.errors import ConfigError

VALIDATION = 99
EPISODES = 10_000  # of one seed


def episode_seed(seed: int, episode: int) -> int:
    """The reset seed of an episode.

    Raises:
        ConfigError: `seed` is not a whole number from 0 on.
    """
    require_seed(seed)
    return EPISODES * (int(seed) + 1) + episode


def require_seed(seed: int) -> None:
    """Raise ConfigError unless `seed` is a whole number from 0 on."""
    if not is_count(seed):
        raise ConfigError(f"seed is a whole number from 0 to 2,147,483,647; got {seed!r}.")
