"""Contrastive pre-training: real renders with their sentences in, a CLIP that transformers loads out."""

from __future__ import annotations

import json
import logging.handlers
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from agentzoo.errors import DataError
from agentzoo.models.clip_dt import CLIPDTConfig
from agentzoo.nn.language.pretrained import load_backbone
from agentzoo.research.pretrain.captioned_scenes import WORLDS, draw_scenes, make_pairs
from agentzoo.research.pretrain.clip import pixels, retrieval, train_clip, write_clip
from agentzoo.research.pretrain.model_card import clip_card
from agentzoo.research.pretrain.settings import CLIP_MINI
from agentzoo.store.tensors import read_tensors
from agentzoo.training.log import read_log

CHANGES = {
    "embed_dim": 16,
    "n_layers": 1,
    "vision_layers": 1,
    "projection_dim": 16,
    "scenes": 150,
    "held_out": 20,
    "batch_size": 16,
    "vocab_size": 300,
    "steps": 12,
    "warmup_steps": 2,
    "log_every": 2,
    "evaluate_every": 4,
    "checkpoint_every": 4,
}
TINY = CLIP_MINI.override([f"{name}={value}" for name, value in CHANGES.items()])


def test_scenes_are_the_worlds_renders_and_missions() -> None:
    import gymnasium as gym

    drawn = draw_scenes(12, 100)
    world = gym.make(WORLDS[1]).unwrapped
    world.reset(seed=101)
    frame = world.get_frame(highlight=False, tile_size=8)  # type: ignore[attr-defined]
    assert drawn.sentences[1] == world.mission  # type: ignore[attr-defined]
    np.testing.assert_array_equal(drawn.pictures[1, : frame.shape[0], : frame.shape[1]], frame)
    assert not drawn.pictures[1, frame.shape[0] :].any()
    again = draw_scenes(12, 100)
    assert again.sentences == drawn.sentences
    assert np.array_equal(again.pictures, drawn.pictures)


def test_every_world_fits_the_canvas_and_says_many_things() -> None:
    drawn = draw_scenes(20 * len(WORLDS), 7)
    assert drawn.pictures.shape == (200, 72, 72, 3)
    for i, name in enumerate(WORLDS):
        assert len(set(drawn.sentences[i :: len(WORLDS)])) >= 10, name
        assert drawn.pictures[i :: len(WORLDS)].any(axis=(1, 2, 3)).all()


def test_held_out_sentences_differ_and_are_never_trained_on() -> None:
    pairs = make_pairs(150, 20, seed=0)
    held = pairs.held_out.sentences
    assert len(set(held)) == len(held) == len(pairs.held_out.pictures) == 20
    assert not set(held) & set(pairs.train.sentences)
    assert 120 <= len(pairs.train.sentences) <= 150
    other = make_pairs(150, 20, seed=1)
    assert other.held_out.sentences != held


def test_too_few_sentences_raise_a_data_error_and_leave_the_folder_free(tmp_path: Path) -> None:
    for scenes, held_out in ((5, 20), (20, 30)):  # fewer sentences than are set apart; too few beside them
        with pytest.raises(DataError, match=r"different sentences; with held_out=.* Draw more scenes \(--set scenes="):
            train_clip(TINY.override([f"scenes={scenes}", f"held_out={held_out}"]), tmp_path / "run")
    assert not (tmp_path / "run").exists()
    train_clip(TINY.override(["steps=1"]), tmp_path / "run")


def test_a_kill_between_the_files_of_the_tokenizer_loses_nothing(tmp_path: Path) -> None:
    run, hub = tmp_path / "run", tmp_path / "hub"

    def stop(step: int) -> None:
        if step == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_clip(TINY, run, on_step=stop)
    whole = (run / "tokenizer_config.json").read_bytes()
    (run / "tokenizer_config.json").unlink()
    task = train_clip(TINY, run)
    assert (run / "tokenizer_config.json").read_bytes() == whole
    (run / "tokenizer_config.json").unlink()
    write_clip(task, run, hub, "a test")
    assert (hub / "tokenizer_config.json").read_bytes() == whole
    assert (hub / "tokenizer.json").read_bytes() == (run / "tokenizer.json").read_bytes()


def test_retrieval_by_hand() -> None:
    similarity = torch.tensor([[0.9, 0.1, 0.0], [0.8, 0.7, 0.0], [0.0, 0.0, 0.1]])
    found = retrieval(similarity)
    assert found["picture_top1_accuracy"] == pytest.approx(2 / 3)  # the second sentence takes the first picture
    assert found["sentence_top1_accuracy"] == 1.0
    assert found["picture_top5_accuracy"] == 1.0
    assert found["chance_top1_accuracy"] == pytest.approx(1 / 3)


