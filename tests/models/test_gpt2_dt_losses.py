"""GPT2-DT and CLIP-DT: what language adds to the loss, and the text it reads."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import random_batch
from torch.nn.functional import cross_entropy

from agentzoo.errors import CheckpointError, ConfigError
from agentzoo.nn.language.cotraining import TEXT_VARIABLE, read_token_chunks
from agentzoo.nn.language.kmeans import cosine_loss, decay, spherical_kmeans
from agentzoo.nn.language.pretrained import load_backbone
from agentzoo.training.hooks import Hooks
from agentzoo.training.log import read_log
from agentzoo.training.loop import train
from models.cases import coin_episodes
from models.language_cases import chibit, recipe, started

# -- language losses -------------------------------------------------------------------------------------------------


def test_cosine_loss_by_hand() -> None:
    tokens = torch.tensor([[[3.0, 0.0], [0.0, 2.0], [-1.0, -1.0]]])
    centroids = torch.tensor([[5.0, 0.0], [1.0, 1.0]])
    valid = torch.tensor([[True, True, False]])
    # nearest: (3,0) is the first's direction: 1; (0,2) against (1,1): cos 45°
    assert float(cosine_loss(tokens, centroids, valid)) == pytest.approx(-(1 + math.sqrt(0.5)) / 2)
    assert float(cosine_loss(7 * tokens, 0.1 * centroids, valid)) == pytest.approx(-(1 + math.sqrt(0.5)) / 2)
    assert float(cosine_loss(centroids[None] * 2, centroids, torch.ones(1, 2, dtype=torch.bool))) == pytest.approx(-1)


def test_cosine_loss_is_in_float32_under_autocast() -> None:
    """Of 3,700 tokens bfloat16 counts 3,696."""
    tokens, centroids = torch.randn(37, 100, 8), torch.randn(5, 8)
    valid = torch.ones(37, 100, dtype=torch.bool)
    plain = cosine_loss(tokens, centroids, valid)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(cosine_loss(tokens, centroids, valid), plain)
        half = cosine_loss(tokens.bfloat16(), centroids, valid)
    assert half.dtype == torch.float32
    assert torch.equal(half, cosine_loss(tokens.bfloat16().float(), centroids, valid))


@pytest.mark.parametrize(("step", "weight"), [(0, 0.99331), (2500, 0.5), (4999, 0.00671), (5000, 0.0), (10**6, 0.0)])
def test_language_weights_fall_as_published(step: int, weight: float) -> None:
    assert decay(step, 5000) == pytest.approx(weight, abs=5e-6)
    assert decay(step, None) == 1.0


def test_kmeans_finds_separate_directions() -> None:
    torch.manual_seed(0)
    directions = torch.eye(4, 6)
    points = (directions.repeat_interleave(25, 0) + 0.05 * torch.randn(100, 6)) * (torch.rand(100, 1) * 9 + 0.1)
    found = spherical_kmeans(points, 4, torch.Generator().manual_seed(0))
    nearest = (found @ directions.T).max(dim=1)
    assert sorted(nearest.indices.tolist()) == [0, 1, 2, 3]
    assert nearest.values.min() > 0.99
    torch.testing.assert_close(found.norm(dim=1), torch.ones(4))
    assert torch.equal(found, spherical_kmeans(points, 4, torch.Generator().manual_seed(0)))
    alone = torch.nn.functional.normalize(points.reshape(4, 25, 6)[0], dim=-1).mean(0)  # of the first cluster's rows
    torch.testing.assert_close(found[nearest.indices.tolist().index(0)], alone / alone.norm(), atol=1e-5, rtol=0)


def test_kmeans_starts_far_apart() -> None:
    """Of twenty narrow clusters none is left out, which Lloyd's rounds could not mend."""
    torch.manual_seed(0)
    directions = torch.eye(20)
    points = directions.repeat_interleave(5, 0) + 1e-3 * torch.randn(100, 20)
    found = spherical_kmeans(points, 20, torch.Generator().manual_seed(0))
    assert (found @ directions.T).amax(0).min() > 0.99


def test_a_centroid_without_rows_begins_again_at_the_row_farthest_from_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = torch.tensor([[1.0, 0.0], [0.99, 0.05], [0.98, 0.1], [0.0, 1.0], [-1.0, 0.2]])
    monkeypatch.setattr("agentzoo.nn.language.kmeans._plus_plus", lambda points, *_: points[[0, 0, 3]].clone())
    found = spherical_kmeans(rows, 3, torch.Generator())
    points = torch.nn.functional.normalize(rows, dim=-1)
    assert (points @ found.T).amax(1).min() > 0.99  # the last row, too


