"""SQL filters: what texts mean, and what is said of texts that mean nothing."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from relevo import limits
from relevo.errors import ExpressionFailed, InvalidExpression
from relevo.kernel.expressions import sqlfilter
from relevo.kernel.expressions.sqlfilter import RULES, USER
from relevo.kernel.expressions.tree import Compare, Constant, IsNull, Logic, Member, Not

NOON = datetime(2026, 3, 31, 12, tzinfo=UTC)
KEY = "0f0e0d0c-0b0a-0908-0706-050403020100"
DEPTH = limits.EXPRESSION_DEPTH_MAX
SYSTEM = {
    "message_id": "m1",
    "subject": "order",
    "priority": 7,
    "enqueued_at": NOON,
    "at": NOON + timedelta(hours=1),
    "ttl": timedelta(minutes=5),
    "session_id": None,
}
USER_PROPERTIES = {
    "Total": 250,
    "ratio": 0.5,
    "Name": "Ana",
    "paid": True,
    "nothing": None,
    "key": UUID(KEY),
    "raw": b"ab",
    "since": NOON,
    "max": 2**63 - 1,
    "order id": 9,
    "dup": "lower",
    "DUP": "upper",
}


def result(text: str, **parameters: Any) -> bool | None:
    found = sqlfilter.compiled(text, parameters=parameters)
    return found(sqlfilter.scope(SYSTEM, USER_PROPERTIES))


TRUE = [
    "TRUE",
    "Total = 250",
    "total >= 250 AND TOTAL <= 250",
    "user.Total > 100",
    "USER.total != 1",
    "[order id] = 9",
    '"order id" = 9',
    "sys.MessageId = 'm1'",
    "SYS.label = 'order' and sys.Subject = 'order'",
    "sys.Priority > 4",
    "sys.[Priority] = 7",
    "sys.EnqueuedTimeUtc = since",
    "sys.ScheduledEnqueueTimeUtc - sys.EnqueuedTimeUtc > sys.TimeToLive",
    "since + sys.TimeToLive > since",
    "dup = 'upper'",  # the ordinally smallest name
    "Name LIKE 'A%'",
    "Name LIKE '_n_'",
    "Name NOT LIKE 'a%'",
    "'50%' LIKE '50!%' ESCAPE '!'",
    "'a!' LIKE 'a!!' ESCAPE '!'",
    "Name IN ('Eva', 'Ana')",
    "Total IN (1, 250.0)",
    "Total IN (1, 'x', 250)",
    "Total NOT IN (1, 2)",
    "nothing IS NULL",
    "missing IS NULL",
    "Name IS NOT NULL",
    "sys.SessionId IS NULL",
    "EXISTS(nothing)",
    "EXISTS (sys.MessageId)",
    "NOT EXISTS(missing)",
    "NOT EXISTS(sys.SessionId)",
    "paid = TRUE",
    "(Total = 250) = TRUE",
    f"key = '{KEY}'",
    f"key > '00000000-0000-0000-0000-000000000000' AND '{KEY}' <= key",
    "raw = raw",
    "-7 / 2 = -3",
    "-7 % 2 = -1",
    "7 % -2 = 1",
    "7 / 2.0 = 3.5",
    "1.0 / 0 > 1e300",
    "-1 / 0.0 < -1e300",
    "2 + 3 * 4 - 1 = 13",
    "10 - 4 - 3 = 3",
    "- - 2 = 2",
    "+Total = 250",
    "-9223372036854775808 < 0",
    "Name + ' ' + Name = 'Ana Ana'",
    "property('Total') = 250",
    "P('to' + 'tal') = 250",
    "p('order id') = 9",
    "newid() <> newid()",
    "missing = 1 OR Total = 250",
    "NOT Total = 1",
    "Total = 1 OR Total = 250 AND Name = 'Ana'",
    "'it''s' = 'it''s'",
    "\n\tTotal\n=\n250\n",
    "'Z' < 'a'",
]
FALSE = [
    "FALSE",
    "Total = 1",
    "Name = 'ana'",
    "nothing IS NOT NULL",
    "EXISTS(missing)",
    "Name IN ('Eva')",
    "Name LIKE 'a%'",
    "missing = 1 AND Total = 1",
    "NOT TRUE",
    "0.0 / 0 = 0.0 / 0",  # NaN
    "paid <> TRUE",
]
UNKNOWN = [
    "missing = 1",
    "missing <> 1",
    "NOT missing = 1",
    "nothing = nothing",
    "NULL = NULL",
    "missing + 1 > 0",
    "missing LIKE '%'",
    "Name LIKE missing",
    "Name LIKE 'a' ESCAPE missing",
    "Total LIKE '250'",
    "missing IN (1, 2)",
    "Total IN (1, missing)",
    "Total NOT IN (1, missing)",
    "'10' > 5",
    "Total = '250'",
    "paid > FALSE",
    "paid = 1",
    "key = 'no UUID'",
    f"key = '{KEY.upper()}'",
    "raw = 'ab'",
    "since > 5",
    "missing = 1 OR Total = 1",
    "missing = 1 AND Total = 250",
    "p(missing) = 1",
    "-missing = 1",
]
FAILING = [
    "max + 1 = 0",
    "-max - 2 < 0",
    "max * 2 = 0",
    "-9223372036854775808 / -1 = 0",
    "-9223372036854775808 % -1 = 0",
    "-(-9223372036854775807 - 1) = 0",
    "1 / 0 = 0",
    "1 % 0 = 0",
    "Name + 1 = 1",
    "Name * 2 = 1",
    "paid + 1 = 1",
    "-Name = 1",
    "+Name = 1",
    "since + since = 1",
    "sys.TimeToLive + since = 1",
    "key + 1 = 1",
    "Name LIKE 'a!b' ESCAPE '!'",
    "Name LIKE 'a!' ESCAPE '!'",
    "Name LIKE 'a' ESCAPE 'ab'",
    "Name LIKE 'a' ESCAPE ''",
    "Name LIKE 'a' ESCAPE 1",
    "p(1) = 1",
    "Total = 250 AND 1 / 0 = 1",
]


@pytest.mark.parametrize("text", TRUE)
def test_filters_that_select(text: str) -> None:
    assert result(text) is True


@pytest.mark.parametrize("text", FALSE)
def test_filters_that_do_not_select(text: str) -> None:
    assert result(text) is False


@pytest.mark.parametrize("text", UNKNOWN)
def test_filters_with_an_unknown_result(text: str) -> None:
    assert result(text) is None


@pytest.mark.parametrize("text", FAILING)
def test_filters_without_a_result(text: str) -> None:
    with pytest.raises(ExpressionFailed):
        result(text)


def test_operands_that_do_not_matter_are_not_evaluated() -> None:
    assert result("Total = 1 AND 1 / 0 = 1") is False
    assert result("Total = 250 OR 1 / 0 = 1") is True


def test_a_parameter_has_its_value_and_type() -> None:
    assert result("Total = @t", t=250) is True
    assert result("Total = @T and Name = @name", **{"@t": 250, "Name": "Ana"}) is True
    assert result("key = @k", k=UUID(KEY)) is True
    assert result("since = @s", s=NOON) is True
    assert result("sys.TimeToLive < @d", d=timedelta(hours=1)) is True
    assert result("raw = @r", r=b"ab") is True
    assert result("Total = @n", n=None) is None


def test_the_tree_keeps_names_as_they_are_written() -> None:
    total = Member(USER, ("Total",), "folded")
    assert sqlfilter.parse("Total IS NOT NULL AND (Total <> 1)") == Logic(
        "and",
        (Not(IsNull(total), RULES), Compare("<>", total, Constant(1), RULES)),
        RULES,
    )


@pytest.mark.parametrize(
    ("text", "line", "column", "message"),
    [
        ("", 1, 1, "the text ends where a value is expected"),
        ("Total = ", 1, 8, "the text ends where a value is expected"),
        ("Total", 1, 1, "a value stands where a condition is expected"),
        ("(Total)", 1, 2, "a value stands where a condition is expected"),
        ("5", 1, 1, "a value stands where a condition is expected"),
        ("NULL", 1, 1, "a value stands where a condition is expected"),
        ("@p", 1, 1, "a value stands where a condition is expected"),
        ("a = 1 AND 'x'", 1, 11, "a value stands where a condition is expected"),
        ("a = 1\nOR b", 2, 4, "a value stands where a condition is expected"),
        ("NOT a", 1, 5, "a value stands where a condition is expected"),
        ("a + 1", 1, 1, "a value stands where a condition is expected"),
        ("a = 1 = 2", 1, 7, "found `=`"),
        ("a == 1", 1, 4, "Write a single = to compare"),
        ("a && b", 1, 3, "Write AND"),
        ("a = 'x", 1, 5, "Close the text with '"),
        ("[a = 1", 1, 1, "Close the name with ]"),
        ("[] = 1", 1, 1, "the name is empty"),
        ("_a = 1", 1, 1, "found `_`"),
        ("and = 1", 1, 1, "found `and`"),
        ("user.and = 1", 1, 6, "found `and`"),
        ("sys.Nope = 1", 1, 5, "there is no system property `Nope`"),
        ("sys.MesageId = 1", 1, 5, "Write MessageId"),
        ("sys.Body = 1", 1, 5, "there is no system property `Body`"),
        ("foo.a = 1", 1, 1, "there is no scope `foo`. Write sys or user"),
        ("a = @x", 1, 5, "the parameter @x has no value"),
        ("1 IS NULL", 1, 1, "IS NULL tests properties only"),
        ("p('a') IS NULL", 1, 1, "IS NULL tests properties only"),
        ("EXISTS('a')", 1, 8, "found `'a'` where a name is expected"),
        ("a IN ()", 1, 7, "found `)`"),
        ("a LIKE", 1, 7, "the text ends"),
        ("a = 9223372036854775808", 1, 5, "more than 64 bits"),
        ("a = -9223372036854775809", 1, 6, "more than 64 bits"),
        ("a = 1e999", 1, 5, "is too large"),
        ("a = len('x')", 1, 5, "there is no function `len`"),
        ("newid(1) = 1", 1, 1, "newid takes no arguments"),
        ("p() = 1", 1, 1, "p needs a name"),
        ("a = 1;", 1, 6, "found `;`"),
        ("a = #", 1, 5, "found `#`"),
    ],
)
def test_what_is_no_filter_is_refused_with_its_place(
    text: str, line: int, column: int, message: str
) -> None:
    with pytest.raises(InvalidExpression) as caught:
        sqlfilter.parse(text, parameters={"p": True})
    assert message in caught.value.message
    assert (caught.value.line, caught.value.column) == (line, column)


def test_the_length_is_limited_in_characters() -> None:
    padded = "Name = '{}'".format("ñ" * (limits.FILTER_LENGTH_MAX - 9))
    sqlfilter.parse(padded)
    with pytest.raises(InvalidExpression, match="1,025 characters and may have 1,024") as caught:
        sqlfilter.parse(padded + " ")
    assert (caught.value.line, caught.value.column) == (1, 1_025)
    sqlfilter.parse(padded + " ", length_max=2_000)
    largest = "a = '{}'".format("x" * 16_379)
    with pytest.raises(InvalidExpression, match="may have 16,384"):
        sqlfilter.parse(largest, length_max=10**9)


@pytest.mark.parametrize(
    ("open_", "inside", "close"),
    [("(", "a = 1", ")"), ("NOT ", "a = 1", ""), ("-", "a", " = 1"), ("p(", "a", ")")],
)
def test_nesting_is_limited(open_: str, inside: str, close: str) -> None:
    def nested(levels: int) -> str:
        closing = close * levels if close == ")" else close
        end = " = 1" if open_ == "p(" else ""
        return open_ * levels + inside + closing + end

    sqlfilter.compiled(nested(DEPTH - 2))(sqlfilter.scope({}, {}))
    with pytest.raises(InvalidExpression, match=f"nests deeper than {DEPTH} levels"):
        sqlfilter.parse(nested(DEPTH + 2))


def test_every_tree_within_the_limits_can_be_evaluated() -> None:
    text = "a NOT IN ((" * 30 + "1" + "))" * 30
    assert sqlfilter.compiled(text)(sqlfilter.scope({}, {})) is None
    long = " OR ".join(["a NOT LIKE 'x'"] * 900)
    assert sqlfilter.compiled(long, length_max=16_384)(sqlfilter.scope({}, {"a": "x"})) is False


def test_a_list_is_limited() -> None:
    items = ["1"] * limits.FILTER_LIST_MAX
    sqlfilter.parse(f"a IN ({','.join(items)})")
    with pytest.raises(InvalidExpression, match="more than 256 values") as caught:
        sqlfilter.parse(f"a IN ({','.join([*items, '2'])})")
    assert caught.value.column == len("a IN (") + 2 * 256 + 1


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"a": 1, "@A": 2}, "is given twice"),
        ({"a": [1]}, "is a list"),
        ({"a": object()}, "is a object, which"),
        ({"a": 2**63}, "a number of 64 bits"),
        ({"a": NOON.replace(tzinfo=None)}, "a datetime with a time zone"),
    ],
)
def test_parameters_are_scalars_given_once(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidExpression, match=message):
        sqlfilter.parse("a = 1", parameters=parameters)
