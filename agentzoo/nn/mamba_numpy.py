"""One step of a Decision Mamba in NumPy: at three tokens, calling PyTorch's operators costs more than their arithmetic.

The formulas of `models.decision_mamba.Layer.advance` and `nn.mamba_step.StepWeights.advance`, with everything that only
weights enter multiplied out beforehand; equal up to rounding (tests/test_mamba_numpy.py). Every product is one with a
vector for each token: BLAS packs a whole matrix again before it multiplies three rows by it.

Symbols: N envs, L = 3 tokens (a, R, s), G = 2 branches, W taps, I inner width, S states, R rank, D width.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import erf
from torch import Tensor
from torch.nn.functional import softplus

from agentzoo.nn.tokens import TOKENS_PER_STEP

Array = NDArray[Any]
MOST_ENVS = 4  # at about eight PyTorch is as fast
TIMES = np.array((-1, 0, 0))  # the action is that of the step before


def array(tensor: Tensor) -> Array:
    """The same memory."""
    values: Array = tensor.detach().numpy()
    return values


class Scale(NamedTuple):
    """x · weight / sqrt(mean(x²) + eps), which is RMSNorm, and LayerNorm of what has mean 0 before its bias."""

    weight: Array  # (D,) times sqrt(D)
    eps: float  # times D

    @classmethod
    def of(cls, norm: Any) -> Scale:
        """From an RMSNorm or a LayerNorm."""
        weight = array(norm.weight)
        return cls(weight * math.sqrt(len(weight)), norm.eps * len(weight))

    def __call__(self, x: Array, out: Array | None = None) -> Array:
        """(..., D) -> (..., D)."""
        size = np.matmul(x[..., None, :], x[..., None])[..., 0]  # (..., 1)
        size += self.eps
        np.sqrt(size, out=size)
        out = np.divide(x, size, out=out)
        out *= self.weight
        return out


class LayerArrays(NamedTuple):
    """A layer with both branches fused after the paper. Views of its parameters where they serve as they are."""

    norm: Scale
    of_tokens: Array  # (3I, D): x and z of the coarse branch, then z of the fine one
    gathered: Array  # positions, see `models.decision_mamba.GATHERED`
    of_seen: Array  # (I, 3D) gather and input projection of the fine branch in one
    seen_bias: Array  # (I,)
    taps: Array  # (W, G, 1, I)
    conv_bias: Array  # (G, 1, I)
    x_proj: Array  # (G, 1, R + 2S, I)
    dt_proj: Array  # (G, 1, I, R)
    dt_bias: Array  # (G, 1, I)
    base: Array  # (G, 1, S, I), `nn.scan.decay_base`
    skip: Array  # (G, 1, I)
    out_proj: Array  # (D, G·I), less its mean over D: the LayerNorm behind it would subtract it
    fusion: Scale
    project: Array  # (D, D)
    project_bias: Array  # (D,), with what the LayerNorm's bias becomes

    @classmethod
    def of(cls, layer: Any, step: Any) -> LayerArrays:
        """From a `Layer` and its `LayerStep`."""
        (branches,) = step.branches
        of_gathered, project = array(step.of_gathered), array(layer.project.weight)
        out_proj = np.concatenate(array(branches.out_proj)).T  # (D, G·I)
        return cls(
            norm=Scale.of(layer.norm),
            of_tokens=array(step.of_tokens),
            gathered=array(step.gathered),
            of_seen=of_gathered @ array(step.gather),
            seen_bias=of_gathered @ array(layer.gather.conv.bias),
            taps=np.ascontiguousarray(array(branches.taps)[:, 0].transpose(2, 0, 1, 3)),
            conv_bias=array(branches.conv_bias)[:, 0],
            x_proj=np.ascontiguousarray(array(branches.x_proj).swapaxes(1, 2))[:, None],
            dt_proj=np.ascontiguousarray(array(branches.dt_proj).swapaxes(1, 2))[:, None],
            dt_bias=array(branches.dt_bias)[:, 0],
            base=array(branches.base)[:, 0],
            skip=array(branches.D)[:, 0],
            out_proj=np.subtract(out_proj, out_proj.mean(axis=0), order="C"),
            fusion=Scale.of(layer.fusion_norm),
            project=project,
            project_bias=array(layer.project.bias) + project @ array(layer.fusion_norm.bias),
        )

    def advance(
        self, h: Array, mask: Array | None, before: Sequence[Array], after: Sequence[Array], states: Array, newest: bool
    ) -> Array:
        """(N, 3, D) -> (N, 3, D), or (N, 1, D) of the newest token alone, which is all that is read of the last layer.

        before, after: conv, ssm and tokens of this layer, read and written. states: (N, G, L, S, I) to work in.
        mask: (N, 3, 1), 0 at the action of envs that have seen nothing; None when all have.
        """
        (conv, ssm, tokens), (next_conv, next_ssm, next_tokens) = before, after
        n, groups, kept, inner = conv.shape
        tape = np.zeros((n, 3 + TOKENS_PER_STEP, h.shape[-1]), h.dtype)  # R, s of before, a, R, s, nothing
        tape[:, :2] = tokens
        u = self.norm(h, out=tape[:, 2:5])
        if mask is not None:
            u *= mask
        next_tokens[...] = u[:, 1:]
        if newest:
            read = slice(-1, None)
            x, z = product(self.of_tokens[:inner], u), product(self.of_tokens[inner:], u[:, read])
        else:
            read = slice(None)
            projected = product(self.of_tokens, u)
            x, z = projected[..., :inner], projected[..., inner:]  # (N, 3, I), (N, 3, G·I)
        fine = product(self.of_seen, tape.take(self.gathered, axis=1).reshape(n, TOKENS_PER_STEP, -1))
        fine += self.seen_bias
        if mask is not None:
            fine *= mask
        taped = np.empty((n, groups, kept + TOKENS_PER_STEP, inner), h.dtype)
        taped[:, :, :kept] = conv
        taped[:, 0, kept:] = x
        taped[:, 1, kept:] = fine
        next_conv[...] = taped[:, :, TOKENS_PER_STEP:]
        y = self._scan(self._convolve(taped, mask), ssm, next_ssm, states, read)
        y = y.transpose(0, 2, 1, 3).reshape(z.shape)
        y *= silu(z)
        fused = self.fusion(product(self.out_proj, y))
        fused += h[:, read]
        out = product(self.project, fused)
        out += self.project_bias
        return out

    def _convolve(self, taped: Array, mask: Array | None) -> Array:
        """(N, G, W-1+L, I) -> (N, G, L, I)."""
        convolved = taped[:, :, :TOKENS_PER_STEP] * self.taps[0]
        part = np.empty_like(convolved)
        for start in range(1, len(self.taps)):
            convolved += np.multiply(taped[:, :, start : start + TOKENS_PER_STEP], self.taps[start], out=part)
        convolved += self.conv_bias
        x = silu(convolved)
        if mask is not None:
            x *= mask[:, None]
        return x

    def _scan(self, x: Array, state: Array, next_state: Array, states: Array, read: slice) -> Array:
        """(N, G, L, I) -> (N, G, L, I), the tokens at `read`, without the gate."""
        rank, size = self.dt_proj.shape[-1], self.base.shape[-2]
        selected = product(self.x_proj, x)
        B, C = selected[..., rank : rank + size, None], selected[..., None, rank + size :]
        delta = product(self.dt_proj, selected[..., :rank])
        delta += self.dt_bias
        step = softplus(torch.from_numpy(delta)).numpy()  # NumPy's log1p and exp2 are not vectorized everywhere
        np.multiply(step[..., None, :], self.base, out=states)
        decay = torch.from_numpy(states)
        torch.exp2(decay, out=decay)
        step *= x
        for token in range(TOKENS_PER_STEP):
            current = states[:, :, token]
            current *= state
            current += B[:, :, token] * step[:, :, token, None]
            state = current
        next_state[...] = state
        y: Array = np.matmul(C[:, :, read], states[:, :, read])[..., 0, :]
        y += x[:, :, read] * self.skip
        return y


class StepArrays(NamedTuple):
    """Everything `DecisionMamba.step` reads. The three inputs, (a, R, s), are embedded side by side."""

    layers: tuple[LayerArrays, ...]
    center: Array  # (A + 1 + S,) what is subtracted from the inputs
    spread: Array  # (A + 1 + S,) what they are divided by then
    up: Array  # (3D, A + 1 + S), zero off its three blocks
    up_bias: Array  # (3D,)
    mix: Array  # (3, D, D)
    mix_bias: Array  # (3, D)
    embed: Scale
    embed_bias: Array  # (D,)
    times: Array  # (max_ep_len, D)
    norm: Scale
    head: tuple[Array, Array, Array, Array]  # weight and bias of two layers

    @classmethod
    def of(cls, model: Any, layers: Sequence[LayerArrays]) -> StepArrays:
        """From a `DecisionMamba`."""
        inputs = (model.embed_action, model.embed_return, model.embed_obs)
        first, _, last = model.predict_action
        if model.io.action.kind == "discrete":
            center, half = torch.zeros(model.io.action.size), torch.ones(model.io.action.size)
        else:
            center, half = model.action_center, model.action_half
        return cls(
            layers=tuple(layers),
            center=np.concatenate([array(part) for part in (center, torch.zeros(1), model.obs_mean)]),
            spread=np.concatenate([array(part) for part in (half, torch.ones(1), model.obs_std)]),
            up=array(torch.block_diag(*(part.up.weight.detach() for part in inputs))),  # type: ignore[no-untyped-call]
            up_bias=np.concatenate([array(part.up.bias) for part in inputs]),
            mix=np.stack([array(part.mix.weight) for part in inputs]),
            mix_bias=np.stack([array(part.mix.bias) for part in inputs]),
            embed=Scale.of(model.embed_ln),
            embed_bias=array(model.embed_ln.bias),
            times=array(model.embed_timestep.weight),
            norm=Scale.of(model.norm_f),
            head=(array(first.weight), array(first.bias), array(last.weight), array(last.bias)),
        )

    def act(self, inputs: Sequence[Array], timesteps: Array, memory: Sequence[Array]) -> tuple[Array, list[Array]]:
        """Actions in env units or logits, (N, A), and the memory after this step.

        inputs: previous action (N, A), one-hot if discrete, return-to-go (N,) and observation (N, S). memory: conv,
        ssm, tokens and (N,) steps so far; left as it is.
        """
        action, rtg, obs = inputs
        *memory, seen = memory
        read = np.concatenate((action, rtg[:, None], obs), axis=1, dtype=self.up.dtype)
        read -= self.center
        read /= self.spread
        mask = None
        if not seen.all():  # there, the action token must leave no trace
            mask = np.ones((len(read), TOKENS_PER_STEP, 1), read.dtype)
            mask[:, 0, 0] = seen > 0
        h = self._embed(read, timesteps)
        after = [np.empty_like(values) for values in memory]
        states = np.empty((*memory[1][:, 0].shape[:2], TOKENS_PER_STEP, *memory[1].shape[3:]), h.dtype)
        with np.errstate(over="ignore"):  # in `silu`
            for i, layer in enumerate(self.layers):
                here = ([values[:, i] for values in memory], [values[:, i] for values in after])
                h = layer.advance(h, mask, *here, states, newest=i + 1 == len(self.layers))
        first, first_bias, last, last_bias = self.head
        hidden = product(first, self.norm(h[:, -1]))
        hidden += first_bias
        out = product(last, gelu(hidden))
        out += last_bias
        actions = out.shape[-1]
        out *= self.spread[:actions]
        out += self.center[:actions]
        return out, [*after, seen + 1]

    def _embed(self, read: Array, timesteps: Array) -> Array:
        up = product(self.up, read)
        up += self.up_bias
        up = up.reshape(len(read), TOKENS_PER_STEP, -1)
        tokens = product(self.mix, gelu(up))
        tokens += self.mix_bias
        tokens += up
        tokens -= np.add.reduce(tokens, axis=-1, keepdims=True) / tokens.shape[-1]
        h = self.embed(tokens, out=tokens)
        h += self.embed_bias
        h += self.times.take(timesteps[:, None] + TIMES, axis=0, mode="clip")
        return h


def product(weight: Array, x: Array) -> Array:
    """(..., Y, X), (..., X) -> (..., Y)."""
    out: Array = np.matmul(weight, x[..., None])[..., 0]
    return out


def silu(x: Array) -> Array:
    """x / (1 + exp(-x)); where exp is infinite this is 0, as it should be."""
    out = np.negative(x)
    np.exp(out, out=out)
    out += 1.0
    return np.divide(x, out, out=out)


def gelu(x: Array) -> Array:
    """The exact one, as `nn.GELU`."""
    out: Array = erf(x * math.sqrt(0.5))
    out += 1.0
    out *= x
    out *= 0.5
    return out
