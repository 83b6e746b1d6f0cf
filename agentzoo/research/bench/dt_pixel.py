"""DT on pixels against the same network, with data and acting as in the published Atari code.

The peer builds each window of a batch separately, as float32 in [0, 1], convolves in PyTorch's default layout, has
transformers' GPT-2 after the convolutions, and encodes all K stacks again for every action. Both are in float32.
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from agentzoo.agent import Agent
from agentzoo.config import AgentConfig
from agentzoo.data.episodes import Episodes, returns_to_go
from agentzoo.data.frames import FrameWriter, Stack
from agentzoo.data.windows import WindowSampler
from agentzoo.models.dt_pixel import DTPixelConfig, PixelDecisionTransformer
from agentzoo.nn.tokens import interleave
from agentzoo.recipe import load_recipe
from agentzoo.research.bench import ROW, Figure, compare
from agentzoo.research.peers import transformers_library
from agentzoo.training.loop import build_model
from agentzoo.training.optim import make_optimizer
from agentzoo.types import ActionSpec, ObservationSpec

AGENT_ID = "dt-breakout-replay"
BATCH = 8  # the paper has 128; the cost per window does not depend on the batch
PAPER = ("data.context=30", "model.n_layers=6")
LENGTHS = (500,) * 8
SIDE, CHOICES = 84, 6


def run(runs: int) -> list[Figure]:
    """`train_step` with its batch, timed `runs` times; `draw` (the batch alone) and `action`, ten times as often."""
    episodes = _episodes()
    recipe = load_recipe(AGENT_ID).override([f"train.batch_size={BATCH}", *PAPER])
    model = build_model(recipe, episodes)
    assert isinstance(model, PixelDecisionTransformer)
    peer = _Peer(model.config, recipe.data.context)
    loader = _Loader(episodes, recipe.data.context)
    sampler = WindowSampler(episodes, recipe.data.context, recipe.data.rtg_scale, drawn=recipe.data.drawn)
    generator = torch.Generator().manual_seed(0)
    figures = [
        compare(
            "train_step", _our_step(recipe, model.train(), sampler), _peer_step(recipe, peer.train(), loader), runs
        ),
        compare("draw", lambda: sampler.sample(BATCH, generator), lambda: loader.batch(BATCH), 10 * runs),
    ]
    agent = Agent(model, AgentConfig.of(recipe, model.io), recipe)
    peer.eval()
    for name, one in (("action", agent), ("action, onnx", copy.deepcopy(agent).freeze("onnx"))):
        figures.append(_action(name, one, peer, episodes, 10 * runs))
    return figures


def _episodes() -> Episodes:
    """A square of pixels that moves over a court; only its size matters for the timing."""
    rng = np.random.default_rng(0)
    frame = ObservationSpec(size=SIDE * SIDE, shapes=((1, SIDE, SIDE),), dtype="uint8", channels="none")
    writer = FrameWriter(frame, Stack(4, "zero"))
    for length in LENGTHS:
        frames = np.full((length, 1, SIDE, SIDE), 60, dtype=np.uint8)
        places = rng.integers(0, SIDE - 8, (length, 2))
        for picture, (row, column) in zip(frames, places, strict=True):
            picture[0, row : row + 8, column : column + 8] = rng.integers(100, 255, (8, 8))
        writer.add(frames)
    steps = sum(LENGTHS)
    stacked = ObservationSpec(size=4 * SIDE * SIDE, shapes=((4, SIDE, SIDE),), dtype="uint8", channels="first")
    return Episodes(
        dataset="squares",
        observation=stacked,
        action=ActionSpec(kind="discrete", size=CHOICES, dtype="int64"),
        observations=writer.finish(),
        actions=rng.integers(0, CHOICES, steps),
        rewards=rng.integers(0, 2, steps).astype(np.float64),
        lengths=np.array(LENGTHS),
        terminated=np.ones(len(LENGTHS), dtype=bool),
    )


class _Loader:
    """All stacks in memory as bytes; each window is made alone, then they are put together."""

    def __init__(self, episodes: Episodes, context: int) -> None:
        self.frames = episodes.observations[np.arange(sum(LENGTHS))]
        self.actions = torch.from_numpy(episodes.actions)
        self.rtg = np.concatenate([returns_to_go(rewards) for rewards in episodes.split(episodes.rewards)])
        self.context, self.rng = context, np.random.default_rng(0)

    def batch(self, count: int) -> tuple[Tensor, ...]:
        """Frames (B, K, 4 x 84 x 84) float, actions (B, K), returns-to-go (B, K, 1), timesteps (B, 1)."""
        parts = zip(*(self._one() for _ in range(count)), strict=True)
        return tuple(torch.stack(part) for part in parts)

    def _one(self) -> tuple[Tensor, ...]:
        start = int(self.rng.integers(len(LENGTHS))) * LENGTHS[0]
        offset = int(self.rng.integers(LENGTHS[0] - self.context))
        steps = slice(start + offset, start + offset + self.context)
        frames = torch.tensor(np.array(list(self.frames[steps])), dtype=torch.float32).reshape(self.context, -1) / 255.0
        rtg = torch.tensor(self.rtg[steps], dtype=torch.float32).unsqueeze(1)
        return frames, self.actions[steps], rtg, torch.tensor([offset])


class _Peer(nn.Module):
    """The same sizes as ours: convolutions, tokens through tanh, GPT-2."""

    def __init__(self, config: DTPixelConfig, context: int) -> None:
        super().__init__()
        transformers = transformers_library()
        dim = config.embed_dim
        self.frames = nn.Sequential(
            nn.Conv2d(4, 32, 8, 4), nn.ReLU(), nn.Conv2d(32, 64, 4, 2), nn.ReLU(), nn.Conv2d(64, 64, 3), nn.ReLU(),
            nn.Flatten(), nn.Linear(3136, dim), nn.Tanh(),
        )  # fmt: skip
        self.returns = nn.Sequential(nn.Linear(1, dim), nn.Tanh())
        self.actions = nn.Sequential(nn.Embedding(CHOICES, dim), nn.Tanh())
        self.began = nn.Embedding(config.max_ep_len, dim)
        sizes: dict[str, Any] = {
            "n_embd": dim,
            "n_layer": config.n_layers,
            "n_head": config.n_heads,
            "activation_function": "gelu",
        }
        sizes |= {"vocab_size": 1, "n_positions": 3 * context, "bos_token_id": None, "eos_token_id": None}
        self.blocks = transformers.GPT2Model(transformers.GPT2Config(**sizes))
        self.head = nn.Linear(dim, CHOICES, bias=False)

    def forward(self, frames: Tensor, actions: Tensor, rtg: Tensor, began: Tensor) -> Tensor:
        """(B, K, CHOICES) logits."""
        seen = self.frames(frames.reshape(-1, 4, SIDE, SIDE)).view(*actions.shape, -1)
        tokens = interleave(self.returns(rtg), seen, self.actions(actions)) + self.began(began)
        hidden = self.blocks(inputs_embeds=tokens, use_cache=False).last_hidden_state
        logits: Tensor = self.head(hidden)[:, 1::3]
        return logits


def _our_step(recipe: Any, model: Any, sampler: WindowSampler) -> Any:
    optimizer = make_optimizer(model, recipe.train)
    generator = torch.Generator().manual_seed(0)

    def step() -> None:
        terms = model.loss(sampler.sample(BATCH, generator))
        _update(model, optimizer, torch.stack(list(terms.values())).sum())

    return step


def _peer_step(recipe: Any, model: _Peer, loader: _Loader) -> Any:
    train = recipe.train
    optimizer = torch.optim.AdamW(model.parameters(), lr=train.lr, betas=train.betas, weight_decay=train.weight_decay)

    def step() -> None:
        frames, actions, rtg, began = loader.batch(BATCH)
        logits = model(frames, actions, rtg, began)
        _update(model, optimizer, nn.functional.cross_entropy(logits.flatten(0, 1), actions.flatten()))

    return step


def _update(model: nn.Module, optimizer: Any, loss: Tensor) -> None:
    optimizer.zero_grad()
    torch.autograd.backward(loss)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()


def _action(name: str, agent: Agent, peer: _Peer, episodes: Episodes, runs: int) -> Figure:
    """One action of one environment whose context is full."""
    context = agent.config.io.context
    frames = episodes.observations[np.arange(context + 1)]
    state: Any = None
    for frame in frames[:-1]:
        _, state = agent.predict(frame, state, deterministic=True, reward=0.0)
    history = (
        torch.from_numpy(frames[1:]).float()[None] / 255.0,
        torch.from_numpy(episodes.actions[1 : context + 1])[None],
        torch.ones(1, context, 1),
        torch.zeros(1, 1, dtype=torch.long),
    )

    def theirs() -> None:
        with torch.no_grad():
            peer(*history)[0, -1].softmax(-1)

    def ours() -> None:
        agent.predict(frames[-1], state, deterministic=True, reward=0.0)

    return compare(name, ours, theirs, runs, row=ROW)
