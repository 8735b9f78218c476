"""How runs end in the record: the table of errors, waiting for the end, events, lost hosts."""

from __future__ import annotations

import asyncio
import sys
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import asyncpg
import pytest

from relevo.errors import DatabaseUnavailable, NotFound, Unavailable
from relevo.jobs.commands import SQL
from relevo.jobs.core import codes
from relevo.jobs.errors import JobFailed
from relevo.jobs.host import JobsPart
from relevo.jobs.model import Lane
from relevo.kernel.running.verdicts import Fail, RetryLater, Suspend
from tests.jobs.office import Worker, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from relevo.testing.clock import Clock
    from tests.jobs.office import Office

pytestmark = pytest.mark.anyio


class Remote(Exception):
    def __init__(self, status: int) -> None:
        super().__init__(f"HTTP {status}")
        self.status = status


async def cancelled() -> None:
    task = asyncio.ensure_future(asyncio.Event().wait())
    task.cancel()
    await task


# Raised, status in the lane default, status in the lane workflow, code.
ENDINGS: list[tuple[Any, int, int, str]] = [
    (Fail(None, "no such customer"), 31, 31, "0x80040265"),
    (Fail(0x80048000, "as given"), 31, 31, "0x80048000"),
    (RetryLater(), 10, 10, ""),
    (RetryLater(code=0x80048001), 10, 10, "0x80048001"),
    (RetryLater(delay=1e300), 10, 10, ""),  # not even that leads out of the calendar
    (Suspend("empty the mailbox"), 10, 10, ""),
    (Unavailable("busy"), 10, 10, "0x8004A001"),
    (DatabaseUnavailable("gone"), 10, 10, "0x80040216"),
    (asyncpg.DeadlockDetectedError("x"), 10, 10, "0x80040216"),
    (ConnectionResetError("x"), 10, 10, "0x80044306"),
    (Remote(403), 10, 10, "0x80044306"),
    (Remote(500), 10, 10, "0x80044306"),
    (NotFound("no row"), 31, 10, "0x80040217"),
    (ValueError("x"), 10, 10, "0x80040224"),
    (ValueError("\0 \ud800 and much more" * 10_000), 10, 10, "0x80040224"),
    (SystemExit(3), 31, 31, "0x80040224"),
    (cancelled, 31, 31, "0x80040224"),
    (lambda: "x" * 70_000, 31, 31, "0x80040265"),  # what it returned is too large
    (lambda: object(), 31, 31, "0x80040224"),  # and what is no JSON
    (sys.exit, 31, 31, "0x80040224"),
]


async def test_every_error_ends_as_the_table_says(office: Office) -> None:  # 6.3
    app = office.new_app()

    async def work(ctx: Any, n: int) -> Any:
        raised = ENDINGS[n][0]
        if isinstance(raised, BaseException):
            raise raised
        answer = raised()
        return await answer if asyncio.iscoroutine(answer) else answer

    app.job("default")(work)
    app.job("workflow", lane="workflow")(work)
    await office.serve(app)
    for lane, column in (("default", 1), ("workflow", 2)):
        jobs = [await office.jobs.submit(lane, {"n": n}) for n in range(len(ENDINGS))]
        for job, ending in zip(jobs, ENDINGS, strict=True):
            await until(partial(_settled, office, job), "it has run")
            row = await job.get()
            shown = "" if row.error_code is None else codes.shown(row.error_code)
            assert (row.status_code, shown) == (ending[column], ending[3]), (lane, ending[0])
            assert row.message
            assert len(row.message) <= 100_000
            assert row.attempt == 1
    row = await jobs[0].get()
    assert row.friendly == "no such customer"
    too_large = await jobs[17].get()
    assert "70002 bytes" in (too_large.friendly or "")


async def _settled(office: Office, job: Any) -> bool:
    row = await office.row(job)
    return row["attempt"] > 0 and row["status"] not in (0, 20)


async def test_retries_wait_longer_each_time_and_end(office: Office, clock: Clock) -> None:  # A15
    async def work(ctx: Any) -> None:
        raise RetryLater

    await office.host({"work": work})
    job = await office.jobs.submit("work")
    for retry, usual in ((1, 30), (2, 60), (3, 120)):
        await office.until_status(job, 10)
        row = await job.get()
        assert row.retries == retry
        assert row.postpone_until is not None
        wait = (row.postpone_until - row.modified_at).total_seconds()
        assert 0.8 * usual <= wait <= 1.2 * usual
        await clock.advance(wait + 1)
        await until(partial(_attempts, office, job, retry + 1), "it runs again")
    await office.until_status(job, 31)
    row = await job.get()
    assert (row.attempt, row.retries) == (4, 3)


