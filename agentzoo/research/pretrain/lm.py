"""A language model of GPT-2's architecture, trained from scratch on text files.

Source: Radford et al. 2019 for the architecture; Reid et al. 2022, arXiv:2201.12122, appendix, for ChibiT: the
Decision Transformer's own size (3 layers, width 128, 1 head), windows of 1,024 tokens.
Differs: a vocabulary of 4,000 instead of GPT-2's 50,257, because the text is a thousandth of GPT-2's; 4,096 tokens an
update; no dropout, since a few epochs of so much text do not overfit so small a network.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from agentzoo.errors import CheckpointError, DataError, TrainingError
from agentzoo.nn.language import tokenizer as bpe
from agentzoo.nn.language.corpus import CorpusRecord, Document, Tokens, read_document, text_files, tokenize
from agentzoo.research.pretrain.model_card import language_model_card
from agentzoo.research.pretrain.new_networks import new_language_model
from agentzoo.research.pretrain.pretraining import Row, claim, pretrain
from agentzoo.research.pretrain.settings import LMSettings
from agentzoo.store.files import CONFIG, LOG, RESULTS, WEIGHTS, write_atomic
from agentzoo.store.locate import written_whole
from agentzoo.store.tensors import read_tensors, save_tensors
from agentzoo.training.lock import held

RECORD = "corpus.json"  # the text of a model's training and validation
HELD_OUT = "held_out"  # name of the training files' held-out ends in the figures
MAX_BYTES = 5_000_000  # of weights as float32; larger ones are stored as float16
PROMPTS = ("", "The old man", "She looked at him and said")


class LanguageTask:
    """Next-token cross-entropy on windows drawn uniformly from the corpus."""

    def __init__(self, settings: LMSettings, train: Tokens, validation: dict[str, Tokens]) -> None:
        torch.manual_seed(settings.seed)
        self.settings = settings
        self.module: nn.Module = new_language_model(
            settings.vocab_size, settings.embed_dim, settings.n_layers, settings.n_heads, settings.context,
            settings.activation,
        )  # fmt: skip
        self.train = train.chunks(settings.context + 1).flatten()  # at least one window
        self.validation = {name: (tokens, tokens.chunks(settings.context)) for name, tokens in validation.items()}

    def loss(self, generator: torch.Generator) -> Tensor:
        """Mean nats per token."""
        length = self.settings.context + 1
        starts = torch.randint(len(self.train) - length + 1, (self.settings.batch_size, 1), generator=generator)
        return self._nats(self.train[starts + torch.arange(length)].long())

    def _nats(self, ids: Tensor) -> Tensor:
        logits = self.module(input_ids=ids[:, :-1], use_cache=False).logits
        return cross_entropy(logits.flatten(0, 1).float(), ids[:, 1:].flatten())

    @torch.inference_mode()
    def evaluate(self, whole: bool = False) -> dict[str, float]:
        """Perplexity per token of each validation text, in windows spread evenly over it; `whole`: over all of it."""
        found = {}
        for name, (_, chunks) in self.validation.items():
            chosen = chunks if whole else chunks[spread(self.settings.watch_chunks, len(chunks))]
            nats = [float(self._nats(part.long())) * len(part) for part in torch.split(chosen, 4)]
            found[f"{name}_perplexity"] = math.exp(sum(nats) / len(chosen))
        return found

    def bits_per_byte(self, perplexities: dict[str, float]) -> dict[str, float]:
        """Bits per byte of text, which can be compared across vocabularies."""
        return {
            name: math.log2(perplexities[f"{name}_perplexity"]) * len(tokens.ids) / tokens.bytes
            for name, (tokens, _) in self.validation.items()
        }


def spread(count: int, length: int) -> Tensor:
    """The middles of `count` equal parts of `length` places; all places if there are at most `count`."""
    count = min(count, length)
    return (2 * torch.arange(count) + 1) * length // (2 * count)


def figure_names(validation: Sequence[Path]) -> list[str]:
    """The names of the validation texts in the figures: their file names, without the ending.

    Raises:
        DataError: two have the same name, or one has the name of the held-out ends.
    """
    found: dict[str, Path] = {}
    for path in validation:
        name = path.stem.replace("-", "_")
        if name == HELD_OUT:
            raise DataError(
                f"--validation {path} would be called {name!r} in the figures, the name of the held-out ends of the "
                "training files. Rename the file."
            )
        if name in found:
            raise DataError(
                f"--validation {found[name]} and {path} would both be called {name!r} in the figures. Rename one of "
                "the files, or omit it."
            )
        found[name] = path
    return list(found)


def train_language_model(
    settings: LMSettings,
    folder: Path,
    corpus: Sequence[Path],
    validation: Sequence[Path],
    *,
    on_step: Callable[[int], None] = lambda _: None,
    on_row: Callable[[Row], None] = lambda _: None,
    on_progress: Callable[[str], None] = lambda _: None,
) -> LanguageTask:
    """Train, or resume the run in `folder`; the tokenizer is learned once.

    Args:
        corpus: text files and folders; `validation` files among them are left out, and the end of each is held out.
        validation: text files for validation only.

    Raises:
        DataError: text that cannot be read or is too short, or two validation texts of one name. TrainingError:
            `folder` holds a run on other text, or another process trains in it; also see `pretraining.claim` and
            `pretraining.pretrain`.
    """
    names = figure_names(validation)
    claim(folder, settings)
    trained = [read_document(path, settings.held_out) for path in text_files(corpus, validation)]
    measured = [read_document(path) for path in validation]
    record = CorpusRecord(
        training=tuple(one.record for one in trained),
        validation=tuple(one.record for one in measured),
        held_out=settings.held_out,
    )
    _claim_text(folder / RECORD, record)
    if (folder / bpe.TOKENIZER).exists():
        tokenizer = bpe.load_tokenizer(folder / bpe.TOKENIZER)
    else:
        on_progress(f"learning {settings.vocab_size} tokens")
        tokenizer = bpe.train_tokenizer((one.text for one in trained), settings.vocab_size)
    on_progress("reading the text")
    task = LanguageTask(settings, *_tokens(trained, dict(zip(names, measured, strict=True)), tokenizer))
    with held(folder):  # nothing is written before the text has passed all checks
        claim(folder, settings, writes=True)
        _claim_text(folder / RECORD, record, writes=True)
        bpe.save_tokenizer(tokenizer, folder, settings.context)
        pretrain(task, settings, folder, on_step=on_step, on_row=on_row)
    task.module.eval()
    return task


def _claim_text(path: Path, record: CorpusRecord, writes: bool = False) -> None:
    """Check that the run's text is the recorded one. `writes`: store a missing record."""
    if not path.exists():
        if writes:
            write_atomic(path, record.to_json())
        return
    found = CorpusRecord.from_json(path.read_text(), str(path))
    if found != record:
        there, asked = ({*one.training, *one.validation} for one in (found, record))
        changed = ", ".join(sorted({one.name for one in there ^ asked})) or "the same files, used otherwise"
        raise TrainingError(f"{path.parent} holds a run on other text ({changed}). Choose another --out, or delete it.")


