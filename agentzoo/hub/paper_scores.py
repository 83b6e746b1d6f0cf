"""Published results, shown beside ours: normalized scores (D4RL `-v2`) or steps to a goal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Literal, NamedTuple

from agentzoo.papers import CHEN, LV, REID, ZHAO


class Published(NamedTuple):
    """A published score, its spread and its source; `unit` "steps" is the length of an episode, fewer is better."""

    score: float
    spread: float | None
    source: str  # the paper
    remark: str = ""  # how the paper's network differs from ours
    unit: Literal["score", "steps"] = "score"
    updates: int = 100_000  # training updates in the paper

    def text(self) -> str:
        """The number and its spread, with a unit unless it is a score."""
        spread = "" if self.spread is None else f" ± {self.spread:g}"
        return f"{self.score:g}{spread}" + (" steps" if self.unit == "steps" else "")

    def origin(self) -> str:
        """The paper, and how its network differs from ours."""
        return f"{self.source}, {self.remark}" if self.remark else self.source


_DT = "Chen et al. 2021, arXiv:2106.01345"
_WIKIPEDIA = "Reid et al. 2022, arXiv:2201.12122"
_MARKOV = "Zhao et al., ICML 2025 (arXiv:2409.06985)"
_DM = "Lv et al. 2024, arXiv:2406.05427"
_GPT2 = "on GPT-2 of 36 times the size"
_CLIP = "on a text tower 60 times as large"
_LARGE = "whose released code has a network of 200 times the size"

# Which evaluation of a training run a paper reports. Ours use the last weights.
SELECTION = {
    _DT: "the paper does not say of which checkpoint and of which of its two targets",
    _WIKIPEDIA: "the paper stopped early, so it is the best of up to 20 evaluations of 10 episodes",
    _MARKOV: "the paper does not say of which of its 200 evaluations",
    _DM: "the paper does not say of which checkpoint and target",
}

# Published numbers for each agent; its card shows the first.
PUBLISHED: dict[str, tuple[Published, ...]] = {
    "dt-hopper-medium": (Published(67.6, 1.0, _DT), Published(67.4, 1.7, _MARKOV)),
    "dt-halfcheetah-medium": (Published(42.6, 0.1, _DT), Published(42.8, 0.4, _MARKOV)),
    "dt-walker2d-medium": (Published(74.0, 1.4, _DT), Published(74.3, 1.9, _MARKOV)),
    "dt-hopper-medium-replay": (Published(82.7, 7.0, _DT), Published(74.1, 4.1, _MARKOV)),
    "dt-halfcheetah-medium-replay": (Published(36.6, 0.8, _DT), Published(39.2, 2.4, _MARKOV)),
    "dt-walker2d-medium-replay": (Published(66.6, 3.0, _DT), Published(71.9, 2.7, _MARKOV)),
    "dt-hopper-medium-expert": (Published(107.6, 1.8, _DT), Published(108.6, 0.3, _MARKOV)),
    "dt-halfcheetah-medium-expert": (Published(86.8, 1.3, _DT), Published(91.9, 1.3, _MARKOV)),
    "dt-walker2d-medium-expert": (Published(108.1, 0.2, _DT), Published(107.6, 0.1, _MARKOV)),
    "bc-hopper-medium": (Published(63.9, None, _WIKIPEDIA),),
    "bc-hopper-medium-replay": (Published(27.6, None, _WIKIPEDIA),),
    "bc-hopper-medium-expert": (Published(79.6, None, _WIKIPEDIA),),
    "bc-halfcheetah-medium": (Published(43.1, None, _WIKIPEDIA),),
    "bc-halfcheetah-medium-replay": (Published(4.3, None, _WIKIPEDIA),),
    "bc-halfcheetah-medium-expert": (Published(59.9, None, _WIKIPEDIA),),
    "bc-walker2d-medium": (Published(77.3, None, _WIKIPEDIA),),
    "bc-walker2d-medium-replay": (Published(36.9, None, _WIKIPEDIA),),
    "bc-walker2d-medium-expert": (Published(36.6, None, _WIKIPEDIA),),
    "chibit-hopper-medium": (Published(82.1, 4.6, _WIKIPEDIA),),
    "chibit-hopper-medium-replay": (Published(81.3, 5.0, _WIKIPEDIA),),
    "chibit-hopper-medium-no-cosine": (Published(80.9, 1.1, _WIKIPEDIA),),
    "chibit-hopper-medium-no-lm": (Published(81.4, 5.2, _WIKIPEDIA),),
    "chibit-hopper-medium-random-positions": (Published(78.4, 2.0, _WIKIPEDIA),),
    "chibit-hopper-medium-frozen": (Published(57.7, 7.0, _WIKIPEDIA),),
    # our recipes follow the later paper
    "clip-dt-hopper-medium": (Published(66.9, 1.3, _MARKOV, _CLIP), Published(66.9, 0.9, _WIKIPEDIA, _CLIP)),
    "clip-dt-hopper-medium-replay": (Published(76.1, 2.5, _MARKOV, _CLIP), Published(85.8, 0.3, _WIKIPEDIA, _CLIP)),
    "gpt2-dt-hopper-medium": (Published(77.9, 1.1, _MARKOV, _GPT2), Published(79.1, 1.1, _WIKIPEDIA, _GPT2)),
    "gpt2-dt-hopper-medium-replay": (Published(77.9, 2.1, _MARKOV, _GPT2), Published(94.4, 2.5, _WIKIPEDIA, _GPT2)),
    "gpt2-dtma-hopper-medium": (Published(77.4, 0.8, _MARKOV, _GPT2),),
    "gpt2-dtma-hopper-medium-replay": (Published(80.4, 1.8, _MARKOV, _GPT2),),
    "gpt2-p-hopper-medium": (Published(70.8, 1.4, _MARKOV, _GPT2),),
    "gpt2-p-hopper-medium-replay": (Published(75.3, 2.9, _MARKOV, _GPT2),),
    "dtma-hopper-medium": (Published(65.2, 2.3, _MARKOV),),
    "dtma-hopper-medium-replay": (Published(74.7, 3.7, _MARKOV),),
    "dtma-hopper-medium-expert": (Published(109.4, 0.1, _MARKOV),),
    "dtma-halfcheetah-medium": (Published(43.5, 0.3, _MARKOV),),
    "dtma-halfcheetah-medium-replay": (Published(38.8, 3.3, _MARKOV),),
    "dtma-halfcheetah-medium-expert": (Published(91.8, 1.1, _MARKOV),),
    "dtma-walker2d-medium": (Published(74.0, 1.4, _MARKOV),),
    "dtma-walker2d-medium-replay": (Published(70.5, 3.4, _MARKOV),),
    "dtma-walker2d-medium-expert": (Published(108.1, 0.2, _MARKOV),),
    "dm-hopper-medium": (Published(98.5, 8.19, _DM, _LARGE),),
    "dm-hopper-medium-replay": (Published(89.1, 4.32, _DM, _LARGE),),
    "dm-hopper-medium-expert": (Published(111.9, 1.84, _DM, _LARGE),),
    "dm-halfcheetah-medium": (Published(43.8, 0.23, _DM, _LARGE),),
    "dm-halfcheetah-medium-expert": (Published(93.5, 0.11, _DM, _LARGE),),
    "dm-walker2d-medium": (Published(80.3, 0.07, _DM, _LARGE),),
    "dm-walker2d-medium-replay": (Published(79.3, 1.94, _DM, _LARGE),),
    "dm-walker2d-medium-expert": (Published(111.6, 3.31, _DM, _LARGE),),
    "dm-ant-medium": (Published(104.8, 1.40, _DM, _LARGE),),
    "dm-ant-medium-replay": (Published(89.5, 1.64, _DM, _LARGE),),
    "dm-halfcheetah-medium-replay": (Published(40.8, 0.43, _DM, _LARGE),),
    "dm-halfcheetah-medium-replay-no-mg": (Published(40.1, None, _DM, _LARGE),),
    "dm-halfcheetah-medium-replay-no-pser": (Published(37.5, None, _DM, _LARGE),),
    "dm-halfcheetah-medium-replay-no-ilo": (Published(39.4, None, _DM, _LARGE),),
    "dm-halfcheetah-medium-replay-beta-1": (Published(38.4, None, _DM, _LARGE),),
    "dm-halfcheetah-medium-replay-beta-0.75": (Published(38.7, None, _DM, _LARGE),),
    "dm-halfcheetah-medium-replay-beta-0.5": (Published(38.8, None, _DM, _LARGE),),
    "dm-halfcheetah-medium-replay-beta-0.25": (Published(38.6, None, _DM, _LARGE),),
    "dt-pointmaze-medium": (Published(158.7, 7.3, _MARKOV, unit="steps"),),
    "dtma-pointmaze-medium": (Published(155.0, 8.0, _MARKOV, unit="steps"),),
    "gpt2-dt-pointmaze-medium": (Published(188.0, 13.0, _MARKOV, _GPT2, "steps"),),
    "gpt2-dtma-pointmaze-medium": (Published(146.3, 9.3, _MARKOV, _GPT2, "steps"),),
}

# Published numbers of methods that are not in this zoo, by task.
ELSEWHERE: dict[str, dict[str, Published]] = {
    "hopper-medium": {"CQL": Published(57.7, 1.6, _MARKOV), "DC": Published(79.7, 1.1, _MARKOV)},
    "hopper-medium-replay": {"CQL": Published(73.7, 4.4, _MARKOV), "DC": Published(82.3, 2.5, _MARKOV)},
    "pointmaze-medium": {
        "CQL": Published(134.0, 8.0, _MARKOV, unit="steps"),
        "DC": Published(236.3, 6.7, _MARKOV, unit="steps"),
    },
}


def elsewhere(agent_ids: Iterable[str], source: str) -> dict[str, dict[str, Published]]:
    """The entries of `ELSEWHERE` from `source` for the tasks of these agents."""
    ids = list(agent_ids)
    named = {task: methods for task, methods in ELSEWHERE.items() if any(one.endswith(f"-{task}") for one in ids)}
    found = {task: {k: v for k, v in methods.items() if v.source == source} for task, methods in named.items()}
    return {task: methods for task, methods in found.items() if methods}


def published_together(agent_ids: Iterable[str]) -> dict[str, Published]:
    """Published numbers for these agents in one table: from the paper with most of them, else each agent's first.

    Papers train the same agent differently, so numbers of two papers are hard to compare.
    """
    found = {name: PUBLISHED[name] for name in agent_ids if name in PUBLISHED}
    counted = Counter(one.source for several in found.values() for one in several)
    most = counted.most_common(1)[0][0] if counted else ""
    return {name: next((one for one in several if one.source == most), several[0]) for name, several in found.items()}


SOURCES = {_DT: CHEN, _WIKIPEDIA: REID, _MARKOV: ZHAO, _DM: LV}  # by `Published.source`
