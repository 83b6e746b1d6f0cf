"""Networks of transformers that do the work of ours, to compare with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from agentzoo.errors import ConfigError

if TYPE_CHECKING:
    from agentzoo.models.dt import DecisionTransformer


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


def as_transformers_decision_transformer(model: DecisionTransformer) -> Any:
    """`transformers.DecisionTransformerModel` with the weights of `model`, in eval mode.

    Its backbone adds row 0 of a learned position table to every token; the table is zeroed here, which the published
    architecture amounts to.
    """
    transformers = transformers_library()
    config = model.config
    peer = transformers.DecisionTransformerModel(
        transformers.DecisionTransformerConfig(
            state_dim=model.io.observation.size,
            act_dim=model.io.action.size,
            hidden_size=config.embed_dim,
            max_ep_len=config.max_ep_len,
            n_layer=config.n_layers,
            n_head=config.n_heads,
            n_inner=4 * config.embed_dim,
            activation_function=config.activation,
            resid_pdrop=config.dropout,
            embd_pdrop=config.dropout,
            attn_pdrop=config.dropout,
        )
    )
    pairs: list[tuple[nn.Module, nn.Module]] = [
        (peer.embed_return, model.embed_return),
        (peer.embed_state, model.embed_obs),
        (peer.embed_action, model.embed_action),
        (peer.embed_timestep, model.embed_timestep),
        (peer.embed_ln, model.embed_ln),
        (peer.predict_action[0], model.predict_action),
        (peer.encoder.ln_f, model.backbone.ln_f),
    ]
    for theirs, module in zip(peer.encoder.h, model.backbone.blocks, strict=True):
        block: Any = module
        pairs += [
            (theirs.ln_1, block.ln_1),
            (theirs.attn.c_attn, block.attn.qkv),
            (theirs.attn.c_proj, block.attn.proj),
            (theirs.ln_2, block.ln_2),
            (theirs.mlp.c_fc, block.up),
            (theirs.mlp.c_proj, block.down),
        ]
    with torch.no_grad():
        peer.encoder.wpe.weight.zero_()
        for theirs, ours in pairs:
            for name, value in ours.named_parameters():
                target = theirs.get_parameter(name)
                transposed = type(theirs).__name__ == "Conv1D" and name == "weight"  # (in, out), not (out, in)
                target.copy_(value.T if transposed else value)
    return peer.eval()


def mamba_of_sizes(embed_dim: int, state_size: int, n_layers: int) -> Any:
    """An untrained `transformers.MambaModel` without cache, to time against."""
    transformers = transformers_library()
    sizes = {"hidden_size": embed_dim, "state_size": state_size, "num_hidden_layers": n_layers}
    return transformers.MambaModel(transformers.MambaConfig(vocab_size=2, use_cache=False, **sizes))
