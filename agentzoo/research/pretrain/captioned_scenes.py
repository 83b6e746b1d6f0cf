"""Pictures with sentences: rendered Minigrid and BabyAI worlds, each with its mission."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from agentzoo.errors import DataError
from agentzoo.extras import needed

TILE = 8  # pixels
SIDE = 9  # tiles; every world below fits
PIXELS = TILE * SIDE
WORLDS = (  # small enough to be seen whole, with missions that name what is in them
    "BabyAI-PutNextLocal-v0",
    "BabyAI-PutNextLocalS6N4-v0",
    "BabyAI-PutNextS5N2-v0",
    "BabyAI-MoveTwoAcrossS5N2-v0",
    "BabyAI-GoToSeqS5R2-v0",
    "BabyAI-MiniBossLevel-v0",
    "BabyAI-PickupDist-v0",
    "BabyAI-GoToLocalS8N5-v0",
    "MiniGrid-PutNear-8x8-N3-v0",
    "MiniGrid-Fetch-8x8-N3-v0",
)


class Scenes(NamedTuple):
    """Pictures (n, 72, 72, 3) uint8 and the sentence of each."""

    pictures: NDArray[np.uint8]
    sentences: list[str]


def draw_scenes(count: int, first_seed: int, on_scene: Callable[[int], None] = lambda _: None) -> Scenes:
    """`count` scenes of the worlds in turn; scene i is world i modulo their number, reset with seed `first_seed` + i.

    Raises:
        ConfigError: minigrid is not installed.
    """
    pictures = np.zeros((count, PIXELS, PIXELS, 3), dtype=np.uint8)
    sentences = []
    with _worlds() as worlds:
        for i in range(count):
            world = worlds[i % len(worlds)]
            world.reset(seed=first_seed + i)
            frame = world.get_frame(highlight=False, tile_size=TILE)
            pictures[i, : frame.shape[0], : frame.shape[1]] = frame
            sentences.append(str(world.mission))
            on_scene(i + 1)
    return Scenes(pictures, sentences)


@contextlib.contextmanager
def _worlds() -> Iterator[list[Any]]:
    needed("minigrid", "language", "drawing worlds")  # the import registers them
    import gymnasium as gym

    worlds = [gym.make(name).unwrapped for name in WORLDS]
    try:
        with contextlib.redirect_stdout(io.StringIO()):  # they print every rejected layout
            yield worlds
    finally:
        for world in worlds:
            world.close()


class Pairs(NamedTuple):
    """Training pairs and held-out pairs. Held-out sentences all differ and are not in the training pairs."""

    train: Scenes
    held_out: Scenes


def make_pairs(train: int, held_out: int, seed: int, on_scene: Callable[[int], None] = lambda _: None) -> Pairs:
    """Draw `train` + `held_out` scenes, then hold out `held_out` sentences, each with one of its pictures.

    All other scenes with a held-out sentence are left out of training.

    Raises:
        DataError: fewer different sentences remain for training than are held out.
    """
    drawn = draw_scenes(train + held_out, 1_000_003 * seed, on_scene)
    distinct: dict[str, int] = {}
    for i, sentence in enumerate(drawn.sentences):
        distinct.setdefault(sentence, i)
    names = sorted(distinct)
    left = max(len(names) - held_out, 0)
    if left < held_out:
        raise DataError(
            f"{train + held_out:,} scenes have {len(names):,} different sentences; with held_out={held_out}, only "
            f"{left:,} are left for training, and at least {held_out} are needed. Draw more scenes "
            "(--set scenes=NUMBER) or hold out fewer sentences (--set held_out=NUMBER)."
        )
    chosen = np.random.default_rng(seed).permutation(len(names))[:held_out]
    apart = {names[i] for i in chosen}
    kept = [i for i, sentence in enumerate(drawn.sentences) if sentence not in apart]
    held = [distinct[names[i]] for i in sorted(chosen)]

    def part(index: list[int]) -> Scenes:
        return Scenes(drawn.pictures[index], [drawn.sentences[i] for i in index])

    return Pairs(part(kept), part(held))
