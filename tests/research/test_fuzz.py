"""A small share of `agentzoo research fuzz`: no damaged file ends in an error that is not ours."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import get_args

import pytest

from agentzoo.errors import ConfigError, DataError
from agentzoo.research.fuzz import attempt, fuzz
from agentzoo.research.fuzz_damage import TOKENS, Kind, damaged

VARIABLES = ("AGENTZOO_ZOO", "AGENTZOO_INDEX", "AGENTZOO_TEXT", "MINARI_DATASETS_PATH")


@pytest.fixture(autouse=True)
def _own_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:  # which the command sets
        monkeypatch.setenv(name, os.environ.get(name, ""))


@pytest.mark.slow
def test_every_damaged_file_is_read_or_refused() -> None:
    seen: Counter[str] = Counter()
    tallies = fuzz(25 * 10, seed=1, on_case=lambda count, name: seen.update({name: count}))
    assert {one.reader: one.examples for one in tallies if one.failures} == {}
    assert len(tallies) == 25
    assert all(one.cases == 10 == seen[one.reader] for one in tallies)
    assert sum(one.refused for one in tallies) > 100  # damage does damage
    assert sum(one.read for one in tallies) > 5


def test_the_same_seed_damages_alike_and_another_one_does_not() -> None:
    good = b'{"a": 1, "b": "x"}' * 10
    made = [damaged("json", good, seed, case) for seed in (0, 0, 1) for case in range(20)]
    assert made[:20] == made[20:40] != made[40:]
    assert any(token in one for token in TOKENS[:10] for one in made)


@pytest.mark.parametrize("kind", get_args(Kind))
def test_what_was_cut_to_nothing_is_damaged_on(kind: Kind) -> None:
    """A failure of the damage itself would count as a reader's crash."""
    assert all(isinstance(damaged(kind, b"", 0, case), bytes) for case in range(100))


def test_an_error_that_is_not_ours_is_counted_by_its_name() -> None:
    def fail(error: Exception) -> None:
        raise error

    assert attempt([lambda: None])[0] == "read"
    assert attempt([lambda: None, lambda: fail(DataError("x"))])[0] == "refused"
    assert attempt([lambda: fail(DataError("x")), lambda: fail(KeyError("x"))])[0] == "KeyError"
    with pytest.raises(ConfigError, match="no reader 'confg'"):
        fuzz(10, only=["confg"])


# In a process of its own: what earlier tests left behind may be freed in the middle, and hide what is taken.
_TAKES_TOO_MUCH = """
import importlib
import time
import numpy as np
from agentzoo.research import fuzz
print(fuzz.measured([lambda: np.ones(80_000_000)])[0])
print(fuzz.measured([lambda: importlib.import_module("colorsys")])[0])
def works_long():
    begun = time.process_time()
    while time.process_time() < begun + 0.3:
        pass
fuzz.MAX_CPU = 0.1
print(fuzz.measured([works_long])[0])
print(*fuzz.measured([lambda: np.ones(1_000)]), sep="|")
"""


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="measures memory as Linux does")
def test_a_reader_that_takes_too_much_is_counted() -> None:
    done = subprocess.run([sys.executable, "-c", _TAKES_TOO_MUCH], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["memory", "imports", "slow", "read|"]
