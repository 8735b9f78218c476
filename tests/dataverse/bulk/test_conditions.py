"""Whole queries as the input of bulk operations: nested conditions choose exactly these rows."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from msgspec import Struct

from relevo.dataverse.bulk import Criteria, Criterion, RowQuery, conditions
from relevo.errors import InvalidQuery
from relevo.jobs import states
from relevo.kernel.expressions.tree import (
    Affix,
    Compare,
    Constant,
    In,
    IsNull,
    List,
    Logic,
    Name,
    Not,
)
from relevo.kernel.querying.errors import ColumnProtected
from relevo.kernel.querying.model import RULES, Caller, Link, Query, column, related

if TYPE_CHECKING:
    from relevo import App
    from relevo.testing.clock import Clock
    from tests.dataverse.bulk.conftest import Warehouse

pytestmark = pytest.mark.anyio


class OrderRow(Struct):
    id: str
    city: str
    n: int
    even: bool
    note: str | None = None


def number(operator: Any, value: int) -> Compare:
    return Compare(operator, Name("n"), Constant(value), RULES)


def orders(*operands: Any, operator: Any = "or") -> Query:
    return Query(table="order", filter=Logic(operator, operands, RULES))


NESTED = orders(
    number("<", 3),
    Logic("and", (number(">", 20), Not(In(Name("city"), List((Constant("C1"),)), RULES), RULES)),
          RULES),
    Affix("end", Name("city"), Constant("x"), RULES),
)  # fmt: skip
"""n < 3 or (n > 20 and not city in ('C1')) or city ends with x; case does not matter."""


def nested(n: int) -> bool:
    return n < 3 or (n > 20 and n % 3 != 1)


@pytest.fixture
def table(app: App, warehouse: Warehouse) -> Warehouse:
    app.table("order", app.container("orders", "/city", model=OrderRow))
    return warehouse


async def fill(app: App, amount: int) -> None:
    for n in range(amount):
        made = {"id": f"{n:05}", "city": f"c{n % 3}", "n": n, "even": n % 2 == 0}
        await app.service.create("order", made)


async def numbers(app: App) -> set[int]:
    rows = await app.database.fetch("select (body ->> 'n')::integer as n from relevo.item")
    return {row["n"] for row in rows}


@pytest.mark.parametrize(
    "query",
    [
        NESTED,
        RowQuery(table="order", filter="n lt 3 or (n gt 20 and not (city in ('c1')))"),
        RowQuery(
            container="orders",
            criteria=Criteria(
                any=True,
                tests=(Criterion(column="n", operator="lt", values=("3",)),),
                groups=(
                    Criteria(
                        tests=(
                            Criterion(column="n", operator="gt", values=("20",)),
                            Criterion(column="city", operator="not-in", values=("c1", "c9")),
                        )
                    ),
                ),
            ),
        ),
    ],
    ids=["tree", "filter", "criteria"],
)
async def test_nested_conditions_delete_exactly_the_rows_that_they_find(
    app: App, table: Warehouse, query: Any
) -> None:
    # A24: the same conditions in three forms.
    await fill(app, 40)
    expected = {n for n in range(40) if nested(n)}
    found = await app.bulk.preview(query)
    assert found.count == len(expected)
    async with app.host():
        job = await app.bulk.delete([query])
        assert await job.wait(60) == {"success": len(expected), "failure": 0}
    assert await numbers(app) == set(range(40)) - expected


async def test_conditions_and_paths_hold_together(app: App, table: Warehouse) -> None:
    await fill(app, 10)
    both = RowQuery(table="order", where=(("even", "=", True),), filter="n ge 4")
    async with app.host():
        await (await app.bulk.delete(both)).wait(60)
    assert await numbers(app) == {0, 1, 2, 3, 5, 7, 9}


@pytest.mark.parametrize("key", ["00003", "3F2504E0-4F89-11D3-9A0C-0305E82C3301"])
async def test_rows_can_be_chosen_by_keys_that_are_guids_or_not(
    app: App, table: Warehouse, key: str
) -> None:
    for one in ("00001", key.lower()):
        await app.service.create("order", {"id": one, "city": "c", "n": 1, "even": False})
    test = Criterion(column="orderid", operator="in", values=(key,))
    found = await app.bulk.preview(RowQuery(table="order", criteria=Criteria(tests=(test,))))
    assert [row.id for row in found.sample] == [key.lower()]
    found = await app.bulk.preview(RowQuery(table="order", filter=f"orderid eq '{key.lower()}'"))
    assert [row.id for row in found.sample] == [key.lower()]


async def test_what_is_null_is_not_deleted_by_a_comparison(app: App, table: Warehouse) -> None:
    # A25
    await fill(app, 4)
    async with app.host():
        unlike = Query(table="order", filter=Compare("<>", Name("note"), Constant("a"), RULES))
        assert (await (await app.bulk.delete(unlike)).wait(60))["success"] == 0
        none = Query(table="order", filter=IsNull(Name("note")))
        assert (await (await app.bulk.delete(none)).wait(60))["success"] == 4


async def test_conditions_follow_links_and_navigations_of_jobs(app: App) -> None:
    user = await app.users.create_user("Ana")
    mine = await app.jobs.submit("nobody", owner=user)
    other = await app.jobs.submit("nobody")
    for one in (mine, other):
        await one.cancel()
    by_way = RowQuery(table="asyncoperation", filter="owninguser/fullname eq 'ana'")
    linked = Query(
        table="asyncoperation",
        filter=Not(related("u"), RULES),
        links=(
            Link(
                table="systemuser", alias="u", column="systemuserid", parent_column="owninguser",
                kind="any", filter=Compare("=", column("fullname"), Constant("Ana"), RULES),
            ),
        ),
    )  # fmt: skip
    assert [row.id for row in (await app.bulk.preview(by_way)).sample] == [str(mine.id)]
    assert [row.id for row in (await app.bulk.preview(linked)).sample] == [str(other.id)]


async def test_a_query_over_jobs_is_taken_as_it_is(app: App) -> None:
    jobs = [await app.jobs.submit("nobody", name=name) for name in ("a", "b", "c")]
    for one in jobs[:2]:
        await one.cancel()
    query = app.jobs.query().where(name=["a", "b", "c"], id=[one.id for one in jobs])
    found = await app.bulk.preview(query.filter("name ne 'b'"))
    assert [row.id for row in found.sample] == [str(jobs[0].id)]
    named = await app.bulk.preview(query.where(state=0))
    assert [row.id for row in named.sample] == [str(jobs[2].id)]
    with pytest.raises(InvalidQuery, match="remove top"):
        await app.bulk.delete(query.top(1))


@pytest.mark.parametrize("scope", ["own", "unit"])
async def test_a_query_over_jobs_finds_no_more_than_its_caller_may_see(
    app: App, warehouse: Warehouse, scope: Any
) -> None:
    # A27
    unit = await app.users.create_unit("Vigo")
    ana, bob = [await app.users.create_user(name, unit=unit) for name in ("Ana", "Bob")]
    team = await app.users.create_team("Red")
    owners = {"ana": ana, "team": team, "bob": bob, "nobody": None}
    jobs = {name: await app.jobs.submit("nothing", owner=owner) for name, owner in owners.items()}
    for one in jobs.values():
        await one.cancel()
    caller = Caller(user_id=ana, unit=unit, scope=scope, teams=(team,))
    seen = {"ana", "team"} | ({"bob"} if scope == "unit" else set())
    asked = app.jobs.query(caller).where(handler="nothing")
    assert {one.id for one in await asked} == {jobs[name].id for name in seen}  # A24
    assert (await app.bulk.preview(asked)).count == len(seen)
    async with app.host():
        assert (await (await app.bulk.delete(asked)).wait(60))["success"] == len(seen)
    left = {one.id for one in await app.jobs.query().where(handler="nothing")}
    assert left == {jobs[name].id for name in jobs.keys() - seen}


async def test_a_query_over_jobs_looks_at_no_column_that_its_caller_may_not_read(app: App) -> None:
    # A28
    ana = await app.users.create_user("Ana")
    asked = app.jobs.query(Caller(user_id=ana)).filter("contains(data,'secret')")
    for ask in (app.bulk.preview, app.bulk.delete):
        with pytest.raises(ColumnProtected):
            await ask(asked)


async def test_relative_dates_are_meant_at_the_start_of_each_run(
    app: App, warehouse: Warehouse, clock: Clock
) -> None:
    @app.job("quick")
    async def quick(ctx: Any) -> None: ...

    old = RowQuery(
        table="asyncoperation",
        criteria=Criteria(
            tests=(
                Criterion(column="name", operator="eq", values=("quick",)),
                Criterion(column="completedon", operator="olderthan-x-days", values=("2",)),
            )
        ),
    )
    async with app.host():
        first = await app.jobs.submit("quick")
        await first.wait(30)
        later = await app.bulk.delete(old, start=await clock.now() + timedelta(days=3))
        assert (await (await app.bulk.delete(old)).wait(60))["success"] == 0
        await clock.advance(3 * 86_400 + 60)
        recent = await app.jobs.submit("quick")
        await recent.wait(30)
        assert (await later.wait(60))["success"] == 1
        assert (await recent.get()).status_code == states.SUCCEEDED


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("name eq 'nobody'", True),
        ("name eq 'nobody' or statecode eq 3", True),
        ("not (name ne 'nobody' and statecode eq 0)", True),
        ("not (not (name eq 'nobody' or statecode eq 3))", True),
        ("not (not (not (name ne 'nobody' and statecode ne 3)))", True),
        ("not (not (name eq 'nobody' and statecode eq 0))", False),
        ("name eq 'nobody' and (depth eq 9 or priority eq 9)", True),
        ("name eq 'nobody' and (depth eq 9 or statecode le 1)", False),
        ("name eq 'nobody' and statuscode ne 30", False),
    ],
)
async def test_jobs_that_are_not_completed_are_spared_where_no_condition_names_their_state(
    app: App, text: str, kept: bool
) -> None:
    await app.jobs.submit("nobody")
    text = text.replace("priority", "relevo_priority")
    found = await app.bulk.preview(RowQuery(table="asyncoperation", filter=text))
    assert found.count == (0 if kept else 1)


@pytest.mark.parametrize(
    "query",
    [
        Query(table="asyncoperation", top=5),
        Query(table="asyncoperation", distinct=True),
        RowQuery(table="asyncoperation", filter="nothing eq 1"),
        RowQuery(table="asyncoperation", filter="statecode eq"),
        RowQuery(
            table="asyncoperation",
            criteria=Criteria(tests=(Criterion(column="name", operator="under", values=("a",)),)),
        ),
    ],
)
async def test_what_no_run_could_ask_is_refused_at_once(app: App, query: Any) -> None:
    with pytest.raises(InvalidQuery):
        await app.bulk.delete(query)


async def test_a_container_that_is_no_table_has_no_columns(app: App, warehouse: Warehouse) -> None:
    await warehouse.fill(1)
    with pytest.raises(InvalidQuery, match="not a table of this app"):
        await app.bulk.preview(RowQuery(container="orders", filter="n eq 1"))


def test_completed_is_said_once_for_all_alternatives_that_name_no_state() -> None:
    state = Compare("=", Name("statecode"), Constant(0), RULES)
    name = Compare("=", Name("name"), Constant("a"), RULES)
    assert conditions.completed(state) == state
    guarded = conditions.completed(Logic("or", (state, name), RULES))
    assert isinstance(guarded, Logic)
    assert guarded.operands[0] == state
    assert guarded.operands[1] != name
