"""Language-model pre-training: text in, a folder out that transformers itself loads."""

from __future__ import annotations

import json
import math
import re
import shlex
import shutil
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from agentzoo.cli import app
from agentzoo.errors import CheckpointError, DataError, StorageError
from agentzoo.nn.language import tokenizer as bpe
from agentzoo.nn.language.corpus import read_document, text_files, tokenize
from agentzoo.nn.language.pretrained import load_backbone
from agentzoo.research.pretrain.lm import sample, spread, train_language_model, write_language_model
from agentzoo.research.pretrain.settings import LM_SIZES
from agentzoo.store.tensors import check_header
from agentzoo.training.log import read_log
from research.pretrain_cases import TINY, WORDS


def test_published_sizes() -> None:
    """ChibiT's blocks hold 595,072 numbers (spec, section 5: 596 thousand), without its final norm 594,816."""
    from agentzoo.research.pretrain.new_networks import new_language_model

    chibi, mini = LM_SIZES["chibi"], LM_SIZES["mini"]
    with torch.device("meta"):
        model = new_language_model(4_000, chibi.embed_dim, chibi.n_layers, chibi.n_heads, 1024, chibi.activation)
    blocks = [p for name, p in model.named_parameters() if ".wte." not in name and ".wpe." not in name]
    assert sum(p.numel() for p in blocks) == 595_072
    assert mini.embed_dim / mini.n_heads == 64
    assert mini.n_heads >= 4


def test_validation_files_and_held_out_ends_are_not_trained_on(text: Path) -> None:
    files = text_files([text], [text / "valid.txt"])
    assert [path.name for path in files] == ["a.txt", "b.txt"]
    document = read_document(files[0], 0.25)
    assert document.text + document.held_out == (text / "a.txt").read_text()
    assert document.held_out == WORDS * 14  # 15 lines are a quarter; the one that the cut falls into stays whole
    assert document.text.endswith("\n")


def test_the_readme_trains_on_all_books_but_not_on_the_validation_text(text: Path, tmp_path: Path) -> None:
    readme = (Path(__file__).resolve().parents[2] / "agentzoo" / "research" / "README.md").read_text()
    (line,) = re.findall(r"^agentzoo (research pretrain lm .*?) *(?:#.*)?$", readme, flags=re.MULTILINE)
    (text / "valid.txt").rename(text / "wikitext2-valid.txt")
    fields = {k: v for k, v in TINY.model_dump().items() if getattr(LM_SIZES["chibi"], k) != v} | {"steps": 5}
    command = [
        part.replace("TEXTS", str(text)).replace("hub_cards", str(tmp_path / "hub")) for part in shlex.split(line)
    ]
    command += ["--out", str(tmp_path / "run")]
    command += [part for name, value in fields.items() for part in ("--set", f"{name}={value}")]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    record = json.loads((tmp_path / "hub" / "lm-chibi" / "corpus.json").read_text())
    assert [one["name"] for one in record["training"]] == ["a.txt", "b.txt"]
    assert [one["name"] for one in record["validation"]] == ["wikitext2-valid.txt"]


@pytest.mark.parametrize("text", ["a" * 100, "a" * 99 + "\n", "a\n" * 10 + "b" * 79 + "\n"])
def test_a_long_last_line_is_held_out_in_part(text: str, tmp_path: Path) -> None:
    (tmp_path / "one.txt").write_text(text)
    document = read_document(tmp_path / "one.txt", 0.1)
    assert (len(document.text), len(document.held_out)) == (int(0.9 * len(text)), len(text) - int(0.9 * len(text)))