async def test_a_handler_decides_how_many_attempts_a_job_has(office: Office) -> None:
    async def work(ctx: Any) -> None:
        raise RetryLater(delay=0)

    app = office.new_app()
    app.job("work", retries=1)(work)
    await office.serve(app)
    job = await office.jobs.submit("work")
    await office.until_status(job, 31)
    assert (await job.get()).attempt == 2


async def _attempts(office: Office, job: Any, least: int) -> bool:
    return bool((await office.row(job))["attempt"] >= least)


async def test_a_success_does_not_tell_what_a_former_run_failed_with(
    office: Office, clock: Clock
) -> None:  # 2, 6.3
    async def work(ctx: Any) -> None:
        if ctx.attempt == 1:
            raise RetryLater(1.0, text="remote says no")

    await office.host({"work": work})
    job = await office.jobs.submit("work")
    await office.until_status(job, 10)
    assert (await job.get()).friendly == "remote says no"
    await clock.advance(2)
    await office.until_status(job, 30)
    row = await job.get()
    assert (row.friendly, row.message, row.error_code) == (None, None, None)


async def test_a_suspended_job_waits_for_people(office: Office, clock: Clock) -> None:  # S9
    async def work(ctx: Any) -> str:
        if ctx.attempt == 1:
            raise Suspend("empty the mailbox")
        return "sent"

    await office.host({"work": work})
    job = await office.jobs.submit("work")
    await office.until_status(job, 10)
    row = await job.get()
    assert (row.postpone_until, row.friendly) == (None, "empty the mailbox")
    await clock.advance(timedelta(days=30))
    assert await office.status(job) == 10
    await job.resume()
    assert await job.wait(10) == "sent"


async def test_arguments_that_do_not_fit_fail_the_job(office: Office) -> None:  # 6.3
    async def work(ctx: Any, n: int) -> None: ...

    await office.host({"work": work})
    for data in ({"n": "x"}, {}, [1], None):
        job = await office.jobs.submit("work", data)
        await office.until_status(job, 31)


