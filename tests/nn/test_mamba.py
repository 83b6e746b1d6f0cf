"""The selective scan and the Mamba block: hand values, independent paths, derivatives, transformers' block."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import silu
from torch.utils._python_dispatch import TorchDispatchMode

from agentzoo.nn.mamba import Mamba, RMSNorm, _conv_reference, advance, causal_conv_silu
from agentzoo.nn.native import compiled, scan
from agentzoo.nn.native.scan import ScanInputs, active_path, continue_scan, kernel, selective_scan
from nn.cases import random_inputs


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of 2 windows by 3 tokens for 4 channels and 3 states, so that small shapes have edges of every kind."""
    monkeypatch.setattr(scan, "_TOKEN_NUMBERS", 24)
    monkeypatch.setattr(scan, "_BLOCK_NUMBERS", 72)


@pytest.mark.parametrize("path", ["loop", "blocked"])
def test_scan_of_one_impulse(path: scan.Path) -> None:
    """N = 1, A = -1, Δ = softplus(0) = ln 2, B = C = 1, no skip: an impulse gives ln 2 · (1, 1/2, 1/4)."""
    one = torch.ones(1, 3, 1, dtype=torch.float64)
    x = torch.tensor([1.0, 0.0, 0.0], dtype=torch.float64).view(1, 3, 1)
    A, nothing = torch.tensor([[-1.0]], dtype=torch.float64), torch.zeros(1, dtype=torch.float64)
    y = selective_scan(ScanInputs(x, 0 * one, A, one, one, nothing, one, nothing), path) / silu(one)
    assert torch.allclose(y.flatten(), math.log(2) * torch.tensor([1.0, 0.5, 0.25], dtype=torch.float64), atol=1e-12)


@pytest.mark.parametrize("path", ["loop", "blocked"])
def test_skip_weight_and_gate_act_on_the_token_itself(path: scan.Path) -> None:
    inputs = random_inputs(2, 4, 3, 2)
    y = selective_scan(inputs._replace(C=torch.zeros_like(inputs.C)), path)
    assert torch.allclose(y, inputs.D * inputs.x * inputs.z * torch.sigmoid(inputs.z), atol=1e-12)


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("batch", [1, 2, 3, 5])
@pytest.mark.parametrize("length", [1, 2, 3, 4, 7])
def test_blocked_scan_equals_loop_at_every_edge(batch: int, length: int) -> None:
    inputs = random_inputs(batch, length, 4, 3, grad=True)
    grad = torch.randn(batch, length, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    results = []
    for path in ("blocked", "loop"):
        y = selective_scan(inputs, path)
        results.append((y, *torch.autograd.grad(y, inputs, grad)))
    for blocked, loop in zip(*results, strict=True):
        assert torch.allclose(blocked, loop, atol=1e-12)


def test_blocked_scan_equals_loop_in_float32_at_full_block_size() -> None:
    inputs = random_inputs(20, 60, 256, 16, torch.float32, grad=True)
    grad = torch.randn(20, 60, 256, generator=torch.Generator().manual_seed(1))
    wanted = torch.autograd.grad(selective_scan(ScanInputs(*(t.double() for t in inputs)), "loop"), inputs, grad)
    y = selective_scan(inputs, "blocked")
    assert torch.allclose(y.double(), selective_scan(ScanInputs(*(t.double() for t in inputs)), "loop"), atol=1e-4)
    for name, found, exact in zip(inputs._fields, torch.autograd.grad(y, inputs, grad), wanted, strict=True):
        assert float((found - exact).norm() / exact.norm()) < 1e-5, name


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_without_gradients_the_scan_is_the_same(dtype: torch.dtype) -> None:
    inputs = random_inputs(3, 9, 4, 3, dtype, grad=True)
    with torch.no_grad():
        plain = selective_scan(inputs)
    assert torch.equal(plain, selective_scan(inputs).detach())


@pytest.mark.usefixtures("small_blocks")
def test_first_and_second_derivatives_of_the_scan() -> None:
    inputs = random_inputs(3, 4, 4, 3, grad=True)

    def run(*tensors: Tensor) -> Tensor:
        return selective_scan(ScanInputs(*tensors), "blocked")

    assert torch.autograd.gradcheck(run, tuple(inputs))
    assert torch.autograd.gradgradcheck(run, tuple(inputs))


def test_derivatives_of_convolution_and_norm() -> None:
    g = torch.Generator().manual_seed(0)

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, dtype=torch.float64, generator=g).requires_grad_()

    norm = RMSNorm(4).double()
    nn.init.uniform_(norm.weight, generator=g)
    for length in (2, 6):  # shorter and longer than the kernel
        conv = (draw(3, length, 4), draw(4, 4), draw(4))
        assert torch.allclose(causal_conv_silu(*conv), _conv_reference(*conv), atol=1e-12)
        assert torch.autograd.gradcheck(causal_conv_silu, conv)
        assert torch.autograd.gradgradcheck(causal_conv_silu, conv)
    x = draw(3, 5, 4)
    reference = nn.functional.rms_norm(x, (4,), norm.weight, 1e-5)
    assert torch.allclose(norm(x), reference, atol=1e-12)
    with torch.no_grad():
        assert torch.allclose(norm(x), reference, atol=1e-12)
    assert torch.autograd.gradcheck(norm, (x,))
    assert torch.autograd.gradgradcheck(norm, (x,))


