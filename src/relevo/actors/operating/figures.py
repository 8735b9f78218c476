"""What actors do now: slots by host, stored work by type, and activations of this host."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from relevo.kernel.postgres import catalog

if TYPE_CHECKING:
    from collections.abc import Iterator

    from relevo.actors.running.runtime import ActorRuntime
    from relevo.kernel.postgres import Database

SQL = catalog.load("relevo.actors")


class SlotsOfHost(Struct, frozen=True):
    """The slots of a placement group that a host owns."""

    placement_group: str
    host: str | None
    """Null: those that no live host owns."""
    slots: int
    moving: int
    """Those that go to another host."""


class StoredWork(Struct, frozen=True):
    """Reminders and messages of the actors of a type."""

    type: str
    reminders: int
    messages: int
    """Messages that wait."""
    failing: int
    """Both, after failed attempts."""
    dead: int
    late_seconds: float | None
    """How late the latest of what is due is."""


class TypeAtWork(Struct, frozen=True):
    """Activations of a type on a host."""

    type: str
    activations: int
    turns: int
    """Turns that run, nested ones included."""
    waiting: int
    """Calls that wait for a turn."""
    deferred: int
    """Answers that a later turn gives."""
    max_local: int | None = None
    """The bound of activations on this host, of a stateless type."""


async def slots_by_host(database: Database) -> list[SlotsOfHost]:
    """Return how many slots each host owns."""
    return [SlotsOfHost(**row) for row in await database.fetch(SQL.slots_by_host)]


async def stored_work(database: Database) -> list[StoredWork]:
    """Return how many reminders and messages wait for each type; it reads all of them."""
    return [StoredWork(**row) for row in await database.fetch(SQL.count_waiting)]


def pending(runtime: ActorRuntime) -> Iterator[tuple[str, int, int]]:
    """Yield the types of actors with their waiting calls and deferred answers; may repeat types."""
    for pool in runtime.stateless.pools:
        yield pool.definition.name, pool.queue.calls, 0
    for one in runtime.in_memory():
        if one.mailbox.calls or one.deferred:
            yield one.definition.name, one.mailbox.calls, len(one.deferred)


def at_work(runtime: ActorRuntime) -> list[TypeAtWork]:
    """Return what the activations of a host do, by type."""
    found: dict[str, list[int]] = {}
    for pool in runtime.stateless.pools:
        found[pool.definition.name] = [0, 0, pool.queue.calls, 0]
    for one in runtime.in_memory():
        counts = found.setdefault(one.definition.name, [0, 0, 0, 0])
        counts[0] += 1
        counts[1] += len(one.turns)
        counts[2] += one.mailbox.calls
        counts[3] += len(one.deferred)
    types = runtime.types.by_name
    return [
        TypeAtWork(
            name, activations, turns, waiting, deferred, max_local=types[name].options.max_local
        )
        for name, (activations, turns, waiting, deferred) in sorted(found.items())
    ]
