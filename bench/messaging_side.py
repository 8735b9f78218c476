"""Relevo's side of the measurement of messages: `python -m bench.messaging_side ROLE URL …`.

The roles are those of `bench.jobs_peers.run`, so that everybody is measured by the same clock;
`fanout` sends to a topic with ten filtered subscriptions. BENCH_MESSAGES_ORDERING names the policy
of the queue, BENCH_MESSAGES_MIXED=1 sends messages of three classes in turns.
"""

from __future__ import annotations

import os
import sys
from typing import Any, Final

from bench.jobs_side import Tally, now, tell, work
from bench.messaging_peers import side
from relevo import App, settings
from relevo.kernel import serving, telemetry
from relevo.messaging import Fifo, Message, Queue

ORDERING: Final = Fifo() if os.environ.get("BENCH_MESSAGES_ORDERING") == "fifo" else None
PRIORITIES: Final = (8, 4, 1) if os.environ.get("BENCH_MESSAGES_MIXED") == "1" else (None,)
SLOTS: Final = 100
SUBSCRIPTIONS: Final = 10


class Sender:
    """The queue as `bench.messaging_peers.side` sees a broker."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue

    async def send(self, data: bytes) -> None:
        """Send a message."""
        await self._queue.send(data)

    async def send_many(self, datas: list[bytes]) -> None:
        """Send messages with one call."""
        await self._queue.send_many(
            [
                Message(body=data, priority=PRIORITIES[n % len(PRIORITIES)])
                for n, data in enumerate(datas)
            ]
        )


async def fanout(app: App, count: int, size: int, chunk: int) -> None:
    """Send to a topic whose ten subscriptions all want the message."""
    topic = app.topic("news")
    for n in range(SUBSCRIPTIONS):
        wanted = f"tier = 'gold' AND amount > {n}"
        await topic.subscription(f"s{n}", rules={"wanted": wanted}).ensure()
    messages = [
        Message(body=side.body(size), properties={"tier": "gold", "amount": 100})
        for _ in range(chunk)
    ]
    await topic.send_many(messages)
    began = now()
    for _ in range(0, count, chunk):
        await topic.send_many(messages)
    tell({"seconds": (now() - began) / 1000})


async def main(role: str, url: str, *rest: str) -> None:
    telemetry.configure_logs("json", "warning")
    app, tally = App(settings=settings.load({"database_url": url}, environ={})), Tally()
    queue = app.queue("bench", ordering=ORDERING)

    @queue.on_messages("bench", concurrency=SLOTS)
    async def handle(message: Any) -> None:
        tally.count, tally.first = tally.count + 1, tally.first or now()
        if sent := side.sent_at(message.body):
            tally.delays.append(now() - sent)

    if role == "work":
        await work(app, tally)
        return
    async with app:
        if role == "prepare":
            await queue.ensure()
        elif role == "fanout":
            await fanout(app, *map(int, rest))
        else:
            await side.run(Sender(queue), role, *rest)


if __name__ == "__main__":
    serving.run(main(*sys.argv[1:]))
