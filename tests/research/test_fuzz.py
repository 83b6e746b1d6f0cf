"""A small share of `agentzoo research fuzz`: no damaged file ends in an error that is not ours."""

from __future__ import annotations

import os
from collections import Counter

import pytest

from agentzoo.errors import ConfigError, DataError
from agentzoo.research.fuzz import attempt, fuzz
from agentzoo.research.fuzz_damage import TOKENS, damaged

VARIABLES = ("AGENTZOO_ZOO", "AGENTZOO_INDEX", "MINARI_DATASETS_PATH")


@pytest.fixture(autouse=True)
def _own_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:  # which the command sets
        monkeypatch.setenv(name, os.environ.get(name, ""))


@pytest.mark.slow
def test_every_damaged_file_is_read_or_refused() -> None:
    seen: Counter[str] = Counter()
    tallies = fuzz(195, seed=1, on_case=lambda count, name: seen.update({name: count}))
    assert {one.reader: one.examples for one in tallies if one.failures} == {}
    assert len(tallies) == 13
    assert all(one.cases == 15 == seen[one.reader] for one in tallies)
    assert sum(one.refused for one in tallies) > 100  # damage does damage
    assert sum(one.read for one in tallies) > 5


def test_the_same_seed_damages_alike_and_another_one_does_not() -> None:
    good = b'{"a": 1, "b": "x"}' * 10
    made = [damaged("json", good, seed, case) for seed in (0, 0, 1) for case in range(20)]
    assert made[:20] == made[20:40] != made[40:]
    assert any(token in one for token in TOKENS[:10] for one in made)


def test_an_error_that_is_not_ours_is_counted_by_its_name() -> None:
    def fail(error: Exception) -> None:
        raise error

    assert attempt([lambda: None])[0] == "read"
    assert attempt([lambda: None, lambda: fail(DataError("x"))])[0] == "refused"
    assert attempt([lambda: fail(DataError("x")), lambda: fail(KeyError("x"))])[0] == "KeyError"
    with pytest.raises(ConfigError, match="no reader 'confg'"):
        fuzz(10, only=["confg"])
