"""The heads of an agent, for its card: the importance of each for the action, and the attention of the newest step."""

from __future__ import annotations

from pathlib import Path

from agentzoo.errors import ConfigError
from agentzoo.evaluation.study import Study, filled
from agentzoo.research.analysis.inspection import Inspection
from agentzoo.research.analysis.pictures import draw_all

PICTURE = "heads.png"
MAX_ROWS = 100  # of a study
COLUMNS = ("layer.head", "without it the action moves by", "on itself", "on its own step", "steps back, mean")


def as_study(found: Inspection, picture: str | None = PICTURE) -> Study:
    """A row for each head: its importance, and the newest token's attention.

    Raises:
        ConfigError: the network has no attention, or is a language model and not an agent.
    """
    if found.importance is None or found.looks is None:
        raise ConfigError(f"{found.name} ({found.kind}): a study of heads needs an agent with attention heads.")
    moves = {(layer, head): value for layer, row in enumerate(found.importance.mean) for head, value in enumerate(row)}
    rows = [
        (
            f"{one.layer}.{one.head}",
            f"{moves[one.layer, one.head]:.3g}",
            f"{one.on_itself:.2f}",
            f"{one.on_its_step:.2f}",
            f"{one.steps_back:.1f}",
        )
        for one in found.looks
    ]
    most, least = max(moves, key=moves.__getitem__), min(moves, key=moves.__getitem__)
    token = "observation" if found.causal else "step"
    note = (
        f"Importance: the distance between the action and the action without the head, mean of "
        f"{found.importance.decisions:,} decisions of the agent in its environment. Attention: of the newest {token} "
        "of a window, mean over the longest windows. The maps show one window."
    )
    ranks = (
        f"Head {most[0]}.{most[1]} matters most ({moves[most]:.3g}), head {least[0]}.{least[1]} least "
        f"({moves[least]:.3g})."
    )
    cut = [f"The table has {MAX_ROWS} of {len(rows)} heads."] if len(rows) > MAX_ROWS else []
    return Study(
        title="What each head does",
        columns=COLUMNS,
        rows=tuple(rows[:MAX_ROWS]),
        picture=picture,
        note=filled(note, [ranks, *cut]),
    )


def draw_views(found: Inspection, path: Path) -> Path:
    """Importance and attention maps in one picture."""
    return draw_all(found, path, ("importance", "maps"))
