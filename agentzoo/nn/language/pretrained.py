"""The only file that imports transformers: backbones from its checkpoints.

Nothing here is needed to load or run a finished agent.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from agentzoo.errors import AgentzooError, CheckpointError, ConfigError, HubError, did_you_mean
from agentzoo.nn.language.gpt2 import ACTIVATIONS, Architecture, Sizes
from agentzoo.nn.language.tokenizer import TOKENIZER
from agentzoo.store.files import CONFIG
from agentzoo.store.remote import check_revision, fetch


def transformers_library() -> Any:
    """The module `transformers`.

    Raises:
        ConfigError: it is not installed.
    """
    try:
        import transformers
    except ImportError:
        raise ConfigError("transformers is not installed: pip install 'agentzoo[language]'.") from None
    return transformers


# -- backbones: checkpoints of four architectures, with the names of nn.language -------------------------------------

_GPT2 = {"ln_1": "ln_1", "attn.qkv": "attn.c_attn", "attn.proj": "attn.c_proj", "up": "mlp.c_fc", "down": "mlp.c_proj"}
_LAYERS: dict[str, dict[str, str | tuple[str, ...]]] = {  # ours -> theirs; several are stacked
    "gpt2": {**_GPT2, "ln_2": "ln_2"},
    "imagegpt": {**_GPT2, "ln_2": "ln_2"},
    "gptj": {
        "ln_1": "ln_1",
        "attn.qkv": ("attn.q_proj", "attn.k_proj", "attn.v_proj"),
        "attn.proj": "attn.out_proj",
        "up": "mlp.fc_in",
        "down": "mlp.fc_out",
    },
    "clip": {
        "ln_1": "layer_norm1",
        "attn.qkv": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
        "attn.proj": "self_attn.out_proj",
        "ln_2": "layer_norm2",
        "up": "mlp.fc1",
        "down": "mlp.fc2",
    },
}
_KINDS: dict[str, Architecture] = {
    "gpt2": "gpt2",
    "imagegpt": "imagegpt",
    "gptj": "gptj",
    "clip": "clip",
    "clip_text_model": "clip",
}
_OF_A_BLOCK = re.compile(r"(?:^|\.)(?:h|layers)\.\d+\.")
_MASKS = (".attn.bias", ".attn.masked_bias")  # constants that older checkpoints carry


class Pretrained(NamedTuple):
    """A checkpoint's transformer, without its heads."""

    name: str  # as it was asked for
    source: str  # folder or Hub id
    revision: str | None  # of the Hub
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
        from transformers.utils import cached_file

        try:
            found = cached_file(self.source, name, revision=self.revision, _raise_exceptions_for_missing_entries=False)
        except OSError as error:
            raise HubError(f"{name} of backbone {self.name!r} could not be fetched: {_first_line(error)}") from error
        return None if found is None else Path(found)


def load_backbone(name: str, revision: str | None = None) -> Pretrained:
    """A backbone by folder, by the id of a staged one (`lm-chibi`, `zoo/lm-chibi`), or by Hub id (`gpt2`).

    Args:
        revision: commit, tag or branch; asks for the Hub, where a staged one has the name too.

    Raises:
        ConfigError: an architecture, activation or option that is not known. CheckpointError: weights are missing, of
            other shapes than the config says, left over, or no safetensors. HubError: not here, and the Hub could not
            be reached or has no such model.
    """
    transformers = transformers_library()
    check_revision(revision)
    source, revision = _source(name, revision)
    if not Path(source).is_dir():
        _reach(name, source, revision)
    try:
        tree, _ = transformers.PretrainedConfig.get_config_dict(source, revision=revision)
    except (OSError, ValueError) as error:
        raise _not_loaded(name, source, error) from error
    kind = _kind(name, tree)
    os.environ.setdefault("DISABLE_SAFETENSORS_CONVERSION", "true")  # transformers would ask a service for them
    loader = transformers.CLIPTextModel if kind == "clip" else transformers.AutoModel
    try:
        with _quiet(transformers.logging):
            model, report = loader.from_pretrained(
                source,
                revision=revision,
                dtype=torch.float32,
                use_safetensors=True,
                ignore_mismatched_sizes=True,  # they are reported
                output_loading_info=True,
                **({} if kind == "clip" else {"trust_remote_code": False}),
            )
    except (OSError, ValueError, RuntimeError, SafetensorError) as error:
        raise _not_loaded(name, source, error) from error
    _require_whole(name, report)
    sizes = _sizes(name, kind, model.config)
    layers = model.encoder.layers if kind == "clip" else model.h
    final = model.final_layer_norm if kind == "clip" else model.ln_f
    blocks = {f"ln_f.{part}": value for part, value in final.named_parameters()}
    for i, layer in enumerate(layers):
        for ours, theirs in _LAYERS[kind].items():
            found = [layer.get_submodule(path) for path in ([theirs] if isinstance(theirs, str) else theirs)]
            blocks |= {f"blocks.{i}.{ours}.{part}": value for part, value in _stacked(found).items()}
    tables = model.embeddings if kind == "clip" else model
    tokens = tables.token_embedding if kind == "clip" else tables.wte
    places = {"clip": "position_embedding", "gpt2": "wpe", "imagegpt": "wpe"}.get(kind)
    return Pretrained(
        name=name,
        source=source,
        revision=revision,
        sizes=sizes,
        blocks={key: value.detach().clone() for key, value in blocks.items()},
        tokens=tokens.weight.detach().clone(),
        positions=None if places is None else getattr(tables, places).weight.detach().clone(),
        speaks_by_table=kind in ("gpt2", "gptj") and bool(getattr(model.config, "tie_word_embeddings", True)),
        end_of_text=_token_id(getattr(model.config, "eos_token_id", None)),
    )


