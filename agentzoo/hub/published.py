"""Normalized scores printed in papers, to stand beside ours on a card. D4RL `-v2` datasets, not ours."""

from __future__ import annotations

from typing import NamedTuple


class Published(NamedTuple):
    """A score, its spread as printed, and where."""

    score: float
    spread: float | None
    source: str


_DT = "Chen et al. 2021, arXiv:2106.01345"
_WIKIPEDIA = "Reid et al. 2022, arXiv:2201.12122"

PUBLISHED = {
    "dt-hopper-medium": Published(67.6, 1.0, _DT),
    "dt-halfcheetah-medium": Published(42.6, 0.1, _DT),
    "dt-walker2d-medium": Published(74.0, 1.4, _DT),
    "dt-hopper-medium-replay": Published(82.7, 7.0, _DT),
    "dt-halfcheetah-medium-replay": Published(36.6, 0.8, _DT),
    "dt-walker2d-medium-replay": Published(66.6, 3.0, _DT),
    "bc-hopper-medium": Published(63.9, None, _WIKIPEDIA),
    "bc-hopper-medium-replay": Published(27.6, None, _WIKIPEDIA),
}
