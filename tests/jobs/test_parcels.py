"""Jobs that are submitted or claimed by the hundred: nobody but the database sees that they travel
together."""

from __future__ import annotations

import asyncio
import secrets
from collections import Counter
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import asyncpg
import pytest

from relevo.jobs.model import Lane
from relevo.kernel.running.verdicts import Fail, RetryLater
from tests.jobs.office import Worker, until

if TYPE_CHECKING:
    from collections.abc import Sequence

    from relevo.jobs.service import JobHandle
    from tests.jobs.office import Office

pytestmark = pytest.mark.anyio

MANY = 150
OWNED: dict[str, Any] = {"owner": uuid4()}
"""Makes jobs rows until they are claimed; others wait in parcels from the start."""
COUNT = "select status, count(*) from relevo.jobs group by status"


class Crowd:
    """Jobs that are in a parcel of one host, and wait there for a word."""

    def __init__(self, office: Office, options: dict[str, Any]) -> None:
        self.office = office
        self.options = options
        self.go = asyncio.Event()
        self.running: set[int] = set()
        self.jobs: Sequence[JobHandle[Any]] = []

    async def work(self, ctx: Any, n: int) -> int:
        self.running.add(n)
        await self.go.wait()
        return n

    async def gather(self, function: Any = None, **options: Any) -> None:
        """Start a host with room for all, then submit them in one transaction."""
        app = self.office.new_app()
        app.jobs.configure(Lane(name="wide", slots=MANY, **options.pop("lane", {})))
        app.job("work", lane="wide", **options)(function or self.work)
        await self.office.serve(app)
        await self.submit()

    async def submit(self) -> None:
        self.jobs = await self.office.jobs.submit_many(
            "work", [{"n": n} for n in range(MANY)], **self.options
        )

    async def until_running(self) -> None:
        await until(lambda: len(self.running) == MANY, "all run")
        assert await self.parcelled() == MANY
        assert await self.office.database.fetchval("select count(*) from relevo.job") == 0

    async def parcelled(self) -> int:
        sql = "select coalesce(sum(size - cardinality(done)), 0) from relevo.job_parcel"
        return int(await self.office.database.fetchval(sql))

    async def counts(self) -> dict[int, int]:
        return dict(map(tuple, await self.office.database.fetch(COUNT)))

    async def end(self) -> dict[int, int]:
        """Let all go, and say how they ended."""
        self.go.set()
        await until(self._all_over, "all are over")
        return await self.counts()

    async def _all_over(self) -> bool:
        return not any(status < 30 for status in await self.counts())


@pytest.fixture(params=[{}, OWNED], ids=["submitted", "claimed"])
def options(request: pytest.FixtureRequest) -> dict[str, Any]:
    """What makes jobs a parcel at once, or at their claim."""
    return dict(request.param)


@pytest.fixture
def crowd(office: Office, options: dict[str, Any]) -> Crowd:
    return Crowd(office, options)


async def test_jobs_in_a_parcel_are_seen_as_running(crowd: Crowd) -> None:  # A2, S5
    await crowd.gather()
    await crowd.until_running()
    assert await crowd.counts() == {20: MANY}
    job = await crowd.jobs[7].get()
    assert (job.status_code, job.attempt, job.host_name, job.lane) == (20, 1, "a", "wide")
    assert job.started_at is not None
    assert len(await crowd.office.jobs.query().where(state=2).top(MANY)) == MANY
    with pytest.raises(TimeoutError):
        await crowd.jobs[0].wait(0.1)
    assert await crowd.end() == {30: MANY}
    ended = await crowd.jobs[7].get()
    assert (ended.attempt, ended.result, ended.host_name, ended.progress) == (1, 7, "a", 1.0)
    assert ended.version > job.version
    assert ended.started_at == job.started_at
    assert await crowd.parcelled() == 0


async def test_each_command_reaches_a_job_in_a_parcel(crowd: Crowd) -> None:  # A10, A11, A31
    stopped: list[int] = []

    async def work(ctx: Any, n: int) -> None:
        crowd.running.add(n)
        while not crowd.go.is_set():
            try:
                ctx.check()
            except BaseException:
                stopped.append(n)
                raise
            await asyncio.sleep(0.01)

    await crowd.gather(work)
    await crowd.until_running()
    canceled, paused, postponed, deleted, *_ = crowd.jobs
    await canceled.cancel()
    await paused.pause()
    await postponed.postpone(await crowd.office.app.now())
    await deleted.delete()
    assert await crowd.parcelled() == MANY - 4
    await until(lambda: len(stopped) == 4, "all four were asked")
    await crowd.office.until_status(canceled, 32)
    await crowd.office.until_status(paused, 10)
    await crowd.office.until_status(deleted, None)
    await paused.resume()
    assert await crowd.end() == {30: MANY - 2, 32: 1}