async def test_what_cannot_be_written_fails_alone(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:  # 6.1
    async def work(ctx: Any, n: int) -> int:
        return n

    app = await office.host({"work": work})
    write = app.database.write

    async def picky(sql: str, *arguments: Any, **options: Any) -> Any:
        if sql == SQL.work and any("13" in one for one in arguments if isinstance(one, list)):
            raise asyncpg.DataError("it cannot be stored")
        return await write(sql, *arguments, **options)

    monkeypatch.setattr(app.database, "write", picky)
    jobs = await office.jobs.submit_many("work", [{"n": n} for n in range(20)])
    for n, job in enumerate(jobs):
        if n == 13:
            with pytest.raises(JobFailed, match="could not be stored"):
                await job.wait(20)
        else:
            assert await job.wait(20) == n


# Waiting.


async def test_wait_ends_with_its_time(office: Office) -> None:  # 12
    job = await office.jobs.submit("nobody")
    with pytest.raises(TimeoutError):
        await job.wait(0.05)
    assert office.jobs._tools().waiting._awaited == {}  # nobody looks for it any more


async def test_wait_outlasts_a_database_that_does_not_answer(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:  # 16
    fetch, failures = office.app.database.fetch, 2

    async def failing(sql: str, *arguments: Any) -> Any:
        nonlocal failures
        if sql == SQL.ends and failures:
            failures -= 1
            raise DatabaseUnavailable("no answer")
        return await fetch(sql, *arguments)

    monkeypatch.setattr(office.app.database, "fetch", failing)

    async def work(ctx: Any) -> str:
        return "done"

    job = await office.jobs.submit("work")
    waiting = asyncio.ensure_future(job.wait(20))
    await office.host({"work": work})
    assert await waiting == "done"
    assert failures == 0


async def test_many_wait_for_one_and_for_what_is_gone(office: Office) -> None:  # 16
    async def work(ctx: Any) -> str:
        return "done"

    app = office.new_app()
    app.job("work", auto_delete=True)(work)
    await office.serve(app)
    await office.jobs.submit("work")  # the handler is declared by now
    kept, gone = await office.jobs.submit("work", retain=True), await office.jobs.submit("work")
    answers = await asyncio.gather(kept.wait(10), kept.wait(10), gone.wait(10))
    assert list(answers) == ["done", "done", None]
    assert (await kept.get()).status_code == 30
    with pytest.raises(NotFound):
        await gone.get()


# Events.


async def configured(office: Office, events: str) -> None:
    app = office.new_app()
    app.jobs.registry.configure(Lane(name="default", events=events))  # type: ignore[arg-type]

    async def work(ctx: Any, mood: str = "") -> None:
        if mood == "retry" and ctx.attempt == 1:
            raise RetryLater(delay=0)
        if mood == "fail":
            raise ValueError

    app.job("work", retry_on=())(work)
    await office.serve(app)


async def ended(office: Office, mood: str) -> Any:
    job = await office.jobs.submit("work", {"mood": mood})
    await office.until_status(job, 30, 31)
    return job


LOGS = {
    "none": ([], [], []),
    "ends": (["succeeded"], ["failed"], ["succeeded"]),
    "all": (
        ["submitted", "started", "succeeded"],
        ["submitted", "started", "failed"],
        ["submitted", "started", "retrying", "resumed", "started", "succeeded"],
    ),
}


@pytest.mark.parametrize("events", LOGS)
async def test_a_lane_says_which_events_are_written(office: Office, events: str) -> None:  # 16
    await configured(office, events)
    for mood, log in zip(("", "fail", "retry"), LOGS[events], strict=True):
        assert await office.events(await ended(office, mood)) == log
    body = await office.database.fetchval(
        "select data::text from relevo.event where type = 'relevo.job.succeeded' limit 1"
    )
    assert events == "none" or ("default" in body and "mood" not in body)  # never payload


@pytest.mark.parametrize("events", LOGS)
async def test_commands_are_written_in_every_setting(office: Office, events: str) -> None:  # 16
    await configured(office, events)
    start = await office.app.now() + timedelta(hours=1)
    job = await office.jobs.submit("work", start=start)
    await job.postpone(start)
    await job.cancel()
    await job.delete()
    log = ["suspended", "canceled", "deleted"]
    assert await office.events(job) == (["submitted", *log] if events == "all" else log)
    other = await office.jobs.submit("work", start=start)
    await other.delete()
    assert (await office.events(other))[-1] == "deleted"


@pytest.mark.parametrize("events", LOGS)
async def test_the_platforms_jobs_are_in_the_log_in_every_setting(
    office: Office, events: str
) -> None:  # 16
    await configured(office, events)
    job = await office.jobs.submit("work", system=True)
    await office.until_status(job, 30)
    assert await office.events(job) == ["submitted", "started", "succeeded"]


async def test_what_a_failed_head_holds_is_in_the_log(office: Office) -> None:  # 16, S18
    await configured(office, "all")
    start = await office.app.now() + timedelta(hours=1)
    head = await office.jobs.submit(
        "work", {"mood": "fail"}, token="t", on_failure="hold", start=start
    )
    behind = await office.jobs.submit("work", token="t")
    await head.resume()
    await office.until_status(behind, 10)
    assert await office.events(behind) == ["submitted", "suspended"]


# Lost hosts, and handlers that nobody has.


@pytest.fixture
async def worker(office: Office) -> AsyncIterator[Worker]:
    connection = await asyncpg.connect(office.url)
    yield await Worker(connection).join()
    await connection.close()


async def test_jobs_of_an_ended_host_go_where_their_status_says(
    office: Office, worker: Worker
) -> None:  # S14, S15, S16, A16
    run, pause, postpone, cancel = [await office.jobs.submit("work") for _ in range(4)]
    await worker.work(10)
    until_ = await office.app.now() + timedelta(days=1)
    await pause.pause()
    await postpone.postpone(until_)
    await cancel.cancel()
    recover = "select relevo.recover_jobs(100, 3)"
    assert await office.database.fetchval(recover) == 0  # it lives
    await worker.end()
    assert await office.database.fetchval(recover) == 4
    rows = [await one.get() for one in (run, pause, postpone, cancel)]
    assert [row.status_code for row in rows] == [0, 10, 10, 32]
    assert [row.crashes for row in rows] == [1, 0, 0, 0]
    assert [row.postpone_until for row in rows] == [None, None, until_, None]


async def test_a_late_settlement_of_an_ended_host_is_refused(
    office: Office, worker: Worker
) -> None:  # A5
    job = await office.jobs.submit("work")
    (held,) = await worker.work(1)
    await worker.end()
    await office.database.fetchval("select relevo.recover_jobs(100, 3)")
    other = await Worker(worker.connection).join()
    (again,) = await other.work(1)
    assert again["attempt"] == 2
    await worker.work(0, settle=[(held, "done")])
    assert worker.stale == [job.id]
    assert await office.status(job) == 20
    # Nor does the right host with a wrong number.
    stale = dict(again)
    stale["claim"] += 1
    await other.work(0, settle=[(stale, "done")])
    assert other.stale == [job.id]
    await other.work(0, settle=[(again, "done")])
    assert await office.status(job) == 30


async def test_a_job_that_kills_its_hosts_fails(office: Office, worker: Worker) -> None:  # S14
    job = await office.jobs.submit("work")
    for crash in (1, 2, 3):
        victim = await Worker(worker.connection).join()
        if crash < 3:
            assert len(await victim.work(1)) == 1
        else:  # from the second loss on it runs alone
            assert await victim.work(1, vacant=True) == []
            assert victim.lone_waits
            assert (await victim.take_lone())["id"] == job.id
        await victim.end()
        await office.database.fetchval("select relevo.recover_jobs(100, 3)")
        row = await job.get()
        assert row.crashes == crash
        assert row.status_code == (31 if crash == 3 else 0)
    assert (codes.shown(row.error_code or 0), row.friendly) == ("0x80040224", "host lost")


async def test_a_job_that_kills_its_hosts_takes_few_others_with_it(
    office: Office, worker: Worker
) -> None:  # S14
    jobs = [await office.jobs.submit("work") for _ in range(20)]
    assert len(await worker.work(20, slots=[2])) == 20  # ahead, as quick jobs are
    await worker.end()
    await office.database.fetchval("select relevo.recover_jobs(100, 3)")
    other = await Worker(worker.connection).join()
    found = await other.work(20, slots=[2])
    assert [row["id"] for row in found] == [one.id for one in jobs[:2]]
    await other.end()
    await office.database.fetchval("select relevo.recover_jobs(100, 3)")
    assert [(await one.get()).crashes for one in jobs] == [2, 2] + [1] * 18
    last = await Worker(worker.connection).join()
    assert await last.work(20, slots=[0]) == []
    found = await last.work(20, slots=[3])
    assert [row["id"] for row in found] == [one.id for one in jobs[2:5]]  # two are to run alone
    assert (await last.take_lone())["id"] == jobs[0].id


async def test_lost_jobs_are_taken_in_chunks(office: Office, worker: Worker) -> None:  # 6.1
    for _ in range(25):
        await office.jobs.submit("work", token=None)
    await worker.work(25)
    await worker.end()
    recover = "select relevo.recover_jobs(10, 3)"
    assert [await office.database.fetchval(recover) for _ in range(4)] == [10, 10, 5, 0]


async def test_a_job_that_nobody_serves_fails_after_ten_minutes(
    office: Office, clock: Clock
) -> None:  # 4.3
    async def known(ctx: Any) -> None: ...

    timers = office.app.parts.of(JobsPart).timers
    job = await office.jobs.submit("unknown", token="t")
    behind = await office.jobs.submit("unknown", token="t")
    suspended = await office.jobs.submit("unknown", start=await clock.now() + timedelta(days=1))
    await clock.advance(9 * 60)
    assert await timers.fail_unserved() == 0
    app = await office.host({"known": known, "unknown": known}, "passing")
    await office.until_status(behind, 30)
    assert await office.status(job) == 30
    await app.parts.of(JobsPart).stop(1)  # there was one that could, and so the waiting begins anew
    late = await office.jobs.submit("unknown", token="t")
    await clock.advance(9 * 60)
    assert await timers.fail_unserved() == 0
    await clock.advance(2 * 60)
    assert await timers.fail_unserved() == 1
    row = await late.get()
    assert (row.status_code, codes.shown(row.error_code or 0)) == (31, "0x80044303")
    assert await office.status(suspended) == 10


async def test_old_records_go_as_long_as_each_kind_is_kept(
    office: Office, worker: Worker, clock: Clock
) -> None:  # 8.4
    jobs = {event: await office.jobs.submit("work") for event in ("done", "fail", "stop")}
    held = {row["id"]: row for row in await worker.work(3)}
    await jobs["stop"].cancel()
    await worker.work(0, settle=[(held[job.id], event) for event, job in jobs.items()])
    await clock.advance(timedelta(days=29))
    assert await office.app.parts.of(JobsPart).timers.forget() == 0
    await clock.advance(timedelta(days=2))
    assert await office.app.parts.of(JobsPart).timers.forget() == 2
    assert await office.status(jobs["fail"]) == 31
    await clock.advance(timedelta(days=60))
    assert await office.app.parts.of(JobsPart).timers.forget() == 1
