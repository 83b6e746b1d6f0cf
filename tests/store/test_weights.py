"""Files of weights: broken, hostile or absurd ones are refused with a typed error, before memory is taken."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest
import torch
from hub.conftest import edit
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentzoo.agent import Agent
from agentzoo.errors import CheckpointError
from agentzoo.store.tensors import check_header, fingerprint, load_strict, read_tensors, save_tensors


def test_tensors_come_back_as_they_were(tmp_path: Path) -> None:
    tensors = {"a": torch.randn(3, 4), "b": torch.arange(5), "c": torch.zeros(())}
    save_tensors(tmp_path / "x.safetensors", tensors, {"k": "v"})
    found, metadata = read_tensors(tmp_path / "x.safetensors")
    assert metadata == {"k": "v"}
    assert all(torch.equal(found[name], value) for name, value in tensors.items())
    assert check_header(tmp_path / "x.safetensors")["a"] == ("F32", (3, 4))


@pytest.mark.parametrize("keep", [0, 7, 100, -1])
def test_truncated_weights(folder: Path, keep: int) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:keep])
    edit(folder, "config.json", weights_sha256=None)
    with pytest.raises(CheckpointError, match=r"model.safetensors"):
        Agent.from_pretrained(folder)


def test_tampered_weights(folder: Path) -> None:
    path = folder / "model.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(CheckpointError, match="sha256 differs"):
        Agent.from_pretrained(folder)


def rewrite(folder: Path, change: Any) -> None:
    tensors, _ = read_tensors(folder / "model.safetensors")
    change(tensors)
    save_tensors(folder / "model.safetensors", tensors)
    edit(folder, "config.json", weights_sha256=None)


def test_missing_extra_and_misshapen_tensors_are_named(folder: Path) -> None:
    rewrite(folder, lambda t: t.pop("embed_obs.bias"))
    with pytest.raises(CheckpointError, match=r"config: missing embed_obs.bias\."):
        Agent.from_pretrained(folder)
    rewrite(folder, lambda t: t.update({"embed_obs.bias": torch.zeros(16), "surprise": torch.zeros(1)}))
    with pytest.raises(CheckpointError, match=r"config: not expected surprise\."):
        Agent.from_pretrained(folder)
    rewrite(folder, lambda t: (t.pop("surprise"), t.update({"embed_obs.bias": torch.zeros(17)})))
    with pytest.raises(CheckpointError, match=r"of another shape embed_obs.bias \(17,\) instead of \(16,\)"):
        Agent.from_pretrained(folder)


def test_weights_that_are_no_numbers_are_refused(folder: Path) -> None:
    rewrite(folder, lambda t: t.update({"embed_obs.bias": torch.full((16,), float("nan"))}))
    with pytest.raises(CheckpointError, match=r"non-finite numbers in embed_obs.bias"):
        Agent.from_pretrained(folder)
    rewrite(folder, lambda t: t.update({"embed_obs.bias": torch.zeros(16, dtype=torch.int32)}))
    with pytest.raises(CheckpointError, match="type I32"):
        Agent.from_pretrained(folder)


def test_float16_weights_are_widened(folder: Path) -> None:
    rewrite(folder, lambda t: t.update({name: value.half() for name, value in t.items()}))
    agent = Agent.from_pretrained(folder)
    assert {p.dtype for p in agent.model.parameters()} == {torch.float32}


def test_float64_weights_are_refused(folder: Path) -> None:
    rewrite(folder, lambda t: t.update({name: value.double() for name, value in t.items()}))
    with pytest.raises(CheckpointError, match="type F64; weights are F32, F16, BF16, or I8 beside a scale"):
        Agent.from_pretrained(folder)


def test_float64_weights_are_saved_as_float32(folder: Path) -> None:
    agent = Agent.from_pretrained(folder)
    agent.model.double()
    for weights in agent.model.parameters():
        weights.data.mul_(1.3)
    agent.save_pretrained(folder)
    loaded = Agent.from_pretrained(folder)
    for weights, stored in zip(agent.model.parameters(), loaded.model.parameters(), strict=True):
        assert torch.equal(weights.float(), stored)


@pytest.mark.parametrize(("dtype", "number"), [(torch.float32, float("nan")), (torch.float64, 1e300)])
def test_weights_that_could_not_be_loaded_are_not_saved(folder: Path, dtype: torch.dtype, number: float) -> None:
    agent = Agent.from_pretrained(folder)
    before = (folder / "model.safetensors").read_bytes()
    agent.model.to(dtype).embed_obs.bias.data[3] = number
    with pytest.raises(CheckpointError, match=r"NaN or infinity in embed_obs\.bias"):
        agent.save_pretrained(folder)
    assert (folder / "model.safetensors").read_bytes() == before
    Agent.from_pretrained(folder)


def test_fingerprints_tell_names_types_and_shapes_apart() -> None:
    values = torch.arange(8, dtype=torch.float32)
    found = set()
    for name, buffer in (("a", values), ("b", values), ("a", values.view(2, 4)), ("a", values.view(torch.int32))):
        network = torch.nn.Module()
        network.register_buffer(name, buffer)
        found.add(fingerprint(network))
    assert len(found) == 4


def header(entries: dict[str, Any], data: bytes = b"") -> bytes:
    text = json.dumps(entries).encode()
    return struct.pack("<Q", len(text)) + text + data


@pytest.mark.parametrize(
    ("entries", "words"),
    [
        ({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 400]}}, "header cannot be used"),
        ({"a": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}}, "header cannot be used"),
        ({"a": {"dtype": "F32", "shape": [1], "data_offsets": [4, 0]}}, "header cannot be used"),
        ({"a": {"dtype": "F32", "shape": [1.5], "data_offsets": [0, 4]}}, "header cannot be used"),
        ({"a": {"dtype": "F32", "shape": [10**18], "data_offsets": [0, 8]}}, None),
        ({"a": {"dtype": "F99", "shape": [2], "data_offsets": [0, 8]}}, None),
        ({"a": [1]}, "header cannot be used"),
        ({"a" * 201: {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}, "header cannot be used"),
        ({"a\x1b[2J": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}, "header cannot be used"),
        ({"a": {"dtype": "F32", "shape": [2] + [1] * 8, "data_offsets": [0, 8]}}, "header cannot be used"),
        (
            {
                "a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]},
                "b": {"dtype": "F32", "shape": [1], "data_offsets": [4, 8]},
            },
            "overlap",
        ),
    ],
)
def test_hostile_headers(tmp_path: Path, entries: dict[str, Any], words: str | None) -> None:
    path = tmp_path / "x.safetensors"
    path.write_bytes(header(entries, b"\0" * 8))
    with pytest.raises(CheckpointError, match=words):
        read_tensors(path)


def test_what_does_not_fit_into_memory_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.safetensors"
    save_tensors(path, {"a": torch.zeros(100)})
    size = path.stat().st_size
    monkeypatch.setattr("agentzoo.store.tensors.memory", lambda: 2 * size)
    read_tensors(path)
    monkeypatch.setattr("agentzoo.store.tensors.memory", lambda: 2 * size - 1)
    with pytest.raises(CheckpointError, match=f"holds {size} bytes, .* this machine has {2 * size - 1} of memory"):
        read_tensors(path)


def test_a_header_longer_than_the_file_is_refused_before_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    path.write_bytes(struct.pack("<Q", 2**62) + b"{}")
    with pytest.raises(CheckpointError, match="truncated"):
        check_header(path)


def test_a_header_has_a_largest_length(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.safetensors"
    save_tensors(path, {"a": torch.zeros(1)})
    length = int.from_bytes(path.read_bytes()[:8], "little")
    monkeypatch.setattr("agentzoo.store.tensors.MAX_HEADER", length)
    assert check_header(path)
    monkeypatch.setattr("agentzoo.store.tensors.MAX_HEADER", length - 1)
    with pytest.raises(CheckpointError, match=f"header of {length}"):
        check_header(path)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=120), st.integers(0, 200), st.integers(0, 255))
def test_any_bytes_are_weights_or_a_typed_error(tmp_path: Path, junk: bytes, at: int, byte: int) -> None:
    good = header({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}, b"\0" * 8)
    damaged = bytearray(good)
    damaged[at % len(good)] = byte
    for content in (junk, bytes(damaged), good[:at]):
        (tmp_path / "x.safetensors").write_bytes(content)
        try:
            load_strict(torch.nn.Linear(2, 1, bias=False), tmp_path / "x.safetensors")
        except CheckpointError:
            continue


def test_a_wide_config_over_small_weights_takes_no_memory(folder: Path) -> None:
    """The largest network a config may ask for would be terabytes; the file says no before any is taken."""
    config = json.loads((folder / "config.json").read_text())
    config["model"] |= {"embed_dim": 8192, "n_layers": 128, "n_heads": 1}
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(CheckpointError, match="does not fit its config"):
        Agent.from_pretrained(folder)
