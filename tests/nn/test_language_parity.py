"""Our blocks against transformers' own models on the same weights and inputs, without and with padding."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest
import torch
import transformers
from conftest import make_agent, random_batch
from torch import Tensor, nn

from agentzoo.errors import CheckpointError, ConfigError, HubError
from agentzoo.models._language_config import LanguageDTConfig
from agentzoo.models._language_dt import LanguageDT
from agentzoo.models.clip_dt import CLIPDTConfig
from agentzoo.models.gpt2_dt import GPT2DTConfig
from agentzoo.models.gpt2_dtma import GPT2DTMAConfig
from agentzoo.models.gpt2_p import GPT2PConfig
from agentzoo.nn.language.backbone import LanguageBackbone
from agentzoo.nn.language.pretrained import load_backbone
from agentzoo.nn.tokens import STATE_TOKENS, interleave
from agentzoo.recipe import load_recipe
from agentzoo.registry import families

SIZES = {"vocab_size": 60, "n_embd": 32, "n_layer": 3, "n_head": 4, "n_positions": 40}
TOKENS = {"bos_token_id": 0, "eos_token_id": 0}


def peer(kind: str) -> Any:
    """A small random model of transformers with weights large enough that every part of it matters."""
    torch.manual_seed(0)
    model: Any = {
        "gpt2": lambda: transformers.GPT2Model(transformers.GPT2Config(**SIZES, **TOKENS)),
        "gpt2-relu": lambda: transformers.GPT2Model(
            transformers.GPT2Config(**SIZES, **TOKENS, activation_function="relu", n_inner=40, layer_norm_epsilon=1e-3)
        ),
        "imagegpt": lambda: transformers.ImageGPTModel(transformers.ImageGPTConfig(**SIZES)),
        "gptj": lambda: transformers.GPTJModel(transformers.GPTJConfig(**SIZES, **TOKENS, rotary_dim=4)),
        "clip": lambda: transformers.CLIPTextModel(
            transformers.CLIPTextConfig(
                vocab_size=60,
                hidden_size=32,
                intermediate_size=72,
                num_hidden_layers=3,
                num_attention_heads=4,
                max_position_embeddings=40,
                bos_token_id=58,
                eos_token_id=59,
            )
        ),
    }[kind]()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.3)
    return model.eval()


KINDS = ("gpt2", "gpt2-relu", "imagegpt", "gptj", "clip")


@pytest.fixture(params=KINDS)
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Any, Any, LanguageBackbone]:
    """Their model, what we read of the folder it was saved to, and our blocks with that."""
    theirs = peer(request.param)
    theirs.save_pretrained(tmp_path)
    found = load_backbone(str(tmp_path))
    ours = LanguageBackbone(found.sizes).eval()
    ours.load_state_dict(found.blocks)
    return theirs, found, ours


def embed(found: Any, ids: Tensor) -> Tensor:
    x = found.tokens[ids]
    return x if found.positions is None else x + found.positions[: ids.shape[1]]


def test_blocks_give_the_numbers_of_transformers(pair: tuple[Any, Any, LanguageBackbone]) -> None:
    theirs, found, ours = pair
    ids = torch.randint(58, (4, 17), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        expected = theirs(input_ids=ids).last_hidden_state
        assert expected.abs().max() > 0.5
        torch.testing.assert_close(ours(embed(found, ids)), expected, atol=1e-5, rtol=0)


def test_padding_on_the_right_changes_no_real_token(pair: tuple[Any, Any, LanguageBackbone]) -> None:
    theirs, found, ours = pair
    generator = torch.Generator().manual_seed(2)
    ids = torch.randint(58, (4, 17), generator=generator)
    valid = torch.arange(17)[None] < torch.tensor([17, 1, 9, 13])[:, None]
    junk = torch.where(valid, ids, torch.randint(58, ids.shape, generator=generator))
    with torch.no_grad():
        masked = theirs(input_ids=ids, attention_mask=valid.long()).last_hidden_state
        torch.testing.assert_close(ours(embed(found, junk))[valid], masked[valid], atol=1e-5, rtol=0)


def test_reading_some_tokens_gives_the_numbers_of_reading_all(pair: tuple[Any, Any, LanguageBackbone]) -> None:
    _, _, ours = pair
    x = torch.randn(3, 12, 32, generator=torch.Generator().manual_seed(3))
    with torch.no_grad():
        for read in (STATE_TOKENS, slice(10, 11)):
            torch.testing.assert_close(ours(x, read), ours(x)[:, read], atol=1e-5, rtol=0)


def test_later_tokens_change_nothing_before_them(pair: tuple[Any, Any, LanguageBackbone]) -> None:
    _, _, ours = pair
    x = torch.randn(2, 9, 32, generator=torch.Generator().manual_seed(4))
    moved = x.clone()
    moved[:, 6, :4] += 1.0  # not all alike: a LayerNorm would take that out again
    with torch.no_grad():
        before, after = ours(x), ours(moved)
    assert torch.equal(before[:, :6], after[:, :6])
    assert (before[:, 6:] - after[:, 6:]).abs().amax(dim=(0, 2)).min() > 1e-3


def test_training_mode_without_dropout_equals_acting(pair: tuple[Any, Any, LanguageBackbone]) -> None:
    _, found, ours = pair
    trained = LanguageBackbone(found.sizes, 1e-9, 1e-9).train()  # so small that nothing drops, on the training path
    trained.load_state_dict(found.blocks)
    x = torch.randn(2, 9, 32, generator=torch.Generator().manual_seed(5))
    torch.testing.assert_close(trained(x, STATE_TOKENS), ours(x, STATE_TOKENS), atol=1e-5, rtol=0)


def known_sizes(found: Any) -> dict[str, Any]:
    return {name: value for name, value in found.sizes._asdict().items() if value is not None}


def config_for(found: Any, **fields: Any) -> LanguageDTConfig:
    kind = CLIPDTConfig if found.sizes.architecture == "clip" else GPT2DTConfig
    return kind(**{**known_sizes(found), "backbone": found.source, **fields})


def test_a_whole_agent_reads_its_backbone_as_transformers_would(pair: tuple[Any, Any, LanguageBackbone]) -> None:
    """Its own maps, then their model with the position table zeroed, then its own head: with padded windows."""
    theirs, found, _ = pair
    agent = make_agent(model=config_for(found), context=5)
    model: Any = agent.model
    model.begin_training(fresh=True)
    batch = random_batch(agent.config.io, [5, 1, 3])
    with torch.no_grad():
        obs = model.embed_obs(model.normalize_obs(batch.observations, batch.valid))
        rtg = model.embed_return(batch.returns_to_go[..., None])
        u = model.embed_ln(interleave(rtg, obs, model.embed_action(model.encode_actions(batch.actions))))
        x = u + model.embed_timestep(batch.timesteps).repeat_interleave(3, dim=1)
        seen = batch.valid.repeat_interleave(3, dim=1).long()
        if found.sizes.architecture == "clip":
            hidden = clip_of(theirs, x, seen)
        else:
            if found.positions is not None:
                theirs.wpe.weight.zero_()
            hidden = theirs(inputs_embeds=x, attention_mask=seen).last_hidden_state
        expected = model.predict_action(hidden[:, 1::3])
        torch.testing.assert_close(model(batch)[batch.valid], expected[batch.valid], atol=1e-5, rtol=1e-5)


def clip_of(theirs: Any, x: Tensor, seen: Tensor) -> Tensor:
    """`CLIPTextModel` takes ids only, so its encoder is called as its own forward does."""
    from transformers.masking_utils import create_causal_mask

    mask = create_causal_mask(config=theirs.config, inputs_embeds=x, attention_mask=seen, past_key_values=None)
    hidden = theirs.encoder(inputs_embeds=x, attention_mask=mask, is_causal=True).last_hidden_state
    out: Tensor = theirs.final_layer_norm(hidden)
    return out


def test_whole_checkpoints_load_as_their_towers(tmp_path: Path) -> None:
    """`gpt2` on the Hub is an LM with a head, `openai/clip-vit-base-patch32` text and vision together."""
    torch.manual_seed(0)
    lm = transformers.GPT2LMHeadModel(transformers.GPT2Config(**SIZES, **TOKENS))
    lm.save_pretrained(tmp_path / "lm")
    found = load_backbone(str(tmp_path / "lm"))
    assert torch.equal(found.blocks["blocks.1.attn.qkv.weight"], lm.transformer.h[1].attn.c_attn.weight.T)
    assert torch.equal(found.tokens, lm.transformer.wte.weight)
    vision = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    vision |= {"image_size": 8, "patch_size": 4}
    text = {"vocab_size": 60, "hidden_size": 32, "intermediate_size": 40, "num_hidden_layers": 2}
    text |= {"num_attention_heads": 4, "eos_token_id": 59, "bos_token_id": 58}
    clip = transformers.CLIPModel(transformers.CLIPConfig(text_config=text, vision_config=vision, projection_dim=8))
    clip.save_pretrained(tmp_path / "clip")
    found = load_backbone(str(tmp_path / "clip"))
    assert found.sizes.inner_dim == 40
    mlp = clip.text_model.encoder.layers[1].mlp.fc1
    assert torch.equal(found.blocks["blocks.1.up.weight"], mlp.weight)


def test_an_unknown_architecture_raises_a_config_error(tmp_path: Path) -> None:
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    transformers.BertModel(transformers.BertConfig(vocab_size=20, **sizes)).save_pretrained(tmp_path)
    with pytest.raises(ConfigError, match="architecture 'bert'; the families gpt2-dt, clip-dt and smollm-dt know gpt2"):
        load_backbone(str(tmp_path))


def test_a_checkpoint_that_lacks_weights_is_refused(tmp_path: Path) -> None:
    peer("gpt2").save_pretrained(tmp_path)
    from safetensors.torch import load_file, save_file

    tensors = load_file(tmp_path / "model.safetensors")
    del tensors["h.1.attn.c_attn.weight"]
    save_file(tensors, tmp_path / "model.safetensors", {"format": "pt"})
    with pytest.raises(CheckpointError, match=r"lacks 1 tensor: .*h\.1\.attn\.c_attn\.weight"):
        load_backbone(str(tmp_path))
    (tmp_path / "model.safetensors").write_bytes(b"\x00" * 40)
    with pytest.raises(CheckpointError, match="cannot be loaded"):
        load_backbone(str(tmp_path))
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(CheckpointError, match="has no weights as safetensors"):
        load_backbone(str(tmp_path))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"n_layer": 2}, r"its blocks hold more than its config.json says: 12 tensors: h\.2\."),
        ({"n_embd": 16}, r"has other shapes than its config.json says: 4\d tensors: .*\(32, 96\), not \(16, 48\)"),
        ({"n_layer": 4}, r"lacks 12 tensors: h\.3\."),
    ],
)
def test_a_config_that_does_not_fit_its_weights_is_refused(change: dict[str, int], says: str, tmp_path: Path) -> None:
    """transformers would begin with half a network, or with random weights."""
    peer("gpt2").save_pretrained(tmp_path)
    sizes = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**sizes, **change}))
    with pytest.raises(CheckpointError, match=says):
        load_backbone(str(tmp_path))


@pytest.mark.parametrize("model_type", ["evil", "gpt2"])
def test_code_that_a_checkpoint_brings_is_not_run(model_type: str, tmp_path: Path) -> None:
    peer("gpt2").save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    config |= {"model_type": model_type, "auto_map": {"AutoConfig": "bad.Config", "AutoModel": "bad.Model"}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    ran = tmp_path / "ran"
    (tmp_path / "bad.py").write_text(f"open({str(ran)!r}, 'w')\nclass Config: pass\nclass Model: pass\n")
    if model_type == "gpt2":
        load_backbone(str(tmp_path))
    else:
        with pytest.raises(ConfigError, match="architecture 'evil'; the families gpt2-dt, clip-dt and smollm-dt know"):
            load_backbone(str(tmp_path))
    assert not ran.exists()


def test_a_name_that_is_no_backbone_is_refused_with_the_nearest_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConfigError, match="'dt-hopper-medium' is an agent, not the language model"):
        load_backbone("dt-hopper-medium")
    with pytest.raises(CheckpointError, match=r"is a folder without a config\.json"):
        load_backbone(str(tmp_path))
    with pytest.raises(CheckpointError, match=r"not in the local zoo .*Did you mean 'lm-chibi'\?"):
        load_backbone("lm-chib")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(HubError, match=r"lm_chibi could not be fetched .*Did you mean 'lm-chibi'\? Without a network"):
        load_backbone("lm_chibi")
    with pytest.raises(HubError, match="backbone lm-sys/gpt2-small could not be fetched"):
        load_backbone("lm-sys/gpt2-small")


def test_a_backbone_is_found_in_the_run_that_made_it_and_at_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    peer("gpt2").save_pretrained(tmp_path / "runs" / "lm" / "hub")
    inside = load_backbone(str(tmp_path / "runs" / "lm")).sha256()
    monkeypatch.setenv("HOME", str(tmp_path))
    assert load_backbone("~/runs/lm/hub").sha256() == inside


def test_a_backbone_that_is_a_pickle_is_not_opened(tmp_path: Path) -> None:
    model = peer("gpt2")
    model.config.save_pretrained(tmp_path)
    torch.save(model.state_dict(), tmp_path / "pytorch_model.bin")
    with pytest.raises(CheckpointError, match=r"a \.bin file is a pickle.*use_safetensors=False\).save_pretrained"):
        load_backbone(str(tmp_path))
    transformers.AutoModel.from_pretrained(tmp_path, use_safetensors=False).save_pretrained(tmp_path / "safe")
    load_backbone(str(tmp_path / "safe"))


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"embed_dim": 16}, r"embed_dim 32 \(the recipe says 16\).*--set model.embed_dim=32"),
        ({"n_layers": 2}, r"n_layers 3 \(the recipe says 2\)"),
        ({"activation": "relu"}, r"activation 'gelu_new' \(the recipe says 'relu'\).*--set model.activation=gelu_new"),
        ({"architecture": "imagegpt"}, "architecture 'gpt2'"),
    ],
)
def test_a_backbone_of_another_size_is_refused_with_the_settings_that_fit(
    fields: dict[str, Any], says: str, tmp_path: Path
) -> None:
    peer("gpt2").save_pretrained(tmp_path)
    agent = make_agent(model=config_for(load_backbone(str(tmp_path)), **fields))
    assert isinstance(agent.model, LanguageDT)
    with pytest.raises(ConfigError, match=says):
        agent.model.begin_training(fresh=True)


@pytest.mark.parametrize(
    ("config", "says"),
    [
        (GPT2DTConfig, "train an agent of family clip-dt, for example clip-dt-hopper-medium --set model.backbone=/"),
        (GPT2DTMAConfig, "of family clip-dtma, for example clip-dtma-hopper-medium --set"),
        (GPT2PConfig, "no family like gpt2-p supports it"),
    ],
)
def test_a_text_tower_is_for_another_family(config: type[LanguageDTConfig], says: str, tmp_path: Path) -> None:
    peer("clip").save_pretrained(tmp_path)
    agent = make_agent(model=config(backbone=str(tmp_path)))
    assert isinstance(agent.model, LanguageDT)
    with pytest.raises(ConfigError, match=says):
        agent.model.begin_training(fresh=True)


def test_counterparts_are_families_for_that_architecture_that_name_each_other() -> None:
    named = {name: getattr(family.config, "counterparts", {}) for name, family in families().items()}
    assert any(named.values())
    for name, others in named.items():
        for architecture, other in others.items():
            assert architecture in get_args(families()[other].config.model_fields["architecture"].annotation)
            assert name in named[other].values()
            assert load_recipe(f"{other}-hopper-medium").model.family == other  # the error advises it


def test_hidden_steps_change_nothing_with_gptj(tmp_path: Path) -> None:
    """Rotation counts tokens from the window's first, so padding on the right does not turn them."""
    peer("gptj").save_pretrained(tmp_path)
    agent = make_agent(model=config_for(load_backbone(str(tmp_path))), context=6)
    agent.model.begin_training(fresh=True)
    batch = random_batch(agent.config.io, [2, 6])
    noisy = replace(batch, observations=torch.where(batch.valid[..., None], batch.observations, torch.tensor(9.0)))
    with torch.no_grad():
        assert torch.equal(agent.model.act(batch), agent.model.act(noisy))
