"""Upload the folder of an agent or backbone to a Hub in one commit, and download one."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, NamedTuple

from agentzoo.agent import Agent
from agentzoo.errors import AgentzooError, CheckpointError, ConfigError, HubError
from agentzoo.hub.card import card_text, check_card, write_card
from agentzoo.hub.front_matter import check_metadata
from agentzoo.hub.listing import LIBRARY
from agentzoo.hub.records import read_records, require_promised, unlike_record
from agentzoo.hub.verify import check_results
from agentzoo.nn.language.pretrained import load_backbone
from agentzoo.store.downloads import Where, calling, check_revision, fetch, is_repo_id, retried
from agentzoo.store.files import CARD, RECIPE, RESULTS, is_backbone, read_text
from agentzoo.store.locate import (
    BACKBONE_FILES,
    PUBLISHED,
    check_links,
    require_free,
    written_whole,
)
from agentzoo.store.named import require_folder, require_remote
from agentzoo.store.watch import watched
from agentzoo.text import counted

Patterns = str | list[str] | None  # like "*.json"
SHORT = 20.0  # seconds to check the repo's state after a failed push
LOSES_MEASUREMENTS = (
    f"{{where}} holds measurements ({RESULTS}), but this agent has none: they would be deleted. "
    "Measure it and push the folder (`agentzoo hub stage`, `agentzoo hub push`), or pass replace_measured=True."
)

IS_PUBLIC = (
    "{where} is public, and a push does not make an existing repo private; nothing was uploaded. Make it private in "
    "the repo's settings, or push without --private (private=True)."
)


class Pushed(NamedTuple):
    """The result of a push."""

    repo_id: str
    commit: str
    url: str  # of the commit, or of the pull request
    files: tuple[str, ...]
    left_out: tuple[str, ...]  # files in the folder that are not part of an agent
    changed: bool  # False: the repo already held these files, so no commit and no pull request was made


@dataclass
class _Upload:
    """Makes one commit when called with a token; the call sets `api` and `head`, the parent commit."""

    folder: Path
    where: Where
    files: tuple[str, ...]
    known: Sequence[str]  # files that may be added or deleted
    private: bool | None
    create_pr: bool
    message: str
    replace_measured: bool
    on_progress: Callable[[str], None]
    api: Any = None
    head: str | None = None

    def __call__(self, token: str | bool | None) -> Any:
        from huggingface_hub import HfApi

        (repo_id, branch), files = self.where, self.files
        self.api = api = HfApi(token=token, library_name=LIBRARY)
        self.on_progress(f"checking {repo_id}")
        retried(lambda: api.create_repo(repo_id, private=self.private, exist_ok=True))
        info = retried(lambda: api.model_info(repo_id, revision=branch))
        require_not_public(self.private, info, self.where)
        self.head = info.sha
        there = {entry.path for entry in retried(lambda: list(api.list_repo_tree(repo_id, revision=self.head)))}
        if RESULTS in there and RESULTS in self.known and RESULTS not in files and not self.replace_measured:
            raise ConfigError(LOSES_MEASUREMENTS.format(where=self.where))
        operations = _operations(self.folder, repo_id, files, [name for name in self.known if name in there])
        self.on_progress(f"uploading {counted(len(files), 'file')}")
        return api.create_commit(
            repo_id,
            operations,
            commit_message=self.message,
            revision=branch,
            create_pr=self.create_pr or None,
            parent_commit=self.head,
        )


def push(
    folder: Path,
    repo_id: str,
    *,
    token: str | bool | None = None,
    private: bool | None = None,
    branch: str | None = None,
    tag: str | None = None,
    commit_message: str | None = None,
    create_pr: bool = False,
    allow_patterns: Patterns = None,
    ignore_patterns: Patterns = None,
    replace_measured: bool = True,
    on_progress: Callable[[str], None] = lambda _: None,
) -> Pushed:
    """Check a folder, then upload it in a single commit.

    Weights are uploaded first and are not part of a commit until everything is uploaded, so an interrupted push does
    not change the files of the remote; a repo that it created stays, empty. Files of an agent that the folder no longer
    holds are deleted in the same commit. Pushing an unchanged folder makes no commit and keeps its tag.

    Args:
        private: whether a new repo is private; None uses the account's default. True refuses a repo that is public.
        branch: "main" by default; must exist.
        tag: name to give the commit.
        create_pr: propose the commit as a pull request, which its owner merges; nothing changes on the branch.
        allow_patterns, ignore_patterns: as in `huggingface_hub`, which of the agent's files are uploaded or deleted;
            the whole folder is always checked.
        replace_measured: push even if the repo has measurements and the folder has none.

    Raises:
        CheckpointError, ConfigError: the folder does not load, its card does not match its records, measurements would
            be deleted, the patterns leave no file, or a pull request was to be tagged.
        HubError: the upload failed; the message says what to do.
    """
    _check_names(repo_id, branch, tag, create_pr)
    files, left_out = check_folder(folder)
    known = _chosen(BACKBONE_FILES if is_backbone(folder) else PUBLISHED, allow_patterns, ignore_patterns)
    files = [name for name in files if name in known]
    if not files:
        raise ConfigError(f"{allow_patterns=} and {ignore_patterns=} leave no file of {folder} to push.")
    message = commit_message or f"{folder.resolve().name}: upload with agentzoo"
    where = Where(repo_id, branch)
    with tempfile.TemporaryDirectory(prefix="agentzoo-push-") as place:
        copy = _checked_copy(folder, Path(place))
        upload = _Upload(copy, where, tuple(files), known, private, create_pr, message, replace_measured, on_progress)
        failed = f"{folder} was not pushed to {where}"
        info = calling(upload, token, where, failed, lambda: _fate(upload.api, where, upload.head), again=False)
    if tag is not None:
        failed = f"{folder} was pushed to {where} as {info.oid}, but not tagged {tag!r}"
        _tag(upload.api, token, where, tag, info.oid, failed)
    url, changed = info.pr_url or info.commit_url, info.oid != upload.head
    return Pushed(repo_id, info.oid, url, tuple(files), tuple(left_out), changed)


def _checked_copy(folder: Path, place: Path) -> Path:
    """A copy of a checked folder's files, checked again; another command may write into the folder meanwhile."""
    copy = place / folder.resolve().name
    copy.mkdir()
    for name in BACKBONE_FILES if is_backbone(folder) else PUBLISHED:
        with contextlib.suppress(FileNotFoundError):
            shutil.copyfile(folder / name, copy / name)
    try:
        check_folder(copy)
    except AgentzooError as error:
        raise CheckpointError(f"{folder} changed while it was read ({error}). Push again.") from error
    return copy