def test_the_loss_is_the_weighted_sum_of_its_parts(zoo: Path) -> None:
    """At update 4 of 8 both language weights are half; the text part is transformers' own loss of the same chunk."""
    from transformers import GPT2LMHeadModel

    model = started(chibit(dropout=0.0, attention_dropout=0.0, embed_dropout=0.0, cosine_weight=0.1, lm_weight=0.2))
    assert model.language is not None
    batch = random_batch(model.io, [4, 2, 3])
    model.begin_step(4, 12)
    torch.manual_seed(5)
    terms = model.loss(batch)
    assert list(terms) == ["action_mse", "cosine", "language"]
    torch.manual_seed(5)
    text = model.language.text
    assert text is not None
    ids = text[torch.randint(len(text), (2,))].long()
    peer = GPT2LMHeadModel.from_pretrained(zoo / "zoo" / "lm-tiny").eval()
    with torch.no_grad():
        logits = peer(input_ids=ids[:, :-1]).logits
        nats = float(cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten()))
        unit = torch.nn.functional.normalize(model._inputs(batch), dim=-1)
        near = (unit @ model.language.centroids.T).amax(-1)  # type: ignore[union-attr, operator]
        cosine = -float(near[batch.valid.repeat_interleave(3, dim=1)].mean())
    assert terms["language"].item() == pytest.approx(0.2 * 0.5 * nats, rel=1e-5)
    assert terms["cosine"].item() == pytest.approx(0.1 * 0.5 * cosine, rel=1e-5)
    assert cosine < -0.2
    model.begin_step(8, 12)
    assert [v.item() for v in model.loss(batch).values()][1:] == [0.0, 0.0]


def test_language_losses_reach_the_input_maps_and_the_token_table(zoo: Path) -> None:
    """The gradient of the token table, which is read from and compared with, is transformers' own."""
    from transformers import GPT2LMHeadModel

    model: Any = started(chibit(dropout=0.0, attention_dropout=0.0, embed_dropout=0.0, lm_decay_steps=None))
    terms = model.loss(random_batch(model.io, [4, 2, 3]))
    terms["cosine"].backward()
    assert model.embed_obs.weight.grad.any()

    model.language.text = model.language.text[:1]  # so that it is known which chunk is drawn
    model.loss(random_batch(model.io, [4, 2, 3]))["language"].backward()
    ids = model.language.text.long()
    peer = GPT2LMHeadModel.from_pretrained(zoo / "zoo" / "lm-tiny").eval()
    logits = peer(input_ids=ids[:, :-1]).logits
    cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten()).backward()
    expected = model.config.lm_weight * peer.transformer.wte.weight.grad
    torch.testing.assert_close(model.language.tokens.grad, expected, atol=1e-6, rtol=1e-4)


def test_text_passes_the_dropout_of_inputs(zoo: Path) -> None:
    model = started(chibit(dropout=0.0, attention_dropout=0.0, embed_dropout=0.5))
    assert model.language is not None
    assert model.language.text is not None
    model.language.text = model.language.text[:1]  # the same chunk is drawn each time
    batch = random_batch(model.io, [4, 2])

    def nats(seed: int) -> float:
        torch.manual_seed(seed)
        return float(model.loss(batch)["language"].detach())

    model.train()
    assert nats(0) != nats(1)
    model.eval()
    assert nats(0) == nats(1)


def test_centroids_are_of_the_token_table(zoo: Path) -> None:
    model = started(chibit(lm_weight=0.0))
    assert model.language is not None
    assert model.language.tokens is None
    found = load_backbone("lm-tiny")
    rows = torch.nn.functional.normalize(found.tokens, dim=-1)
    centroids = model.language.centroids
    assert centroids is not None
    assert centroids.shape == (12, 16)
    assert (rows @ centroids.T).amax(1).mean() > (rows @ torch.nn.functional.normalize(torch.randn(12, 16)).T).amax(
        1
    ).mean()


def test_text_is_what_the_language_model_was_trained_on(zoo: Path) -> None:
    model = started(chibit())
    assert model.language is not None
    assert model.language.text is not None
    from agentzoo.nn.language.tokenizer import load_tokenizer

    said = load_tokenizer(zoo / "zoo" / "lm-tiny" / "tokenizer.json").decode(model.language.text.flatten().tolist())
    whole = (zoo / "text" / "a.txt").read_text()
    assert "dog" not in said  # the validation file
    assert 0.85 * len(whole) < len(said) < 0.9 * len(whole) + 100  # without its held-out end


