"""The base of every family: a network with a loss for the training loop and an `act` for the agent."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Mapping
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn

from agentzoo.errors import ConfigError, SpaceError
from agentzoo.nn.tokens import last_valid
from agentzoo.papers import Citation
from agentzoo.types import WHITE, ActionDistribution, Average, Batch, Config, IOSpec, Losses, ObservationSpec

ActingMode = Literal["window", "recurrent"]
MAX_TIMESTEPS = 100_000  # rows of a timestep table
ONE_ROW = "actions do not depend on the timestep: the timestep table has one row, in the paper one for each step"


class Term(NamedTuple):
    """A loss beside the action error: its name, its weight, and after how many updates it is 0 (None: constant)."""

    name: str
    weight: float
    steps: int | None


class Origin(NamedTuple):
    """The initial weights of a network's blocks, and the published preset that the rest follows.

    backbone: its name, None for random weights. learned: what the backbone had learned. adaptation: which parts of the
    blocks are trained. preset_paper: the paper with the preset's settings. departures: fields that differ from the
    preset, as `name=value`. gate_scale: "heads" or "paper" if gates weigh the attention heads. began: the initial
    blocks in words, if the name alone is not enough.
    """

    backbone: str | None
    learned: str
    adaptation: str
    losses: tuple[Term, ...]
    preset: str
    preset_paper: Citation
    departures: tuple[str, ...]
    gate_scale: str | None = None
    began: str | None = None


class ModelConfig(Config):
    """Hyperparameters of a network. `family` names the family; each family adds its own fields."""

    title: ClassVar[str] = ""  # the family's full name
    paper: ClassVar[Citation | None] = None  # cited on cards
    staged_bytes: ClassVar[int] = 5_000_000  # limit of an agent's weights in this project's zoo
    recorded: ClassVar[dict[str, str]] = {}  # field that training fills in -> field that names the file it describes
    has_timestep_table: ClassVar[bool] = True
    selects: ClassVar[tuple[str, ...]] = ()  # fields that say which file that is; another value empties the record

    family: str
    # Rows of a timestep table; later steps use the last. Families without a table divide the timestep by it, if they
    # read the timestep at all. With 1 actions do not depend on the timestep
    max_ep_len: Annotated[int, Field(ge=1, le=MAX_TIMESTEPS)] = 1000

    def origin(self) -> Origin | None:
        """The initial weights; None if this training started from random ones."""
        return None

    @classmethod
    def presets(cls) -> dict[str, dict[str, Any]]:
        """Named sets of fields, for `--set model.preset=NAME`."""
        return {}

    @classmethod
    def fields_of_preset(cls, name: str, max_ep_len: Any) -> dict[str, Any]:
        """The fields of a preset; what only other presets set returns to its default.

        Args:
            max_ep_len: the value before. If no preset set it, it follows the data or the user, and it stays.

        Raises:
            ConfigError: no such preset.
        """
        presets = cls.presets()
        if name not in presets:
            those = f"known: {', '.join(presets)}" if presets else "it has none"
            raise ConfigError(f"family {cls.model_fields['family'].default!r} has no preset {name!r}; {those}.")
        unset = {field: cls.model_fields[field].default for preset in presets.values() for field in preset}
        if all(preset.get("max_ep_len") != max_ep_len for preset in presets.values()):
            unset.pop("max_ep_len", None)
        return unset | presets[name]

    def pinned(self) -> ModelConfig:
        """The config with the hashes of the files that training reads beside its data.

        Existing hashes stay: `SequenceModel.begin_training` refuses other files, so a resumed run needs the same.
        """
        return self

    def unpinned(self) -> ModelConfig:
        """The config of a packaged recipe: without the fields in `recorded`, which `pinned` fills in."""
        return self.model_copy(update=dict.fromkeys(self.recorded))

    def environment(self) -> dict[str, str]:
        """Environment variables that a training needs, each with a placeholder for its value."""
        return {}

    def weights_license(self) -> str:
        """The default license of trained weights, as the Hub names it; the backbone may require another."""
        return "mit"

    def inputs(self) -> tuple[str, ...]:
        """The parts of each step that the network reads, of "return-to-go", "observation" and "action"."""
        return (*(("return-to-go",) if self.acts_on_target() else ()), "observation", "action")

    def deviations(self) -> tuple[str, ...]:
        """How the network and its training differ from the paper, one phrase each."""
        return (ONE_ROW,) if self.has_timestep_table and self.max_ep_len == 1 else ()

    def acts_on_target(self) -> bool:
        """Whether its actions depend on the target return."""
        return True

    def needs_raw_observations(self) -> bool:
        """Whether it learns raw observations, so that data must not be normalized."""
        return False

    def takes_questions(self) -> bool:
        """Whether it was trained to predict anything hidden in a window, and not only the next action."""
        return False


class SequenceModel(nn.Module, ABC):
    """A network over windows of (return-to-go, observation, action).

    The training loop calls `loss`, the agent calls `act`; neither asks which family it holds.
    `obs_mean` and `obs_std` (S,) are buffers, so normalization is saved inside `model.safetensors`. For images they are
    (C, 1, 1), 0 and 255 until a training sets them.

    Raises:
        SpaceError: an image for a family that reads vectors, or a vector for one that reads images.
    """

    takes_images: ClassVar[bool] = False  # whether observations are (B, K, C, H, W) uint8 in place of vectors
    modes_agree: ClassVar[bool] = False  # whether all acting modes give the same actions, to rounding
    averages: ClassVar[Mapping[str, Average]] = {}  # what a term of `loss` is a mean over, if not over valid steps
    takes_goals: ClassVar[bool] = False  # whether it takes goals and questions, as `nn.masked_model.MaskedModel`
    obs_mean: Tensor
    obs_std: Tensor
    action_center: Tensor
    action_half: Tensor

    def __init__(self, config: ModelConfig, io: IOSpec) -> None:
        super().__init__()
        self.config = config
        self.io = io
        self.stored_types: dict[str, torch.dtype] = {}  # of the tensors in the file it was loaded from
        require_kind(config.family, io.observation, self.takes_images)
        image = io.observation.image
        sides = (io.observation.size,) if image is None else (image[0], 1, 1)
        self.register_buffer("obs_mean", torch.zeros(sides))
        self.register_buffer("obs_std", torch.full(sides, 1.0 if image is None else WHITE))
        self.bounded = io.action.low is not None
        low = np.array(io.action.low or [-1.0] * io.action.size)  # numpy, for the reason in `nn.sizes_only`
        high = np.array(io.action.high or [1.0] * io.action.size)
        self.register_buffer("action_center", torch.tensor((high + low) / 2, dtype=torch.float32), persistent=False)
        self.register_buffer("action_half", torch.tensor((high - low) / 2, dtype=torch.float32), persistent=False)

    @abstractmethod
    def loss(self, batch: Batch) -> Losses:
        """Named scalar terms, already weighted: their sum, `loss` in the log, is what the optimizer lowers."""

    @abstractmethod
    def act(self, batch: Batch) -> Tensor | ActionDistribution:
        """For the newest valid step of each window: (B, A) actions in env units, or (B, A) logits if discrete.

        A network that samples Box actions returns their distribution. The action stored at the newest step is a
        placeholder and must not matter. Windows may have fewer than K steps: padding that all share is left out.
        """

    def act_deterministic(self, batch: Batch) -> Tensor:
        """`act` without sampling: (B, A) actions in env units (the mode of a distribution), or logits."""
        found = self.act(batch)
        return found if isinstance(found, Tensor) else found.mode()

    @property
    def device(self) -> torch.device:
        """The device of the network."""
        return self.obs_mean.device

    @property
    def acting(self) -> ActingMode:
        """The default acting mode; "recurrent" needs `nn.recurrent.RecurrentModel`."""
        return "window"

    def begin_training(self, fresh: bool) -> None:
        """Called by the loop once, before the optimizer is made. `fresh`: the weights are random, not another agent's.

        A family loads other files (a backbone's weights, a corpus) here, never in `__init__`.
        """

    def begin_step(self, step: int, total: int) -> None:
        """Called by the loop before update `step` (0-based) of `total`, for schedules and teachers."""

    def loss_settings(self) -> Hashable:
        """What `loss` reads beside its batch, the weights and random numbers, as `begin_step` sets it.

        A CUDA graph of `loss` is captured again when this changes.
        """
        return None

    def figures(self) -> Losses:
        """Scalars of the last `loss` for the log; the optimizer does not use them."""
        return {}

    def training_state(self) -> dict[str, Tensor]:
        """Further tensors that an exact resume needs, for example a teacher's weights."""
        return {}

    def load_training_state(self, tensors: dict[str, Tensor]) -> None:
        """Inverse of `training_state`."""

    def decays(self, name: str) -> bool:
        """Whether weight decay applies to parameter `name`; by default if it has two axes or more, tables included."""
        return self.get_parameter(name).ndim >= 2

    def lr_scale(self, name: str) -> float:
        """The factor of the learning rate for parameter `name`."""
        return 1.0

    def normalize_obs(self, observations: Tensor, valid: Tensor) -> Tensor:
        """(B, K, S) or (B, K, C, H, W) raw -> normalized, then 0 at padding (normalize first, then pad)."""
        real = valid.view(*valid.shape, *(1,) * (observations.ndim - 2))
        return ((observations - self.obs_mean) / self.obs_std) * real

    def encode_actions(self, actions: Tensor) -> Tensor:
        """Env actions -> network input, (..., A): a Box mapped to [-1, 1], Discrete (...) to one-hot."""
        if self.io.action.kind == "discrete":
            return nn.functional.one_hot(actions, self.io.action.size).to(self.obs_mean.dtype)
        return (actions - self.action_center) / self.action_half

    def decode_actions(self, encoded: Tensor) -> Tensor:
        """Network output -> what `act` returns: [-1, 1] -> env units for a Box; logits stay logits."""
        if self.io.action.kind == "discrete":
            return encoded
        return encoded * self.action_half + self.action_center


def require_kind(family: str, observation: ObservationSpec, takes_images: bool) -> None:
    """Raise SpaceError for an image and a family that reads vectors, or a vector and a family that reads images."""
    image = observation.image
    if image is not None and not takes_images:
        raise SpaceError(
            f"the family {family!r} reads vectors, these observations are images {image}. Families whose name ends in "
            "-pixel read images, dt-pixel for one; or flatten them yourself with gymnasium's FlattenObservation and a "
            "float space."
        )
    if image is None and takes_images:
        raise SpaceError(
            f"the family {family!r} reads images: a Box of uint8, (H, W), (H, W, C) or (C, H, W). These observations "
            f"are vectors of {observation.size} numbers, which other families read, dt for one."
        )


def mean_over_valid(values: Tensor, valid: Tensor) -> Tensor:
    """Mean of `values` (B, K) or (B, K, X) over the steps where `valid` (B, K) is True; 0 if it never is."""
    if values.ndim == 3:
        values = values.mean(-1)
    weight = valid.to(values.dtype)
    return (values * weight).sum() / weight.sum().clamp(min=1.0)


def action_loss(predicted: Tensor, encoded: Tensor, valid: Tensor, discrete: bool) -> Losses:
    """Mean squared error in [-1, 1] units, or cross-entropy of logits against one-hot `encoded`."""
    if discrete:
        log_p = nn.functional.log_softmax(predicted, dim=-1)
        return {"action_ce": mean_over_valid(-(log_p * encoded).sum(-1), valid)}
    return {"action_mse": mean_over_valid((predicted - encoded) ** 2, valid)}


# what the terms of `newest_action_loss` are means over
AVERAGES_OF_NEWEST: Mapping[str, Average] = {"action_mse": "windows", "action_ce": "windows"}


def newest_action_loss(model: SequenceModel, predicted: Tensor, batch: Batch) -> Losses:
    """`action_loss` of the newest valid step alone, for `predicted` (B, A)."""
    target = model.encode_actions(last_valid(batch.actions, batch.valid)).unsqueeze(1)  # (B, 1, A)
    present = torch.ones(target.shape[:2], dtype=torch.bool, device=target.device)
    return action_loss(predicted.unsqueeze(1), target, present, model.io.action.kind == "discrete")


def parameter_count(model: nn.Module) -> int:
    """The number of saved parameters: low-rank updates count as merged, buffers do not count."""
    buffers = {name for name, _ in model.named_buffers()}
    return sum(value.numel() for name, value in model.state_dict().items() if name not in buffers)
