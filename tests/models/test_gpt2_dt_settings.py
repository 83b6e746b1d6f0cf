"""GPT2-DT and CLIP-DT: settings, recipes and cards."""

from __future__ import annotations

import shutil
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import make_agent, random_batch
from pydantic import ValidationError
from safetensors.torch import save_file

from agentzoo.agent import Agent
from agentzoo.errors import AgentzooError, CheckpointError, ConfigError, TrainingError
from agentzoo.models.clip_dt import CLIPDTConfig
from agentzoo.models.gpt2_dt import GPT2DTConfig
from agentzoo.models.gpt2_dtma import GPT2DTMAConfig
from agentzoo.models.smollm_dtma import SmolLMDTMAConfig
from agentzoo.nn.base import parameter_count
from agentzoo.nn.language.cotraining import TEXT_VARIABLE
from agentzoo.nn.language.pretrained import load_backbone
from agentzoo.papers import ZHAO
from agentzoo.recipe import Recipe, load_recipe
from agentzoo.research.pretrain.settings import LM_SIZES
from agentzoo.store.tensors import read_tensors
from agentzoo.training.loop import train
from agentzoo.types import ActionSpec, IOSpec, ObservationSpec
from models.cases import coin_episodes
from models.language_cases import WIDTH, chibit, config, recipe, started

