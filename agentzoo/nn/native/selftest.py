"""Whether a freshly compiled library computes what PyTorch computes.

A compiler that may change floating-point arithmetic (`-ffast-math`) builds a scan that is wrong in the second decimal.
The formulas are those of `nn/native/scan.py`, written out here for tiny sizes in float64.
"""

from __future__ import annotations

import ctypes
import math
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import Tensor
from torch.nn.functional import silu, softplus

NAMES = ("scan_chunks", "scan_forward", "scan_backward")
TOLERANCE = 1e-4
SIZES = (2, 23, 11, 3)  # windows, tokens (two chunks), channels (a whole vector and a rest), states


def fault(library: ctypes.CDLL) -> str | None:
    """What is wrong with `library`, in words; None if nothing is."""
    with ThreadPoolExecutor(1) as pool:  # the caller's inference mode, autocast or device does not reach another thread
        return pool.submit(_fault, library).result()


def _fault(library: ctypes.CDLL) -> str | None:
    missing = [name for name in NAMES if not hasattr(library, name)]
    if missing:
        return f"it lacks {', '.join(missing)}"
    checks = {"the scan": _scan_error, "the scan's gradient": _gradient_error}
    for name, error in checks.items():
        difference = error(library)
        if not difference <= TOLERANCE:
            return f"{name} differs from PyTorch by {difference:.2g}"
    return None


def _inputs() -> list[Tensor]:
    """x, delta, A (I, N), B, C, D, z and bias of the scan; decays from strong to weak."""
    windows, tokens, width, states = SIZES
    rng = torch.Generator().manual_seed(0)

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=rng, dtype=torch.float32)

    long, narrow = (windows, tokens, width), (windows, tokens, states)
    slopes = -torch.exp(draw(width, states))
    return [draw(*long), 2 * draw(*long), slopes, draw(*narrow), draw(*narrow), draw(width), draw(*long), draw(width)]


def _reference(x: Tensor, delta: Tensor, A: Tensor, B: Tensor, C: Tensor, D: Tensor, z: Tensor, bias: Tensor) -> Tensor:
    step, state, outputs = softplus(delta + bias), torch.zeros_like(x[:, 0, :, None] * A), []
    for t in range(x.shape[1]):
        state = torch.exp(step[:, t, :, None] * A) * state + (step * x)[:, t, :, None] * B[:, t, None]
        outputs.append((state * C[:, t, None]).sum(-1))
    return (torch.stack(outputs, 1) + D * x) * silu(z)


def _pointers(*tensors: Tensor | None) -> list[ctypes.c_void_p | None]:
    return [None if tensor is None else ctypes.c_void_p(tensor.data_ptr()) for tensor in tensors]


def _forward(library: ctypes.CDLL) -> tuple[Tensor, Tensor, Tensor]:
    """y, the states that the gradient starts from, and log2(e) A as the scan reads it."""
    windows, tokens, width, states = SIZES
    x, delta, A, B, C, D, z, bias = _inputs()
    base = (A.t() / math.log(2.0)).contiguous()
    y, kept = torch.empty_like(x), x.new_empty(windows, library.scan_chunks(tokens), states, width)
    library.scan_forward(windows, tokens, width, states, *_pointers(x, delta, base, B, C, D, z, bias, y, kept))
    return y, kept, base


def _scan_error(library: ctypes.CDLL) -> float:
    wanted = _reference(*(tensor.double() for tensor in _inputs()))
    return _distance(_forward(library)[0], wanted)


def _gradient_error(library: ctypes.CDLL) -> float:
    exact = [tensor.double().requires_grad_() for tensor in _inputs()]
    wanted = torch.autograd.grad(_reference(*exact).square().sum() / 2, exact)
    y, kept, base = _forward(library)
    x, delta, A, B, C, D, z, bias = _inputs()
    slopes = A.t().contiguous()
    gradients = [torch.zeros_like(tensor) for tensor in (x, delta, slopes, B, C, D, z, bias)]
    library.scan_backward(*SIZES, *_pointers(x, delta, base, slopes, B, C, D, z, bias, kept, y, *gradients))
    gradients[2] = gradients[2].t()
    return max(_distance(found, right) for found, right in zip(gradients, wanted, strict=True))


def _distance(found: Tensor, wanted: Tensor) -> float:
    """The largest difference, in units of the largest number where that is above 1."""
    return float((found - wanted).abs().max() / wanted.abs().max().clamp(min=1.0))