def _reach(name: str, repo_id: str, revision: str | None) -> None:
    """Fetch the config alone: transformers asks an unreachable Hub again and again, for half a minute."""
    try:
        fetch(repo_id, [CONFIG], revision=revision, what="backbone")
    except HubError as error:
        raise HubError(
            f"{error}{did_you_mean(name, _backbones())} Without a network, name a folder that holds it, or train from "
            "random weights with --set model.backbone=null --set model.cosine_weight=0 --set model.lm_weight=0."
        ) from error


def _kind(name: str, config: Mapping[str, Any]) -> Architecture:
    """What a checkpoint's config says it is; read as text, so that no code it names is asked for."""
    model_type = config.get("model_type")
    if model_type in _KINDS:
        return _KINDS[model_type]
    if "agent_id" in config:
        raise ConfigError(
            f"{name!r} is an agent, not the language model one starts from. `agentzoo list` names those that are here; "
            "`agentzoo finetune` goes on from an agent."
        )
    what = "has a config.json that names no model_type" if model_type is None else f"is of architecture {model_type!r}"
    raise ConfigError(
        f"backbone {name!r} {what}; the families gpt2-dt and clip-dt know gpt2, imagegpt, gptj and clip (its text "
        "tower)."
    )


def _require_whole(name: str, report: Mapping[str, Any]) -> None:
    """Raise CheckpointError unless every weight of the transformer was there, of the right shape, and no block more."""
    lacking = sorted(key for key in report["missing_keys"] if not key.endswith(".attn.bias"))
    if lacking:
        raise CheckpointError(f"backbone {name!r} lacks {_among(lacking)}.")
    wrong = [f"{key} {tuple(there)}, not {tuple(said)}" for key, there, said in sorted(report["mismatched_keys"])]
    if wrong:
        raise CheckpointError(f"backbone {name!r} has other shapes than its config.json says: {_among(wrong)}.")
    spare = sorted(
        key
        for key in report["unexpected_keys"]
        if _OF_A_BLOCK.search(key) and "vision" not in key and not key.endswith(_MASKS)
    )
    if spare:
        raise CheckpointError(
            f"backbone {name!r} has more in its blocks than its config.json says: {_among(spare)}. Correct the config: "
            "an agent would begin with a part of the network only."
        )


def _among(names: Sequence[str]) -> str:
    """How many there are, and the first of them."""
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return f"{len(names)} {'tensor' if len(names) == 1 else 'tensors'}: {', '.join(names[:5])}{more}"


def _token_id(said: Any) -> int | None:
    """Configs name one token, several or none."""
    first = said[0] if isinstance(said, list) and said else said
    return first if isinstance(first, int) else None


@contextmanager
def _quiet(logging: Any) -> Iterator[None]:
    """No progress bar, and no report of tensors that are left in the file on purpose: heads, a tower of pictures."""
    shown, verbosity = logging.is_progress_bar_enabled(), logging.get_verbosity()
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if shown:
            logging.enable_progress_bar()


def _stacked(layers: list[nn.Module]) -> dict[str, Tensor]:
    """Parameters of one layer, or of several below each other, as `nn.Linear` has them: (out, in)."""
    found = {}
    for part in [name for name, _ in layers[0].named_parameters()]:
        values = [layer.get_parameter(part) for layer in layers]
        if type(layers[0]).__name__ == "Conv1D" and part == "weight":  # transformers stores these (in, out)
            values = [value.T for value in values]  # type: ignore[misc]
        found[part] = torch.cat(list(values))
    return found


def _sizes(name: str, kind: Architecture, config: Any) -> Sizes:
    for option in ("scale_attn_by_inverse_layer_idx", "add_cross_attention"):
        if getattr(config, option, False):
            raise ConfigError(f"backbone {name!r} sets {option}, which agentzoo's blocks do not have.")
    if not getattr(config, "scale_attn_weights", True):
        raise ConfigError(f"backbone {name!r} does not scale its attention; agentzoo's blocks do.")
    activation = config.hidden_act if kind == "clip" else config.activation_function
    if activation not in ACTIVATIONS:
        raise ConfigError(f"backbone {name!r} uses {activation!r}; known activations: {', '.join(ACTIVATIONS)}.")
    inner = config.intermediate_size if kind == "clip" else config.n_inner or 4 * config.hidden_size
    return Sizes(
        architecture=kind,
        embed_dim=config.hidden_size,
        n_layers=config.num_hidden_layers,
        n_heads=config.num_attention_heads,
        inner_dim=inner,
        activation=activation,
        norm_eps=config.layer_norm_eps if kind == "clip" else config.layer_norm_epsilon,
        rotary_dim=(config.rotary_dim or config.hidden_size // config.num_attention_heads) if kind == "gptj" else 0,
    )


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


def _not_loaded(name: str, source: str, error: Exception) -> AgentzooError:
    if "file named model.safetensors" in str(error):
        return CheckpointError(
            f"backbone {name!r} has no weights as safetensors, and nothing else is read: a .bin file is a pickle, "
            "which can run code. On the Hub a converter often left them on a pull request, so that "
            "--set model.backbone_revision=refs/pr/N finds them. Where you trust the .bin file, transformers makes a "
            "folder to name instead: "
            f"AutoModel.from_pretrained({name!r}, use_safetensors=False).save_pretrained(FOLDER)."
        )
    if Path(source).is_dir():
        return CheckpointError(f"backbone {name!r} in {source} cannot be loaded: {_first_line(error)}")
    return HubError(f"backbone {name!r} could not be fetched from the Hub: {_first_line(error)}")


def _backbones() -> Iterable[str]:
    from agentzoo.store.locate import staged_backbones  # upwards, so only here

    return staged_backbones()


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n")[0][:300]
