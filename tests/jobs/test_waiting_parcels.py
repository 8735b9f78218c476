"""Jobs that were submitted by the hundred and wait together: whoever looks at one of them, commands
it or has it wait longer finds it as if it had been submitted alone."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import asyncpg
import pytest

from relevo.jobs.brakes import PAUSE
from relevo.jobs.core import codes
from relevo.jobs.errors import JobMissing, JobRefused
from relevo.jobs.host import JobsPart
from relevo.jobs.model import Lane
from tests.jobs.office import Worker, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from uuid import UUID

    from relevo.jobs.service import JobHandle
    from relevo.testing.clock import Clock
    from tests.jobs.office import Office

pytestmark = pytest.mark.anyio

MANY = 150
ALL = 1_000
"""More room than there are jobs."""
OF_EACH = frozenset({"id", "sequence", "rank", "data", "claim", "run_seconds"})
"""Columns in which jobs differ, however they were submitted."""
TIMES = ("created_at", "started_at", "completed_at")


async def waiting(office: Office) -> list[int]:
    """How many jobs are in each parcel that waits."""
    rows = await office.database.fetch(
        "select size - cardinality(done) from relevo.job_parcel where host is null order by number"
    )
    return [row[0] for row in rows]


async def rows(office: Office) -> int:
    """How many live jobs are rows."""
    return int(await office.database.fetchval("select count(*) from relevo.job"))


async def counts(office: Office) -> dict[int, int]:
    """How many jobs have each status."""
    found = await office.database.fetch("select status, count(*) from relevo.jobs group by status")
    return {row[0]: row[1] for row in found}


async def told(office: Office) -> Counter[tuple[str, str]]:
    """How often the log says something of a job."""
    found = await office.database.fetch(
        "select type, subject from relevo.event where type like 'relevo.job.%'"
    )
    return Counter((row["type"].removeprefix("relevo.job."), row["subject"]) for row in found)


def once(what: str, jobs: Sequence[JobHandle[Any]]) -> Counter[tuple[str, str]]:
    """What the log says if something happened to each of some jobs."""
    return Counter((what, f"job/{one.id}") for one in jobs)


def ids(found: Sequence[Any]) -> list[UUID]:
    """Keys of jobs or of claims."""
    return [one["id"] if isinstance(one, dict) else one.id for one in found]


async def set_lane(office: Office, change: str) -> None:
    """Change the lane `default`, as a host does that was configured anew."""
    await office.database.write(
        f"update relevo.job_lane set {change} where name = 'default' returning 1"
    )


def likeness(row: Any) -> dict[str, Any]:
    """What jobs have in common that differ in key and data alone; times only in their relations."""
    found = {name: value for name, value in row.items() if name not in OF_EACH}
    found["correlation"] = row["correlation"] == row["id"]
    found["rank"] = row["rank"] - round(row["created_at"].timestamp() * 1_000_000)
    for name in ("modified_at", "correlation_at"):
        found[name] = [one for one in TIMES if row[one] == row[name]]
    return found | {name: row[name] is not None for name in TIMES}


class Tally:
    """Counts runs."""

    def __init__(self, office: Office) -> None:
        self.office = office
        self.ran: Counter[int] = Counter()

    async def work(self, ctx: Any, /, n: int = 0, **_: Any) -> None:
        self.ran[n] += 1

    async def until_over(self, left: int = 0) -> dict[int, int]:
        """Wait until nothing but `left` suspended jobs is live; returns how many ended how."""

        async def over() -> bool:
            found = await counts(self.office)
            return sum(n for status, n in found.items() if status < 30) == left

        async def says() -> str:
            return f"all are over: {await counts(self.office)}"

        await until(over, says)
        return await counts(self.office)


@pytest.fixture
async def worker(office: Office) -> AsyncIterator[Worker]:
    connection = await asyncpg.connect(office.url)
    yield await Worker(connection).join()
    await connection.close()


@pytest.fixture
def tally(office: Office) -> Tally:
    return Tally(office)


async def submitted(office: Office, handler: str = "work", many: int = MANY) -> list[Any]:
    """Submit jobs that are counted by `n`, and see that they wait in parcels."""
    before = sum(await waiting(office))
    jobs = await office.jobs.submit_many(handler, [{"n": n} for n in range(many)])
    assert sum(await waiting(office)) - before == many
    return jobs


# --- readers and commands ---------------------------------------------------------------------


async def test_waiting_jobs_are_ready_to_every_reader(office: Office) -> None:  # S1, 10.5
    jobs = await submitted(office)
    assert await rows(office) == 0
    assert await counts(office) == {0: MANY}
    ready = office.jobs.query().where(state=0)
    assert ids(await ready) == ids(jobs)
    assert await ready.count() == MANY
    assert ids(await office.jobs.query().filter("statecode eq 0").order_by("-sequence").top(2)) == [
        jobs[-1].id, jobs[-2].id,
    ]  # fmt: skip
    assert await office.jobs.query().where(state=(1, 2, 3)).count() == 0
    views, job = office.jobs.views, await jobs[7].get()
    assert [(one.state, one.jobs) for one in await views.counts()] == [("ready", MANY)]
    (lane,) = [one for one in await views.lanes() if one.name == "default"]
    assert (lane.ready, lane.running, lane.oldest) == (MANY, 0, job.created_at)
    (line,) = await views.waiting()
    assert (line.jobs, line.blocked, line.oldest) == (MANY, 0, job.created_at)
    assert [(one.name, one.jobs) for one in await views.volumes()] == [("work", MANY)]
    assert await views.running() == []
    assert await office.jobs.chains.blocked_by(ids(jobs)) == {}


async def test_who_waits_for_the_end_of_a_waiting_job_goes_on_waiting(office: Office) -> None:  # 16
    jobs = await submitted(office)
    for handle in (jobs[0], office.jobs.handle(jobs[-1].id)):
        for timeout in (0, 0.1):
            with pytest.raises(TimeoutError):
                await handle.wait(timeout)


@pytest.mark.parametrize("options", [{}, {"name": "pair", "priority": 7, "lane": "bulk"}])
async def test_one_of_many_has_the_record_of_one_submitted_alone(
    office: Office, options: dict[str, Any]
) -> None:  # 2, 4.2
    alone = await office.jobs.submit("work", {"n": 0}, **options)
    many = await office.jobs.submit_many("work", [{"n": n} for n in range(MANY)], **options)
    assert (await waiting(office), await rows(office)) == ([MANY], 1)
    first, *others = [await one.get() for one in (alone, *many)]
    assert {(one.status_code, one.attempt, one.version) for one in others} == {(0, 0, 1)}
    assert [one.data for one in others] == [{"n": n} for n in range(MANY)]
    numbers = [one.sequence for one in (first, *others)]
    assert numbers == sorted(set(numbers))
    expected = likeness(await office.row(alone))
    for one in (many[0], many[-1]):
        assert likeness(await office.row(one)) == expected


async def test_each_command_reaches_one_waiting_job_and_the_others_run(
    office: Office, tally: Tally
) -> None:  # 3.3, A10
    jobs = await submitted(office)
    canceled, paused, resumed, postponed, deleted, *_ = jobs
    later = await office.app.now() + timedelta(hours=1)
    await canceled.cancel()
    with pytest.raises(JobRefused) as refused:
        await paused.pause()
    assert refused.value.error_code == codes.CANNOT_PAUSE
    for job in (resumed, postponed):
        await job.postpone(later)
        assert ((await job.get()).status_code, (await job.get()).postpone_until) == (10, later)
    await resumed.resume()
    await deleted.delete()
    with pytest.raises(JobMissing):
        await deleted.get()
    assert await counts(office) == {0: MANY - 3, 10: 1, 32: 1}
    assert [await office.status(one) for one in jobs[:6]] == [32, 0, 0, 10, None, 0]
    await office.host({"work": tally.work})
    assert await tally.until_over(left=1) == {10: 1, 30: MANY - 3, 32: 1}
    assert tally.ran == Counter(set(range(MANY)) - {0, 3, 4})


async def test_a_version_that_was_read_still_holds_for_a_command(office: Office) -> None:  # 3.3
    jobs = await submitted(office)
    read = await jobs[9].get()
    assert await office.jobs.command(jobs[9].id, "cancel", version=read.version) == 32


async def test_commands_at_the_same_time_leave_the_rest_of_a_parcel_alone(
    office: Office, worker: Worker
) -> None:  # A5
    jobs = await submitted(office)
    await asyncio.gather(
        *(one.cancel() for one in jobs[::2]), *(one.delete() for one in jobs[1:9:2])
    )
    assert await counts(office) == {0: MANY // 2 - 4, 32: MANY // 2}
    assert ids(await worker.work(ALL)) == ids(jobs[9::2])
    await asyncio.gather(*(one.delete() for one in jobs[::2]))
    assert (await waiting(office), await counts(office)) == ([], {20: MANY // 2 - 4})


async def test_only_who_has_the_handler_touches_what_waits_for_it(
    office: Office, worker: Worker
) -> None:  # 4.3, 6.1
    jobs = await submitted(office)
    others = await submitted(office, "other")
    for room in (7, ALL):
        assert ids(await worker.work(room, ["other", "third"])) == ids(others[:room])
        others = others[room:]
    assert await worker.work(ALL, ["other", "third"]) == []
    assert await waiting(office) == [MANY]
    assert ids(await worker.work(ALL)) == ids(jobs)


# --- brakes and timers ------------------------------------------------------------------------


async def test_what_a_brake_holds_waits_until_its_probe_succeeds(
    office: Office, worker: Worker, clock: Clock
) -> None:  # 6.4, S19, A32
    both, brakes = ("bad", "work"), office.jobs.brakes
    bad, first = await submitted(office, "bad"), await submitted(office)
    await office.database.write(
        "insert into relevo.job_brake (extension, since, until, handlers) values"
        " ('bad', relevo.now(), relevo.now() + $1, '{bad}') returning 1",
        PAUSE,
    )
    (brake,) = await brakes.list()
    assert ids(await worker.work(ALL, both)) == ids(first)  # whether or not the leader has looked
    assert await brakes.watch() == MANY
    held = [await one.get() for one in bad]
    assert {(one.status_code, one.error_code) for one in held} == {(10, codes.BRAKED)}
    assert {one.postpone_until for one in held} == {brake.until}
    assert await worker.work(ALL, both) == []
    second = await submitted(office)
    await clock.advance(PAUSE)
    await brakes.watch()
    (probe,) = await worker.work(1, both)
    assert probe["id"] == bad[0].id
    assert await waiting(office) == [MANY]
    await worker.work(0, settle=[(probe, "done")])
    await brakes.watch()
    assert await brakes.list() == []
    assert ids(await worker.work(ALL, both)) == ids([*bad[1:], *second])


async def test_a_probe_runs_beside_parcels_of_others_that_came_before_it(
    office: Office, worker: Worker
) -> None:  # 6.4, A32
    others = await submitted(office)
    probe = await office.jobs.submit("bad")
    await office.database.write(
        "insert into relevo.job_brake (extension, since, until, probe, handlers) values"
        " ('bad', relevo.now(), relevo.now(), $1, '{bad}') returning 1",
        probe.id,
    )
    await submitted(office, "bad")  # held, though nobody has moved it yet
    assert ids(await worker.work(ALL, ["bad", "work"])) == [*ids(others), probe.id]
    assert await worker.work(ALL, ["bad", "work"]) == []


async def test_what_nobody_serves_fails_after_ten_minutes(
    office: Office, worker: Worker, clock: Clock
) -> None:  # 4.3, S7
    serve = (
        "insert into relevo.job_handler (name, lane) values ('known', 'default')"
        " on conflict (name) do update set served_at = relevo.now() returning 1"
    )
    await office.database.write(serve)
    unknown, known = await submitted(office, "unknown", 1_600), await submitted(office, "known")
    await clock.advance(9 * 60)
    assert await office.app.parts.of(JobsPart).timers.fail_unserved() == 0
    assert sum(await waiting(office)) == 1_600 + MANY
    await clock.advance(2 * 60)
    await office.database.write(serve)
    late = await submitted(office, "unknown")
    failed = 0
    while found := await office.app.parts.of(JobsPart).timers.fail_unserved():
        failed += found
    assert failed == 1_600
    assert {
        (one.status_code, one.error_code) for one in await office.jobs.query().where(state=3)
    } == {(31, codes.HANDLER_MISSING)}
    assert sorted(ids(await office.jobs.query().where(state=3))) == sorted(ids(unknown))
    assert [await office.status(one) for one in (known[0], late[0])] == [0, 0]
    assert ids(await worker.work(ALL, ["known"])) == ids(known)


async def test_what_waits_for_a_deactivated_extension_is_canceled(
    office: Office, worker: Worker
) -> None:  # S20, 6.4
    gone = [one for _ in range(8) for one in await submitted(office, "gone")]
    others = await submitted(office)
    assert await office.jobs.brakes.deactivate("gone") == 8 * MANY
    assert await counts(office) == {0: MANY, 32: 8 * MANY}
    assert {await office.status(one) for one in (gone[0], gone[-1])} == {32}
    assert ids(await worker.work(ALL, ["gone", "work"])) == ids(others)


# --- lanes and what makes rows ----------------------------------------------------------------


async def test_where_all_is_told_each_is_a_row_and_told_of(office: Office, worker: Worker) -> None:
    await set_lane(office, "events = 'all'")  # 16
    jobs = await office.jobs.submit_many("work", [{}] * MANY)
    assert (await waiting(office), await rows(office)) == ([], MANY)
    assert await told(office) == once("submitted", jobs)
    await worker.work(ALL)
    assert await told(office) == once("submitted", jobs) + once("started", jobs)


@pytest.mark.parametrize("many", [MANY, 2 * MANY], ids=["one parcel", "two parcels"])
async def test_where_all_is_told_from_now_on_the_start_of_those_that_wait_is(
    office: Office, worker: Worker, many: int
) -> None:  # 16: one row per transition
    jobs = await submitted(office, many=many)
    await set_lane(office, "events = 'all'")
    claimed = await worker.work(ALL)
    assert ids(claimed) == ids(jobs)
    assert await told(office) == once("started", jobs)


async def test_where_owners_have_a_cap_from_now_on_those_that_wait_run(
    office: Office, tally: Tally
) -> None:  # 4.1
    await submitted(office, many=2 * MANY)
    app = office.new_app()
    app.jobs.configure(Lane(name="default", max_running_per_owner=1))
    app.job("work")(tally.work)
    await office.serve(app)
    assert await tally.until_over() == {30: 2 * MANY}
    assert tally.ran == Counter(range(2 * MANY))
    await office.jobs.submit_many("elsewhere", [{}] * MANY)
    assert (await waiting(office), await rows(office)) == ([], MANY)


@pytest.mark.parametrize(("size", "parcels"), [(2_000, [MANY]), (2_001, [])])
async def test_one_with_much_data_makes_all_of_them_rows(
    office: Office, tally: Tally, size: int, parcels: list[int]
) -> None:  # 4.4
    data: list[dict[str, Any]] = [{"n": n} for n in range(MANY)]
    data[70]["text"] = "\u20ac" * 600 + "x" * (size - 1_800 - len('{"n":70,"text":""}'))
    await office.jobs.submit_many("work", data)
    assert await waiting(office) == parcels
    assert await rows(office) == MANY - sum(parcels)
    await office.host({"work": tally.work})
    assert await tally.until_over() == {30: MANY}
    assert tally.ran == Counter(range(MANY))


@pytest.mark.parametrize(
    "options",
    [{"retain": True}, {"on_failure": "hold"}, {"owner": uuid4()}, {"token": "t"},
     {"system": True}, {"options": {"depth": 2}}],
    ids=lambda value: next(iter(value)),
)  # fmt: skip
async def test_jobs_with_options_are_rows(
    office: Office, tally: Tally, options: dict[str, Any]
) -> None:  # 4.2
    await office.jobs.submit_many("work", [{"n": n} for n in range(MANY)], **options)
    assert (await waiting(office), await rows(office)) == ([], MANY)
    await office.host({"work": tally.work})
    assert await tally.until_over() == {30: MANY}
    assert tally.ran == Counter(range(MANY))


async def test_submits_at_the_same_time_wait_together_and_run_once(
    office: Office, tally: Tally
) -> None:  # 4.4
    await asyncio.gather(*(office.jobs.submit("work", {"n": n}) for n in range(MANY)))
    assert sum(await waiting(office)) >= MANY - 1  # the first may have gone by itself
    await office.host({"work": tally.work})
    assert await tally.until_over() == {30: MANY}
    assert tally.ran == Counter(range(MANY))
