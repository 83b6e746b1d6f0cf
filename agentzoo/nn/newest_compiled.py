"""`nn.newest.NewestToken` in C: at 60 tokens, calling PyTorch's operators takes a third of their time."""

from __future__ import annotations

import ctypes

import torch
from torch import Tensor

from agentzoo.nn.native.compiled import address, compiles, library
from agentzoo.nn.newest import NewestToken
from agentzoo.nn.packed import Map, Packer, Pointer


class _Block(ctypes.Structure):
    _fields_ = [("ask_answer", Map), ("up", Map), ("down", Map), ("eps", ctypes.c_float * 2)]


class _Stack(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_int) for name in ("D", "H", "before")),
        ("each", ctypes.POINTER(_Block)),
        *((name, Map) for name in ("ask", "answer", "up", "down")),
        ("eps", ctypes.c_float * 3),
        ("weight", Pointer),
        ("bias", Pointer),
    ]


class CompiledNewest:
    """The same for float32 on a CPU; `compiled.library()` must not be None. One window takes two thirds of the time."""

    def __init__(self, newest: NewestToken) -> None:
        self._newest, self._pack = newest, Packer()
        *before, last = newest.blocks
        dim = last.up.shape[0]
        weight, bias, eps = newest.norm
        (ask, answer), (ask_bias, answer_bias) = last.ask_answer.chunk(2, dim=1), last.ask_answer_bias.chunk(2)
        self._blocks = (_Block * len(before))(
            *(
                _Block(
                    ask_answer=self._map(block.ask_answer, block.ask_answer_bias),
                    up=self._map(block.up, block.up_bias),
                    down=self._map(block.down, block.down_bias),
                    eps=block.eps,
                )
                for block in before
            )
        )
        self._stack = _Stack(
            D=dim,
            H=last.up.shape[1],
            before=len(before),
            each=self._blocks,
            ask=self._map(ask, ask_bias),
            answer=self._map(answer, answer_bias),
            up=self._map(last.up, last.up_bias),
            down=self._map(last.down, last.down_bias),
            eps=(*last.eps, eps),
            weight=self._pack.pointer(weight),
            bias=self._pack.pointer(bias),
        )

    @staticmethod
    def serves(weight: Tensor) -> bool:
        """Whether a network with this weight can be compiled here."""
        return compiles(weight)

    def __call__(self, x: Tensor) -> Tensor:
        """(B, L, D) -> (B, D)."""
        x = x.detach().contiguous()
        windows, length, dim = x.shape
        if dim != self._stack.D or length < 1 or x.dtype != torch.float32:
            raise ValueError(
                f"float32 tokens of {self._stack.D} channels are expected, got {tuple(x.shape)}, {x.dtype}."
            )
        if 1 < torch.get_num_threads() < windows:
            return self._newest(x)  # PyTorch's threads are awake from the embedding, and others would fight with them
        out = x.new_empty(windows, dim)
        if library().newest_token(ctypes.byref(self._stack), windows, length, address(x), address(out)):  # type: ignore[union-attr]
            raise MemoryError(f"windows of {length} tokens found no memory.")
        return out

    def _map(self, weight: Tensor, bias: Tensor) -> Map:
        """From a product from the right."""
        return self._pack.map(weight.t(), bias)
