"""Plain functions in threads: `ctx.transaction()` holds what it holds for coroutines."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import asyncpg
import pytest

from relevo.errors import Closed, Conflict
from relevo.jobs.core import codes
from relevo.jobs.errors import JobCanceled, JobFailed
from relevo.jobs.host import JobsPart
from relevo.kernel.running import threads
from relevo.kernel.running.threads import waited
from relevo.kernel.running.verdicts import Fail
from tests.jobs.office import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.jobs.office import Office

pytestmark = pytest.mark.anyio
INSERT = "insert into effect values ($1)"


class Gate:
    """Lets a test and a thread wait for each other."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.go = threading.Event()

    def pass_by(self) -> None:
        self.entered.set()
        assert self.go.wait(30)


@pytest.fixture
async def effects(office: Office) -> AsyncIterator[Office]:
    """An office with a table for what handlers do."""
    await office.database.write("create table effect (job uuid primary key)")
    try:
        yield office
    finally:
        await office.database.write("drop table effect")


async def stored(office: Office) -> list[Any]:
    return [row["job"] for row in await office.database.fetch("select job from effect")]


async def entered(gate: Gate) -> None:
    await until(gate.entered.is_set, "the handler is inside of its transaction")


async def test_effects_of_a_thread_commit_with_the_completion(effects: Office) -> None:  # A5, 5.3
    seen: list[Any] = []

    def work(ctx: Any) -> str:
        assert threading.current_thread() is not threading.main_thread()
        with ctx.transaction(result="kept") as tx:
            seen.append(tx.execute(INSERT, ctx.id))
            seen.append(tx.fetchval("select count(*) from effect where job = $1", ctx.id))
            seen.append(tx.fetchrow("select job from effect where job = $1", ctx.id)["job"])
            seen.append([row["job"] for row in tx.fetch("select job from effect")])
        return "not this"

    await effects.host({"work": work})
    job = await effects.jobs.submit("work", token="t")
    assert await job.wait(10) == "kept"
    assert seen == ["INSERT 0 1", 1, job.id, [job.id]]
    assert await stored(effects) == [job.id]
    assert (await job.get()).status_code == 30


async def test_nothing_is_seen_before_the_commit(effects: Office) -> None:  # 5.3
    gate = Gate()

    def work(ctx: Any) -> None:
        with ctx.transaction() as tx:
            tx.execute(INSERT, ctx.id)
            gate.pass_by()

    await effects.host({"work": work})
    job = await effects.jobs.submit("work")
    await entered(gate)
    assert (await stored(effects), (await job.get()).status_code) == ([], 20)
    gate.go.set()
    await job.wait(10)
    assert await stored(effects) == [job.id]


async def test_what_a_thread_raises_in_its_transaction_undoes_it(effects: Office) -> None:
    def work(ctx: Any) -> None:
        with ctx.transaction() as tx:
            tx.execute(INSERT, ctx.id)
            raise Fail(0x80041234, "there is no such customer")

    await effects.host({"work": work})
    job = await effects.jobs.submit("work")
    with pytest.raises(JobFailed):
        await job.wait(10)
    ended = await job.get()
    assert (ended.status_code, ended.error_code) == (31, codes.stored(0x80041234))
    assert await stored(effects) == []


async def test_the_error_of_a_statement_reaches_the_thread_as_it_is(effects: Office) -> None:
    raised: list[BaseException] = []

    def work(ctx: Any) -> None:
        try:
            with ctx.transaction() as tx:
                tx.execute(INSERT, ctx.id)
                tx.execute(INSERT, ctx.id)
        except asyncpg.UniqueViolationError as error:
            raised.append(error)
        with ctx.transaction(result="second") as tx:  # the first is undone: it completed nothing
            tx.execute(INSERT, ctx.id)

    await effects.host({"work": work})
    job = await effects.jobs.submit("work")
    assert await job.wait(10) == "second"
    assert len(raised) == 1
    assert await stored(effects) == [job.id]


@pytest.mark.parametrize("command", ["cancel", "delete"])
async def test_effects_of_a_thread_that_was_stopped_are_rolled_back(
    effects: Office, command: str
) -> None:  # A11, A31, A5
    gate = Gate()

    def work(ctx: Any) -> None:
        with ctx.transaction() as tx:
            tx.execute(INSERT, ctx.id)
            gate.pass_by()

    await effects.host({"work": work})
    job = await effects.jobs.submit("work", token="t")
    await entered(gate)
    await effects.jobs.command(job.id, command)
    gate.go.set()
    await effects.until_status(job, 32 if command == "cancel" else None)
    # The next of the chain starts: nothing of the former run is left.
    behind = await effects.jobs.submit("work", token="t")
    await behind.wait(10)
    assert await stored(effects) == [behind.id]


