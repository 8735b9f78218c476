"""Actions of rules: what statements change, in which order and type, and what is refused."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relevo import limits
from relevo.errors import ExpressionFailed, InvalidExpression
from relevo.kernel.expressions import sqlaction
from relevo.kernel.expressions.sqlaction import converted
from tests.kernel.expressions import filter_trees as random

NOON = datetime(2026, 3, 31, 12, tzinfo=UTC)
KEY = UUID(int=7)


def changed(text: str, **user: Any) -> dict[str, Any]:
    return sqlaction.parse(text).apply({}, user)[1]


def changed_system(text: str, **system: Any) -> dict[str, Any]:
    return sqlaction.parse(text).apply(system, {"n": 5, "at": NOON})[0]


@pytest.mark.parametrize(
    ("text", "before", "after"),
    [
        ("SET a = 1", {}, {"a": 1}),
        ("SET New = a + 1", {"A": 1}, {"A": 1, "New": 2}),
        ("SET A = 2", {"a": 1}, {"a": 2}),  # under the name that is there
        ("SET a = 2", {"a": 1, "A": 0}, {"a": 1, "A": 2}),
        ("SET a = 1 SET b = a + 1", {}, {"a": 1, "b": 2}),
        ("SET a = 1; SET a = a + 1;", {}, {"a": 2}),
        ("set a = 'x'\nremove b", {"b": 1}, {"a": "x"}),
        ("REMOVE a", {"b": 1}, {"b": 1}),
        ("REMOVE a", {"a": 1, "A": 2}, {"a": 1}),
        ("REMOVE a; SET b = a", {"a": 1, "A": 2}, {"a": 1, "b": 1}),
        ("REMOVE a; REMOVE a; SET a = 3", {"a": 1, "A": 2}, {"a": 3}),
        ("REMOVE a; SET b = a", {"a": 1}, {}),
        ("SET a = missing", {"a": 1}, {"a": 1}),
        ("SET a = NULL", {"a": 1}, {"a": 1}),
        ("SET a = 1", {"a": None}, {"a": 1}),
        ("SET [a b] = (1 = 1)", {}, {"a b": True}),
        ("SET user.Priority = sys.Priority", {}, {"Priority": 4}),
        ("SET set = 1 SET remove = 2", {}, {"set": 1, "remove": 2}),
        # The type that is there stays if nothing is lost.
        ("SET a = 2", {"a": 1.5}, {"a": 2.0}),
        ("SET a = 2.0", {"a": 1}, {"a": 2}),
        ("SET a = 2.5", {"a": 1}, {"a": 2.5}),
        ("SET a = '7'", {"a": 1}, {"a": 7}),
        ("SET a = '07'", {"a": 1}, {"a": "07"}),
        ("SET a = 7", {"a": "x"}, {"a": "7"}),
        ("SET a = '1.5'", {"a": 0.5}, {"a": 1.5}),
        ("SET a = 9223372036854775807", {"a": 0.5}, {"a": 2**63 - 1}),
        ("SET a = 'x'", {"a": 1}, {"a": "x"}),
        ("SET a = TRUE", {"a": 1}, {"a": True}),
        (f"SET a = '{KEY}'", {"a": UUID(int=1)}, {"a": KEY}),
        ("SET a = b", {"a": "x", "b": KEY}, {"a": str(KEY), "b": KEY}),
    ],
)
def test_what_statements_change(text: str, before: dict[str, Any], after: dict[str, Any]) -> None:
    given_ = dict(before)
    found = sqlaction.parse(text).apply({"priority": 4}, before)[1]
    assert repr(sorted(found.items())) == repr(sorted(after.items()))
    assert before == given_  # M23: the input stays


def test_system_properties() -> None:
    assert changed_system("SET sys.Priority = 9", priority=4) == {"priority": 9}
    assert changed_system("SET sys.Priority = '3'", priority=None) == {"priority": 3}
    assert changed_system("SET sys.Label = 'x'; SET sys.To = sys.Subject") == {
        "subject": "x",
        "to": "x",
    }
    assert changed_system("SET sys.CorrelationId = n") == {"correlation_id": "5"}
    assert changed_system("SET sys.ScheduledEnqueueTimeUtc = at") == {"at": NOON}
    assert changed_system("REMOVE sys.SessionId", session_id="s") == {"session_id": None}
    assert changed_system("REMOVE sys.SessionId; SET sys.To = sys.SessionId", session_id="s") == {
        "session_id": None
    }
    ttl = sqlaction.parse("SET sys.TimeToLive = @t", parameters={"t": timedelta(seconds=5)})
    assert ttl.apply({}, {})[0] == {"ttl": timedelta(seconds=5)}


@pytest.mark.parametrize(
    "text",
    [
        "SET sys.Priority = 10",
        "SET sys.Priority = -1",
        "SET sys.Priority = 'high'",
        "SET sys.Priority = 1.5",
        "SET sys.To = TRUE",
        "SET sys.TimeToLive = 5",
        "SET sys.TimeToLive = at - at",
        "SET sys.ScheduledEnqueueTimeUtc = 'soon'",
        "SET a = 1 / 0",
        "SET a = n; SET b = 9223372036854775807 + a",
    ],
)
def test_a_value_that_does_not_fit_fails_the_action(text: str) -> None:
    with pytest.raises(ExpressionFailed):
        changed_system(text)


@pytest.mark.parametrize(
    ("text", "line", "column", "message"),
    [
        ("", 1, 1, "the text ends where SET is expected"),
        ("SET a = 1, SET b = 2", 1, 10, "Separate statements with semicolons"),
        ("SET a 1", 1, 7, "found `1` where `=` is expected"),
        ("SET a = 1\nREMOVE 5", 2, 8, "found `5` where a name is expected"),
        ("SET a = 1 = 2", 1, 11, "found `=`"),
        ("SET sys.EnqueuedTimeUtc = 1", 1, 5, "sys.EnqueuedTimeUtc cannot be changed"),
        ("REMOVE sys.EnqueuedTimeUtc", 1, 8, "cannot be changed"),
        ("SET sys.Nope = 1", 1, 9, "there is no system property `Nope`"),
        ("SET a = @p", 1, 9, "the parameter @p has no value"),
        ("SET a = 1;; SET b = 2", 1, 11, "found `;`"),
        ("a = 1", 1, 1, "found `a` where SET is expected"),
    ],
)
def test_what_is_no_action_is_refused_with_its_place(
    text: str, line: int, column: int, message: str
) -> None:
    with pytest.raises(InvalidExpression) as caught:
        sqlaction.parse(text)
    assert message in caught.value.message
    assert (caught.value.line, caught.value.column) == (line, column)


def test_statements_and_characters_are_limited() -> None:
    statements = ["SET a = 1"] * limits.ACTION_STATEMENTS_MAX
    sqlaction.parse(" ".join(statements))
    with pytest.raises(InvalidExpression, match="more than 32 statements") as caught:
        sqlaction.parse(" ".join([*statements, "REMOVE a"]))
    assert caught.value.column == 10 * 32 + 1
    with pytest.raises(InvalidExpression, match="may have 1,024"):
        sqlaction.parse("SET a = '{}'".format("x" * 1_024))


def test_all_statements_share_one_meter() -> None:
    text = " ".join(["SET a = a + b"] * 32)
    assert len(changed(text, a="x" * 500, b="y" * 500)["a"]) == 500 * 33
    with pytest.raises(ExpressionFailed, match="too many steps"):
        changed(text, a="x" * 16_000, b="y" * 16_000)


@given(random.values, random.values)
def test_a_conversion_loses_nothing(value: Any, existing: Any) -> None:
    found = converted(value, existing)
    if type(found) is not type(value):
        assert type(found) is type(existing)
        assert converted(found, value) == value


@given(st.lists(st.tuples(random.names, random.values), max_size=6), random.users)
def test_statements_do_what_assignments_do(
    statements: list[tuple[str, Any]], user: dict[str, Any]
) -> None:
    parameters = {f"p{n}": value for n, (_, value) in enumerate(statements)}
    text = " ".join(
        'SET "{}" = @p{}'.format(name.replace('"', '""'), n)
        for n, (name, _) in enumerate(statements)
    )
    expected = dict(user)
    for name, value in statements:
        same = [one for one in expected if one.lower() == name.lower()]
        key = min(same, default=name)
        if value is not None:
            expected[key] = converted(value, expected.get(key))
    if text:
        found = sqlaction.parse(text, parameters=parameters).apply({}, user)[1]
        assert repr(sorted(found.items())) == repr(sorted(expected.items()))
