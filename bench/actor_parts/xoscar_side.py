"""Asks of xoscar's actors: CALLS CALLERS ACTORS. Run by the Python that has xoscar."""

import asyncio
import json
import sys
import time

import uvloop
import xoscar  # type: ignore[import-not-found,unused-ignore]


class Counter(xoscar.Actor):  # type: ignore[misc,unused-ignore]
    def __init__(self) -> None:
        self.number = 0

    async def add(self, number: int) -> int:
        self.number += number
        return self.number


async def main(calls: int, callers: int, actors: int) -> None:
    pool = await xoscar.create_actor_pool("127.0.0.1", n_process=0)
    async with pool:
        address = pool.external_address
        counters = [
            await xoscar.create_actor(Counter, address=address, uid=str(n)) for n in range(actors)
        ]

        async def asks(count: int) -> None:
            numbers = iter(range(count))

            async def caller() -> None:
                for number in numbers:
                    await counters[number % actors].add(1)

            await asyncio.gather(*(caller() for _ in range(callers)))

        await asks(max(actors, callers))
        began, cpu = time.perf_counter(), time.process_time()
        await asks(calls)
        seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    print(json.dumps({"per_second": calls / seconds, "cpu": cpu / calls * 1e6}), flush=True)


if __name__ == "__main__":
    uvloop.run(main(*map(int, sys.argv[1:])))