async def test_a_thread_whose_claim_is_not_its_own_any_more_commits_nothing(
    effects: Office,
) -> None:  # A5
    gate, raised = Gate(), threading.Event()

    def work(ctx: Any) -> None:
        if ctx.attempt > 1:
            return
        try:
            with ctx.transaction() as tx:
                tx.execute(INSERT, ctx.id)
                gate.pass_by()
        except BaseException:
            raised.set()
            raise

    await effects.host({"work": work})
    job = await effects.jobs.submit("work")
    await entered(gate)
    await effects.database.write("update relevo.job set claim = claim + 1000 where id = $1", job.id)
    gate.go.set()
    await until(raised.is_set, "the transaction is refused")
    assert await stored(effects) == []


async def test_a_transaction_is_used_inside_of_its_block_and_once(effects: Office) -> None:
    refused: list[str] = []

    def work(ctx: Any) -> None:
        with ctx.transaction() as tx:
            tx.execute(INSERT, ctx.id)
        try:
            tx.fetchval("select 1")
        except Conflict as error:
            refused.append(str(error))
        try:
            with ctx.transaction():
                pass
        except Conflict as error:
            refused.append(str(error))

    await effects.host({"work": work})
    job = await effects.jobs.submit("work")
    await job.wait(10)
    await until(lambda: len(refused) == 2, "both are refused")
    assert "is over" in refused[0]
    assert "completed by an earlier transaction" in refused[1]


async def test_a_thread_that_its_stopping_host_could_not_wait_for_commits_nothing(
    effects: Office,
) -> None:  # S17, A5
    gate, raised = Gate(), threading.Event()

    def work(ctx: Any) -> None:
        try:
            with ctx.transaction() as tx:
                tx.execute(INSERT, ctx.id)
                gate.pass_by()
        except JobCanceled:
            raised.set()
            raise

    app = effects.new_app(drain_seconds=0.01)
    app.job("work")(work)
    async with app.host():
        job = await effects.jobs.submit("work")
        await entered(gate)
        try:
            await app.parts.of(JobsPart).stop(0.01)
            assert (await job.get()).status_code == 0
        finally:
            gate.go.set()
        await until(raised.is_set, "the commit of the former run is refused")
    assert await stored(effects) == []
    assert (await job.get()).status_code == 0


def test_a_thread_that_outlives_the_loop_is_told() -> None:
    async def never() -> None:
        raise AssertionError("it never runs")

    loop = asyncio.new_event_loop()
    loop.close()
    with pytest.raises(Closed, match="has ended"):
        waited(never(), loop)


@pytest.mark.parametrize("begun", [False, True])
def test_a_thread_that_waits_while_the_loop_closes_is_told(
    monkeypatch: pytest.MonkeyPatch, begun: bool
) -> None:
    loop, sent = asyncio.new_event_loop(), threading.Event()
    begins = asyncio.Event()
    raised: list[BaseException] = []
    send = loop.call_soon_threadsafe

    def noted(*args: Any, **options: Any) -> asyncio.Handle:
        handle = send(*args, **options)
        sent.set()
        return handle

    async def endless() -> None:
        begins.set()
        await asyncio.Event().wait()

    def thread() -> None:
        try:
            waited(endless(), loop)
        except BaseException as error:
            raised.append(error)

    monkeypatch.setattr(threads, "TURN_SECONDS", 0.01, raising=False)
    monkeypatch.setattr(loop, "call_soon_threadsafe", noted)
    waiting = threading.Thread(target=thread, daemon=True)
    waiting.start()
    assert sent.wait(30)
    if begun:
        loop.run_until_complete(begins.wait())
    loop.close()
    waiting.join(30)
    assert [type(one) for one in raised] == [Closed]


async def test_a_timeout_of_the_work_itself_reaches_the_thread() -> None:
    async def late() -> None:
        raise TimeoutError("the statement took too long")

    loop = asyncio.get_running_loop()
    with pytest.raises(TimeoutError, match="the statement took"):
        await asyncio.to_thread(lambda: waited(late(), loop))
