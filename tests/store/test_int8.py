"""Matrices of 8-bit integers in an agent's file."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import SMALL, make_agent, random_batch
from hub.conftest import edit
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from torch import Tensor

from agentzoo.agent import Agent
from agentzoo.errors import CheckpointError
from agentzoo.hub.stored_weights import store_weights
from agentzoo.store.files import CONFIG, WEIGHTS
from agentzoo.store.int8 import LEAST, large, narrowed, widened
from agentzoo.store.tensors import read_tensors, save_tensors

WIDE = SMALL["dt"].model_copy(update={"embed_dim": 128, "n_heads": 1})  # each block's MLP has two large matrices


def test_numbers_worked_out_by_hand() -> None:
    matrix = torch.tensor([[254.0, -2.0, 0.9], [0.0, 0.0, 0.0], [-12.7, 6.35, 0.16]])
    found = narrowed("m", matrix)
    assert found["m"].dtype == torch.int8
    assert found["m"].tolist() == [[127, -1, 0], [0, 0, 0], [-127, 63, 2]]  # 6.35 / .1 rounds to even: 63.5, a bit less
    assert found["m_scale"].shape == (3, 1)
    assert found["m_scale"][:2].flatten().tolist() == [2.0, 1.0]
    assert found["m_scale"][2].item() == pytest.approx(0.1, rel=2**-15)
    assert widened(found)["m"][0].tolist() == [254.0, -2.0, 0.0]


def test_a_row_of_the_smallest_numbers_keeps_its_signs() -> None:
    least = 2.0**-149
    found = narrowed("m", torch.tensor([[190 * least, -190 * least, least]]))["m"].tolist()
    assert found == [[127, -127, 1]]


finite = st.floats(-(2.0**100), 2.0**100, width=32).filter(lambda x: x == 0.0 or abs(x) > 2.0**-100)


@given(arrays(np.float32, (3, 5), elements=finite))
def test_rounding_is_small_and_happens_once(values: np.ndarray[Any, np.dtype[np.float32]]) -> None:
    matrix = torch.from_numpy(values)
    once = narrowed("m", matrix)
    wide = widened(once)["m"]
    assert ((wide - matrix).abs() <= 0.5001 * once["m_scale"]).all()
    largest = matrix.abs().amax(dim=1)
    assert (once["m_scale"].flatten()[largest > 0] <= 1.0001 * (largest / 127)[largest > 0]).all()
    again = narrowed("m", wide)
    assert all(torch.equal(again[name], once[name]) for name in once)


def test_only_large_matrices_are_narrowed() -> None:
    assert large(torch.zeros(2, LEAST // 2))
    assert not large(torch.zeros(1, LEAST - 1))
    assert not large(torch.zeros(LEAST))
    assert not large(torch.zeros(1, 2, LEAST))
    assert not large(torch.zeros(1, LEAST, dtype=torch.int64))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An agent with large matrices as 8-bit integers."""
    folder = make_agent(model=WIDE).save_pretrained(tmp_path / "wide")
    store_weights(folder, "int8", 10**9)
    return folder


def test_an_agent_acts_with_the_products_and_is_saved_as_the_same_file(folder: Path, tmp_path: Path) -> None:
    tensors, _ = read_tensors(folder / WEIGHTS)
    kinds = {name: value.dtype for name, value in tensors.items()}
    narrow = [name for name, kind in kinds.items() if kind == torch.int8]
    assert narrow
    assert {kind for name, kind in kinds.items() if name.removesuffix("_scale") not in narrow} == {
        torch.float16,
        torch.float32,  # observation mean and std
    }
    agent = Agent.from_pretrained(folder, device="cpu")
    loaded = agent.model.state_dict()
    assert set(loaded) == set(kinds) - {f"{name}_scale" for name in narrow}
    for name in narrow:
        assert torch.equal(loaded[name], tensors[name].float() * tensors[f"{name}_scale"])
    agent.save_pretrained(tmp_path / "same")
    assert (tmp_path / "same" / WEIGHTS).read_bytes() == (folder / WEIGHTS).read_bytes()
    with torch.no_grad():
        loaded[narrow[0]][0, 0] += 1.0
    agent.save_pretrained(tmp_path / "other")  # changed weights keep all digits
    assert {value.dtype for value in read_tensors(tmp_path / "other" / WEIGHTS)[0].values()} == {torch.float32}


