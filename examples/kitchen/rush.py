"""A rush hour: many orders at once, and hosts that are killed while they work; then the books.

`python rush.py --orders 60 --kills 3` prints what was found of every order, as JSON. It is also the
end-to-end test of Relevo.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
from itertools import cycle
from pathlib import Path
from random import Random

from hosts import Hosts
from premises import temporary_home

HOSTS = ("north", "south")


async def main(orders: int, kills: int, hosts: Hosts) -> None:
    """Serve all orders, kill hosts in between, and print the evidence."""
    # The settings, such as the folder of the database, are read when these are imported.
    import books
    import kitchen
    from shift import CUSTOMERS, Shift

    async with hosts, kitchen.app:
        await kitchen.furnish()
        for name in HOSTS:
            await hosts.start(name)
        shift = Shift(1, Random(), pause=0)
        async with asyncio.TaskGroup() as group:
            working = group.create_task(shift.run(orders))
            for kill, host in zip(range(kills), cycle(HOSTS), strict=False):
                await shift.delivered(orders * (kill + 1) // (kills + 1))
                await hosts.kill(host)
                await hosts.start(host)
            await shift.delivered(orders)
            found = await books.settled(shift.status_of, CUSTOMERS)
            working.cancel()
    print(json.dumps({"orders": list(shift.status_of), "evidence": found}))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--orders", type=int, default=60)
    parser.add_argument("--kills", type=int, default=3)
    parser.add_argument("--database", help="a PostgreSQL instead of an embedded one")
    arguments = parser.parse_args()
    with temporary_home(arguments.database) as (folder, held):
        os.chdir(Path(__file__).parent)
        opened = Hosts(folder / "hosts.log", held)
        asyncio.run(main(arguments.orders, arguments.kills, opened))
