"""Correlation filters: typed equality, and an index that tests no filter in vain."""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relevo.errors import InvalidValue
from relevo.messaging.core.correlation import FIELDS, CorrelationFilter, CorrelationIndex
from relevo.messaging.model import CorrelationRule

if TYPE_CHECKING:
    from collections.abc import Callable

names = st.sampled_from(["a", "A", "b", "subject"])
scalars = st.sampled_from([timedelta(1), datetime(2026, 1, 1, tzinfo=UTC)]) | st.sampled_from(
    (True, False, 0, 1, 0.0, 1.0, "", "a", "A", "1", b"a", None, UUID(int=1), str(UUID(int=1)))
)
fields = st.dictionaries(st.sampled_from(FIELDS[:3]), st.sampled_from(["x", "X", ""]), max_size=2)
properties = st.dictionaries(names, scalars, max_size=3)
filters = (
    st.tuples(fields, properties)
    .filter(lambda pair: bool(pair[0] or pair[1]))
    .map(lambda pair: CorrelationFilter(*pair))
)


@pytest.mark.parametrize(
    ("wanted", "value", "expected"),
    [
        (5, 5, True),
        (5, 5.0, False),
        (5, "5", False),
        (1, True, False),
        ("a", "A", False),
        (b"a", b"a", True),
        (UUID(int=1), UUID(int=1), True),
        (UUID(int=1), str(UUID(int=1)), False),
        (None, None, True),
        (timedelta(minutes=1), timedelta(seconds=60), True),
    ],
)
def test_equality_is_typed_and_ordinal(wanted: Any, value: Any, expected: bool) -> None:
    found = CorrelationFilter(properties={"p": wanted})
    assert found.matches({}, {"p": value}) is expected
    index: CorrelationIndex[str] = CorrelationIndex()
    index.add("one", found)
    assert index.matches({}, {"p": value}) == (["one"] if expected else [])


def test_what_is_absent_does_not_match() -> None:
    assert not CorrelationFilter(properties={"p": None}).matches({}, {})
    assert not CorrelationFilter({"subject": "x"}).matches({"subject": None}, {"subject": "x"})
    assert not CorrelationFilter({"subject": "x"}, {"p": 1}).matches({"subject": "x"}, {"P": 1})
    assert CorrelationFilter({"subject": "x"}, {"p": 1}).matches({"subject": "x"}, {"p": 1})


def test_a_filter_is_made_of_the_fields_of_a_rule() -> None:
    rule = CorrelationRule(to="x", properties={"a": 1})
    assert CorrelationFilter.of(rule) == CorrelationFilter({"to": "x"}, {"a": 1})


@pytest.mark.parametrize(
    ("fields", "properties", "message"),
    [
        ({}, {}, "at least one field or property"),
        ({"body": "x"}, {}, "no correlation field `body`"),
        ({"subject": 5}, {}, "cannot compare `subject` with a int"),
        ({}, {"p": [1]}, "cannot compare `p` with a list"),
        ({}, {"p": float("nan")}, "with NaN"),
    ],
)
def test_a_filter_that_could_not_match_is_refused(
    fields: dict[str, Any], properties: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidValue, match=message):
        CorrelationFilter(fields, properties)


@given(st.lists(filters, max_size=12), st.sets(st.integers(0, 11)), fields, properties)
def test_the_index_finds_what_a_scan_finds(
    known: list[CorrelationFilter],
    removed: set[int],
    fields: dict[str, str],
    properties: dict[str, Any],
) -> None:
    index: CorrelationIndex[int] = CorrelationIndex()
    for number, one in enumerate(known):
        index.add(number, one)
    for number in removed:
        index.remove(number)
    left = {n: one for n, one in enumerate(known) if n not in removed}
    expected = [n for n, one in left.items() if one.matches(fields, properties)]
    assert sorted(index.matches(fields, properties)) == expected
    assert len(index) == len(left)


@given(st.lists(st.tuples(st.integers(0, 3), filters), max_size=12), fields, properties)
def test_adding_an_id_again_replaces_its_filter(
    changes: list[tuple[int, CorrelationFilter]],
    fields: dict[str, str],
    properties: dict[str, Any],
) -> None:
    index: CorrelationIndex[int] = CorrelationIndex()
    for number, one in changes:
        index.add(number, one)
    expected = [n for n, one in dict(changes).items() if one.matches(fields, properties)]
    assert sorted(index.matches(fields, properties)) == sorted(expected)
    for number in dict(changes):
        index.remove(number)
    assert (index._tables, [each for each in index._filed.values() if each]) == ({}, [])


def calls(function: Callable[[], object]) -> int:
    """How many lines of Python a call runs."""
    count = 0

    def trace(frame: object, event: str, argument: object) -> Any:
        nonlocal count
        count += 1
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        function()
    finally:
        sys.settrace(before)
    return count


MANY = 10_000
SHAPES: dict[str, Callable[[int], CorrelationFilter]] = {
    "one property": lambda n: CorrelationFilter(properties={"tenant": n}),
    "a common field": lambda n: CorrelationFilter({"subject": "order"}, {"tenant": n}),
    "a name each": lambda n: CorrelationFilter({"subject": "order"}, {f"tenant {n}": True}),
    "two values": lambda n: CorrelationFilter(properties={"x": n // 100, "y": n % 100}),
}


@pytest.mark.parametrize("name", SHAPES)
def test_a_message_costs_the_same_however_many_rules_there_are(name: str) -> None:
    properties = {"tenant": 7, "tenant 7": True, "x": 0, "y": 7, "other": "z"}
    costs = []
    for size in (100, 100_000 if name == "a common field" else MANY):
        index: CorrelationIndex[int] = CorrelationIndex()
        for number in range(size):
            index.add(number, SHAPES[name](number))
        assert index.matches({"subject": "order"}, properties) == [7]
        costs.append(calls(lambda: index.matches({"subject": "order"}, properties)))  # noqa: B023
    assert costs[0] == costs[1]  # M23
