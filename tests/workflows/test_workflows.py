"""Workflows: stages, waits, children, replay, versions, crashes (8.2)."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from relevo import App, settings
from relevo.errors import InvalidValue
from relevo.jobs import states
from relevo.jobs.core import codes
from relevo.jobs.errors import JobFailed
from relevo.kernel.running.verdicts import Fail, RetryLater
from relevo.testing.cluster import Cluster
from relevo.workflows import Call, Return, Stage, Wait, WaitTimedOut
from tests.jobs.office import QUICK

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable
    from pathlib import Path

    from relevo.jobs.model import Job
    from relevo.jobs.service import JobHandle
    from relevo.testing.clock import Clock

pytestmark = pytest.mark.anyio


async def until(job: JobHandle[Any], holds: Callable[[Job], bool]) -> Job:
    found: Job
    async with asyncio.timeout(30):
        while not holds(found := await job.get()):
            await asyncio.sleep(0.01)
    return found


def waits(job: Job) -> bool:
    return job.status_code == states.WAITING


async def test_stages_run_once_each_and_their_results_are_sent_back(app: App) -> None:
    ran: list[str] = []

    async def note(what: str) -> dict[str, str]:
        ran.append(what)
        return {"did": what}

    @app.workflow("order")
    async def order(ctx: Any, number: str) -> AsyncGenerator[Any, Any]:
        charged = yield Stage("charge", note, f"charge {number}")
        yield Stage("between")
        packed = yield Stage("pack", lambda: ran.append("pack"))
        yield Return([charged, packed])

    async with app.host():
        job = await order.submit(number="a1")
        assert await job.wait(30) == [{"did": "charge a1"}, None]
        stored = await job.get()
    assert ran == ["charge a1", "pack"]
    assert stored.saved["stage"] == "pack"
    assert (stored.operation_type, stored.lane) == (10, "workflow")


async def test_a_wait_for_an_event_suspends_and_the_event_goes_on(app: App) -> None:
    calls: list[int] = []

    @app.workflow("approval")
    async def approval(ctx: Any) -> AsyncGenerator[Any, Any]:
        yield Stage("ask", lambda: calls.append(1))
        answer = yield Wait(event="approved", key="7")
        yield Return(answer)

    async with app.host():
        job = await approval.submit()
        await until(job, waits)
        row = await app.database.fetchrow(
            "select waiting_event from relevo.job where id = $1", job.id
        )
        assert row is not None
        assert row["waiting_event"]
        assert await app.jobs.signal("approved", "other") == 0
        assert await app.jobs.signal("approved", "7", {"by": "ana"}) == 1
        assert await job.wait(30) == {"by": "ana"}
    assert calls == [1]  # what was written down is not done again
    assert await app.database.fetchval("select count(*) from relevo.job_wait") == 0


async def test_an_event_that_comes_early_is_kept(app: App) -> None:
    @app.workflow("late")
    async def late(ctx: Any) -> AsyncGenerator[Any, Any]:
        first = yield Wait(event="e", key="k")
        second = yield Wait(event="e", key="k")
        yield Return([first, second])

    assert await app.jobs.signal("e", "k", 1) == 0
    assert await app.jobs.signal("e", "k", 2) == 0
    async with app.host():
        assert await (await late.submit()).wait(30) == [1, 2]


async def test_an_event_goes_to_all_who_wait_for_it(app: App) -> None:
    @app.workflow("many")
    async def many(ctx: Any) -> AsyncGenerator[Any, Any]:
        yield Return((yield Wait(event="e")))

    async with app.host():
        jobs = [await many.submit() for _ in range(3)]
        for job in jobs:
            await until(job, waits)
        assert await app.jobs.signal("e", data="now") == 3
        assert [await job.wait(30) for job in jobs] == ["now"] * 3


async def test_no_event_is_lost_that_comes_while_its_workflow_begins_to_wait(app: App) -> None:
    @app.workflow("racer")
    async def racer(ctx: Any, key: str) -> AsyncGenerator[Any, Any]:
        yield Return((yield Wait(event="go", key=key)))

    async def run(number: int) -> Any:
        job = await racer.submit(key=str(number))
        await app.jobs.signal("go", str(number), number)
        return await job.wait(60)

    async with app.host():
        assert await asyncio.gather(*map(run, range(100))) == list(range(100))
    assert await app.database.fetchval("select count(*) from relevo.job_event") == 0


async def test_an_event_in_a_rolled_back_transaction_never_was(app: App) -> None:
    with pytest.raises(ZeroDivisionError):
        async with app.database.transaction() as tx:
            await app.jobs.signal("e", tx=tx)
            raise ZeroDivisionError
    assert await app.database.fetchval("select count(*) from relevo.job_event") == 0


async def test_a_wait_that_takes_too_long_raises_in_the_workflow_and_on_every_replay(
    app: App, clock: Clock
) -> None:
    @app.workflow("impatient")
    async def impatient(ctx: Any) -> AsyncGenerator[Any, Any]:
        try:
            yield Wait(event="never", timeout=timedelta(hours=1))
        except WaitTimedOut:
            yield Wait(event="second")
            yield Return("gave up")

    async with app.host():
        job = await impatient.submit()
        found = await until(job, waits)
        assert found.postpone_until is not None
        await clock.advance(3_600)
        await until(job, lambda one: waits(one) and one.attempt == 2)
        await app.jobs.signal("second")
        assert await job.wait(30) == "gave up"


async def test_a_wait_until_an_instant_keeps_the_first_instant(app: App, clock: Clock) -> None:
    @app.workflow("sleeper")
    async def sleeper(ctx: Any) -> AsyncGenerator[Any, Any]:
        # Computed anew on every way through; the first counts.
        yield Wait(await app.now() + timedelta(hours=1))
        yield Return("awake")

    async with app.host():
        job = await sleeper.submit()
        found = await until(job, waits)
        await job.resume()  # A9: too early is too early
        again = await until(job, lambda one: waits(one) and one.attempt == 2)
        assert again.postpone_until == found.postpone_until
        await clock.advance(3_600)
        assert await job.wait(30) == "awake"


async def test_a_child_is_waited_for_and_its_result_or_failure_comes_back(app: App) -> None:
    @app.job("double")
    async def double(ctx: Any, n: int) -> int:
        if n < 0:
            raise Fail(None, "negative")
        return 2 * n

    @app.workflow("parent")
    async def parent(ctx: Any) -> AsyncGenerator[Any, Any]:
        four = yield Call(double, {"n": 2})
        try:
            yield Call("double", {"n": -1})
        except JobFailed as error:
            yield Return([four, "negative" in str(error)])

    async with app.host():
        assert await (await parent.submit()).wait(60) == [4, True]
    assert await app.database.fetchval(
        "select count(*) from relevo.jobs where handler = 'double'"
    ) == 2  # fmt: skip


@pytest.mark.parametrize("command", ["cancel", "delete"])
async def test_what_a_canceled_or_deleted_workflow_called_is_canceled(
    app: App, command: str
) -> None:
    began = asyncio.Event()

    @app.job("long")
    async def long(ctx: Any) -> None:
        began.set()
        while True:
            await ctx.checkpoint()
            await asyncio.sleep(0.01)

    @app.workflow("inner")
    async def inner(ctx: Any) -> AsyncGenerator[Any, Any]:
        yield Call(long)

    @app.workflow("outer")
    async def outer(ctx: Any) -> AsyncGenerator[Any, Any]:
        yield Call("inner")

    async with app.host():
        job = await outer.submit()
        await began.wait()
        await until(job, waits)
        await getattr(job, command)()
        async with asyncio.timeout(30):
            while await app.database.fetchval("select count(*) from relevo.live_job"):
                await asyncio.sleep(0.01)
        rows = await app.database.fetch("select handler, status from relevo.jobs")
    ended = {row["handler"]: row["status"] for row in rows}
    assert (ended["inner"], ended["long"]) == (states.CANCELED, states.CANCELED)


@pytest.mark.parametrize("command", ["cancel", "delete"])
async def test_what_it_called_is_canceled_also_if_old_waits_are_removed_before(
    relevo_url: str, command: str
) -> None:
    async with App(relevo_url, drain_seconds=0.1) as app:
        await _removes_waits_before(app, command)


async def _removes_waits_before(app: App, command: str) -> None:
    @app.job("long")
    async def long(ctx: Any) -> None:
        while True:
            await ctx.checkpoint()
            await asyncio.sleep(0.01)

    @app.workflow("caller")
    async def caller(ctx: Any) -> AsyncGenerator[Any, Any]:
        yield Call(long)

    async with app.host():
        job = await caller.submit()
        await until(job, waits)
    # No host leads now, so the duties of the leader come in the order of this test.
    await getattr(job, command)()
    await app.jobs.waits.forget()
    async with app.host(), asyncio.timeout(30):
        while await app.database.fetchval("select count(*) from relevo.live_job"):
            await asyncio.sleep(0.01)
    assert await app.database.fetchval(
        "select status from relevo.jobs where handler = 'long'"
    ) == states.CANCELED  # fmt: skip
    await app.jobs.waits.forget()
    assert not await app.database.fetchval("select count(*) from relevo.job_wait")


async def test_workflows_that_call_each_other_end_at_depth_8(app: App) -> None:
    # 5.4, A14
    @app.workflow("self")
    async def itself(ctx: Any) -> AsyncGenerator[Any, Any]:
        try:
            yield Call("self")
        except JobFailed as error:
            yield Return(error.error_code)

    async with app.host():
        job = await itself.submit()
        await job.wait(60)
        rows = await app.database.fetch("select * from relevo.jobs order by depth")
    assert [one["depth"] for one in rows] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert {one["correlation"] for one in rows} == {job.id}
    assert [one["status"] for one in rows] == [30] * 7 + [31]
    assert (rows[-1]["error_code"], rows[-1]["attempt"]) == (codes.LOOP_DETECTED, 1)


async def test_a_stage_that_fails_for_now_is_called_again_and_no_other(app: App) -> None:
    ran: list[str] = []

    def flaky() -> None:
        ran.append("flaky")
        if len(ran) < 3:
            raise RetryLater(0)

    @app.workflow("stubborn")
    async def stubborn(ctx: Any) -> AsyncGenerator[Any, Any]:
        yield Stage("before", lambda: ran.append("before"))
        yield Stage("flaky", flaky)

    async with app.host():
        await (await stubborn.submit()).wait(30)
    assert ran == ["before", "flaky", "flaky"]


async def test_a_changed_definition_is_refused_by_name_and_can_be_repaired(
    relevo_url: str,
) -> None:
    def made(*names: str) -> App:
        app = App(settings=settings.load({"database_url": relevo_url}, environ={}))

        @app.workflow("changing")
        async def changing(ctx: Any) -> AsyncGenerator[Any, Any]:
            for name in names:
                yield Stage(name)
            yield Wait(event="go")
            yield Return("done")

        return app

    async with made("a", "b") as old, old.host():
        job = await old.jobs.submit("changing")
        await until(job, waits)
    async with made("a", "c") as new, new.host():
        handle = new.jobs.handle(job.id)
        await new.jobs.signal("go")
        found = await until(handle, lambda one: one.friendly is not None)
        assert "'changing' was changed" in str(found.friendly)
        assert "step 2 was Stage('b'), now it is Stage('c')" in str(found.friendly)
        assert found.status_code == states.WAITING
    async with made("a", "b") as repaired, repaired.host():
        handle = repaired.jobs.handle(job.id)
        await handle.resume()
        assert await handle.wait(30) == "done"


async def test_instances_keep_the_version_that_they_began_with(app: App) -> None:
    @app.workflow("versioned")
    async def first(ctx: Any) -> AsyncGenerator[Any, Any]:
        yield Wait(event="go")
        yield Return(1)

    @app.workflow("versioned", version=2)
    async def second(ctx: Any) -> AsyncGenerator[Any, Any]:
        yield Stage("new")
        yield Wait(event="go")
        yield Return(2)

    async with app.host():
        jobs = [await first.submit(), await second.submit()]
        for job in jobs:
            await until(job, waits)
        await app.jobs.signal("go")
        assert [await job.wait(30) for job in jobs] == [1, 2]


async def test_what_is_no_workflow_is_refused(app: App) -> None:
    with pytest.raises(InvalidValue, match="async generator"):

        @app.workflow("plain")  # type: ignore[arg-type]
        async def plain(ctx: Any) -> None: ...

    with pytest.raises(InvalidValue, match="either"):
        Wait()


async def test_after_a_crash_an_instance_goes_on_behind_its_last_checkpoint(
    relevo_url: str, tmp_path: Path, app: App
) -> None:
    await app.database.write("create table went_on ()")
    async with Cluster(
        relevo_url, "tests.workflows.programs:journey", tmp_path, settings=QUICK
    ) as cluster:
        a = await cluster.start("a")
        job = await app.jobs.submit("journey")
        await cluster.until(
            lambda: any(r["name"] == "second" for r in a.records("stage")), "the second stage"
        )
        a.kill()
        await app.database.write("insert into went_on default values")
        b = await cluster.start("b")
        await until(job, waits)
        await app.jobs.signal("go", "k", "three")
        assert await job.wait(60) == ["one", "two", "three"]
        # A30: the first stage was written down, the second was not.
        assert [r["name"] for r in b.records("stage")] == ["second"]
        assert b.records("stage")[0]["before"] == "one"


async def test_whatever_the_function_of_a_stage_returns_that_can_be_awaited_is(app: App) -> None:
    async def note(what: str) -> str:
        await asyncio.sleep(0)
        return what

    class Note:
        async def __call__(self, what: str) -> str:
            return await note(what)

    @app.workflow("notes")
    async def notes(ctx: Any) -> AsyncGenerator[Any, Any]:
        first = yield Stage("lambda", lambda: note("a"))
        second = yield Stage("object", Note(), "b")
        yield Return([first, second])

    async with app.host():
        job = await notes.submit()
        assert await job.wait(30) == ["a", "b"]
    with pytest.raises(InvalidValue, match="generator function"):
        Stage("yields", lambda: (yield))
