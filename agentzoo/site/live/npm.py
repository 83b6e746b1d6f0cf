"""MuJoCo, ONNX Runtime and three.js from npm, pinned by version and hash.

`npm-lock.json` lists the packages. Archives are kept in the user's cache folder; agentzoo contains none of them.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import os
import tarfile
import urllib.request
from collections.abc import Callable, Mapping
from functools import cache
from importlib import resources
from pathlib import Path
from typing import NamedTuple

from agentzoo.errors import HubError, StorageError
from agentzoo.store.cache import private_folder
from agentzoo.store.files import write_atomic

REGISTRY, REGISTRY_VARIABLE = "https://registry.npmjs.org", "npm_config_registry"
SECONDS = 60
LARGEST = 80_000_000  # bytes of an archive


class Package(NamedTuple):
    """One pinned package. `files`: path in the archive -> name in the folder it is unpacked to."""

    name: str
    version: str
    sha512: str  # base64, as npm writes it
    license: str
    homepage: str
    files: Mapping[str, str]

    @property
    def address(self) -> str:
        """The archive's address in the registry."""
        registry = os.environ.get(REGISTRY_VARIABLE, REGISTRY).rstrip("/")
        return f"{registry}/{self.name}/-/{self.name.rpartition('/')[2]}-{self.version}.tgz"


@cache
def packages() -> tuple[Package, ...]:
    """The packages that the page needs."""
    text = (resources.files("agentzoo.site.live") / "npm-lock.json").read_text(encoding="utf-8")
    return tuple(Package(**one) for one in json.loads(text))


def unpack(folder: Path, on_progress: Callable[[str], None] = lambda _: None) -> None:
    """Write the files of all packages, and `LICENSES.txt`, into `folder`.

    Raises:
        HubError: an archive cannot be fetched, or is not the pinned one.
    """
    folder.mkdir(parents=True, exist_ok=True)
    licenses = []
    for package in packages():
        on_progress(f"{package.name} {package.version}")
        with tarfile.open(fileobj=io.BytesIO(archive_of(package))) as archive:
            for inside, name in package.files.items():
                write_atomic(folder / name, _member(archive, inside))
            texts = [_member(archive, one).decode() for one in archive.getnames() if Path(one).name == "LICENSE"]
        licenses.append(f"{package.name} {package.version}: {package.license}, {package.homepage}\n\n{''.join(texts)}")
    write_atomic(folder / "LICENSES.txt", "\n".join(licenses))


def archive_of(package: Package) -> bytes:
    """The archive, from the cache or the registry.

    Raises:
        HubError: the registry does not answer or sends something else.
    """
    try:
        kept: Path | None = private_folder("npm") / f"{package.name.replace('/', '+')}-{package.version}.tgz"
    except StorageError:
        kept = None
    if kept is not None and kept.is_file() and _hash(data := kept.read_bytes()) == package.sha512:
        return data
    try:
        with urllib.request.urlopen(package.address, timeout=SECONDS) as answer:
            data = bytes(answer.read(LARGEST))
    except (OSError, ValueError) as error:  # URLError is an OSError; ValueError: no address at all
        raise HubError(
            f"{package.name} could not be fetched from {package.address}: {error}. --live needs npm's registry, or a "
            f"mirror of it in ${REGISTRY_VARIABLE}; without --live the site needs no network."
        ) from error
    if (found := _hash(data)) != package.sha512:
        raise HubError(
            f"{package.address} is not {package.name} {package.version} as agentzoo knows it: its sha512 is {found}, "
            f"not {package.sha512}. Nothing of it was used."
        )
    if kept is not None:
        write_atomic(kept, data)
    return data


def _hash(data: bytes) -> str:
    return base64.b64encode(hashlib.sha512(data).digest()).decode()


def _member(archive: tarfile.TarFile, name: str) -> bytes:
    """One file of an archive whose hash is known, so that its names can be trusted."""
    file = archive.extractfile(name)
    return file.read() if file else b""
