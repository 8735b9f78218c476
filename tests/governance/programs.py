"""What the processes of these tests run: hosts whose callers use one pool."""

from __future__ import annotations

import asyncio
import random
import time
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

from relevo.errors import RelevoError
from relevo.governance.core.windows import Rate

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from relevo import App
    from relevo.testing.recorder import Recorder

SIZE = 4
CALLERS = 6
TABLES = (
    """
    create table public.uses (
      id bigserial primary key, host uuid not null, began timestamptz not null, ended timestamptz
    )
    """,
    "create table public.ends (host uuid primary key, at timestamptz not null)",
    """
    create function public.note_end() returns trigger language plpgsql as $$
    begin
      insert into public.ends values (new.incarnation, relevo.now());
      return null;
    end $$
    """,
    """
    create trigger note_end after update of ended_at on relevo.host
      for each row when (old.ended_at is null and new.ended_at is not null)
      execute function public.note_end()
    """,
)
BEGIN = """
    insert into public.uses (host, began) values ($1, relevo.now()) returning id
"""
END = "update public.uses set ended = relevo.now() where id = $1"


async def borrowers(app: App, record: Recorder) -> None:
    """Callers that use a pool in chunks, and note when they do."""
    pool = app.governance.pool("erp", size=SIZE, coordination="client")

    async def use() -> None:
        while True:
            try:
                async with pool.lease():
                    number = await app.database.fetchval(BEGIN, app.leases.life.incarnation)
                    await asyncio.sleep(random.random() * 0.01)
                    await app.database.write(END, number)
            except (RelevoError, TimeoutError):
                await asyncio.sleep(0.05)

    for number in range(CALLERS):
        app.supervisor.run(f"caller {number}", use)


PARTITIONS = ("p0", "p1")
RESOURCES = ("db1", "db2")
RATE = Rate(20, per=1)
RULES: dict[str, Any] = {"max_stale": 0.5, "use_ttl": 2.0, "max_pause": 30.0}
NOTES = """
    create table public.notes (
      id bigserial primary key, kind text not null, subject text not null, place text not null,
      host uuid not null, began timestamptz not null
    )
    """
NOTE = """
    insert into public.notes (kind, subject, place, host, began)
    values ($1, $2, $3, $4, relevo.now()) returning id
"""


class Kit:
    """A resolver, a pool and a limit, and who uses them."""

    def __init__(self, app: App, record: Recorder) -> None:
        self.app = app
        self._record = record
        self.users = app.governance.resolver("users", **RULES)
        self.pool = app.governance.pool("erp", size=SIZE)
        self.limit = app.governance.limit("mail", rates=[RATE])

    @asynccontextmanager
    async def noted(self, kind: str, subject: str, place: str) -> AsyncIterator[None]:
        """Note in the store since when a body runs, and here until when.

        A host that is cut off from the store still ends its bodies, and tells others.
        """
        host = self.app.leases.life.incarnation
        number = await self.app.database.fetchval(NOTE, kind, subject, place, host)
        try:
            yield
        finally:
            self._record("left", number=number, time=time.time())

    async def use_resolver(self, _: str) -> None:
        async with (
            self.users.use(f"user-{random.randrange(8)}") as found,
            self.noted("use", found.partition, found.resource.name),
        ):
            await asyncio.sleep(random.random() * 0.02)

    async def use_pool(self, key: str) -> None:
        async with self.pool.lease(key, timeout=5.0), self.noted("permit", key, ""):
            await asyncio.sleep(random.random() * 0.02)

    async def use_limit(self, key: str) -> None:
        await self.limit.acquire(timeout=5.0)
        async with self.noted("token", key, ""):
            pass

    async def move(self, _: str) -> None:
        """Move a partition there and back; one whose mover was killed is moved on."""
        if moves := (await self.users.view()).moves:
            partition, target, copies = moves[0].subject, moves[0].target, moves[0].copies
        else:
            partition, copies = random.choice(PARTITIONS), random.random() < 0.7
            known = await self.users.partition(partition)
            target = RESOURCES[known is None or known.resource == RESOURCES[0]]
        await self.users.move(partition=partition, to=target, copy=self.copy if copies else None)

    async def copy(self, partition: str, source: str, target: str) -> None:
        async with self.noted("copy", partition, f"{source} to {target}"):
            await asyncio.sleep(random.random() * 0.02)

    def keep_doing(self, what: Callable[[str], Awaitable[None]], name: str) -> None:
        async def work() -> None:
            while True:
                with suppress(RelevoError, TimeoutError):
                    await what(name)
                await asyncio.sleep(0.005)

        self.app.supervisor.run(name, work)


async def users(app: App, record: Recorder) -> None:
    """Users of a resolver, a pool and a limit, and on the host `mover` one who moves."""
    kit = Kit(app, record)
    for number in range(3):
        kit.keep_doing(kit.use_resolver, f"user-{number}")
        kit.keep_doing(kit.use_pool, f"key-{number}")
    kit.keep_doing(kit.use_limit, "sender")
    if app.settings.host_name == "mover":
        kit.keep_doing(kit.move, "mover")


async def serving(app: App, record: Recorder) -> None:
    """A host that serves the kit to others."""
    app.governance.pool("narrow", size=1)
