"""Batches: counts, the job at the end, cancel, retry, transactions, concurrent ends."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import asyncpg
import pytest

from relevo.errors import InvalidValue
from relevo.jobs.errors import BatchClosed, BatchMissing
from tests.jobs.office import Worker, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import relevo
    from relevo.jobs.batches.handles import BatchHandle
    from tests.jobs.office import Office

pytestmark = pytest.mark.anyio
COUNTS = ("total", "waiting", "running", "succeeded", "failed", "canceled")


async def counts(batch: BatchHandle) -> dict[str, int]:
    found = await batch.get()
    values = {name: getattr(found, name) for name in COUNTS}
    return {name: value for name, value in values.items() if value}


async def events(office: Office, batch: BatchHandle) -> list[str]:
    rows = await office.database.fetch(
        "select type from relevo.event where subject = $1 order by version, lsn",
        f"batch/{batch.id}",
    )
    return [row["type"].removeprefix("relevo.batch.") for row in rows]


@pytest.fixture
async def worker(office: Office) -> AsyncIterator[Worker]:
    connection = await asyncpg.connect(office.url)
    yield await Worker(connection).join()
    await connection.close()


async def test_a_batch_runs_its_job_once_when_all_have_ended(office: Office) -> None:
    app, broken, reports = office.app, {3}, []

    @app.job("resize", retries=0)
    async def resize(ctx: relevo.JobContext, image: int) -> int:
        if image in broken:
            raise ValueError(f"image {image} is broken")
        if image == 5:  # members may submit more while the batch is open
            await resize.using(batch=ctx.batch).submit(image=50)
        return image * 2

    @app.job("report")
    async def report(batch: dict[str, Any], month: str) -> None:
        reports.append((month, batch))

    async with app.host():
        batch = await app.jobs.batch("may", then=report, data={"month": "05"})
        first = await batch.submit("resize", {"image": 5})
        assert await first.wait(60) == 10
        jobs = await batch.submit_many("resize", [{"image": n} for n in range(4)])
        seen = [end.id async for end in batch.results() if await closed_after(batch, first.id)]
        assert len(seen) == len(set(seen)) == 6
        over = await batch.wait(60)
        assert (over.state, over.total, over.succeeded, over.failed) == ("ended", 6, 5, 1)
        assert over.progress == 1.0
        await until(lambda: len(reports) == 1, "the report")
        assert reports == [
            ("05", {"id": str(batch.id), "name": "may", "total": 6, "succeeded": 5, "failed": 1,
                    "canceled": 0}),
        ]  # fmt: skip
        ends = {end.id: end async for end in batch.results()}
        assert ends[first.id].result == 10
        assert ends[jobs[3].id].error == "ValueError: image 3 is broken"
        assert not ends[jobs[3].id].ok
        # A retry opens the end again; the job of the batch has run and does not run again.
        broken.clear()
        await jobs[3].retry()
        assert await jobs[3].wait(60) == 6
        over = await batch.wait(60)
        assert (over.total, over.succeeded, over.failed) == (6, 6, 0)

        async def ended_again() -> bool:
            return (await events(office, batch))[-1] == "ended"

        await until(ended_again, "the second end")
        assert set(await events(office, batch)) <= {"created", "ended", "reopened"}
        assert len(reports) == 1
        assert over.callback is not None
        with pytest.raises(BatchClosed, match="new batch"):
            await batch.submit("resize", {"image": 1})
        with pytest.raises(BatchClosed):
            await batch.submit_many("resize", [{"image": 1}])
        assert await batch.jobs().count() == 6


async def closed_after(batch: BatchHandle, first: Any) -> bool:
    """Close a batch when its stream has begun; always true."""
    if not (await batch.get()).closed_at:
        await batch.close()
    return first is not None


async def test_a_condition_waits_for_success_also_after_retries(office: Office) -> None:
    broken, merged = True, []

    @office.app.job("part", retries=0)
    async def part() -> None:
        if broken:
            raise ValueError

    @office.app.job("merge")
    async def merge(batch: dict[str, Any]) -> None:
        merged.append(batch["succeeded"])

    async with office.app.host():
        async with await office.jobs.batch(then="merge", condition="succeeded") as batch:
            job = await batch.submit("part")
        over = await batch.wait(60)
        assert (over.failed, over.callback) == (1, None)

        async def judged() -> bool:
            return (await events(office, batch))[-1:] == ["ended"]

        await until(judged, "the end")
        assert merged == []
        broken = False
        await job.retry()
        await until(lambda: merged == [1], "the callback")


async def test_cancel_stops_all_and_a_block_that_raises_cancels(office: Office) -> None:
    started = asyncio.Event()

    @office.app.job("long")
    async def long(ctx: relevo.JobContext) -> None:
        started.set()
        while True:
            await asyncio.sleep(0.01)
            ctx.check()

    batch = await office.jobs.batch()
    with pytest.raises(ZeroDivisionError):
        async with batch:
            await batch.submit_many("later", [{}] * 700)
            await batch.submit("long")
            async with office.app.host():
                await started.wait()
                assert (await counts(batch))["running"] == 1
                await batch.cancel()
                over = await batch.wait(60)
                assert (over.total, over.canceled) == (701, 701)
            _ = 1 / 0
    assert (await batch.get()).canceled_at is not None


async def test_an_empty_batch_ends_when_it_is_closed(office: Office, worker: Worker) -> None:
    batch = await office.jobs.batch(then="work", data={"a": 1})
    with pytest.raises(TimeoutError):
        await batch.wait(0)
    await batch.close()
    assert (await batch.wait(0)).done
    await office.jobs.batches.tend()
    await office.jobs.batches.tend()
    (claim,) = await worker.work(9)
    assert office.jobs.batches.handle(str(batch.id)).id == batch.id
    assert (await batch.get()).callback == claim["id"]


async def test_transactions_of_the_caller_make_fill_and_close(office: Office) -> None:
    connection = await asyncpg.connect(office.url)
    rolled_back = connection.transaction()
    await rolled_back.start()
    gone = await office.jobs.batch("gone", tx=connection)
    await gone.submit("work", tx=connection)
    await rolled_back.rollback()
    with pytest.raises(BatchMissing):
        await gone.get()
    with pytest.raises(BatchMissing):
        await gone.close()
    with pytest.raises(BatchMissing):
        await gone.submit("work")
    async with connection.transaction():
        batch = await office.jobs.batch("kept", then="report", owner=uuid4(), tx=connection)
        await batch.submit_many("work", [{}, {}], tx=connection)
        await batch.close(tx=connection)
    assert await counts(batch) == {"total": 2, "waiting": 2}
    with pytest.raises(BatchClosed):
        async with connection.transaction():
            await batch.submit("work", tx=connection)
    listed = await office.jobs.batches.list(ended=False)
    assert [each.id for each in listed] == [batch.id]
    assert await office.jobs.batches.list(after=(listed[0].created_at, batch.id)) == []
    await connection.close()


async def test_what_makes_no_sense_is_refused(office: Office) -> None:
    with pytest.raises(InvalidValue, match="then="):
        await office.jobs.batch(data={"a": 1})
    with pytest.raises(InvalidValue, match="ended or succeeded"):
        await office.jobs.batch(then="x", condition="never")  # type: ignore[arg-type]
    with pytest.raises(InvalidValue, match="mapping"):
        await office.jobs.batch(then="x", data=[1])
    batch = await office.jobs.batch()
    with pytest.raises(InvalidValue, match="recurrence"):
        await office.jobs.submit("work", batch=batch, recurrence="FREQ=DAILY")


async def test_concurrent_ends_neither_block_nor_deadlock_nor_lose_a_count(
    office: Office,
) -> None:
    batches = [await office.jobs.batch(then="report") for _ in range(3)]
    for batch in batches:
        await batch.submit_many("work", [{}] * 40)
    connections = [await asyncpg.connect(office.url) for _ in range(4)]
    workers = [await Worker(connection).join() for connection in connections]

    async def serve(worker: Worker, event: str) -> None:
        while claims := await worker.work(7):
            await worker.work(settle=[(row, event) for row in reversed(claims)])

    async def fold() -> None:
        while not all(each.ended_at for each in await office.jobs.batches.list()):
            await office.jobs.batches.tend()

    await asyncio.gather(
        *(serve(each, event) for each, event in zip(workers, ("done", "fail") * 2, strict=True)),
        fold(), *(batch.close() for batch in batches),
    )  # fmt: skip
    for batch in batches:
        over = await batch.get()
        assert (over.total, over.succeeded + over.failed) == (40, 40)
        assert over.callback is not None
    sql = "select count(*) from relevo.jobs where handler = 'report'"
    assert await office.database.fetchval(sql) == 3
    for connection in connections:
        await connection.close()


async def test_a_batch_is_not_closed_under_a_submit_that_is_under_way(office: Office) -> None:
    batch = await office.jobs.batch()
    connection = await asyncpg.connect(office.url)
    transaction = connection.transaction()
    await transaction.start()
    await batch.submit("work", tx=connection)
    closing = asyncio.create_task(batch.close())
    waits = "select from pg_locks where not granted"

    async def waiting() -> bool:
        return bool(await office.database.fetch(waits))

    await until(waiting, "the close to wait")
    await batch.submit("work")  # others go on
    await office.jobs.batches.tend()  # and so does the leader
    await transaction.commit()
    await closing
    assert await counts(batch) == {"total": 2, "waiting": 2}
    await connection.close()
