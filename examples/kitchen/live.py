"""The kitchen while it is open: customers order, cooks cook, and a key kills a host."""

from __future__ import annotations

import asyncio
import os
import sys
import termios
import tty
from contextlib import contextmanager
from itertools import cycle
from random import Random
from typing import TYPE_CHECKING, Any

from rich.live import Live

import books
import kitchen
from shift import CUSTOMERS, Shift
from summary import Summary

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hosts import Hosts

KILL, END = "k", "q"
BACK_SECONDS = 8.0
"""How long a killed host stays away, so that one sees who takes over."""
TAKE_OVER_SECONDS_MAX = 60.0


class OpenKitchen:
    """Runs until `q` or a cancellation."""

    def __init__(self, hosts: Hosts, first: dict[str, Any], next_order: int) -> None:
        self._hosts = hosts
        self._shift = Shift(next_order, Random())
        self._summary = Summary(self._shift, hosts, first["sign_in"])
        # The first host serves the dashboard that one looks at, so the others are killed.
        self._victims = cycle(name for name in hosts.names if name != first["host"])

    async def run(self) -> str:
        """Serve orders until `q`; return what the books say."""
        with keys() as pressed, Live(self._summary, refresh_per_second=4):
            async with asyncio.TaskGroup() as group:
                tasks = [
                    group.create_task(self._shift.run()),
                    group.create_task(self._summary.follow()),
                ]
                while (key := await pressed.get()) != END:
                    if key == KILL:
                        tasks.append(group.create_task(self._kill(next(self._victims))))
                self._summary.tell("no more orders; those that are open are served …")
                self._shift.stop_orders()
                await self._shift.all_delivered()
                found = await books.settled(self._shift.status_of, CUSTOMERS)
                for task in tasks:
                    task.cancel()
        return books.verdict(self._shift.status_of, found)

    async def _kill(self, name: str) -> None:
        if name not in self._hosts.names:
            self._summary.tell(f"{name} is not back yet")
            return
        await self._hosts.kill(name)
        self._summary.tell(f"{name} is killed (SIGKILL); its leases end with its heartbeat")
        heirs = await taken_over(name)
        self._summary.tell(f"{' and '.join(heirs)} took over everything that {name} owned")
        await asyncio.sleep(BACK_SECONDS)
        await self._hosts.start(name)
        self._summary.tell(f"{name} is back and gets its share again")


async def taken_over(name: str) -> list[str]:
    """Wait until a host owns nothing; return who owns it all now."""
    async with asyncio.timeout(TAKE_OVER_SECONDS_MAX):
        while True:
            leases = await kitchen.app.directory.leases(limit=1_000)
            owners = {lease.owner for lease in leases}
            if name not in owners and None not in owners:
                return sorted(map(str, owners))
            await asyncio.sleep(0.2)


@contextmanager
def keys() -> Iterator[asyncio.Queue[str]]:
    """Put keys into a queue as they are pressed, without Enter."""
    pressed: asyncio.Queue[str] = asyncio.Queue()
    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)
    loop = asyncio.get_running_loop()

    def read() -> None:
        for key in os.read(terminal, 64).decode(errors="replace"):
            pressed.put_nowait(key)

    tty.setcbreak(terminal)
    loop.add_reader(terminal, read)
    try:
        yield pressed
    finally:
        loop.remove_reader(terminal)
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)
