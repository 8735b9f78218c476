"""What tests of consumers share: queues and messages as rows, and hosts in this process."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from relevo import App
from relevo.kernel.part import Part
from relevo.messaging.core import ordering
from relevo.messaging.core.classes import CLASSES
from relevo.messaging.core.names import Path
from relevo.messaging.core.sharing import patience
from relevo.messaging.model import Aging, Strict
from relevo.messaging.registry import ConsumersRegistry, defined
from relevo.messaging.running.host import ConsumersHost
from tests.jobs.office import told, until

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AsyncExitStack

    import asyncpg

    from relevo.kernel.part import Host
    from relevo.kernel.postgres import Database
    from relevo.messaging.model import Ordering, PriorityClass

_ENTITY: Final = """
insert into relevo.message_entity (kind, name, path, key, properties, status, is_plain, policy,
  rank_by_time, rank_step, floor_patience, fair, has_sessions, lock_seconds, max_delivery_count,
  dead_letter_expired, events)
values ('queue', $1, $1, lower($1), '{}', 'active', true, $2, $3, $4, $5, false, false, 60, 10,
  false, 'dead')
returning id
"""
_CLASS: Final = """
insert into relevo.message_class (entity_id, number, name, low, high, base, weight, slo,
  rank_offset, tier, preempts, preemptible, on_breach)
values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, 'none')
"""
_SEND: Final = """
select a.sequence from relevo.message_entity e
join relevo.message_class k on k.entity_id = e.id and k.name = $3
cross join lateral relevo.accept_messages(
  array[e.id], array[e.version], array_fill(e.id, array[cardinality($2::bytea[])]),
  array(select gen_random_uuid()::text from unnest($2)), $2,
  array_fill($6::smallint, array[cardinality($2)]),
  array_fill(null::timestamptz, array[cardinality($2)]),
  array(select generate_series(1, cardinality($2))), array_fill(e.id, array[cardinality($2)]),
  array_fill(0::smallint, array[cardinality($2)]),
  array_fill(k.number, array[cardinality($2)]),
  array_fill(k.base, array[cardinality($2)]), array_fill(4, array[cardinality($2)]), '{}', '{}',
  array_fill($4::text, array[cardinality($2)]), '{}', '{}',
  array_fill($5::text, array[cardinality($2)])) a
where e.key = lower($1) order by a.nth
"""
_POLICIES: Final = {Aging: "aging", Strict: "strict"}


class ConsumersPart(Part[ConsumersRegistry]):
    """The consumers of an app, by themselves."""

    def __init__(self, app: App) -> None:
        self.registry = ConsumersRegistry()
        super().__init__(self.registry)
        self.connection = app.jobs.connection
        self._host = ConsumersHost(self)

    async def start(self, host: Host) -> None:
        await self._host.start(host)

    async def stop(self, timeout: float) -> None:
        await self._host.stop(timeout)


class Depot:
    """A database with queues, and the hosts that a test starts on it."""

    def __init__(self, url: str, database: Database, stack: AsyncExitStack) -> None:
        self.url = url
        self.database = database
        self.stack = stack

    async def queue(
        self, name: str = "render", policy: Ordering = Strict(),
        classes: Sequence[PriorityClass] = CLASSES, **columns: Any,
    ) -> int:  # fmt: skip
        """Make a queue; `columns` are those of its row that differ from the usual."""
        step = {Strict: 1, Aging: round(getattr(policy, "seconds_per_level", 0) * ordering.MICROS)}
        floor = patience(policy.floor_share) if isinstance(policy, Aging) else None
        id_: int = await self.database.fetchval(
            _ENTITY, name, _POLICIES[type(policy)], isinstance(policy, Aging), step[type(policy)],
            floor,
        )  # fmt: skip
        for number, one in enumerate(classes):
            await self.database.write(
                _CLASS, id_, number, one.name, *one.priorities, one.base, one.weight, one.slo,
                ordering.rank(policy, one, priority=0, arrived=0), ordering.tier(policy, one),
                one.preempts, one.preemptible,
            )  # fmt: skip
        for column, value in columns.items():
            await self.database.write(
                f"update relevo.message_entity set {column} = $2 where id = $1", id_, value
            )
        return id_

    async def send(
        self, *bodies: bytes, to: str = "render", of: str = "normal", key: str | None = None,
        head: str | None = None, kind: int = 0,
    ) -> list[int]:  # fmt: skip
        """Accept messages; return their numbers."""
        rows = await self.database.write(_SEND, to, list(bodies), of, key, head, kind)
        return [row[0] for row in rows]

    def app(
        self, handler: Callable[..., Any], *, host: str = "a", name: str = "drawers",
        sources: Sequence[str] = ("render",), settings: dict[str, Any] | None = None,
        **options: Any,
    ) -> App:  # fmt: skip
        """Return an app with consumers, which does not serve yet."""
        app = App(settings=told(self.url, host_name=host, **(settings or {})))
        part = ConsumersPart(app)
        app.parts.add(part)
        part.registry.add(defined(name, sources, handler, **options))
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

        await until(gone, f"messages {sequences} are still there")

    async def until_row(self, sequence: int, where: str) -> asyncpg.Record:
        """Wait until a message is as the condition says; return its row."""
        found: list[asyncpg.Record] = []

        async def holds() -> bool:
            sql = f"select * from relevo.message where sequence = $1 and ({where})"
            found[:] = await self.database.fetch(sql, sequence)
            return bool(found)

        async def shown() -> str:
            return f"message {sequence}: not {where}: {await self.row(sequence)}"

        await until(holds, shown)
        return found[0]

    async def advance(self, seconds: float) -> None:
        """Move the time of the database."""
        await self.database.write(
            "update relevo.clock set shift = shift + make_interval(secs => $1)", seconds
        )


class Handler:
    """A handler that notes its messages, and waits where a test says so."""

    def __init__(self, *, waits: bool = False) -> None:
        self.seen: list[Any] = []
        self.entered = asyncio.Event()
        self.go = asyncio.Event()
        if not waits:
            self.go.set()

    async def __call__(self, msg: Any) -> None:
        self.seen.append(msg)
        self.entered.set()
        await self.go.wait()

    @property
    def bodies(self) -> list[Any]:
        return [msg.body for msg in self.seen]

    async def until_seen(self, count: int) -> None:
        await until(lambda: len(self.seen) >= count, f"{count} messages, {len(self.seen)} seen")


def unique() -> bytes:
    return uuid4().hex.encode()


def paths(*names: str) -> list[str]:
    return [str(Path.of(name)) for name in names]
