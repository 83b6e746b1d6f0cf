"""Backbones: checkpoints of four architectures, with the names of nn.language. Nothing else reads them.

A checkpoint is a stranger's. Its `config.json` is read by `foreign_config`, its sizes are compared with the header of
its tensors, and only then is a number read: no other library builds what they say. Nothing here is needed to load or
run a finished agent.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from agentzoo.errors import CheckpointError, HubError, did_you_mean
from agentzoo.nn.language.foreign_config import Described, read_foreign_config
from agentzoo.nn.language.gpt2 import Architecture, LanguageBackbone, Sizes
from agentzoo.nn.language.tokenizer import TOKENIZER
from agentzoo.store.files import CONFIG, WEIGHTS
from agentzoo.store.remote import check_revision, fetch
from agentzoo.store.tensors import check_header, read_tensors

CORPUS = "corpus.json"  # the text it was trained on, where it was made here
_SPLIT = f"{WEIGHTS}.index.json"  # says which of several files holds a tensor
_FILES = (CONFIG, WEIGHTS, _SPLIT, TOKENIZER, CORPUS)
_MASKS = (".attn.bias", ".attn.masked_bias")  # constants that older checkpoints carry
_TOKENS, _POSITIONS = "tokens", "positions"  # beside the names of a `LanguageBackbone`
_FLOATS = ("F64", "F32", "F16", "BF16")


@dataclass(frozen=True)
class _Layout:
    """Where an architecture keeps its tensors, as transformers names them. Several names are stacked."""

    tokens: str
    positions: str | None
    blocks: str
    final: str
    layers: Mapping[str, str | tuple[str, ...]]  # ours -> theirs
    turned: bool  # its linear layers hold (in, out), as `Conv1D` does


_GPT2 = {
    "ln_1": "ln_1",
    "attn.qkv": "attn.c_attn",
    "attn.proj": "attn.c_proj",
    "ln_2": "ln_2",
    "up": "mlp.c_fc",
    "down": "mlp.c_proj",
}
_LAYOUTS: dict[Architecture, _Layout] = {
    "gpt2": _Layout("wte", "wpe", "h", "ln_f", _GPT2, turned=True),
    "imagegpt": _Layout("wte", "wpe", "h", "ln_f", _GPT2, turned=True),
    "gptj": _Layout(
        "wte",
        None,
        "h",
        "ln_f",
        {
            "ln_1": "ln_1",
            "attn.qkv": ("attn.q_proj", "attn.k_proj", "attn.v_proj"),
            "attn.proj": "attn.out_proj",
            "up": "mlp.fc_in",
            "down": "mlp.fc_out",
        },
        turned=False,
    ),
    "clip": _Layout(
        "embeddings.token_embedding",
        "embeddings.position_embedding",
        "encoder.layers",
        "final_layer_norm",
        {
            "ln_1": "layer_norm1",
            "attn.qkv": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
            "attn.proj": "self_attn.out_proj",
            "ln_2": "layer_norm2",
            "up": "mlp.fc1",
            "down": "mlp.fc2",
        },
        turned=False,
    ),
}


class _Part(NamedTuple):
    """A tensor of the file that is, or is a part of, one of ours."""

    name: str
    shape: tuple[int, ...]
    turned: bool


class Pretrained(NamedTuple):
    """A checkpoint's transformer, without its heads."""

    name: str  # as it was asked for
    source: str  # folder or Hub id
    folder: Path  # where its files are
    sizes: Sizes
    blocks: dict[str, Tensor]  # the state dict of a `LanguageBackbone`
    tokens: Tensor  # (V, D): the token table
    positions: Tensor | None  # (P, D): the position table; gptj has none
    speaks_by_table: bool  # its next-token head is the token table
    end_of_text: int | None  # id of the token that ends a document, where the checkpoint says so

    def sha256(self) -> str:
        """Of all its numbers, and of its tokenizer where it has one."""
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
        """The path of another file of the checkpoint, or None where it has none."""
        path = self.folder / name
        return path if path.is_file() else None


