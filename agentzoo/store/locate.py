"""Finds an agent's files: in a named folder, in the local zoo, or on the Hub."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import resources
from pathlib import Path, PurePosixPath

from agentzoo.errors import (
    AgentzooError,
    CheckpointError,
    ConfigError,
    HubError,
    StorageError,
    UnknownNameError,
    did_you_mean,
    printable,
)
from agentzoo.store.downloads import fetch, is_repo_id
from agentzoo.store.files import (
    CARD,
    CONFIG,
    LOG,
    RECIPE,
    RESULTS,
    SWEEP_PLOT,
    VIDEO,
    WEIGHTS,
    in_home,
    is_backbone,
    not_written,
    read_text,
    staging,
    swap_in,
)
from agentzoo.store.index import hub_location

ZOO_VARIABLE = "AGENTZOO_ZOO"
FILES = (CONFIG, WEIGHTS, RECIPE, RESULTS, CARD)
STUDY_PICTURES = tuple(f"study-{i}.png" for i in range(4))
# the files of an agent's Hub repo
PUBLISHED = (*FILES, LOG, SWEEP_PLOT, VIDEO, *STUDY_PICTURES)
# of a backbone's folder: transformers' own files, and the records of the backbone's training
BACKBONE_FILES = (
    *(CONFIG, WEIGHTS, "generation_config.json", "preprocessor_config.json", "tokenizer.json", "tokenizer_config.json"),
    *("corpus.json", "pretrain.json", RESULTS, LOG, CARD),
)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,95}")


def local_zoo() -> Path | None:
    """The folder of staged agents: `$AGENTZOO_ZOO`, else `hub_cards/` of a source checkout, else the wheel's folder."""
    return own_zoo() if os.environ.get(ZOO_VARIABLE) else next(iter(_local_zoos()), None)


def own_zoo() -> Path:
    """The folder of agents that `hub push --all` publishes: `$AGENTZOO_ZOO`, else `hub_cards/` of a source checkout.

    Outside a checkout and without the variable there is no such folder.
    """
    named = os.environ.get(ZOO_VARIABLE)
    return Path(named) if named else _package().parent / "hub_cards"


def _package() -> Path:
    return Path(str(resources.files("agentzoo")))


def _local_zoos() -> list[Path]:
    """The user's own folder, then the wheel's."""
    return [folder for folder in (own_zoo(), _package() / "bundled") if folder.is_dir()]


def staged_agents() -> dict[str, Path]:
    """Agent id -> folder of every agent on this machine with config and weights; backbones are not among them."""
    return _staged(backbones=False)


def staged_backbones() -> dict[str, Path]:
    """Id -> folder of every backbone on this machine (`lm-chibi`)."""
    return _staged(backbones=True)


def staged_in(zoo: Path) -> dict[str, Path]:
    """Agent id -> folder of every agent in this folder."""
    return dict(sorted(_folders(zoo, backbones=False).items()))


def _staged(backbones: bool) -> dict[str, Path]:
    found: dict[str, Path] = {}
    for zoo in _local_zoos():
        found = _folders(zoo, backbones) | found
    return dict(sorted(found.items()))


def _folders(zoo: Path, backbones: bool) -> dict[str, Path]:
    found = {}
    for folder in zoo.iterdir():
        whole = (folder / CONFIG).is_file() and (folder / WEIGHTS).is_file()
        hidden = folder.name.startswith(".")  # being written, or left by a killed process
        if whole and not hidden and is_backbone(folder) == backbones:
            found[folder.name] = folder
    return found


