"""One side of a measurement of RabbitMQ: `python rabbitmq_side.py ROLE URL [ARGUMENT …]`.

A durable queue, persistent messages, publisher confirms, manual acks with a prefetch of 1,000.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any, Final

import aio_pika  # type: ignore[import-not-found,unused-ignore]
import side  # type: ignore[import-not-found,unused-ignore]
import uvloop

QUEUE: Final = "bench"
PREFETCH: Final = 1_000


class RabbitMQ:
    """A connection with one channel."""

    def __init__(self, channel: Any) -> None:
        self._channel = channel

    async def prepare(self) -> None:
        """Make the queue anew, empty."""
        await self._channel.queue_delete(QUEUE)
        await self._channel.declare_queue(QUEUE, durable=True)

    async def send(self, data: bytes) -> None:
        """Send a message; returns when the broker has confirmed it."""
        message = aio_pika.Message(data, delivery_mode=aio_pika.DeliveryMode.PERSISTENT)
        await self._channel.default_exchange.publish(message, QUEUE)

    async def send_many(self, datas: list[bytes]) -> None:
        """Send messages; returns when all are confirmed."""
        await asyncio.gather(*map(self.send, datas))

    async def consume(self, tally: side.Tally) -> None:
        """Receive and acknowledge."""
        await self._channel.set_qos(prefetch_count=PREFETCH)
        queue = await self._channel.get_queue(QUEUE)

        async def handle(message: Any) -> None:
            tally.add(message.body)
            await message.ack()

        await queue.consume(handle)
        await asyncio.Event().wait()


async def main(role: str, url: str, *rest: str) -> None:
    async with await aio_pika.connect(url) as connection:
        await side.run(RabbitMQ(await connection.channel(publisher_confirms=True)), role, *rest)


if __name__ == "__main__":
    uvloop.run(main(*sys.argv[1:]))
