"""One poll asks for all loops of a host; polling is the truth, and an idle host costs little."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

import asyncpg
import pytest

from relevo import App
from relevo.kernel.postgres import catalog
from relevo.kernel.postgres.polling import (
    LATELY_SECONDS,
    LISTENING_SECONDS,
    OFTEN_SECONDS,
    Question,
)
from relevo.kernel.postgres.wakeups import EVERYBODY, Wakeups

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from relevo.kernel.postgres.database import Database

pytestmark = pytest.mark.anyio

LONG = 30.0
"""Seconds that a wait which must be woken may take; a test that is right never waits so long."""
POLLS = 8
STATEMENTS_PER_POLL = 3
"""An idle host may send so many statements for each poll, the poll among them: at two polls a
second, less than six a second. Each part polled by itself before: 13 for each half second."""


@asynccontextmanager
async def polling(database: Database) -> AsyncIterator[Wakeups]:
    wakeups = Wakeups(database)
    task = asyncio.ensure_future(wakeups.polling.run())
    try:
        yield wakeups
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        await wakeups.close()


async def test_a_loop_is_woken_by_the_answer_to_its_question(database: Database) -> None:
    await database.write("create table public.note (id integer)")
    async with polling(database) as wakeups:
        rows = Question("select id from public.note where id > $1", lambda: (6,), of_rows=True)
        none = Question("select count(*) > $1 as due from public.note", lambda: (1_000,))
        with wakeups.signal(question=rows) as woken, wakeups.signal(question=none) as other:
            await database.write("insert into public.note values (6)")
            await asks(wakeups)
            assert not await woken.wait(0)
            await database.write("insert into public.note values (7)")
            assert await woken.wait(LONG)
            assert not await other.wait(0)


async def test_a_host_that_found_work_asks_often_for_a_while(database: Database) -> None:
    clock = asyncio.get_running_loop().time
    await database.write("create table public.arrival (id integer)")
    async with polling(database) as wakeups:
        wakeups.listening = True
        arrived = Question("select id from public.arrival", of_rows=True)
        late = Question("select count(*) > 0 as due from public.arrival", every=3_600.0)
        await database.write("insert into public.arrival values (1)")
        with wakeups.signal(question=late) as rare:
            assert await rare.wait(LONG)
            assert wakeups.polling.interval(clock()) == LISTENING_SECONDS  # it was no arrival
            with wakeups.signal(question=arrived) as woken:
                assert await woken.wait(LONG)
        assert wakeups.polling.interval(clock()) == OFTEN_SECONDS
        assert wakeups.polling.interval(clock() + LATELY_SECONDS) == LISTENING_SECONDS


async def test_what_is_due_later_is_not_looked_for_before(database: Database) -> None:
    async with polling(database) as wakeups:
        at = await database.fetchval("select relevo.now() + interval '0.3 s'")
        due = Question(
            "select extract(epoch from $1::timestamptz - relevo.now())::float8 as seconds",
            lambda: (at,), every=3_600.0,
        )  # fmt: skip
        with wakeups.signal(question=due) as woken:
            assert await woken.wait(LONG)
            assert await database.fetchval("select relevo.now()") >= at


async def test_moved_time_is_asked_about_at_once(database: Database) -> None:
    async with polling(database) as wakeups:
        asked = asyncio.Event()

        def arguments() -> Sequence[Any]:
            asked.set()
            return ()

        rare = Question("select false as due", arguments, every=3_600.0)
        with wakeups.signal(question=rare):
            await asks(wakeups)
            asked.clear()
            wakeups._deliver([EVERYBODY])  # what a NOTIFY of that topic does
            await asyncio.wait_for(asked.wait(), LONG)


async def test_loops_poll_for_themselves_while_the_poll_fails(database: Database) -> None:
    await database.write("create table public.note (id integer)")
    async with polling(database) as wakeups:
        with wakeups.signal(question=Question("select false as due")) as fine:
            await asks(wakeups)
            assert fine.patience(0.25) > LISTENING_SECONDS
            with wakeups.signal(question=Question("select id from nothing", of_rows=True)):
                assert await fine.wait(LONG)  # told to look for itself
                assert fine.patience(0.25) == 0.25
            await asks(wakeups)  # and goes on when it can


async def asks(wakeups: Wakeups) -> None:
    """Return when the present questions have been answered."""
    with wakeups.signal(question=Question("select true as due")) as woken:
        while not (await woken.wait(LONG) and wakeups.polling.answers):
            pass


async def test_an_idle_host_sends_few_statements(
    relevo_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: Counter[str] = Counter()
    count_statements(monkeypatch, sent)
    app = App(relevo_url)
    orders = app.container("orders", partition_key="/city")

    @orders.on_changes("kitchen")
    async def cook(changes: Sequence[Any]) -> None:
        del changes

    @app.job("receipt")
    async def receipt(ctx: Any) -> None:
        del ctx

    @app.queue("inbox").on_messages("clerks")
    async def read(message: Any) -> None:
        del message

    async with app.host():
        while not (idle(app) and sent["forget_waits"]):  # what a new leader catches up with
            await asyncio.sleep(LISTENING_SECONDS)
        sent.clear()
        while sent["poll"] < POLLS:
            await asyncio.sleep(LISTENING_SECONDS)
        assert sent.total() <= STATEMENTS_PER_POLL * sent["poll"], sent
        await receipt.submit()  # and yet it is awake
        assert (await orders.upsert({"id": "1", "city": "Vigo"})) is not None


def idle(app: App) -> bool:
    """Whether all loops of the host leave the looking to its poll."""
    return app.wakeups.polling.answers and app.wakeups.listening


def count_statements(monkeypatch: pytest.MonkeyPatch, sent: Counter[str]) -> None:
    """Count the statements that are sent on any connection, by name."""
    connection: Any = asyncpg.Connection
    for method in ("fetch", "fetchrow", "fetchval", "execute"):
        original = getattr(connection, method)

        async def counted(
            self: Any, query: str, *args: Any, _original: Any = original, **options: Any
        ) -> Any:
            sent[(catalog.name_of(query) or query[:40]).rpartition(".")[2]] += 1
            return await _original(self, query, *args, **options)

        monkeypatch.setattr(connection, method, counted)
