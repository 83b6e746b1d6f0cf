"""Networks that read images: convolutions that turn each observation into a token, and a memory of the newest tokens.

Source: Chen et al. 2021, arXiv:2106.01345, appendix A (Atari); kzl/decision-transformer@e2d82e6, atari/. The three
convolutions are those of Mnih et al. 2015, doi:10.1038/nature14236.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, NamedTuple

import torch
from pydantic import Field
from torch import Tensor, nn

from agentzoo.errors import SpaceError
from agentzoo.nn.base import ActingMode, ModelConfig, SequenceModel
from agentzoo.types import MAX_SIZE, Batch

Channels = Annotated[int, Field(ge=1, le=1024)]
Kernel = Annotated[int, Field(ge=1, le=64)]
Stride = Annotated[int, Field(ge=1, le=64)]
Convolutions = Annotated[tuple[tuple[Channels, Kernel, Stride], ...], Field(min_length=1, max_length=8)]
ATARI: Convolutions = ((32, 8, 4), (64, 4, 2), (64, 3, 1))  # channels, kernel, stride
SMALL_IMAGES = "[[16,2,1],[32,2,1],[64,2,1]]"  # for a grid of a few cells, as MiniGrid's 7x7


class PixelConfig(ModelConfig):
    """Fields of all networks on images."""

    embed_dim: Annotated[int, Field(ge=1, le=8192)] = 128  # D
    convolutions: Convolutions = ATARI


class FrameEncoder(nn.Module):
    """(n, C, H, W) uint8 -> (n, D): convolutions with ReLU, a linear map and tanh.

    Raises:
        SpaceError: the image is too small for the convolutions, or too large for the linear map after them.
    """

    def __init__(self, image: tuple[int, int, int], dim: int, convolutions: Convolutions = ATARI) -> None:
        super().__init__()
        channels, *sides = image
        layers: list[nn.Module] = []
        for made, kernel, stride in convolutions:
            sides = [(side - kernel) // stride + 1 for side in sides]
            if min(sides) < 1:
                raise SpaceError(
                    f"an image {image} (channels, height, width) is too small for the convolutions {convolutions} "
                    f"(channels, kernel, stride). Choose smaller ones: --set 'model.convolutions={SMALL_IMAGES}'."
                )
            layers.append(nn.Conv2d(channels, made, kernel, stride))
            channels = made
        features = channels * sides[0] * sides[1]
        if features > MAX_SIZE:
            raise SpaceError(
                f"an image {image} (channels, height, width) leaves {features:,} numbers after the convolutions "
                f"{convolutions}, at most {MAX_SIZE:,} are allowed: make it smaller with gymnasium's "
                "ResizeObservation, or choose larger strides (model.convolutions)."
            )
        self.convolutions = nn.ModuleList(layers)
        self.project = nn.Linear(features, dim)

    def forward(self, images: Tensor, mean: Tensor, std: Tensor) -> Tensor:
        """Raw pixels -> (n, D). `mean` and `std` (C, 1, 1) normalize them."""
        pixels = images.to(_computed(mean), memory_format=torch.channels_last)
        x = torch.addcmul(-mean / std, pixels, 1.0 / std)
        for layer in self.convolutions:
            x = torch.relu(layer(x))
        return torch.tanh(self.project(x.flatten(1)))


def _computed(like: Tensor) -> torch.dtype:
    """The dtype in which matrices are multiplied: autocast's, else that of the network's own tensors."""
    kind = like.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else like.dtype


class FrameMemory(NamedTuple):
    """The last K steps of N environments, with tokens in place of images; `length` of the K are real.

    observations: (N, K, D). actions: (N, K, A), or (N, K) int64 if discrete. returns_to_go: (N, K), scaled. timesteps:
    (N, K) int64. length: (N,) int64. Padding holds zeros.
    """

    observations: Tensor
    actions: Tensor
    returns_to_go: Tensor
    timesteps: Tensor
    length: Tensor


class PixelModel(SequenceModel):
    """A network whose observations are images, (B, K, C, H, W) uint8, or their tokens, (B, K, D) float.

    A token depends on its own observation only. So `step` keeps the tokens of the last K observations and encodes only
    the newest image. The result equals `act` on the window.
    """

    takes_images: ClassVar[bool] = True
    modes_agree: ClassVar[bool] = True
    config: Any
    embed_obs: Any  # a FrameEncoder

    def make_encoder(self) -> FrameEncoder:
        """An encoder for the observations of this environment."""
        image = self.io.observation.image
        assert image is not None
        return FrameEncoder(image, self.config.embed_dim, self.config.convolutions)

    @property
    def acting(self) -> ActingMode:
        """Step by step: the same actions as from a window, at a fraction of the time."""
        return "recurrent"

    def encoded(self, batch: Batch) -> Tensor:
        """(B, K, D): the observations' tokens, by one pass of the convolutions over all images."""
        seen = batch.observations
        if seen.is_floating_point():
            return seen
        tokens: Tensor = self.embed_obs(seen.flatten(0, 1), self.obs_mean, self.obs_std)
        return tokens.view(*batch.shape, -1)

    def initial_state(
        self, n: int, device: torch.device | None = None, dtype: torch.dtype | None = None
    ) -> FrameMemory:
        """The memory of `n` envs that have seen nothing."""
        like, k, spec = self.obs_mean, self.io.context, self.io.action
        place, real = device or like.device, dtype or like.dtype
        taken = (n, k) if spec.kind == "discrete" else (n, k, spec.size)
        return FrameMemory(
            observations=torch.zeros(n, k, self.config.embed_dim, device=place, dtype=real),
            actions=torch.zeros(taken, device=place, dtype=torch.int64 if spec.kind == "discrete" else real),
            returns_to_go=torch.zeros(n, k, device=place, dtype=real),
            timesteps=torch.zeros(n, k, device=place, dtype=torch.int64),
            length=torch.zeros(n, device=place, dtype=torch.int64),
        )

    @torch.no_grad()
    def step(
        self, state: FrameMemory, rtg: Tensor, obs: Tensor, previous_action: Tensor, timestep: Tensor
    ) -> tuple[Tensor, FrameMemory]:
        """`nn.recurrent.RecurrentModel.step`: equal to `act` on the window of the last K steps."""
        k = self.io.context
        at = torch.arange(k, device=obs.device)
        full = state.length == k
        newest = torch.where(full, k - 1, state.length)  # (N,) the place of this step
        token = self.embed_obs(obs, self.obs_mean, self.obs_std)
        taken = _put(state.actions, previous_action, at == (state.length - 1).unsqueeze(1))
        now = at == newest.unsqueeze(1)
        memory = FrameMemory(
            observations=_put(_shifted(state.observations, full), token, now),
            actions=_shifted(taken, full),  # 0 at this step, whose action is not known yet
            returns_to_go=_put(_shifted(state.returns_to_go, full), rtg, now),
            timesteps=_put(_shifted(state.timesteps, full), timestep, now),
            length=newest + 1,
        )
        valid = at < memory.length.unsqueeze(1)
        return self.act_deterministic(Batch(*memory[:4], valid=valid)), memory


def _shifted(values: Tensor, full: Tensor) -> Tensor:
    """(N, K, ...) with the oldest step dropped and a zero at the end, in the rows where `full` (N,)."""
    moved = torch.cat((values[:, 1:], torch.zeros_like(values[:, :1])), dim=1)
    return torch.where(full.view(-1, *(1,) * (values.ndim - 1)), moved, values)


def _put(values: Tensor, new: Tensor, where: Tensor) -> Tensor:
    """(N, K, ...) with `new` (N, ...) at the step where `where` (N, K) is True."""
    return torch.where(where.view(*where.shape, *(1,) * (values.ndim - 2)), new.unsqueeze(1).to(values.dtype), values)