def test_text_is_known_by_what_it_holds(zoo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A renamed file is still the one that was trained on; another one of its name is not."""
    text = tmp_path / "text"
    text.mkdir()
    shutil.copy(zoo / "text" / "a.txt", text / "b.txt")
    (text / "a.txt").write_text("a dog saw the cat\n" * 90)
    monkeypatch.setenv(TEXT_VARIABLE, str(text))
    found = load_backbone("lm-tiny")
    monkeypatch.setenv(TEXT_VARIABLE, str(zoo / "text"))
    wanted = read_token_chunks(found, 16)
    monkeypatch.setenv(TEXT_VARIABLE, str(text))
    assert torch.equal(read_token_chunks(found, 16), wanted)
    (text / "b.txt").unlink()
    with pytest.warns(UserWarning, match="backbone 'lm-tiny' was trained on none of the 1 files of"):
        read_token_chunks(found, 16)


def test_a_missing_text_file_is_warned_of(zoo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(zoo / "zoo" / "lm-tiny", tmp_path / "lm")
    record = json.loads((tmp_path / "lm" / "corpus.json").read_text())
    record["training"].append({"name": "lost.txt", "bytes": 3, "sha256": "0" * 64})
    (tmp_path / "lm" / "corpus.json").write_text(json.dumps(record))
    with pytest.warns(UserWarning, match=r"was trained on 2 files, of which .* has 1: lost\.txt will not be read"):
        read_token_chunks(load_backbone(str(tmp_path / "lm")), 16)


def test_a_run_goes_on_with_the_text_it_began_with(zoo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = tmp_path / "text"
    text.mkdir()
    shutil.copy(zoo / "text" / "a.txt", text)
    monkeypatch.setenv(TEXT_VARIABLE, str(text))
    made = recipe(chibit(), steps=8)

    def interrupt(step: int) -> None:
        if step == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(made, tmp_path / "run", coin_episodes(), hooks=Hooks(on_step=interrupt), device="cpu")
    (text / "a.txt").write_text("the cat sat on a dog\n" * 300)
    with (
        pytest.warns(UserWarning, match="on none of the 1 files"),
        pytest.raises(CheckpointError, match=r"AGENTZOO_TEXT .* holds another text than this run began with"),
    ):
        train(made, tmp_path / "run", coin_episodes(), device="cpu")
    shutil.copy(zoo / "text" / "a.txt", text)
    train(made, tmp_path / "run", coin_episodes(), device="cpu")


def test_a_checkpoints_own_end_of_text_is_known(zoo: Path, tmp_path: Path) -> None:
    """Of a tokenizer whose documents end with another word than GPT-2's; without any, co-training is refused."""
    shutil.copytree(zoo / "zoo" / "lm-tiny", tmp_path / "lm")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        path = tmp_path / "lm" / name
        path.write_text(path.read_text().replace("<|endoftext|>", "</s>"))
    renamed, first = (read_token_chunks(load_backbone(name), 16) for name in (str(tmp_path / "lm"), "lm-tiny"))
    assert torch.equal(renamed, first)
    settings = json.loads((tmp_path / "lm" / "config.json").read_text())
    (tmp_path / "lm" / "config.json").write_text(json.dumps({**settings, "eos_token_id": None}))
    with pytest.raises(CheckpointError, match=r"lm.: the tokenizer has no '<\|endoftext\|>' .*model\.lm_weight=0"):
        read_token_chunks(load_backbone(str(tmp_path / "lm")), 16)


def test_a_head_of_its_own_is_not_mistaken_for_the_token_table(
    zoo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(zoo / "zoo", tmp_path / "zoo")
    monkeypatch.setenv("AGENTZOO_ZOO", str(tmp_path / "zoo"))
    path = tmp_path / "zoo" / "lm-tiny" / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "tie_word_embeddings": False}))
    with pytest.raises(ConfigError, match=r"has a separate output head .* --set model.lm_weight=0"):
        started(chibit())
    started(chibit(lm_weight=0.0))


@pytest.mark.parametrize("positions", ["own", "fresh"])
def test_every_parameter_has_a_gradient_after_the_language_losses_have_faded(positions: Any, zoo: Path) -> None:
    """Several processes would wait for those that have none."""
    model = started(chibit(lm_decay_steps=2, cosine_decay_steps=2, positions=positions)).train()
    model.begin_step(5, 10)
    terms = model.loss(random_batch(model.io, [4, 2]))
    assert [terms[name].item() for name in ("language", "cosine")] == [0.0, 0.0]
    torch.stack(list(terms.values())).sum().backward()
    assert [name for name, p in model.named_parameters() if p.grad is None] == []


def test_cotraining_goes_on_learning_the_text(zoo: Path, tmp_path: Path) -> None:
    made = recipe(chibit(lm_decay_steps=None, cosine_decay_steps=None, lm_weight=1.0, dropout=0.0), steps=40)
    train(made, tmp_path, coin_episodes(), device="cpu")
    rows = read_log(tmp_path)
    assert float(rows[-1]["language"]) < 0.7 * float(rows[0]["language"])
    assert float(rows[-1]["cosine"]) < float(rows[0]["cosine"])
