"""The config of Decision Transformers on the blocks of a language model, and the presets of three papers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from agentzoo.nn.attention import require_whole_heads
from agentzoo.nn.base import ModelConfig, Origin, Term
from agentzoo.nn.language.block_sizes import Activation, Architecture, HeadCount, InnerWidth, LayerCount, Sizes, Width
from agentzoo.nn.language.cotraining import TEXT_VARIABLE
from agentzoo.papers import REID, SHI, ZHAO, Citation
from agentzoo.types import Digest, Probability

if TYPE_CHECKING:
    from agentzoo.nn.language.pretrained import Pretrained

BackboneName = Annotated[str, Field(min_length=1, max_length=300)]
Weight = Annotated[float, Field(ge=0.0, le=1000.0)]
Adaptation = Literal["full", "frozen", "part", "ln_only", "lora"]


LEARNED = {
    "gpt2": "language",
    "gptj": "language",
    "llama": "language",
    "imagegpt": "pictures, pixel by pixel",
    "clip": "which sentences belong to which pictures",
}
MAPS = ("input_maps", "head", "tie_action_head", "positions", "timestep_rank", "adaptation")
LOSSES = ("cosine_weight", "lm_weight")


class LanguageDTConfig(ModelConfig):
    """Sizes of the blocks, which must equal the backbone's, and how the blocks are used."""

    paper: ClassVar[Citation | None] = REID
    counterparts: ClassVar[dict[str, str]] = {}  # architecture of a backbone -> the sibling family for it
    recorded: ClassVar[dict[str, str]] = {"backbone_sha256": "backbone"}
    selects: ClassVar[tuple[str, ...]] = ("backbone", "backbone_revision")

    architecture: Architecture
    backbone: BackboneName | None = None  # folder, staged id or Hub id; None: random weights. Only training reads it
    backbone_revision: Annotated[str, Field(min_length=1, max_length=200)] | None = None  # of the Hub
    backbone_sha256: Digest | None = None  # filled in by training, which resumes only with this file
    embed_dim: Width = 128  # D; n_heads must divide it
    n_layers: LayerCount = 3
    n_heads: HeadCount = 1
    inner_dim: InnerWidth | None = None  # of the MLPs; None: 4 D
    activation: Activation = "relu"
    norm_eps: Annotated[float, Field(gt=0.0, le=0.1)] = 1e-5
    rotary_dim: Annotated[int, Field(ge=0, le=1024)] = 0  # gptj only

    input_maps: Literal["linear", "mlp"] = "mlp"
    head: Literal["linear", "mlp"] = "mlp"  # linear ends in tanh where actions are bounded
    tie_action_head: bool = False  # the head is the action's input map, transposed; both linear
    positions: Literal["fresh", "own"] = "fresh"  # own: the backbone's position table is the timestep table
    timestep_rank: Annotated[int, Field(ge=1, le=8192)] | None = None  # r: a fresh table is (max_ep_len, r) · (r, D)
    adaptation: Adaptation = "full"  # which parts of the blocks are trained
    lora_rank: Annotated[int, Field(ge=1, le=1024)] = 16
    lora_alpha: Annotated[float, Field(gt=0.0, le=1e4)] = 32.0
    lora_dropout: Probability = 0.1
    dropout: Probability = 0.1  # of residual branches
    attention_dropout: Probability = 0.1
    embed_dropout: Probability = 0.1
    backbone_lr: Annotated[float, Field(gt=0.0, le=100.0)] = 1.0  # times train.lr
    backbone_decays: bool = True  # train.weight_decay on the blocks too

    cosine_weight: Weight = 0.0
    cosine_decay_steps: Annotated[int, Field(ge=1)] | None = 5_000  # None: it stays
    centroids: Annotated[int, Field(ge=1, le=65_536)] = 1_000
    lm_weight: Weight = 0.0
    lm_decay_steps: Annotated[int, Field(ge=1)] | None = 5_000
    lm_chunk: Annotated[int, Field(ge=2, le=65_536)] = 1024  # tokens
    lm_chunks: Annotated[int, Field(ge=1, le=1024)] = 2  # an update

    @model_validator(mode="after")
    def _fits_together(self) -> LanguageDTConfig:
        require_whole_heads(self.embed_dim, self.n_heads)
        if (self.rotary_dim > 0) != (self.architecture == "gptj"):
            raise ValueError("rotary_dim must be above 0 for architecture gptj, and 0 for any other")
        if self.rotary_dim % 2 or self.rotary_dim > self.embed_dim // self.n_heads:
            raise ValueError(f"rotary_dim must be even and at most a head's size, {self.embed_dim // self.n_heads}")
        if self.tie_action_head and (self.input_maps, self.head) != ("linear", "linear"):
            raise ValueError("tie_action_head needs input_maps and head to be linear")
        if self.backbone is None and (self.cosine_weight or self.lm_weight):
            raise ValueError("cosine_weight and lm_weight must be 0 without a backbone")
        if self.backbone is None and self.backbone_revision is not None:
            raise ValueError("backbone_revision needs a backbone")
        if self.positions == "own" and self.architecture != "gpt2":
            raise ValueError("only gpt2 has a position table that is long enough to count timesteps")
        if self.positions == "own" and self.timestep_rank is not None:
            raise ValueError("timestep_rank is for fresh positions: the backbone's own table has full rank")
        if self.lm_weight and self.architecture not in ("gpt2", "gptj", "llama"):
            raise ValueError("co-training needs a language model: gpt2, gptj or llama")
        if self.lm_weight and self.positions == "own" and self.lm_chunk - 1 > self.max_ep_len:
            raise ValueError(
                f"lm_chunk {self.lm_chunk} is longer than the position table, max_ep_len {self.max_ep_len}"
            )
        return self

    @classmethod
    def presets(cls) -> dict[str, dict[str, Any]]:
        """The settings of three papers."""
        return PRESETS

    def pinned(self) -> LanguageDTConfig:
        """The config with the hash of the current backbone; training checks the hash when it begins."""
        if self.backbone is None or all(getattr(self, name) is not None for name in self.recorded):
            return self
        found = self.records_of(self.read_backbone())
        same_file = self.backbone_sha256 is not None
        return self.model_copy(update={k: v for k, v in found.items() if not same_file or getattr(self, k) is None})

    def read_backbone(self) -> Pretrained:
        """Load the backbone that `backbone` names; it must not be None.

        Raises:
            AgentzooError: as `load_backbone`.
        """
        from agentzoo.nn.language.pretrained import load_backbone

        assert self.backbone is not None
        return load_backbone(self.backbone, self.backbone_revision)

    def records_of(self, found: Pretrained) -> dict[str, Any]:
        """The values of the fields in `recorded`, for this backbone."""
        return {"backbone_sha256": found.sha256()}

    def environment(self) -> dict[str, str]:
        """Co-training reads text."""
        return {TEXT_VARIABLE: "TEXTS"} if self.lm_weight else {}

    def origin(self) -> Origin:
        """The backbone, the language losses, and the nearest preset."""
        name = self.backbone
        if name is not None and (Path(name).is_absolute() or name.startswith((".", "~"))):
            name = Path(name).name
        terms = (
            Term("similarity to clusters of its word vectors", self.cosine_weight, self.cosine_decay_steps),
            Term("the next words of text", self.lm_weight, self.lm_decay_steps),
        )
        preset, departures = self._nearest_preset()
        return Origin(
            backbone=name,
            learned=LEARNED[self.architecture],
            adaptation=self.adaptation,
            losses=tuple(term for term in terms if term.weight),
            preset=preset,
            preset_paper=PRESET_PAPERS[preset],
            departures=departures,
        )

    def _nearest_preset(self) -> tuple[str, tuple[str, ...]]:
        """Its name and the fields that differ. Language losses do not count if there is no backbone."""
        plain = LanguageDTConfig.model_fields
        scratch = self.backbone is None
        departures = {
            name: tuple(
                f"{field}={getattr(self, field)}"
                for field in dict.fromkeys((*preset, *MAPS, *LOSSES))
                if not (scratch and field in LOSSES) and getattr(self, field) != preset.get(field, plain[field].default)
            )
            for name, preset in PRESETS.items()
        }
        return min(departures.items(), key=lambda one: len(one[1]))

    def deviations(self) -> tuple[str, ...]:
        """Differences from ChibiT, the preset `wikipedia`."""
        chibit = self._nearest_preset()[0] == "wikipedia"
        if not chibit or self.tie_action_head:
            return super().deviations()
        head = "the action head has weights of its own; the published script ties them to the action's input map"
        return (*super().deviations(), head)

    def sizes(self) -> Sizes:
        """The sizes of the blocks."""
        return Sizes(
            architecture=self.architecture,
            embed_dim=self.embed_dim,
            n_layers=self.n_layers,
            n_heads=self.n_heads,
            inner_dim=self.inner_dim or 4 * self.embed_dim,
            activation=self.activation,
            norm_eps=self.norm_eps,
            rotary_dim=self.rotary_dim,
        )


# Fields of the model only; learning rate, warm-up, decay and text belong to the recipe.
PRESETS: dict[str, dict[str, Any]] = {
    "markov": {"input_maps": "mlp", "head": "mlp", "positions": "fresh", "adaptation": "full", "dropout": 0.1},
    "lamo": {
        "input_maps": "mlp",
        "head": "mlp",
        "positions": "fresh",
        "adaptation": "lora",
        "dropout": 0.1,
        "backbone_lr": 0.1,
    },
    "wikipedia": {
        "input_maps": "linear",
        "head": "linear",
        "positions": "own",
        "timestep_rank": None,
        "adaptation": "full",
        "dropout": 0.2,
        "max_ep_len": 1024,
        "cosine_weight": 0.1,
        "lm_weight": 0.2,
    },
}
PRESET_PAPERS = {"markov": ZHAO, "lamo": SHI, "wikipedia": REID}
