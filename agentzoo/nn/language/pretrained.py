"""Backbones: checkpoints of five architectures, read under the names of `nn.language`. No other module reads them.

A checkpoint is untrusted. `foreign_config` reads its `config.json`, `layouts` compares its sizes with the header of its
tensors, and only then are numbers read. No other library builds it. A finished agent needs none of this.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

from agentzoo.errors import CheckpointError, ConfigError, HubError, did_you_mean
from agentzoo.nn.language.block_sizes import Sizes
from agentzoo.nn.language.corpus import CORPUS
from agentzoo.nn.language.foreign_config import read_foreign_config
from agentzoo.nn.language.layouts import LAYOUTS, POSITIONS, TOKENS, Opened
from agentzoo.nn.language.llama_gguf import open_gguf
from agentzoo.nn.language.tokenizer import TOKENIZER, load_tokenizer, parse_tokenizer
from agentzoo.nn.language.wheels import gguf_path
from agentzoo.store.downloads import Where, check_revision, fetch, is_repo_id
from agentzoo.store.files import CONFIG, WEIGHTS, in_home
from agentzoo.store.tensors import check_header, read_tensors

_SPLIT = f"{WEIGHTS}.index.json"  # maps tensors to one of several files
_FILES = (CONFIG, WEIGHTS, _SPLIT, TOKENIZER, CORPUS)


class Pretrained(NamedTuple):
    """A checkpoint's transformer, without its heads."""

    name: str  # as the caller gave it
    source: str  # folder, GGUF file or Hub id
    folder: Path  # of its files
    sizes: Sizes
    blocks: dict[str, Tensor]  # the state dict of a `LanguageBackbone`
    tokens: Tensor  # (V, D): the token table
    positions: Tensor | None  # (P, D): the position table; gptj has none
    has_tied_head: bool  # its next-token head is the token table
    end_of_text: int | None  # id of the token that ends a document, if the checkpoint has it

    digest: str | None = None  # of its one file, if recipes pin that
    words: str | None = None  # the text of a tokenizer.json, if that file holds one

    def sha256(self) -> str:
        """The hash of its file; else of all its numbers and its tokenizer."""
        if self.digest is not None:
            return self.digest
        found = hashlib.sha256()
        tables = {"tokens": self.tokens, "positions": self.positions}
        for name, value in sorted({**self.blocks, **tables}.items()):
            if value is not None:
                found.update(name.encode())
                found.update(value.contiguous().numpy().tobytes())
        tokenizer = self.file(TOKENIZER)
        if tokenizer is not None:
            found.update(tokenizer.read_bytes())
        return found.hexdigest()

    def file(self, name: str) -> Path | None:
        """The path of another file of the checkpoint, or None."""
        path = self.folder / name
        return path if self.digest is None and path.is_file() else None

    def tokenizer(self) -> Any:
        """Its tokenizer, of the package `tokenizers`, or None.

        Raises:
            CheckpointError: it is broken. ConfigError: the package is not installed.
        """
        if self.words is not None:
            return parse_tokenizer(self.words, f"the tokenizer of backbone {self.name!r}")
        path = self.file(TOKENIZER)
        return None if path is None else load_tokenizer(path)


def load_backbone(name: str, revision: str | None = None, layers: int | None = None) -> Pretrained:
    """Load a backbone: a folder, a staged one (`lm-chibi`, `zoo/lm-chibi`), a Hub id (`gpt2`), a GGUF file, or one from
    a PyPI package (`smollm2-135m-instruct`).

    Args:
        name: as above.
        revision: commit, tag or branch on the Hub. A staged backbone of this name is then not used.
        layers: how many to read, from the first on, beside the final norm; None: all.

    Raises:
        ConfigError: an unknown architecture, key or value, or fewer layers. CheckpointError: weights are missing,
            unknown, not finite, of other shapes than the config says, or of a type that is not read. HubError: it is
            not on this machine, and the Hub cannot be reached or has no such model.
    """
    check_revision(revision)
    path = gguf_path(name)
    if path is None:
        source, folder, opened = _open_folder(name, revision)
    elif revision is None:
        source, folder, opened = str(path), path.parent, open_gguf(name, path)
    else:
        raise ConfigError(f"backbone {name!r} is a file; only a Hub repo has revisions.")
    try:
        found = opened.tensors(name, layers)
    except CheckpointError as error:
        raise CheckpointError(f"backbone {name!r} cannot be loaded: {error}") from error
    described = opened.described
    return Pretrained(
        name=name,
        source=source,
        folder=folder,
        sizes=described.sizes if layers is None else described.sizes._replace(n_layers=layers),
        tokens=found.pop(TOKENS),
        positions=found.pop(POSITIONS, None),
        blocks=found,
        has_tied_head=described.has_tied_head,
        end_of_text=described.end_of_text,
        digest=opened.sha256,
        words=opened.tokenizer,
    )


