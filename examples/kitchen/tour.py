"""The guided tour: real hosts, real cooks, and a host that is killed in the middle.

On a terminal the kitchen then stays open, with simulated customers and cooks: see `live.py`. It
needs nothing: the database is an embedded PostgreSQL in a temporary folder, removed at the end.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shlex
import signal
import socket
import sys
from collections import Counter
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Any

import relevo
from hosts import Hosts
from premises import LEASE_SECONDS, temporary_home
from relevo import RowQuery

HOSTS = ("north", "south")
STEP_SECONDS_MAX = 60.0


class Tour:
    """The steps of the tour, in order."""

    def __init__(self, hosts: Hosts) -> None:
        # The settings, such as the folder of the database, are read when these are imported.
        import kitchen
        import shift

        self._kitchen = kitchen
        self._shift = shift
        self.app = kitchen.app
        self._hosts = hosts
        self._counts: Counter[str] = Counter()
        self._answered = asyncio.Condition()
        self.ordered = 0

    async def furnish(self) -> None:
        """Define what the kitchen needs."""
        await self._kitchen.furnish()

    async def start_hosts(self, port: int) -> dict[str, Any]:
        """Start both hosts; return what the first one announced."""
        title("1  Two hosts")
        if port and is_taken(port):
            say(f"Port {port} is taken, so the host takes a free one.")
            port = 0
        first = await self._hosts.start(HOSTS[0], port)
        say(f"Watch it in a browser: {first['sign_in']}")
        await self._hosts.start(HOSTS[1])
        say(f"{HOSTS[0]} serves {first['url']}; {HOSTS[1]} shares its work.")
        await self._owned(dict.fromkeys(HOSTS, 8))
        return first

    async def tell(self, first: dict[str, Any]) -> None:
        """Take all further steps."""
        cooks = self._shift.COOKS
        await asyncio.gather(*map(self._kitchen.register, cooks))
        async with asyncio.TaskGroup() as group:
            cooking = [group.create_task(self._cook(name)) for name in cooks]
            await self._first_orders()
            await self._official_client(first)
            await self._kill_a_host()
            for task in cooking:
                task.cancel()
        await self._receipts()
        await self._scheduled()

    async def _first_orders(self) -> None:
        title("2  Orders, offers and cooks")
        say("Each order becomes a router job. Bo declines his first offer; Carla lets hers expire.")
        await self._order(9)
        async with self._answered, asyncio.timeout(STEP_SECONDS_MAX):
            await self._answered.wait_for(lambda: self._counts["cooked"] == 9)
            await self._answered.wait_for(lambda: self._counts["expired"] == 1)

    async def _official_client(self, first: dict[str, Any]) -> None:
        import official

        title("3  Microsoft's Job Router client")
        say("Dora's program was written for Azure. Only its endpoint and key are changed.")
        await self._order(1, self._kitchen.SPECIAL)
        async with asyncio.timeout(STEP_SECONDS_MAX):
            async with aclosing(official.work("Dora", first["url"], first["first_key"])) as orders:
                order = await anext(orders)
        city = self._shift.city_of(int(order))
        await self._kitchen.mark_cooked(order, city)
        say(f"   {'Dora':<8}{'cooked':<10}{self._kitchen.SPECIAL} for {city} (order {order})")
        self._counts["cooked"] += 1

    async def _kill_a_host(self) -> None:
        title(f"4  SIGKILL for {HOSTS[1]}")
        say(f"{HOSTS[0]} takes over its leases after {LEASE_SECONDS} s. No order is lost.")
        await self._hosts.kill(HOSTS[1])
        await self._order(6)
        async with self._answered, asyncio.timeout(STEP_SECONDS_MAX):
            await self._answered.wait_for(lambda: self._counts["cooked"] == self.ordered)
        await self._owned({HOSTS[0]: 16})

    async def _receipts(self) -> None:
        title("5  Deliveries and receipts")
        say("A cooked order is sent to the customer as a message, paying customers first.")
        async with asyncio.timeout(STEP_SECONDS_MAX):
            while await self._delivered() < self.ordered:
                await asyncio.sleep(0.1)
        say(f"   {await self._delivered()} orders delivered, each once")
        say("A system job charges the customer, two at a time, and writes a line into the ledger:")
        done = self.app.jobs.query().where(handler="receipt", status="succeeded")
        async with asyncio.timeout(STEP_SECONDS_MAX):
            while await done.count() < self.ordered:
                await asyncio.sleep(0.1)
        receipts = [job async for job in done]
        for customer in self._shift.CUSTOMERS:
            own = [job for job in receipts if job.data["customer"] == customer]
            own.sort(key=lambda job: job.sequence)
            say(f"   {customer:<8}{len(own)} receipts: {', '.join(job.result for job in own)}")

        lines = (Path(self.app.settings.home) / "receipts.csv").read_text().splitlines()[1:]
        say(f"   The ledger has {len(lines)} lines, written by one writer at a time.")

    async def _delivered(self) -> int:
        """Return how many orders have been brought to their customers."""
        orders = self._kitchen.orders.query(where=[("status", "=", "delivered")])
        return sum([1 async for _ in orders])

    async def _scheduled(self) -> None:
        title("6  Scheduled work")
        nightly = await self._kitchen.report.using(
            recurrence="FREQ=DAILY;BYHOUR=3;BYMINUTE=0", timezone="Europe/Madrid"
        ).submit()
        due = (await nightly.get()).postpone_until
        say(f"The nightly report is due at {due:%Y-%m-%d %H:%M} UTC.")
        receipts = RowQuery(table="asyncoperation", filter="name eq 'receipt' and statuscode eq 30")
        deleted = await (await self.app.bulk.delete(receipts)).wait(timeout=STEP_SECONDS_MAX)
        say(f"A bulk delete removed the records of {deleted['success']} receipts.")

    async def _order(self, count: int, *special: str) -> None:
        dishes = special or tuple(self._kitchen.COST_OF)
        for number in range(self.ordered + 1, self.ordered + count + 1):
            await self._shift.place(number, dishes[number % len(dishes)])
        self.ordered += count

    async def _cook(self, name: str) -> None:
        async with asyncio.TaskGroup() as group:
            first = True
            async for offer in self.app.router.worker(name).offers():
                answer = "accept"
                if first:
                    answer = {"Bo": "decline", "Carla": "ignore"}.get(name, answer)
                first = False
                group.create_task(self._answer(name, offer, answer))

    async def _answer(self, cook: str, offer: relevo.Offer, answer: str) -> None:
        tags = offer.about.job_tags
        dish = f"{tags['dish']} for {tags['city']} (order {offer.job_id})"
        outcome = "cooked"
        match answer:
            case "decline":
                outcome = "declined"
                await offer.decline()
            case "ignore":
                outcome = "expired"
                while (await self.app.router.get_worker(cook)).available_for_offers:
                    await asyncio.sleep(0.1)
            case _:
                try:
                    await self._kitchen.prepare(offer)
                except relevo.OfferGone:
                    return
        say(f"   {cook:<8}{outcome:<10}{dish}")
        async with self._answered:
            self._counts[outcome] += 1
            self._answered.notify_all()

    async def _owned(self, expected: dict[str, int]) -> None:
        """Wait until the hosts own the feed's leases as expected, and say so."""
        async with asyncio.timeout(STEP_SECONDS_MAX):
            while True:
                leases = await self.app.directory.leases(kind="feed", limit=100)
                if Counter(lease.owner for lease in leases) == expected:
                    break
                await asyncio.sleep(0.1)
        shares = ", ".join(f"{name} {count}" for name, count in expected.items())
        say(f"Leases of the change feed: {shares}.")


