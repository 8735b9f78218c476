"""Entities and messages as rows, for tests of the SQL without the service."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID, uuid4

import asyncpg
from msgspec import Struct

from relevo.messaging.core import ordering
from relevo.messaging.core.classes import CLASSES
from relevo.messaging.core.sharing import patience
from relevo.messaging.model import (
    Aging,
    Deadline,
    Fifo,
    Ordering,
    PriorityClass,
    Strict,
    Weighted,
)
from relevo.messaging.states import ACTIVE, DEFERRED, GONE, LOCKED, RELOCKED, SCHEDULED

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator, Mapping, Sequence

TABLES: Final = (
    "message_entity", "message_class", "message_rule", "message", "message_arrival",
    "message_session", "message_seen", "message_tally", "message_fairness", "message_consumers",
    "message_delta", "message_count", "message_wait_delta", "message_wait", "message_rate",
    "message_settled",
    "host", "event_batch",
)  # fmt: skip
STATES: Final = (ACTIVE, LOCKED, DEFERRED, RELOCKED, SCHEDULED, ACTIVE, ACTIVE)
"""What the numbers of `message.state` mean to users."""
GAUGES: Final = ("active", "locked", "deferred", "scheduled", "bytes")
FIFO: Final = Fifo()
BY_TIME: Final = (Aging, Deadline)
_NAMES: Final = {
    Fifo: "fifo", Strict: "strict", Aging: "aging", Deadline: "deadline", Weighted: "weighted",
}  # fmt: skip

_ENTITY: Final = """
insert into relevo.message_entity (kind, name, path, key, properties, status, is_plain, policy,
  rank_by_time, rank_step, floor_patience, fair, has_sessions, lock_seconds, max_delivery_count,
  dead_letter_expired, events)
values ($1, $2, $2, lower($2), '{}', 'active', true, $3, $4, $5, $6, $7, false, 60, 10, false,
  'dead')
returning id
"""
_CLASS: Final = """
insert into relevo.message_class (entity_id, number, name, low, high, base, weight, slo,
  rank_offset, tier, preempts, preemptible, on_breach)
values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, false, false, 'none')
"""
_SWITCH: Final = """
update relevo.message_entity set policy = $2, rank_by_time = $3, rank_step = $4,
  floor_patience = $5, fair = $6
where id = $1
"""
_RECLASS: Final = """
update relevo.message_class set rank_offset = $3, tier = $4 where entity_id = $1 and number = $2
"""
_MESSAGE: Final = """
insert into relevo.message (sequence, rank, enqueued_at, entity_id, class, state, priority,
  body_kind, size, message_id, fairness_key, body)
select g.sequence, g.rank, relevo.now(), $1, g.class, 0, g.priority, 0, 1, g.sequence::text,
  nullif(g.key, ''), 'x'
from unnest($2::bigint[], $3::bigint[], $4::smallint[], $5::smallint[], $6::text[])
  as g (sequence, rank, class, priority, key)
"""
_ACCEPT: Final = """
select s.sequence from relevo.message_entity e cross join lateral relevo.accept_messages(
  array[e.id], array[e.version], array_fill(e.id, array[$2::integer]),
  array(select gen_random_uuid()::text from generate_series(1, $2)),
  array_fill('body'::bytea, array[$2]), array_fill(0::smallint, array[$2]),
  array_fill($3::timestamptz, array[$2]), array(select generate_series(1, $2)),
  array_fill(e.id, array[$2]), array_fill(0::smallint, array[$2]),
  array_fill($4::smallint, array[$2]), array_fill($5::smallint, array[$2]),
  array_fill(4, array[$2]), array_fill($6::float8, array[$2]), '{}',
  array_fill($7::text, array[$2]), array_fill($8::text, array[$2])) a
cross join lateral unnest(a.sequences) with ordinality s (sequence, nth)
where e.id = $1 order by s.nth
"""
_CLAIM: Final = """
select * from relevo.claim_messages($1::integer[], $2::smallint[], $3, $4, $5::uuid, $6::bigint,
  $7::integer, $8, $9, $10::jsonb)
"""
_SETTLE: Final = """
select relevo.settle_messages($1::bigint[], $2::bigint[], $3::text[], $4::timestamptz[],
  $5::float8[], $6::text[], $7::text[], $8::bytea[], $9)
