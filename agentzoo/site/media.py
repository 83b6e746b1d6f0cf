"""Films and pictures of agents: copies, and a frame of each film as its poster."""

from __future__ import annotations

import io
import shutil
from pathlib import Path
from typing import Any, NamedTuple

from agentzoo.extras import needed
from agentzoo.site.entries import Entry
from agentzoo.store.files import SWEEP_PLOT, VIDEO, write_atomic
from agentzoo.store.locate import STUDY_PICTURES

POSTER = "poster.jpg"
MAX_BYTES = 20_000_000  # of a film or picture
PLACE = 0.4  # position of the poster's frame in the film
QUALITY = 84


class Media(NamedTuple):
    """The files in an agent's folder of the site. `size`: (width, height) of its film."""

    names: frozenset[str]
    size: tuple[int, int] | None


def copy_media(entry: Entry, folder: Path) -> Media:
    """Copy an agent's pictures and film into `folder`, with a poster. An unreadable film is left out.

    Raises:
        ConfigError: the extra `site` is not installed.
    """
    results = entry.results
    wanted = [study.picture for study in results.studies if study.picture in STUDY_PICTURES] if results else []
    wanted += [SWEEP_PLOT] if results and results.plotted and results.targets else []
    names: set[str] = set()
    for name in filter(None, wanted):
        source = entry.folder / name
        if _fits(source) and _is_png(source):
            folder.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, folder / name)
            names.add(name)
    size = None
    film = entry.folder / VIDEO
    if results is not None and results.filmed and _fits(film) and (frame := frame_of(film)) is not None:
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(film, folder / VIDEO)
        write_atomic(folder / POSTER, as_jpeg(frame))
        names |= {VIDEO, POSTER}
        size = (frame.shape[1], frame.shape[0])
    return Media(frozenset(names), size)


def _fits(path: Path) -> bool:
    return path.is_file() and 0 < path.stat().st_size <= MAX_BYTES


def _is_png(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(8) == b"\x89PNG\r\n\x1a\n"


def frame_of(film: Path, place: float = PLACE) -> Any | None:
    """A frame of a film, (H, W, 3) uint8; None if the file is no film.

    Raises:
        ConfigError: imageio is not installed.
    """
    imageio = needed("imageio", "site", "a poster")
    try:
        with imageio.get_reader(film, format="FFMPEG") as reader:
            facts = reader.get_meta_data()
            count = int(float(facts["duration"]) * float(facts["fps"]))
            return reader.get_data(max(0, min(int(place * count), count - 1)))
    except Exception:  # its readers raise many types
        return None


def as_jpeg(frame: Any) -> bytes:
    """The bytes of a JPEG file.

    Raises:
        ConfigError: pillow is not installed.
    """
    picture = needed("PIL.Image", "site", "a poster").fromarray(frame)
    buffer = io.BytesIO()
    picture.save(buffer, format="JPEG", quality=QUALITY, optimize=True, progressive=True)
    return buffer.getvalue()
