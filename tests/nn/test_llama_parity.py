"""Our Llama blocks against transformers' `LlamaModel`: random weights of several shapes, and SmolLM2's own."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import gguf
import pytest
import torch
import transformers
from torch import nn

from agentzoo.errors import CheckpointError, ConfigError
from agentzoo.nn.language.backbone import LanguageBackbone
from agentzoo.nn.language.language_attention import LanguageAttention
from agentzoo.nn.language.pretrained import load_backbone
from agentzoo.nn.language.wheels import shipped_file
from agentzoo.nn.tokens import STATE_TOKENS
from agentzoo.research.analysis.layers import attention_layers

SMOLLM = "smollm2-135m-instruct"
SHAPES: dict[str, dict[str, Any]] = {
    "grouped": {"hidden_size": 48, "num_attention_heads": 6, "num_key_value_heads": 2, "intermediate_size": 80},
    "one for all": {"hidden_size": 32, "num_attention_heads": 4, "num_key_value_heads": 1, "intermediate_size": 64},
    "each its own": {"hidden_size": 32, "num_attention_heads": 4, "num_key_value_heads": 4, "intermediate_size": 40},
    "slow turns": {
        "hidden_size": 48,
        "num_attention_heads": 3,
        "num_key_value_heads": 1,
        "intermediate_size": 56,
        "rope_theta": 100_000.0,
        "rms_norm_eps": 1e-3,
    },
}


def peer(shape: str) -> Any:
    """A random model with weights so large that every part of it matters."""
    torch.manual_seed(0)
    config = transformers.LlamaConfig(vocab_size=60, num_hidden_layers=3, **SHAPES[shape])
    model = transformers.LlamaModel(config)
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.3)
    return model.eval()


@pytest.fixture(params=SHAPES)
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Any, Any, LanguageBackbone]:
    """Their model, what we read of the folder it was saved to, and our blocks with that."""
    theirs = peer(request.param)
    theirs.save_pretrained(tmp_path)
    return theirs, *ours_of(str(tmp_path))


@pytest.mark.parametrize("queries", [slice(None), STATE_TOKENS])
def test_grouped_queries_take_the_layout_of_a_cuda_kernel(queries: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """On CUDA the kernel's result is not contiguous: heads and length lie in memory the other way round."""
    layer = LanguageAttention(24, 6, 2, bias=False, dropout=0.0, rotary=None, lora=None).eval()
    x = torch.randn(3, 9, 24, generator=torch.Generator().manual_seed(0))
    expected = layer(x, queries)
    kernel = nn.functional.scaled_dot_product_attention
    asked = []

    def transposed(*args: Any, **kwargs: Any) -> torch.Tensor:
        asked.append(args)
        return kernel(*args, **kwargs).transpose(1, 2).contiguous().transpose(1, 2)

    monkeypatch.setattr("agentzoo.nn.language.language_attention.scaled_dot_product_attention", transposed)
    torch.testing.assert_close(layer(x, queries), expected, rtol=0, atol=0)
    assert asked


def ours_of(name: str, layers: int | None = None) -> tuple[Any, LanguageBackbone]:
    found = load_backbone(name, layers=layers)
    blocks = LanguageBackbone(found.sizes).eval()
    blocks.load_state_dict(found.blocks)
    return found, blocks


