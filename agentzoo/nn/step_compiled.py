"""A Decision Mamba's step in C: at three tokens, calling PyTorch's operators costs more than their arithmetic.

The formulas are those of `DecisionMamba.step`, with everything that only weights enter multiplied out beforehand; equal
up to rounding (tests/test_step_compiled.py).

Symbols: as in `nn/step.c`: T = 3 tokens (a, R, s), D width, I inner width, G branches, W taps, S states, R rank of
delta, A numbers of an action.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from agentzoo.nn.compiled import address, library, share
from agentzoo.nn.tokens import TOKENS_PER_STEP

_PANEL = 16  # columns of a weight that lie together, in step.c
_WORTH_A_THREAD = 8  # environments

_Pointer = ctypes.c_void_p


class _Map(ctypes.Structure):
    _fields_ = [("X", ctypes.c_int), ("Y", ctypes.c_int), ("weight", _Pointer), ("bias", _Pointer)]


class _Scale(ctypes.Structure):
    _fields_ = [("weight", _Pointer), ("eps", ctypes.c_float)]


class _Layer(ctypes.Structure):
    _fields_ = [
        ("norm", _Scale),
        ("fusion", _Scale),
        ("of_x", _Map),
        ("of_z", _Map),
        ("of_seen", _Map),
        ("x_proj", _Map * 2),
        ("dt_proj", _Map * 2),
        ("taps", _Pointer),
        ("conv_bias", _Pointer),
        ("base", _Pointer),
        ("skip", _Pointer),
        ("out_proj", _Map),
        ("project", _Map),
    ]


class _Net(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_int) for name in ("D", "I", "G", "W", "S", "R", "A", "inputs", "layers", "times")),
        ("gathered", ctypes.c_int * 9),
        ("center", _Pointer),
        ("spread", _Pointer),
        ("up", _Map),
        ("mix", _Map * TOKENS_PER_STEP),
        ("embed", _Scale),
        ("norm", _Scale),
        ("embed_bias", _Pointer),
        ("table", _Pointer),
        ("hidden", _Map),
        ("head", _Map),
        ("each", ctypes.POINTER(_Layer)),
    ]


class CompiledStep:
    """A copy of the weights of a `DecisionMamba` in float32 on a CPU, as `step.c` reads them.

    The branches are fused after the paper, the inputs are residual MLPs and the head has a hidden layer. The gather is
    not "summary".
    """

    def __init__(self, model: Any) -> None:
        self._kept: list[Tensor] = []  # what the pointers point to
        with torch.no_grad():
            self._layers = (_Layer * len(model.layers))(*map(self._layer, model.layers))
            self._net = self._whole(model)
        empty = model.initial_state(1)
        self._sides = [tensor.shape[1:] for tensor in empty]
        observed = self._net.inputs - self._net.A - 1
        self._inputs = [(self._net.A,), (), (observed,), ()]

    def act(self, now: Sequence[Tensor], memory: Sequence[Tensor]) -> tuple[Tensor, list[Tensor]]:
        """Actions in env units or logits, (N, A), and the memory after this step.

        now: previous action (N, A), one-hot if discrete, return-to-go (N,), observation (N, S) and timestep (N,).
        memory: conv, ssm, tokens and (N,) steps so far, as `models.decision_mamba.Memory`; left as it is.

        Raises:
            ValueError: shapes that do not belong together; C would read what lies behind a tensor.
        """
        n = len(now[0])
        *numbers, timesteps = now
        *states, seen = memory
        self._require_shapes(n, now, self._inputs)
        self._require_shapes(n, memory, self._sides)
        before = [value.detach().float().contiguous() for value in (*numbers, *states)]
        counts = [value.long().contiguous() for value in (timesteps, seen)]
        after = [torch.empty_like(value) for value in before[3:]]
        out = torch.empty(n, self._net.A)
        tensors = (*before[:3], *counts, *before[3:], *after, out)

        def run(rows: slice) -> None:
            pointers = [address(value[rows]) for value in tensors]
            if library().mamba_step(ctypes.byref(self._net), rows.stop - rows.start, *pointers):  # type: ignore[union-attr]
                raise MemoryError(f"a step of {n} environments found no memory.")

        share(n, n // _WORTH_A_THREAD, run)
        return out, [*after, seen + 1]

    @staticmethod
    def _require_shapes(n: int, tensors: Sequence[Tensor], sides: Sequence[tuple[int, ...]]) -> None:
        for tensor, side in zip(tensors, sides, strict=True):
            if tensor.shape != (n, *side):
                raise ValueError(f"a step of {n} environments wants shape {(n, *side)}, got {tuple(tensor.shape)}.")

    def _layer(self, layer: Any) -> _Layer:
        step = layer.prepare_step()
        (branches,) = step.branches
        inner = branches.conv_bias.shape[-1]
        of_seen, seen_bias = torch.empty(0, 0), torch.empty(0)
        if step.gathered.numel():
            of_seen, seen_bias = step.of_gathered @ step.gather, step.of_gathered @ layer.gather.conv.bias
        out_proj = branches.out_proj.flatten(0, 1).t()  # (D, G·I)
        shifts = branches.dt_bias.flatten(1)
        dt_proj = [self._map(weight.t(), shift) for weight, shift in zip(branches.dt_proj, shifts, strict=True)]
        return _Layer(
            norm=self._scale(layer.norm),
            fusion=self._scale(layer.fusion_norm),
            of_x=self._map(step.of_tokens[:inner]),
            of_z=self._map(step.of_tokens[inner:]),
            of_seen=self._map(of_seen, seen_bias),
            x_proj=(_Map * 2)(*(self._map(weight.t()) for weight in branches.x_proj)),
            dt_proj=(_Map * 2)(*dt_proj),
            taps=self._pointer(branches.taps),
            conv_bias=self._pointer(branches.conv_bias),
            base=self._pointer(branches.base),
            skip=self._pointer(branches.D),
            out_proj=self._map(out_proj - out_proj.mean(dim=0)),  # the LayerNorm behind it would subtract the mean
            project=self._map(layer.project.weight, layer.project.bias + layer.project.weight @ layer.fusion_norm.bias),
        )

    def _whole(self, model: Any) -> _Net:
        config, io = model.config, model.io
        inputs = (model.embed_action, model.embed_return, model.embed_obs)
        hidden, _, head = model.predict_action
        if io.action.kind == "discrete":
            center, half = torch.zeros(io.action.size), torch.ones(io.action.size)
        else:
            center, half = model.action_center, model.action_half
        return _Net(
            D=config.embed_dim,
            I=config.expand * config.embed_dim,
            G=2 if config.use_fine else 1,
            W=config.conv_width,
            S=config.state_size,
            R=model.layers[0].coarse.dt_proj.in_features,
            A=io.action.size,
            inputs=io.action.size + 1 + io.observation.size,
            layers=config.n_layers,
            times=config.max_ep_len,
            gathered=tuple(model.layers[0].prepare_step().gathered.tolist()),
            center=self._pointer(torch.cat((center, torch.zeros(1), model.obs_mean))),
            spread=self._pointer(torch.cat((half, torch.ones(1), model.obs_std))),
            up=self._map(
                torch.block_diag(*(part.up.weight for part in inputs)),  # type: ignore[no-untyped-call]
                torch.cat([part.up.bias for part in inputs]),
            ),
            mix=(_Map * TOKENS_PER_STEP)(*(self._map(part.mix.weight, part.mix.bias) for part in inputs)),
            embed=self._scale(model.embed_ln),
            norm=self._scale(model.norm_f),
            embed_bias=self._pointer(model.embed_ln.bias),
            table=self._pointer(model.embed_timestep.weight),
            hidden=self._map(hidden.weight, hidden.bias),
            head=self._map(head.weight, head.bias),
            each=self._layers,
        )

    def _map(self, weight: Tensor, bias: Tensor | None = None) -> _Map:
        """A weight (Y, X), panel after panel: (ceil(Y / 16), X, 16), and a bias, both zero beyond row Y."""
        rows, columns = weight.shape
        bias = torch.zeros(rows) if bias is None else bias
        wider = (0, -rows % _PANEL)
        panels = pad(weight.t(), wider).unflatten(1, (-1, _PANEL)).transpose(0, 1)  # type: ignore[no-untyped-call]
        return _Map(columns, rows, self._pointer(panels), self._pointer(pad(bias, wider)))

    def _scale(self, norm: Any) -> _Scale:
        """RMSNorm, or a LayerNorm of what has mean 0, before its bias: x · weight / sqrt(mean(x²) + eps)."""
        channels = len(norm.weight)
        return _Scale(self._pointer(norm.weight * math.sqrt(channels)), norm.eps * channels)

    def _pointer(self, tensor: Tensor) -> ctypes.c_void_p:
        self._kept.append(tensor.detach().float().contiguous())
        return address(self._kept[-1])