def look_around(first: dict[str, Any], home: str, log_path: Path) -> None:
    """Print what to try while the kitchen stays open."""
    title("Look around")
    program = f"relevo --home {shlex.quote(home)}"
    for line in (
        f"{program} router event list    every offer and answer",
        f"{program} lease list           which host owns what",
        f"{program} job list             the report that waits",
        f"{program} doctor               is everything as it should be?",
        f"{first['url']}/openapi.json    the HTTP API; its first key is {first['first_key']}",
        f"{log_path}    the log of the hosts",
    ):
        say(line)


def is_taken(port: int) -> bool:
    """Return whether something listens on a local port."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return True
    return False


def title(text: str) -> None:
    """Begin a step."""
    say(f"\n── {text} {'─' * (70 - len(text))}")


def say(text: str) -> None:
    """Print a line at once, also into a pipe."""
    print(text, flush=True)


async def main(folder: Path, held: int, port: int, *, tells: bool, stays: bool) -> None:
    """Take the tour, if it is wanted; with `stays`, keep the kitchen open until a key or signal."""
    stopping = asyncio.current_task()
    assert stopping is not None
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, stopping.cancel)
    log_path = folder / "hosts.log"
    with suppress(asyncio.CancelledError):
        async with Hosts(log_path, held) as hosts:
            say("Starting PostgreSQL in a temporary folder, which takes a few seconds …")
            tour = Tour(hosts)
            async with tour.app:
                await tour.furnish()
                first = await tour.start_hosts(port)
                if tells:
                    await tour.tell(first)
                if stays:
                    await stay_open(hosts, first, tour.ordered + 1, log_path)
    programs = Path(sys.executable).parent
    say(f"\nThe kitchen is closed. Start a host of your own with: {programs / 'relevo'} up")
    say(f'To have it on the PATH: export PATH="{programs}:$PATH"')


async def stay_open(hosts: Hosts, first: dict[str, Any], order: int, log_path: Path) -> None:
    """Let customers and cooks go on, and show how the kitchen stands."""
    from live import OpenKitchen

    for name in HOSTS:
        if name not in hosts.names:
            await hosts.start(name)
    look_around(first, os.environ["RELEVO_HOME"], log_path)
    title("The kitchen is open")
    say(await OpenKitchen(hosts, first, order).run())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=8080, help="0 takes a free port")
    parser.add_argument("--live", action="store_true", help="skip the tour and open the kitchen")
    arguments = parser.parse_args()
    is_terminal = sys.stdin.isatty() and sys.stdout.isatty() and not os.environ.get("CI")
    with temporary_home() as (folder, held):
        os.chdir(Path(__file__).parent)
        asyncio.run(
            main(
                folder, held, arguments.port,
                tells=not (arguments.live and is_terminal), stays=is_terminal,
            )
        )  # fmt: skip