def test_a_validation_file_is_left_out_however_it_is_named(text: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(text.parent)
    (text.parent / "linked.txt").symlink_to(text / "valid.txt")
    for named in (Path("text/valid.txt"), Path("text/../text/valid.txt"), Path("linked.txt")):
        assert [path.name for path in text_files([text, text / "valid.txt"], [named])] == ["a.txt", "b.txt"]


def test_figures_of_two_texts_never_share_a_name(text: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    for name in ("valid.txt", "held-out.txt", "held_out.txt"):
        shutil.copyfile(text / "valid.txt", other / name)
    run = tmp_path / "run"
    with pytest.raises(DataError, match="would both be called 'valid' in the figures"):
        train_language_model(TINY, run, [text / "a.txt"], [text / "valid.txt", other / "valid.txt"])
    for name in ("held-out.txt", "held_out.txt"):
        with pytest.raises(DataError, match="would be called 'held_out' in the figures"):
            train_language_model(TINY, run, [text / "a.txt"], [other / name])
    assert not run.exists()


def test_the_tokenizer_gives_any_text_back_and_ends_documents(text: Path, tmp_path: Path) -> None:
    tokenizer = bpe.train_tokenizer([WORDS * 20], 300)
    for sentence in ("the cat sat", "naïve — “quoted” \U0001f408\n\n  x", ""):
        assert tokenizer.decode(tokenizer.encode(sentence).ids) == sentence
    assert len(tokenizer.encode(WORDS).ids) < len(WORDS) / 2  # it learned words, not bytes
    end = bpe.end_of_text(tokenizer)
    row = tokenize(["the", "cat"], tokenizer, end)
    assert row.ids.tolist() == [*tokenizer.encode("the").ids, end, *tokenizer.encode("cat").ids, end]
    assert row.bytes == 6
    again = bpe.train_tokenizer([WORDS * 20], 300)
    assert again.to_str() == tokenizer.to_str()


def test_perplexity_is_what_transformers_gives(text: Path, tmp_path: Path) -> None:
    """The figures of the last log row against transformers' own loss of the written folder, window by window."""
    from transformers import AutoTokenizer, GPT2LMHeadModel

    task = train_language_model(TINY, tmp_path / "run", [text], [text / "valid.txt"])
    figures = write_language_model(task, tmp_path / "run", tmp_path / "hub", "a test")
    model = GPT2LMHeadModel.from_pretrained(tmp_path / "hub").eval()
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "hub")
    words = (text / "valid.txt").read_text()
    ids = torch.tensor([*tokenizer(words)["input_ids"], tokenizer.eos_token_id])
    windows = ids[: len(ids) // 16 * 16].view(-1, 16)
    with torch.no_grad():
        loss = float(model(input_ids=windows, labels=windows).loss)
    assert figures["valid_perplexity"] == pytest.approx(math.exp(loss), rel=1e-4)
    assert figures["valid_bits_per_byte"] == pytest.approx(loss / math.log(2) * len(ids) / len(words), rel=1e-4)
    for name, value in task.module.named_parameters():
        assert torch.equal(value, model.get_parameter(name)), name


def test_weights_above_5_mb_are_float16_and_measured_as_stored(text: Path, tmp_path: Path) -> None:
    from transformers import GPT2LMHeadModel

    settings = TINY.override(["embed_dim=256", "n_layers=2", "steps=5"])  # 1.7 million numbers
    task = train_language_model(settings, tmp_path / "run", [text], [text / "valid.txt"])
    trained = {name: value.detach().clone() for name, value in task.module.named_parameters()}
    before = task.evaluate(whole=True)
    figures = write_language_model(task, tmp_path / "run", tmp_path / "hub", "a test")
    weights = tmp_path / "hub" / "model.safetensors"
    assert {kind for kind, _ in check_header(weights).values()} == {"F16"}
    assert weights.stat().st_size < 5_000_000 < 2 * weights.stat().st_size

    model = GPT2LMHeadModel.from_pretrained(tmp_path / "hub").eval()
    for name, value in trained.items():
        assert model.get_parameter(name).dtype == torch.float32
        assert torch.equal(model.get_parameter(name), value.half().float()), name
    windows = task.validation["valid"][1].long()
    with torch.no_grad():
        stored = math.exp(float(model(input_ids=windows, labels=windows).loss))
    assert figures["valid_perplexity"] == pytest.approx(stored, rel=1e-6)
    assert before["valid_perplexity"] != pytest.approx(stored, rel=1e-6)  # so the two can be told apart

    backbone = load_backbone(str(tmp_path / "hub"))
    assert {tensor.dtype for tensor in (*backbone.blocks.values(), backbone.tokens)} == {torch.float32}
    assert torch.equal(backbone.tokens, trained["transformer.wte.weight"].half().float())
    assert "Stored as float16" in (tmp_path / "hub" / "README.md").read_text()


def test_weights_that_float16_cannot_hold_are_not_written(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agentzoo.research.pretrain.lm.MAX_BYTES", 1_000)
    task = train_language_model(TINY, tmp_path / "run", [text], [])
    with torch.no_grad():
        task.module.get_parameter("transformer.ln_f.weight")[0] = 1e5
    with pytest.raises(CheckpointError, match=r"transformer.ln_f.weight holds numbers too large for float16"):
        write_language_model(task, tmp_path / "run", tmp_path / "hub", "a test")
    assert not (tmp_path / "hub" / "model.safetensors").exists()


@pytest.mark.parametrize(
    ("count", "length", "places"),
    [(2, 8, [2, 6]), (3, 7, [1, 3, 5]), (4, 4, [0, 1, 2, 3]), (16, 2, [0, 1]), (1, 9, [4])],
)
def test_watched_windows_lie_evenly_over_the_text(count: int, length: int, places: list[int]) -> None:
    assert spread(count, length).tolist() == places


def test_the_watched_held_out_figure_is_of_every_book(text: Path, tmp_path: Path) -> None:
    """Two windows of two held-out ends: a change of the second book's end alone must show."""
    settings = TINY.override(["watch_chunks=2", "steps=5"])
    task = train_language_model(settings, tmp_path / "run", [text / "a.txt", text / "b.txt"], [])
    tokens, chunks = task.validation["held_out"]
    before = task.evaluate()
    assert task.evaluate() == before
    task.validation["held_out"] = (tokens, torch.cat((chunks[: len(chunks) // 2], chunks[len(chunks) // 2 :].flip(1))))
    assert task.evaluate() != before


@pytest.mark.parametrize("size", list(LM_SIZES))
def test_published_sizes_are_measured_ten_times_and_train_for_ninety_minutes(size: str) -> None:
    settings = LM_SIZES[size]
    assert settings.steps // settings.evaluate_every >= 10
    assert settings.steps * {"chibi": 1.0, "mini": 2.3}[size] / 60 <= 92  # seconds an update on a busy core


def test_training_learns_more_than_how_often_words_come(text: Path, tmp_path: Path) -> None:
    task = train_language_model(TINY.override(["steps=200"]), tmp_path / "run", [text], [text / "valid.txt"])
    rows = read_log(tmp_path / "run")
    first, last = float(rows[0]["held_out_perplexity"]), float(rows[-1]["held_out_perplexity"])
    counts = torch.bincount(task.validation["held_out"][0].ids)
    share = counts[counts > 0] / counts.sum()
    by_frequency = math.exp(-float((share * share.log()).sum()))  # the best that ignores what came before
    assert rows[0]["step"] == "0"
    assert first == pytest.approx(300, rel=0.3)  # knows nothing: as many as there are tokens
    assert last < by_frequency / 2
    assert [row["step"] for row in rows[:4]] == ["0", "5", "10", "15"]
    assert rows[1]["held_out_perplexity"] == ""
    assert rows[2]["held_out_perplexity"] != ""


def test_a_written_folder_holds_a_card_with_its_figures_and_samples(text: Path, tmp_path: Path) -> None:
    task = train_language_model(TINY, tmp_path / "run", [text], [text / "valid.txt"])
    figures = write_language_model(task, tmp_path / "run", tmp_path / "hub", "one core")
    card = (tmp_path / "hub" / "README.md").read_text()
    assert f"{figures['valid_perplexity']:.2f} | {figures['valid_bits_per_byte']:.3f}" in card
    assert "a.txt, b.txt" in card
    assert "one core" in card
    assert figures["train_tokens"] == len(task.train)
    epochs = 20 * 4 * 16 / len(task.train)  # updates, windows, tokens
    assert "20 updates of 64 tokens, AdamW" in card
    assert f"1,280 tokens read of {len(task.train):,} in the text, {epochs:.1f} epochs" in card
    rows = {row["step"]: row for row in read_log(tmp_path / "run")}
    at_10, at_20 = (float(rows[step]["held_out_perplexity"]) for step in ("10", "20"))
    assert f"was {at_10:.2f} after 10 updates and {at_20:.2f} at the end" in card
    assert "flat" not in card
    assert "Stored as float32" in card
    tokenizer = bpe.load_tokenizer(tmp_path / "hub" / "tokenizer.json")
    assert sample(task, tokenizer, "the", 3) == sample(task, tokenizer, "the", 3) != sample(task, tokenizer, "the", 4)
    assert sample(task, tokenizer, "the cat", 0).startswith("the cat")
    assert "```text\n" + sample(task, tokenizer, "The old man", 1).strip() in card
    corpus = json.loads((tmp_path / "hub" / "corpus.json").read_text())
    assert [one["name"] for one in corpus["validation"]] == ["valid.txt"]


def test_a_hub_folder_is_replaced_whole_or_not_at_all(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = train_language_model(TINY, tmp_path / "run", [text], [])
    write_language_model(task, tmp_path / "run", tmp_path / "hub", "a test")
    before = {path.name: path.read_bytes() for path in (tmp_path / "hub").iterdir()}
    monkeypatch.setattr("agentzoo.research.pretrain.lm.language_model_card", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        write_language_model(task, tmp_path / "run", tmp_path / "hub", "another")
    assert {path.name: path.read_bytes() for path in (tmp_path / "hub").iterdir()} == before
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    with pytest.raises(StorageError, match="is not an agent's folder"):
        write_language_model(task, tmp_path / "run", tmp_path / "mine", "another")
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["thesis.txt"]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(["hub", "mine", "run", text.name])
