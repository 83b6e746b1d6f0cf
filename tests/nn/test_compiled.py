"""The compiled library: built in the open, kept where nobody else can write, and checked before it computes."""

from __future__ import annotations

import ctypes
import os
import shutil
import stat
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from agentzoo.errors import StorageError
from agentzoo.nn.native import compiled, selftest
from agentzoo.nn.native.scan import active_path
from agentzoo.store.cache import private_folder
from agentzoo.store.files import sha256

CC = compiled.find_compiler()
pytestmark = pytest.mark.skipif(CC is None or sys.platform == "win32", reason="there is no C compiler here")


@pytest.fixture
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """An empty cache folder; the library of the other tests comes back afterwards."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    tmp_path.chmod(0o700)
    compiled.library.cache_clear()
    yield tmp_path / "cache" / "agentzoo" / "native"
    compiled.library.cache_clear()


@pytest.fixture
def compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str], None]:
    """Puts a shell script in the compiler's place."""

    def use(script: str) -> None:
        file = tmp_path / "wrapper"
        file.write_text(f"#!/bin/sh\n{script}\n")
        file.chmod(0o755)
        monkeypatch.setenv("CC", str(file))

    return use


def built(folder: Path) -> Path:
    (file,) = folder.glob("*.so")
    return file


def load_again() -> ctypes.CDLL | None:
    compiled.library.cache_clear()
    return compiled.library()