def test_blocks_give_the_numbers_of_transformers(pair: tuple[Any, Any, LanguageBackbone]) -> None:
    theirs, found, ours = pair
    ids = torch.randint(60, (4, 17), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        expected = theirs(input_ids=ids).last_hidden_state
        assert expected.abs().max() > 0.5
        torch.testing.assert_close(ours(found.tokens[ids]), expected, atol=1e-5, rtol=0)


def test_padding_on_the_right_changes_no_real_token(pair: tuple[Any, Any, LanguageBackbone]) -> None:
    theirs, found, ours = pair
    generator = torch.Generator().manual_seed(2)
    ids = torch.randint(60, (4, 17), generator=generator)
    valid = torch.arange(17)[None] < torch.tensor([17, 1, 9, 13])[:, None]
    junk = torch.where(valid, ids, torch.randint(60, ids.shape, generator=generator))
    with torch.no_grad():
        masked = theirs(input_ids=ids, attention_mask=valid.long()).last_hidden_state
        torch.testing.assert_close(ours(found.tokens[junk])[valid], masked[valid], atol=1e-5, rtol=0)
        assert torch.equal(ours(found.tokens[junk])[valid], ours(found.tokens[ids])[valid])


def test_reading_some_tokens_gives_the_numbers_of_reading_all(pair: tuple[Any, Any, LanguageBackbone]) -> None:
    _, found, ours = pair
    x = torch.randn(3, 12, found.sizes.embed_dim, generator=torch.Generator().manual_seed(3))
    each = torch.tensor([1, 10, 4])
    with torch.no_grad():
        whole = ours(x)
        for read in (STATE_TOKENS, slice(10, 11)):
            torch.testing.assert_close(ours(x, read), whole[:, read], atol=1e-5, rtol=0)
        torch.testing.assert_close(ours(x, each)[:, 0], whole[torch.arange(3), each], atol=1e-5, rtol=0)


def test_training_mode_without_dropout_equals_acting(pair: tuple[Any, Any, LanguageBackbone]) -> None:
    _, found, ours = pair
    x = torch.randn(2, 9, found.sizes.embed_dim, generator=torch.Generator().manual_seed(5))
    for drops in ((1e-9, 1e-9), (0.0, 0.0)):  # so small that nothing drops, on the training path; and no dropout
        trained = LanguageBackbone(found.sizes, *drops).train()
        trained.load_state_dict(found.blocks)
        for read in (None, STATE_TOKENS):
            torch.testing.assert_close(trained(x, read), ours(x, read), atol=1e-5, rtol=0)


def test_gradients_are_those_of_transformers(pair: tuple[Any, Any, LanguageBackbone]) -> None:
    theirs, found, ours = pair
    x = torch.randn(2, 9, found.sizes.embed_dim, generator=torch.Generator().manual_seed(6))
    ways = []
    for network in (lambda value: ours.train()(value), lambda value: theirs(inputs_embeds=value).last_hidden_state):
        value = x.clone().requires_grad_()
        network(value).square().mean().backward()
        ways.append(value.grad)
    torch.testing.assert_close(ways[0], ways[1], atol=1e-5, rtol=1e-4)
    layer = theirs.layers[1]
    up = torch.cat([layer.mlp.gate_proj.weight.grad, layer.mlp.up_proj.weight.grad])
    torch.testing.assert_close(ours.get_parameter("blocks.1.up.weight").grad, up, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(
        ours.get_parameter("blocks.0.attn.qkv.weight").grad,
        torch.cat([getattr(theirs.layers[0].self_attn, f"{one}_proj").weight.grad for one in "qkv"]),
        atol=1e-5,
        rtol=1e-4,
    )


def test_attention_maps_are_those_of_transformers(pair: tuple[Any, Any, LanguageBackbone]) -> None:
    theirs, found, ours = pair
    theirs.set_attn_implementation("eager")
    x = torch.randn(1, 9, found.sizes.embed_dim, generator=torch.Generator().manual_seed(7))
    with torch.no_grad():
        expected = theirs(inputs_embeds=x, output_attentions=True).attentions
        layer = attention_layers(ours)[0]
        got = layer.scores(ours.blocks[0].get_submodule("ln_1")(x)).softmax(-1)
    torch.testing.assert_close(got, expected[0], atol=1e-5, rtol=0)


def test_the_first_layers_are_those_of_the_whole(tmp_path: Path) -> None:
    theirs = peer("grouped")
    theirs.save_pretrained(tmp_path)
    found, ours = ours_of(str(tmp_path), layers=2)
    assert found.sizes.n_layers == 2
    theirs.layers = theirs.layers[:2]
    ids = torch.arange(12)[None]
    with torch.no_grad():
        expected = theirs(input_ids=ids).last_hidden_state
        torch.testing.assert_close(ours(found.tokens[ids]), expected, atol=1e-5, rtol=0)
    with pytest.raises(ConfigError, match="has 3 layers, not 4"):
        load_backbone(str(tmp_path), layers=4)


@pytest.fixture(scope="module")
def smollm() -> Any:
    """transformers' own reading of the real file. It opens it twice and makes the same table of names 397 times."""
    path = shipped_file(SMOLLM)
    with pytest.MonkeyPatch.context() as patch:
        for name in ("GGUFReader", "get_tensor_name_map"):
            patch.setattr(gguf, name, functools.cache(getattr(gguf, name)))
        return transformers.AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name).eval()


@pytest.mark.slow
def test_the_real_weights_give_the_numbers_of_transformers(smollm: Any) -> None:
    """All 30 layers, on words: this fails without undoing llama.cpp's order of query and key rows."""
    found, ours = ours_of(SMOLLM)
    text = "The cat sat on the mat because it was warm. In 1984 George Orwell"
    ids = torch.tensor([found.tokenizer().encode(text).ids])
    with torch.no_grad():
        theirs = smollm.model(input_ids=ids).last_hidden_state
        got = ours(found.tokens[ids])
        torch.testing.assert_close(got, theirs, atol=1e-5 * float(theirs.abs().max()), rtol=1e-5)
        said = found.tokenizer().decode([int((got[0, -1] @ found.tokens.T).argmax())])
    assert found.has_tied_head
    assert said.strip() in ("wrote", "published", "'s", ",", "'", "was")
    few, first = ours_of(SMOLLM, layers=3)
    smollm.model.layers, every = smollm.model.layers[:3], smollm.model.layers
    with torch.no_grad():
        expected = smollm.model(input_ids=ids).last_hidden_state
        got = first(few.tokens[ids])
    smollm.model.layers = every
    torch.testing.assert_close(got, expected, atol=1e-5 * float(expected.abs().max()), rtol=1e-5)
    assert few.sha256() == found.sha256()


def test_a_file_that_is_no_gguf_raises_a_checkpoint_error(tmp_path: Path) -> None:
    path = tmp_path / "a.gguf"
    with pytest.raises(CheckpointError, match="is missing"):
        load_backbone(str(path))
    path.write_bytes(b"GGML" + b"\0" * 60)
    with pytest.raises(CheckpointError, match="is not a usable GGUF file"):
        load_backbone(str(path))
