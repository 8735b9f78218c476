"""Wake-ups are hints: coalesced, after the commit, and never needed (DESIGN D9)."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from relevo import limits
from relevo.kernel.postgres.wakeups import EVERYBODY, Signal, Wakeups

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from relevo.kernel.postgres.database import Database
    from relevo.testing.proxy import Proxy

pytestmark = pytest.mark.anyio

LONG = 30.0
"""Seconds that a wait which must be woken may take; a test that is right never waits so long."""


@asynccontextmanager
async def listening(database: Database) -> AsyncIterator[Wakeups]:
    wakeups = Wakeups(database)
    task = asyncio.ensure_future(wakeups.listen())
    try:
        await until_listening(wakeups)
        yield wakeups
    finally:
        task.cancel()
        await wakeups.close()


async def until_listening(wakeups: Wakeups) -> None:
    with wakeups.signal("any") as signal:
        while not wakeups.listening:
            await signal.wait(0.1)


async def test_a_wake_up_reaches_waiters_here_and_in_other_processes(database: Database) -> None:
    async with listening(database) as here, listening(database) as there:
        with here.signal("unit:7") as near, there.signal("unit:7") as far:
            here.send("unit:7")
            assert await near.wait(LONG)
            assert await far.wait(LONG)


async def test_only_those_who_wait_for_the_topic_are_woken(database: Database) -> None:
    async with listening(database) as here, listening(database) as there:
        with there.signal("unit:7") as other, there.signal("unit:8", "unit:9") as awaited:
            here.send("unit:9")
            assert await awaited.wait(LONG)
            assert not await other.wait(0)


async def test_a_wake_up_that_came_before_the_wait_counts_once(database: Database) -> None:
    wakeups = Wakeups(database)
    with wakeups.signal("unit:7") as signal:
        wakeups.send("unit:7")
        wakeups.send("unit:7")
        assert await signal.wait(0) is True
        assert await signal.wait(0) is False
    await wakeups.close()


async def test_a_cancelled_wait_does_not_use_up_a_wake_up(database: Database) -> None:
    wakeups = Wakeups(database)
    with wakeups.signal("unit:7") as signal:
        waiting = asyncio.ensure_future(signal.wait(LONG))
        await asyncio.sleep(0)
        signal.set()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert await signal.wait(0) is True


async def test_a_signal_that_is_left_leaves_nothing_behind(database: Database) -> None:
    wakeups = Wakeups(database)
    with wakeups.signal("unit:7") as first, wakeups.signal("unit:7") as second:
        second.listen("unit:8")
        assert wakeups.signals == {"unit:7": {first, second}, "unit:8": {second}}
    assert wakeups.signals == {}


async def heard(database: Database, wakeups: Wakeups, *sends: list[str]) -> list[set[str]]:
    """The notifications that another process gets for these calls of `send`."""
    payloads: asyncio.Queue[set[str]] = asyncio.Queue()

    def hear(_connection: object, _pid: int, _channel: str, payload: object) -> None:
        payloads.put_nowait(set(str(payload).split("\n")[1:]))

    connection = await database.endpoint.connect()
    try:
        await connection.add_listener(database.schema, hear)
        for topics in sends:
            wakeups.send(*topics)
        await wakeups.close()
        await database.fetch("select pg_notify($1, $2)", database.schema, "test\nend")
        found = []
        async with asyncio.timeout(LONG):
            while (topics_heard := await payloads.get()) != {"end"}:
                found.append(topics_heard)
        await connection.remove_listener(database.schema, hear)
    finally:
        await connection.close()
    return found


async def test_a_burst_becomes_one_notification(database: Database) -> None:
    wakeups = Wakeups(database)
    payloads = await heard(database, wakeups, *(["unit:1", f"unit:{n}"] for n in range(100)))
    assert payloads == [{f"unit:{n}" for n in range(100)}]
    assert wakeups.sent == 1


async def test_what_comes_while_one_is_on_its_way_goes_with_the_next(database: Database) -> None:
    wakeups = Wakeups(database)
    wakeups.send("first")
    while wakeups.sent == 0:
        await asyncio.sleep(0)
    assert await heard(database, wakeups, ["second"], ["third"]) == [{"second", "third"}]
    assert wakeups.sent == 2


async def test_more_topics_than_fit_go_in_several_notifications(database: Database) -> None:
    topics = [f"unit:{n}:{'ñ' * limits.NAME_LENGTH_MAX}" for n in range(100)]
    wakeups = Wakeups(database)
    payloads = await heard(database, wakeups, topics)
    assert sorted(topic for payload in payloads for topic in payload) == sorted(topics)
    assert len(payloads) == wakeups.sent > 1


async def test_close_sends_what_is_pending(database: Database) -> None:
    wakeups = Wakeups(database)
    wakeups.send("unit:7")
    await wakeups.close()
    assert wakeups.sent == 1
    await Wakeups(database).close()  # one that never sent


async def test_one_connection_listens_for_all(database: Database) -> None:
    async with listening(database) as wakeups:
        with wakeups.signal("unit:7"), wakeups.signal("unit:8"):
            listeners = await database.fetchval(
                "select count(*) from pg_stat_activity"
                " where query ~* '^listen' and datname = current_database()"
            )
            assert listeners == 1


async def woken_by_reconnecting(signal: Signal, wakeups: Wakeups) -> None:
    """Waits until the listener is back; everybody was woken then, for they may have missed one."""
    assert await signal.wait(LONG)
    assert wakeups.listening


async def test_after_a_lost_connection_everybody_is_woken(
    proxy: Proxy, proxied: Database, database: Database
) -> None:
    async with listening(proxied) as wakeups, listening(database) as other:
        with wakeups.signal("unit:7") as signal:
            proxy.reset()
            await woken_by_reconnecting(signal, wakeups)
            other.send("unit:7")
            assert await signal.wait(LONG)


async def test_a_listener_whose_backend_is_terminated_comes_back(
    proxied: Database, database: Database
) -> None:
    async with listening(proxied) as wakeups:
        with wakeups.signal("unit:7") as signal:
            await database.fetch(
                "select pg_terminate_backend(pid, 5000) from pg_stat_activity"
                " where query ~* '^listen' and datname = current_database()"
            )
            await woken_by_reconnecting(signal, wakeups)


async def test_a_wake_up_that_does_not_arrive_costs_nothing_but_time(
    proxy: Proxy, proxied: Database, database: Database
) -> None:
    async with listening(proxied) as wakeups, listening(database) as other:
        with wakeups.signal("unit:7") as signal:
            assert await signal.wait(0) is False
            proxy.cut_downstream()
            other.send("unit:7")
            await other.close()
            assert await signal.wait(0.1) is False  # and the waiter goes to look
            proxy.heal()
            assert await signal.wait(LONG) is True


@pytest.mark.usefixtures("impatient")
async def test_a_sender_that_cannot_reach_the_database_gives_up_quietly(
    proxy: Proxy, proxied: Database, database: Database
) -> None:
    wakeups = Wakeups(proxied)
    proxy.refuse()
    proxy.reset()
    wakeups.send("unit:7")
    await wakeups.close()
    assert wakeups.sent == 0
    proxy.heal()
    assert await heard(database, wakeups, ["unit:8"]) == [{"unit:8"}]


async def test_everybody_can_be_woken(database: Database) -> None:
    async with listening(database) as there:
        with there.signal("unit:7") as one, there.signal("unit:8") as another:
            await database.fetch("select pg_notify($1, $2)", database.schema, f"clock\n{EVERYBODY}")
            assert await one.wait(LONG)
            assert await another.wait(LONG)
