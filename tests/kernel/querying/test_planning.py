"""From queries to rows: scope, protected columns, links, expands, groups, sources."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest
from msgspec.structs import replace

from relevo.errors import InvalidQuery
from relevo.kernel.expressions.tree import Compare, Constant, Name, Not
from relevo.kernel.querying import answers, planning
from relevo.kernel.querying.errors import ColumnProtected
from relevo.kernel.querying.model import RULES, Caller, Item, Link, Order, Query, related
from tests.kernel.querying.job_tables import (
    ACCOUNTS,
    ALL,
    ANA,
    BEN,
    CATALOGUE,
    CREW,
    EVE,
    NORTH,
    NOW,
    SOUTH,
    answer,
    asked,
    create,
    insert,
    insert_jobs,
    job,
    numbers,
    run,
)

if TYPE_CHECKING:
    from relevo.kernel.postgres.database import Database

pytestmark = pytest.mark.anyio

ACCOUNT = UUID(int=77)
ROWS = [
    job(0, owner=ANA, unit=NORTH, data="secret", status=0),
    job(1, owner=BEN, unit=NORTH, status=10, depth=4, about_type="account", about_id=str(ACCOUNT)),
    job(2, owner=EVE, unit=SOUTH, status=30, depth=6),
    job(3, owner=CREW, unit=SOUTH, status=31, ratio=0.5, about_type="note", about_id=str(ACCOUNT)),
]
STARS = [None, 1, 2, 3, 3, 5]


@pytest.fixture
async def jobs(database: Database) -> Database:
    await create(database)
    await insert_jobs(database, ROWS)
    people = [(ANA, "Zoe"), (BEN, "ana"), (EVE, "Ana B")]
    await insert(database, "q_users", [{"id": key, "fullname": name} for key, name in people])
    await insert(database, "q_teams", [{"id": CREW, "name": "crew"}])
    await insert(database, "q_accounts", [{"id": ACCOUNT, "name": "Acme"}])
    notes = [
        {"id": UUID(int=n), "subject": f"s{n}", "stars": stars, "owner": [ANA, BEN][n % 2],
         "job": ROWS[n % 3]["id"]}
        for n, stars in enumerate(STARS)
    ]  # fmt: skip
    await insert(database, "q_notes", notes)
    return database


def caller(scope: Any, user: UUID = ANA, **values: Any) -> Caller:
    return Caller(user_id=user, unit=NORTH, scope=scope, **values)


@pytest.mark.parametrize(
    ("who", "expected"),
    [
        (caller("all"), {0, 1, 2, 3}),
        (caller("own"), {0}),
        (caller("own", BEN), {1}),
        (caller("own", teams=(CREW,)), {0, 3}),
        (caller("unit"), {0, 1}),
        (caller("unit", teams=(CREW,)), {0, 1, 3}),
        (Caller(user_id=EVE, scope="unit"), {2}),
    ],
)
async def test_rows_outside_the_scope_are_missing(
    jobs: Database, who: Caller, expected: set[int]
) -> None:
    query = asked("$select=name", caller=who)
    assert set(await numbers(jobs, query, who)) == expected  # A27
    counted = planning.plan_count(query, CATALOGUE, who)
    assert (await run(jobs, counted))[0]["count"] == len(expected)
    groups = await answer(jobs, "$apply=aggregate($count as n)", caller=who)
    assert groups.rows == [{"n": len(expected)}]
    found = await answer(jobs, "$expand=job($select=name)", table=_notes(), caller=caller("all"))
    assert all(row["job"] for row in found.rows)


def _notes() -> Any:
    return CATALOGUE.by_name["note"]


async def test_related_rows_outside_the_scope_are_missing_too(jobs: Database) -> None:
    mine = caller("own")  # notes 0, 2, 4 are Ana's; they are about jobs 0, 2, 1
    assert await numbers(jobs, "$filter=job_notes/any(n:n/stars eq 3)", caller("all")) == [0, 1]
    unit = caller("unit")
    assert await numbers(jobs, "$filter=job_notes/any(n:n/stars eq 3)", unit) == [1]  # A27
    page = await answer(jobs, "$expand=job_notes", caller=mine)
    assert [note["stars"] for note in page.rows[0]["job_notes"]] == [None]
    page = await answer(jobs, "$expand=job", table=_notes(), caller=mine)
    assert [bool(row["job"]) for row in page.rows] == [True, False, False]
    hidden = await answer(
        jobs, "$orderby=_jobid_value", table=_notes(), caller=mine, prefer=_annotated()
    )
    names = [row.get("_jobid_value@OData.Community.Display.V1.FormattedValue")
             for row in hidden.rows]  # fmt: skip
    assert names == [None, None, "job 0"]


def _annotated() -> str:
    return 'odata.include-annotations="*"'


async def test_payload_is_null_without_the_right(jobs: Database) -> None:
    blind = caller("all")
    page = await answer(jobs, "$select=data", caller=blind)
    assert {row["data"] for row in page.rows} == {None}  # A28
    seeing = await answer(jobs, "$select=data")
    assert {row["data"] for row in seeing.rows} == {None, "secret"}


@pytest.mark.parametrize(
    "text",
    [
        "$filter=data eq 'x'",
        "$filter=contains(data,'s')",
        "$filter=data eq null",
        "$filter=name eq data",
        "$orderby=data",
        "$apply=groupby((data))",
        "$apply=filter(data ne null)/aggregate($count as n)",
        "$filter=Microsoft.Dynamics.CRM.In(PropertyName='data',PropertyValues=['x'])",
    ],
)
def test_payload_cannot_be_probed(text: str) -> None:
    query = asked(text, caller=caller("all"))
    with pytest.raises(ColumnProtected, match=r"job\.payload\.read") as error:  # A28
        planning.plan(query, CATALOGUE, caller("all"))
    assert (error.value.status, error.value.dataverse) == (403, "0x80040220")
    if "$orderby" not in text:
        with pytest.raises(ColumnProtected):
            planning.plan_count(query, CATALOGUE, caller("all"))
    planning.plan(query, CATALOGUE, ALL)


@pytest.mark.parametrize(
    ("text", "source"),
    [
        ("statecode eq 0", "q_live"),
        ("3 eq statecode and name eq 'x'", "q_done"),
        ("statecode in (0,1) and sequence gt 1", "q_live"),
        ("statecode in (0,3)", "q_jobs"),
        ("statecode eq 0 or name eq 'x'", "q_jobs"),
        ("statecode ne 0", "q_jobs"),
        ("statuscode eq 30", "q_done"),
        ("statuscode eq 7", "q_jobs"),
        ("name eq 'x'", "q_jobs"),
    ],
)
async def test_a_fixed_state_reads_only_where_it_is_kept(
    jobs: Database, text: str, source: str
) -> None:
    sql = planning.plan(asked(f"$filter={text}"), CATALOGUE, ALL).sql
    assert [one for one in ("q_live", "q_done", "q_jobs") if one in sql] == [source]
    await numbers(jobs, f"$filter={text}", caller("unit"))


def test_ids_that_are_kept_as_text_are_compared_as_they_are() -> None:
    key = "00000000-0000-0000-0000-00000000004d"
    for text in (f"_regardingobjectid_value eq {key}", f"_regardingobjectid_value in ('{key}')"):
        statement = planning.plan(asked(f"$filter={text}"), CATALOGUE, ALL)
        assert re.search(r"t1\.about_id = (\$1::text|any\(\$1::text\[\]\))", statement.sql)


def linked(kind: Any, **values: Any) -> Link:
    return Link(
        table="note", alias="n", column="jobid", parent_column="asyncoperationid", kind=kind,
        **values,
    )  # fmt: skip


THREE = Compare("=", Name("stars"), Constant(3), RULES)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("inner", [0, 1]),
        ("outer", [0, 1, 2, 3]),
        ("exists", [0, 1]),
        ("in", [0, 1]),
        ("first", [0, 1]),
    ],
)
async def test_links_join_or_test(jobs: Database, kind: Any, expected: list[int]) -> None:
    query = Query(table="asyncoperation", links=(linked(kind, filter=THREE),))
    assert await numbers(jobs, query) == expected


@pytest.mark.parametrize(
    ("kind", "expected"),
    [("any", [0, 1]), ("not any", [2, 3]), ("all", [2]), ("not all", [0, 1])],
)
async def test_links_inside_filters(jobs: Database, kind: Any, expected: list[int]) -> None:
    link = linked(kind, filter=THREE)
    query = Query(table="asyncoperation", filter=related("n"), links=(link,))
    assert await numbers(jobs, query) == expected
    inverse = Query(table="asyncoperation", filter=Not(related("n"), RULES), links=(link,))
    assert await numbers(jobs, inverse) == [n for n in range(4) if n not in expected]


async def test_links_nest_and_show_columns(jobs: Database) -> None:
    owner = Link(
        table="systemuser", alias="u", column="systemuserid", parent_column="ownerid",
        items=(Item(path=("fullname",)),), orders=(Order(path=("fullname",)),),
    )  # fmt: skip
    note = linked("outer", items=(Item(path=("stars",), alias="rating"),), links=(owner,))
    query = Query(table="asyncoperation", items=(Item(path=("sequence",)),), links=(note,))
    page = await answer(jobs, query)
    assert [(row["sequence"], row["rating"], row["u.fullname"]) for row in page.rows] == [
        (3, None, None), (0, 3, "ana"), (1, 1, "ana"), (2, 5, "ana"),
        (0, None, "Zoe"), (1, 3, "Zoe"), (2, 2, "Zoe"),
    ]  # fmt: skip


async def test_the_first_of_related_rows(jobs: Database) -> None:
    best = Order(path=("stars",), descending=True)
    link = linked("first", items=(Item(path=("stars",)),), orders=(best,))
    query = Query(table="asyncoperation", items=(Item(path=("sequence",)),), links=(link,))
    page = await answer(jobs, query)
    assert [(row["sequence"], row["n.stars"]) for row in page.rows] == [(0, 3), (1, 3), (2, 5)]


async def test_expands_nest(jobs: Database) -> None:
    text = (
        "$select=name&$orderby=sequence&$expand=owninguser($select=fullname),"
        "regardingobjectid_account($select=name),"
        "job_notes($select=stars;$filter=stars ge 1;$orderby=stars desc;$top=1;"
        "$expand=job($select=depth))"
    )
    page = await answer(jobs, text)
    first, second, _, last = page.rows
    assert first["@odata.etag"] == 'W/"1"'
    assert first["owninguser"] == {"fullname": "Zoe", "systemuserid": str(ANA)}
    assert first["regardingobjectid_account"] is None
    assert [note["stars"] for note in first["job_notes"]] == [3]
    assert first["job_notes"][0]["job"]["depth"] is None
    assert second["regardingobjectid_account"]["name"] == "Acme"
    assert second["job_notes"][0]["job"]["depth"] == 4
    assert last["owninguser"] is None  # its owner is a team
    assert last["regardingobjectid_account"] is None  # it regards a note with the same id
    assert last["job_notes"] == []
    back = await answer(jobs, "$expand=Account_AsyncOperations($select=sequence)", table=ACCOUNTS)
    assert [row["sequence"] for row in back.rows[0]["Account_AsyncOperations"]] == [1]


async def test_orders_by_names_labels_and_numbers(jobs: Database) -> None:
    assert await numbers(jobs, "$orderby=_ownerid_value") == [1, 2, 3, 0]  # ana, Ana B, crew, Zoe
    assert await numbers(jobs, "$orderby=_ownerid_value desc") == [0, 3, 2, 1]
    assert await numbers(jobs, "$orderby=statecode desc,sequence desc") == [3, 2, 1, 0]
    assert await numbers(jobs, "$orderby=depth") == [0, 3, 1, 2]
    assert await numbers(jobs, "$orderby=owninguser/fullname desc") == [0, 2, 1, 3]
    labelled = (Order(path=("statecode",), by_label=True), Order(path=("sequence",)))
    query = Query(table="asyncoperation", orders=labelled)
    assert await numbers(jobs, query) == [2, 3, 0, 1]  # Completed, Ready, Suspended
    spanish = Caller(user_id=ANA, scope="all", language="es")
    assert await numbers(jobs, query, spanish) == [2, 3, 0, 1]


async def test_groups(jobs: Database) -> None:
    text = (
        "$apply=filter(sequence ge 1)/groupby((statecode),aggregate($count as n,"
        "depth with sum as total,depth with average as mean,createdon with max as last,"
        "depth with min as least))&$orderby=n desc"
    )
    page = await answer(jobs, text)
    assert page.rows == [
        {"statecode": 3, "n": 2, "total": 6, "mean": 6.0, "last": "2026-03-11T14:35:20Z",
         "least": 6},
        {"statecode": 1, "n": 1, "total": 4, "mean": 4.0, "last": "2026-03-11T14:35:20Z",
         "least": 4},
    ]  # fmt: skip
    seed = "$apply=groupby((statecode,statuscode),aggregate($count as count))"
    page = await answer(jobs, seed, prefer=_annotated())
    label = "statecode@OData.Community.Display.V1.FormattedValue"
    assert [row[label] for row in page.rows] == ["Ready", "Suspended", "Completed", "Completed"]
    page = await answer(jobs, "$apply=groupby((owninguser/fullname))&$orderby=owninguser/fullname")
    assert [row["owninguser/fullname"] for row in page.rows] == [None, "ana", "Ana B", "Zoe"]
    assert (await answer(jobs, "$apply=aggregate(depth with sum as s)")).rows == [{"s": 10}]


async def test_dates_are_grouped_by_their_parts(jobs: Database) -> None:
    items = (
        Item(path=("createdon",), alias="month", groupby=True, date_grouping="month"),
        Item(path=("name",), alias="names", aggregate="countcolumn", distinct=True),
    )
    page = await answer(jobs, Query(table="asyncoperation", aggregate=True, items=items))
    assert page.rows == [{"month": 3, "names": 4}]


async def test_too_many_rows_for_groups_are_refused(jobs: Database) -> None:
    items = (Item(aggregate="count", alias="n"),)
    query = Query(table="asyncoperation", aggregate=True, items=items, aggregate_limit=3)
    with pytest.raises(InvalidQuery, match="More than 3 rows") as error:
        await answer(jobs, query)
    assert error.value.dataverse == "0x8004E023"


async def test_groups_of_too_many_rows_are_not_counted(jobs: Database) -> None:
    items = (Item(path=("statecode",), groupby=True), Item(aggregate="count", alias="n"))
    query = Query(table="asyncoperation", aggregate=True, items=items, aggregate_limit=3)
    statement = planning.plan_count(query, CATALOGUE, ALL)
    (row,) = await run(jobs, statement)
    with pytest.raises(InvalidQuery, match="More than 3 rows") as error:
        answers.counted(row, statement.shape)
    assert error.value.dataverse == "0x8004E023"
    query = replace(query, aggregate_limit=None)
    statement = planning.plan_count(query, CATALOGUE, ALL)
    (row,) = await run(jobs, statement)
    assert answers.counted(row, statement.shape) == len((await answer(jobs, query)).rows)


async def test_different_rows(jobs: Database) -> None:
    items = (Item(path=("statecode",)),)
    query = Query(table="asyncoperation", distinct=True, items=items, page_size=2)
    page = await answer(jobs, query)
    assert [row["statecode"] for row in page.rows] == [0, 1]
    assert page.position is not None
    assert page.position.values == (1,)
    wrong = Query(
        table="asyncoperation", distinct=True, items=items, orders=(Order(path=("name",)),)
    )
    with pytest.raises(InvalidQuery, match="select it too"):
        planning.plan(wrong, CATALOGUE, ALL)


async def test_dates_with_and_without_fractions(jobs: Database) -> None:
    await insert_jobs(jobs, [job(9, due=NOW + timedelta(microseconds=120))])
    page = await answer(jobs, "$filter=sequence eq 9&$select=createdon,postponeuntil")
    assert page.rows[0]["createdon"] == "2026-03-11T14:35:20Z"
    assert page.rows[0]["postponeuntil"] == "2026-03-11T14:35:20.00012Z"


@pytest.mark.parametrize(
    ("query", "said"),
    [
        (Query(table="nosuch"), "no table `nosuch`"),
        (Query(table="asyncoperation", items=(Item(path=("x",)),)), "no column `x`"),
        (Query(table="asyncoperation", filter=Name("name")), "no condition"),
        (Query(table="asyncoperation", filter=related("z")), "no related table `z`"),
        (Query(table="asyncoperation", links=(linked("inner"), linked("outer"))), "Two links"),
        (
            Query(table="asyncoperation", links=(linked("in", items=(Item(path=("stars",)),)),)),
            "only tests for rows",
        ),
        (Query(table="asyncoperation", page=99, page_size=5_000), "paging cookies"),
        (Query(table="asyncoperation", orders=(Order(alias="x"),)), "is called `x`"),
        (
            Query(table="asyncoperation", aggregate=True, items=(Item(path=("name",)),)),
            "neither grouped by nor aggregated",
        ),
        (
            Query(
                table="asyncoperation",
                filter=Compare("=", Name("name"), Constant("a\0b"), RULES),
            ),
            "cannot hold",
        ),
    ],
)
def test_impossible_queries_are_refused(query: Query, said: str) -> None:
    with pytest.raises(InvalidQuery, match=said):
        planning.plan(query, CATALOGUE, ALL)