def test_the_first_use_says_what_is_compiled_and_the_second_says_nothing(
    cache: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert compiled.library() is not None
    said = capfd.readouterr().err
    assert said.count("\n") == 1
    assert str(built(cache)) in said
    assert "AGENTZOO_COMPILE=0" in said
    made = built(cache).stat().st_mtime_ns
    assert load_again() is not None
    assert capfd.readouterr().err == ""
    assert built(cache).stat().st_mtime_ns == made
    assert stat.S_IMODE(cache.stat().st_mode) == 0o700
    assert built(cache).with_suffix(".sha256").read_text() == sha256(built(cache))


def test_switched_off_it_does_nothing(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(compiled.SWITCH, "0")
    assert compiled.library() is None
    assert not cache.exists()


@pytest.mark.parametrize("content", [b"", b"cut", None], ids=["empty", "another file", "cut in half"])
def test_a_file_unlike_its_hash_is_compiled_again(cache: Path, content: bytes | None) -> None:
    """Half a library loads and ends the process with a bus error."""
    assert compiled.library() is not None
    file = built(cache)
    whole = file.read_bytes()
    file.unlink()  # this process has it mapped
    file.write_bytes(whole[: len(whole) // 2] if content is None else content)
    assert load_again() is not None
    assert built(cache).stat().st_size > 1000
    assert sha256(built(cache)) == built(cache).with_suffix(".sha256").read_text()


def test_a_missing_hash_is_no_hash(cache: Path) -> None:
    assert compiled.library() is not None
    built(cache).with_suffix(".sha256").unlink()
    assert load_again() is not None
    assert built(cache).with_suffix(".sha256").is_file()


def test_a_build_that_lacks_a_function_is_refused(cache: Path, compiler: Callable[[str], None], tmp_path: Path) -> None:
    (tmp_path / "other.c").write_text("int scan_chunks(int L) { return L; }")
    compiler(f'while [ "$1" != -o ]; do shift; done; exec {CC} -shared -fPIC {tmp_path}/other.c -o "$2"')
    with pytest.warns(UserWarning, match="compiled wrongly: it lacks scan_forward, scan_backward"):
        assert compiled.library() is None
    assert not list(cache.glob("*.so"))


def test_a_compiler_that_changes_arithmetic_is_refused(cache: Path, compiler: Callable[[str], None]) -> None:
    compiler(f'exec {CC} "$@" -ffast-math')
    with pytest.warns(UserWarning, match="compiled wrongly: the scan differs from PyTorch by"):
        assert compiled.library() is None
    assert sys.float_info.min / 2.0 > 0.0  # what such a library sets when it is loaded is undone
    assert active_path("cpu").startswith("PyTorch blocked scan")


def test_a_compiler_that_fails_is_quoted(cache: Path, compiler: Callable[[str], None]) -> None:
    compiler("echo 'no such target' >&2; exit 3")
    with pytest.warns(UserWarning, match=r"the C compiler failed \(no such target\)"):
        assert compiled.library() is None


def test_a_slow_compiler_is_stopped(
    cache: Path, compiler: Callable[[str], None], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    compiler("sleep 60")
    monkeypatch.setattr(compiled, "_SECONDS", 0.2)
    with pytest.warns(UserWarning, match=r"the C compiler took more than 0.2 seconds. AGENTZOO_COMPILE=0 silences"):
        assert compiled.library() is None
    assert "compiling its scan" in capfd.readouterr().err
    assert list(cache.iterdir()) == []


def shared_file(folder: Path) -> None:
    compiled.library()
    built(folder).chmod(0o666)


def shared_folder(folder: Path) -> None:
    folder.mkdir(parents=True)
    folder.chmod(0o777)


def shared_folder_above(folder: Path) -> None:
    folder.mkdir(parents=True)
    for one in (folder, folder.parent, folder.parent.parent):
        one.chmod(0o700)
    folder.parent.parent.parent.chmod(0o777)


def sticky_folder_of_others(folder: Path) -> None:
    """As on /tmp: others cannot rename what is there, so only what they made first is refused."""
    folder.mkdir(parents=True)
    os.chown(folder.parent, 12345, -1)


def linked_folder(folder: Path) -> None:
    folder.parent.mkdir(parents=True)
    elsewhere = folder.parents[2] / "elsewhere"
    elsewhere.mkdir()
    folder.symlink_to(elsewhere)


@pytest.mark.parametrize(
    ("share", "said"),
    [
        (shared_file, r"others may write to .*\.so. Run: chmod go-w"),
        (shared_folder, "others may write to .*native"),
        (shared_folder_above, "so files below it cannot be trusted"),
        (sticky_folder_of_others, "agentzoo does not belong to this user"),
        (linked_folder, "native is a link"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_what_others_may_write_is_not_run(cache: Path, share: Callable[[Path], None], said: str) -> None:
    if share is sticky_folder_of_others and os.getuid() != 0:
        with pytest.raises(PermissionError):
            share(cache)  # only root can make a folder of somebody else, so there is nothing to refuse here
        return
    share(cache)
    with pytest.warns(UserWarning, match=said):
        assert load_again() is None


def test_a_sticky_folder_above_is_accepted(cache: Path) -> None:
    cache.parents[2].chmod(0o1777)
    assert private_folder("native") == cache
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert compiled.library() is not None


def test_folders_are_made_private_whatever_the_umask(cache: Path) -> None:
    before = os.umask(0)
    try:
        private_folder("native")
    finally:
        os.umask(before)
    assert [stat.S_IMODE(one.stat().st_mode) for one in (cache, cache.parent, cache.parent.parent)] == [0o700] * 3


def test_agentzoo_cache_moves_all_that_can_be_made_again(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENTZOO_CACHE", str(tmp_path / "own"))
    assert compiled.library() is not None
    assert list((tmp_path / "own" / "native").iterdir())
    assert private_folder("onnx") == tmp_path / "own" / "onnx"
    assert not cache.exists()


def test_without_a_home_folder_pytorch_acts(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", staticmethod(lambda: (_ for _ in ()).throw(RuntimeError("no home"))))
    with pytest.raises(StorageError, match=r"there is no cache folder: no home. Set AGENTZOO_CACHE"):
        private_folder("native")


def test_the_self_test_sees_what_the_caller_set(cache: Path) -> None:
    """A default type, a device or inference mode of the caller does not reach into it."""
    torch.set_default_dtype(torch.float64)
    try:
        with torch.inference_mode(), torch.device("meta"), torch.autocast("cpu", torch.bfloat16):
            assert compiled.library() is not None
    finally:
        torch.set_default_dtype(torch.float32)
    assert shutil.which("sh") is not None
    assert selftest.fault(compiled.library()) is None  # type: ignore[arg-type]
