"""What every family is: a network with a loss for the training loop and an `act` for the agent."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import torch
from pydantic import Field
from torch import Tensor, nn

from agentzoo.papers import Citation
from agentzoo.types import ActionDistribution, Batch, Config, IOSpec, Losses

ActingMode = Literal["window", "recurrent"]


class Term(NamedTuple):
    """A loss beside that of actions: its name, its weight, and over how many updates it falls to 0 (None: it stays)."""

    name: str
    weight: float
    steps: int | None


class Origin(NamedTuple):
    """What the blocks of a network started from, and which published preset the rest follows.

    backbone: its name, None for random weights. learned: what the backbone had learned. adaptation: what of the blocks
    is trained. departures: fields that differ from the preset, as `name=value`. gate_scale: "heads" or "paper" where
    gates weigh the attention heads. began: what its blocks started as, in words, where the name alone does not say.
    """

    backbone: str | None
    learned: str
    adaptation: str
    losses: tuple[Term, ...]
    preset: str
    departures: tuple[str, ...]
    gate_scale: str | None = None
    began: str | None = None


class ModelConfig(Config):
    """Hyperparameters of a network. `family` says which; the rest is each family's own."""

    title: ClassVar[str] = ""  # of the family, in words
    paper: ClassVar[Citation | None] = None  # that a card cites for it
    staged_bytes: ClassVar[int] = 5_000_000  # that an agent's weights may take in this project's zoo
    recorded: ClassVar[dict[str, str]] = {}  # field that training fills in -> field that names the file it describes

    family: str
    max_ep_len: Annotated[int, Field(ge=1, le=100_000)] = 1000  # rows of a timestep table; later steps use the last

    def origin(self) -> Origin | None:
        """What the weights started from; None: this training alone made them."""
        return None

    @classmethod
    def presets(cls) -> dict[str, dict[str, Any]]:
        """Sets of fields with a name, for `--set model.preset=NAME`."""
        return {}

    def pinned(self) -> ModelConfig:
        """With the hashes of the files that a training reads beside its data; a resumed run needs the same files.

        Hashes that are there already stay: `SequenceModel.begin_training` refuses other files.
        """
        return self

    def unpinned(self) -> ModelConfig:
        """As a packaged recipe has it: without the fields `recorded`, which `pinned` fills in."""
        return self.model_copy(update=dict.fromkeys(self.recorded))

    def environment(self) -> dict[str, str]:
        """Environment variables that a training needs, each with a placeholder for its value."""
        return {}

    def weights_license(self) -> str:
        """That trained weights have by default, as the Hub names it; what they started from may ask for another."""
        return "mit"

    def inputs(self) -> tuple[str, ...]:
        """What the network reads of each step: of "return-to-go", "observation" and "action"."""
        return (*(("return-to-go",) if self.acts_on_target() else ()), "observation", "action")

    def deviations(self) -> tuple[str, ...]:
        """How the network and its training differ from the paper, one phrase each."""
        return ()

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
    `obs_mean` and `obs_std` (S,) are buffers, so normalization is saved inside `model.safetensors`.
    """

    takes_goals: ClassVar[bool] = False  # whether goals, waypoints and questions fit it, as in `nn.masked.MaskedModel`
    obs_mean: Tensor
    obs_std: Tensor
    action_center: Tensor
    action_half: Tensor

    def __init__(self, config: ModelConfig, io: IOSpec) -> None:
        super().__init__()
        self.config = config
        self.io = io
        size = io.observation.size
        self.register_buffer("obs_mean", torch.zeros(size))
        self.register_buffer("obs_std", torch.ones(size))
        low, high = io.action.low, io.action.high
        self.bounded = low is not None
        if low is not None and high is not None:
            bounds = torch.tensor([low, high], dtype=torch.float64)
        else:
            bounds = torch.tensor([[-1.0], [1.0]], dtype=torch.float64).expand(2, io.action.size)
        self.register_buffer("action_center", bounds.mean(0).float(), persistent=False)
        self.register_buffer("action_half", ((bounds[1] - bounds[0]) / 2).float(), persistent=False)

    @abstractmethod
    def loss(self, batch: Batch) -> Losses:
        """Named scalar terms, already weighted: their sum is what the optimizer lowers."""

    @abstractmethod
    def act(self, batch: Batch) -> Tensor | ActionDistribution:
        """For the newest valid step of each window: (B, A) actions in env units, or (B, A) logits if discrete.

        A network that samples Box actions returns their distribution. The action stored at the newest step is a
        placeholder and must not matter.
        """

    def act_surely(self, batch: Batch) -> Tensor:
        """As `act`, without chance: (B, A) actions in env units, the mode of a distribution, or logits."""
        found = self.act(batch)
        return found if isinstance(found, Tensor) else found.mode()

    @property
    def device(self) -> torch.device:
        """Where the network computes."""
        return self.obs_mean.device

    @property
    def acting(self) -> ActingMode:
        """How an agent of this network acts by default; "recurrent" needs `nn.recurrent.RecurrentModel`."""
        return "window"

    def begin_training(self, fresh: bool) -> None:
        """Called by the loop once, before the optimizer is made; `fresh`: the weights are random, not another agent's.

        What a family reads from elsewhere (a backbone's weights, a corpus) comes in here, never in `__init__`.
        """

    def begin_step(self, step: int, total: int) -> None:
        """Called by the loop before update `step` (0-based) of `total`, for schedules and teachers."""

    def figures(self) -> Losses:
        """Scalars of the last `loss` that the log shows beside its terms; the optimizer never sees them."""
        return {}

    def training_state(self) -> dict[str, Tensor]:
        """Tensors beside the weights that an exact resume needs, for example a teacher's weights."""
        return {}

    def load_training_state(self, tensors: dict[str, Tensor]) -> None:
        """Inverse of `training_state`."""

    def decays(self, name: str) -> bool:
        """Whether weight decay applies to parameter `name`; by default to all of two axes or more, tables included."""
        return self.get_parameter(name).ndim >= 2

    def lr_scale(self, name: str) -> float:
        """What the learning rate is multiplied by for parameter `name`."""
        return 1.0

    def normalize_obs(self, observations: Tensor, valid: Tensor) -> Tensor:
        """(B, K, S) raw -> normalized, then 0 at padding (normalize first, then pad)."""
        return ((observations - self.obs_mean) / self.obs_std) * valid.unsqueeze(-1)

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


def parameter_count(model: nn.Module) -> int:
    """How many numbers the saved parameters hold: low-rank updates are merged, buffers do not count."""
    buffers = {name for name, _ in model.named_buffers()}
    return sum(value.numel() for name, value in model.state_dict().items() if name not in buffers)
