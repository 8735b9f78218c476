"""A bulk delete (13) and its children (23): one after the other, stopped and resumed together."""

from __future__ import annotations

import asyncio
import itertools
from typing import TYPE_CHECKING, Any

import pytest

from relevo.dataverse.bulk import RowQuery, deletion, engine
from relevo.errors import InvalidValue
from relevo.jobs import states
from relevo.jobs.errors import JobFailed
from relevo.pipeline.model import PRE_OPERATION, SYNC
from relevo.testing.cluster import Cluster
from tests.jobs.office import QUICK

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from relevo import App
    from relevo.jobs.service import JobHandle
    from tests.dataverse.bulk.conftest import Warehouse

pytestmark = pytest.mark.anyio


async def children_of(app: App) -> list[Any]:
    return await app.jobs.query().where(type=23).order_by("sequence")


class Stop:
    """Holds children behind their chunks until they are let go."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.taken, self.go_on = asyncio.Event(), asyncio.Event()
        ordinary, stop = engine.BulkRun._take, self

        async def take(self: Any, *args: Any) -> Any:
            at = await ordinary(self, *args)
            stop.taken.set()
            await stop.go_on.wait()
            return at

        monkeypatch.setattr(engine.BulkRun, "_take", take)


@pytest.fixture
def stop(monkeypatch: pytest.MonkeyPatch) -> Stop:
    return Stop(monkeypatch)


async def settled(warehouse: Warehouse, part: Any, holds: Callable[[Any], bool]) -> Any:
    job: JobHandle[Any] = warehouse.app.jobs.handle(part.id)
    return await warehouse.until(job, holds)


async def test_each_query_is_a_child_that_begins_after_the_former(
    app: App, warehouse: Warehouse
) -> None:
    await warehouse.fill(30)
    bounds = (10, 15, 15, 30)
    async with app.host():
        job = await app.bulk.delete([warehouse.query(("n", "<", n)) for n in bounds], name="Steps")
        assert await job.wait(60) == {"success": 30, "failure": 0}
        found, children = await job.get(), await children_of(app)
    assert [one.name for one in children] == [f"Steps: query {n}" for n in (1, 2, 3, 4)]
    assert [one.result["success"] for one in children] == [10, 5, 0, 15]
    assert {one.status_code for one in children} == {states.SUCCEEDED}
    for before, after in itertools.pairwise(children):
        assert before.completed_at <= after.created_at
    assert children[-1].completed_at <= found.completed_at
    assert (found.operation_type, found.progress) == (13, 1.0)
    row = await app.database.fetchrow("select * from relevo.bulk_delete")
    assert row is not None  # only the parent is a bulk delete
    assert (row["processingqeindex"], row["successcount"], row["statuscode"]) == (3, 30, 30)


async def test_more_bulk_deletes_than_slots_do_not_wait_for_each_other(
    app: App, warehouse: Warehouse
) -> None:
    await warehouse.fill(12)
    async with app.host():
        jobs = [await app.bulk.delete(warehouse.query(("n", "=", n))) for n in range(12)]
        ended = [await one.wait(60) for one in jobs]
    assert ended == [{"success": 1, "failure": 0}] * 12


async def test_failures_belong_to_the_parent_and_count_over_all_queries(
    app: App, warehouse: Warehouse
) -> None:
    app.table("order", warehouse.orders)

    @app.step("Delete", "order", stage=PRE_OPERATION, mode=SYNC)
    async def keep(ctx: Any) -> None:
        if ctx.target.id.endswith("7"):
            raise InvalidValue("sevens stay")

    await warehouse.fill(30)
    queries = [warehouse.query(("n", "<", 10)), warehouse.query(), warehouse.query()]
    async with app.host():
        job = await app.bulk.delete(queries, max_failures=3)
        with pytest.raises(JobFailed, match="4 rows failed, more than max_failures=3"):
            await job.wait(60)
        (first, second) = await children_of(app)
    assert (first.status_code, second.status_code) == (states.SUCCEEDED, states.FAILED)
    assert await app.bulk.counts(job.id) == (27, 4)  # A20
    recorded = await app.bulk.recorded_failures(job.id)
    assert {(one.row_id, one.query_index) for one in recorded} == {
        ("00007", 0), ("00007", 1), ("00017", 1), ("00027", 1),
    }  # fmt: skip


async def test_a_canceled_parent_ends_after_its_child_and_begins_no_other(
    app: App, warehouse: Warehouse, stop: Stop
) -> None:
    await warehouse.fill(700)
    async with app.host():
        job = await app.bulk.delete([warehouse.query(("n", "<", 600)), warehouse.query()])
        await asyncio.wait_for(stop.taken.wait(), 30)
        await job.cancel()
        (part,) = await children_of(app)
        await settled(warehouse, part, lambda one: one.status_code == states.CANCELING)
        stop.go_on.set()
        found = await warehouse.until(job, lambda one: one.status_code == states.CANCELED)  # A11
        (part,) = await children_of(app)
    assert part.status_code == states.CANCELED
    assert part.completed_at <= found.completed_at
    assert await app.bulk.counts(job.id) == (200, 0)
    assert len(await warehouse.left()) == 500  # A20


async def test_a_paused_parent_holds_its_child_and_a_resumed_one_lets_it_go(
    app: App, warehouse: Warehouse, stop: Stop
) -> None:
    await warehouse.fill(500)
    async with app.host():
        job = await app.bulk.delete(warehouse.query())
        await asyncio.wait_for(stop.taken.wait(), 30)
        await job.pause()
        await warehouse.until(job, lambda one: one.status_code == states.WAITING)  # A10
        stop.go_on.set()
        (part,) = await children_of(app)
        await settled(warehouse, part, lambda one: one.status_code == states.WAITING)
        assert await app.bulk.counts(job.id) == (200, 0)
        await job.resume()
        assert await job.wait(60) == {"success": 500, "failure": 0}
        assert [one.id for one in await children_of(app)] == [part.id]


async def test_the_child_of_a_paused_parent_that_is_canceled_or_deleted_ends(
    app: App, warehouse: Warehouse, stop: Stop
) -> None:
    await warehouse.fill(500)
    async with app.host():
        for end in ("cancel", "delete"):
            stop.taken.clear()
            stop.go_on.clear()
            job = await app.bulk.delete(warehouse.query())
            await asyncio.wait_for(stop.taken.wait(), 30)
            await job.pause()
            await warehouse.until(job, lambda one: one.status_code == states.WAITING)
            stop.go_on.set()
            part = (await children_of(app))[-1]
            await settled(warehouse, part, lambda one: one.status_code == states.WAITING)
            await app.jobs.command(job.id, end)
            await settled(warehouse, part, lambda one: one.status_code == states.CANCELED)


async def test_a_child_that_somebody_cancels_fails_the_parent(
    app: App, warehouse: Warehouse, stop: Stop
) -> None:
    await warehouse.fill(500)
    async with app.host():
        job = await app.bulk.delete([warehouse.query(), warehouse.query()])
        await asyncio.wait_for(stop.taken.wait(), 30)
        (part,) = await children_of(app)
        await app.jobs.command(part.id, "cancel")
        stop.go_on.set()
        with pytest.raises(JobFailed, match="the job of query 1 was canceled"):
            await job.wait(60)
    assert len(await warehouse.left()) == 300


async def test_a_query_counts_whose_child_was_removed_while_the_parent_was_paused(
    app: App, warehouse: Warehouse, stop: Stop, monkeypatch: pytest.MonkeyPatch
) -> None:
    await warehouse.fill(300)

    async def go_on(self: Any) -> None:
        """As a child does that looked before its parent was paused, and then was through."""

    monkeypatch.setattr(deletion.DeleteChild, "_follow_parent", go_on)
    async with app.host():
        job = await app.bulk.delete([warehouse.query(("n", "<", 200)), warehouse.query()])
        await asyncio.wait_for(stop.taken.wait(), 30)
        await job.pause()
        await warehouse.until(job, lambda one: one.status_code == states.WAITING)
        (part,) = await children_of(app)
        stop.go_on.set()
        await settled(warehouse, part, lambda one: one.status_code == states.SUCCEEDED)
        # What retention and `forget` leave after a month.
        await app.database.write("delete from relevo.job_history where id = $1", part.id)
        await app.database.write("delete from relevo.bulk_operation where job = $1", part.id)
        await job.resume()
        assert await job.wait(60) == {"success": 300, "failure": 0}
        assert [one.name[-7:] for one in await children_of(app)] == ["query 2"]
    assert await app.bulk.counts(job.id) == (300, 0)


@pytest.mark.parametrize("end", ["resume", "cancel", "delete"])
async def test_a_child_that_is_paused_by_itself_lets_its_parent_wait_without_a_slot(
    app: App, warehouse: Warehouse, stop: Stop, end: str
) -> None:
    await warehouse.fill(500)
    async with app.host():
        job = await app.bulk.delete(warehouse.query())
        await asyncio.wait_for(stop.taken.wait(), 30)
        (part,) = await children_of(app)
        await app.jobs.command(part.id, "pause")
        stop.go_on.set()
        await warehouse.until(job, lambda one: one.status_code == states.WAITING)
        left = await warehouse.left()
        await app.jobs.command(part.id, end)
        if end == "resume":
            assert await job.wait(60) == {"success": 500, "failure": 0}
        else:
            with pytest.raises(JobFailed, match=f"the job of query 1 was {end.rstrip('e')}"):
                await job.wait(60)
        assert left
        assert await warehouse.left() == (set() if end == "resume" else left)


async def test_a_parent_that_waits_for_its_child_is_resumed_in_vain_and_canceled_with_it(
    app: App, warehouse: Warehouse, stop: Stop
) -> None:
    await warehouse.fill(500)
    async with app.host():
        job = await app.bulk.delete(warehouse.query())
        await asyncio.wait_for(stop.taken.wait(), 30)
        (part,) = await children_of(app)
        await app.jobs.command(part.id, "pause")
        stop.go_on.set()
        first = await warehouse.until(job, lambda one: one.status_code == states.WAITING)
        left = await warehouse.left()
        await job.resume()
        await warehouse.until(
            job, lambda one: one.status_code == states.WAITING and one.attempt > first.attempt
        )
        await job.cancel()
        await settled(warehouse, part, lambda one: one.status_code == states.CANCELED)
    assert await warehouse.left() == left


async def test_a_child_that_is_paused_by_itself_shows_on_the_bulk_delete(
    app: App, warehouse: Warehouse, stop: Stop
) -> None:
    await warehouse.fill(500)
    shown = "select statecode, statuscode from relevo.bulk_delete"
    async with app.host():
        job = await app.bulk.delete(warehouse.query())
        await asyncio.wait_for(stop.taken.wait(), 30)
        assert tuple(await app.database.fetchrow(shown) or ()) == (2, 20)
        (part,) = await children_of(app)
        await app.jobs.command(part.id, "pause")
        stop.go_on.set()
        await settled(warehouse, part, lambda one: one.status_code == states.WAITING)
        assert tuple(await app.database.fetchrow(shown) or ()) == (1, 12)
        await app.jobs.command(part.id, "resume")
        assert await job.wait(60) == {"success": 500, "failure": 0}


async def test_a_bulk_delete_of_all_jobs_spares_children_that_are_waited_for(
    app: App, warehouse: Warehouse
) -> None:
    everything = RowQuery(table="asyncoperation", where=(("statecode", ">=", 0),))
    async with app.host():
        job = await app.bulk.delete([everything, everything])
        assert await job.wait(60) == {"success": 0, "failure": 0}
        assert len(await children_of(app)) == 2
        # Once the parent is over they are records like others.
        other = await app.bulk.delete(RowQuery(table="asyncoperation"))
        assert (await other.wait(60))["success"] == 3


async def test_a_crash_in_the_middle_goes_on_with_the_same_child(
    app: App, warehouse: Warehouse, relevo_url: str, tmp_path: Path
) -> None:
    """A20, A30: parent and child are lost together, and no row is counted twice."""
    await warehouse.fill(1_200)
    queries = [warehouse.query(("n", "<", 800)), warehouse.query()]
    async with Cluster(
        relevo_url, "tests.dataverse.bulk.programs:removing", tmp_path, settings=QUICK
    ) as cluster:
        a = await cluster.start("a")
        job = await app.bulk.delete(queries)

        async def some() -> bool:
            return (await app.bulk.counts(job.id))[0] >= 400

        await cluster.until(some, "two chunks")
        a.kill()
        await cluster.start("b")
        assert await job.wait(90) == {"success": 1_200, "failure": 0}
    assert await app.bulk.counts(job.id) == (1_200, 0)
    assert await warehouse.left() == set()
    first, second = await children_of(app)
    assert [one.result["success"] for one in (first, second)] == [800, 400]
    assert (first.crashes, second.crashes) == (1, 0)
    assert first.completed_at <= second.created_at


async def test_a_parent_that_is_begun_anew_goes_on_with_its_child(
    app: App, warehouse: Warehouse, stop: Stop, monkeypatch: pytest.MonkeyPatch
) -> None:
    await warehouse.fill(300)
    ordinary, failures = deletion.BulkDeleteJob._show, iter([ConnectionError("the line was cut")])

    async def show(self: Any, progress: float) -> None:
        await ordinary(self, progress)
        if stop.taken.is_set() and (error := next(failures, None)):
            raise error

    monkeypatch.setattr(deletion.BulkDeleteJob, "_show", show)
    async with app.host():
        job = await app.bulk.delete(warehouse.query())
        await warehouse.until(job, lambda one: one.retries == 1)
        stop.go_on.set()
        await job.resume()
        assert await job.wait(60) == {"success": 300, "failure": 0}
        assert len(await children_of(app)) == 1
