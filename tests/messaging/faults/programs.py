"""What the processes of messaging tests run: hosts with consumers, receivers and senders."""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from relevo.errors import CallerError, RelevoError
from relevo.messaging import Aging, Message, Strict
from relevo.messaging.host import MessagingPart
from tests.support.parts import serve

if TYPE_CHECKING:
    from collections.abc import Callable

    from relevo import App
    from relevo.messaging import Received
    from relevo.messaging.handles import Queue, Subscription, Topic
    from relevo.testing.recorder import Recorder

GATE_VARIABLE = "PROGRAM_GATE"
"""A file; handlers that wait go on once it is there."""
TABLES = """
create table effect (at bigserial primary key, message text, source text, deliveries integer);
create table delivery (at bigserial primary key, message text, deliveries integer);
create table outbox (message text primary key)
"""
DEADLY = 3
"""How often a message that always fails is delivered."""
AHEAD = 60
"""Messages that wait at most, so that the end does not take longer than the kills."""
WAITING = """
select (select count(*) from relevo.message where sub_queue = 0)
  + (select count(*) from relevo.message_arrival)
"""


class Post:
    """The entities of the tests, alike in every process."""

    def __init__(self, app: App) -> None:
        self.app = app
        self.work: Queue = app.queue("work", max_delivery_count=1000)
        self.inbox: Queue = app.queue("inbox", forward_to="work")
        self.poison: Queue = app.queue("poison", max_delivery_count=DEADLY)
        self.by_hand: Queue = app.queue("by-hand", lock_duration=2, max_delivery_count=1000)
        self.chats: Queue = app.queue("chats", requires_session=True, max_delivery_count=1000)
        self.news: Topic = app.topic("news")
        self.left: Subscription = self.news.subscription(
            "left", rules={"all": "n IS NOT NULL"}, max_delivery_count=1000
        )
        self.even: Subscription = self.news.subscription(
            "even", rules={"even": "n % 2 = 0"}, max_delivery_count=1000
        )

    async def make(self) -> None:
        for one in (
            self.work, self.inbox, self.poison, self.by_hand, self.chats, self.left, self.even,
        ):  # fmt: skip
            await one.ensure()


async def depot(app: App, record: Recorder) -> None:
    """Serve consumers, receive by hand or send, by the name of the process."""
    post = Post(app)
    role = app.leases.name.split("-")[0]
    if role == "receiver":
        app.supervisor.run("test.receive", lambda: receive(post, record))
    elif role == "sender":
        app.supervisor.run("test.send", lambda: send(post, record))
    elif role == "changer":
        app.supervisor.run("test.change", lambda: change(post))
    else:
        await consume(app, post, record)


async def effect(msg: Received) -> None:
    """Have an effect and complete the message, both or neither."""
    async with msg.transaction() as tx:
        await tx.execute(
            "insert into effect (message, source, deliveries) values ($1, $2, $3)",
            msg.message_id, msg.source, msg.delivery_count,
        )  # fmt: skip


async def effects(app: App, source: str) -> list[tuple[str, int]]:
    """Messages that had an effect, with how often they had been delivered before."""
    rows = await app.database.fetch(
        "select message, deliveries from effect where source = $1 order by message", source
    )
    return [tuple(row) for row in rows]


async def consume(app: App, post: Post, record: Recorder) -> None:
    app.consumers("workers", sources=[post.work, post.left, post.even], concurrency=4)(effect)

    post.chats.on_messages("talkers", concurrency=2)(effect)

    @post.poison.on_messages("victims", concurrency=2)
    async def fail(msg: Received) -> None:
        await app.database.write(
            "insert into delivery (message, deliveries) values ($1, $2) returning at",
            msg.message_id, msg.delivery_count,
        )  # fmt: skip
        raise RuntimeError("as always")

    @app.queue("gated", max_delivery_count=1000).on_messages("patient", concurrency=2)
    async def wait(msg: Received) -> None:
        record("began", id=msg.message_id, deliveries=msg.delivery_count)
        await opened()
        await effect(msg)
        record("ended", id=msg.message_id)

    part = app.parts.of(MessagingPart)
    await part.stop(0)
    await serve(app, MessagingPart)


async def receive(post: Post, record: Recorder) -> None:
    """Receive by hand; a lock that is lost leaves no effect."""
    while True:
        try:
            for msg in await post.by_hand.receive(5, wait=5):
                with suppress(CallerError):
                    await effect(msg)
                    record("received", id=msg.message_id)
        except RelevoError:
            await asyncio.sleep(0.05)


async def send(post: Post, record: Recorder) -> None:
    """Send in every way; what was accepted is on record before the next is sent."""
    name = os.getpid()

    async def each(way: str, sent: Callable[[str, int], Any]) -> None:
        for n in count():
            while await enough(post.app):
                await asyncio.sleep(0.02)
            id_ = f"{way}-{name}-{n}"
            record("sending", way=way, id=id_, n=n)
            with suppress(RelevoError):
                await sent(id_, n)
                record("sent", way=way, id=id_, n=n)

    async def in_transaction(id_: str, n: int) -> None:
        async with post.app.database.transaction() as tx:
            await tx.execute("insert into outbox values ($1)", id_)
            await post.work.send(n, message_id=id_, tx=tx)

    async def batch(id_: str, n: int) -> None:
        await post.news.send_many(
            [Message(n, message_id=f"{id_}/{part}", properties={"n": part}) for part in range(3)]
        )

    await asyncio.gather(
        each("work", lambda id_, n: post.work.send(n, message_id=id_, priority=n % 10)),
        each("inbox", lambda id_, n: post.inbox.send(n, message_id=id_)),
        each("poison", lambda id_, n: post.poison.send(n, message_id=id_)),
        each("by-hand", lambda id_, n: post.by_hand.send(n, message_id=id_)),
        each("chats", lambda id_, n: post.chats.send(n, message_id=id_, session_id=f"{name}")),
        each("news", batch),
        each("outbox", in_transaction),
    )


async def change(post: Post) -> None:
    """Switch the policy of a queue back and forth."""
    for n in count():
        await post.work.update(ordering=(Strict(), Aging())[n % 2])


async def enough(app: App) -> bool:
    try:
        return bool(await app.database.fetchval(WAITING) >= AHEAD)
    except RelevoError:
        return True


async def opened() -> None:
    """Wait for the gate."""
    gate = Path(os.environ[GATE_VARIABLE])
    while not gate.exists():
        await asyncio.sleep(0.01)
