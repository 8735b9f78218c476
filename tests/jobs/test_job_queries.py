"""Queries over jobs in Python: the same rows as OData and FetchXML, in pages, by one caller."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest

from relevo.errors import InvalidQuery, InvalidValue
from relevo.jobs import COMPLETED, READY, SUSPENDED, State, Status
from relevo.jobs.querying.conditions import CATALOGUE
from relevo.jobs.querying.query import EVERYBODY, JobQuery
from relevo.kernel.querying import planning
from relevo.kernel.querying.fetchxml import reader as fetchxml
from relevo.kernel.querying.model import Caller

if TYPE_CHECKING:
    from collections.abc import Callable
    from uuid import UUID

    from relevo import App
    from relevo.testing import Clock

pytestmark = pytest.mark.anyio

FAR = datetime(2100, 1, 1, tzinfo=UTC)


@pytest.fixture
async def made(app: App) -> list[UUID]:
    """Five jobs: two of a chain, a postponed one, one of another handler, a canceled one."""
    jobs = app.jobs
    handles = [
        await jobs.submit("mail", {"n": 1}, token="t"),
        await jobs.submit("mail", {"n": 2}, token="t", name="100% sure_thing"),
        await jobs.submit("mail", start=FAR),
        await jobs.submit("Print", lane="bulk", priority=7),
        await jobs.submit("mail"),
    ]
    await handles[4].cancel()
    return [one.id for one in handles]


async def numbers(query: JobQuery, made: list[UUID]) -> list[int]:
    return [made.index(job.id) for job in await query]


@pytest.mark.parametrize(
    ("columns", "found"),
    [
        ({}, [0, 1, 2, 3, 4]),
        ({"state": READY}, [0, 1, 3]),
        ({"state": "suspended"}, [2]),
        ({"state": [SUSPENDED, COMPLETED]}, [2, 4]),
        ({"status": Status.CANCELED}, [4]),
        ({"status": [0, "canceled"], "handler": "mail"}, [0, 1, 4]),
        ({"token": "t"}, [0, 1]),
        ({"token": None, "state": READY}, [3]),
        ({"dependencytoken": "t", "name": "100% SURE_THING"}, [1]),
        ({"lane": "bulk"}, [3]),
        ({"priority": 7}, [3]),
        ({"handler": ["print", "none"]}, [3]),
        ({"id": "00000000-0000-0000-0000-000000000000"}, []),
    ],
)
async def test_conditions_are_columns_by_either_name(
    app: App, made: list[UUID], columns: dict[str, Any], found: list[int]
) -> None:
    assert await numbers(app.jobs.query().where(**columns), made) == found


@pytest.mark.parametrize(
    ("columns", "odata", "fetch"),
    [
        (
            {"state": READY, "handler": "mail"},
            "statecode eq 0 and relevo_handler eq 'mail'",
            '<condition attribute="statecode" operator="eq" value="0"/>'
            '<condition attribute="relevo_handler" operator="eq" value="mail"/>',
        ),
        (
            {"status": [10, 32]},
            "statuscode in (10, 32)",
            '<condition attribute="statuscode" operator="in">'
            "<value>10</value><value>32</value></condition>",
        ),
        (
            {"token": None},
            "dependencytoken eq null",
            '<condition attribute="dependencytoken" operator="null"/>',
        ),
    ],
)
async def test_three_languages_find_the_same_rows(  # A24
    app: App, made: list[UUID], columns: dict[str, Any], odata: str, fetch: str
) -> None:
    query = app.jobs.query()
    in_python = {job.id for job in await query.where(**columns)}
    document = f'<fetch><entity name="asyncoperation"><filter>{fetch}</filter></entity></fetch>'
    asked = fetchxml.parse(
        document, CATALOGUE, table="asyncoperation", caller=EVERYBODY, now=await app.now(), key=b"k"
    )
    statement = planning.plan(asked, CATALOGUE, EVERYBODY)
    rows = await app.database.fetch(statement.sql, *statement.parameters)
    assert in_python
    assert {job.id for job in await query.filter(odata)} == in_python
    assert {row[str(statement.shape.key_cell)] for row in rows} == in_python


async def test_order_top_first_and_count(app: App, made: list[UUID]) -> None:
    query = app.jobs.query()
    assert await numbers(query.order_by("-createdon").top(2), made) == [4, 3]
    assert await numbers(query.order_by("-priority", "createdon").top(2), made) == [3, 0]
    first = await query.where(state=State.COMPLETED).first()
    assert first is not None
    assert first.id == made[4]
    assert await query.where(token="none").first() is None
    assert await query.where(state=READY).count() == 3


async def test_pages_give_every_row_once(app: App, made: list[UUID]) -> None:
    found, position = [], None
    while True:
        page = await app.jobs.query().page(2, position)
        found += [job.id for job in page.jobs]
        position = page.position
        if position is None:
            break
    assert found == made  # A22


async def test_age_is_that_of_the_database(app: App, made: list[UUID], clock: Clock) -> None:
    late = app.jobs.query().where(state=READY).older_than(minutes=10)
    assert await late == []
    await clock.advance(601.0)
    assert await numbers(late, made) == [0, 1, 3]  # A29
    assert await numbers(app.jobs.query().created(after=FAR), made) == []
    assert len(await app.jobs.query().created(before=FAR)) == 5


async def test_what_cannot_be_meant_is_refused(app: App) -> None:
    query = app.jobs.query()
    wrongs: tuple[Callable[[], JobQuery], ...] = (
        lambda: query.where(colour="red"),
        lambda: query.order_by("colour"),
        lambda: query.where(state="odd"),
        lambda: query.where(id="7"),
        lambda: query.top(0),
        lambda: query.top(2.5),  # type: ignore[arg-type]
        lambda: query.created(after=datetime(2030, 1, 1)),
        lambda: query.created(before="2030"),  # type: ignore[arg-type]
        lambda: query.older_than(days=1e12),
        lambda: query.older_than(days=1_000_000),
        lambda: query.older_than(minutes=-1),
        lambda: query.older_than(seconds=float("nan")),
    )
    for wrong in wrongs:
        with pytest.raises(InvalidValue):
            wrong()
    for rows in (-1, 0, 2.5):
        with pytest.raises(InvalidValue):
            await query.page(rows)  # type: ignore[arg-type]
    with pytest.raises(InvalidQuery):
        await query.filter("colour eq 'red'")


@pytest.mark.parametrize(
    ("column", "value", "said"),
    [
        ("priority", "3", "a whole number"),
        ("priority", True, "a whole number"),
        ("priority", 2**63, "64 bits"),
        ("depth", "abc", "a whole number"),
        ("attempt", 1.0, "a whole number"),
        ("type", "x", "a whole number"),
        ("createdon", "2026-11-15", "with an offset"),
        ("created_at", datetime(2026, 11, 15), "with an offset"),
        ("name", 5, "a text"),
        ("name", "a\x00b", "a text"),
        ("id", 5, "a UUID"),
        ("owner", "ana", "a UUID"),
        ("state", 7, "ready, suspended, locked, completed"),
        ("state", Status.FAILED, "ready, suspended, locked, completed"),
        ("status", 7, "waiting_for_resources"),
        ("relevo_progress", float("nan"), "a number"),
        ("iswaitingforevent", 1, "True or False"),
    ],
)
async def test_a_value_that_no_row_can_have_is_refused(  # section 12
    app: App, column: str, value: Any, said: str
) -> None:
    for given in (value, [value]):
        with pytest.raises(InvalidValue) as error:
            app.jobs.query().where(**{column: given})
        assert error.value.message.startswith(f"{column} ")
        assert said in error.value.message
        assert repr(value) in error.value.message


async def test_null_may_be_one_of_several_values(app: App, made: list[UUID]) -> None:
    assert await numbers(app.jobs.query().where(token=[None, "x"]), made) == [2, 3, 4]
    assert await numbers(app.jobs.query().where(token=[]), made) == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("owninguser/fullname eq 'SYSTEM'", [0, 1, 2, 3, 4]),
        ("owninguser/businessunitid/name eq 'none'", []),
        ("AsyncOperation_BulkDeleteOperation/any()", []),
        ("not AsyncOperation_BulkDeleteOperation/any(o: o/name eq 'x')", [0, 1, 2, 3, 4]),
        ("_regardingobjectid_value eq null", [0, 1, 2, 3, 4]),
    ],
)
async def test_a_filter_leads_to_what_is_around_jobs(  # A24
    app: App, made: list[UUID], text: str, found: list[int]
) -> None:
    query = app.jobs.query().filter(text)
    assert await numbers(query, made) == found
    assert await query.count() == len(found)


async def test_text_of_a_caller_stays_a_value(app: App, made: list[UUID]) -> None:
    text = "x' or 1=1 --"
    assert await app.jobs.query().where(name=text) == []  # A23
    quoted = text.replace("'", "''")
    assert await app.jobs.query().filter(f"contains(name,'{quoted}')") == []


async def test_a_caller_sees_its_scope(app: App, made: list[UUID]) -> None:
    user = uuid4()
    mine = await app.jobs.submit("mail", owner=user)
    own = app.jobs.query(Caller(user_id=user, scope="own"))
    assert [job.id for job in await own] == [mine.id]  # A27
    assert await own.count() == 1


async def test_progress_is_what_was_told(app: App, made: list[UUID]) -> None:
    await app.database.write("update relevo.job set progress = 2.0 / 15 where id = $1", made[0])
    await app.database.write("update relevo.job set progress = 0.4 where id = $1", made[1])
    assert (await app.jobs.get(made[0])).progress == 0.133333
    assert await numbers(app.jobs.query().filter("relevo_progress eq 0.4"), made) == [1]
