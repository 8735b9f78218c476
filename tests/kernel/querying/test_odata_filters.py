"""`$filter` finds what Python finds in the same rows (A24, A25), and no text reaches SQL (A23)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from relevo.errors import InvalidQuery
from relevo.kernel.expressions.values import fold
from relevo.kernel.querying import planning
from relevo.kernel.querying.catalogue import Catalogue
from relevo.kernel.querying.odata import options as odata_options
from tests.conftest import examples
from tests.kernel.querying.job_tables import (
    ALL,
    ANA,
    BEN,
    CATALOGUE,
    JOBS,
    NOW,
    Row,
    asked,
    create,
    insert,
    insert_jobs,
    job,
    numbers,
    request,
)

if TYPE_CHECKING:
    from relevo.kernel.postgres.database import Database

pytestmark = pytest.mark.anyio

NAMES: Final = [None, "", "Rebuild", "rebuild", "a_b", "axb", "100%", "Ärger", "ärger", "it's", "İ"]
ROWS: Final = [
    job(
        n,
        name=NAMES[n % len(NAMES)],
        depth=[None, 0, 1, 2, -3][n % 5],
        ratio=[None, 0.5, 2.0, -1.25][n % 4],
        waiting=[None, True, False][n % 3],
        status=[0, 10, 20, 30, 31][n % 5],
        created_at=NOW + timedelta(hours=n - 20),
        due=None if n % 3 else NOW + timedelta(days=n - 20, microseconds=n),
        owner=[ANA, BEN, None][n % 3],
        data="secret" if n % 2 else None,
    )
    for n in range(48)
]

Holds = Callable[[Row], bool | None]
Pair = tuple[str, Holds]
"""A condition as text, and what it means: true, false or unknown."""

COMPARE: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
}


def quoted(text: str) -> str:
    return "'{}'".format(text.replace("'", "''"))


def value_of(row: Row, name: str) -> Any:
    stored = {
        "statecode": row["status"] // 10,
        "statuscode": row["status"],
        "createdon": row["created_at"],
        "postponeuntil": row["due"],
        "iswaitingforevent": row["waiting"],
        "_ownerid_value": row["owner"],
        "asyncoperationid": row["id"],
    }
    value = stored[name] if name in stored else row[name]
    return fold(value) if isinstance(value, str) else value


def compared(name: str, sign: str, text: str, value: Any, *, turned: bool = False) -> Pair:
    value = fold(value) if isinstance(value, str) else value

    def holds(row: Row) -> bool | None:
        mine = value_of(row, name)
        if value is None and sign in ("eq", "ne"):
            return (mine is None) == (sign == "eq")
        if mine is None or value is None:
            return None
        return COMPARE[sign](*((value, mine) if turned else (mine, value)))

    return (f"{text} {sign} {name}" if turned else f"{name} {sign} {text}"), holds


def literal(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return str(value).lower()
        case str():
            return quoted(value)
        case datetime():
            return value.isoformat().replace("+00:00", "Z")
        case _:
            return str(value)


VALUES: Final[dict[str, st.SearchStrategy[Any]]] = {
    "name": st.sampled_from([*NAMES, "zzz' or 1=1 --", "%", "_", "\\"]) | st.text(max_size=3),
    "depth": st.none() | st.integers(-4, 4) | st.sampled_from([0.5, 2.0]),
    "sequence": st.integers(-1, 50) | st.sampled_from([2**63 - 1, -(2**63)]),
    "ratio": st.none() | st.sampled_from([0.5, 2, -1.25, 1e300]),
    "statecode": st.integers(-1, 4),
    "statuscode": st.sampled_from([0, 10, 30, 7]),
    "createdon": st.integers(0, 48).map(lambda n: NOW + timedelta(hours=n - 20)),
    "postponeuntil": st.none() | st.integers(0, 48).map(lambda n: NOW + timedelta(days=n - 20)),
}
UNORDERED: Final[dict[str, st.SearchStrategy[Any]]] = {
    "iswaitingforevent": st.sampled_from([True, False, None]),
    "_ownerid_value": st.sampled_from([ANA, BEN, None]),
    "asyncoperationid": st.integers(0, 50).map(lambda n: UUID(int=1_000 + n)),
}


def sendable(value: Any) -> bool:
    return not isinstance(value, str) or ("\0" not in value and value == value.strip())


@st.composite
def comparisons(draw: st.DrawFn) -> Pair:
    ordered = draw(st.booleans())
    columns = VALUES if ordered else UNORDERED
    name = draw(st.sampled_from(sorted(columns)))
    value = draw(columns[name].filter(sendable))
    sign = draw(st.sampled_from(sorted(COMPARE) if ordered else ["eq", "ne"]))
    return compared(name, sign, literal(value), value, turned=draw(st.booleans()))


@st.composite
def memberships(draw: st.DrawFn) -> Pair:
    columns = {**VALUES, **UNORDERED}
    name = draw(st.sampled_from(sorted(columns)))
    values = draw(st.lists(columns[name].filter(sendable), min_size=1, max_size=4))
    known = [fold(one) if isinstance(one, str) else one for one in values]

    def holds(row: Row) -> bool | None:
        mine = value_of(row, name)
        if mine is None:
            return None
        return True if mine in known else (None if None in known else False)

    return f"{name} in ({','.join(map(literal, values))})", holds


@st.composite
def text_calls(draw: st.DrawFn) -> Pair:
    function = draw(st.sampled_from(["contains", "startswith", "endswith"]))
    part = draw(st.sampled_from(["", "A", "b", "%", "_", "ÄR", "'", "rebuild", "0%"]))

    def holds(row: Row) -> bool | None:
        mine, piece = value_of(row, "name"), fold(part)
        if mine is None:
            return None
        if function == "contains":
            return piece in mine
        return bool(getattr(mine, function)(piece))

    return f"{function}(name,{quoted(part)})", holds


def inverted(pair: Pair) -> Pair:
    text, holds = pair
    return f"not ({text})", lambda row: None if (value := holds(row)) is None else not value


def chain(sign: str, pairs: list[Pair]) -> Pair:
    def holds(row: Row) -> bool | None:
        values = [one(row) for _, one in pairs]
        decisive = sign == "or"
        if decisive in values:
            return decisive
        return None if None in values else not decisive

    return f" {sign} ".join(f"({text})" for text, _ in pairs), holds


conditions: st.SearchStrategy[Pair] = st.recursive(
    comparisons() | memberships() | text_calls(),
    lambda inner: (
        inner.map(inverted)
        | st.builds(chain, st.sampled_from(["and", "or"]), st.lists(inner, min_size=1, max_size=4))
    ),
    max_leaves=8,
)


@pytest.fixture
async def jobs(database: Database) -> Database:
    await create(database)
    await insert_jobs(database, ROWS)
    users = [{"id": ANA, "fullname": "Ana"}, {"id": BEN, "fullname": "ben"}]
    await insert(database, "q_users", users)
    notes = [
        {"id": UUID(int=5_000 + n), "job": ROWS[n % 9]["id"], "stars": [None, 1, 2, 3][n % 4]}
        for n in range(20)
    ]
    await insert(database, "q_notes", notes)
    return database


async def found(database: Database, text: str) -> set[int]:
    return set(await numbers(database, f"$filter={quote(text)}&$select=asyncoperationid"))


@settings(max_examples=examples(300), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(conditions)
async def test_rows_are_those_that_python_finds(jobs: Database, pair: Pair) -> None:
    text, holds = pair
    expected = {row["sequence"] for row in ROWS if holds(row)}
    assert await found(jobs, text) == expected  # A24, A25


@pytest.mark.parametrize("name", [*VALUES, *UNORDERED])
async def test_unequal_never_finds_rows_without_a_value(jobs: Database, name: str) -> None:
    some = next(value_of(row, name) for row in ROWS if value_of(row, name) not in (None, ""))
    for n in await found(jobs, f"{name} ne {literal(some)}"):  # A25
        assert value_of(ROWS[n], name) is not None


@pytest.mark.parametrize(
    "attack",
    [
        "zzz' OR 1=1 --",
        "'; drop table q_live; --",
        "$1::text[]",
        "%') or true --",
        "\\'; select 1",
        "{t}.name",
        "\u02bc or 1=1",
    ],
)
async def test_texts_are_only_ever_bound(jobs: Database, attack: str) -> None:
    for condition in (
        f"name eq {quoted(attack)}",
        f"contains(name,{quoted(attack)})",
        f"name in ({quoted(attack)})",
        f"Microsoft.Dynamics.CRM.In(PropertyName='name',PropertyValues=[{quoted(attack)}])",
    ):
        query = asked(f"$filter={quote(condition)}")
        statement = planning.plan(query, CATALOGUE, ALL)
        assert attack not in statement.sql  # A23
        assert await found(jobs, condition) == set()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("owninguser/fullname eq 'ANA'", {n for n in range(48) if n % 3 == 0}),
        ("owninguser/fullname eq null", {n for n in range(48) if n % 3 == 2}),
        ("job_notes/any()", set(range(9))),
        ("not job_notes/any()", set(range(9, 48))),
        ("job_notes/any(n:n/stars gt 2)", {ROWS[n % 9]["sequence"] for n in range(3, 20, 4)}),
        ("job_notes/all(n:n/stars eq null) and sequence lt 12", {9, 10, 11}),
        ("job_notes/any(n:n/job/depth eq 2)", {3, 8}),
        ("job_notes/any(n:n/job/sequence lt 2 or n/_jobid_value eq null)", {0, 1}),
        ("depth lt sequence and sequence lt 6", {1, 2, 3, 4}),
        ("Microsoft.Dynamics.CRM.In(PropertyName='statecode',PropertyValues=[\"1\"])",
         {n for n in range(48) if n % 5 == 1}),
        ("Microsoft.Dynamics.CRM.EqualUserId(PropertyName='ownerid')",
         {n for n in range(48) if n % 3 == 0}),
        ("Microsoft.Dynamics.CRM.NotEqualUserId(PropertyName='_ownerid_value')",
         {n for n in range(48) if n % 3 == 1}),
        ("Microsoft.Dynamics.CRM.OlderThanXHours(PropertyName='createdon',PropertyValue=5)",
         set(range(15))),
        ("Microsoft.Dynamics.CRM.Between(PropertyName='sequence',PropertyValues=['3','5'])",
         {3, 4, 5}),
        ("  name\r\n eq\n'REBUILD'\t", {n for n in range(48) if n % 11 in (2, 3)}),
        ("_ownerid_value eq '00000000-0000-0000-0000-000000000002'",
         {n for n in range(48) if n % 3 == 1}),
        ("createdon ge 2026-03-12", {n for n in range(48) if NOW + timedelta(hours=n - 20)
         >= datetime(2026, 3, 12, tzinfo=UTC)}),
        ("createdon eq 2026-03-11T16:35:20.000000%2B02:00".replace("%2B", "+"), {20}),
    ],
)  # fmt: skip
async def test_conditions(jobs: Database, text: str, expected: set[int]) -> None:
    assert await found(jobs, text) == expected


async def test_aliases_stand_for_values(jobs: Database) -> None:
    text = "$filter=name eq @p or Microsoft.Dynamics.CRM.In(PropertyName='sequence'"
    query = text + ",PropertyValues=@list)&@p='axb'&@list=[\"2\",4]"
    assert set(await numbers(jobs, query)) == {2, 4} | {n for n in range(48) if n % 11 == 5}


async def test_long_chains_are_flat(jobs: Database) -> None:
    text = " or ".join(f"sequence eq {n}" for n in range(500))
    assert len(await found(jobs, text)) == 48
    deep = "(" * 50 + "sequence eq 1" + ")" * 50
    assert await found(jobs, deep) == {1}
    inverse = "not " * 50 + "sequence eq 1"
    assert await found(jobs, inverse) == {1}
    listed = ",".join(map(str, range(2_000)))
    assert len(await found(jobs, f"sequence in ({listed})")) == 48


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        ("name eq 1", "0x80040203", "`1` is no value of `name`. Write a text in single quotes"),
        ("sequence eq '1'", "0x80040203", "no value of `sequence`"),
        ("statecode eq 1.5", "0x80040203", "no value of `statecode`"),
        ("createdon gt 2026-01-01T00:00:00", "0x80040203", "needs an offset"),
        ("createdon gt 2026-13-01", "0x80040203", "no such date"),
        ("1 eq 1", "0x80040203", "Name a column"),
        ("nosuch eq 1", "0x80041103", "no property `nosuch`"),
        ("ownerid eq null", "0x80041103", "Write _ownerid_value"),
        ("owninguser/nosuch eq 1", "0x80041103", "`systemuser` has no property"),
        ("job_notes/stars eq 1", "0x80041103", "no single-valued navigation"),
        ("owninguser/any()", "0x80041103", "no collection-valued navigation"),
        ("job_notes/any(n:stars eq 1)", "0x80040203", "`n/…`"),
        ("job_notes/all()", "0x80040203", "all needs a condition"),
        ("name eq 'x", "0x80040203", "Close the text"),
        ("name eq", "0x80040203", "position 8: the text ends"),
        ("name = 'x'", "0x80040203", "Write eq"),
        ("name eq @p", "0x80040203", "`@p` has no value"),
        ("contains(sequence,'1')", "0x80040203", "needs texts"),
        ("asyncoperationid gt 00000000-0000-0000-0000-000000000001", "0x80040203", "no order"),
        ("sequence eq 99999999999999999999", "0x80040203", "64 bits"),
        ("ratio eq 1e999", "0x80040203", "too large"),
        ("Microsoft.Dynamics.CRM.Above(PropertyName='name')", "0x80041106", "not served"),
        ("Microsoft.Dynamics.CRM.Today(PropertyName='name')", "0x80041106", "cannot be asked"),
        ("Microsoft.Dynamics.CRM.Today()", "0x80040203", "found `)`"),
        ("Microsoft.Dynamics.CRM.In(PropertyName='name')", "0x80040203", "values"),
        ("secret eq 'x'", "0x80040203", "cannot be filtered"),
        (" or ".join(["sequence eq 1"] * 501), "0x8004430C", "more than 500 conditions"),
        ("(" * 51 + "sequence eq 1" + ")" * 51, "0x80040203", "deeper than 50"),
        ("(" * 30_000, "0x80040203", "the text ends"),
        ("not " * 51 + "sequence eq 1", "0x80040203", "deeper than 50"),
        ("a/" * 5_000 + "b eq 1", "0x80040203", "at most 3 parts"),
        (f"sequence in ({','.join(['1'] * 2_001)})", "0x80040203", "more than 2,000"),
    ],
)
def test_what_is_wrong_is_said(text: str, code: str, said: str) -> None:
    with pytest.raises(InvalidQuery) as error:
        planning.plan(asked(f"$filter={quote(text, safe='/()= ,')}"), CATALOGUE, ALL)
    assert said in error.value.message
    assert error.value.dataverse == code


def test_thousands_of_terms_are_refused_as_too_long() -> None:
    with pytest.raises(InvalidQuery, match="may have 32,768") as error:
        asked("$filter=" + " or ".join(["sequence eq 1"] * 5_000))
    assert error.value.status == 414


@pytest.mark.parametrize(
    "options",
    [
        "$filter=owninguser/fullname eq 'x'",
        "$filter=job_notes/any()",
        "$orderby=owninguser/fullname",
        "$expand=owninguser",
    ],
)
def test_a_navigation_to_a_table_that_is_not_served_is_refused(options: str) -> None:
    alone = replace(request(), catalogue=Catalogue((JOBS,)))
    with pytest.raises(InvalidQuery, match="not served here") as error:
        odata_options.query_of(odata_options.read(quote(options, safe="$=/")), JOBS, alone)
    assert error.value.dataverse == "0x80041103"
