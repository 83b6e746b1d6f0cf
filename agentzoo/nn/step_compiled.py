"""A Decision Mamba's step in C: at three tokens, calling PyTorch's operators costs more than their arithmetic.

The formulas are those of `DecisionMamba.step`, with everything that only weights enter multiplied out beforehand; equal
up to rounding (tests/nn/test_step_compiled.py).

Symbols: as in `nn/step.c`: T = 3 tokens (a, R, s), D width, I inner width, G branches, W taps, S states, R rank of
delta, A numbers of an action.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from agentzoo.nn.native.compiled import address, library, share
from agentzoo.nn.packed import Map, Packer, Pointer, Scale
from agentzoo.nn.tokens import TOKENS_PER_STEP

_WORTH_A_THREAD = 8  # environments


class _Layer(ctypes.Structure):
    _fields_ = [
        ("norm", Scale),
        ("fusion", Scale),
        ("of_x", Map),
        ("of_z", Map),
        ("of_seen", Map),
        ("x_proj", Map * 2),
        ("dt_proj", Map * 2),
        ("taps", Pointer),
        ("conv_bias", Pointer),
        ("base", Pointer),
        ("skip", Pointer),
        ("out_proj", Map),
        ("project", Map),
    ]


class _Net(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_int) for name in ("D", "I", "G", "W", "S", "R", "A", "inputs", "layers", "times")),
        ("gathered", ctypes.c_int * 9),
        ("center", Pointer),
        ("spread", Pointer),
        ("up", Map),
        ("mix", Map * TOKENS_PER_STEP),
        ("embed", Scale),
        ("norm", Scale),
        ("embed_bias", Pointer),
        ("table", Pointer),
        ("hidden", Map),
        ("head", Map),
        ("each", ctypes.POINTER(_Layer)),
    ]


class CompiledStep:
    """A copy of the weights of a `DecisionMamba` in float32 on a CPU, as `step.c` reads them.

    The branches are fused after the paper, the inputs are residual MLPs and the head has a hidden layer. The gather is
    not "summary".
    """

    def __init__(self, model: Any) -> None:
        self._pack = Packer()
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
        out = before[0].new_empty(n, self._net.A)
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
        of_seen, seen_bias = torch.empty(0, 0, device="cpu"), torch.empty(0, device="cpu")
        if step.gathered.numel():
            of_seen, seen_bias = step.of_gathered @ step.gather, step.of_gathered @ layer.gather.conv.bias
        out_proj = branches.out_proj.flatten(0, 1).t()  # (D, G·I)
        shifts = branches.dt_bias.flatten(1)
        dt_proj = [self._pack.map(weight.t(), shift) for weight, shift in zip(branches.dt_proj, shifts, strict=True)]
        return _Layer(
            norm=self._pack.scale(layer.norm),
            fusion=self._pack.scale(layer.fusion_norm),
            of_x=self._pack.map(step.of_tokens[:inner]),
            of_z=self._pack.map(step.of_tokens[inner:]),
            of_seen=self._pack.map(of_seen, seen_bias),
            x_proj=(Map * 2)(*(self._pack.map(weight.t()) for weight in branches.x_proj)),
            dt_proj=(Map * 2)(*dt_proj),
            taps=self._pack.pointer(branches.taps),
            conv_bias=self._pack.pointer(branches.conv_bias),
            base=self._pack.pointer(branches.base),
            skip=self._pack.pointer(branches.D),
            out_proj=self._pack.map(out_proj - out_proj.mean(dim=0)),  # the LayerNorm behind it would subtract the mean
            project=self._pack.map(
                layer.project.weight, layer.project.bias + layer.project.weight @ layer.fusion_norm.bias
            ),
        )

    def _whole(self, model: Any) -> _Net:
        config, io = model.config, model.io
        inputs = (model.embed_action, model.embed_return, model.embed_obs)
        hidden, _, head = model.predict_action
        if io.action.kind == "discrete":
            center, half = torch.zeros_like(model.action_center), torch.ones_like(model.action_half)
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
            center=self._pack.pointer(torch.cat((center, center.new_zeros(1), model.obs_mean))),
            spread=self._pack.pointer(torch.cat((half, half.new_ones(1), model.obs_std))),
            up=self._pack.map(
                torch.block_diag(*(part.up.weight for part in inputs)),  # type: ignore[no-untyped-call]
                torch.cat([part.up.bias for part in inputs]),
            ),
            mix=(Map * TOKENS_PER_STEP)(*(self._pack.map(part.mix.weight, part.mix.bias) for part in inputs)),
            embed=self._pack.scale(model.embed_ln),
            norm=self._pack.scale(model.norm_f),
            embed_bias=self._pack.pointer(model.embed_ln.bias),
            table=self._pack.pointer(model.embed_timestep.weight),
            hidden=self._pack.map(hidden.weight, hidden.bias),
            head=self._pack.map(head.weight, head.bias),
            each=self._layers,
        )