def require_not_public(private: bool | None, info: Any, where: Where | str) -> None:
    """Raise ConfigError if a private push would go to a public repo, of which the Hub says `info`."""
    if private and info.private is False:
        raise ConfigError(IS_PUBLIC.format(where=where))


def _check_names(repo_id: str, branch: str | None, tag: str | None, create_pr: bool) -> None:
    if not is_repo_id(repo_id):
        raise ConfigError(f"{repo_id!r} is not a repo id like 'your-name/dt-hopper-medium'.")
    check_revision(branch)
    check_revision(tag)
    if create_pr and tag is not None:
        raise ConfigError("a pull request cannot have a tag; tag its commit after the merge.")


def _operations(folder: Path, repo_id: str, files: Sequence[str], there: Sequence[str]) -> list[Any]:
    """The operations of one commit: add `files`, delete other files of the remote."""
    from huggingface_hub import CommitOperationAdd, CommitOperationDelete

    contents = {name: uploaded(folder, name, repo_id) if name == CARD else str(folder / name) for name in files}
    added = [CommitOperationAdd(name, content) for name, content in contents.items()]
    return [*added, *(CommitOperationDelete(name) for name in there if name not in files)]


def _tag(api: Any, token: str | bool | None, where: Where, tag: str, commit: str, failed: str) -> None:
    """Tag the commit. An existing tag must already point to it."""
    try:
        calling(lambda _: api.create_tag(where.repo_id, tag=tag, revision=commit), token, where, failed)
    except HubError as error:
        tagged = _tagged(api, where.repo_id, tag)
        if tagged is not None and tagged != commit:
            raise HubError(f"{failed}: that tag points to {tagged}; choose another.") from error.__cause__
        if tagged is None:
            raise


def _chosen(names: tuple[str, ...], allow: Patterns, ignore: Patterns) -> list[str]:
    """The names that the patterns select, as in `huggingface_hub`."""

    def matches(name: str, patterns: Patterns) -> bool:
        listed = [patterns] if isinstance(patterns, str) else patterns or []
        return any(fnmatch(name, pattern) for pattern in listed)

    return [name for name in names if (allow is None or matches(name, allow)) and not matches(name, ignore)]


def uploaded(folder: Path, name: str, repo_id: str) -> bytes:
    """The content of a file as `push` uploads it: an agent's card names the repo, other files are unchanged."""
    if name != CARD or is_backbone(folder):
        return (folder / name).read_bytes()
    return card_text(folder, repo_id).encode()


def push_agent(agent: Agent, repo_id: str, **options: Any) -> Pushed:
    """`push` of an agent in memory, with a card that reports no measurements.

    Raises:
        ConfigError: it has no recipe. Otherwise as `push`.
    """
    if agent.recipe is None:
        raise ConfigError(
            f"{agent.config.agent_id} has no recipe; an agent is published with the recipe of its training."
        )
    with tempfile.TemporaryDirectory(prefix="agentzoo-push-") as name:
        folder = agent.save_pretrained(Path(name) / agent.config.agent_id)
        write_card(folder)
        return push(folder, repo_id, **options)


