"""Consumers by name, as all hosts see them: who serves them, what they hold, pause and resume."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec
from msgspec import Struct

from relevo import limits
from relevo.errors import NotFound
from relevo.kernel import checking
from relevo.kernel.events import Event, append
from relevo.kernel.postgres import catalog
from relevo.messaging import events
from relevo.messaging.model import Across, Preemption, Scaling

if TYPE_CHECKING:
    from relevo.kernel.postgres import Database, Transaction, Wakeups

SQL = catalog.load("relevo.messaging")
PAGE: Final = 100


class HeldMessage(Struct, frozen=True, rename={"priority_class": "class", "fairness_key": "key"}):
    """A message that a host holds for consumers."""

    priority_class: str
    fairness_key: str = ""


class Replica(Struct, frozen=True):
    """A host that serves consumers, and what it holds for them."""

    host: str
    slots: int
    held: tuple[HeldMessage, ...] = ()


class StoredDefinition(Struct, frozen=True, kw_only=True):
    """Consumers as the hosts that serve them have defined them."""

    across: Across = "strict"
    concurrency: int = 1
    reserved: Mapping[str, int] = {}
    max_per_class: Mapping[str, int] = {}
    max_per_fairness_key: int | None = None
    prefetch: Literal["auto", 0] = "auto"
    batch: int = 1
    time_limit: float | None = None
    hours: str | None = None
    preempt: Preemption | None = None
    scaling: Scaling = Scaling()
    pool: str | None = None
    limit: str | None = None


class ConsumersView(Struct, frozen=True, kw_only=True):
    """Consumers as they are now."""

    name: str
    sources: tuple[str, ...]
    state: Literal["running", "paused"]
    reason: str | None
    """Why they are paused."""
    until: datetime | None
    """When they go on by themselves."""
    definition: StoredDefinition
    hosts: tuple[Replica, ...]
    updated_at: datetime


_replicas: Final = msgspec.json.Decoder(tuple[Replica, ...]).decode
_definition: Final = msgspec.json.Decoder(StoredDefinition).decode


async def listed(
    database: Database, *, entity: int | None = None, after: str = "", limit: int = PAGE
) -> list[ConsumersView]:
    """Return consumers by name, of one entity or all."""
    rows = await database.fetch(SQL.consumers_list, after, entity, limit, None)
    return [_view(row) for row in rows]


async def found(database: Database, name: str) -> ConsumersView:
    """Return consumers by their name; raises `NotFound`."""
    rows = await database.fetch(SQL.consumers_list, "", None, 1, name)
    if not rows:
        raise NotFound(
            f"there are no consumers {name!r}; they are known once a host has served them"
        )
    return _view(rows[0])


async def pause(
    database: Database, name: str, *, reason: str | None = None, until: datetime | None = None
) -> None:
    """Let consumers claim nothing until they are resumed, or until an instant.

    Messages stay, and what is being handled goes on.
    """
    checking.text("reason", reason, limits.MESSAGE_REASON_LENGTH_MAX, of="a pause")
    if until is not None:
        checking.aware(until, "until")
    await _set(database, name, "paused", reason, until)


async def resume(database: Database, wakeups: Wakeups, name: str) -> None:
    """Let paused consumers go on."""
    await _set(database, name, "running", None, None)
    sources = (await found(database, name)).sources
    keys = [source.lower() for source in sources]
    rows = await database.fetch(SQL.places, keys)
    wakeups.send(*(f"queue:{row['id']}" for row in rows))


async def resume_due(tx: Transaction) -> None:
    """Resume consumers whose pause is over, in a transaction."""
    for row in await tx.fetch(SQL.resume_consumers):
        await _note(tx, "resumed", events.ConsumersData(consumers=row["name"]))


async def _set(
    database: Database, name: str, state: str, reason: str | None, until: datetime | None
) -> None:
    async def change(tx: Transaction) -> bool:
        row = await tx.fetchrow(SQL.set_consumers_state, name, state, reason, until)
        if row is None:
            return False
        data = events.ConsumersData(consumers=name, reason=reason, until=until)
        await _note(tx, "resumed" if state == "running" else "paused", data)
        return True

    if not await database.run(change):
        await found(database, name)  # says that there are none


async def _note(tx: Transaction, what: str, data: events.ConsumersData) -> None:
    event = Event(f"relevo.consumers.{what}", f"consumers/{data.consumers}", 1, data)
    await append(tx, events.CATALOGUE, [event])


def _view(row: Any) -> ConsumersView:
    return ConsumersView(
        name=row["name"], sources=tuple(row["sources"]), state=row["state"], reason=row["reason"],
        until=row["until"], definition=_definition(row["definition"]),
        hosts=_replicas(row["hosts"]), updated_at=row["updated_at"],
    )  # fmt: skip