def find_agent(
    id_or_path: str | Path,
    *,
    revision: str | None = None,
    subfolder: str = "",
    token: str | bool | None = None,
    cache_dir: str | Path | None = None,
    local_files_only: bool = False,
    force_download: bool = False,
) -> Path:
    """The folder that holds the agent's files.

    Args:
        id_or_path: a folder, `zoo/<id>` or `<id>` (local zoo, then the index), or a Hub repo id `<org>/<name>`.
        revision, token, cache_dir, local_files_only, force_download: as in `huggingface_hub`. A revision or a forced
            download needs the Hub: a folder of this name and the local zoo are then ignored.
        subfolder: the path of the agent's files inside the folder or repo, as in `huggingface_hub`.

    Raises:
        ConfigError: `subfolder` leads outside, or a revision for a folder whose name is not a repo id.
        UnknownNameError: not found. HubError: not on the Hub, or the download failed. CheckpointError: no such
            subfolder, or a link leads out of it.
    """
    _check_subfolder(subfolder)
    name = str(id_or_path)
    path = in_home(name)
    remote = revision is not None or force_download
    if name and path.is_dir() and not (remote and is_repo_id(name)):
        if remote:
            raise ConfigError(f"{name} is a folder; only a Hub repo has revisions and downloads.")
        return check_links(_inside(path, subfolder))
    plain = name.removeprefix("zoo/")
    if "/" not in plain and _NAME.fullmatch(plain):
        staged = staged_agents()
        if plain in staged and not remote:
            return check_links(_inside(staged[plain], subfolder))
        location = hub_location(plain)
        if location is None:
            raise UnknownNameError(f"no agent {name!r}.{_absent(plain, staged)} See `agentzoo list`.")
        repo_id, revision = location.repo_id, revision or location.revision
    elif is_repo_id(name):
        repo_id = name
    else:
        raise UnknownNameError(f"{name!r} is neither a folder nor an agent id like 'zoo/dt-hopper-medium'.")
    try:
        folder = fetch(
            repo_id,
            tuple(str(PurePosixPath(subfolder) / file) for file in FILES),
            revision=revision,
            token=token,
            cache_dir=cache_dir,
            local_files_only=local_files_only,
            force_download=force_download,
        )
    except HubError as error:
        here = (
            "a revision or forced download needs a Hub repo" if path.is_dir() else f"there is no folder {name!r} here"
        )
        raise HubError(f"{here}; as a Hub repo: {error}") from error
    return check_links(_inside(folder, subfolder))


def _absent(plain: str, staged: dict[str, Path]) -> str:
    """Why an agent that is not on the Hub cannot be loaded, or the nearest id."""
    from agentzoo.recipes._table import recipe_rows

    if plain in staged:
        return (
            f" One is staged at {staged[plain]}, but a revision or a forced download needs a Hub repo, and the index "
            "has none for it; pass OWNER/NAME."
        )
    if plain in (backbones := staged_backbones()):
        return (
            f" It is a backbone, from which agents start, in {backbones[plain]}. `agentzoo research inspect {plain}` "
            "shows its heads, and its README.md what it is."
        )
    known = sorted({*staged, *recipe_rows()})
    if plain not in known:
        runs = sorted(Path("runs").glob(f"{plain}-s*/{CONFIG}"))
        return f" Name the folder of its run, {runs[0].parent}." if runs else did_you_mean(plain, known)
    named = os.environ.get(ZOO_VARIABLE)
    nowhere = f"${ZOO_VARIABLE} ({f'{named} is no folder' if named else 'not set'})"
    looked = ", ".join(map(str, _local_zoos())) or nowhere
    return (
        f" Its recipe is known, but its weights are not in {looked}, and the index has no Hub repo for it. Pass its "
        f"Hub repo as OWNER/NAME, or set ${ZOO_VARIABLE} to a folder that holds {plain}/. "
        f"`agentzoo train {plain}` trains it from its recipe."
    )


def require_known(name: str) -> None:
    """Raise UnknownNameError, as `find_agent` does, for an id that is neither on this machine nor in the index."""
    plain = name.removeprefix("zoo/")
    if _NAME.fullmatch(plain) and not Path(name).exists():
        staged = staged_agents()
        if plain not in staged and hub_location(plain) is None:
            raise UnknownNameError(f"no agent {name!r}.{_absent(plain, staged)} See `agentzoo list`.")


def _inside(folder: Path, subfolder: str) -> Path:
    """The existing folder `subfolder` inside `folder`."""
    if subfolder and not (folder / subfolder).is_dir():
        raise CheckpointError(f"{folder} has no subfolder {subfolder!r}.")
    return folder / subfolder


def _check_subfolder(subfolder: str) -> None:
    """Raise ConfigError unless it is a plain relative path that stays inside."""
    parts = subfolder.split("/") if subfolder else []
    if any(not _NAME.fullmatch(part) or ".." in part for part in parts):
        raise ConfigError(f"subfolder is a path inside the repo, like 'agents/dt', got {subfolder[:80]!r}.")


