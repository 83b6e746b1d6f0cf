"""ChibiT on pixels: GPT2-DT's construction with convolutions in front of the observation's token.

Source: Reid et al. 2022, arXiv:2201.12122, section 4.2 (Atari). The network is `_language_dt.py`, the convolutions are
those of `dt_pixel.py`.
Differs: tokens, LayerNorm and timesteps are those of the other language agents here, not those of the Atari code.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from agentzoo.models._language_config import LanguageDTConfig
from agentzoo.models._language_dt import LanguageDT
from agentzoo.nn.pixels import ATARI, Convolutions, FrameEncoder, PixelModel
from agentzoo.registry import register


class ChibiTPixelConfig(LanguageDTConfig):
    """GPT-2's blocks behind the convolutions of the published Atari agents."""

    title: ClassVar[str] = "ChibiT on pixels"

    family: Literal["chibit-pixel"] = "chibit-pixel"
    architecture: Literal["gpt2"] = "gpt2"
    max_ep_len: Annotated[int, Field(ge=1, le=100_000)] = 4096
    convolutions: Convolutions = ATARI

    def deviations(self) -> tuple[str, ...]:
        """Adds the difference from the Atari code."""
        tokens = (
            "tokens, LayerNorm and timesteps are those of the language agents of Gym tasks here, not the Atari code's"
        )
        return (*super().deviations(), tokens)


@register("chibit-pixel", ChibiTPixelConfig)
class ChibiTPixel(PixelModel, LanguageDT):
    """The blocks of a GPT-2, fed with images."""

    config: ChibiTPixelConfig

    def make_obs_map(self) -> FrameEncoder:
        """The convolutions, whatever `input_maps` says of returns and actions."""
        return self.make_encoder()
