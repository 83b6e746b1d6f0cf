"""Runs as Ray tasks: on a cluster, or on an embedded Ray that listens on this machine's loopback only.

If a worker or node dies, Ray starts its task again on another one, and the run resumes from its checkpoint. Nodes that
see the grid's folder work in it. Other nodes work on a copy: they fetch it from the driver's node when a task starts,
and send it back at each checkpoint and at the end.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import socket
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from agentzoo.errors import ConfigError
from agentzoo.store.files import CONFIG, WEIGHTS, write_atomic
from agentzoo.training.grid.local import cores
from agentzoo.training.grid.tasks import GRID_LOCK, Job, Outcome, Task, fail, forget_failure, work
from agentzoo.training.lock import held
from agentzoo.training.state import CHECKPOINT

CONNECT_SECONDS = 4.0
ANSWER_SECONDS = 14.0  # a dead address is an error within 20 s, including the start of Python
STORE_BYTES = 128 * 1024 * 1024  # of the object store of an embedded Ray; it only carries checkpoints and outcomes
STOP_SECONDS = 10.0
LOOPBACK = "127.0.0.1"
QUIET = {"logging_level": "ERROR", "log_to_driver": False}
_PROBE = "import ray, sys; ray.init(address=sys.argv[1], logging_level='ERROR', log_to_driver=False)"


class RayEngine:
    """Tasks on a Ray cluster, as many as fit; nodes may join and leave."""

    def __init__(
        self,
        out: Path,
        address: str | None = None,
        jobs: int | None = None,
        cpus: float = 1,
        gpus: float = 0.0,
        sync: bool | None = None,
        retries: int = 5,
    ) -> None:
        """
        Args:
            out: the grid's folder.
            address: `HOST:PORT` of a cluster, or `auto` for the one started on this machine; None starts an embedded
                Ray, which ends with the engine.
            jobs: the largest number of runs side by side.
            cpus, gpus: the resources of each run.
            sync: copy folders to and from the nodes; None: only for nodes that do not see `out`.
            retries: how often a run is started again after its worker or node died.

        Raises:
            ConfigError: Ray is not installed, nothing answers at the address, or no node has the resources of one run.
        """
        self._ray = _import_ray()
        self.out, self.jobs, self.cpus, self.gpus, self.retries = out.resolve(), jobs, cpus, gpus, retries
        self._tasks: dict[Any, Task] = {}  # key: the reference of its outcome
        self._keeper: Any = None
        self._token = self.out / f".grid-{uuid.uuid4().hex}"
        self._sync = sync
        self._own = not self._ray.is_initialized()
        if self._own:
            self._connect(address)
        try:
            self._require_room()
            self._begin()
        except BaseException:
            self._close()
            raise

    def __enter__(self) -> RayEngine:
        return self

    def __exit__(self, *_: object) -> None:
        for reference, task in self._tasks.items():
            self._cancel(reference, task)
        self._tasks.clear()
        self._close()

    def free(self) -> int:
        """The number of tasks that can start now."""
        most = sum(self._room(node) for node in self._nodes())
        return min(most, self.jobs or most) - len(self._tasks)

    def running(self) -> list[Path]:
        """Folders of the tasks that run or wait for another node."""
        return [task.folder for task in self._tasks.values()]

    def start(self, job: Job, task: Task) -> None:
        """Give a task to Ray."""
        remote = self._ray.remote(_work).options(
            num_cpus=self.cpus, num_gpus=self.gpus, max_retries=self.retries, name=task.folder.name
        )
        self._tasks[remote.remote(job, task, self._keeper, str(self._token), self._sync)] = task

    def stop(self, folder: Path) -> None:
        """Stop a task; it gets no outcome."""
        for reference, task in list(self._tasks.items()):
            if task.folder == folder:
                self._cancel(reference, task)
                del self._tasks[reference]

    def ended(self, seconds: float) -> list[Outcome]:
        """Outcomes since the last call; waits at most `seconds` for one."""
        if not self._tasks:
            return []
        ready, _ = self._ray.wait(list(self._tasks), num_returns=1, timeout=seconds)
        if ready:
            ready, _ = self._ray.wait(list(self._tasks), num_returns=len(self._tasks), timeout=0)
        return [self._outcome(reference) for reference in ready]

    def _outcome(self, reference: Any) -> Outcome:
        task = self._tasks.pop(reference)
        try:
            found: Outcome = self._ray.get(reference)
        except self._ray.exceptions.RayError as error:
            lines = str(error).strip().splitlines()
            why = f"Ray gave up after {self.retries} retries: {type(error).__name__}: {lines[0] if lines else ''}"
            return fail(task.folder, why)._replace(state="lost")
        return found

    def _connect(self, address: str | None) -> None:
        if address is not None:
            require_answer(address)
            self._ray.init(address=address, **QUIET)
            return
        here = cores()
        if self.cpus > here:
            raise ConfigError(f"a run needs {self.cpus:g} cores (--cpus-per-run), and this machine has {here}.")
        wanted = int(self.jobs * self.cpus) if self.jobs else here
        with _loopback_only():
            self._ray.init(num_cpus=wanted, object_store_memory=STORE_BYTES, include_dashboard=False, **QUIET)
        addresses = {node["NodeManagerAddress"] for node in self._ray.nodes()}
        if addresses != {LOOPBACK}:
            self._ray.shutdown()
            raise ConfigError(
                f"this version of Ray listens on {', '.join(addresses)} instead of {LOOPBACK} alone. Install the "
                "version in constraints.txt, or omit --engine ray."
            )

    def _begin(self) -> None:
        self.out.mkdir(parents=True, exist_ok=True)
        if self._sync is not True:
            write_atomic(self._token, "")
        if self._sync is not False:
            here = self._ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(
                self._ray.get_runtime_context().get_node_id(), soft=False
            )
            keeper = self._ray.remote(_Keeper).options(num_cpus=0, scheduling_strategy=here)
            self._keeper = keeper.remote(str(self.out))

    def _close(self) -> None:
        self._token.unlink(missing_ok=True)
        if self._keeper is not None and self._ray.is_initialized():
            self._ray.kill(self._keeper)
        self._keeper = None
        if self._own and self._ray.is_initialized():
            self._ray.shutdown()

    def _cancel(self, reference: Any, task: Task) -> None:
        """Interrupt a task, so that it releases its locks; kill it if it does not end."""
        if not self._ray.is_initialized() or self._ray.wait([reference], timeout=0)[0]:
            return
        for force in (False, True):
            self._ray.cancel(reference, force=force)
            ready, _ = self._ray.wait([reference], timeout=STOP_SECONDS)
            if ready:
                forget_failure(task.folder)
                return

    def _nodes(self) -> Iterable[dict[str, float]]:
        return [node["Resources"] for node in self._ray.nodes() if node["Alive"]]

    def _room(self, resources: dict[str, float]) -> int:
        room = int(resources.get("CPU", 0.0) / self.cpus + 1e-9)
        return min(room, int(resources.get("GPU", 0.0) / self.gpus + 1e-9)) if self.gpus else room

    def _require_room(self) -> None:
        nodes = list(self._nodes())
        if any(self._room(node) for node in nodes):
            return
        have = "; ".join(f"{node.get('CPU', 0):g} CPUs, {node.get('GPU', 0):g} GPUs" for node in nodes)
        raise ConfigError(
            f"a run needs {self.cpus:g} CPUs and {self.gpus:g} GPUs on one node, and Ray's nodes have "
            f"{have or 'none'}. Lower --cpus-per-run or --gpus-per-run, or add a node."
        )


@contextlib.contextmanager
def _loopback_only() -> Iterator[None]:
    """Processes that Ray starts inside this context listen on the loopback only.

    On Linux an address in `ray.init` has no such effect: Ray replaces 127.0.0.1 by the machine's own address.
    """
    from ray._private import ray_constants as constants

    name, before = constants.ENABLE_RAY_CLUSTERS_ENV_VAR, constants.ENABLE_RAY_CLUSTER
    inherited = os.environ.get(name)
    os.environ[name], constants.ENABLE_RAY_CLUSTER = "0", False
    try:
        yield
    finally:
        constants.ENABLE_RAY_CLUSTER = before
        del os.environ[name]
        if inherited is not None:
            os.environ[name] = inherited


def require_answer(address: str) -> None:
    """Raise ConfigError unless a Ray cluster answers at `HOST:PORT`, or `auto` finds one; takes at most 20 s."""
    match = re.fullmatch(r"\[?([\w.:-]+?)\]?:(\d{1,5})", address)
    if address != "auto":
        if not match:
            raise ConfigError(f"--address is HOST:PORT of a Ray head, like 10.0.0.1:6379, or auto; got {address!r}.")
        try:
            socket.create_connection((match[1], int(match[2])), CONNECT_SECONDS).close()
        except (OSError, OverflowError, UnicodeError) as error:
            raise ConfigError(f"nothing answers at {address}: {error}. `ray start --head` starts a cluster.") from None
    try:
        done = subprocess.run(
            [sys.executable, "-c", _PROBE, address], capture_output=True, text=True, timeout=ANSWER_SECONDS
        )
    except subprocess.TimeoutExpired:
        raise ConfigError(
            f"no Ray cluster answers at {address} within {ANSWER_SECONDS:.0f} seconds. `ray start --head` starts one."
        ) from None
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no reason"])[-1]
        raise ConfigError(f"no Ray cluster answers at {address}: {last[:300]} `ray start --head` starts one.")


def _import_ray() -> Any:
    if importlib.util.find_spec("ray") is None:
        raise ConfigError("Ray is not installed: pip install 'agentzoo[cluster]', or omit --address to run without it.")
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    import ray
    import ray.util.scheduling_strategies

    return ray


def _work(job: Job, task: Task, keeper: Any, token: str, sync: bool | None) -> Outcome:
    """The function that a Ray worker runs."""
    shared = not sync if sync is not None else Path(token).exists()
    return work(job, task) if shared else _work_on_copy(job, task, keeper)


def _work_on_copy(job: Job, task: Task, keeper: Any) -> Outcome:
    """Run in a folder of this node; send it to the driver's node at each checkpoint and at the end."""
    import ray

    name = task.folder.name
    with tempfile.TemporaryDirectory(prefix="agentzoo-grid-") as root:
        folder = Path(root) / name
        folder.mkdir()
        for file, content in ray.get(keeper.fetch.remote(name)).items():
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            (folder / file).write_bytes(content)
        known = _stamps(folder)

        def send() -> None:
            nonlocal known
            now = _stamps(folder)
            changed = _contents(folder, [file for file in now if now[file] != known.get(file)])
            gone = [file for file in known if file not in now]
            if changed or gone:
                ray.get(keeper.store.remote(name, changed, gone))
            known = now

        def on_step(_: int) -> None:
            saved = folder / CHECKPOINT
            if saved.exists() and _stamp(saved) != known.get(CHECKPOINT):
                send()

        outcome = work(job, replace(task, folder=folder), on_step)
        send()
        ray.get(keeper.release.remote(name))
    return outcome._replace(folder=task.folder)