def _tagged(api: Any, repo_id: str, tag: str) -> str | None:
    """The commit of a tag; None if there is no such tag or the request fails."""
    try:
        with watched(SHORT) as watch:
            found = retried(lambda: api.list_repo_refs(repo_id), watch).tags
    except Exception:
        return None
    return next((one.target_commit for one in found if one.name == tag), None)


def _fate(api: Any, where: Where, head: str | None) -> str:
    """A sentence on the state of the remote after a failed push."""
    if head is None:
        return "Nothing was uploaded."
    try:
        with watched(SHORT):
            now = api.model_info(where.repo_id, revision=where.revision).sha
    except Exception:
        return "Its files are unchanged, unless the answer to a finished push was lost; it is safe to push again."
    return "Its files are unchanged." if now == head else f"The remote is now at {now}; compare before a new push."


def check_folder(folder: Path) -> tuple[list[str], list[str]]:
    """Check a folder and return the names to upload and the names to leave out.

    An agent must load strictly, its card must match its records, and their numbers must follow from the recorded
    episodes. A backbone's card only has to pass the Hub's checks.

    Raises:
        CheckpointError: it does not load, links lead out of it, the card is missing or stale, or a number is wrong.
        ConfigError: a record cannot be used.
    """
    require_folder(folder)
    check_links(folder)
    if is_backbone(folder):
        load_backbone(str(folder))
        check_metadata(read_text(folder / CARD), "transformers", None)
        return _sorted_out(folder, BACKBONE_FILES)
    agent = Agent.from_pretrained(folder, trust_env_module=True)  # safe: creating no environment imports no module
    name = agent.config.agent_id
    if agent.recipe is None:
        raise CheckpointError(f"{folder} lacks {RECIPE}: an agent is published with the recipe that trained it.")
    if agent.recipe.agent_id != name:
        raise CheckpointError(f"{folder}: the config is for {name}, the recipe for {agent.recipe.agent_id}.")
    if (folder / RESULTS).is_file():
        _, _, results = read_records(folder)
        if (results.headline.agent_id, results.headline.weights_sha256) != (name, agent.config.weights_sha256):
            raise CheckpointError(f"{folder / RESULTS} was measured on other weights; measure these and stage again.")
        valid, check = check_results(folder, agent.config)
        if valid is None:
            raise CheckpointError(f"{folder / RESULTS} does not add up: {check.details}. Measure and stage again.")
        if differs := unlike_record(agent, results.headline):
            raise CheckpointError(
                f"{folder} does not act as it was measured: {differs}. `agentzoo hub remeasure` measures it again."
            )
        require_promised(folder)
    if not (folder / CARD).is_file():
        raise CheckpointError(f"{folder} has no {CARD}; `agentzoo hub card {folder}` writes one from its records.")
    check_card(folder)
    return _sorted_out(folder, PUBLISHED)


def _sorted_out(folder: Path, known: tuple[str, ...]) -> tuple[list[str], list[str]]:
    present = sorted(path.name for path in folder.iterdir())
    return [one for one in known if one in present], [one for one in present if one not in known]


def pull(
    agent: str,
    target: Path | None = None,
    *,
    revision: str | None = None,
    token: str | bool | None = None,
    cache_dir: str | Path | None = None,
    local_files_only: bool = False,
    force: bool = False,
) -> Path:
    """Download all files of a remote agent or backbone, check them and write them as a folder, all or nothing.

    Args:
        agent: a Hub repo, or an id that the index maps to one.
        target: the new folder, the repo's name by default.
        force: replace an existing agent's folder; a folder with other content is never replaced.

    Raises:
        UnknownNameError, HubError, CheckpointError: nothing is written. StorageError: `target` exists and is not empty.
    """
    repo_id, indexed = require_remote(agent)
    revision = revision or indexed
    target = target or Path(repo_id.split("/")[1])
    if target.name in ("", ".."):  # "." has no name to rename
        target = target.resolve()
    require_free(target, force)
    found = fetch(
        repo_id,
        tuple(dict.fromkeys((*PUBLISHED, *BACKBONE_FILES))),
        revision=revision,
        token=token,
        cache_dir=cache_dir,
        local_files_only=local_files_only,
    )
    files = BACKBONE_FILES if is_backbone(found) else PUBLISHED
    if is_backbone(found):
        load_backbone(str(found))
    else:
        Agent.from_pretrained(found, trust_env_module=True)  # safe: creating no environment imports no module
        if (found / RESULTS).is_file():
            require_promised(found)
    with written_whole(target) as new:
        for file in files:
            if (found / file).is_file():
                shutil.copyfile(found / file, new / file)
    return target