@contextmanager
def written_whole(target: Path) -> Iterator[Path]:
    """A new folder to write in, with `target`'s name; without an error it replaces `target`.

    Raises:
        StorageError: before anything is written and again at the end, if `target` exists and is not an agent's or
            backbone's folder, or if it holds other files. If its parent or a file cannot be written, or the new folder
            cannot replace it.
    """
    target = target.resolve()
    require_free(target, force=True)
    with staging(target.parent, ".staging-") as place:
        folder = place / target.name
        with not_written(target):
            folder.mkdir()
            yield folder
            require_free(target, force=True)  # files may have come meanwhile
            swap_in(folder, target)


def require_own(folder: Path, agent_id: str, has_recipe: bool = True) -> None:
    """Refuse to write the agent `agent_id` into the folder of another agent, whose card and results would stay there.

    Args:
        has_recipe: whether the agent has a recipe, which replaces one in the folder.

    Raises:
        StorageError: the folder holds another agent, a backbone, or a recipe that would stay beside an agent without
            one.
    """
    if not has_recipe and (folder / RECIPE).exists():
        raise StorageError(
            f"{folder} holds {RECIPE}, the recipe of another training, and {agent_id} has none: it would be taken for "
            "its own. Save it in another folder."
        )
    if is_backbone(folder):
        raise StorageError(f"{folder} holds a backbone, which agents start from. Save {agent_id} in another folder.")
    try:
        tree = json.loads(read_text(folder / CONFIG))
    except (AgentzooError, ValueError, RecursionError):
        return  # it holds no agent
    other = tree.get("agent_id") if isinstance(tree, dict) else None
    if other is not None and other != agent_id:
        beside = [name for name in PUBLISHED if name not in (CONFIG, WEIGHTS, RECIPE) and (folder / name).exists()]
        kept = f", with {', '.join(beside)}" if beside else ""
        raise StorageError(
            f"{folder} holds another agent, {printable(other)}{kept}. Save {agent_id} elsewhere, or delete this folder."
        )


def require_free(target: Path, force: bool) -> None:
    """Raise StorageError if `target` exists and is not an empty folder; with `force`, as `require_replaceable`."""
    if not target.exists() or (target.is_dir() and not any(target.iterdir())):
        return
    if not force:
        raise StorageError(f"{target} already exists; name another folder, or replace it with --force.")
    require_replaceable(target)


def require_replaceable(target: Path) -> None:
    """Check that `target` is the folder of an agent or backbone and holds nothing else.

    Raises:
        StorageError: `target` is something else, or holds other files.
    """
    if not (target / CONFIG).is_file():
        raise StorageError(f"{target} is not replaced: it is not an agent's folder. Choose another folder.")
    known = BACKBONE_FILES if is_backbone(target) else PUBLISHED
    others = sorted(path.name for path in target.iterdir() if path.name not in known)
    if others:
        raise StorageError(f"{target} is not replaced: it also holds {', '.join(others[:5])}. Choose another folder.")


def check_links(folder: Path) -> Path:
    """`folder`, if it holds regular files and no link that leads out of it.

    Links of the Hub's cache into its own blobs are allowed.

    Raises:
        CheckpointError: it holds something else; the message names the file.
    """
    root = folder.resolve()
    homes = [root]
    for snapshot in (root, *root.parents):
        repo = snapshot.parent.parent
        if snapshot.parent.name == "snapshots" and repo.name.startswith("models--"):
            homes += [repo / "blobs", repo.parent / "blobs"]
            break
    try:
        paths = list(folder.iterdir())
    except OSError as error:
        raise CheckpointError(f"{folder} cannot be read: {error}") from error
    for path in paths:
        end = Path(os.path.realpath(path))  # unlike `resolve`, it accepts links that form a circle
        if path.is_symlink() and not any(end.is_relative_to(home) for home in homes):
            raise CheckpointError(f"{path} is a link that leads out of the agent's folder; put the file itself there.")
        if not path.is_file() and not path.is_dir():
            raise CheckpointError(f"{path} is not a regular file.")
    return folder
