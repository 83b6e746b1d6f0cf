"""New networks in the formats of transformers, to pre-train."""

from __future__ import annotations

from typing import Any

from agentzoo.research.peers import transformers_library


def new_language_model(
    vocab_size: int, embed_dim: int, n_layers: int, n_heads: int, positions: int, activation: str
) -> Any:
    """An untrained `transformers.GPT2LMHeadModel` without dropout."""
    transformers = transformers_library()
    config = transformers.GPT2Config(
        vocab_size=vocab_size,
        n_embd=embed_dim,
        n_layer=n_layers,
        n_head=n_heads,
        n_positions=positions,
        activation_function=activation,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        bos_token_id=0,
        eos_token_id=0,
        use_cache=False,
    )
    return transformers.GPT2LMHeadModel(config)


def new_clip_model(
    *,
    vocab_size: int,
    end_of_text: int,
    width: int,
    layers: int,
    heads: int,
    positions: int,
    vision_layers: int,
    projection: int,
    pixels: int,
    patch: int,
) -> Any:
    """An untrained `transformers.CLIPModel` whose towers are as wide; sentences are read at `end_of_text`."""
    transformers = transformers_library()
    common = {"hidden_size": width, "intermediate_size": 4 * width, "num_attention_heads": heads}
    common |= {"projection_dim": projection}
    text = {"vocab_size": vocab_size, "num_hidden_layers": layers, "max_position_embeddings": positions}
    text |= {"bos_token_id": end_of_text, "eos_token_id": end_of_text, "pad_token_id": end_of_text}
    vision = {"num_hidden_layers": vision_layers, "image_size": pixels, "patch_size": patch}
    config = transformers.CLIPConfig(
        text_config={**common, **text}, vision_config={**common, **vision}, projection_dim=projection
    )
    return transformers.CLIPModel(config)
