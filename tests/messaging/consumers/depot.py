"""What tests of consumers share: a client, hosts in this process, and looks at the rows."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from relevo import App
from relevo.messaging import Message, PriorityClass
from tests.jobs.office import told, until

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AsyncExitStack

    import asyncpg

    from relevo.kernel.postgres import Database

CLASSES = (
    PriorityClass(name="high", priorities=(7, 9), base=8, express=True, preempts=True),
    PriorityClass(name="normal", priorities=(3, 6), base=4),
    PriorityClass(name="low", priorities=(0, 2), base=1, preemptible=True),
)
"""Classes of which the highest suspends the lowest."""


class Depot:
    """A database with queues, and the hosts that a test starts on it."""

    def __init__(self, url: str, app: App, stack: AsyncExitStack) -> None:
        self.url = url
        self.client = app
        self.stack = stack

    @property
    def database(self) -> Database:
        return self.client.database

    async def queue(self, name: str = "render", **options: Any) -> None:
        """Make a queue."""
        await self.client.queue(name, **options).ensure()

    async def send(self, *bodies: Any, to: str = "render", **options: Any) -> list[int]:
        """Send messages; return their numbers."""
        receipts = await self.client.queue(to).send_many(
            Message(body=body, **options) for body in bodies
        )
        return [receipt.sequence_number or 0 for receipt in receipts]

    def app(
        self, handler: Callable[..., Any], *, host: str = "a", name: str = "drawers",
        sources: Sequence[str] = ("render",), drain_seconds: float = 5.0, **options: Any,
    ) -> App:  # fmt: skip
        """Return an app with consumers, which does not serve yet."""
        app = App(settings=told(self.url, host_name=host, drain_seconds=drain_seconds))
        handles = [app.queue(source) for source in sources]
        app.consumers(name, sources=handles, **options)(handler)
        return app

    async def serve(self, handler: Callable[..., Any], **options: Any) -> App:
        """Serve consumers until the test ends."""
        app = self.app(handler, **options)
        await self.stack.enter_async_context(app.host())
        return app

    async def row(self, sequence: int) -> asyncpg.Record | None:
        return await self.database.fetchrow(
            "select * from relevo.message where sequence = $1", sequence
        )

    async def rows(self, where: str = "true") -> list[asyncpg.Record]:
        return await self.database.fetch(
            f"select * from relevo.message where {where} order by sequence"
        )

    async def until_gone(self, *sequences: int) -> None:
        async def gone() -> bool:
            sql = "select exists (select from relevo.message where sequence = any ($1::bigint[]))"
            return not await self.database.fetchval(sql, list(sequences))

        async def shown() -> str:
            return f"still there: {await self.rows()}"

        await until(gone, shown)

    async def until_row(self, sequence: int, where: str) -> asyncpg.Record:
        """Wait until a message is as the condition says; return its row."""
        found: list[asyncpg.Record] = []

        async def holds() -> bool:
            sql = f"select * from relevo.message where sequence = $1 and ({where})"
            found[:] = await self.database.fetch(sql, sequence)
            return bool(found)

        async def shown() -> str:
            return f"message {sequence} is not {where}: {await self.row(sequence)}"

        await until(holds, shown)
        return found[0]

    async def set_time(self, text: str) -> None:
        """Set the time of the database, which goes on from there."""
        await self.database.write(
            "update relevo.clock set shift = shift + ($1::text::timestamptz - relevo.now())", text
        )


class Handler:
    """A handler that notes its messages, and waits where a test says so."""

    def __init__(self, *, waits: bool = False) -> None:
        self.seen: list[Any] = []
        self.running = 0
        self.most = 0
        self.go = asyncio.Event()
        if not waits:
            self.go.set()

    async def __call__(self, msg: Any) -> None:
        self.seen.append(msg)
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            await self.go.wait()
        finally:
            self.running -= 1

    @property
    def bodies(self) -> list[Any]:
        return [msg.body for msg in self.seen]

    async def until_seen(self, count: int) -> None:
        await until(lambda: len(self.seen) >= count, f"{count} messages; there are {self.bodies}")