# -- errors ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"n_heads": 3}, "must divide"),
        ({"tie_action_head": True}, "needs input_maps and head to be linear"),
        ({"backbone": None, "cosine_weight": 0.1}, "must be 0 without a backbone"),
        ({"rotary_dim": 4}, "rotary_dim must be above 0 for architecture gptj, and 0 for any other"),
        ({"architecture": "gptj"}, "rotary_dim must be above 0 for architecture gptj, and 0 for any other"),
        ({"architecture": "imagegpt", "lm_weight": 0.1}, "co-training needs a language model"),
        ({"architecture": "imagegpt", "positions": "own"}, "only gpt2 has a position table"),
        ({"lm_weight": 0.1, "positions": "own", "max_ep_len": 100}, "longer than the position table"),
        ({"positions": "own", "timestep_rank": 8}, "timestep_rank is for fresh positions"),
    ],
)
def test_settings_that_do_not_fit_together_are_refused(fields: dict[str, Any], says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        config(**fields)


def test_positions_of_clip_are_refused() -> None:
    with pytest.raises(ValidationError, match="only gpt2 has a position table"):
        CLIPDTConfig(**WIDTH, positions="own")


@pytest.mark.parametrize(
    ("what", "error", "says"),
    [
        ("not staged", CheckpointError, "is not in the local zoo .*agentzoo research pretrain"),
        ("no tokenizer", CheckpointError, "has no tokenizer.json.*--set model.lm_weight=0"),
        ("other tokenizer", CheckpointError, "its table holds 280 tokens: the two do not belong together"),
        ("no text", ConfigError, r"set \$AGENTZOO_TEXT"),
        ("long chunk", ConfigError, "longer than the 32 positions .*--set model.lm_chunk=32"),
    ],
)
def test_what_the_language_loss_lacks_is_an_error_that_says_how_to_provide_it(
    what: str, error: type[AgentzooError], says: str, zoo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from agentzoo.nn.language.tokenizer import save_tokenizer, train_tokenizer

    shutil.copytree(zoo / "zoo", tmp_path / "zoo")
    monkeypatch.setenv("AGENTZOO_ZOO", str(tmp_path / "zoo"))
    if what == "not staged":
        shutil.rmtree(tmp_path / "zoo" / "lm-tiny")
    if what == "no tokenizer":
        (tmp_path / "zoo" / "lm-tiny" / "tokenizer.json").unlink()
    if what == "other tokenizer":
        other = train_tokenizer([(zoo / "text" / "a.txt").read_text()], 290)
        save_tokenizer(other, tmp_path / "zoo" / "lm-tiny", 32)
    if what == "no text":
        monkeypatch.delenv(TEXT_VARIABLE)
    changes = {"lm_chunk": 40, "positions": "fresh"} if what == "long chunk" else {}
    with pytest.raises(error, match=says):
        started(chibit(**changes))


def test_an_unknown_backbone_raises_a_hub_error_without_a_network(tmp_path: Path) -> None:
    code = "from agentzoo.nn.language.pretrained import load_backbone; load_backbone('someone/no-such-model')"
    environment = {"PATH": "/usr/bin", "HF_HUB_OFFLINE": "1", "HOME": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False)
    assert "HubError: backbone someone/no-such-model could not be fetched from the Hub: It is not in the" in done.stderr
    assert "--set model.backbone=null" in done.stderr


# -- recipes ---------------------------------------------------------------------------------------------------------


def test_recipes_fit_the_backbones_they_name() -> None:
    """Sizes of a recipe and of what `agentzoo research pretrain` makes are written in two places."""
    from agentzoo.research.pretrain.settings import CLIP_MINI

    for agent_id, size in (
        ("chibit-hopper-medium", LM_SIZES["chibi"]),
        ("gpt2-dt-hopper-medium-replay", LM_SIZES["mini"]),
    ):
        model = load_recipe(agent_id).model
        assert isinstance(model, GPT2DTConfig)
        assert model.backbone == size.name
        for name in ("embed_dim", "n_layers", "n_heads", "activation"):
            assert getattr(model, name) == getattr(size, name)
        assert model.lm_chunk <= size.context
    clip = load_recipe("clip-dt-hopper-medium").model
    assert isinstance(clip, CLIPDTConfig)
    assert clip.backbone == CLIP_MINI.name
    assert (clip.embed_dim, clip.n_layers, clip.n_heads) == (CLIP_MINI.embed_dim, CLIP_MINI.n_layers, CLIP_MINI.n_heads)


def test_every_recipe_makes_an_agent_that_can_be_staged() -> None:
    """Of Walker2d's sizes, the largest, or Atari's; masked agents of DoorKey read other observations and are tiny."""
    from agentzoo.registry import get_family, recipe_table
    from agentzoo.store.int8 import large

    action = ActionSpec(kind="box", size=6, low=(-1.0,) * 6, high=(1.0,) * 6)
    io = IOSpec(observation=ObservationSpec(size=17, shapes=((17,),)), action=action, context=50)
    frames = ObservationSpec(size=4 * 84 * 84, shapes=((4, 84, 84),), dtype="uint8", channels="first")
    game = IOSpec(observation=frames, action=ActionSpec(kind="discrete", size=18, dtype="int64"), context=50)
    too_large = {}
    for name, made in recipe_table().items():
        if "doorkey" in name:
            continue
        with torch.device("meta"):  # shapes alone
            family = get_family(made.model.family).model
            model = family(made.model, game if family.takes_images else io)
        narrow = [value.numel() + 4 * len(value) if large(value) else 2 * value.numel() for value in model.parameters()]
        size = min(2 * parameter_count(model), sum(narrow))  # as float16 or as int8, beside the file's header
        too_large.update({name: size} if size > made.model.staged_bytes - 20_000 else {})
    assert not too_large


@pytest.mark.parametrize("kind", ["medium", "medium-replay"])
@pytest.mark.parametrize("name", ["chibit", "gpt2-dt"])
def test_twins_differ_in_language_only(name: str, kind: str) -> None:
    one, twin = load_recipe(f"{name}-hopper-{kind}"), load_recipe(f"{name}-hopper-{kind}-scratch")
    changed = {field for field, value in one.model if getattr(twin.model, field) != value}
    assert changed == ({"backbone", "cosine_weight", "lm_weight"} if name == "chibit" else {"backbone"})
    assert (one.data, one.train, one.eval) == (twin.data, twin.train, twin.eval)


@pytest.mark.parametrize(
    ("change", "fields"),
    [
        ("no-cosine", {"cosine_weight"}),
        ("no-lm", {"lm_weight"}),
        ("random-positions", {"positions"}),
        ("frozen", {"adaptation"}),
        ("no-language", {"cosine_weight", "lm_weight"}),
    ],
)
def test_ablations_change_what_they_say(change: str, fields: set[str]) -> None:

    whole, cut = load_recipe("chibit-hopper-medium"), load_recipe(f"chibit-hopper-medium-{change}")
    assert {field for field, value in whole.model if getattr(cut.model, field) != value} == fields


def test_language_models_in_the_zoo_are_no_agents(zoo: Path) -> None:
    from agentzoo.errors import UnknownNameError
    from agentzoo.hub.zoo import list_agents
    from agentzoo.store.locate import staged_agents, staged_backbones

    assert (zoo / "zoo" / "lm-tiny" / "config.json").is_file()
    assert staged_agents() == {}
    assert list(staged_backbones()) == ["lm-tiny"]
    assert list_agents() == []
    with pytest.raises(UnknownNameError, match="no agent 'zoo/lm-tiny'"):
        Agent.from_pretrained("zoo/lm-tiny")


# -- on the shelf ----------------------------------------------------------------------------------------------------


def test_agents_are_stored_as_float16_and_act_nearly_the_same(tmp_path: Path) -> None:
    from agentzoo.hub.stored_weights import store_weights

    agent = make_agent(model=config(backbone=None))
    agent.model.obs_mean.fill_(1234.567)  # float16 would make it 1235
    folder = agent.save_pretrained(tmp_path)
    size = (folder / "model.safetensors").stat().st_size
    store_weights(folder, None, 3_000_000)
    assert (folder / "model.safetensors").stat().st_size < 0.6 * size
    loaded = Agent.from_pretrained(folder)
    assert torch.equal(loaded.model.obs_mean, agent.model.obs_mean)
    batch = random_batch(agent.config.io, [4, 2])
    with torch.no_grad():
        torch.testing.assert_close(loaded.model.act(batch), agent.model.act(batch), atol=0.02, rtol=0)
        assert not torch.equal(loaded.model.act(batch), agent.model.act(batch))
    with pytest.raises(CheckpointError, match=r"as float16, but the limit is 1,000.*--max-mb"):
        store_weights(folder, "float16", 1000)


@pytest.mark.parametrize(
    ("backbone", "says"), [("lm-tiny", "started as those of `lm-tiny`"), (None, "without language pre-training")]
)
def test_a_card_says_where_the_blocks_come_from(backbone: str | None, says: str, tmp_path: Path) -> None:
    from agentzoo.hub.card import card_text

    agent = make_agent(model=config(backbone=backbone))
    card = card_text(agent.save_pretrained(tmp_path))
    assert says in card
    assert "`: GPT-2 Decision Transformer, trained offline on `" in card
    assert "Can Wikipedia Help Offline Reinforcement Learning?" in card


def test_a_card_says_what_was_learned_and_how_the_recipe_departs_from_a_preset() -> None:
    """No path of somebody's disk gets onto a card."""
    found = chibit(backbone="/home/me/secret/lm-mine").origin()
    assert (found.backbone, found.learned, found.adaptation) == ("lm-mine", "language", "full")
    assert found.losses == (
        ("similarity to clusters of its word vectors", 0.1, 8),
        ("the next words of text", 0.2, 8),
    )
    assert (found.preset, found.departures) == ("wikipedia", ("max_ep_len=32",))
    assert chibit().environment() == {TEXT_VARIABLE: "TEXTS"}
    mini = load_recipe("gpt2-dt-hopper-medium-replay").model
    departs = ("input_maps=linear", "head=linear", "timestep_rank=64")
    assert mini.origin()[4:7] == ("markov", ZHAO, departs)
    fitted = load_recipe("gpt2-dt-hopper-medium").model.origin()
    assert fitted[4:7] == ("markov", ZHAO, (*departs[:2], "dropout=0.0", departs[2]))
    assert mini.environment() == {}
    twin = load_recipe("chibit-hopper-medium-scratch").model.origin()
    assert (twin.backbone, twin.preset, twin.departures) == (None, "wikipedia", ())
    assert (twin.preset_paper.named(), twin.preset_paper.arxiv) == ("Reid et al. 2022", "2201.12122")
    tied = config(input_maps="linear", head="linear", tie_action_head=True).origin()
    assert (tied.preset, tied.departures) == ("markov", ("input_maps=linear", "head=linear", "tie_action_head=True"))
    pixels = GPT2DTConfig(backbone="openai/imagegpt-small", architecture="imagegpt").origin()
    assert (pixels.backbone, pixels.learned) == ("openai/imagegpt-small", "pictures, pixel by pixel")
    clip = load_recipe("clip-dt-hopper-medium").model.origin()
    assert clip is not None
    assert "which sentences belong to which pictures" in clip.learned


def test_presets_are_set_by_name() -> None:
    made = load_recipe("gpt2-dt-hopper-medium")
    lamo = made.override(["model.preset=lamo", "model.lora_rank=4"]).model
    assert isinstance(lamo, GPT2DTConfig)
    assert (lamo.input_maps, lamo.head, lamo.adaptation, lamo.backbone_lr) == ("mlp", "mlp", "lora", 0.1)
    assert (lamo.lora_rank, lamo.embed_dim, lamo.timestep_rank) == (4, 256, None)
    wikipedia = made.override(["model.preset=wikipedia"]).model
    assert isinstance(wikipedia, GPT2DTConfig)
    assert (wikipedia.positions, wikipedia.timestep_rank) == ("own", None)
    with pytest.raises(ConfigError, match=r"family 'gpt2-dt' has no preset 'wiki'; known: markov, lamo, wikipedia"):
        made.override(["model.preset=wiki"])
    with pytest.raises(ConfigError, match=r"family 'dt' has no preset 'lamo'; it has none"):
        load_recipe("dt-hopper-medium").override(["model.preset=lamo"])


def test_a_run_keeps_to_the_backbone_it_began_with(zoo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody improves the language model and stages it under the same name."""
    shutil.copytree(zoo / "zoo", tmp_path / "zoo")
    monkeypatch.setenv("AGENTZOO_ZOO", str(tmp_path / "zoo"))
    trained = recipe(config(), steps=4)
    train(trained, tmp_path / "run", coin_episodes(), device="cpu")
    pinned = Recipe.from_json((tmp_path / "run" / "train_config.json").read_text(), "the run's")
    assert isinstance(pinned.model, GPT2DTConfig)
    assert pinned.model.backbone_sha256 == load_backbone("lm-tiny").sha256()
    assert pinned.model == trained.pinned().model != trained.model
    train(trained, tmp_path / "run", coin_episodes(), device="cpu")  # goes on

    weights = tmp_path / "zoo" / "lm-tiny" / "model.safetensors"
    tensors, _ = read_tensors(weights)
    tensors["transformer.h.0.mlp.c_fc.bias"] += 1.0
    save_file(tensors, weights, {"format": "pt"})
    with pytest.raises(TrainingError, match=r"model.backbone_sha256: '[0-9a-f]{64}' there"):
        train(trained, tmp_path / "run", coin_episodes(), device="cpu")
    with pytest.raises(ConfigError, match=r"backbone 'lm-tiny' has sha256 .*--set model.backbone_sha256=null"):
        train(pinned, tmp_path / "run", coin_episodes(), device="cpu")


def test_another_backbone_empties_what_was_recorded_of_the_old_one(zoo: Path, tmp_path: Path) -> None:
    weights = shutil.copytree(zoo / "zoo" / "lm-tiny", tmp_path / "other") / "model.safetensors"
    tensors, _ = read_tensors(weights)
    heads = tensors["transformer.h.0.attn.c_attn.weight"]  # (16, 48): queries, keys and values of two heads
    heads[:, 24:32] = heads[:, 8:16]  # the second head's keys are its queries, so its diagonal is positive
    save_file(tensors, weights, {"format": "pt"})
    old = recipe(GPT2DTMAConfig(**WIDTH, backbone="lm-tiny")).pinned()
    for settings in ([f"model.backbone={tmp_path / 'other'}"], [f"model.backbone={tmp_path / 'other'}", "train.lr=1"]):
        new = old.override(settings).pinned().model
        assert isinstance(new, GPT2DTMAConfig)
        assert new.backbone_sha256 == load_backbone(str(tmp_path / "other")).sha256()
        assert new.markov_at_start is not None
        assert new.markov_at_start[1][0] == 1.0
        assert new == new.unpinned().pinned()
    assert old.override(["model.backbone=lm-tiny", "train.lr=1"]).model == old.model
    plain = old.override(["model.backbone=null"]).pinned().model
    assert isinstance(plain, GPT2DTMAConfig)
    assert (plain.backbone_sha256, plain.markov_at_start) == (None, None)
    # another file under the same name, and the setting that the error about it names
    stale = old.override(["model.backbone_sha256=null"])
    stale = stale.replace(model=stale.model.model_copy(update={"backbone": str(tmp_path / "other")}))
    assert stale.pinned().model == new.model_copy(update={"backbone": str(tmp_path / "other")})


def test_shuffled_weights_empty_the_record_too() -> None:
    known = {"backbone_sha256": "0" * 64, "markov_at_start": ((0.5, 1.0),) * 4}
    old = recipe(SmolLMDTMAConfig(embed_dim=16, n_heads=4, n_kv_heads=2, n_layers=1, backbone="x", **known))
    assert old.override(["model.start=weights"]).model == old.model
    assert old.override(["model.start=shuffled"]).model.unpinned() == old.override(["model.start=shuffled"]).model


def test_windows_longer_than_language_models_saw_are_warned_of() -> None:
    for context, warns in ((341, False), (342, True)):  # 1,023 and 1,026 tokens
        model = make_agent(model=config(backbone=None), context=context).model
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            model.begin_training(fresh=True)
        assert [f"data.context={context} makes windows of" in str(one.message) for one in warned] == [True] * warns


def test_a_recipe_whose_backbone_does_not_fit_claims_no_folder(zoo: Path, tmp_path: Path) -> None:
    """So that the same command, corrected as the error says, runs."""
    with pytest.raises(ConfigError, match=r"--set model\.embed_dim=16"):
        train(recipe(config(embed_dim=32)), tmp_path / "run", coin_episodes(), device="cpu")
    train(recipe(config(), steps=2), tmp_path / "run", coin_episodes(), device="cpu")
    assert (tmp_path / "run" / "model.safetensors").exists()
