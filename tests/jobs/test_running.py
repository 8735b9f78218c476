"""Handlers at work: commands that reach them, checkpoints, time limits, transactions, draining."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import pytest

from relevo.jobs.errors import JobCanceled, JobFailed, JobPaused
from relevo.jobs.host import JobsPart
from relevo.jobs.model import Lane
from relevo.jobs.running import ledger
from relevo.testing.clock import Clock
from tests.jobs.office import Stage, until

if TYPE_CHECKING:
    from tests.jobs.office import Office

pytestmark = pytest.mark.anyio


async def test_a_job_runs_and_its_result_is_kept(office: Office) -> None:  # S5, S6
    async def add(ctx: Any, a: int, b: int = 1) -> dict[str, int]:
        return {"sum": a + b}

    def double(ctx: Any, a: int) -> int:
        assert threading.current_thread() is not threading.main_thread()
        return 2 * a

    await office.host({"add": add, "double": double})
    assert await (await office.jobs.submit("add", {"a": 2})).wait(10) == {"sum": 3}
    job = await office.jobs.submit("double", {"a": 2})
    assert await job.wait(10) == 4
    row = await job.get()
    assert (row.status_code, row.attempt, row.retries, row.crashes) == (30, 1, 0, 0)
    assert (row.state, row.status) == ("completed", "succeeded")
    assert (row.result, row.progress, row.host_name, row.error_code) == (4, 1.0, "a", None)


async def test_a_paused_handler_yields_at_its_checkpoint_and_goes_on_from_there(
    office: Office, stage: Stage
) -> None:  # A10, S10, 6.2
    async def walk(ctx: Any) -> list[int]:
        done = []
        for n, _ in ctx.resume(enumerate("abcd")):
            done.append(n)
            if n == 1:
                await stage.pass_by()
            await ctx.checkpoint(progress=n / 4, state=n)
        return done

    await office.host({"walk": walk})
    job = await office.jobs.submit("walk")
    await stage.entered.wait()
    await job.pause()
    assert await office.status(job) == 21
    stage.go.set()
    await office.until_status(job, 10)
    row = await job.get()
    assert (row.saved, row.progress, row.postpone_until) == (1, 0.25, None)
    await job.resume()
    assert await job.wait(10) == [2, 3]
    row = await job.get()
    assert (row.attempt, row.retries, row.crashes) == (2, 0, 0)  # A15


async def test_a_pause_that_is_taken_back_in_time_disturbs_nobody(
    office: Office, stage: Stage
) -> None:  # 3.3
    async def work(ctx: Any) -> int:
        await stage.pass_by()
        await ctx.checkpoint()
        return int(ctx.attempt)

    await office.host({"work": work})
    job = await office.jobs.submit("work")
    await stage.entered.wait()
    await job.pause()
    await job.resume()
    stage.go.set()
    assert await job.wait(10) == 1


async def test_a_handler_is_told_that_its_pause_was_taken_back(
    office: Office, stage: Stage
) -> None:  # 3.3
    contexts: list[Any] = []

    async def work(ctx: Any) -> None:
        contexts.append(ctx)
        await stage.pass_by()
        ctx.check()

    await office.host({"work": work})
    job = await office.jobs.submit("work")
    await stage.entered.wait()
    await job.pause()
    await until(lambda: contexts[0].asked == 21, "it is told to pause")
    await job.resume()
    await until(lambda: contexts[0].asked == 20, "and not to")
    stage.go.set()
    await job.wait(10)
    assert len(contexts) == 1


async def test_a_pause_is_seen_without_a_checkpoint_too(office: Office) -> None:  # 6.2
    async def work(ctx: Any) -> None:
        while True:
            ctx.check()
            await asyncio.sleep(0.01)

    await office.host({"work": work})
    job = await office.jobs.submit("work")
    await office.until_status(job, 20)
    await job.pause()
    await office.until_status(job, 10)
    await job.cancel()
    assert await office.status(job) == 32


async def test_a_handler_that_returns_before_it_yields_has_succeeded(
    office: Office, stage: Stage
) -> None:  # S11, A10
    async def work(ctx: Any) -> str:
        await stage.pass_by()
        return "done"

    await office.host({"work": work})
    job = await office.jobs.submit("work")
    await stage.entered.wait()
    await job.pause()
    stage.go.set()
    assert await job.wait(10) == "done"


async def test_a_canceled_handler_that_returns_is_canceled(
    office: Office, stage: Stage
) -> None:  # A11, S12
    async def work(ctx: Any) -> str:
        await stage.pass_by()
        return "done"

    await office.host({"work": work})
    job = await office.jobs.submit("work")
    await stage.entered.wait()
    await job.cancel()
    stage.go.set()
    with pytest.raises(JobFailed, match="Canceled"):
        await job.wait(10)
    assert (await job.get()).status_code == 32


@pytest.mark.parametrize("kind", ["checkpoint", "await", "thread"])
async def test_a_canceled_handler_stops_where_it_can(
    office: Office, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:  # S12, 6.2
    monkeypatch.setattr(ledger, "CANCEL_GRACE", 60.0 if kind == "checkpoint" else 0.05)
    ended: list[str] = []

    async def asks(ctx: Any) -> None:
        while True:
            await ctx.checkpoint()
            await asyncio.sleep(0.01)

    async def sleeps(ctx: Any) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("cancelled")

    gate = threading.Event()

    def thread(ctx: Any) -> None:
        while not gate.wait(0.01):
            ctx.checkpoint()

    await office.host({"checkpoint": asks, "await": sleeps, "thread": thread})
    job = await office.jobs.submit(kind)
    await office.until_status(job, 20)
    await job.cancel()
    await office.until_status(job, 32)
    gate.set()
    assert ended == (["cancelled"] if kind == "await" else [])


async def test_a_canceled_handler_that_raises_something_else_has_failed(
    office: Office, stage: Stage
) -> None:  # S13, A11
    async def work(ctx: Any) -> None:
        await stage.pass_by()
        raise ValueError("broken")

    await office.host({"work": work})
    job = await office.jobs.submit("work")
    await stage.entered.wait()
    await job.cancel()
    stage.go.set()
    await office.until_status(job, 31)


async def test_a_thread_that_hears_nothing_keeps_its_slot(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:  # 6.2
    monkeypatch.setattr(ledger, "CANCEL_GRACE", 0.01)
    gate = threading.Event()

    def deaf(ctx: Any) -> None:
        gate.wait()

    async def nothing(ctx: Any) -> None: ...

    app = office.new_app()
    app.jobs.registry.configure(Lane(name="default", slots=1))
    app.job("deaf")(deaf)
    app.job("nothing")(nothing)
    await office.serve(app)
    job = await office.jobs.submit("deaf")
    await office.until_status(job, 20)
    await job.cancel()
    behind = await office.jobs.submit("nothing")
    elsewhere = office.new_app("b")  # another host has room
    elsewhere.job("nothing")(nothing)
    await office.serve(elsewhere)
    await behind.wait(10)
    assert await office.status(job) == 22
    gate.set()
    await office.until_status(job, 32)


async def test_a_deleted_handler_is_asked_to_stop_and_leaves_nothing(office: Office) -> None:  # A31
    stopped = asyncio.Event()

    async def work(ctx: Any) -> None:
        try:
            while True:
                await ctx.checkpoint()
                await asyncio.sleep(0.01)
        except JobCanceled:
            stopped.set()
            raise

    await office.host({"work": work})
    job = await office.jobs.submit("work", token="t")
    behind = await office.jobs.submit("work", token="t")
    await office.until_status(job, 20)
    await job.delete()
    await asyncio.wait_for(stopped.wait(), 10)
    await office.until_status(behind, 20)
    rows = "select count(*) from relevo.job where id = $1"
    assert await office.database.fetchval(rows, job.id) == 0
    await behind.delete()


async def test_a_time_limit_means_one_retry_and_then_failure(office: Office) -> None:  # 6.2, A15
    async def hang(ctx: Any) -> None:
        await asyncio.Event().wait()

    await office.host({"hang": hang}, timeout=0.05)
    clock = Clock(office.database)
    job = await office.jobs.submit("hang")
    await office.until_status(job, 10)
    row = await job.get()
    assert (row.retries, row.error_code) == (1, 0x80081111 - 2**32)
    await clock.advance(60)
    await office.until_status(job, 31)
    row = await job.get()
    assert (row.attempt, row.retries, row.error_code) == (2, 1, 0x80081111 - 2**32)


async def test_a_thread_over_its_time_ends_at_its_checkpoint(office: Office) -> None:  # 6.2
    gate = threading.Event()

    def slow(ctx: Any) -> None:
        while not gate.wait(0.01):
            ctx.checkpoint()

    await office.host({"slow": slow}, timeout=0.05)
    job = await office.jobs.submit("slow")
    await office.until_status(job, 10)
    gate.set()
    assert (await job.get()).error_code == 0x80081111 - 2**32


async def test_a_job_without_a_sign_of_life_counts_as_timed_out(office: Office) -> None:  # 4.1
    app = office.new_app()
    app.jobs.registry.configure(Lane(name="bulk", time_limit=None, stall_after=0.3))

    @app.job("busy", lane="bulk")
    async def busy(ctx: Any) -> str:
        for n in range(8):
            await asyncio.sleep(0.1)
            await ctx.progress(n / 8)
        return "done"

    @app.job("silent", lane="bulk")
    async def silent(ctx: Any) -> None:
        await asyncio.Event().wait()

    await office.serve(app)
    alive, dead = await office.jobs.submit("busy"), await office.jobs.submit("silent")
    await office.until_status(dead, 10)
    assert (await dead.get()).error_code == 0x80081111 - 2**32
    assert await alive.wait(10) == "done"


async def test_plain_functions_of_a_lane_keep_no_other_waiting(office: Office) -> None:  # 4.1
    gate = threading.Event()

    def long(ctx: Any) -> None:
        gate.wait()

    def short(ctx: Any) -> str:
        return "done"

    app = office.new_app()
    app.jobs.registry.configure(Lane(name="bulk", slots=40))
    app.job("long", lane="bulk")(long)
    app.job("short")(short)
    await office.serve(app)
    try:
        many = await office.jobs.submit_many("long", [{}] * 40)
        for job in many:
            await office.until_status(job, 20)
        assert await (await office.jobs.submit("short")).wait(10) == "done"
    finally:
        gate.set()


async def test_what_is_asked_of_a_claim_that_waits_happens_at_once(
    office: Office, stage: Stage
) -> None:  # 3.3
    async def work(ctx: Any) -> None:
        await stage.pass_by(ctx.id)

    app = office.new_app()
    app.jobs.registry.configure(Lane(name="default", slots=1))
    app.job("work")(work)
    await office.serve(app)
    first = await office.jobs.submit("work")
    await stage.entered.wait()
    second = await office.jobs.submit("work")
    host = app.parts.of(JobsPart)._host
    assert host is not None
    host._lanes["default"].appetite.most = 2  # it claims ahead
    await office.until_status(second, 20)
    await second.cancel()
    await office.until_status(second, 32)
    assert stage.calls == [first.id]
    stage.go.set()


async def test_errors_inside_a_pause_do_not_hide_it(office: Office) -> None:  # S10
    async def work(ctx: Any) -> None:
        try:
            while True:
                await ctx.checkpoint()
                await asyncio.sleep(0.01)
        except JobPaused:
            await asyncio.sleep(0)  # cleans up
            raise

    await office.host({"work": work})
    job = await office.jobs.submit("work")
    await office.until_status(job, 20)
    await job.postpone(await office.app.now())
    await office.until_status(job, 10, 20)
    await until(lambda: _attempts(office, job, 2), "it is due at once and runs again")
    await job.cancel()
    await office.until_status(job, 32)


async def _attempts(office: Office, job: Any, least: int) -> bool:
    return bool((await office.row(job))["attempt"] >= least)