def load_backbone(name: str, revision: str | None = None) -> Pretrained:
    """A backbone by folder, by the id of a staged one (`lm-chibi`, `zoo/lm-chibi`), or by Hub id (`gpt2`).

    Args:
        revision: commit, tag or branch; asks for the Hub, where a staged one has the name too.

    Raises:
        ConfigError: an architecture, key or value that is not known. CheckpointError: weights are missing, of other
            shapes than the config says, left over, not finite, or no safetensors. HubError: not here, and the Hub
            could not be reached or has no such model.
    """
    check_revision(revision)
    source, revision = _source(name, revision)
    folder = Path(source)
    if not folder.is_dir():
        folder = _fetched(name, source, revision, [CONFIG])
    described = read_foreign_config(name, folder / CONFIG)
    if not Path(source).is_dir():
        folder = _fetched(name, source, folder.name, _FILES)  # of the same commit
    layout = _LAYOUTS[described.sizes.architecture]
    path = folder / WEIGHTS
    _require_safetensors(name, path)
    try:
        header = check_header(path)
        prefix = _prefix(header, layout)
        wanted = _wanted(described, layout, prefix)
        _require_whole(name, header, wanted, f"{prefix}{layout.blocks}.")
        tensors, _ = read_tensors(path)
    except CheckpointError as error:
        raise CheckpointError(f"backbone {name!r} cannot be loaded: {error}") from error
    found = {ours: _stacked(name, tensors, parts) for ours, parts in wanted.items()}
    return Pretrained(
        name=name,
        source=source,
        folder=folder,
        sizes=described.sizes,
        tokens=found.pop(_TOKENS),
        positions=found.pop(_POSITIONS, None),
        blocks=found,
        speaks_by_table=described.speaks_by_table,
        end_of_text=described.end_of_text,
    )


def _fetched(name: str, repo_id: str, revision: str | None, files: Sequence[str]) -> Path:
    try:
        return fetch(repo_id, files, revision=revision, what="backbone")
    except HubError as error:
        raise HubError(
            f"{error}{did_you_mean(name, _backbones())} Without a network, name a folder that holds it, or train from "
            "random weights with --set model.backbone=null --set model.cosine_weight=0 --set model.lm_weight=0."
        ) from error


def _prefix(header: Mapping[str, object], layout: _Layout) -> str:
    """What stands before the transformer's names: `transformer.` in a whole language model, nothing in a bare one."""
    ending = f"{layout.tokens}.weight"
    found = [name.removesuffix(ending) for name in header if name == ending or name.endswith(f".{ending}")]
    if len(found) > 1:
        raise CheckpointError(f"it has {_among(sorted(f'{prefix}{ending}' for prefix in found))}, where one is enough.")
    return found[0] if found else ""


