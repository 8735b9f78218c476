"""Series in the database: one row that waits, whatever happens to it or to time (7.3)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import asyncpg
import pytest

from relevo.errors import InvalidRecurrence, InvalidValue
from relevo.jobs import timers
from relevo.jobs.commands import Ask
from relevo.jobs.core import codes
from relevo.jobs.core.patches import PatchCommand
from relevo.jobs.errors import JobRefused, PlatformJob
from relevo.jobs.host import JobsPart
from relevo.jobs.model import Recurrence
from tests.jobs.office import Worker, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from relevo.testing.clock import Clock
    from tests.jobs.office import Office

pytestmark = pytest.mark.anyio
HOUR, DAY = timedelta(hours=1), timedelta(days=1)


class Calendar:
    """A series, a worker, and time in the hands of the test."""

    def __init__(self, office: Office, worker: Worker, clock: Clock) -> None:
        self.office = office
        self.worker = worker
        self.clock = clock

    async def begin(self, pattern: str = "FREQ=HOURLY", **options: Any) -> Any:
        """A series whose first instant is in an hour."""
        start = (await self.clock.now()).replace(microsecond=0) + HOUR
        submit = {one: options.pop(one) for one in ("token", "system") if one in options}
        self.start = options.pop("start", start)
        how = Recurrence(pattern=pattern, start=self.start, **options)
        self.job = await self.office.jobs.submit("work", {"n": 1}, recurrence=how, **submit)
        return self.job

    async def waiting(self) -> Any:
        """The one row that has not started (A17)."""
        rows = await self.office.database.fetch(
            "select * from relevo.job where series = $1 and attempt = 0 and status in (0, 10)",
            self.job.id,
        )
        assert len(rows) <= 1
        return rows[0] if rows else None

    async def tick(self, room: int = 5, settle: Any = ()) -> list[Any]:
        """What the leader and a worker do when time has passed; what was claimed."""
        await self.office.app.parts.of(JobsPart).timers.start_series()
        return await self.worker.work(room, settle=settle)

    async def run(self) -> Any:
        """The next run, claimed and settled; it is the only one."""
        (claimed,) = await self.tick()
        await self.worker.work(0, settle=[(claimed, "done")])
        return claimed

    def hours(self, n: float) -> datetime:
        return self.start + n * HOUR  # type: ignore[no-any-return]


@pytest.fixture
async def calendar(office: Office, clock: Clock) -> AsyncIterator[Calendar]:
    connection = await asyncpg.connect(office.url)
    yield Calendar(office, await Worker(connection).join(), clock)
    await connection.close()


async def test_each_claim_leaves_the_next_row_waiting(calendar: Calendar) -> None:  # A17, A19
    job = await calendar.begin("FREQ=HOURLY;INTERVAL=2;")
    assert await calendar.tick() == []  # A9
    await calendar.clock.advance(HOUR)
    nominals = []
    for n in range(4):
        claimed = await calendar.run()
        assert claimed["series"] == job.id
        assert (claimed["data"], claimed["depth"]) == ('{"n":1}', 1)
        nominals.append(claimed["nominal"])
        row = await calendar.waiting()
        assert (row["status"], row["postpone_until"]) == (10, calendar.hours(2 * (n + 1)))
        assert await calendar.tick() == []
        await calendar.clock.advance(2 * HOUR)
    assert nominals == [calendar.hours(n) for n in (0, 2, 4, 6)]
    kept = "select count(*) from relevo.job_history where series = $1"
    assert await calendar.office.database.fetchval(kept, job.id) == 4  # each run has its record


async def test_a_series_without_a_start_runs_at_once(calendar: Calendar) -> None:  # 7.2
    job = await calendar.office.jobs.submit("work", recurrence="FREQ=DAILY;INTERVAL=3;")
    calendar.job = job
    (claimed,) = await calendar.tick()
    assert claimed["id"] == job.id
    row = await calendar.waiting()
    assert row["postpone_until"] == claimed["nominal"] + 3 * DAY


async def test_a_run_has_a_cause_of_its_own(calendar: Calendar) -> None:  # 5.4
    await calendar.begin()
    await calendar.clock.advance(HOUR)
    await calendar.run()
    await calendar.clock.advance(HOUR)
    second = await calendar.run()
    assert (second["root"], second["depth"]) == (second["id"], 1)


async def test_a_zone_keeps_the_local_time_of_days(calendar: Calendar) -> None:  # A18
    now = await calendar.clock.now()
    year = now.year + 1
    start = datetime(year, 3, 1, 8, 30, tzinfo=UTC)  # 09:30 in Madrid
    await calendar.begin("FREQ=DAILY", timezone="Europe/Madrid", start=start)
    await calendar.clock.advance(start - now)
    hours = set()
    for _ in range(35):
        claimed = await calendar.run()
        hours.add(claimed["nominal"].hour)
        await calendar.clock.advance(DAY)
    assert hours == {8, 7}  # the clocks went forward


@pytest.mark.parametrize(
    ("missed", "runs"),
    [("coalesce", [0]), ("skip", []), ("all", [0, 1, 2, 3])],
)
async def test_what_was_missed_follows_the_policy(
    calendar: Calendar, missed: Any, runs: list[int]
) -> None:  # A17, 7.3
    await calendar.begin(missed=missed, misfire_grace=60.0)
    await calendar.clock.advance(4.5 * HOUR)  # nobody was there for instants 0 to 3
    seen = []
    for _ in range(10):
        for claimed in await calendar.tick():
            seen.append(claimed)
            await calendar.worker.work(0, settle=[(claimed, "done")])
    assert [row["nominal"] for row in seen] == [calendar.hours(n) for n in runs]
    row = await calendar.waiting()
    assert row["postpone_until"] == calendar.hours(4)
    if seen:
        friendly = (await calendar.office.row(seen[0]["id"]))["friendly"]
        assert friendly.startswith("late by 3 h")


async def test_all_catches_up_with_the_last_hundred(calendar: Calendar) -> None:  # 7.3
    await calendar.begin("FREQ=MINUTELY", missed="all")
    await calendar.clock.advance(HOUR + timedelta(minutes=300))
    first = await calendar.run()
    ahead = (await calendar.clock.now() - first["nominal"]) / timedelta(minutes=1)
    assert 98 <= ahead <= 101


@pytest.mark.parametrize(("overlap", "most"), [("queue", 1), ("skip", 1), ("parallel", 2)])
async def test_overlap_follows_the_policy(
    calendar: Calendar, overlap: Any, most: int
) -> None:  # 7.3, A6
    await calendar.begin(overlap=overlap)
    await calendar.clock.advance(HOUR)
    (first,) = await calendar.tick()
    await calendar.clock.advance(HOUR)
    assert len(await calendar.tick()) == most - 1
    row = await calendar.waiting()
    assert row["status"] == (0 if overlap == "queue" else 10)
    assert row["postpone_until"] == calendar.hours(1 if overlap == "queue" else 2)
    if overlap == "queue":  # it waits for the former
        (second,) = await calendar.worker.work(5, settle=[(first, "done")])
        assert second["nominal"] == calendar.hours(1)


@pytest.mark.parametrize(("missed", "then"), [("coalesce", 6), ("skip", 6), ("all", 2)])
async def test_a_run_that_waited_for_the_former_is_late_and_is_itself_the_catch_up(
    calendar: Calendar, missed: Any, then: int
) -> None:  # 7.3
    await calendar.begin(missed=missed)
    await calendar.clock.advance(HOUR)
    (first,) = await calendar.tick()
    await calendar.clock.advance(HOUR)
    assert await calendar.tick() == []  # it waits for the former
    timers = calendar.office.app.parts.of(JobsPart).timers
    assert await timers.mark_late() == 0
    await calendar.clock.advance(4 * HOUR + timedelta(minutes=1))
    assert await timers.mark_late() == 1
    (second,) = await calendar.worker.work(5, settle=[(first, "done")])
    assert second["nominal"] == calendar.hours(1)
    assert (await calendar.office.row(second["id"]))["friendly"] == "late by 4 h 1 min"
    await calendar.worker.work(0, settle=[(second, "done")])
    assert len(await calendar.tick()) == (1 if missed == "all" else 0)
    if missed != "all":
        assert (await calendar.waiting())["postpone_until"] == calendar.hours(then)


async def test_how_late_a_ready_row_is_grows_until_it_starts(calendar: Calendar) -> None:  # 7.3
    await calendar.begin("FREQ=DAILY", misfire_grace=60.0)
    await calendar.clock.advance(HOUR)
    timers = calendar.office.app.parts.of(JobsPart).timers
    await timers.start_series()
    before = await calendar.waiting()
    assert await timers.mark_late() == 0
    for passed, text in ((timedelta(minutes=5), "late by 5 min"), (3 * HOUR, "late by 3 h")):
        await calendar.clock.advance(passed)
        assert await timers.mark_late() == 1
        assert (await calendar.waiting())["friendly"].startswith(text)
    row = await calendar.waiting()
    assert (row["status"], row["version"]) == (0, before["version"])  # 2
    await calendar.run()
    await timers.mark_late()
    assert (await calendar.waiting())["friendly"] is None


async def test_the_last_instants_are_not_caught_up_with_twice(calendar: Calendar) -> None:  # 7.3
    await calendar.begin("FREQ=HOURLY;COUNT=4")
    await calendar.clock.advance(HOUR)
    (first,) = await calendar.tick()
    await calendar.clock.advance(HOUR)
    await calendar.tick()
    await calendar.clock.advance(4 * HOUR)
    (second,) = await calendar.worker.work(5, settle=[(first, "done")])
    await calendar.worker.work(0, settle=[(second, "done")])
    assert await calendar.tick() == []
    assert await calendar.waiting() is None


async def test_all_that_is_due_at_one_instant_becomes_ready_at_once(
    calendar: Calendar,
) -> None:  # S3
    many = 2 * timers.SERIES_ROWS + 1
    start = (await calendar.clock.now()).replace(microsecond=0) + HOUR
    how = Recurrence(pattern="FREQ=HOURLY", start=start)
    for _ in range(many):
        await calendar.office.jobs.submit("work", recurrence=how)
    await calendar.clock.advance(HOUR)
    assert await calendar.office.app.parts.of(JobsPart).timers.start_series() == many
    ready = "select count(*) from relevo.job where status = 0"
    assert await calendar.office.database.fetchval(ready) == many


async def test_a_series_with_a_token_enters_its_chain_when_it_is_due(
    calendar: Calendar,
) -> None:  # 4.2
    await calendar.begin(token="t")
    before = await calendar.office.jobs.submit("work", token="t")
    (head,) = await calendar.tick()
    assert head["id"] == before.id  # the waiting row holds nobody up
    await calendar.clock.advance(HOUR)
    assert await calendar.tick() == []
    behind = await calendar.office.jobs.submit("work", token="t")
    (run,) = await calendar.tick(settle=[(head, "done")])
    assert run["id"] == calendar.job.id  # and now it stands before those who came later
    (last,) = await calendar.tick(settle=[(run, "done")])
    assert last["id"] == behind.id


@pytest.mark.parametrize("command", ["cancel", "delete"])
async def test_ending_the_waiting_row_ends_the_series(
    calendar: Calendar, command: str
) -> None:  # 7.3
    await calendar.begin()
    await calendar.office.jobs.command(calendar.job.id, command)
    assert await calendar.waiting() is None
    await calendar.clock.advance(5 * HOUR)
    assert await calendar.tick() == []


async def test_canceling_a_run_cancels_that_run_only(calendar: Calendar) -> None:  # 7.3
    job = await calendar.begin()
    await calendar.clock.advance(HOUR)
    (run,) = await calendar.tick()
    await job.cancel()
    await calendar.worker.work(0, settle=[(run, "stop")])
    assert await calendar.waiting() is not None


async def test_canceling_a_run_and_its_series_ends_both(calendar: Calendar) -> None:  # 7.3
    job = await calendar.begin()
    await calendar.clock.advance(HOUR)
    (run,) = await calendar.tick()
    await job.cancel(series=True)
    assert await calendar.waiting() is None
    await calendar.worker.work(0, settle=[(run, "stop")])
    assert await calendar.office.status(job) == 32


async def test_a_failure_does_not_stop_a_series(calendar: Calendar) -> None:  # 7.3
    await calendar.begin()
    await calendar.clock.advance(HOUR)
    (run,) = await calendar.tick()
    await calendar.worker.work(0, settle=[(run, "fail")])
    assert await calendar.waiting() is not None


async def test_a_failure_stops_a_series_that_says_so(calendar: Calendar) -> None:  # 7.3
    await calendar.begin(stop_on_failure=True)
    await calendar.clock.advance(HOUR)
    (run,) = await calendar.tick()
    row = await calendar.waiting()
    await calendar.worker.work(0, settle=[(run, "fail")])
    assert await calendar.waiting() is None
    assert (await calendar.office.row(row["id"]))["status"] == 32


async def test_a_postponed_occurrence_moves_alone(calendar: Calendar) -> None:  # 7.3
    job = await calendar.begin()
    await job.postpone(calendar.hours(0.5))
    await calendar.clock.advance(HOUR)
    assert await calendar.tick() == []  # A9
    await calendar.clock.advance(HOUR / 2)
    run = await calendar.run()
    assert run["nominal"] == calendar.hours(0)
    assert (await calendar.waiting())["postpone_until"] == calendar.hours(1)


@pytest.mark.parametrize(("missed", "next_at"), [("coalesce", 3), ("all", 1)])
async def test_what_follows_a_long_postponement(
    calendar: Calendar, missed: Any, next_at: int
) -> None:  # 7.3
    job = await calendar.begin(missed=missed)
    await job.postpone(calendar.hours(2.5))
    await calendar.clock.advance(3.5 * HOUR)
    await calendar.run()
    assert (await calendar.waiting())["postpone_until"] == calendar.hours(next_at)


@pytest.mark.parametrize("end", ["COUNT=3", "UNTIL"])
async def test_the_last_occurrence_leaves_no_row(calendar: Calendar, end: str) -> None:  # 7.3
    start = (await calendar.clock.now()).replace(microsecond=0) + HOUR
    if end == "UNTIL":
        end = f"UNTIL={start + 2 * HOUR:%Y%m%dT%H%M%SZ}"
    await calendar.begin(f"FREQ=HOURLY;{end}", start=start)
    for n in range(3):
        assert await calendar.waiting() is not None
        await calendar.clock.advance(HOUR)
        assert (await calendar.run())["nominal"] == calendar.hours(n)
    assert await calendar.waiting() is None
    await calendar.clock.advance(HOUR)
    assert await calendar.tick() == []


async def test_a_skipped_last_occurrence_ends_the_series(calendar: Calendar) -> None:  # 7.3
    await calendar.begin("FREQ=HOURLY;COUNT=2", missed="skip", misfire_grace=60.0)
    await calendar.clock.advance(10 * HOUR)
    assert await calendar.tick() == []
    assert await calendar.waiting() is None


async def test_patterns_that_mean_nothing_are_refused(calendar: Calendar) -> None:  # 7.1
    for pattern in ("FREQ=SECONDLY", "FREQ=DAILY;INTERVAL=0", "FREQ=DAILY;FREQ=DAILY", "X"):
        with pytest.raises(InvalidRecurrence):
            await calendar.begin(pattern)
    with pytest.raises(InvalidRecurrence):  # no instant at all
        await calendar.begin("FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=30")
    with pytest.raises(InvalidValue):
        await calendar.begin(timezone="Europe/Nowhere")


async def change(calendar: Calendar, id_: Any = None, **options: Any) -> None:
    ask = Ask(id=id_ or calendar.job.id, command="", change=PatchCommand(**options))
    await calendar.office.jobs.commands.give(ask)


async def test_another_pattern_gives_the_waiting_row_another_instant(
    calendar: Calendar,
) -> None:  # 2, A17
    await calendar.begin("FREQ=DAILY")
    await change(calendar, pattern="FREQ=HOURLY;INTERVAL=3;COUNT=2")
    row = await calendar.waiting()
    assert (row["postpone_until"], row["pattern"]) == (
        calendar.hours(0), "FREQ=HOURLY;INTERVAL=3;COUNT=2",
    )  # fmt: skip
    await calendar.clock.advance(HOUR)
    for n in (0, 3):
        assert (await calendar.run())["nominal"] == calendar.hours(n)
        await calendar.clock.advance(3 * HOUR)
    assert await calendar.waiting() is None


async def test_a_changed_row_that_stood_in_its_chain_leaves_it(calendar: Calendar) -> None:  # 4.2
    await calendar.begin("FREQ=DAILY", token="t")
    await calendar.clock.advance(HOUR)
    await calendar.office.app.parts.of(JobsPart).timers.start_series()
    await calendar.worker.work(0)  # it is the head of its chain, and ready
    behind = await calendar.office.jobs.submit("work", token="t")
    await change(calendar, pattern="FREQ=WEEKLY")
    (claimed,) = await calendar.tick()
    assert claimed["id"] == behind.id
    assert (await calendar.waiting())["status"] == 10


async def test_an_empty_pattern_leaves_one_ordinary_job(calendar: Calendar) -> None:  # 7.1
    await calendar.begin(token="t")
    await change(calendar, pattern="")
    row = await calendar.office.row(calendar.job)
    assert (row["series"], row["pattern"], row["status"]) == (None, None, 10)
    ended = "select count(*) from relevo.event where type = 'relevo.series.ended'"
    assert await calendar.office.database.fetchval(ended) == 1  # 16
    await calendar.clock.advance(HOUR)
    await calendar.run()
    assert await calendar.office.database.fetchval("select count(*) from relevo.job") == 0


async def test_a_series_of_the_platform_is_not_ended_by_an_empty_pattern(
    calendar: Calendar,
) -> None:  # 3.4, A12
    await calendar.begin(system=True)
    before = await calendar.waiting()
    for pattern in ("", None):
        with pytest.raises(PlatformJob) as caught:
            await change(calendar, pattern=pattern)
        assert codes.shown(caught.value.error_code) == "0x80044F00"
    assert await calendar.waiting() == before
    await change(calendar, pattern="FREQ=DAILY")
    assert (await calendar.waiting())["pattern"] == "FREQ=DAILY"


async def test_the_recurrence_of_a_run_cannot_be_changed(calendar: Calendar) -> None:  # A13, A4
    await calendar.begin()
    await calendar.clock.advance(HOUR)
    (run,) = await calendar.tick()
    for _ in range(2):
        with pytest.raises(JobRefused) as caught:
            await change(calendar, run["id"], pattern="FREQ=DAILY")
        assert codes.shown(caught.value.error_code) == "0x80044162"
        await calendar.worker.work(0, settle=[(run, "done")])
    assert await calendar.office.status(calendar.job) == 30  # it is still there


async def test_a_refused_pattern_changes_nothing(calendar: Calendar) -> None:  # A13
    await calendar.begin()
    before = await calendar.waiting()
    with pytest.raises(JobRefused) as caught:
        await change(calendar, pattern="FREQ=HOURLY;INTERVAL=400")
    assert codes.shown(caught.value.error_code) == "0x8004D2A1"
    assert await calendar.waiting() == before


async def test_a_claim_that_is_rolled_back_leaves_the_series_as_it_was(
    calendar: Calendar,
) -> None:  # A17, A30
    await calendar.begin()
    await calendar.clock.advance(HOUR)
    await calendar.office.app.parts.of(JobsPart).timers.start_series()
    before = await calendar.waiting()
    transaction = calendar.worker.connection.transaction()
    await transaction.start()
    assert len(await calendar.worker.work(1)) == 1
    await transaction.rollback()
    assert (await calendar.waiting())["id"] == before["id"]
    (run,) = await calendar.worker.work(1)
    assert run["id"] == before["id"]
    assert (await calendar.waiting())["postpone_until"] == calendar.hours(1)


async def test_a_lost_or_retried_run_does_not_double_the_series(
    calendar: Calendar,
) -> None:  # A17, A30
    await calendar.begin()
    await calendar.clock.advance(HOUR)
    (run,) = await calendar.tick()
    row = await calendar.waiting()
    for event in ("return", "retry"):
        await calendar.worker.work(0, settle=[(run, event)], delays=[0.0])
        (run,) = await calendar.tick()
    assert run["attempt"] == 3
    assert await calendar.waiting() == row


async def test_two_leaders_start_a_row_once(calendar: Calendar) -> None:  # A17
    await calendar.begin()
    await calendar.clock.advance(HOUR)
    timers = calendar.office.app.parts.of(JobsPart).timers
    await timers.start_series()
    assert await timers.start_series() == 0
    assert len(await calendar.worker.work(5)) == 1


async def test_a_host_runs_a_series_by_itself(office: Office, clock: Clock) -> None:  # 7.3
    ran: list[Any] = []

    async def work(ctx: Any) -> None:
        ran.append(ctx.claim.nominal)

    await office.host({"work": work})
    start = (await clock.now()).replace(microsecond=0) + HOUR
    how = Recurrence(pattern="FREQ=HOURLY;COUNT=3", start=start)
    await office.jobs.submit("work", recurrence=how)
    for n in range(3):
        assert len(ran) == n
        await clock.advance(HOUR)
        await until(partial(_has_run, ran, n + 1), f"run {n}")
    assert ran == [start + n * HOUR for n in range(3)]


def _has_run(ran: list[Any], count: int) -> bool:
    return len(ran) == count


async def test_a_claim_that_inserts_a_row_is_synced(calendar: Calendar) -> None:  # 6.1, A30
    await calendar.begin()
    await calendar.clock.advance(HOUR)
    await calendar.office.app.parts.of(JobsPart).timers.start_series()
    synced = "select current_setting('synchronous_commit')"
    async with calendar.worker.connection.transaction():
        assert len(await calendar.worker.work(5)) == 1
        assert await calendar.worker.connection.fetchval(synced) == "on"
    async with calendar.worker.connection.transaction():
        await calendar.office.jobs.submit("work")
        assert len(await calendar.worker.work(5)) == 1
        assert await calendar.worker.connection.fetchval(synced) == "off"  # may be forgotten


async def test_a_waiting_row_that_is_resumed_runs_now_and_the_series_goes_on(
    calendar: Calendar,
) -> None:  # 3.3, A17
    job = await calendar.begin("FREQ=HOURLY")
    await calendar.office.jobs.command(job.id, "resume")
    row = await calendar.waiting()
    assert (row["status"], row["postpone_until"]) == (0, None)
    with pytest.raises(JobRefused) as caught:
        await calendar.office.jobs.command(job.id, "resume")
    assert codes.shown(caught.value.error_code) == "0x80044166"
    claimed = await calendar.run()
    assert claimed["id"] == job.id
    assert (await calendar.waiting())["nominal"] == calendar.hours(1)


@pytest.mark.parametrize("overlap", ["queue", "skip", "parallel"])
async def test_a_resumed_row_stands_in_the_chain_of_its_series(
    calendar: Calendar, overlap: Any
) -> None:  # 3.3, 7.3
    await calendar.begin(overlap=overlap)
    await calendar.clock.advance(HOUR)
    (first,) = await calendar.tick()
    row = await calendar.waiting()
    await calendar.office.jobs.command(row["id"], "resume")
    assert await calendar.office.status(calendar.office.jobs.handle(row["id"])) == 0
    claimed = await calendar.tick()
    if overlap == "queue":
        assert claimed == []
        claimed = await calendar.tick(settle=[(first, "done")])
    assert [one["id"] for one in claimed] == [row["id"]]
    assert (await calendar.waiting())["nominal"] == calendar.hours(2)


async def test_another_pattern_and_resume_come_together(calendar: Calendar) -> None:  # 3.3
    job = await calendar.begin("FREQ=DAILY")
    for pattern, then in (("FREQ=HOURLY", calendar.hours(1)), ("", None)):
        change = PatchCommand(pattern=pattern)
        await calendar.office.jobs.commands.give(Ask(id=job.id, command="resume", change=change))
        assert await calendar.office.status(job) == 0
        await calendar.run()
        row = await calendar.waiting()
        assert (row and row["nominal"]) == then
        if row:
            job = calendar.office.jobs.handle(row["id"])


async def test_a_row_that_cannot_be_computed_is_not_resumed(calendar: Calendar) -> None:  # A17
    job = await calendar.begin("FREQ=HOURLY")
    await calendar.office.database.write(
        "update relevo.job set zone = 'Nowhere/Land' where id = $1 returning 1", job.id
    )
    with pytest.raises(JobRefused, match="Nowhere/Land"):
        await calendar.office.jobs.command(job.id, "resume")
    assert (await calendar.waiting())["status"] == 10


async def test_a_series_whose_handler_nobody_has_waits_for_it(
    calendar: Calendar,
) -> None:  # A17, 4.3
    await calendar.begin("FREQ=HOURLY")
    await calendar.clock.advance(HOUR)
    await calendar.office.app.parts.of(JobsPart).timers.start_series()
    await calendar.clock.advance(timedelta(minutes=20))
    assert await calendar.office.app.parts.of(JobsPart).timers.fail_unserved() == 0
    assert (await calendar.waiting())["status"] == 0


async def test_a_row_that_cannot_be_computed_holds_up_no_other_series(calendar: Calendar) -> None:
    bad = await calendar.begin("FREQ=HOURLY")
    await calendar.office.database.write(
        "update relevo.job set zone = 'Nowhere/Land' where id = $1 returning 1", bad.id
    )
    good = await calendar.begin("FREQ=HOURLY")
    await calendar.clock.advance(HOUR)
    assert [one["id"] for one in await calendar.tick()] == [good.id]
    row = await calendar.office.database.fetchrow("select * from relevo.job where id = $1", bad.id)
    assert row is not None
    assert "Nowhere/Land" in row["friendly"]