def test_recurrence_equals_scan_over_1000_steps() -> None:
    inputs = random_inputs(2, 1000, 8, 4, torch.float32)
    other = random_inputs(2, 1000, 8, 4, torch.float32)._replace(A=inputs.A * 2, D=inputs.D + 1)
    state, outputs = torch.zeros(2, 2, 4, 8), []  # of two scans side by side
    both = [torch.stack(pair, dim=2 if pair[0].ndim == 3 else 0) for pair in zip(inputs, other, strict=True)]
    for t in range(1000):
        now = ScanInputs(*(v[:, t : t + 1] if v.ndim == 4 else v for v in both))
        y, state = continue_scan(state, now)
        outputs.append(y)
    found = torch.cat(outputs, 1)
    assert float((found[:, :, 0] - selective_scan(inputs)).abs().max()) < 1e-5
    assert float((found[:, :, 1] - selective_scan(other)).abs().max()) < 1e-5


def test_no_tensor_of_every_token_channel_and_state_is_made() -> None:
    inputs = random_inputs(32, 60, 64, 16, torch.float32, grad=True)
    largest = 0

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            nonlocal largest
            out = func(*args, **(kwargs or {}))
            for value in out if isinstance(out, (tuple, list)) else (out,):
                if isinstance(value, Tensor):
                    largest = max(largest, value.untyped_storage().nbytes() // 4)
            return out

    with Watch():
        selective_scan(inputs, "blocked").sum().backward()
    assert 32 * 60 * 64 <= largest <= 3 * scan._BLOCK_NUMBERS < 32 * 60 * 64 * 16


def test_autocast_does_not_reach_into_the_scan() -> None:
    inputs = random_inputs(2, 5, 4, 3, torch.float32)
    wanted = selective_scan(inputs)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(selective_scan(inputs), wanted)
    half = ScanInputs(*(t.bfloat16() for t in inputs))
    assert selective_scan(half).dtype == torch.bfloat16


def test_kernel_equals_blocked_scan() -> None:
    if kernel() is None:
        pytest.skip("mamba_ssm cannot be imported here: its kernel is not tested")
    if not torch.cuda.is_available():
        pytest.skip("mamba_ssm is here but no CUDA device: its kernel is not tested")
    inputs = ScanInputs(*(t.detach().cuda().requires_grad_() for t in random_inputs(4, 60, 64, 16, torch.float32)))
    results = []
    for path in ("kernel", "blocked"):
        y = selective_scan(inputs, path)
        results.append((y, *torch.autograd.grad(y.square().sum(), inputs)))
    for found, wanted in zip(*results, strict=True):
        assert float((found - wanted).norm() / wanted.norm()) < 1e-4
    assert "kernel" in active_path("cuda")


def test_active_path_says_what_runs() -> None:
    assert (active_path("cpu") == "compiled scan (cpu)") == (compiled.library() is not None)
    if kernel() is None:
        assert "agentzoo[mamba]" in active_path("cuda")
        with pytest.raises(ImportError, match=r"agentzoo\[mamba\]"):
            selective_scan(random_inputs(1, 1, 1, 1), "kernel")


def test_block_equals_transformers_mixer_with_the_same_weights() -> None:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.MambaConfig(
        vocab_size=2, hidden_size=32, state_size=8, num_hidden_layers=1, time_step_rank=2, use_cache=False
    )
    mixer = transformers.MambaModel(config).layers[0].mixer
    ours = Mamba(32, states=8)
    ours.load_state_dict(mixer.state_dict())  # the names are the same
    x = torch.randn(3, 11, 32, requires_grad=True)
    assert torch.allclose(ours(x), mixer(x), atol=1e-6)
    for mine, theirs in zip(
        torch.autograd.grad(ours(x).square().sum(), [x, *ours.parameters()]),
        torch.autograd.grad(
            mixer(x).square().sum(), [x, *(dict(mixer.named_parameters())[n] for n, _ in ours.named_parameters())]
        ),
        strict=True,
    ):
        assert float((mine - theirs).norm() / theirs.norm()) < 1e-4


@pytest.mark.parametrize("pieces", [[1] * 7, [3, 4], [2, 1, 4]])
def test_block_continued_in_pieces_equals_one_forward(pieces: list[int]) -> None:
    torch.manual_seed(0)
    blocks = [Mamba(8, states=4).double() for _ in range(2)]
    for block in blocks:
        nn.init.normal_(block.D)
        nn.init.normal_(block.conv1d.bias)  # type: ignore[arg-type]
    x, gate = torch.randn(2, 2, 7, 8, dtype=torch.float64), torch.randn(2, 7, 8, dtype=torch.float64)  # (G, B, L, D)
    conv, state = torch.zeros(2, 3, 32, dtype=torch.float64), torch.zeros(2, 2, 4, 16, dtype=torch.float64)
    outputs = []
    with torch.no_grad():
        for part, part_gate in zip(x.split(pieces, 2), gate.split(pieces, 1), strict=True):
            out, conv, state = advance(blocks, list(part), part_gate, None, conv, state)
            outputs.append(torch.stack(out))
        found = torch.cat(outputs, 2)
        for block, mine, own in zip(blocks, found, x, strict=True):
            assert torch.allclose(mine, block(own, gate), atol=1e-12)


def test_masked_tokens_in_front_leave_no_trace() -> None:
    """Zero input, zero after the convolution: the same as a shorter sequence, although the convolution has a bias."""
    torch.manual_seed(0)
    block = Mamba(8, states=4).double()
    nn.init.normal_(block.conv1d.bias)  # type: ignore[arg-type]
    x = torch.randn(2, 6, 8, dtype=torch.float64)
    mask = torch.ones(2, 6, 1, dtype=torch.float64)
    mask[:, :2] = 0
    with torch.no_grad():
        assert torch.allclose(block(x * mask, x, mask)[:, 2:], block(x[:, 2:]), atol=1e-12)
        assert not torch.allclose(block(x * mask, x)[:, 2:], block(x[:, 2:]), atol=1e-3)


@pytest.mark.parametrize("training", [True, False])
def test_acting_follows_changed_weights(training: bool) -> None:
    torch.manual_seed(0)
    block, x = Mamba(8, states=4).train(training), torch.randn(1, 3, 8)
    zeros = torch.zeros(1, 3, 16), torch.zeros(1, 1, 4, 16)

    def acts() -> Tensor:
        with torch.no_grad():
            (out,), _, _ = advance([block], [x], x, None, *zeros)
            assert torch.allclose(out, block(x), atol=1e-6)
        return out

    before = acts()
    optimizer = torch.optim.AdamW(block.parameters(), lr=0.1, fused=True)
    block(x).sum().backward()
    optimizer.step()
    after = acts()
    assert not torch.allclose(before, after, atol=1e-3)
    block.load_state_dict(Mamba(8, states=4).state_dict())
    assert not torch.allclose(after, acts(), atol=1e-3)
    block.double().float()
    acts()


def test_step_sizes_start_between_1e_3_and_1e_1() -> None:
    torch.manual_seed(0)
    block = Mamba(128)
    step = nn.functional.softplus(block.dt_proj.bias)
    assert 1e-3 * 0.99 < float(step.min()) < 2e-3
    assert 0.08 < float(step.max()) < 0.101
    assert torch.allclose(block.A_log[5].exp(), torch.arange(1.0, 17.0))
    assert block.dt_proj.weight.abs().max() <= 8**-0.5
    assert not block.conv1d.bias.any()  # type: ignore[union-attr]
