"""A small CLIP, trained from scratch on rendered worlds and their missions; agents start from its text tower.

Source: Radford et al. 2021, arXiv:2103.00020: two towers, the symmetric contrastive loss, a learned temperature that
never exceeds 100. Differs: a batch of 128; a byte-pair vocabulary learned on the missions.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from agentzoo.nn.language import tokenizer as bpe
from agentzoo.research.pretrain.captioned_scenes import PIXELS, TILE, Pairs, Scenes, make_pairs
from agentzoo.research.pretrain.model_card import clip_card
from agentzoo.research.pretrain.new_networks import new_clip_model
from agentzoo.research.pretrain.pretraining import Row, claim, pretrain
from agentzoo.research.pretrain.settings import CLIPSettings
from agentzoo.store.files import LOG, RESULTS, WEIGHTS, write_atomic
from agentzoo.store.locate import written_whole
from agentzoo.training.lock import held

MEAN, STD = 0.5, 0.25  # pixels become (x / 255 - MEAN) / STD


class ContrastiveTask:
    """Matching pictures and sentences, both ways."""

    def __init__(self, settings: CLIPSettings, pairs: Pairs, tokenizer: Any) -> None:
        torch.manual_seed(settings.seed)
        self.settings = settings
        self.end = bpe.end_of_text(tokenizer)
        self.module: nn.Module = new_clip_model(
            vocab_size=tokenizer.get_vocab_size(),
            end_of_text=self.end,
            width=settings.embed_dim,
            layers=settings.n_layers,
            heads=settings.n_heads,
            positions=settings.context,
            vision_layers=settings.vision_layers,
            projection=settings.projection_dim,
            pixels=PIXELS,
            patch=TILE,
        )
        self.train, self.held_out = pairs
        self.ids = {name: self._encode(scenes, tokenizer) for name, scenes in zip(Pairs._fields, pairs, strict=True)}

    def _encode(self, scenes: Scenes, tokenizer: Any) -> tuple[Tensor, Tensor]:
        """(n, L) ids, padded with the end-of-text token, and (n,) their lengths including one such token."""
        rows = [one.ids[: self.settings.context - 1] for one in tokenizer.encode_batch(scenes.sentences)]
        lengths = torch.tensor([len(row) + 1 for row in rows])
        ids = torch.full((len(rows), int(lengths.max())), self.end)
        for i, row in enumerate(rows):
            ids[i, : len(row)] = torch.tensor(row)
        return ids, lengths

    def loss(self, generator: torch.Generator) -> Tensor:
        """Mean of the cross-entropies of the right sentence for each picture and the right picture for each."""
        index = torch.randint(len(self.train.sentences), (self.settings.batch_size,), generator=generator)
        model: Any = self.module
        with torch.no_grad():
            model.logit_scale.clamp_(max=float(np.log(100.0)))
        out: Tensor = model(**self._inputs("train", self.train, index), return_loss=True).loss
        return out

    def _inputs(self, part: str, scenes: Scenes, index: Tensor) -> dict[str, Tensor]:
        ids, lengths = self.ids[part]
        longest = int(lengths[index].max())
        inside = torch.arange(longest)[None] < lengths[index, None]
        return {
            "input_ids": ids[index, :longest],
            "attention_mask": inside.long(),
            "pixel_values": pixels(scenes.pictures[index.numpy()]),
        }

    @torch.inference_mode()
    def evaluate(self) -> dict[str, float]:
        """Accuracies on held-out pairs: the right picture (sentence) ranks first, or among the first five."""
        model: Any = self.module
        count = len(self.held_out.sentences)
        parts = [
            model(**self._inputs("held_out", self.held_out, index)) for index in torch.split(torch.arange(count), 250)
        ]
        texts, pictures = (torch.cat([getattr(one, name) for one in parts]) for name in ("text_embeds", "image_embeds"))
        return retrieval(texts @ pictures.T)


def retrieval(similarity: Tensor) -> dict[str, float]:
    """Retrieval accuracies, and chance, from (n, n) similarities of sentences (rows) and pictures; pair i is (i, i)."""
    count = len(similarity)
    right = torch.arange(count)[:, None]
    found = {}
    for name, scores in (("picture", similarity), ("sentence", similarity.T)):
        best = scores.topk(min(5, count), dim=1).indices
        found[f"{name}_top1_accuracy"] = float((best[:, :1] == right).any(1).float().mean())
        found[f"{name}_top5_accuracy"] = float((best == right).any(1).float().mean())
    return {**found, "chance_top1_accuracy": 1.0 / count}


def pixels(pictures: np.ndarray[Any, Any]) -> Tensor:
    """(n, 72, 72, 3) uint8 -> (n, 3, 72, 72) float32, as the towers read them."""
    return (torch.from_numpy(pictures).permute(0, 3, 1, 2).float() / 255.0 - MEAN) / STD


def train_clip(
    settings: CLIPSettings,
    folder: Path,
    *,
    on_step: Callable[[int], None] = lambda _: None,
    on_row: Callable[[Row], None] = lambda _: None,
    on_progress: Callable[[str], None] = lambda _: None,
) -> ContrastiveTask:
    """Train, or resume the run in `folder`. The scenes are drawn each time, from the same seed.

    Raises:
        ConfigError: minigrid or transformers are not installed. DataError: too few different sentences, see
            `captioned_scenes.make_pairs`. TrainingError: another process trains in the folder; also see
            `pretraining.claim` and `pretraining.pretrain`.
    """
    claim(folder, settings)
    whole = settings.scenes + settings.held_out
    pairs = make_pairs(
        settings.scenes,
        settings.held_out,
        settings.seed,
        lambda done: on_progress(f"drawing scenes {done:,}/{whole:,}") if done % 250 == 0 else None,
    )
    if (folder / bpe.TOKENIZER).exists():
        tokenizer = bpe.load_tokenizer(folder / bpe.TOKENIZER)
    else:
        tokenizer = bpe.train_tokenizer(pairs.train.sentences, settings.vocab_size)
    task = ContrastiveTask(settings, pairs, tokenizer)
    with held(folder):  # nothing is written before all settings are checked
        claim(folder, settings, writes=True)
        bpe.save_tokenizer(tokenizer, folder, settings.context)
        pretrain(task, settings, folder, on_step=on_step, on_row=on_row)
    task.module.eval()
    return task


def write_clip(task: ContrastiveTask, run: Path, target: Path, hardware: str) -> dict[str, float]:
    """Write the Hub folder of a finished run: files for `CLIPModel` and `CLIPTextModel.from_pretrained`, and a card.

    It replaces `target`, whole or not at all.

    Raises:
        StorageError: `target` is something else.
    """
    with written_whole(target) as folder:
        bpe.save_tokenizer(bpe.load_tokenizer(run / bpe.TOKENIZER), folder, task.settings.context)
        for name in ("pretrain.json", LOG):
            write_atomic(folder / name, (run / name).read_text())
        model: Any = task.module
        model.save_pretrained(folder)
        (folder / WEIGHTS).chmod(0o644)  # transformers makes it readable by its owner only
        processor = {
            "image_processor_type": "CLIPImageProcessor",
            "do_resize": False,
            "do_center_crop": False,
            "do_rescale": True,
            "rescale_factor": 1 / 255,
            "do_normalize": True,
            "image_mean": [MEAN] * 3,
            "image_std": [STD] * 3,
        }
        write_atomic(folder / "preprocessor_config.json", json.dumps(processor, indent=2) + "\n")
        figures = task.evaluate()
        figures |= {"held_out_pairs": len(task.held_out.sentences)}
        figures |= {"train_pairs": len(task.train.sentences), "train_sentences": len(set(task.train.sentences))}
        rounded = {name: round(value, 4) for name, value in figures.items()}
        write_atomic(folder / RESULTS, json.dumps(rounded, indent=2) + "\n")
        examples = task.held_out.sentences[:: max(len(task.held_out.sentences) // 5, 1)][:5]
        write_atomic(folder / "README.md", clip_card(task.settings, folder, figures, examples, hardware))
    return figures