def _wanted(described: Described, layout: _Layout, prefix: str) -> dict[str, list[_Part]]:
    """Our name -> the file's tensors it is made of, with the shapes that the config says. Nothing is allocated."""
    sizes = described.sizes
    with torch.device("meta"):
        ours = LanguageBackbone(sizes).state_dict()
    wanted = {}
    for key, value in ours.items():
        module, part = key.rsplit(".", 1)
        theirs: str | tuple[str, ...] = layout.final
        at = prefix
        if module != "ln_f":
            _, index, layer = module.split(".", 2)
            theirs, at = layout.layers[layer], f"{prefix}{layout.blocks}.{index}."
        names = (theirs,) if isinstance(theirs, str) else theirs
        shape = (value.shape[0] // len(names), *value.shape[1:])
        turned = layout.turned and len(shape) == 2
        wanted[key] = [_Part(f"{at}{one}.{part}", shape[::-1] if turned else shape, turned) for one in names]
    wanted[_TOKENS] = [_Part(f"{prefix}{layout.tokens}.weight", (described.vocab_size, sizes.embed_dim), False)]
    if layout.positions is not None and described.positions is not None:
        shape = (described.positions, sizes.embed_dim)
        wanted[_POSITIONS] = [_Part(f"{prefix}{layout.positions}.weight", shape, False)]
    return wanted


def _require_whole(
    name: str, header: Mapping[str, tuple[str, tuple[int, ...]]], wanted: Mapping[str, list[_Part]], blocks: str
) -> None:
    """Raise CheckpointError unless every weight of the transformer is there, of the right shape, and no block more."""
    parts = {part.name: part.shape for several in wanted.values() for part in several}
    lacking = sorted(set(parts) - set(header))
    if lacking:
        raise CheckpointError(f"it lacks {_among(lacking)}.")
    wrong = [f"{key} {header[key][1]}, not {shape}" for key, shape in sorted(parts.items()) if header[key][1] != shape]
    if wrong:
        raise CheckpointError(f"it has other shapes than its config.json says: {_among(wrong)}.")
    kinds = sorted({header[key][0] for key in parts} - set(_FLOATS))
    if kinds:
        raise CheckpointError(f"it holds weights of type {', '.join(kinds)}; read are {', '.join(_FLOATS)}.")
    spare = sorted(key for key in header if key.startswith(blocks) and key not in parts and not key.endswith(_MASKS))
    if spare:
        raise CheckpointError(
            f"it has more in its blocks than its config.json says: {_among(spare)}. Correct the config: an agent would "
            "begin with a part of the network only."
        )


def _among(names: Sequence[str]) -> str:
    """How many there are, and the first of them."""
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return f"{len(names)} {'tensor' if len(names) == 1 else 'tensors'}: {', '.join(names[:5])}{more}"


def _stacked(name: str, tensors: Mapping[str, Tensor], parts: Sequence[_Part]) -> Tensor:
    """One of our tensors in float32, from the file's, below each other: (out, in)."""
    values = []
    for part in parts:
        value = tensors.get(part.name)
        if value is None or tuple(value.shape) != part.shape:
            raise CheckpointError(f"the weights of backbone {name!r} changed while they were read. Load it again.")
        value = value.to(torch.float32)
        if not torch.isfinite(value).all():
            raise CheckpointError(f"backbone {name!r} holds numbers that are not finite, in {part.name}.")
        values.append(value.T if part.turned else value)
    return torch.cat(values).contiguous() if len(values) > 1 else values[0].contiguous()


def _source(name: str, revision: str | None) -> tuple[str, str | None]:
    """The folder `name` stands for, or the Hub's repo and revision."""
    from agentzoo.store.locate import hub_location, local_zoo  # upwards, so only here

    if (folder := Path(name).expanduser()).is_dir():
        return str(folder if (folder / CONFIG).exists() else _inside(name, folder)), None
    zoo, plain = local_zoo(), name.removeprefix("zoo/")
    if revision is None and zoo is not None and "/" not in plain and (zoo / plain / CONFIG).is_file():
        return str(zoo / plain), None
    if name.startswith("zoo/") or ("/" not in plain and plain.startswith(("lm-", "clip-mini"))):
        location = hub_location(plain)
        if location is not None:
            return location.repo_id, revision or location.revision
        near = did_you_mean(plain, _backbones())
        raise CheckpointError(
            f"backbone {name!r} is not in the local zoo ({zoo}), nor does the index name a Hub repo for it.{near} "
            "`agentzoo research pretrain` makes one; $AGENTZOO_ZOO names another folder to look in, and "
            f"--set model.backbone=OWNER/{plain} a repo."
        )
    return name, revision


def _inside(name: str, folder: Path) -> Path:
    """The model that `agentzoo research pretrain` left in a run's folder."""
    if (folder / "hub" / CONFIG).is_file():
        return folder / "hub"
    raise CheckpointError(f"backbone {name!r} is a folder without a {CONFIG}.")


def _require_safetensors(name: str, path: Path) -> None:
    if path.exists():
        return
    if path.with_name(_SPLIT).exists():
        raise CheckpointError(
            f"backbone {name!r} is split into several files, and one is read. transformers makes a folder to name "
            f"instead: AutoModel.from_pretrained({name!r}).save_pretrained(FOLDER, max_shard_size='100GB')."
        )
    raise CheckpointError(
        f"backbone {name!r} has no weights as safetensors, and nothing else is read: a .bin file is a pickle, "
        "which can run code. On the Hub a converter often left them on a pull request, so that "
        "--set model.backbone_revision=refs/pr/N finds them. Where you trust the .bin file, transformers makes a "
        "folder to name instead: "
        f"AutoModel.from_pretrained({name!r}, use_safetensors=False).save_pretrained(FOLDER)."
    )


def _backbones() -> Iterable[str]:
    from agentzoo.store.locate import staged_backbones  # upwards, so only here

    return staged_backbones()