async def test_what_a_running_job_in_a_parcel_writes_is_written(crowd: Crowd) -> None:  # 6.2, 5.3
    await crowd.office.database.write("create table if not exists effect (n integer)")
    await crowd.office.database.write("truncate effect")

    async def work(ctx: Any, n: int) -> None:
        if n % 3 == 0:
            await ctx.checkpoint(progress=0.5, state={"n": n})
        elif n % 3 == 1:
            async with ctx.transaction(result=n) as tx:
                await tx.execute("insert into effect values ($1)", n)
        crowd.running.add(n)
        await crowd.go.wait()

    await crowd.gather(work)
    await until(lambda: len(crowd.running) == MANY, "all run")
    kept = await crowd.jobs[0].get()
    assert (kept.status_code, kept.progress, kept.saved) == (20, 0.5, {"n": 0})
    assert (await crowd.jobs[1].get()).result == 1
    assert await crowd.end() == {30: MANY}
    assert await crowd.office.database.fetchval("select count(*) from effect") == MANY // 3


async def test_handlers_that_write_while_they_run_are_claimed_one_by_one(crowd: Crowd) -> None:
    async def work(ctx: Any, n: int) -> None:
        await ctx.checkpoint(progress=0.5)
        crowd.running.add(n)
        await crowd.go.wait()

    await crowd.gather(work)
    await until(lambda: len(crowd.running) == MANY, "all run")
    assert await crowd.end() == {30: MANY}
    crowd.go.clear()
    crowd.running.clear()
    await crowd.submit()
    await until(lambda: len(crowd.running) == MANY, "all run again")
    held = "select count(*) from relevo.job where host is not null"
    assert await crowd.office.database.fetchval(held) == MANY
    crowd.go.set()


async def test_those_that_fail_leave_the_parcel_and_the_others_succeed(crowd: Crowd) -> None:  # 6.3
    async def work(ctx: Any, n: int) -> None:
        crowd.running.add(n)
        await crowd.go.wait()
        if n % 10 == 0:
            raise Fail(None, str(n))
        if n % 10 == 1:
            raise RetryLater(3600)

    await crowd.gather(work)
    await crowd.until_running()
    crowd.go.set()
    tenth = MANY // 10
    await until(lambda: _is(crowd, {30: 8 * tenth, 31: tenth, 10: tenth}), "all are settled")
    retried = await crowd.jobs[1].get()
    assert (retried.attempt, retried.retries) == (1, 1)


async def _is(crowd: Crowd, wanted: dict[int, int]) -> bool:
    return await crowd.counts() == wanted


async def test_a_host_that_stops_gives_its_parcel_back(crowd: Crowd) -> None:  # S17
    app = crowd.office.new_app(drain_seconds=0.1)
    app.jobs.configure(Lane(name="wide", slots=MANY))
    app.job("work", lane="wide")(crowd.work)
    async with app.host():
        await crowd.submit()
        await crowd.until_running()
    assert await crowd.counts() == {0: MANY}
    assert await crowd.parcelled() == 0


@pytest.mark.parametrize("kept", [False, True])
@pytest.mark.parametrize("events", ["none", "ends"])
async def test_records_and_events_are_as_of_any_other_job(
    crowd: Crowd, kept: bool, events: str
) -> None:  # 8.4, 16
    await crowd.gather(auto_delete=not kept, lane={"events": events})
    await crowd.until_running()
    assert await crowd.end() == ({30: MANY} if kept else {})
    told = Counter(
        row["type"].removeprefix("relevo.job.")
        for row in await crowd.office.database.fetch("select type from relevo.event")
        if row["type"].startswith("relevo.job.")
    )
    assert told == ({"succeeded": MANY} if events == "ends" else {})


# --- what may go wrong, step by step ----------------------------------------------------------


@pytest.fixture
async def worker(office: Office) -> Any:
    connection = await asyncpg.connect(office.url)
    yield await Worker(connection).join()
    await connection.close()


async def test_what_an_ended_host_held_is_found_and_its_late_word_refused(
    office: Office, worker: Worker, options: dict[str, Any]
) -> None:  # A5, A16, S14
    await office.jobs.submit_many("work", [{}] * MANY, **options)
    claimed = await worker.work(MANY)
    assert len(claimed) == MANY
    assert await office.database.fetchval("select size from relevo.job_parcel") == MANY
    await worker.end()
    recover = "select relevo.recover_jobs(1000, 3)"
    assert await office.database.fetchval(recover) == -1  # unpacked, in a commit of its own
    assert await office.database.fetchval(recover) == MANY
    rows = await office.database.fetch("select status, crashes, attempt from relevo.jobs")
    assert {tuple(row) for row in rows} == {(0, 1, 1)}
    await worker.work(0, settle=[(row, "done") for row in claimed])
    assert len(worker.stale) == MANY


