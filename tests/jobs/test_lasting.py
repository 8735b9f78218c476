"""What outlasts a run: effects, lost answers, hosts that stop, break down or lose their life."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import pytest

from relevo.errors import OutcomeUnknown
from relevo.jobs.commands import SQL
from relevo.jobs.host import JobsPart
from relevo.kernel.running.runner import Runner
from tests.jobs.office import Stage, until

if TYPE_CHECKING:
    from tests.jobs.office import Office

pytestmark = pytest.mark.anyio


async def test_effects_commit_with_the_completion(office: Office) -> None:  # A5, 5.3
    await office.database.write("create table effect (job uuid)")
    try:

        async def work(ctx: Any) -> str:
            async with ctx.transaction(result="kept") as tx:
                await tx.execute("insert into effect values ($1)", ctx.id)
            return "not this"

        await office.host({"work": work})
        job = await office.jobs.submit("work", token="t")
        behind = await office.jobs.submit("work", token="t")
        assert await job.wait(10) == "kept"
        await behind.wait(10)
        assert await office.database.fetchval("select count(*) from effect") == 2
    finally:
        await office.database.write("drop table effect")


@pytest.mark.parametrize("command", ["cancel", "delete"])
async def test_effects_of_a_run_that_was_stopped_are_rolled_back(
    office: Office, stage: Stage, command: str
) -> None:  # A11, A31, A5
    await office.database.write("create table effect (job uuid)")
    try:

        async def work(ctx: Any) -> None:
            async with ctx.transaction() as tx:
                await tx.execute("insert into effect values ($1)", ctx.id)
                await stage.pass_by()

        await office.host({"work": work})
        job = await office.jobs.submit("work", token="t")
        await stage.entered.wait()
        await office.jobs.command(job.id, command)
        stage.go.set()
        await office.until_status(job, 32 if command == "cancel" else None)
        # The next of the chain starts: nothing of the former run is left.
        behind = await office.jobs.submit("work", token="t")
        await behind.wait(10)
        rows = await office.database.fetch("select job from effect")
        assert [row["job"] for row in rows] == [behind.id]
    finally:
        await office.database.write("drop table effect")


async def test_a_completion_whose_answer_is_lost_happened_once(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:  # A5
    await office.database.write("create table effect (job uuid)")
    try:

        async def work(ctx: Any) -> None:
            async with ctx.transaction() as tx:
                await tx.execute("insert into effect values ($1)", ctx.id)
            if ctx.attempt == 1:
                ctx.settled = False  # as if the commit's answer had been lost
                raise OutcomeUnknown("the answer was lost")

        await office.host({"work": work})
        job = await office.jobs.submit("work")
        await job.wait(10)
        await (await office.jobs.submit("work")).wait(10)
        assert (await job.get()).status_code == 30
        assert await office.database.fetchval("select count(*) from effect") == 2
    finally:
        await office.database.write("drop table effect")


async def test_what_was_claimed_by_a_call_whose_answer_was_lost_runs_once(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:  # 6.1, A5
    ran: list[Any] = []

    async def work(ctx: Any) -> None:
        ran.append((ctx.id, ctx.attempt))

    app = await office.host({"work": work})
    write, lost = app.database.write, 0

    async def forgetful(sql: str, *arguments: Any, **options: Any) -> Any:
        nonlocal lost
        rows = await write(sql, *arguments, **options)
        if sql == SQL.work and any(row["kind"] == "claimed" for row in rows) and lost < 5:
            lost += 1
            raise OutcomeUnknown("the answer was lost")
        return rows

    monkeypatch.setattr(app.database, "write", forgetful)
    jobs = [await office.jobs.submit("work") for _ in range(30)]
    for job in jobs:
        await job.wait(20)
    assert lost > 0
    assert sorted(ran) == sorted((job.id, 1) for job in jobs)


async def test_a_settlement_whose_answer_was_lost_is_written_once(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:  # A4, A5
    async def work(ctx: Any) -> int:
        return int(ctx.attempt)

    app = await office.host({"work": work})
    write, lost = app.database.write, 0

    async def forgetful(sql: str, *arguments: Any, **options: Any) -> Any:
        nonlocal lost
        rows = await write(sql, *arguments, **options)
        if sql == SQL.work and arguments[7] and lost < 5:
            lost += 1
            raise OutcomeUnknown("the answer was lost")
        return rows

    monkeypatch.setattr(app.database, "write", forgetful)
    jobs = [await office.jobs.submit("work", token=f"{n % 2}") for n in range(10)]
    assert [await job.wait(20) for job in jobs] == [1] * 10
    assert lost == 5
    counts = await office.database.fetchval("select count(*) from relevo.job_history")
    assert counts == 10


async def test_a_stopping_host_lets_handlers_end(office: Office, stage: Stage) -> None:  # S17
    async def work(ctx: Any) -> str:
        await stage.pass_by()
        return "done"

    app = office.new_app()
    app.job("work")(work)
    async with app.host():
        jobs = [await office.jobs.submit("work") for _ in range(20)]  # more than slots
        await until(lambda: len(stage.calls) == 8, "all slots are taken")
        asyncio.get_running_loop().call_later(0.1, stage.go.set)
    rows = [await job.get() for job in jobs]
    assert {row.status_code for row in rows} == {0, 30}
    assert sum(row.status_code == 30 for row in rows) == len(stage.calls) == 8
    assert {row.crashes for row in rows} == {0}


async def test_a_stopping_host_claims_nothing_more(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:  # S17, 6.1
    async def work(ctx: Any) -> None: ...

    app = office.new_app()
    app.job("work")(work)
    async with app.host():
        await office.jobs.submit_many("work", [{}] * 200)
        write, asked = app.database.write, list[bool]()

        async def watched(sql: str, *arguments: Any, **options: Any) -> Any:
            if sql == SQL.work:
                asked.append(bool(arguments[3]))
            return await write(sql, *arguments, **options)

        stopping = asyncio.ensure_future(app.parts.of(JobsPart).stop(5))
        await asyncio.sleep(0)
        monkeypatch.setattr(app.database, "write", watched)
        await stopping
        held = "select count(*) from relevo.job where host is not null"
        assert await office.database.fetchval(held) == 0
        assert not any(asked)


async def test_a_stopping_host_returns_what_does_not_end(
    office: Office, stage: Stage
) -> None:  # S17
    async def work(ctx: Any) -> str:
        await stage.pass_by(ctx.attempt)
        return "done"

    app = office.new_app(drain_seconds=0.05)
    app.job("work")(work)
    async with app.host():
        jobs = {name: await office.jobs.submit("work") for name in ("run", "pause", "cancel")}
        for job in jobs.values():
            await office.until_status(job, 20)
        await jobs["pause"].pause()
        await jobs["cancel"].cancel()
    rows = {name: await job.get() for name, job in jobs.items()}
    assert {name: row.status_code for name, row in rows.items()} == {
        "run": 0,
        "pause": 10,
        "cancel": 32,
    }
    assert {row.crashes for row in rows.values()} == {0}
    stage.go.set()
    await office.host({"work": work}, "b")
    assert await jobs["run"].wait(10) == "done"


async def test_a_stopping_host_returns_threads_that_hear_nothing(office: Office) -> None:  # S17
    gate = threading.Event()

    def deaf(ctx: Any) -> None:
        gate.wait()

    app = office.new_app(drain_seconds=0.01)
    app.job("deaf")(deaf)
    async with app.host():
        job = await office.jobs.submit("deaf")
        await office.until_status(job, 20)
        try:
            await app.parts.of(JobsPart).stop(0.01)
            assert (await job.get()).status_code == 0
        finally:
            gate.set()


async def test_a_host_whose_life_ended_begins_another_with_empty_hands(
    office: Office, stage: Stage
) -> None:  # A5, S14, 6.1
    cut: list[int] = []

    async def work(ctx: Any) -> int:
        if ctx.attempt == 1:
            try:
                await stage.pass_by()
            finally:
                cut.append(ctx.attempt)
        return int(ctx.attempt)

    app = await office.host({"work": work})
    former = app.leases.life.incarnation
    jobs = [await office.jobs.submit("work") for _ in range(3)]
    for job in jobs:
        await office.until_status(job, 20)
    await office.database.write(
        "update relevo.host set ended_at = relevo.now(), end_reason = 'lapsed'"
        " where incarnation = $1 returning 1",
        former,
    )
    assert [await job.wait(20) for job in jobs] == [2, 2, 2]
    assert cut == [1, 1, 1]
    assert {(await job.get()).crashes for job in jobs} == {1}


async def test_a_worker_that_breaks_down_gives_back_what_it_held(
    office: Office, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:  # 6.1
    async def work(ctx: Any) -> int:
        if ctx.attempt == 1:
            await stage.pass_by()
        return int(ctx.attempt)

    app = await office.host({"work": work})
    job = await office.jobs.submit("work")
    await stage.entered.wait()

    async def broken(self: Any, woken: Any) -> None:
        monkeypatch.undo()
        raise RuntimeError("a fault in the loop itself")

    monkeypatch.setattr(Runner, "_rest", broken)
    assert await job.wait(20) == 2
    row = await job.get()
    assert row.crashes == 0
    assert app.supervisor.health()[0] is not None
