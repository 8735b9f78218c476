"""The SQL back end: PostgreSQL finds what the Python back end says, and is sent no user's text."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from relevo.errors import InvalidExpression
from relevo.kernel.expressions import powerfx, to_python, to_sql
from relevo.kernel.expressions.to_sql import Clause, SqlColumn
from relevo.kernel.expressions.tree import (
    Affix,
    Arithmetic,
    Compare,
    Constant,
    Exists,
    Expression,
    In,
    IsNull,
    Like,
    List,
    Logic,
    Member,
    Name,
    Negate,
    Not,
    Rules,
)
from relevo.kernel.expressions.values import fold
from tests.conftest import examples

if TYPE_CHECKING:
    from relevo.kernel.postgres.database import Database

pytestmark = pytest.mark.anyio

ROWS = "unnest($1::bigint[], $2::float8[], $3::text[], $4::boolean[]) as r (i, f, t, b)"
COLUMNS = {
    ("i",): SqlColumn("r.i", "bigint"),
    ("r", "f"): SqlColumn("r.f", "float8"),
    ("t",): SqlColumn("r.t", "text"),
    ("r", "deep", "b"): SqlColumn("r.b", "boolean"),
}
RULES = [
    Rules(nulls=nulls, case=case, mixed=mixed)
    for nulls in ("blank", "unknown")
    for case in ("exact", "folded")
    for mixed in ("differ", "unknown")
]

whole = st.integers(-4, 4) | st.just(1_000)  # whose products stay within 64 bits
fraction = st.sampled_from([-2.5, -1.0, 0.0, 0.1, 0.5, 1.0, 3.0, 1e10])
letters = "aAbBéÉ\u0130\u0131ß\u03a3\u03c2\u03c3 %_\\'\"\U0001f355\U00010400"
words = st.text(st.sampled_from(letters), max_size=3)
rules = st.sampled_from(RULES)
rows = st.lists(
    st.tuples(*(st.none() | one for one in (whole, fraction, words, st.booleans()))), max_size=6
)


def steps(inner: st.SearchStrategy[Expression]) -> st.SearchStrategy[Any]:
    divisor = (whole | fraction).filter(bool).map(Constant)
    return st.tuples(st.sampled_from("+-*"), inner) | st.tuples(st.just("/"), divisor)


constants = st.one_of(st.none(), whole, fraction, words, st.booleans()).map(Constant)
figures: list[Expression] = [Name("i"), Member(Name("r"), ("f",)), Constant(None)]
numbers: st.SearchStrategy[Expression] = st.recursive(
    st.sampled_from(figures) | (whole | fraction).map(Constant),
    lambda inner: (
        st.builds(Negate, inner, rules)
        | st.builds(
            Arithmetic, inner, st.lists(steps(inner), min_size=1, max_size=2).map(tuple), rules
        )
    ),
    max_leaves=4,
)
texts: st.SearchStrategy[Expression] = st.just(Name("t")) | (st.none() | words).map(Constant)


def conditions(inner: st.SearchStrategy[Expression]) -> st.SearchStrategy[Expression]:
    anything = numbers | texts | constants | inner
    signs = st.sampled_from(["=", "<>", "<", "<=", ">", ">="])
    several = st.lists(inner, min_size=1, max_size=3).map(tuple)
    lists = st.lists(constants, max_size=4).map(lambda items: List(tuple(items)))
    return st.one_of(
        st.builds(Compare, signs, anything, anything, rules),
        st.builds(Compare, signs, texts, texts, rules),
        st.builds(Compare, signs, numbers, numbers, rules),
        st.builds(Logic, st.sampled_from(["and", "or"]), several, rules),
        st.builds(Not, inner, rules),
        st.builds(IsNull, anything),
        st.builds(In, numbers | texts | constants, lists, rules),
        st.builds(In, texts, texts, rules),
        st.builds(Affix, st.sampled_from(["start", "end"]), texts, texts, rules),
    )


flags: st.SearchStrategy[Expression] = st.sampled_from(
    [Member(Name("r"), ("deep", "b")), Constant(True), Constant(False), Constant(None)]
)
expressions = st.recursive(flags, conditions, max_leaves=8) | numbers


def made(expression: Expression, first: int = 1) -> Clause:
    return to_sql.clause(expression, COLUMNS.get, first=first)


def in_python(expression: Expression, row: tuple[Any, ...]) -> Any:
    i, f, t, b = row
    return to_python.function(expression)({"i": i, "t": t, "r": {"f": f, "deep": {"b": b}}})


async def in_database(database: Database, found: Clause, rows: list[tuple[Any, ...]]) -> list[Any]:
    columns = [[row[n] for row in rows] for n in range(4)]
    answer = await database.fetch(
        f"select {found.sql} as it from {ROWS}", *columns, *found.parameters
    )
    return [one["it"] for one in answer]


@settings(max_examples=examples(500), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(expressions, rows)
async def test_both_back_ends_agree(
    database: Database, expression: Expression, rows: list[tuple[Any, ...]]
) -> None:
    found = await in_database(database, made(expression, first=5), rows)
    assert found == [in_python(expression, row) for row in rows]


async def test_whole_numbers_stay_exact(database: Database) -> None:
    big = 2**62 + 1
    node = Compare(
        "=", Name("i"), Arithmetic(Constant(big), (("+", Constant(1)),), RULES[0]), RULES[0]
    )
    rows = [(big, None, None, None), (big + 1, None, None, None)]
    assert await in_database(database, made(node, first=5), rows) == [False, True]
    assert [in_python(node, row) for row in rows] == [False, True]


@pytest.mark.parametrize(
    ("text", "sql", "parameters"),
    [
        ("i = 5", "(r.i is not distinct from $1::bigint)", (5,)),
        ("i > 5", "coalesce(r.i > $1::bigint, false)", (5,)),
        ("r.f < 1", "coalesce(r.f::float8 < $1::bigint::float8, false)", (1,)),
        ("i in [1, 2]", "(coalesce((r.i = any($1::bigint[])), false))", ([1, 2],)),
    ],
)
def test_clauses(text: str, sql: str, parameters: tuple[Any, ...]) -> None:
    assert made(parsed(text)) == Clause(sql, parameters, "boolean")


def parsed(text: str) -> Expression:
    return powerfx.parse(text, names=frozenset({"i", "r", "t"}))


def test_unknown_nulls_leave_plain_comparisons_that_an_index_serves() -> None:
    three = Rules(nulls="unknown", mixed="unknown")
    adult = Compare(">=", Name("i"), Constant(18), three)
    named = Compare("=", Name("t"), Constant("ana"), three)
    found = made(Logic("and", (adult, named), three), first=3)
    assert found.sql == "((r.i >= $3::bigint)::boolean and (r.t = $4::text)::boolean)"


@given(st.text(min_size=1, max_size=20).filter(to_sql.storable), rules)
def test_users_text_is_only_ever_a_parameter(text: str, rules: Rules) -> None:
    attack = Constant(f"' or 1=1 -- {text}")
    node = Logic(
        "or",
        (
            Compare("=", Name("t"), attack, rules),
            In(attack, Name("t"), rules),
            In(Name("t"), List((attack,)), rules),
            Affix("end", Name("t"), attack, rules),
        ),
        rules,
    )
    assert re.fullmatch(r"[a-z0-9_$:., ()=><\[\]\"C']*", made(node).sql)
    assert "1=1" not in made(node).sql


async def test_times_and_uuids_are_bound_as_such(database: Database) -> None:
    later, key = datetime(2026, 1, 1, tzinfo=UTC), UUID(int=7)
    columns: dict[tuple[str, ...], SqlColumn] = {
        ("at",): SqlColumn("now()", "timestamptz"),
        ("id",): SqlColumn("$1::uuid", "uuid"),
    }
    three = Rules(nulls="unknown")
    node = Logic(
        "and",
        (
            Compare(">", Name("at"), Constant(later), three),
            Compare("=", Name("id"), Constant(key), three),
            In(Name("id"), List((Constant(key),)), three),
        ),
        three,
    )
    found = to_sql.clause(node, columns.get, first=2)
    assert await database.fetchval(f"select {found.sql}", key, *found.parameters) is True


def fits(pattern: str, text: str) -> bool:
    """What a pattern means: `%` any text, `_` any character, all else itself."""
    parts = {"%": ".*", "_": "."}
    return bool(
        re.fullmatch("".join(parts.get(one, re.escape(one)) for one in pattern), text, re.S)
    )


@settings(max_examples=examples(200), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(words, st.lists(st.none() | words, max_size=6), rules)
async def test_patterns(
    database: Database, pattern: str, texts: list[str | None], rules: Rules
) -> None:
    same = fold if rules.case == "folded" else str
    expected = [
        (None if rules.nulls == "unknown" else fits(same(pattern), ""))
        if text is None
        else fits(same(pattern), same(text))
        for text in texts
    ]
    node = Like(Name("t"), Constant(pattern), rules)
    rows: list[tuple[Any, ...]] = [(None, None, text, None) for text in texts]
    assert await in_database(database, made(node, first=5), rows) == expected
    assert [in_python(node, row) for row in rows] == expected


CHECKED = Rules(nulls="unknown", mixed="unknown", arithmetic="checked", uuids="written")


@pytest.mark.parametrize(
    ("node", "message"),
    [
        (Like(Name("t"), Name("t"), RULES[0]), "matches constant patterns only"),
        (Like(Name("t"), Constant("a!%"), RULES[0], Constant("!")), "patterns without ESCAPE"),
        (Exists(Member(Name("r"), ("f",))), "Exists cannot be searched for in the database"),
        (Negate(Name("i"), CHECKED), "Negate has rules of SQL filters"),
        (Compare("=", Name("i"), Constant(1), CHECKED), "Compare has rules of SQL filters"),
        (Arithmetic(Name("i"), (("%", Constant(2)),), RULES[0]), "`%` can fail for one row"),
    ],
)
def test_what_only_python_evaluates_is_refused_by_name(node: Expression, message: str) -> None:
    with pytest.raises(InvalidExpression, match=message):
        made(node)


def test_a_name_that_ignores_case_is_looked_up_in_lower_case() -> None:
    node = Member(Name("r"), ("Deep", "B"), "folded")
    assert made(node).sql == "r.b"


def test_clauses_share_parameters() -> None:
    shared = to_sql.Parameters()
    node = Compare("=", Name("t"), Constant("A"), Rules(nulls="unknown", case="folded"))
    one, two = (to_sql.clause(node, COLUMNS.get, parameters=shared) for _ in range(2))
    assert len(two.parameters) == 4  # the two tables of letters stand there once
    assert two.parameters[:3] == one.parameters
    assert "$4::text" in two.sql


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("r.unknown = 1", "no column `r.unknown`"),
        ("Len(t) = 1", "Call cannot be searched for"),
        ("If(i = 1, true) = true", "If cannot be searched for"),
        ('t & "a" = "b"', "Join cannot be searched for"),
        ("1 / i = 1", "`/` can fail for one row"),
        ("1 / 0 = 1", "`/` can fail for one row"),
        ("i ^ 2 = 4", r"`\^` can fail for one row"),
        ("i" + " + 1" * 65 + " = 1", "at most 64 terms"),
        ("i && true", "A bigint stands where a condition"),
        ("!t", "A text stands where a condition"),
        ("t + 1 = 1", "A text stands where a number"),
        ("i in t", "A bigint stands where a text"),
        ("i in [i]", "only constants"),
        ("(i = 1) in [true]", "Only columns"),
        ("{a: 1}.a = 1", "Member cannot be searched for"),
        ("t = [1]", "List cannot be searched for"),
    ],
)
def test_what_the_database_cannot_do_safely_is_refused_by_name(text: str, said: str) -> None:
    with pytest.raises(InvalidExpression, match=said):
        made(parsed(text))


@pytest.mark.parametrize("value", [2**63, "a\0b", "\ud800", b"bytes", [1]])
def test_constants_that_postgresql_cannot_hold_are_refused(value: Any) -> None:
    with pytest.raises(InvalidExpression):
        made(Compare("=", Name("t"), Constant(value), RULES[0]))


def test_clauses_grow_with_the_tree_only() -> None:
    node: Expression = Compare("<", Name("i"), Name("t"), RULES[0])
    for _ in range(60):
        node = Compare("<", node, Constant(1), RULES[0])
    assert len(made(node).sql) < 60 * 120
