"""Fuzzing of every reader of untrusted files: each damaged file is read, or refused with one of agentzoo's errors.

`agentzoo research fuzz` makes 10,000 damaged files from a fixed seed and counts the results of their readers. Cases run
in a child process, so that a crash in a library's C code, or a reader that does not end, is counted too. A reader that
computes for long, takes much memory, or imports a module that a file names also counts as a failure.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path

from agentzoo.errors import AgentzooError
from agentzoo.research.fuzz_damage import Reader, damaged
from agentzoo.research.fuzz_readers import make_readers

CASES = 10_000
SECONDS = 20.0  # of one case, after which it counts as endless
MAX_MESSAGE = 5_000  # bytes of an error's message
MAX_CPU = 2.0  # seconds of one case
MAX_MEMORY = 500  # MB of one case, above what the process has
_PEAK = Path("/proc/self/clear_refs")  # resets the peak of memory on Linux


@dataclass
class Tally:
    """The results of one reader."""

    reader: str
    read: int = 0
    refused: int = 0
    failures: Counter[str] = field(default_factory=Counter)  # by name: errors that are not ours, and those of `fuzz`
    examples: dict[str, str] = field(default_factory=dict)  # failure -> the case and the end of its traceback
    slowest: float = 0.0  # seconds

    @property
    def cases(self) -> int:
        """The number of cases."""
        return self.read + self.refused + sum(self.failures.values())


def fuzz(
    cases: int = CASES,
    seed: int = 0,
    only: Sequence[str] = (),
    on_case: Callable[[int, str], None] = lambda *_: None,
) -> list[Tally]:
    """Damage files and count the results of their readers.

    Failures are errors that are not ours, by name, and "crash", "endless", "message" (too long or not printable),
    "slow", "memory" and "imports".

    Args:
        cases: the total; every reader gets its share.
        seed: the same seed damages the same bytes in the same way.
        only: names of readers; all of them by default.
        on_case: called after each case with 1 and the reader's name.

    Raises:
        ConfigError: `only` names no reader.
    """
    with tempfile.TemporaryDirectory(prefix="agentzoo-fuzz-") as name, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        readers = make_readers(Path(name), only)
        share = -(-cases // len(readers))
        return [_run(reader, share, seed, on_case) for reader in readers]


def _run(reader: Reader, cases: int, seed: int, on_case: Callable[[int, str], None]) -> Tally:
    """All cases of one reader. A child that dies is replaced and continues with the next case."""
    tally, case = Tally(reader.name), 0
    good = reader.path.read_bytes()
    try:
        while case < cases:
            parent, child = multiprocessing.Pipe(duplex=False)
            process = multiprocessing.get_context("fork").Process(
                target=_cases, args=(reader, good, range(case, cases), seed, child)
            )
            process.start()
            child.close()
            case += _listen(parent, tally, cases - case, lambda: on_case(1, reader.name))
            if case < cases:  # the child died
                what = "endless" if process.is_alive() else "crash"
                process.kill()
                tally.failures[what] += 1
                tally.examples.setdefault(what, f"case {case}")
                on_case(1, reader.name)
                case += 1
            process.join()
    finally:
        reader.path.write_bytes(good)
    return tally


def _listen(parent: Connection, tally: Tally, expected: int, on_case: Callable[[], None]) -> int:
    """Receive the child's reports; returns their number when the child is silent or gone."""
    for done in range(expected):
        try:
            if not parent.poll(SECONDS):
                return done
            outcome, seconds, example = parent.recv()
        except EOFError:
            return done
        tally.slowest = max(tally.slowest, seconds)
        if outcome == "read":
            tally.read += 1
        elif outcome == "refused":
            tally.refused += 1
        else:
            tally.failures[outcome] += 1
            tally.examples.setdefault(outcome, example)
        on_case()
    return expected


def _cases(reader: Reader, good: bytes, cases: range, seed: int, child: Connection) -> None:
    """In the child: damage, read, report."""
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 2)  # C libraries complain there
    for case in cases:
        reader.path.write_bytes(damaged(reader.kind, good, seed, case))
        began = time.perf_counter()
        outcome, example = measured(reader.reads)
        child.send((outcome, time.perf_counter() - began, f"case {case}: {example}"))
    child.close()


def measured(reads: Sequence[Callable[[], object]]) -> tuple[str, str]:
    """As `attempt`; besides "slow", "memory" or "imports" where the readers took too much or imported a module."""
    modules, before, began = set(sys.modules), _peak_megabytes(restart=True), time.process_time()
    outcome, example = attempt(reads)
    if outcome not in ("read", "refused"):
        return outcome, example
    seconds, memory, new = time.process_time() - began, _peak_megabytes() - before, sorted(set(sys.modules) - modules)
    if memory > MAX_MEMORY:  # before the time: filling much memory is slow, too
        return "memory", f"{memory:.0f} MB"
    if seconds > MAX_CPU:
        return "slow", f"{seconds:.1f} s of CPU"
    return ("imports", ", ".join(new)) if new else (outcome, example)


def _peak_megabytes(restart: bool = False) -> float:
    """Peak memory of this process since the last restart, in MB; 0 if unknown."""
    if not _PEAK.exists():
        return 0.0
    if restart:
        _PEAK.write_text("5")
    lines = Path("/proc/self/status").read_text().splitlines()
    return max(int(line.split()[1]) for line in lines if line.startswith(("VmHWM:", "VmRSS:"))) / 1024


def attempt(reads: Sequence[Callable[[], object]]) -> tuple[str, str]:
    """The result of one damaged file: "read", "refused", or the name of a failure."""
    refused = False
    for read in reads:
        try:
            read()
        except AgentzooError as error:
            refused = True
            if len(str(error).encode(errors="replace")) > MAX_MESSAGE or not str(error).isprintable():
                return "message", str(error)[:200]
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # a panic in a library's Rust code is a BaseException
            return type(error).__name__, "".join(traceback.format_exception(error)[-2:])[-600:]
    return ("refused" if refused else "read"), ""
