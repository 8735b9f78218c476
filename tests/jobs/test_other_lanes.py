"""Jobs that are stored in another lane than the one in which a host serves their handler (4.1)."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import asyncpg
import pytest

from relevo.jobs.core.operation_types import WORKFLOW
from relevo.jobs.host import JobsPart
from relevo.jobs.model import Lane
from relevo.workflows import Return, Stage
from tests.jobs.office import ROWS, Worker

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable

    from relevo import App
    from relevo.testing.clock import Clock
    from tests.jobs.office import Office

pytestmark = pytest.mark.anyio
ANA, BEN = uuid4(), uuid4()
WIDE = Lane(name="wide", slots=4)
THIN = Lane(name="thin", slots=4, max_running_per_owner=1)
LEAN = Lane(name="lean", slots=4, max_running_per_owner=1)
SHARED = Lane(name="shared", slots=4, shared_tokens=True)


async def nothing(ctx: Any, /, **_: Any) -> None: ...


async def host(
    office: Office, lane: Lane, function: Callable[..., Any] = nothing, name: str = "a"
) -> App:
    """Start a host that serves `work` in a lane."""
    app = office.new_app(name)
    app.jobs.configure(lane)
    app.job("work", lane=lane.name)(function)
    return await office.serve(app)


@pytest.fixture
async def worker(office: Office) -> AsyncIterator[Worker]:
    connection = await asyncpg.connect(office.url)
    worker = await Worker(connection).join()
    worker.lanes = {"work": "bulk"}
    yield worker
    await connection.close()


async def fill(office: Office, rows: int = 20, parcel: int = 300) -> list[Any]:
    """Jobs of every shape: plain rows, with an owner, with a token, and in parcels."""
    jobs = [await office.jobs.submit("work") for _ in range(rows)]
    jobs += [await office.jobs.submit("work", owner=ANA) for _ in range(rows)]
    jobs += [await office.jobs.submit("work", token="t") for _ in range(rows // 2)]
    return jobs + await office.jobs.submit_many("work", [{"n": n} for n in range(parcel)])


async def ended(jobs: list[Any]) -> None:
    await asyncio.gather(*(one.wait(60) for one in jobs))


async def lanes(office: Office) -> set[str]:
    return {row["lane"] for row in await office.database.fetch(f"select lane from {ROWS} j")}


async def test_what_was_submitted_before_the_first_host_runs(office: Office) -> None:
    jobs = await fill(office)
    await host(office, WIDE)
    await ended(jobs)
    assert await lanes(office) == {"wide"}


async def test_a_series_from_before_the_first_host_goes_on_in_the_lane_of_its_handler(
    office: Office,
) -> None:
    first = await office.jobs.submit("work", recurrence="FREQ=MINUTELY")
    await host(office, WIDE)
    await first.wait(60)
    rows = await office.database.fetch("select lane from relevo.jobs where series = $1", first.id)
    assert {row["lane"] for row in rows} == {"wide"}
    assert len(rows) == 2  # the next one waits


async def test_a_workflow_that_no_host_had_said_anything_of_runs(office: Office) -> None:
    jobs = [await office.jobs.submit("order", {"number": "a1"})]
    jobs += await office.jobs.submit_many("order", [{"number": "a2"}] * 150)
    app = office.new_app()

    @app.workflow("order")
    async def order(ctx: Any, number: str) -> AsyncGenerator[Any, Any]:
        yield Stage("charge")
        yield Return(number)

    await office.serve(app)
    assert await jobs[0].wait(60) == "a1"
    assert {await one.wait(60) for one in jobs[1:]} == {"a2"}
    found = [await one.get() for one in jobs]
    assert {(one.lane, one.operation_type) for one in found} == {("workflow", WORKFLOW)}


async def test_what_waits_when_a_deployment_moves_a_handler_runs(office: Office) -> None:
    async with office.new_app("old") as old:
        old.job("work")(nothing)
        await old.parts.of(JobsPart).declare()
    jobs = await fill(office, rows=50)
    assert await lanes(office) == {"default"}
    await host(office, WIDE, name="new")
    await ended(jobs)
    assert await lanes(office) == {"wide"}


async def test_hosts_that_serve_a_handler_in_different_lanes_share_its_jobs(
    office: Office,
) -> None:
    """A job goes to a lane when a host of that lane takes it, and stays there."""
    seen: set[str] = set()
    both = asyncio.Event()

    def as_host(name: str) -> Callable[..., Any]:
        async def work(ctx: Any, **_: Any) -> str:
            seen.add(name)
            if len(seen) == 2:
                both.set()
            await both.wait()
            return name

        return work

    jobs = await fill(office, parcel=0)
    await host(office, WIDE, as_host("old"), "old")
    await host(office, THIN, as_host("new"), "new")
    await ended(jobs)
    jobs += await fill(office, parcel=150)
    await ended(jobs)
    where = await office.database.fetch(f"select lane, result, version, attempt from {ROWS} j")
    assert {(row["lane"], row["result"]) for row in where} == {
        ("wide", '"old"'), ("thin", '"new"'),
    }  # fmt: skip
    assert {row["attempt"] for row in where} == {1}
    # Submitted, moved at most twice (a cap made it wait), claimed, done.
    assert max(row["version"] for row in where) <= 5


class Tally:
    """Counts how many jobs of an owner run at once."""

    def __init__(self) -> None:
        self.now: dict[Any, int] = {}
        self.most = 0

    async def work(self, ctx: Any) -> None:
        self.now[ctx.owner] = self.now.get(ctx.owner, 0) + 1
        self.most = max(self.most, self.now[ctx.owner])
        for _ in range(20):
            await asyncio.sleep(0)
        self.now[ctx.owner] -= 1


async def test_the_cap_of_the_lane_that_serves_them_holds_for_all(office: Office) -> None:
    jobs = [
        await office.jobs.submit("work", owner=owner) for _ in range(20) for owner in (ANA, BEN)
    ]
    tally = Tally()
    await host(office, THIN, tally.work)
    await ended(jobs)
    assert tally.most == 1


async def test_the_cap_of_a_lane_that_nobody_serves_holds_up_nobody(office: Office) -> None:
    old = office.new_app("old")
    old.jobs.configure(THIN)
    old.job("work", lane="thin")(nothing)
    async with old:
        await old.parts.of(JobsPart).declare()
    jobs = [await office.jobs.submit("work", owner=ANA) for _ in range(30)]
    assert await lanes(office) == {"thin"}
    await host(office, WIDE, name="new")
    await ended(jobs)


async def test_hosts_with_caps_in_both_lanes_come_to_an_end(office: Office) -> None:
    first, second = Tally(), Tally()
    jobs = [await office.jobs.submit("work", owner=ANA) for _ in range(30)]
    await host(office, THIN, first.work, "old")
    await host(office, LEAN, second.work, "new")
    jobs += [await office.jobs.submit("work", owner=ANA) for _ in range(30)]
    await ended(jobs)
    assert max(first.most, second.most) == 1


async def test_tokens_are_shared_as_the_lane_that_serves_them_says(office: Office) -> None:
    """The lane was not known at the submit, and so each owner had a chain."""
    order: list[tuple[Any, str]] = []

    async def work(ctx: Any, number: int) -> None:
        order.append((number, "begins"))
        for _ in range(20):
            await asyncio.sleep(0)
        order.append((number, "ends"))

    jobs = [
        await office.jobs.submit("work", {"number": n}, token="t", owner=ANA if n % 2 else BEN)
        for n in range(10)
    ]
    await host(office, SHARED, work)
    await ended(jobs)
    numbers = [number for number, _ in order]
    assert numbers[::2] == numbers[1::2]  # each ends before the next begins


async def test_priority_counts_in_the_lane_that_goes_by_it(office: Office, worker: Worker) -> None:
    jobs = {n: await office.jobs.submit("work", priority=n) for n in (1, 9, 4)}
    app = office.new_app()
    app.jobs.configure(Lane(name="bulk", priority=True))
    async with app:
        await app.parts.of(JobsPart).declare()
    claimed = [row["id"] for row in await worker.work(3)]
    assert claimed == [jobs[9].id, jobs[4].id, jobs[1].id]


async def test_a_job_whose_handler_is_served_elsewhere_is_not_failed_as_unserved(
    office: Office, clock: Clock
) -> None:  # 4.3
    stop = asyncio.Event()

    async def wait(ctx: Any) -> None:
        await stop.wait()

    app = await host(office, Lane(name="one", slots=1), wait)
    jobs = [await office.jobs.submit("work") for _ in range(3)]
    await office.database.write("update relevo.job set lane = 'bulk' where status = 0 returning 1")
    for _ in range(3):
        await clock.advance(4 * 60)
        await app.parts.of(JobsPart).declare()
    assert await app.parts.of(JobsPart).timers.fail_unserved() == 0
    stop.set()
    await ended(jobs)


async def test_a_brake_holds_jobs_of_its_handler_in_every_lane(
    office: Office, worker: Worker
) -> None:  # 6.4
    await office.jobs.submit("work")
    await office.jobs.submit("work", lane="bulk")
    await office.database.write(
        "insert into relevo.job_brake (extension, since, until, handlers) values"
        " ('work', relevo.now(), relevo.now() + interval '1 hour', '{work}') returning 1"
    )
    assert await worker.work(10) == []


async def test_a_claim_touches_what_it_takes_also_in_another_lane(
    office: Office, worker: Worker
) -> None:  # 4.4
    async def buffers() -> int:
        return min([await once() for _ in range(3)])  # the server may plan anew in between

    async def once() -> int:
        transaction = worker.connection.transaction()
        await transaction.start()
        plan = await worker.connection.fetch(
            "explain (analyze, buffers, timing off, costs off) select * from"
            " relevo.serve_jobs($1, 'w', 1, '{bulk}', '{10}', '{bulk}', '{work}')",
            worker.host,
        )
        await transaction.rollback()
        text = "\n".join(line[0] for line in plan)
        return sum(map(int, re.findall(r"shared hit=(\d+)", text.split("Planning")[0])))

    for _ in range(20):
        await office.jobs.submit("work")
    few = await buffers()
    await office.database.write(
        "insert into relevo.job (id, rank, created_at, modified_at, status, lane, handler, name,"
        " data) select relevo.uuid7(), 9e17::bigint, relevo.now(), relevo.now(), 0, 'default',"
        " 'work', 'work', '{}' from generate_series(1, 50000) returning 1"
    )
    assert await buffers() <= few + 100
    await office.database.run(lambda tx: tx.execute("analyze relevo.job"))  # other plans, perhaps
    assert await buffers() <= few + 100