def test_training_finds_pictures_better_than_chance(tmp_path: Path) -> None:
    """On training pairs, so that the test takes seconds; the card's figures are on held-out ones."""
    settings = TINY.override(["steps=200", "lr=0.003", "scenes=60", "batch_size=32", "evaluate_every=100"])
    task = train_clip(settings, tmp_path)
    rows = read_log(tmp_path)
    assert float(rows[-1]["loss"]) < 0.6 * np.log(32)  # the loss of who knows nothing and says so
    assert task.evaluate()["chance_top1_accuracy"] == 0.05


def test_the_written_folder_is_what_transformers_loads(tmp_path: Path) -> None:
    from transformers import AutoProcessor, CLIPModel, CLIPTextModel

    task = train_clip(TINY, tmp_path / "run")
    figures = write_clip(task, tmp_path / "run", tmp_path / "hub", "a test")
    model = CLIPModel.from_pretrained(tmp_path / "hub").eval()
    processor = AutoProcessor.from_pretrained(tmp_path / "hub")
    held = task.held_out
    end = processor.tokenizer.eos_token
    rows = [processor.tokenizer(text + end, return_tensors="pt") for text in held.sentences]
    with torch.no_grad():
        texts = torch.cat([model(**row, pixel_values=pixels(held.pictures[:1])).text_embeds for row in rows])
        seen = processor.image_processor(list(held.pictures), return_tensors="pt")["pixel_values"]
        torch.testing.assert_close(seen, pixels(held.pictures), atol=1e-6, rtol=0)
        pictures = model(**rows[0], pixel_values=seen).image_embeds
    assert retrieval(texts @ pictures.T) == pytest.approx({k: v for k, v in figures.items() if "accuracy" in k})
    assert figures["held_out_pairs"] == len(held.sentences) == 20
    fewer = clip_card(task.settings, tmp_path / "hub", {**figures, "held_out_pairs": 17}, [], "a test")
    assert "17 held-out pairs" in fewer
    tower = CLIPTextModel.from_pretrained(tmp_path / "hub")
    trained = task.module.get_parameter("text_model.encoder.layers.0.mlp.fc1.weight")
    assert torch.equal(tower.get_parameter("encoder.layers.0.mlp.fc1.weight"), trained)
    card = (tmp_path / "hub" / "README.md").read_text()
    assert "20 held-out pairs" in card
    assert f"| a sentence | its picture | {figures['picture_top1_accuracy']:.1%} |" in card
    assert (tmp_path / "hub" / "model.safetensors").stat().st_mode & 0o777 == 0o644
    said = logging.handlers.BufferingHandler(1_000)
    logging.getLogger("transformers").addHandler(said)
    found = load_backbone(str(tmp_path / "hub"))
    logging.getLogger("transformers").removeHandler(said)
    assert said.buffer == []  # the tower of pictures is left in the file without a word
    assert found.sizes == CLIPDTConfig(embed_dim=16, n_layers=1, n_heads=2).sizes()
    assert torch.equal(found.blocks["blocks.0.up.weight"], trained)


@pytest.mark.slow
def test_a_run_killed_with_signal_9_resumes_to_the_same_bits(tmp_path: Path) -> None:
    settings = [part for name, value in {**CHANGES, "steps": 40}.items() for part in ("--set", f"{name}={value}")]
    command = [sys.executable, "-m", "agentzoo", "research", "pretrain", "clip", "--threads", "1", "--json", *settings]
    command += ["--out", str(tmp_path / "cut")]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        rows = read_log(tmp_path / "cut")
        if rows and int(rows[-1]["step"]) >= 6:
            break
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert not (tmp_path / "cut" / "hub").exists()
    done = subprocess.run(command, capture_output=True, check=True)
    whole = train_clip(TINY.override(["steps=40"]), tmp_path / "whole")
    figures = write_clip(whole, tmp_path / "whole", tmp_path / "whole" / "hub", "two cores")
    assert {name: json.loads(done.stdout)[name] for name in figures} == figures
    again, straight = (read_tensors(tmp_path / name / "hub" / "model.safetensors")[0] for name in ("cut", "whole"))
    assert again.keys() == straight.keys()
    assert all(torch.equal(again[name], straight[name]) for name in again)
