"""Bulk delete: rows of containers, records of tables, jobs; counts, failures, recurrence (8.3)."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from relevo.dataverse.bulk import RowQuery, engine
from relevo.errors import InvalidRecurrence, InvalidValue
from relevo.jobs import states
from relevo.jobs.core import codes
from relevo.jobs.errors import JobFailed
from relevo.pipeline.model import PRE_OPERATION, SYNC
from relevo.testing.cluster import Cluster
from tests.jobs.office import QUICK

if TYPE_CHECKING:
    from pathlib import Path

    from relevo import App
    from relevo.testing.clock import Clock
    from tests.dataverse.bulk.conftest import Warehouse

pytestmark = pytest.mark.anyio


async def test_items_that_meet_the_conditions_are_deleted_and_counted(
    app: App, warehouse: Warehouse
) -> None:
    await warehouse.fill(450)
    async with app.host():
        job = await app.bulk.delete(warehouse.query(("even", "=", True)), name="Even ones")
        assert await job.wait(60) == {"success": 225, "failure": 0}
        found = await job.get()
    assert await warehouse.left() == {n for n in range(450) if n % 2}
    assert (found.operation_type, found.lane, found.progress) == (13, "bulk", 1.0)
    row = await app.database.fetchrow("select * from relevo.bulk_delete")
    assert row is not None
    assert (row["asyncoperationid"], row["name"], row["successcount"], row["failurecount"]) == (
        job.id, "Even ones", 225, 0,
    )  # fmt: skip
    assert (row["isrecurring"], row["statecode"], row["statuscode"]) == (False, 3, 30)


async def test_a_client_submits_before_there_is_any_host(app: App, warehouse: Warehouse) -> None:
    job = await (await app.bulk.delete(warehouse.query())).get()
    assert (job.operation_type, job.lane) == (13, "bulk")


async def test_queries_run_one_after_the_other(app: App, warehouse: Warehouse) -> None:
    await warehouse.fill(30)
    async with app.host():
        job = await app.bulk.delete(
            [warehouse.query(("n", "<", 10)), warehouse.query(("n", "<", 15))]
        )
        assert await job.wait(60) == {"success": 15, "failure": 0}
    assert await app.database.fetchval("select processingqeindex from relevo.bulk_delete") == 1


async def test_rows_that_come_later_with_higher_keys_are_not_touched(
    app: App, warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    await warehouse.fill(300)
    ordinary = engine.BulkRun._take

    async def take(self: Any, *args: Any) -> Any:
        await warehouse.orders.upsert({"id": "99999", "city": "zz", "n": 99999})
        return await ordinary(self, *args)

    monkeypatch.setattr(engine.BulkRun, "_take", take)
    async with app.host():
        job = await app.bulk.delete(warehouse.query())
        assert (await job.wait(60))["success"] == 300
    assert await warehouse.left() == {99999}


@pytest.mark.parametrize("what", ["jobs", "items", "records"])
async def test_nothing_is_deleted_in_the_name_of_a_user_who_is_disabled(
    app: App, warehouse: Warehouse, what: str
) -> None:
    ana = await app.users.create_user("Ana")
    if what == "records":
        app.table("order", warehouse.orders)
    await warehouse.fill(3)
    await (await app.jobs.submit("nothing")).cancel()
    rows = RowQuery(table="asyncoperation") if what == "jobs" else warehouse.query()
    found = (await app.bulk.preview(rows)).count
    job = await app.bulk.delete(rows, owner=ana)
    await app.users.disable(ana)
    async with app.host():
        with pytest.raises(JobFailed, match=f"user {ana} is disabled"):
            await job.wait(60)
    assert (await job.get()).error_code == codes.FORBIDDEN
    assert await app.bulk.failures(job.id) == []
    assert await app.bulk.counts(job.id) == (0, 0)
    assert found
    if what == "jobs":
        assert await app.jobs.query().where(handler="nothing").count() == 1
    else:
        assert await warehouse.left() == {0, 1, 2}


async def test_a_user_who_is_disabled_in_the_middle_deletes_no_further_chunk(
    app: App, warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    ana = await app.users.create_user("Ana")
    await warehouse.fill(300)
    ordinary = engine.BulkRun._take

    async def take(self: Any, *args: Any) -> Any:
        at = await ordinary(self, *args)
        await app.users.disable(ana)
        return at

    monkeypatch.setattr(engine.BulkRun, "_take", take)
    async with app.host():
        job = await app.bulk.delete(warehouse.query(), owner=ana)
        with pytest.raises(JobFailed, match="is disabled"):
            await job.wait(60)
    assert len(await warehouse.left()) == 100


async def test_a_row_that_fails_is_recorded_and_does_not_stop_the_job(
    app: App, warehouse: Warehouse
) -> None:
    app.table("order", warehouse.orders)

    @app.step("Delete", "order", stage=PRE_OPERATION, mode=SYNC)
    async def keep(ctx: Any) -> None:
        if ctx.target.id.endswith("7"):
            raise InvalidValue("sevens stay")

    await warehouse.fill(20)
    async with app.host():
        job = await app.bulk.delete(warehouse.query())
        # A20: successes and failures are the rows processed.
        assert await job.wait(60) == {"success": 18, "failure": 2}
        found = await job.get()
        failures = await app.bulk.failures(job.id)
    assert await warehouse.left() == {7, 17}
    assert found.friendly == "2 of 20 rows could not be deleted"
    assert {(one.row_id, one.code) for one in failures} == {
        ("00007", codes.BAD_REQUEST), ("00017", codes.BAD_REQUEST),
    }  # fmt: skip
    assert "sevens stay" in failures[0].message
    rows = await app.database.fetch("select * from relevo.bulk_delete_failure")
    assert {row["regardingobjectid"] for row in rows} == {"00007", "00017"}


async def test_too_many_failures_fail_the_job(app: App, warehouse: Warehouse) -> None:
    app.table("order", warehouse.orders)

    @app.step("Delete", "order", stage=PRE_OPERATION, mode=SYNC)
    async def keep(ctx: Any) -> None:
        raise InvalidValue("all stay")

    await warehouse.fill(300)
    async with app.host():
        job = await app.bulk.delete(warehouse.query(), max_failures=10)
        with pytest.raises(JobFailed, match="200 rows failed, more than max_failures=10"):
            await job.wait(60)
    assert await app.bulk.counts(job.id) == (0, 200)


async def test_completed_jobs_are_deleted_and_others_only_if_their_states_are_named(
    app: App, warehouse: Warehouse
) -> None:
    @app.job("quick")
    async def quick(ctx: Any) -> None: ...

    jobs = RowQuery(table="asyncoperation", where=(("name", "=", "quick"),))
    async with app.host():
        done = [await app.jobs.submit("quick") for _ in range(3)]
        for one in done:
            await one.wait(30)
        later = await app.jobs.submit("quick", start=await app.now() + timedelta(days=1))
        assert await (await app.bulk.delete(jobs)).wait(60) == {"success": 3, "failure": 0}
        assert (await later.get()).status_code == states.WAITING
        named = RowQuery(table="asyncoperations", where=(*jobs.where, ("statecode", "=", 1)))
        assert await (await app.bulk.delete(named)).wait(60) == {"success": 1, "failure": 0}
    assert await app.database.fetchval(
        "select count(*) from relevo.jobs where handler = 'quick'"
    ) == 0  # fmt: skip


@pytest.mark.parametrize("made", [{"system": True}, {"options": {"operation_type": 14}}])
async def test_a_bulk_delete_of_jobs_spares_itself_and_unfinished_platform_jobs(
    app: App, warehouse: Warehouse, made: dict[str, Any]
) -> None:
    later = await app.now() + timedelta(days=1)
    platform = await app.jobs.submit("nobody", start=later, **made)
    async with app.host():
        everything = RowQuery(table="asyncoperation", where=(("statecode", ">=", 0),))
        job = await app.bulk.delete(everything)
        assert await job.wait(60) == {"success": 0, "failure": 1}
        (failure,) = await app.bulk.failures(job.id)
    assert (failure.row_id, failure.code) == (str(platform.id), codes.PLATFORM_DELETE)  # A12


async def test_a_recurring_bulk_delete_of_jobs_spares_its_own_next_run(
    app: App, warehouse: Warehouse
) -> None:
    async with app.host():
        everything = RowQuery(table="asyncoperation", where=(("statecode", ">=", 0),))
        job = await app.bulk.delete(everything, recurrence="FREQ=DAILY")
        assert await job.wait(60) == {"success": 0, "failure": 0}
    assert await app.database.fetchval("select count(*) from relevo.job where status = 10") == 1


async def test_jobs_can_be_chosen_by_their_instants(
    app: App, warehouse: Warehouse, clock: Clock
) -> None:
    @app.job("quick")
    async def quick(ctx: Any) -> None: ...

    async with app.host():
        await (await app.jobs.submit("quick")).wait(30)
        between = await clock.advance(3_600)
        recent = await app.jobs.submit("quick")
        await recent.wait(30)
        old = RowQuery(
            table="asyncoperation", where=(("name", "=", "quick"), ("completedon", "<", between))
        )
        assert (await (await app.bulk.delete(old)).wait(60))["success"] == 1
        assert (await recent.get()).status_code == states.SUCCEEDED


async def test_a_bulk_delete_recurs_daily_at_most(
    app: App, warehouse: Warehouse, clock: Clock
) -> None:
    await warehouse.fill(5)
    with pytest.raises(InvalidRecurrence):
        await app.bulk.delete(warehouse.query(), recurrence="FREQ=HOURLY")
    async with app.host():
        job = await app.bulk.delete(warehouse.query(), recurrence="FREQ=DAILY;INTERVAL=1;")
        assert await job.wait(60) == {"success": 5, "failure": 0}
        row = await app.database.fetchrow(
            "select isrecurring, nextrun from relevo.bulk_delete where asyncoperationid = $1",
            job.id,
        )
        assert row is not None
        assert row["isrecurring"]
        assert row["nextrun"] > await clock.now()
        await warehouse.fill(3)
        await clock.advance(86_400)

        async def again() -> bool:
            total = await app.database.fetchval("select sum(successcount) from relevo.bulk_delete")
            return bool(total == 8)

        async with asyncio.timeout(60):
            while not await again():
                await asyncio.sleep(0.02)


async def test_a_canceled_bulk_delete_keeps_what_its_last_chunk_had(
    app: App, warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    await warehouse.fill(1_000)
    ordinary, taken = engine.BulkRun._take, asyncio.Event()
    go_on = asyncio.Event()

    async def take(self: Any, *args: Any) -> Any:
        at = await ordinary(self, *args)
        taken.set()
        await go_on.wait()
        return at

    monkeypatch.setattr(engine.BulkRun, "_take", take)
    async with app.host():
        job = await app.bulk.delete(warehouse.query())
        await asyncio.wait_for(taken.wait(), 30)
        await job.cancel()
        go_on.set()
        await warehouse.until(job, lambda one: one.status_code == states.CANCELED)  # A11
    success, failure = await app.bulk.counts(job.id)
    assert failure == 0
    assert len(await warehouse.left()) == 1_000 - success  # A20
    assert success % 200 == 0


async def test_a_paused_bulk_delete_goes_on_behind_its_last_chunk(
    app: App, warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    await warehouse.fill(1_000)
    ordinary, taken, go_on = engine.BulkRun._take, asyncio.Event(), asyncio.Event()

    async def take(self: Any, *args: Any) -> Any:
        at = await ordinary(self, *args)
        taken.set()
        await go_on.wait()
        return at

    monkeypatch.setattr(engine.BulkRun, "_take", take)
    async with app.host():
        job = await app.bulk.delete(warehouse.query())
        await asyncio.wait_for(taken.wait(), 30)
        await job.pause()
        go_on.set()
        await warehouse.until(job, lambda one: one.status_code == states.WAITING)
        row = await app.database.fetchrow("select statecode, statuscode from relevo.bulk_delete")
        assert row is not None
        assert tuple(row) == (1, 12)
        await job.resume()
        assert await job.wait(60) == {"success": 1_000, "failure": 0}  # A20


async def test_after_a_crash_no_row_is_processed_twice(
    app: App, warehouse: Warehouse, relevo_url: str, tmp_path: Path
) -> None:
    """A20, A30: effects are counted in a table, in the transaction of their chunk."""
    await app.database.write("create table effect (id text not null)")
    await warehouse.fill(2_000)
    async with Cluster(
        relevo_url, "tests.dataverse.bulk.programs:counted", tmp_path, settings=QUICK
    ) as cluster:
        a = await cluster.start("a")
        job = await app.bulk.propagate("effects", warehouse.query(), {"kind": "call"})

        async def some() -> bool:
            return (await app.bulk.counts(job.id))[0] >= 400

        await cluster.until(some, "two chunks")
        a.kill()
        await cluster.start("b")
        found = await job.wait(90)
    assert found == {"success": 2_000, "failure": 0}
    row = await app.database.fetchrow("select count(*), count(distinct id) from effect")
    assert row is not None
    assert tuple(row) == (2_000, 2_000)
    assert (await job.get()).crashes == 1


async def test_queries_that_name_nothing_or_nonsense_are_refused(
    app: App, warehouse: Warehouse
) -> None:
    for queries in ([], [RowQuery()], [RowQuery(container="a", table="b")]):
        with pytest.raises(InvalidValue):
            await app.bulk.delete(queries)