def test_actions_hardly_change(tmp_path: Path) -> None:
    agent = make_agent(model=WIDE)
    folder = agent.save_pretrained(tmp_path)
    store_weights(folder, "int8", 10**9)
    batch = random_batch(agent.config.io, [4, 2])
    with torch.no_grad():
        found, expected = (one.model.act(batch) for one in (Agent.from_pretrained(folder, device="cpu"), agent))
    torch.testing.assert_close(found, expected, atol=0.05, rtol=0)
    assert not torch.equal(found, expected)


def test_the_smaller_type_is_taken_where_float16_is_too_large(tmp_path: Path) -> None:
    folder = make_agent(model=WIDE).save_pretrained(tmp_path)
    said: list[str] = []
    store_weights(folder, None, 10**9, said.append)
    wide = (folder / WEIGHTS).stat().st_size
    store_weights(folder, None, wide - 1, said.append)
    assert said == ["storing weights as float16", *("storing weights as float16", "storing weights as int8")]
    narrow = (folder / WEIGHTS).stat().st_size
    assert narrow < 0.7 * wide
    before = (folder / WEIGHTS).read_bytes()
    store_weights(folder, "int8", narrow)
    assert (folder / WEIGHTS).read_bytes() == before
    assert Agent.from_pretrained(folder).config.weights_sha256 == hashlib.sha256(before).hexdigest()
    with pytest.raises(CheckpointError, match=rf"take {narrow:,} bytes as int8, but the limit is 1,000.*--max-mb"):
        store_weights(folder, None, 1_000)


def scale(tensors: dict[str, Tensor], name: str, change: Callable[[Tensor], Tensor]) -> None:
    tensors[f"{name}_scale"] = change(tensors[f"{name}_scale"])


def scaled_scale(tensors: dict[str, Tensor], name: str) -> dict[str, Tensor]:
    """The scale of `name` as 8-bit integers with a scale of its own."""
    return narrowed(f"{name}_scale", tensors[f"{name}_scale"])


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda t, name: t.pop(f"{name}_scale"), "type I8; weights are F32, F16, BF16, or I8 beside a scale"),
        (lambda t, name: scale(t, name, lambda s: s.flatten()), r"_scale F32 \(512,\) instead of F32 \(512, 1\)"),
        (lambda t, name: scale(t, name, lambda s: s.half()), r"_scale F16 \(512, 1\) instead of F32 \(512, 1\)"),
        (lambda t, name: scale(t, name, lambda s: s * np.inf), "non-finite numbers in backbone.blocks"),
        (lambda t, name: scale(t, name, lambda s: s.to(torch.int8)), "not expected .*_scale"),
        (lambda t, name: t.update(scaled_scale(t, name)), "not expected .*_scale"),
        (lambda t, name: t.update({name: t[name].float()}), "not expected .*_scale"),
        (lambda t, name: t.update({name: t[name][:, 1:].contiguous()}), r"of another shape .* \(512, 127\) instead"),
    ],
)
def test_a_scale_that_does_not_fit_is_refused(change: Any, says: str, folder: Path) -> None:
    tensors, _ = read_tensors(folder / WEIGHTS)
    name = next(name for name, value in tensors.items() if value.dtype == torch.int8 and value.shape[0] == 512)
    change(tensors, name)
    save_tensors(folder / WEIGHTS, tensors)
    edit(folder, CONFIG, weights_sha256=None)
    with pytest.raises(CheckpointError, match=says):
        Agent.from_pretrained(folder)
