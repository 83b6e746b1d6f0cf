"""A Hub in one process: enough of the wire protocol for the real huggingface_hub client, with faults on request.

Repos are lists of commits (path -> content) with branches and tags. Files of 10 kB or more, and safetensors, are "lfs":
announced with their sha256 and served from another host name, as the Hub's storage is.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import yaml

TOKEN = "hf_tests_may_write"
READ_TOKEN = "hf_tests_may_read"
LFS_SIZE = 10_000
HUB_NAME = re.compile(r"(?:[\w-]+/)?[\w\-.]+")  # the Hub's own rule for dataset names in metadata


def git_sha(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


@dataclass
class Repo:
    """Commits by id, each a whole tree; a push adds one and moves its branch."""

    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)
    branches: dict[str, str] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    pulls: dict[str, str] = field(default_factory=dict)  # open pull requests: refs/pr/1, ...
    private: bool = False
    gated: bool = False

    def commit(self, tree: dict[str, bytes], branch: str | None = "main") -> str:
        listing = "".join(f"{name} {git_sha(data)}\n" for name, data in sorted(tree.items()))
        oid = hashlib.sha1(f"{len(self.commits)} {listing}".encode()).hexdigest()
        self.commits[oid] = dict(tree)
        if branch is None:
            self.pulls[f"refs/pr/{len(self.pulls) + 1}"] = oid
        else:
            self.branches[branch] = oid
        return oid

    def resolve(self, revision: str) -> str | None:
        found = self.branches.get(revision) or self.tags.get(revision) or self.pulls.get(revision)
        return found or (revision if revision in self.commits else None)

    @property
    def head(self) -> dict[str, bytes]:
        return self.commits[self.branches["main"]]


@dataclass
class Fault:
    """What goes wrong with requests that match: an answer, a cut after some bytes, or no answer at all."""

    method: str
    path: str  # regular expression
    status: int = 0  # 0: the connection is cut
    headers: dict[str, str] = field(default_factory=dict)
    times: int = 10**9
    after: int = 0  # bytes sent before the cut


class Hub(ThreadingHTTPServer):
    """State, faults and a record of every request; `reset` between tests."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.reset()

    def reset(self) -> None:
        self.repos: dict[str, Repo] = {}
        self.storage: dict[str, bytes] = {}
        self.faults: list[Fault] = []
        self.seen: list[tuple[str, str, dict[str, str]]] = []
        self.corrupt: Callable[[str, bytes], bytes] = lambda _, data: data  # (path, content) as served
        self.list_extra: list[dict[str, Any]] = []
        self.etag: str | None = None  # of every file, in place of its own
        self.commit_header: str | None = None
        self.sha: str | None = None  # of the commit, in what is said of a repo
        self.echo = False  # repeat a token that is refused, in headers and body
        self.redirect: str | None = None  # in place of any file
        self.xet = False  # offer large files by that protocol too
        self.drip = 0.0  # seconds before each byte of a file
        self.silent = threading.Event()  # requests of the API are not answered until it is set
        self.silent.set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def fail(self, method: str, path: str, status: int = 0, **more: Any) -> None:
        self.faults.append(Fault(method, path, status, **more))

    def fault_of(self, method: str, path: str) -> Fault | None:
        for fault in self.faults:
            if fault.times > 0 and fault.method == method and re.search(fault.path, path):
                fault.times -= 1
                return fault
        return None

    def count(self, method: str, path: str) -> int:
        return sum(1 for m, p, _ in self.seen if m == method and re.search(path, p))

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Connections cut on purpose are no news."""


class Handler(BaseHTTPRequestHandler):
    """One request: authentication, faults, then the route."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # else a body waits 40 ms for the acknowledgement of its headers
    server: Hub

    def log_message(self, *_: Any) -> None:
        pass

    # -- answers -----------------------------------------------------------------------------------------------------

    def reply(self, status: int, body: Any = b"", **headers: str) -> None:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        for name, value in {"Content-Length": str(len(data)), "X-Request-Id": "test", **named}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def refuse(self, status: int, code: str = "", message: str = "") -> None:
        headers = {"X_Error_Code": code} if code else {}
        if self.server.echo:
            message = f"{message or code} {self.token}"
            headers |= {"X_Echo": str(self.token)}
        self.reply(status, {"error": message or code}, **headers, X_Error_Message=message or code or "error")

    def cut(self) -> None:
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)

    # -- requests ----------------------------------------------------------------------------------------------------

    def handle_any(self) -> None:
        parts = urlsplit(self.path)
        self.query = parse_qs(parts.query)
        length = int(self.headers.get("Content-Length") or 0)
        self.body = (
            self.read_chunks() if "chunked" in self.headers.get("Transfer-Encoding", "") else self.rfile.read(length)
        )
        self.server.seen.append((self.command, parts.path, dict(self.headers)))
        if "/api/" in parts.path and not self.server.silent.is_set():
            self.server.silent.wait(30.0)
            self.cut()
            return
        self.fault = self.server.fault_of(self.command, parts.path)
        if self.fault is not None and self.fault.status:
            headers = {name.replace("-", "_"): value for name, value in self.fault.headers.items()}
            self.reply(self.fault.status, {"error": "fault"}, **headers)
            return
        if self.fault is not None and not self.fault.after:
            self.cut()
            return
        # datasets have the same routes; their repos are called "datasets:owner/name" here
        path = re.sub(
            r"^(/api)?/datasets/([^/]+/)", lambda m: f"{(m[1] and '/api/models') or ''}/datasets:{m[2]}", parts.path
        )
        for method, pattern, route in ROUTES:
            found = re.fullmatch(pattern, path)
            if found and self.command in method:
                route(self, *(unquote(part) for part in found.groups()))
                return
        self.refuse(404, message=f"no route {self.command} {parts.path}")

    do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = handle_any

    def read_chunks(self) -> bytes:
        data = b""
        while size := int(self.rfile.readline().strip() or b"0", 16):
            data += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return data

    @property
    def token(self) -> str | None:
        return self.headers.get("Authorization", "").removeprefix("Bearer ") or None

    def writer(self) -> bool:
        if self.token == TOKEN:
            return True
        self.refuse(403 if self.token == READ_TOKEN else 401, message="Invalid credentials in Authorization header")
        return False

    def repo(self, repo_id: str) -> Repo | None:
        """The repo if it may be read; as the Hub does, a private one is not there for strangers."""
        if self.token not in (None, TOKEN, READ_TOKEN):
            self.refuse(401, message="Invalid credentials in Authorization header")
            return None
        repo = self.server.repos.get(repo_id)
        if repo is None or (repo.private and self.token is None):
            self.refuse(404 if self.token else 401, "RepoNotFound", "Repository not found")
            return None
        return repo

    def commit_of(self, repo: Repo, revision: str) -> str | None:
        oid = repo.resolve(revision)
        if oid is None:
            self.refuse(404, "RevisionNotFound", f"Invalid rev id: {revision}")
        return oid

    # -- routes ------------------------------------------------------------------------------------------------------

    def whoami(self) -> None:
        if self.token in (TOKEN, READ_TOKEN):
            self.reply(200, {"type": "user", "name": "tests", "auth": {"accessToken": {"role": "write"}}, "orgs": []})
        else:
            self.refuse(401, message="Invalid credentials in Authorization header")

    def create(self) -> None:
        if not self.writer():
            return
        asked = json.loads(self.body)
        repo_id = f"{asked.get('organization') or 'tests'}/{asked['name']}"
        repo_id = f"datasets:{repo_id}" if asked.get("type") == "dataset" else repo_id
        url = f"{self.server.url}/{repo_id.replace(':', '/')}"
        if repo_id in self.server.repos:
            self.reply(409, {"error": "You already created this model repo", "url": url})
            return
        repo = Repo(private=asked.get("visibility") == "private" or bool(asked.get("private")))
        repo.commit({".gitattributes": b"*.safetensors filter=lfs\n"})
        self.server.repos[repo_id] = repo
        self.reply(200, {"url": url, "name": repo_id})

    def delete(self) -> None:
        if not self.writer():
            return
        asked = json.loads(self.body)
        gone = self.server.repos.pop(f"{asked.get('organization') or 'tests'}/{asked['name']}", None)
        self.reply(200) if gone else self.refuse(404, "RepoNotFound")

    def validate_yaml(self) -> None:
        text = json.loads(self.body)["content"]
        found = re.match(r"---\n(.*?)\n---", text, flags=re.DOTALL)
        errors = []
        try:
            data = yaml.safe_load(found.group(1)) if found else {}
            names = [r["dataset"]["type"] for m in data.get("model-index", []) for r in m["results"]]
            errors = [
                f"{name!r} fails to match"
                for name in [*names, *data.get("datasets", [])]
                if not HUB_NAME.fullmatch(name)
            ]
            errors += [] if data.get("license") else ["license is required"]
        except (yaml.YAMLError, KeyError, TypeError, AttributeError) as error:
            errors = [str(error)]
        self.reply(400 if errors else 200, {"errors": [{"message": e} for e in errors], "warnings": []})

    def preupload(self, repo_id: str, revision: str) -> None:
        if not self.writer() or (repo := self.repo(repo_id)) is None or not (oid := self.commit_of(repo, revision)):
            return
        tree = repo.commits[oid]
        answers = []
        for file in json.loads(self.body)["files"]:
            lfs, old = is_lfs(file["path"], file["size"]), tree.get(file["path"])
            known = None if old is None else hashlib.sha256(old).hexdigest() if lfs else git_sha(old)
            mode = "lfs" if lfs else "regular"
            answers.append({"path": file["path"], "uploadMode": mode, "shouldIgnore": False, "oid": known})
        self.reply(200, {"files": answers})

    def lfs_batch(self, repo_id: str) -> None:
        if not self.writer() or self.repo(repo_id) is None:
            return
        objects = []
        for one in json.loads(self.body)["objects"]:
            actions = {"upload": {"href": f"{self.server.url}/storage/{one['oid']}"}}
            objects.append(one if one["oid"] in self.server.storage else {**one, "actions": actions})
        self.reply(200, {"transfer": "basic", "objects": objects})

    def storage_put(self, oid: str) -> None:
        if hashlib.sha256(self.body).hexdigest() != oid:
            self.refuse(400, message="content is not what its oid says")
            return
        self.server.storage[oid] = self.body
        self.reply(200)

    def commit(self, repo_id: str, revision: str) -> None:
        if not self.writer() or (repo := self.repo(repo_id)) is None:
            return
        if revision not in repo.branches:
            self.refuse(404, "RevisionNotFound")
            return
        tree = dict(repo.commits[repo.branches[revision]])
        for line in self.body.splitlines():
            entry = json.loads(line)
            value = entry["value"]
            if (
                entry["key"] == "header"
                and value.get("parentCommit", repo.branches[revision]) != repo.branches[revision]
            ):
                self.refuse(412, message="A commit has happened since. Please refresh and try again.")
                return
            if entry["key"] == "file":
                tree[value["path"]] = base64.b64decode(value["content"])
            elif entry["key"] == "lfsFile":
                if value["oid"] not in self.server.storage:
                    self.refuse(400, message=f"{value['path']} was never uploaded")
                    return
                tree[value["path"]] = self.server.storage[value["oid"]]
            elif entry["key"] == "deletedFile":
                del tree[value["path"]]
        proposed = self.query.get("create_pr") == ["1"]
        oid = repo.commit(tree, None if proposed else revision)
        answer = {
            "success": True,
            "commitOid": oid,
            "commitUrl": f"{self.server.url}/{repo_id.replace(':', '/')}/commit/{oid}",
        }
        if proposed:
            answer["pullRequestUrl"] = f"{self.server.url}/{repo_id}/discussions/{len(repo.pulls)}"
        self.reply(200, answer)

    def info(self, repo_id: str, revision: str = "main") -> None:
        repo = self.repo(repo_id)
        if repo is not None and (oid := self.commit_of(repo, revision)):
            self.reply(
                200, describe(repo_id, repo, oid) | ({} if self.server.sha is None else {"sha": self.server.sha})
            )

    def tree(self, repo_id: str, revision: str) -> None:
        repo = self.repo(repo_id)
        if repo is None or not (oid := self.commit_of(repo, revision)):
            return
        entries = [entry_of(path, data) for path, data in repo.commits[oid].items()] + self.server.list_extra
        start = int(self.query.get("cursor", ["0"])[0])
        headers = {}
        if start + 4 < len(entries):  # short pages, so that the client has to follow the links
            headers["Link"] = f'<{self.server.url}{urlsplit(self.path).path}?cursor={start + 4}>; rel="next"'
        self.reply(200, entries[start : start + 4], **headers)

    def refs(self, repo_id: str) -> None:
        if (repo := self.repo(repo_id)) is not None:
            groups = {"branches": ("heads", repo.branches), "tags": ("tags", repo.tags)}
            found = {
                group: [{"name": n, "ref": f"refs/{kind}/{n}", "targetCommit": oid} for n, oid in refs.items()]
                for group, (kind, refs) in groups.items()
            }
            self.reply(200, {**found, "converts": []})

    def tag(self, repo_id: str, revision: str) -> None:
        if not self.writer() or (repo := self.repo(repo_id)) is None:
            return
        if self.command == "DELETE":
            repo.tags.pop(revision, None)
            self.reply(200)
        elif json.loads(self.body)["tag"] in repo.tags:
            self.refuse(409, message="Tag reference exists already")
        elif oid := self.commit_of(repo, revision):
            repo.tags[json.loads(self.body)["tag"]] = oid
            self.reply(200)

    def datasets(self) -> None:
        author, name = (self.query.get(key, [""])[0] for key in ("author", "search"))
        found = {
            repo_id.removeprefix("datasets:"): repo for repo_id, repo in self.server.repos.items() if ":" in repo_id
        }
        chosen = {key: repo for key, repo in found.items() if key.startswith(f"{author}/") and name in key}
        self.reply(200, [describe(key, repo, repo.branches["main"]) for key, repo in chosen.items()])

    def models(self) -> None:
        wanted, author = self.query.get("filter", []), self.query.get("author", [None])[0]
        found = [
            describe(name, repo, repo.branches["main"]) for name, repo in self.server.repos.items() if not repo.private
        ]
        found = [
            one
            for one in found
            if ":" not in one["id"] and set(wanted) <= set(one["tags"]) and author in (None, one["author"])
        ]
        cards = "cardData" in self.query
        self.reply(200, [{k: v for k, v in one.items() if cards or k != "cardData"} for one in found])

    def resolve(self, repo_id: str, revision: str, path: str) -> None:
        repo = self.repo(repo_id)
        if repo is None or not (oid := self.commit_of(repo, revision)):
            return
        if repo.gated and self.token is None:
            self.refuse(401, "GatedRepo", "Access to this model is restricted")
            return
        data = repo.commits[oid].get(path)
        if data is None:
            self.refuse(404, "EntryNotFound", "Entry not found")
            return
        if self.server.redirect is not None:
            self.reply(302, Location=self.server.redirect)
        elif is_lfs(path, len(data)):
            sha = hashlib.sha256(data).hexdigest()
            self.server.storage[sha] = data
            away = f"http://localhost:{self.server.server_port}/storage/{sha}/{path}"
            headers = {
                "X_Linked_Size": str(len(data)),
                "X_Linked_ETag": f'"{self.server.etag or sha}"',
                "Location": away,
            }
            if self.server.xet:
                headers |= {"X_Xet_Hash": sha, "X_Xet_Refresh_Route": f"{self.server.url}/xet-token"}
            commit = self.server.commit_header or oid
            self.reply(302, X_Repo_Commit=commit, ETag=f'"{git_sha(data)}"', **headers)
        else:
            etag = self.server.etag or git_sha(data)
            self.send_file(path, data, X_Repo_Commit=self.server.commit_header or oid, ETag=f'"{etag}"')

    def storage_get(self, oid: str, path: str) -> None:
        if self.token is not None:
            self.refuse(400, message="a token came to the storage host")
            return
        self.send_file(path, self.server.storage[oid], ETag=f'"{oid}"')

    def send_file(self, path: str, data: bytes, **headers: str) -> None:
        served = self.server.corrupt(path, data)
        status, asked = 200, re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        if asked:
            first, last = int(asked[1]), int(asked[2] or len(served) - 1)
            headers["Content_Range"] = f"bytes {first}-{last}/{len(served)}"
            served, status = served[first : last + 1], 206
        if self.fault is not None and self.command == "GET":
            self.send_response(status)
            self.send_header("Content-Length", str(len(served)))
            self.end_headers()
            self.wfile.write(served[: self.fault.after])
            self.wfile.flush()
            self.cut()
            return
        if self.server.drip and self.command == "GET":
            self.send_response(status)
            self.send_header("Content-Length", str(len(served)))
            self.end_headers()
            for at in range(len(served)):
                self.wfile.write(served[at : at + 1])
                self.wfile.flush()
                time.sleep(self.server.drip)
            return
        self.reply(status, served, Accept_Ranges="bytes", **headers)


