"""One side of a measurement of Redis Streams: `python redis_side.py ROLE URL [ARGUMENT …]`.

One stream with one group; what is acknowledged is deleted, as a queue does.
"""

from __future__ import annotations

import os
import sys
from typing import Any, Final

import side  # type: ignore[import-not-found,unused-ignore]
import uvloop
from redis import asyncio as redis  # type: ignore[import-not-found,unused-ignore]

STREAM: Final = "bench"
GROUP: Final = "bench"
READ: Final = 1_000


class Streams:
    """A client with its pool of connections."""

    def __init__(self, client: Any) -> None:
        self._client = client

    async def prepare(self) -> None:
        """Make the stream anew, empty."""
        await self._client.delete(STREAM)
        await self._client.xgroup_create(STREAM, GROUP, id="0", mkstream=True)

    async def send(self, data: bytes) -> None:
        """Send a message; returns when the server has it as safe as `appendfsync` says."""
        await self._client.xadd(STREAM, {"body": data})

    async def send_many(self, datas: list[bytes]) -> None:
        """Send messages in one round trip."""
        async with self._client.pipeline(transaction=False) as pipe:
            for data in datas:
                pipe.xadd(STREAM, {"body": data})
            await pipe.execute()

    async def consume(self, tally: side.Tally) -> None:
        """Receive and acknowledge, as many at a time as there are."""
        name = str(os.getpid())
        while True:
            found = await self._client.xreadgroup(GROUP, name, {STREAM: ">"}, READ, block=1000)
            for _, entries in found:
                ids = [id_ for id_, _ in entries]
                async with self._client.pipeline(transaction=False) as pipe:
                    pipe.xack(STREAM, GROUP, *ids)
                    pipe.xdel(STREAM, *ids)
                    await pipe.execute()
                for _, fields in entries:
                    tally.add(fields[b"body"])


async def main(role: str, url: str, *rest: str) -> None:
    async with redis.from_url(url) as client:
        await side.run(Streams(client), role, *rest)


if __name__ == "__main__":
    uvloop.run(main(*sys.argv[1:]))