"""


def _columns(policy: Ordering) -> tuple[str, bool, int, int | None]:
    """Columns of an entity that follow from its policy."""
    step = {Strict: 1, Aging: round(getattr(policy, "seconds_per_level", 0) * ordering.MICROS)}
    floor = patience(policy.floor_share) if isinstance(policy, Aging) else None
    name, by_time = _NAMES[type(policy)], isinstance(policy, BY_TIME)
    return name, by_time, step.get(type(policy), 0), floor


class EntityRow(Struct, frozen=True):
    """A queue in the database, with its classes, numbered from 0 in their order."""

    id: int
    name: str
    ordering: Ordering
    classes: tuple[PriorityClass, ...]
    fair: bool

    def number(self, name: str) -> int:
        return [one.name for one in self.classes].index(name)


class Rows:
    """A connection to a database with the tables of messages."""

    def __init__(self, connection: asyncpg.Connection) -> None:
        self.db = connection
        self._tokens = 0

    @classmethod
    async def open(cls, url: str) -> Rows:
        return cls(await asyncpg.connect(url))

    async def clear(self) -> None:
        """Make the database as good as new for messages."""
        for table in TABLES:
            await self.db.execute(f"delete from relevo.{table}")
        await self.db.execute("update relevo.clock set shift = '0', mark = '-infinity'")

    async def advance(self, seconds: float) -> None:
        """Move the time of the database."""
        step = timedelta(seconds=seconds)
        await self.db.execute("update relevo.clock set shift = shift + $1", step)

    async def now(self) -> datetime:
        found: datetime = await self.db.fetchval("select relevo.now()")
        return found

    async def host(self) -> UUID:
        """A host that lives."""
        id_ = uuid4()
        await self.db.execute(
            "insert into relevo.host (incarnation, name, lease_until, started_at, version)"
            " values ($1, $1::uuid::text, 'infinity', relevo.now(), '1')",
            id_,
        )
        return id_

    async def end_host(self, id_: UUID) -> None:
        await self.db.execute(
            "update relevo.host set ended_at = relevo.now(), end_reason = 'lapsed'"
            " where incarnation = $1",
            id_,
        )

    async def entity(
        self,
        name: str = "queue",
        policy: Ordering = FIFO,
        *,
        classes: tuple[PriorityClass, ...] = CLASSES,
        fair: bool = False,
        kind: str = "queue",
        **columns: Any,
    ) -> EntityRow:
        """A new entity; `columns` are those of `message_entity` that differ from the usual."""
        id_ = await self.db.fetchval(_ENTITY, kind, name, *_columns(policy), fair)
        for number, one in enumerate(classes):
            offset = ordering.rank(policy, one, priority=0, arrived=0)
            await self.db.execute(
                _CLASS, id_, number, one.name, *one.priorities, one.base, one.weight, one.slo,
                offset, ordering.tier(policy, one, fair=fair),
            )  # fmt: skip
        for column, value in columns.items():
            await self.db.execute(
                f"update relevo.message_entity set {column} = $2 where id = $1", id_, value
            )
        return EntityRow(id_, name, policy, classes, fair)

    async def switch(self, entity: EntityRow, policy: Ordering, *, fair: bool) -> EntityRow:
        """The entity with another policy, by which its messages are ranked anew."""
        await self.db.execute(_SWITCH, entity.id, *_columns(policy), fair)
        for number, one in enumerate(entity.classes):
            offset = ordering.rank(policy, one, priority=0, arrived=0)
            tier = ordering.tier(policy, one, fair=fair)
            await self.db.execute(_RECLASS, entity.id, number, offset, tier)
        await self.db.execute("select relevo.rerank_messages($1)", entity.id)
        return EntityRow(entity.id, entity.name, policy, entity.classes, fair)

    async def put(
        self, entity: EntityRow, messages: Sequence[tuple[int, int, int, int, str]]
    ) -> None:
        """Insert messages that wait: sequence, rank, class, priority and fairness key of each."""
        await self.db.execute(_MESSAGE, entity.id, *(zip(*messages, strict=True)))

    async def send(
        self,
        entity: EntityRow,
        count: int = 1,
        *,
        due: datetime | None = None,
        of: str = "normal",
        priority: int = 4,
        ttl: float | None = None,
        key: str | None = None,
        session: str | None = None,
    ) -> list[int]:
        """Accept messages; return their numbers."""
        rows = await self.db.fetch(
            _ACCEPT, entity.id, count, due, entity.number(of), priority, ttl, key, session
        )
        return [row[0] for row in rows]

    async def claim(
        self,
        entities: EntityRow | Sequence[EntityRow],
        wanted: int = 1,
        *,
        sub_queue: int = 0,
        host: UUID | None = None,
        consumers: int | None = None,
        delete: bool = False,
        across: str = "strict",
        limits: str | None = None,
    ) -> list[asyncpg.Record]:
        """Claim messages with a token of their own."""
        sources = [entities] if isinstance(entities, EntityRow) else list(entities)
        self._tokens += 1
        rows: list[asyncpg.Record] = await self.db.fetch(
            _CLAIM, [one.id for one in sources], [sub_queue] * len(sources), wanted, self._tokens,
            host, self._tokens if host else None, consumers, delete, across, limits,
        )  # fmt: skip
        return rows

    async def deferred(
        self, entity: EntityRow, *sequences: int, sub_queue: int = 0
    ) -> list[asyncpg.Record]:
        """Lock deferred messages by their numbers."""
        self._tokens += 1
        rows: list[asyncpg.Record] = await self.db.fetch(
            "select * from relevo.receive_deferred($1, $2, $3, $4)",
            entity.id, sub_queue, sequences, self._tokens,
        )  # fmt: skip
        return rows

    async def settle(
        self,
        event: str,
        *messages: Any,
        until: datetime | None = None,
        delay: float | None = None,
        reason: str | None = None,
        description: str | None = None,
        checkpoint: bytes | None = None,
        remember: bool = False,
    ) -> list[int]:
        """Settle messages by what a claim answered; return the numbers of those that held."""
        count = len(messages)
        good: list[int] = await self.db.fetchval(
            _SETTLE, [one["sequence"] for one in messages], [one["token"] for one in messages],
            [event] * count, [until] * count, [delay] * count, [reason] * count,
            [description] * count, [checkpoint] * count, remember,
        )  # fmt: skip
        return good

    async def settled(self, messages: Sequence[Any], event: str = "complete") -> list[Any]:
        """Settle messages; return those that were still held."""
        good = await self.settle(event, *messages) if messages else []
        return [one for one in messages if one["sequence"] in good]

    async def row(self, sequence: int) -> asyncpg.Record | None:
        return await self.db.fetchrow("select * from relevo.message where sequence = $1", sequence)

    async def state(self, sequence: int) -> str:
        """What a message is now, as `states.py` names it."""
        row = await self.row(sequence)
        if row is None:
            return GONE
        if row["sub_queue"] > 0 and STATES[row["state"]] == "active":
            return "dead_lettered"
        return STATES[row["state"]]

    async def counts(self) -> tuple[Mapping[Any, Any], Mapping[Any, Any]]:
        """The counters, and what they should be: by entity, sub-queue and class."""
        sums = ", ".join(f"sum({one})::bigint" for one in GAUGES)
        plain = ", ".join(GAUGES)
        kept = await self.db.fetch(
            f"select entity_id, sub_queue, class, {sums} from ("
            f" select entity_id, sub_queue, class, {plain} from relevo.message_count union all"
            f" select entity_id, sub_queue, class, {plain} from relevo.message_delta) c"
            " group by 1, 2, 3"
        )
        real = await self.db.fetch(
            "select entity_id, sub_queue, class, count(*) filter (where state in (0, 5, 6)),"
            " count(*) filter (where state in (1, 3)), count(*) filter (where state = 2),"
            " count(*) filter (where state = 4), sum(size)::bigint"
            " from relevo.message group by 1, 2, 3"
        )
        return (
            {tuple(row)[:3]: tuple(row)[3:] for row in kept if any(tuple(row)[3:])},
            {tuple(row)[:3]: tuple(row)[3:] for row in real},
        )


class Runner:
    """Runs coroutines of `Rows` one after the other, for tests that are plain functions."""

    def __init__(self, url: str) -> None:
        self._runner = asyncio.Runner()
        self.rows: Rows = self._runner.run(Rows.open(url))

    def do(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self._runner.run(work)

    @contextmanager
    def undone(self) -> Iterator[Rows]:
        """Everything inside is one transaction, which is rolled back."""
        transaction = self.rows.db.transaction()
        self.do(transaction.start())
        try:
            yield self.rows
        finally:
            self.do(transaction.rollback())

    def close(self) -> None:
        self.do(self.rows.db.close())
        self._runner.close()