def _stamp(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_mtime_ns, found.st_size


def _stamps(folder: Path) -> dict[str, tuple[int, int]]:
    """The stamps of a run's files, with those of trackers in subfolders; without locks and unfinished files."""
    found = {}
    for path in folder.rglob("*"):
        if path.is_symlink() or path.name.startswith(".") or path.suffix in (".lock", ".pid"):
            continue
        with contextlib.suppress(FileNotFoundError):  # a tracker has just deleted it
            if path.is_file():
                found[path.relative_to(folder).as_posix()] = _stamp(path)
    return found


def _contents(folder: Path, files: Iterable[str]) -> dict[str, bytes]:
    found = {}
    for file in files:
        with contextlib.suppress(FileNotFoundError):
            found[file] = (folder / file).read_bytes()
    return found


# in this order an incompletely stored run never looks more complete than it is
_LAST = (CHECKPOINT, WEIGHTS, CONFIG)


class _Keeper:
    """An actor on the driver's node that reads and writes the grid's folder for nodes that do not see it."""

    def __init__(self, out: str) -> None:
        self.out = Path(out)
        self.locks: dict[str, contextlib.ExitStack] = {}

    def fetch(self, name: str) -> dict[str, bytes]:
        """Lock a run and return its files."""
        if name not in self.locks:
            self.locks[name] = contextlib.ExitStack()
            self.locks[name].enter_context(held(self.out / name, GRID_LOCK))
        return _contents(self.out / name, _stamps(self.out / name))

    def store(self, name: str, files: dict[str, bytes], gone: list[str]) -> None:
        """Write the changed files, delete the missing ones."""
        for file in sorted(files, key=lambda file: _LAST.index(file) if file in _LAST else -1):
            (self.out / name / file).parent.mkdir(parents=True, exist_ok=True)
            write_atomic(self.out / name / file, files[file])
        for file in gone:
            (self.out / name / file).unlink(missing_ok=True)

    def release(self, name: str) -> None:
        """Unlock a run."""
        stack = self.locks.pop(name, None)
        if stack is not None:
            stack.close()
