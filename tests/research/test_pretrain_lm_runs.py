"""Runs of language-model pre-training: stopped, killed, resumed, refused."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from agentzoo.errors import AgentzooError, CheckpointError, ConfigError, DataError, TrainingError
from agentzoo.nn.language import tokenizer as bpe
from agentzoo.research.pretrain.lm import train_language_model
from agentzoo.research.pretrain.pretraining import claim, pretrain, rate_factor
from agentzoo.research.pretrain.settings import CLIP_MINI, LM_SIZES, PretrainSettings
from agentzoo.store.tensors import read_tensors
from agentzoo.training.lock import held
from agentzoo.training.log import read_log
from research.pretrain_cases import TINY, WORDS, train


def test_a_run_stopped_and_resumed_equals_the_uninterrupted_one(text: Path, tmp_path: Path) -> None:
    whole = train(text, tmp_path / "whole")
    for at in (3, 5, 13):
        with pytest.raises(KeyboardInterrupt):
            train_language_model(
                TINY, tmp_path / "cut", [text], [text / "valid.txt"], on_step=lambda step, at=at: stop(step, at)
            )
    assert_same(whole, train(text, tmp_path / "cut"))
    kept = ("step", "loss", "lr", "grad_norm", "held_out_perplexity", "valid_perplexity")
    rows, again = read_log(tmp_path / "whole"), read_log(tmp_path / "cut")
    assert [[r[k] for k in kept] for r in rows] == [[r[k] for k in kept] for r in again]


def stop(step: int, at: int) -> None:
    if step == at:
        raise KeyboardInterrupt


def assert_same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> None:
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.slow
def test_a_run_killed_with_signal_9_resumes_to_the_same_bits(text: Path, tmp_path: Path) -> None:
    """The command itself, killed twice in the middle."""
    fields = {k: v for k, v in TINY.model_dump().items() if getattr(LM_SIZES["chibi"], k) != v} | {"steps": 400}
    command = [sys.executable, "-m", "agentzoo", "research", "pretrain", "lm", "--corpus", str(text), "--threads", "1"]
    command += ["--validation", str(text / "valid.txt"), "--out", str(tmp_path / "cut"), "--json"]
    command += [part for name, value in fields.items() for part in ("--set", f"{name}={value}")]
    for enough in (20, 100):
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            steps = [int(row["step"]) for row in read_log(tmp_path / "cut")]
            if steps and steps[-1] >= enough:
                break
            time.sleep(0.01)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        assert read_log(tmp_path / "cut")
        assert not (tmp_path / "cut" / "hub").exists()  # it was killed before its end
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    figures = json.loads(done.stdout)
    assert figures["held_out_perplexity"] > 1
    whole = train(text, tmp_path / "whole", TINY.override(["steps=400"]))
    found, _ = read_tensors(tmp_path / "cut" / "hub" / "model.safetensors")
    assert_same(whole, found)


def test_the_log_is_plain_csv(text: Path, tmp_path: Path) -> None:
    train(text, tmp_path / "run")
    with (tmp_path / "run" / "training_log.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["step"] for row in rows] == ["0", "5", "10", "15", "20"]
    assert all(float(row["loss"]) > 0 for row in rows[1:])


@pytest.mark.parametrize(("step", "factor"), [(0, 0.25), (3, 1.0), (4, 1.0), (12, 0.55), (20, 0.1)])
def test_rate_warms_up_and_falls_to_a_tenth(step: int, factor: float) -> None:
    assert rate_factor(step, TINY) == pytest.approx(factor)


@pytest.mark.parametrize("settings", [TINY, CLIP_MINI])
def test_heads_must_be_whole(settings: PretrainSettings) -> None:
    with pytest.raises(ConfigError, match="n_heads 3 must divide embed_dim"):
        settings.override(["n_heads=3"])


def test_a_seed_that_pytorch_cannot_take_is_refused() -> None:
    with pytest.raises(ConfigError, match="seed: Input should be less than or equal to 1000000000"):
        TINY.override(["seed=99999999999999999999"])


def test_two_processes_do_not_train_in_one_folder(text: Path, tmp_path: Path) -> None:
    with held(tmp_path / "run"), pytest.raises(TrainingError, match="is being trained by process"):
        train(text, tmp_path / "run")
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["training.lock"]
    train(text, tmp_path / "run")


def test_a_folder_of_other_settings_is_refused(text: Path, tmp_path: Path) -> None:
    train(text, tmp_path)
    with pytest.raises(TrainingError, match="embed_dim: 16 there, 8 asked"):
        claim(tmp_path, TINY.override(["embed_dim=8"]))
    with pytest.raises(TrainingError, match="embed_dim: 16 there, 8 asked"):
        train(text, tmp_path, TINY.override(["embed_dim=8"]))


def test_a_run_that_never_began_leaves_its_folder_free(text: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    with pytest.raises(DataError, match="do not fill one window"):
        train(text, run, TINY.override(["context=4096"]))
    (text / "valid.txt").write_text("short")
    with pytest.raises(DataError, match="do not fill one window"):
        train(text, run)
    (text / "valid.txt").write_text("the cat ran after a dog\n" * 40)
    train(text, run, TINY.override(["vocab_size=280"]))
    assert bpe.load_tokenizer(run / bpe.TOKENIZER).get_vocab_size() == 280


def test_a_finished_run_keeps_the_record_of_its_text(text: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    train(text, run)
    before = (run / "corpus.json").read_bytes()
    train(text, run)
    (text / "b.txt").write_text(WORDS * 60)
    with pytest.raises(TrainingError, match=r"run holds a run on other text \(b.txt\). Choose another --out"):
        train(text, run)
    with pytest.raises(TrainingError, match=r"other text \(b.txt, valid.txt\)"):
        train_language_model(TINY, run, [text / "a.txt", text / "b.txt"], [])
    assert (run / "corpus.json").read_bytes() == before


def test_a_non_finite_loss_stops_the_run(text: Path, tmp_path: Path) -> None:
    class Broken:
        module = torch.nn.Linear(1, 1)

        def loss(self, generator: torch.Generator) -> torch.Tensor:
            return self.module(torch.full((1, 1), float("inf"))).sum()

        def evaluate(self) -> dict[str, float]:
            return {"x_perplexity": 1.0}

    claim(tmp_path, TINY)
    with pytest.raises(TrainingError, match="not finite at update 0"):
        pretrain(Broken(), TINY, tmp_path)


@pytest.mark.parametrize(
    ("what", "error", "says"),
    [
        ("missing", DataError, "text does not exist"),
        ("empty", DataError, "no .txt file"),
        ("binary", DataError, "cannot be read as text"),
        ("blank", DataError, "holds no text"),
        ("short", DataError, "do not fill one window"),
        ("vocab", ConfigError, "vocab_size"),
        ("field", ConfigError, "Did you mean 'n_heads'"),
        ("interval", ConfigError, "multiple of log_every"),
    ],
)
def test_unusable_text_and_settings_are_refused(
    what: str, error: type[AgentzooError], says: str, tmp_path: Path
) -> None:
    corpus = tmp_path / "text"
    if what != "missing":
        corpus.mkdir()
    content = {"binary": b"\xff\xfe\x00", "blank": b" \n", "short": b"a\n", "vocab": b"a", "interval": b"a"}
    if what in content:
        (corpus / "x.txt").write_bytes(content[what])
    changes = {"vocab": ["vocab_size=100"], "field": ["n_head=1"], "interval": ["checkpoint_every=7"]}.get(what, [])
    with pytest.raises(error, match=says):
        train_language_model(TINY.override(changes), tmp_path / "run", [corpus], [])


def test_a_missing_or_broken_tokenizer_raises_a_checkpoint_error(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="is missing: a language model needs its tokenizer"):
        bpe.load_tokenizer(tmp_path / "tokenizer.json")
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(CheckpointError, match="cannot be read as a tokenizer"):
        bpe.load_tokenizer(tmp_path / "tokenizer.json")