async def test_a_parcel_is_settled_in_pieces_and_each_job_once(
    office: Office, worker: Worker, options: dict[str, Any]
) -> None:  # A5
    await office.jobs.submit_many("work", [{}] * MANY, **options)
    claimed = await worker.work(MANY)
    first, second = claimed[:100], claimed[100:]
    assert await _done(worker, first) == 0
    assert await _done(worker, [*first[:10], *second]) == 10  # those were settled before
    rows = await office.database.fetch(COUNT)
    assert [tuple(row) for row in rows] == [(30, MANY)]
    assert await office.database.fetchval("select count(*) from relevo.job_parcel") == 0


async def _done(worker: Worker, rows: Sequence[Any]) -> int:
    """Settle successes in the quick way; returns how many were refused."""
    ids, claims = [row["id"] for row in rows], [row["claim"] for row in rows]
    told = await worker.connection.fetch(
        "select kind from relevo.serve_jobs($1, 'worker', 99, '{}', '{}', '{}', '{}', $2::uuid[],"
        " claims => $3::bigint[])",
        worker.host, ids, claims,
    )  # fmt: skip
    return len([row for row in told if row["kind"] == "stale"])


async def test_a_command_waits_for_a_claim_under_way_and_finds_its_job(
    office: Office, worker: Worker, options: dict[str, Any]
) -> None:  # 3.3: never "there is no such job"
    jobs = await office.jobs.submit_many("work", [{}] * MANY, **options)
    transaction = worker.connection.transaction()
    await transaction.start()
    assert len(await worker.work(MANY)) == MANY
    asked = asyncio.ensure_future(jobs[3].cancel())
    await until(lambda: _waits(office), "the command waits")
    await transaction.commit()
    await asked
    assert await office.status(jobs[3]) == 22


async def test_what_is_moved_while_a_claim_is_under_way_is_found(
    office: Office, worker: Worker, options: dict[str, Any]
) -> None:  # A20, A31: as a bulk delete of jobs does
    jobs = await office.jobs.submit_many("work", [{}] * MANY, **options)
    transaction = worker.connection.transaction()
    await transaction.start()
    assert len(await worker.work(MANY)) == MANY
    moved = asyncio.ensure_future(
        office.database.write("select id from relevo.move_jobs($1, '{delete}')", [jobs[3].id])
    )
    await until(lambda: _waits(office), "it waits")
    await transaction.commit()
    assert [row["id"] for row in await moved] == [jobs[3].id]
    assert await office.status(jobs[3]) is None


async def test_a_job_that_left_its_parcel_has_no_more_to_do_with_it(
    office: Office, worker: Worker, options: dict[str, Any]
) -> None:
    """A settlement of the others, which has not committed yet, does not hold it up."""
    jobs = await office.jobs.submit_many("work", [{}] * MANY, **options)
    claimed = await worker.work(MANY)
    await office.database.write("select relevo.unpack_jobs($1)", [jobs[0].id])
    transaction = worker.connection.transaction()
    await transaction.start()
    assert await _done(worker, claimed[1:100]) == 0
    await jobs[0].cancel()
    assert await office.status(jobs[0]) == 22
    await transaction.commit()


async def _waits(office: Office) -> bool:
    sql = "select exists (select from pg_locks where not granted)"
    return bool(await office.database.fetchval(sql))


@pytest.mark.parametrize(
    "special",
    [{"token": "t"}, {"system": True}, {"data": {"big": secrets.token_urlsafe(6_000)}}],
    ids=lambda value: next(iter(value)),
)
async def test_with_a_special_one_among_them_each_is_claimed_by_itself(
    office: Office, worker: Worker, special: dict[str, Any]
) -> None:
    await office.jobs.submit("work", **special)
    await office.jobs.submit_many("work", [{}] * MANY, **OWNED)
    assert len(await worker.work(MANY)) == MANY
    assert await office.database.fetchval("select count(*) from relevo.job_parcel") == 0


async def test_the_probe_of_a_brake_is_a_row(office: Office, worker: Worker) -> None:  # 6.4
    """What becomes of it is looked for there: in a parcel it would count as gone."""
    probe = await office.jobs.submit("bad")
    await office.database.write(
        "insert into relevo.job_brake (extension, since, until, probe, handlers)"
        " values ('bad', relevo.now(), relevo.now(), $1, '{bad}') returning 1",
        probe.id,
    )
    await office.jobs.submit_many("work", [{}] * MANY, **OWNED)
    claimed = await worker.work(MANY + 1, handlers=("work", "bad"))
    assert probe.id in {row["id"] for row in claimed}
    assert await office.database.fetchval("select count(*) from relevo.job_parcel") == 0
