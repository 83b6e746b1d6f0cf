"""A record as JSON: what people read and what Git keeps."""

import json

from hypothesis import given
from hypothesis import strategies as st

from agentzoo.record import Config


class Kept(Config):
    names: tuple[str, ...] = ()
    numbers: tuple[float | None, ...] = ()
    rows: tuple[tuple[int, ...], ...] = ()


def test_numbers_share_a_line_and_names_have_their_own() -> None:
    record = Kept(names=("a [\n1\n]", "b"), numbers=(1.5, None, -2e-7), rows=((1, 2), (), (3,)))
    assert record.to_json() == (
        "{\n"
        '  "names": [\n    "a [\\n1\\n]",\n    "b"\n  ],\n'
        '  "numbers": [1.5, null, -2e-7],\n'
        '  "rows": [\n    [1, 2],\n    [],\n    [3]\n  ]\n'
        "}\n"
    )


@given(st.lists(st.text()), st.lists(st.none() | st.floats(allow_nan=False, allow_infinity=False)))
def test_the_json_says_what_the_record_holds(names: list[str], numbers: list[float | None]) -> None:
    record = Kept(names=tuple(names), numbers=tuple(numbers))
    assert json.loads(record.to_json()) == {"names": names, "numbers": numbers, "rows": []}
    assert Kept.from_json(record.to_json(), "test") == record
