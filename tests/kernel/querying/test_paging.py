"""Pages: walking them returns every row that matched throughout, once, in order (A22)."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import quote
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from relevo.errors import InvalidQuery
from relevo.kernel.expressions.values import fold
from relevo.kernel.querying import planning, tokens
from relevo.kernel.querying.model import Item, Link, Position, Query
from relevo.kernel.querying.odata import options as odata_options
from tests.conftest import examples
from tests.kernel.querying.job_tables import (
    ALL,
    ANA,
    BEN,
    CATALOGUE,
    EVE,
    JOBS,
    KEY,
    NOW,
    Row,
    answer,
    asked,
    create,
    insert,
    insert_jobs,
    job,
    request,
    run,
)

if TYPE_CHECKING:
    from relevo.kernel.postgres.database import Database

pytestmark = pytest.mark.anyio
healthy = settings(
    max_examples=examples(60), suppress_health_check=[HealthCheck.function_scoped_fixture]
)

PEOPLE = {ANA: "ana", BEN: "Ben", EVE: "BEN"}
ORDERS = ["name", "depth", "createdon", "_ownerid_value", "statecode", "ratio", "iswaitingforevent"]


@st.composite
def rows(draw: st.DrawFn, first: int = 0) -> list[Row]:
    return [
        job(
            first + n,
            name=draw(st.none() | st.sampled_from(["a", "A", "b", "ä", ""])),
            depth=draw(st.none() | st.integers(0, 2)),
            ratio=draw(st.none() | st.sampled_from([0.1, -1.0])),
            waiting=draw(st.none() | st.booleans()),
            status=draw(st.sampled_from([0, 10, 30])),
            created_at=NOW + timedelta(microseconds=draw(st.integers(0, 2))),
            owner=draw(st.none() | st.sampled_from([ANA, BEN, EVE])),
        )
        for n in range(draw(st.integers(0, 12)))
    ]


orders = st.lists(
    st.tuples(st.sampled_from(ORDERS), st.booleans()), max_size=3, unique_by=lambda one: one[0]
)


goings = st.lists(st.none() | st.integers(0, 11), max_size=12)
"""Which row goes after each page, if one does."""


def sort_value(row: Row, name: str) -> tuple[bool, Any]:
    value = {
        "createdon": row["created_at"],
        "_ownerid_value": PEOPLE.get(row["owner"]),
        "statecode": row["status"] // 10,
        "iswaitingforevent": row["waiting"],
    }.get(name, row.get(name))
    return value is not None, fold(value) if isinstance(value, str) else value or 0


def in_order(rows: list[Row], by: list[tuple[str, bool]]) -> list[Row]:
    """Sorted as the specification says: nulls first ascending, the key last."""
    falling = bool(by) and by[-1][1]
    found = sorted(rows, key=lambda row: row["id"].int, reverse=falling)
    for name, falling in reversed(by):
        found.sort(key=lambda row: sort_value(row, name), reverse=falling)
    return found


def text_of(by: list[tuple[str, bool]]) -> str:
    return ",".join(f"{name} {'desc' if falling else 'asc'}" for name, falling in by)


@pytest.fixture
async def tables(database: Database) -> Database:
    await create(database)
    people = [{"id": key, "fullname": name} for key, name in PEOPLE.items()]
    await insert(database, "q_users", people)
    return database


async def clear(database: Database) -> None:
    await database.write("truncate q_live, q_done, q_notes")


async def page_at(database: Database, link: str, size: int) -> tuple[list[int], str | None]:
    """The rows of one page, and the link to the next."""
    options = odata_options.read(link)
    query = odata_options.query_of(options, JOBS, request(page_size=size))
    found = await answer(database, query)
    keys = [UUID(row["asyncoperationid"]).int - 1_000 for row in found.rows]
    if found.position is None:
        return keys, None
    url = odata_options.next_link("x", options, JOBS, ALL, found.position, KEY)
    return keys, url.removeprefix("x?")


@healthy
@given(rows(), rows(first=100), orders, st.integers(1, 5), goings)
async def test_walks_lose_and_repeat_nothing_while_rows_come_and_go(
    tables: Database,
    first: list[Row],
    later: list[Row],
    by: list[tuple[str, bool]],
    size: int,
    going: list[int | None],
) -> None:
    await clear(tables)
    await insert_jobs(tables, first)
    seen: list[int] = []
    gone: set[int] = set()
    order = f"&$orderby={quote(text_of(by))}" if by else ""
    link: str | None = f"$filter={quote('sequence ge 0')}&$select=name{order}"
    while link is not None:
        found, link = await page_at(tables, link, size)
        seen += found
        if later:
            await insert_jobs(tables, [later.pop()])
        left = [row for row in first if row["sequence"] not in gone]
        choice = going.pop() if going else None
        if left and choice is not None:
            victim = left[choice % len(left)]
            gone.add(victim["sequence"])
            for table in ("q_live", "q_done"):
                await tables.write(f"delete from {table} where id = $1", victim["id"])
    throughout = [row for row in first if row["sequence"] not in gone]
    kept = [row["sequence"] for row in in_order(throughout, by)]
    assert [n for n in seen if n in kept] == kept  # A22
    assert len(seen) == len(set(seen))


@healthy
@given(rows(), orders, st.integers(1, 15), st.integers(1, 4))
async def test_top_caps_the_total_of_all_pages(
    tables: Database, stored: list[Row], by: list[tuple[str, bool]], top: int, size: int
) -> None:
    await clear(tables)
    await insert_jobs(tables, stored)
    link: str | None = f"$top={top}" + (f"&$orderby={quote(text_of(by))}" if by else "")
    seen: list[int] = []
    while link is not None:
        found, link = await page_at(tables, link, size)
        assert len(found) <= size
        seen += found
    assert seen == [row["sequence"] for row in in_order(stored, by)][:top]  # R7


@healthy
@given(rows(), st.sampled_from(["statecode", "name", "_ownerid_value", "depth", "createdon"]))
async def test_groups_are_paged_too(tables: Database, stored: list[Row], column: str) -> None:
    await clear(tables)
    await insert_jobs(tables, stored)
    link: str | None = f"$apply=groupby(({column}),aggregate($count as n))&$orderby=n desc"
    counts: list[int] = []
    while link is not None:
        options = odata_options.read(link)
        query = odata_options.query_of(options, JOBS, request(page_size=2))
        found = await answer(tables, query)
        counts += [row["n"] for row in found.rows]
        link = None
        if found.position is not None:
            url = odata_options.next_link("x", options, JOBS, ALL, found.position, KEY)
            link = url.removeprefix("x?")
    assert counts == sorted(counts, reverse=True)
    assert sum(counts) == len(stored)


async def test_a_row_with_several_related_ones_is_not_cut_between_pages(tables: Database) -> None:
    await insert_jobs(tables, [job(n) for n in range(4)])
    notes = [
        {"id": UUID(int=n), "job": UUID(int=1_000 + n % 3), "stars": n, "owner": ANA}
        for n in range(9)
    ]
    await insert(tables, "q_notes", notes)
    link = Link(
        table="note", alias="n", column="jobid", parent_column="asyncoperationid", kind="outer",
        items=(Item(path=("stars",)),),
    )  # fmt: skip
    query = Query(table="asyncoperation", items=(Item(path=("sequence",)),), links=(link,))
    query, seen = replace(query, page_size=2), []
    while True:
        found = await answer(tables, query)
        seen += [(row["sequence"], row["n.stars"]) for row in found.rows]
        if found.position is None:
            break
        query = replace(query, position=found.position)
    assert seen == [(n, stars) for n in range(3) for stars in range(n, 9, 3)] + [(3, None)]


def test_positions_are_compared_as_indexes_are_sorted() -> None:
    position = Position((NOW, UUID(int=5)), 3)
    query = asked("$orderby=createdon")
    sql = planning.plan(replace(query, position=position), CATALOGUE, ALL).sql
    assert re.search(r"where \(r\.s\d+, r\.s\d+\) > \(\$1::timestamptz, \$2::uuid\)", sql)
    assert "offset" not in sql
    assert "nulls" not in sql


def test_changed_and_foreign_tokens_are_refused() -> None:
    options = odata_options.read("$orderby=name")
    print_ = odata_options.fingerprint(options, JOBS, ALL)
    token = tokens.seal(KEY, print_, Position((None, UUID(int=5)), 7))
    assert tokens.unseal(KEY, print_, token) == Position((None, UUID(int=5)), 7)
    other = odata_options.fingerprint(odata_options.read("$orderby=depth"), JOBS, ALL)
    damaged = ["A" + token[1:], token[:-4], token + "AAAA", "", "é", "=" * 50_000]
    for key, mark, text in [
        (KEY, other, token),
        (b"x" * 32, print_, token),
        *((KEY, print_, text) for text in damaged),
    ]:
        with pytest.raises(InvalidQuery, match="damaged or belongs to another query"):
            tokens.unseal(key, mark, text)


@given(st.text(max_size=60))
def test_any_other_token_is_refused(text: str) -> None:
    with pytest.raises(InvalidQuery):
        tokens.unseal(KEY, b"0" * 16, text)


def test_a_token_with_too_few_values_is_refused() -> None:
    query = replace(asked("$orderby=name"), position=Position((None,), 1))
    with pytest.raises(InvalidQuery, match="another query"):
        planning.plan(query, CATALOGUE, ALL)


async def test_counts_are_exact_up_to_their_limit(tables: Database) -> None:
    await insert_jobs(tables, [job(n) for n in range(5_002)])
    for text, expected in (("sequence lt 5000", 5_000), ("sequence ge 0", 5_001)):
        statement = planning.plan_count(asked(f"$filter={quote(text)}"), CATALOGUE, ALL)
        assert (await run(tables, statement))[0]["count"] == expected
    page = await answer(tables, "$select=name")
    assert len(page.rows) == 5_000
    assert page.more