def _tokens(
    trained: Sequence[Document], measured: Mapping[str, Document], tokenizer: Any
) -> tuple[Tokens, dict[str, Tokens]]:
    end = bpe.end_of_text(tokenizer)
    texts = {HELD_OUT: [one.held_out for one in trained], **{name: [one.text] for name, one in measured.items()}}
    train = tokenize([one.text for one in trained], tokenizer, end)
    return train, {name: tokenize(text, tokenizer, end) for name, text in texts.items()}


def write_language_model(task: LanguageTask, run: Path, target: Path, hardware: str) -> dict[str, float]:
    """Write the Hub folder of a finished run: files for `GPT2LMHeadModel` and `AutoTokenizer`, and a card.

    It replaces `target`, whole or not at all. Weights of more than 5 MB are stored as float16, and `task` is set to
    the stored weights.

    Returns:
        The figures on the card: perplexity and bits per byte of each whole validation text, measured with the stored
        weights, and the number of tokens trained on.

    Raises:
        CheckpointError: a weight is too large for float16. StorageError: `target` is something else.
    """
    settings, tokenizer = task.settings, bpe.load_tokenizer(run / bpe.TOKENIZER)
    with written_whole(target) as folder:
        bpe.save_tokenizer(tokenizer, folder, settings.context)
        for name in (RECORD, "pretrain.json", LOG):
            write_atomic(folder / name, (run / name).read_text())
        model: Any = task.module
        _store(model, folder / WEIGHTS)
        end = bpe.end_of_text(tokenizer)
        tree = json.loads(model.config.to_json_string(use_diff=False))
        tree |= {"architectures": ["GPT2LMHeadModel"], "bos_token_id": end, "eos_token_id": end}
        tree |= {"dtype": "float32"}  # transformers then widens float16, as in the measurements below
        write_atomic(folder / CONFIG, json.dumps(tree, indent=2) + "\n")
        figures = task.evaluate(whole=True)
        bits = task.bits_per_byte(figures)
        figures |= {f"{name}_bits_per_byte": value for name, value in bits.items()}
        figures |= {"train_tokens": len(task.train)}
        write_atomic(folder / RESULTS, json.dumps({name: round(v, 4) for name, v in figures.items()}, indent=2) + "\n")
        samples = [sample(task, tokenizer, prompt, seed) for seed, prompt in enumerate(PROMPTS)]
        write_atomic(folder / "README.md", language_model_card(settings, folder, figures, samples, hardware))
    return figures


def _store(model: Any, path: Path) -> None:
    """Write the weights, and set the model to the written ones."""
    tensors = {n: t for n, t in model.state_dict().items() if n != "lm_head.weight"}  # tied to the token table
    if sum(tensor.nbytes for tensor in tensors.values()) > MAX_BYTES:
        tensors = {name: tensor.half() for name, tensor in tensors.items()}
        broken = [name for name, tensor in tensors.items() if not tensor.isfinite().all()]
        if broken:
            raise CheckpointError(f"{broken[0]} holds numbers too large for float16. Train again with a lower lr.")
    save_tensors(path, tensors, {"format": "pt"})
    stored, _ = read_tensors(path)
    model.load_state_dict({**stored, "lm_head.weight": stored["transformer.wte.weight"]})


@torch.inference_mode()
def sample(task: LanguageTask, tokenizer: Any, prompt: str, seed: int, length: int = 80) -> str:
    """Continue `prompt`, each token drawn from the 40 most likely."""
    generator = torch.Generator().manual_seed(seed)
    ids = [bpe.end_of_text(tokenizer), *tokenizer.encode(prompt).ids]
    for _ in range(length):
        seen = torch.tensor([ids[-task.settings.context :]])
        logits = task.module(input_ids=seen, use_cache=False).logits[0, -1].float()
        best = logits.topk(min(40, len(logits)))
        ids.append(int(best.indices[torch.multinomial(best.values.softmax(0), 1, generator=generator)]))
    return str(tokenizer.decode(ids[1:]))
