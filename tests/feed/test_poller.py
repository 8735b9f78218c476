"""Who asks for idle leases: an answer counts only for those who still wait for it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

import pytest

from relevo.feed.reading.poller import Poller
from relevo.kernel.postgres import Wakeups

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from relevo.kernel.postgres import Database

pytestmark = pytest.mark.anyio
RANGE = 1


class SlowStore:
    """A database whose answers the test gives."""

    def __init__(self) -> None:
        self.questions: asyncio.Queue[asyncio.Future[list[dict[str, Any]]]] = asyncio.Queue()

    async def fetch(self, *_: object) -> list[dict[str, Any]]:
        question: asyncio.Future[list[dict[str, Any]]] = asyncio.get_running_loop().create_future()
        self.questions.put_nowait(question)
        return await question


def head(lsn: int) -> list[dict[str, Any]]:
    return [{"n": 0, "range_id": RANGE, "lsn": lsn, "sealed": False}]


async def answered(poller: Poller, store: SlowStore, wakeups: Wakeups) -> None:
    """Return when the answer that was given last was read: the next question follows it."""
    next_wait = asyncio.create_task(poller.wait({RANGE: 4}, asyncio.Event()))
    wakeups._deliver(["feed:7"])
    await store.questions.get()
    next_wait.cancel()


@pytest.fixture
async def bench(database: Database) -> AsyncIterator[tuple[Poller, SlowStore, Wakeups]]:
    store, wakeups = SlowStore(), Wakeups(database)
    poller = Poller(cast("Database", store), wakeups, 7, "latest", interval=60.0)
    running = asyncio.create_task(poller.run())
    yield poller, store, wakeups
    running.cancel()


async def test_an_answer_that_comes_after_the_wait_changes_nothing(
    bench: tuple[Poller, SlowStore, Wakeups],
) -> None:  # P1
    # A worker skips to the head that it was told, since its read comes after. A head from a
    # question that was still under way may lie behind what that read saw: changes would be lost.
    poller, store, wakeups = bench
    waiting = asyncio.create_task(poller.wait({RANGE: 4}, asyncio.Event()))
    first = await store.questions.get()
    wakeups._deliver(["feed:7"])  # while the first question is under way: asked again at once
    first.set_result(head(5))
    found = await waiting
    assert found.heads == {RANGE: 5}

    (await store.questions.get()).set_result(head(9))
    await answered(poller, store, wakeups)
    assert found.heads == {RANGE: 5}


async def test_who_waits_is_told_and_asked_for_again_until_there_is_something(
    bench: tuple[Poller, SlowStore, Wakeups],
) -> None:
    poller, store, wakeups = bench
    waiting = asyncio.create_task(poller.wait({RANGE: 4}, asyncio.Event()))
    (await store.questions.get()).set_result([])
    wakeups._deliver(["feed:7"])
    (await store.questions.get()).set_result(head(6))
    assert (await waiting).heads == {RANGE: 6}


async def test_who_must_stop_does_not_wait_for_the_answer(
    bench: tuple[Poller, SlowStore, Wakeups],
) -> None:
    poller, store, wakeups = bench
    stopping = asyncio.Event()
    waiting = asyncio.create_task(poller.wait({RANGE: 4}, stopping))
    question = await store.questions.get()
    stopping.set()
    found = await waiting
    question.set_result(head(9))
    await answered(poller, store, wakeups)
    assert found.heads == {}
