"""The cards of pre-trained models, with every number from their records."""

from __future__ import annotations

import json
import math
from pathlib import Path

from agentzoo.research.pretrain.settings import CLIPSettings, LMSettings
from agentzoo.store.files import WEIGHTS
from agentzoo.store.tensors import check_header
from agentzoo.text import duration
from agentzoo.training.log import read_log


def weight_count(path: Path) -> int:
    """The number of weights in a safetensors file."""
    return sum(math.prod(shape) for _, shape in check_header(path).values())


def _weight_type(path: Path) -> str:
    """The type of the weights in a safetensors file."""
    names = {"F32": "float32", "F16": "float16"}
    return ", ".join(sorted({names.get(kind, kind) for kind, _ in check_header(path).values()}))


def _front(tags: list[str]) -> list[str]:
    lines = ["---", "license: mit", "language: en", "library_name: transformers", "tags:"]
    return [*lines, *(f"- {tag}" for tag in tags), "---", ""]


def _quickstart(kind: str, variable: str) -> list[str]:
    return [
        "```python",
        f"from transformers import AutoTokenizer, {kind}",
        "",
        'folder = "."  # where this card lies; on the Hub, OWNER/NAME',
        f"{variable} = {kind}.from_pretrained(folder)",
        "tokenizer = AutoTokenizer.from_pretrained(folder)",
        "```",
        "",
        "Agents start from it where `model.backbone` of their recipe is its id or its folder.",
        "",
    ]


def language_model_card(
    settings: LMSettings, folder: Path, figures: dict[str, float], samples: list[str], hardware: str
) -> str:
    """README of a language model."""
    corpus = json.loads((folder / "corpus.json").read_text())
    rows = read_log(folder)
    count = weight_count(folder / WEIGHTS)
    blocks = count - settings.embed_dim * (settings.vocab_size + settings.context)
    size = sum(one["bytes"] for one in corpus["training"]) / 1e6
    measured = [row for row in rows if row["held_out_perplexity"]]
    last, tokens = measured[-1], settings.batch_size * settings.context
    before = [row for row in measured if int(row["step"]) <= 0.8 * int(last["step"])][-1]
    read = int(last["step"]) * tokens
    lines = _front(["agentzoo", "gpt2"])
    lines += [
        f"# {settings.name}",
        "",
        f"A GPT-2-architecture language model of {count:,} numbers ({blocks:,} in its blocks): {settings.n_layers} "
        f"layers, width {settings.embed_dim}, {settings.n_heads} head{'s' * (settings.n_heads > 1)}, "
        f"{settings.activation}, {settings.context} positions, a byte-pair vocabulary of {settings.vocab_size} learned "
        "on the same text. It is small on purpose: a start for agents that act in continuous control. "
        f"Stored as {_weight_type(folder / 'model.safetensors')}, computed as float32.",
        "",
        *_quickstart("GPT2LMHeadModel", "model"),
        "## How good",
        "",
        "| text | perplexity a token | bits per byte |",
        "|---|---:|---:|",
    ]
    for name in [key.removesuffix("_perplexity") for key in figures if key.endswith("_perplexity")]:
        what = "held-out ends of the training files" if name == "held_out" else f"`{name}`, not trained on"
        lines.append(f"| {what} | {figures[f'{name}_perplexity']:.2f} | {figures[f'{name}_bits_per_byte']:.3f} |")
    lines += [
        "",
        f"Measured with the weights as they are stored, in windows of {settings.context} tokens read one after the "
        "other. Perplexities of other vocabularies cannot be compared with these; bits per byte can.",
        "",
        "## How it was trained",
        "",
        f"{size:.1f} MB of text in {len(corpus['training'])} files "
        f"({', '.join(one['name'] for one in corpus['training'])}), the last {settings.held_out:.0%} of each held out. "
        f"{int(last['step']):,} updates of {tokens:,} tokens, AdamW, learning rate {settings.lr:g}, seed "
        f"{settings.seed}, {duration(float(last['seconds']))} on {hardware}: {read:,} tokens read of "
        f"{figures['train_tokens']:,.0f} in the text, {read / figures['train_tokens']:.1f} epochs. The held-out "
        f"perplexity, on at most {settings.watch_chunks} windows, was {float(before['held_out_perplexity']):.2f} after "
        f"{int(before['step']):,} updates and {float(last['held_out_perplexity']):.2f} at the end. "
        "`pretrain.json` holds all settings, `training_log.csv` the curve, `corpus.json` the files and their hashes.",
        "",
        "## Samples",
        "",
        "Drawn from the 40 most likely tokens, seeds 0, 1, 2: the first without a prompt, the others with the words "
        "they open with.",
        "",
    ]
    for text in samples:
        lines += ["```text", text.replace("```", "'''").strip(), "```", ""]
    return "\n".join(lines)


def clip_card(
    settings: CLIPSettings, folder: Path, figures: dict[str, float], examples: list[str], hardware: str
) -> str:
    """README of a small CLIP."""
    rows = read_log(folder)
    lines = _front(["agentzoo", "clip", "minigrid"])
    lines += [
        f"# {settings.name}",
        "",
        f"A small CLIP of {weight_count(folder / 'model.safetensors'):,} numbers, trained from random weights on "
        f"rendered Minigrid and BabyAI worlds and their missions. Its text tower has {settings.n_layers} layers, width "
        f"{settings.embed_dim}, {settings.n_heads} head{'s' * (settings.n_heads > 1)}, a causal mask and quick-GELU; "
        "agents start from that.",
        "",
        *_quickstart("CLIPTextModel", "tower"),
        "`CLIPModel` also holds the image tower. The text tower is read at the end-of-text token.",
        "",
        "## How good",
        "",
        f"{figures['held_out_pairs']:,.0f} held-out pairs, their sentences all different and none of them trained on. "
        "The model sees a sentence and must find its picture, or the reverse.",
        "",
        "| given | looked for | first | among the first five |",
        "|---|---|---:|---:|",
    ]
    for looked, given in (("picture", "sentence"), ("sentence", "picture")):
        first, five = figures[f"{looked}_top1_accuracy"], figures[f"{looked}_top5_accuracy"]
        lines.append(f"| a {given} | its {looked} | {first:.1%} | {five:.1%} |")
    chance = figures["chance_top1_accuracy"]
    lines += [
        f"| | by chance | {chance:.1%} | {min(5 * chance, 1.0):.1%} |",
        "",
        "Several pictures can fit one sentence, and several sentences one picture, so 100 % cannot be reached.",
        "",
        "## How it was trained",
        "",
        f"{figures['train_pairs']:,.0f} pairs with {figures['train_sentences']:,.0f} distinct sentences; "
        f"{settings.steps:,} updates of {settings.batch_size} pairs, AdamW, learning rate {settings.lr:g}, seed "
        f"{settings.seed}, {duration(float(rows[-1]['seconds']))} on {hardware}. `pretrain.json` holds all "
        "settings, `training_log.csv` the curve.",
        "",
        "Sentences held out:",
        "",
        *(f"- {text}" for text in examples),
        "",
    ]
    return "\n".join(lines)