def is_lfs(path: str, size: int) -> bool:
    return path.endswith(".safetensors") or size >= LFS_SIZE


def entry_of(path: str, data: bytes) -> dict[str, Any]:
    entry: dict[str, Any] = {"type": "file", "path": path, "size": len(data), "oid": git_sha(data)}
    if is_lfs(path, len(data)):
        entry["lfs"] = {"oid": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 134}
    return entry


def describe(repo_id: str, repo: Repo, oid: str) -> dict[str, Any]:
    tree = repo.commits[oid]
    card = re.match(r"---\n(.*?)\n---", tree.get("README.md", b"").decode(errors="replace"), flags=re.DOTALL)
    data = yaml.safe_load(card.group(1)) if card else {}
    tags = [*data.get("tags", []), data.get("library_name", "none")]
    return {
        "id": repo_id,
        "author": repo_id.split("/")[0],
        "sha": oid,
        "private": repo.private,
        "downloads": 7,
        "tags": tags,
        "cardData": data,
        "siblings": [{"rfilename": path} for path in tree],
    }


REPO = r"([^/]+/[^/]+)"
ROUTES: list[tuple[tuple[str, ...], str, Callable[..., None]]] = [
    (("GET",), "/api/whoami-v2", Handler.whoami),
    (("POST",), "/api/repos/create", Handler.create),
    (("DELETE",), "/api/repos/delete", Handler.delete),
    (("POST",), "/api/validate-yaml", Handler.validate_yaml),
    (("GET",), "/api/models", Handler.models),
    (("GET",), "/api/datasets", Handler.datasets),
    (("GET",), f"/api/models/{REPO}", Handler.info),
    (("GET",), f"/api/models/{REPO}/revision/([^/]+)", Handler.info),
    (("GET",), f"/api/models/{REPO}/tree/([^/]+)", Handler.tree),
    (("GET",), f"/api/models/{REPO}/refs", Handler.refs),
    (("POST",), f"/api/models/{REPO}/preupload/([^/]+)", Handler.preupload),
    (("POST",), f"/api/models/{REPO}/commit/([^/]+)", Handler.commit),
    (("POST", "DELETE"), f"/api/models/{REPO}/tag/([^/]+)", Handler.tag),
    (("POST",), f"/{REPO}.git/info/lfs/objects/batch", Handler.lfs_batch),
    (("PUT",), "/storage/([0-9a-f]{64})", Handler.storage_put),
    (("GET", "HEAD"), "/storage/([0-9a-f]{64})/(.+)", Handler.storage_get),
    (("GET", "HEAD"), f"/{REPO}/resolve/([^/]+)/(.+)", Handler.resolve),
]


def start() -> Hub:
    hub = Hub()
    threading.Thread(target=hub.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    return hub
