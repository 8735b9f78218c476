"""Connections cut around PgBouncer in transaction mode: before it, or between it and the server."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from relevo import App, settings
from relevo.errors import MessageLockLost, OutcomeUnknown
from relevo.testing.proxy import Proxy
from tests.kernel.postgres.servers import pgbouncer
from tests.messaging.faults import programs
from tests.messaging.faults.programs import effects

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.parametrize("proxy", ["before", "behind"], indirect=True),
    pytest.mark.parametrize("lost", ["commit", "answer"]),
]


@pytest.fixture
def proxy(relevo_url: str, request: pytest.FixtureRequest) -> Iterator[tuple[str, Proxy]]:
    """A URL that leads through PgBouncer, and the proxy before or behind it."""
    if request.param == "before":
        with pgbouncer(relevo_url) as url, Proxy.to(url) as proxy:
            yield proxy.url(url), proxy
    else:
        with Proxy.to(relevo_url) as proxy, pgbouncer(proxy.url(relevo_url)) as url:
            yield url, proxy


@pytest.fixture
async def far(proxy: tuple[str, Proxy]) -> AsyncIterator[App]:
    """An app that reaches the database through PgBouncer and the proxy."""
    async with App(settings=settings.load({"database_url": proxy[0]}, environ={})) as app:
        yield app


async def lose(far: App, proxy: Proxy, lost: str) -> list[str]:
    """Cut the connections when the next commit is on its way, or its answer; tells that it was."""
    await far.wakeups.close()  # what waits to be sent would commit first
    told: list[str] = []

    def cut() -> None:
        told.append(lost)
        proxy.reset()

    if lost == "commit":
        proxy.on_bytes("upstream", b"COMMIT;", cut)
    else:
        proxy.on_bytes("downstream", b"COMMIT\0", cut)
    return told


async def test_a_send_has_one_outcome(
    post: programs.Post, far: App, proxy: tuple[str, Proxy], lost: str
) -> None:  # M1, M17, M18
    queue = far.queue("once", duplicate_window=600)
    await queue.send(b"first")
    told = await lose(far, proxy[1], lost)
    with pytest.raises(OutcomeUnknown):
        await queue.send(b"x", message_id="n")
    assert told
    stored = len(await post.app.queue("once").peek()) == 2
    assert stored == (lost == "answer")
    assert (await queue.send(b"x", message_id="n")).duplicate == stored
    assert [one.message_id for one in await queue.peek()][1:] == ["n"]


async def test_a_settlement_has_one_outcome(
    post: programs.Post, far: App, proxy: tuple[str, Proxy], lost: str
) -> None:  # M2, M3
    queue = far.queue("q")
    await queue.send(b"x")
    (message,) = await queue.receive()
    told = await lose(far, proxy[1], lost)
    await message.complete()
    assert told
    figures = (await post.app.queue("q").describe()).messages
    assert (figures.completed, figures.active, figures.locked) == (1, 0, 0)
    with pytest.raises(MessageLockLost):
        await message.abandon()


async def test_effects_and_completion_share_their_outcome(
    post: programs.Post, far: App, proxy: tuple[str, Proxy], lost: str
) -> None:  # M2, M18
    queue = far.queue("q")
    await queue.send(b"x", message_id="x")
    (message,) = await queue.receive()
    told = await lose(far, proxy[1], lost)
    with pytest.raises(OutcomeUnknown):
        await programs.effect(message)
    assert told
    left = await post.app.queue("q").peek()
    assert len(await effects(post.app, "q")) + len(left) == 1
    assert len(left) == (lost == "commit")
