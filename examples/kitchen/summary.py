"""What the terminal shows of the kitchen while it is open: read from the parts, drawn with rich."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from rich.columns import Columns
from rich.console import Group
from rich.table import Table
from rich.text import Text

import books
import kitchen
import relevo
from shift import CUSTOMERS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from hosts import Hosts
    from shift import Shift

LOOK_SECONDS = 1.0
NEWS_SHOWN = 4
ORDER_STATES = {"new": "waiting or cooking", "cooked": "on their way", "delivered": "delivered"}
JOB_STATES = {"waiting_for_resources": "ready", "in_progress": "running"}
"""Shorter words for two of the eight."""
MONEY = "€"


class Summary:
    """The figures of all parts, renewed every second, and the latest news."""

    def __init__(self, shift: Shift, hosts: Hosts, sign_in: str) -> None:
        self._shift = shift
        self._hosts = hosts
        self._sign_in = sign_in
        self._owned: Counter[tuple[str | None, str]] = Counter()
        self._waiting: dict[str, int] = {}
        self._jobs: Counter[str] = Counter()
        self._load: dict[str, str] = {}
        self._owed: dict[str, int] = {}
        self._pool = ""
        self._lines = 0
        self._news: deque[str] = deque(maxlen=NEWS_SHOWN)

    def tell(self, text: str) -> None:
        """Add a line to the news."""
        self._news.append(f"{datetime.now(UTC).astimezone():%H:%M:%S}  {text}")

    async def follow(self) -> None:
        """Renew the figures until canceled."""
        reads = (
            self._look_at_leases,
            self._look_at_work,
            self._look_at_cooks,
            self._look_at_actors,
        )
        async with asyncio.TaskGroup() as group:
            for read in reads:
                group.create_task(self._again(read))

    async def _again(self, read: Callable[[], Awaitable[None]]) -> None:
        while True:
            with suppress(relevo.RelevoError):  # a host was killed: the old figures stay a moment
                await read()
            await asyncio.sleep(LOOK_SECONDS)

    async def _look_at_leases(self) -> None:
        leases = await kitchen.app.directory.leases(limit=1_000)
        self._owned = Counter((lease.owner, lease.kind) for lease in leases)

    async def _look_at_work(self) -> None:
        for name in ("high", "low"):
            described = await kitchen.deliveries[name].describe()
            self._waiting[name] = described.messages.active + described.messages.locked
        self._jobs = Counter()
        for count in await kitchen.app.jobs.views.counts():
            self._jobs[count.status] += count.jobs
        self._lines = len(books.ledger_lines())

    async def _look_at_cooks(self) -> None:
        async for worker in kitchen.app.router.workers():
            used = round(100 * (worker.load_ratio or 0))
            self._load[worker.id] = f"{used:3} %" if worker.available_for_offers else "away"

    async def _look_at_actors(self) -> None:
        pool = await kitchen.payments.view()
        self._pool = f"{pool.in_use} of {pool.size} in use, {pool.waiting} wait"
        for customer in CUSTOMERS:
            statement = await kitchen.app.actor(kitchen.Account, customer).statement()
            self._owed[customer] = statement.owed

    def __rich__(self) -> Group:
        """Draw everything."""
        return Group(
            Text.assemble("Dashboard  ", (self._sign_in, "cyan"), no_wrap=True, overflow="ignore"),
            Text.assemble(
                ("k", "bold"), " kills a host   ", ("q", "bold"), " serves what is ordered, then ",
                "checks the books   ", ("Ctrl-C", "bold"), " ends at once",
            ),
            Columns([self._orders(), self._work()], padding=(0, 3)),
            self._cooks(),
            self._owners(),
            Text("\n".join(self._news), style="dim"),
        )  # fmt: skip

    def _orders(self) -> Table:
        states = Counter(self._shift.status_of.values())
        rows = [(text, str(states[state])) for state, text in ORDER_STATES.items()]
        rows += [(f"{name} owes", f"{owed} {MONEY}") for name, owed in self._owed.items()]
        return facts("Orders", rows)

    def _cooks(self) -> Table:
        table = Table(title="Cooks", box=None, title_justify="left")
        for heading in ("", "load", "cooked", "latest"):
            table.add_column(heading, justify="right" if heading in ("load", "cooked") else "left")
        for cook in self._shift.doing:
            load, cooked = self._load.get(cook, ""), str(self._shift.cooked[cook])
            table.add_row(cook, load, cooked, self._shift.doing[cook])
        return table

    def _work(self) -> Table:
        deliveries = ", ".join(f"{name} {count}" for name, count in self._waiting.items())
        jobs = ", ".join(
            f"{count} {JOB_STATES.get(status, status)}"
            for status, count in sorted(self._jobs.items())
        )
        rows = (
            ("deliveries that wait", deliveries),
            ("system jobs", jobs),
            ("payment provider", self._pool),
            ("lines in the ledger", str(self._lines)),
        )
        return facts("Messages, jobs, ledger", rows)

    def _owners(self) -> Table:
        kinds = sorted({kind for _, kind in self._owned})
        table = Table("", *kinds, title="Who owns what", box=None, title_justify="left")
        owners = {owner for owner, _ in self._owned if owner is not None}
        for name in sorted({*self._hosts.names, *owners}):
            gone = name not in self._hosts.names
            label = f"{name} is gone: another host is about to take over" if gone else name
            counts = (str(self._owned[name, kind]) for kind in kinds)
            table.add_row(label, *counts, style="red" if gone else "")
        if any(self._owned[None, kind] for kind in kinds):
            counts = (str(self._owned[None, kind]) for kind in kinds)
            table.add_row("nobody", *counts, style="yellow")
        return table


def facts(title: str, rows: Iterable[tuple[str, str]]) -> Table:
    """Draw names and values side by side."""
    table = Table(title=title, box=None, show_header=False, title_justify="left")
    for name, text in rows:
        table.add_row(name, text)
    return table
