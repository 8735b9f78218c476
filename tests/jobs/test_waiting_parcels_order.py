"""Jobs that wait together, and hosts: they are claimed in their order, each by one host, and what
is said of one of them counts for it alone."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import asyncpg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import Struct

from relevo import App
from relevo.jobs.host import JobsPart
from tests.jobs.conftest import EMPTY
from tests.jobs.office import PARCELS, Worker, told
from tests.jobs.test_waiting_parcels import (
    ALL,
    MANY,
    counts,
    ids,
    likeness,
    once,
    rows,
    set_lane,
    submitted,
    waiting,
)
from tests.jobs.test_waiting_parcels import told as told_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from uuid import UUID

    from relevo.jobs.service import JobHandle
    from tests.jobs.office import Office

LARGEST = "create or replace function relevo.parcel_max() returns integer immutable return {}"
"""How many jobs wait in one parcel."""
BOTH = ("work", "other")


@pytest.fixture
async def crew(office: Office) -> AsyncIterator[list[Worker]]:
    """Workers on connections of their own."""
    async with AsyncExitStack() as stack:
        found = []
        for _ in range(4):
            connection = await asyncpg.connect(office.url)
            stack.push_async_callback(connection.close)
            found.append(await Worker(connection).join())
        yield found


@pytest.fixture
def worker(crew: list[Worker]) -> Worker:
    return crew[0]


async def drained(worker: Worker, room: int, handlers: Sequence[str] = ("work",)) -> list[Any]:
    """Claim until nothing is left; returns all that was claimed."""
    found: list[Any] = []
    while claimed := await worker.work(room, handlers):
        assert len(claimed) <= room
        found += claimed
    return found


async def succeed(worker: Worker, claimed: Sequence[Any]) -> list[UUID]:
    """Settle successes as hosts do; returns which were refused."""
    found = await worker.connection.fetch(
        "select kind, id from relevo.serve_jobs($1, 'worker', 99, '{}', '{}', '{}', '{}',"
        " $2::uuid[], claims => $3::bigint[])",
        worker.host, ids(claimed), [one["claim"] for one in claimed],
    )  # fmt: skip
    return [row["id"] for row in found if row["kind"] == "stale"]


# --- order ------------------------------------------------------------------------------------


@pytest.mark.anyio
@pytest.mark.parametrize("room", [1, 7, 100, MANY, ALL])
async def test_jobs_are_claimed_in_the_order_of_their_submits(
    office: Office, worker: Worker, room: int
) -> None:  # A8
    jobs: list[JobHandle[Any]] = []
    for handler in BOTH:
        jobs.append(await office.jobs.submit("work"))
        jobs += await submitted(office, handler)
        jobs.append(await office.jobs.submit("other"))
    assert ids(await drained(worker, room, BOTH)) == ids(jobs)


@pytest.mark.anyio
@pytest.mark.parametrize("room", [7, MANY, ALL])
async def test_what_is_more_urgent_comes_first_where_the_lane_says_so(
    office: Office, worker: Worker, room: int
) -> None:  # 4.1
    await set_lane(office, "priority = true")
    data: list[Any] = [{}] * MANY
    late = [*await office.jobs.submit_many("work", data), await office.jobs.submit("work")]
    soon = [
        *await office.jobs.submit_many("work", data, priority=9),
        await office.jobs.submit("work", priority=9),
    ]
    assert await waiting(office) == [MANY, MANY]
    assert ids(await drained(worker, room)) == ids([*soon, *late])


class Step(Struct, frozen=True):
    """Something that a client or a host does; `number` is how many, or which of those waiting."""

    kind: str
    number: int
    handler: str = "work"
    priority: int = 4


class Line:
    """Jobs of two handlers in one lane, and in which order they ought to be claimed."""

    def __init__(self, app: App, connection: Any, prioritised: bool) -> None:
        self.app = app
        self.connection = connection
        self.prioritised = prioritised

    async def go(self, steps: Sequence[Step]) -> None:
        await self.connection.execute(EMPTY)
        await self.connection.execute("update relevo.job_lane set priority = $1", self.prioritised)
        worker = await Worker(self.connection).join()
        self.due: list[tuple[tuple[int, int], UUID]] = []
        self.made = 0
        for step in steps:
            if step.kind == "submit":
                await self.submit(step)
            elif step.kind == "claim":
                await self.claim(worker, step.number)
            elif self.due:
                await self.command(step)
        while self.due:
            await self.claim(worker, 3)
        assert await worker.work(3, BOTH) == []

    async def submit(self, step: Step) -> None:
        options: dict[str, Any] = {"priority": step.priority}
        if step.number == 1:
            jobs = [await self.app.jobs.submit(step.handler, **options)]
        else:
            jobs = await self.app.jobs.submit_many(step.handler, [{}] * step.number, **options)
        for job in jobs:
            self.made += 1
            self.due.append(((-step.priority if self.prioritised else 0, self.made), job.id))
        self.due.sort()

    async def claim(self, worker: Worker, room: int) -> None:
        claimed = await worker.work(room, BOTH)
        assert min(1, len(self.due)) <= len(claimed) <= room
        assert ids(claimed) == [id_ for _, id_ in self.due[: len(claimed)]]  # A8
        del self.due[: len(claimed)]

    async def command(self, step: Step) -> None:
        place = step.number % len(self.due)
        job = self.app.jobs.handle(self.due[place][1])
        if step.kind == "cancel":
            await job.cancel()
            del self.due[place]
        else:  # it comes back to its place
            await job.postpone(await self.app.now())
            await job.resume()


STEPS = st.lists(
    st.one_of(
        st.builds(
            Step, st.just("submit"), st.integers(1, 9), st.sampled_from(BOTH), st.integers(0, 9)
        ),
        st.builds(Step, st.just("claim"), st.integers(1, 12)),
        st.builds(Step, st.sampled_from(["cancel", "leave"]), st.integers(0, 20)),
    ),
    max_size=20,
)


@pytest.mark.parametrize("prioritised", [False, True])
def test_whatever_waits_is_claimed_once_and_in_order(shared_url: str, prioritised: bool) -> None:
    """With small parcels: of two jobs on, and of four at most."""  # A8, 4.1

    async def opened(stack: AsyncExitStack) -> Line:
        connection = await asyncpg.connect(shared_url)
        stack.push_async_callback(connection.close)
        await connection.execute(PARCELS.format(2) + ";" + LARGEST.format(4))
        app = await stack.enter_async_context(App(settings=told(shared_url)))
        return Line(app, connection, prioritised)

    with asyncio.Runner() as runner:
        stack = AsyncExitStack()
        line = runner.run(opened(stack))

        @settings(suppress_health_check=[HealthCheck.too_slow])
        @given(steps=STEPS)
        def holds(steps: list[Step]) -> None:
            runner.run(line.go(steps))

        try:
            holds()
        finally:
            runner.run(line.connection.execute(PARCELS.format(100) + ";" + LARGEST.format(250)))
            runner.run(stack.aclose())


# --- several hosts ----------------------------------------------------------------------------


@pytest.mark.anyio
@pytest.mark.parametrize("committed", [True, False], ids=["commit", "rollback"])
@pytest.mark.parametrize("room", [40, MANY, ALL])
async def test_what_another_has_claimed_is_claimed_again_only_if_that_is_undone(
    office: Office, crew: list[Worker], room: int, committed: bool
) -> None:  # A5, A30
    jobs = [one for _ in range(4) for one in await submitted(office)]
    first, second, *_ = crew
    transaction = first.connection.transaction()
    await transaction.start()
    claimed = await first.work(room)
    assert ids(claimed) == ids(jobs[:room])
    # Of those that want many, each waits for the other's commit.
    meanwhile = await second.work(ALL if room < 100 else 99)
    await (transaction.commit() if committed else transaction.rollback())
    found = [*meanwhile, *await drained(second, ALL), *(claimed if committed else [])]
    assert Counter(ids(found)) == Counter(ids(jobs))


@pytest.mark.anyio
@pytest.mark.parametrize("taken", [1, 2])
async def test_what_a_claim_under_way_does_not_take_is_left_to_others(
    office: Office, crew: list[Worker], taken: int
) -> None:  # 4.4: it touches what it takes and nothing else
    jobs = [await submitted(office) for _ in range(3)]
    first, second, *_ = crew
    async with first.connection.transaction():
        assert len(await first.work(taken * MANY)) == taken * MANY
        assert ids(await second.work(99)) == ids(jobs[taken][:99])


@pytest.mark.anyio
async def test_hosts_that_claim_at_the_same_time_get_each_job_once(
    office: Office, crew: list[Worker]
) -> None:  # A5
    jobs = [one for _ in range(6) for one in await submitted(office)]
    found: list[Any] = []
    for _ in range(len(jobs)):
        rooms = zip(crew, (7, 99, 120, 200), strict=True)
        for claimed in await asyncio.gather(*(one.work(room) for one, room in rooms)):
            found += claimed
        if len(found) >= len(jobs):
            break
    assert Counter(ids(found)) == Counter(ids(jobs))
    assert (await waiting(office), await counts(office)) == ([], {20: len(jobs)})


@pytest.mark.anyio
async def test_a_claim_passes_by_a_parcel_of_which_one_job_is_being_moved(
    office: Office, crew: list[Worker]
) -> None:  # 6.1: it waits for nobody, and loses nothing
    jobs, others = await submitted(office), await submitted(office)
    worker, client, *_ = crew
    transaction = client.connection.transaction()
    await transaction.start()
    await client.connection.execute("select relevo.unpack_jobs($1)", [jobs[3].id])
    assert ids(await worker.work(99)) == ids(others[:99])
    await transaction.rollback()
    assert ids(await drained(worker, ALL)) == ids([*jobs, *others[99:]])


# --- crashes and ends -------------------------------------------------------------------------


@pytest.mark.anyio
async def test_what_a_lost_host_held_is_ready_again_and_its_late_word_refused(
    office: Office, crew: list[Worker]
) -> None:  # S14, A5, A16
    jobs = await submitted(office, many=400)
    lost, other, *_ = crew
    claimed = await lost.work(ALL)
    held = "select count(*), count(distinct claim) from relevo.job_parcel where host = $1"
    assert tuple(await lost.connection.fetchrow(held, lost.host)) == (2, 1)
    await lost.end()
    recover = "select relevo.recover_jobs(1000, 3)"
    assert [await office.database.fetchval(recover) for _ in range(3)] == [-1, 400, 0]
    found = await office.database.fetch("select status, crashes, attempt from relevo.jobs")
    assert Counter(map(tuple, found)) == {(0, 1, 1): 400}
    assert sorted(await succeed(lost, claimed)) == sorted(ids(jobs))
    again = await other.work(ALL)
    assert ids(again) == ids(jobs)
    await lost.work(0, settle=[(one, "done") for one in claimed])
    assert sorted(lost.stale) == sorted(ids(jobs))
    assert await counts(office) == {20: 400}
    assert await succeed(other, again) == []


@pytest.mark.anyio
@pytest.mark.parametrize("events", ["none", "ends"])
@pytest.mark.parametrize("kept", [True, False], ids=["kept", "auto_delete"])
async def test_jobs_of_several_parcels_are_settled_in_pieces_and_each_once(
    office: Office, worker: Worker, kept: bool, events: str
) -> None:  # S6, A4, A21, 16
    await set_lane(office, f"events = '{events}'")
    await office.database.write(
        "insert into relevo.job_handler (name, lane, auto_delete) values ('work', 'default', $1)"
        " returning 1",
        not kept,
    )
    jobs = await submitted(office, many=400)
    claimed = await worker.work(ALL)
    assert await succeed(worker, claimed[:100]) == []
    assert await succeed(worker, claimed[200:300]) == []  # of both parcels
    assert await counts(office) == {20: 200} | ({30: 200} if kept else {})
    twice = claimed[90:100]
    assert sorted(await succeed(worker, [*claimed[100:200], *twice])) == ids(twice)
    assert await succeed(worker, claimed[300:]) == []
    assert sorted(await succeed(worker, claimed)) == ids(jobs)
    assert await counts(office) == ({30: 400} if kept else {})
    assert await office.database.fetchval("select count(*) from relevo.job_parcel") == 0
    assert await told_of(office) == (once("succeeded", jobs) if events == "ends" else Counter())


@pytest.mark.anyio
async def test_one_of_many_is_recorded_as_one_submitted_alone(
    office: Office, worker: Worker
) -> None:  # 2, 8.4
    alone = await office.jobs.submit("work", {"n": 0})
    many = await submitted(office)
    (first,), others = await worker.work(1), await worker.work(ALL)
    assert (ids(others), await rows(office)) == (ids(many), 1)
    expected = likeness(await office.row(alone))
    for one in (many[0], many[-1]):
        assert likeness(await office.row(one)) == expected
    assert await succeed(worker, [first]) == await succeed(worker, others) == []
    expected = likeness(await office.row(alone))
    for one in (many[0], many[-1]):
        assert likeness(await office.row(one)) == expected
        assert await office.events(one) == await office.events(alone)


@pytest.mark.anyio
async def test_a_claim_that_was_forgotten_settles_nothing(office: Office, worker: Worker) -> None:
    """As after a crash of the database: its host has claimed the same jobs again."""  # A5, 6.1
    await submitted(office)
    transaction = worker.connection.transaction()
    await transaction.start()
    forgotten = await worker.work(MANY)
    await transaction.rollback()
    claimed = await worker.work(MANY)
    assert ids(claimed) == ids(forgotten)
    assert await succeed(worker, [forgotten[0], claimed[1]]) == ids(forgotten[:1])
    assert await counts(office) == {20: MANY - 1, 30: 1}


# --- rows before and behind parcels -----------------------------------------------------------


@pytest.mark.anyio
async def test_series_before_and_behind_a_parcel_go_on(office: Office, worker: Worker) -> None:
    async def due() -> JobHandle[Any]:
        job = await office.jobs.submit("work", recurrence="FREQ=DAILY")
        assert await office.app.parts.of(JobsPart).timers.start_series() == 1
        return job

    before, many, behind = await due(), await submitted(office), await due()
    assert ids(await worker.work(ALL)) == ids([before, *many, behind])
    next_rows = "select series from relevo.job where status = 10 order by series"
    found = await office.database.fetch(next_rows)
    assert [row["series"] for row in found] == ids([before, behind])


@pytest.mark.anyio
async def test_platform_jobs_before_and_behind_a_parcel_are_told_of_once(
    office: Office, worker: Worker
) -> None:  # 16
    before = await office.jobs.submit("work", system=True)
    many = await submitted(office)
    behind = await office.jobs.submit("work", system=True)
    assert ids(await worker.work(ALL)) == ids([before, *many, behind])
    assert await told_of(office) == once("submitted", [before, behind]) + once(
        "started", [before, behind]
    )


@pytest.mark.anyio
async def test_with_one_that_a_host_was_lost_with_no_more_are_claimed_than_can_begin(
    office: Office, crew: list[Worker]
) -> None:  # S14: few others are with one that brings hosts down
    lost, other, *_ = crew
    jobs = [await office.jobs.submit("work") for _ in range(20)]
    await lost.work(20)
    await lost.end()
    assert await office.database.fetchval("select relevo.recover_jobs(100, 3)") == 20
    await submitted(office)
    assert ids(await other.work(ALL, slots=[2])) == ids(jobs[:2])
