"""The parts of language training that a finished agent lacks: token table, centroids and text."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, embedding, linear

from agentzoo.errors import CheckpointError, ConfigError, warn
from agentzoo.nn.language import corpus
from agentzoo.nn.language.backbone import LanguageBackbone
from agentzoo.nn.language.kmeans import cosine_loss, spherical_kmeans
from agentzoo.nn.language.tokenizer import TOKENIZER, end_of_text
from agentzoo.record import read_record

if TYPE_CHECKING:
    from agentzoo.nn.language.pretrained import Pretrained

TEXT_VARIABLE = "AGENTZOO_TEXT"  # a text file or a folder of .txt files
MARK = "text_sha256"


class Language(nn.Module):
    """Token table and centroids of a backbone, and text.

    The state dict is empty: a run stores them in its checkpoint (`tensors`, `load_tensors`), an agent does not.
    """

    tokens: nn.Parameter | None
    positions: nn.Parameter | None
    centroids: Tensor | None

    def __init__(
        self,
        centroids: Tensor | None,
        tokens: Tensor | None = None,
        positions: Tensor | None = None,
        text: Tensor | None = None,
    ) -> None:
        """`text` (n, T): chunks of token ids. `positions` is for an agent that has no position table of its own."""
        super().__init__()
        self.register_parameter("tokens", None if tokens is None else nn.Parameter(tokens.clone()))
        self.register_parameter("positions", None if positions is None else nn.Parameter(positions.clone()))
        self.register_buffer("centroids", centroids)
        self.text = text

    def cosine(self, inputs: Tensor, valid: Tensor) -> Tensor:
        """See `cosine_loss`."""
        assert self.centroids is not None
        return cosine_loss(inputs, self.centroids, valid)

    def next_token(self, backbone: LanguageBackbone, table: Tensor | None, drop: nn.Module, chunks: int) -> Tensor:
        """Mean next-token cross-entropy of `chunks` chunks of text, read through `backbone`.

        Args:
            table: (P, D), the agent's position table; None: this module's own.
        """
        assert self.tokens is not None
        assert self.text is not None
        places = table if table is not None else self.positions
        ids = self.text[torch.randint(len(self.text), (chunks,))].long().to(self.tokens.device)  # (chunks, T)
        x = embedding(ids[:, :-1], self.tokens)
        if places is not None:
            x = x + places[: x.shape[1]]
        logits = linear(backbone(drop(x)), self.tokens)
        return cross_entropy(logits.flatten(0, 1).float(), ids[:, 1:].flatten())

    def tensors(self) -> dict[str, Tensor]:
        """The tensors that an exact resume needs, and a hash of the text."""
        mark = {} if self.text is None else {MARK: _mark(self.text)}
        return {**self._parts(), **mark}

    def load_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        """Inverse of `tensors`.

        Raises:
            CheckpointError: the run used another text.
        """
        kept = tensors.get(MARK)
        if self.text is not None and kept is not None and not torch.equal(kept.cpu(), _mark(self.text)):
            raise CheckpointError(
                f"${TEXT_VARIABLE} ({os.environ.get(TEXT_VARIABLE)}) holds another text than this run began with. "
                "Set it to the original text, or start again in another folder (--out)."
            )
        with torch.no_grad():
            for name, value in self._parts().items():
                value.copy_(tensors[name])

    def _parts(self) -> dict[str, Tensor]:
        parts = {"tokens": self.tokens, "positions": self.positions, "centroids": self.centroids}
        return {name: value.detach() for name, value in parts.items() if value is not None}

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        """Stores nothing: a finished agent has no language head."""

    def _load_from_state_dict(self, state_dict: Mapping[str, Any], prefix: str, *rest: Any) -> None:
        """Loads nothing."""


def _mark(text: Tensor) -> Tensor:
    """(32,) bytes: the SHA-256 of token ids."""
    return torch.tensor(list(hashlib.sha256(text.contiguous().numpy().tobytes()).digest()), dtype=torch.uint8)


def make_centroids(found: Pretrained, count: int) -> Tensor:
    """`count` K-means centroids of a backbone's token table; deterministic."""
    return spherical_kmeans(found.tokens, count, torch.Generator().manual_seed(0))


def read_token_chunks(found: Pretrained, chunk: int) -> Tensor:
    """(n, chunk) token ids of the text in `$AGENTZOO_TEXT`, by the backbone's own tokenizer.

    If the backbone lists its training files (`corpus.json`), only those are read, without their held-out ends. If none
    of them exists, all files are read, with a warning.

    Raises:
        ConfigError: no text is named. CheckpointError: the backbone has no tokenizer. DataError: unreadable text.
    """
    where = os.environ.get(TEXT_VARIABLE)
    if not where:
        raise ConfigError(
            f"co-training with language reads text: set ${TEXT_VARIABLE} to a text file or a folder of .txt files, "
            "or switch it off with --set model.lm_weight=0."
        )
    tokenizer = found.tokenizer()
    if tokenizer is None:
        raise CheckpointError(
            f"backbone {found.name!r} has no {TOKENIZER}, so text cannot be tokenized. Put the tokenizer beside the "
            "weights, or switch co-training off with --set model.lm_weight=0."
        )
    files = corpus.text_files([Path(where)])
    documents = [corpus.read_document(file) for file in files]
    kept = found.file(corpus.CORPUS)
    if kept is not None:
        record = read_record(corpus.CorpusRecord, kept)
        trained = {one.sha256 for one in record.training}
        known = [file for file, one in zip(files, documents, strict=True) if one.record.sha256 in trained]
        there = {one.record.sha256 for one in documents}
        absent = [one.name for one in record.training if one.sha256 not in there]
        documents = [corpus.read_document(file, record.held_out) for file in known] or documents
        if not known:
            warn(
                f"backbone {found.name!r} was trained on none of the {len(files)} files of {where}: all of them are "
                "read, even text it may have been validated on.",
                depth=2,
            )
        elif absent:
            warn(
                f"backbone {found.name!r} was trained on {len(record.training)} files, of which {where} has "
                f"{len(known)}: {', '.join(absent)} will not be read.",
                depth=2,
            )
    texts = [one.text for one in documents]
    try:
        end = end_of_text(tokenizer, found.end_of_text)
    except CheckpointError as error:
        raise CheckpointError(
            f"backbone {found.name!r}: {error} Switch co-training off with --set model.lm_weight=0."
        ) from None
    tokens = corpus.tokenize(texts, tokenizer, end)
    if int(tokens.ids.max()) >= len(found.tokens):
        raise CheckpointError(
            f"the tokenizer of backbone {found.name!r} has a token {int(tokens.ids.max())}, but its table holds "
            f"{len(found.tokens)} tokens: the two do not belong together."
        )
    return tokens.chunks(chunk)
