"""Networks of transformers that match ours, for comparison."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from agentzoo.extras import needed
from agentzoo.nn.language.backbone import LanguageBackbone
from agentzoo.nn.language.block_sizes import Sizes
from agentzoo.nn.language.layouts import LAYOUTS

if TYPE_CHECKING:
    from agentzoo.models.dt import DecisionTransformer


def transformers_library() -> Any:
    """The module `transformers`.

    Raises:
        ConfigError: it is not installed.
    """
    return needed("transformers", "language", "a comparison with transformers")


def as_transformers_decision_transformer(model: DecisionTransformer) -> Any:
    """`transformers.DecisionTransformerModel` with the weights of `model`, in eval mode.

    Its backbone adds row 0 of a learned position table to every token. The table is zeroed here, which gives the
    published architecture.
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


def llama_with_the_weights_of(blocks: LanguageBackbone, sizes: Sizes) -> Any:
    """`transformers.LlamaModel` with sdpa attention and the weights of our Llama blocks, in eval mode."""
    transformers = transformers_library()
    config = transformers.LlamaConfig(
        vocab_size=2,
        hidden_size=sizes.embed_dim,
        intermediate_size=sizes.inner_dim,
        num_hidden_layers=sizes.n_layers,
        num_attention_heads=sizes.n_heads,
        num_key_value_heads=sizes.n_kv_heads,
        bos_token_id=0,
        eos_token_id=1,
        rms_norm_eps=sizes.norm_eps,
        rope_parameters={"rope_type": "default", "rope_theta": sizes.rotary_theta},
        attn_implementation="sdpa",
    )
    peer = transformers.LlamaModel(config)
    state = {"norm.weight": blocks.ln_f.get_parameter("weight"), "embed_tokens.weight": peer.embed_tokens.weight}
    for name, value in blocks.blocks.state_dict().items():
        index, layer = name.removesuffix(".weight").split(".", 1)
        theirs = LAYOUTS["llama"].layers[layer]
        names = (theirs,) if isinstance(theirs, str) else theirs
        rows = blocks.rows_of(f"blocks.{index}.{layer}") or (len(value),)
        for one, part in zip(names, torch.split(value, list(rows)), strict=True):
            state[f"layers.{index}.{one}.weight"] = part
    peer.load_state_dict(state)
    return peer.eval()