def _open_folder(name: str, revision: str | None) -> tuple[str, Path, Opened]:
    """A local folder or one from the Hub: its source, the path of its files, its config and header."""
    source = _source(name, revision)
    folder = _fetched(name, source, [CONFIG]) if isinstance(source, Where) else source
    described = read_foreign_config(name, folder / CONFIG)
    if isinstance(source, Where):
        folder = _fetched(name, source._replace(revision=folder.name), _FILES)  # of the same commit
    path = folder / WEIGHTS
    _require_safetensors(name, path)
    try:
        header = check_header(path)
    except CheckpointError as error:
        raise CheckpointError(f"backbone {name!r} cannot be loaded: {error}") from error

    @cache
    def tensors() -> dict[str, Tensor]:
        return read_tensors(path)[0]

    def read(tensor: str) -> Tensor:
        if tensor not in tensors():
            raise CheckpointError("its weights changed while they were read. Load it again.")
        return tensors()[tensor]

    named = source.repo_id if isinstance(source, Where) else str(source)
    return named, folder, Opened(described, LAYOUTS[described.sizes.architecture], header, read)


def _fetched(name: str, where: Where, files: Sequence[str]) -> Path:
    try:
        return fetch(where.repo_id, files, revision=where.revision, what="backbone")
    except HubError as error:
        raise HubError(
            f"{error}{did_you_mean(name, _backbones())} Without a network, name a folder that holds it, or train from "
            "random weights with --set model.backbone=null --set model.cosine_weight=0 --set model.lm_weight=0."
        ) from error


def _source(name: str, revision: str | None) -> Path | Where:
    """The folder that `name` means, or the Hub's repo and revision."""
    from agentzoo.store.index import hub_location
    from agentzoo.store.locate import local_zoo  # upwards, so only here

    folder, hub_id = in_home(name), is_repo_id(name) or is_repo_id(f"OWNER/{name}")  # a few, like gpt2, have no owner
    if folder.is_dir() and revision is not None and not hub_id:
        raise ConfigError(f"backbone {name!r} is a folder; only a Hub repo has revisions.")
    if folder.is_dir() and revision is None:
        return folder if (folder / CONFIG).exists() else _inside(name, folder)
    zoo, plain = local_zoo(), name.removeprefix("zoo/")
    if revision is None and zoo is not None and "/" not in plain and (zoo / plain / CONFIG).is_file():
        return zoo / plain
    if name.startswith("zoo/") or ("/" not in plain and plain.startswith(("lm-", "clip-mini"))):
        location = hub_location(plain)
        if location is not None:
            return Where(location.repo_id, revision or location.revision)
        near = did_you_mean(plain, _backbones())
        raise CheckpointError(
            f"backbone {name!r} is not in the local zoo ({zoo}), and the index has no Hub repo for it.{near} "
            "`agentzoo research pretrain` makes one; $AGENTZOO_ZOO sets another folder to look in, and "
            f"--set model.backbone=OWNER/{plain} a repo."
        )
    return Where(name, revision)


def _inside(name: str, folder: Path) -> Path:
    """The model in a run's folder of `agentzoo research pretrain`."""
    if (folder / "hub" / CONFIG).is_file():
        return folder / "hub"
    raise CheckpointError(f"backbone {name!r} is a folder without a {CONFIG}.")


def _require_safetensors(name: str, path: Path) -> None:
    if path.exists():
        return
    if path.with_name(_SPLIT).exists():
        raise CheckpointError(
            f"backbone {name!r} is split into several files, but agentzoo reads a single one. transformers makes it: "
            f"AutoModel.from_pretrained({name!r}).save_pretrained(FOLDER, max_shard_size='100GB'); pass that folder."
        )
    raise CheckpointError(
        f"backbone {name!r} has no weights as safetensors, and nothing else is read: a .bin file is a pickle, "
        "which can run code. On the Hub a pull request often has them: --set model.backbone_revision=refs/pr/N. If "
        "you trust the .bin file, convert it with transformers and pass the new folder: "
        f"AutoModel.from_pretrained({name!r}, use_safetensors=False).save_pretrained(FOLDER)."
    )


def _backbones() -> Iterable[str]:
    from agentzoo.store.locate import staged_backbones  # upwards, so only here

    return staged_backbones()
