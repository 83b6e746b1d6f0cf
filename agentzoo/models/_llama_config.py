"""The config of families on the blocks of a Llama."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from agentzoo.models._language_config import LanguageDTConfig
from agentzoo.nn.base import Origin
from agentzoo.nn.language.block_sizes import HeadCount, InnerWidth, LayerCount, Sizes, Width
from agentzoo.nn.language.wheels import SHIPPED

if TYPE_CHECKING:
    from agentzoo.nn.language.pretrained import Pretrained


class LlamaConfig(LanguageDTConfig):
    """SmolLM2-135M's sizes; only the first `n_layers` layers are used."""

    staged_bytes: ClassVar[int] = 22_000_000
    selects: ClassVar[tuple[str, ...]] = (*LanguageDTConfig.selects, "start")

    architecture: Literal["llama"] = "llama"
    start: Literal["weights", "shuffled"] = "weights"  # shuffled: the entries of each matrix are permuted
    embed_dim: Width = 576
    n_layers: LayerCount = 3  # of the backbone's, from the first on
    n_heads: HeadCount = 9
    n_kv_heads: HeadCount = 3  # heads of keys and values; groups of query heads share one
    inner_dim: InnerWidth | None = 1536
    activation: Literal["silu"] = "silu"
    rotary_theta: Annotated[float, Field(gt=1.0, le=1e9)] = 100_000.0
    # Llama has no dropout
    dropout: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.0
    attention_dropout: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.0

    @model_validator(mode="after")
    def _heads_share(self) -> LlamaConfig:
        if self.n_heads % self.n_kv_heads:
            raise ValueError(f"n_kv_heads {self.n_kv_heads} must divide n_heads {self.n_heads}")
        if self.embed_dim // self.n_heads % 2:
            raise ValueError(f"rotary positions need heads of even size, not {self.embed_dim // self.n_heads}")
        if self.start == "shuffled" and self.backbone is None:
            raise ValueError("start=shuffled shuffles a backbone's weights; it needs a backbone")
        return self

    def sizes(self) -> Sizes:
        """Adds the number of key-value heads and the rotary frequency."""
        return super().sizes()._replace(n_kv_heads=self.n_kv_heads, rotary_theta=self.rotary_theta)

    def read_backbone(self) -> Pretrained:
        """Its first layers; shuffled for `start="shuffled"`."""
        from agentzoo.nn.language.pretrained import load_backbone
        from agentzoo.nn.language.shuffled import shuffled

        assert self.backbone is not None
        found = load_backbone(self.backbone, self.backbone_revision, self.n_layers)
        return shuffled(found) if self.start == "shuffled" else found

    def weights_license(self) -> str:
        """The backbone's license, if it is known."""
        known = None if self.backbone is None else SHIPPED.get(self.backbone)
        return super().weights_license() if known is None else known.license

    def origin(self) -> Origin:
        """Adds the layers in use, and the model's title if its file has a known name."""
        found = super().origin()
        if found.backbone is None:
            return found
        known = SHIPPED.get(found.backbone)
        title = found.backbone if known is None else known.title
        blocks = f"the first {self.n_layers} layers of {title}"
        if self.start == "weights":
            return found._replace(began=blocks)
        blocks += ", the entries of each matrix shuffled so that no language is left"
        return found._replace(began=blocks, backbone=f"{found.backbone}, shuffled", learned="language before that")
