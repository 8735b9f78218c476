"""Another number of slots for a placement group, while nobody serves it.

The slot of an actor follows from its id and the number, so each stored actor, reminder and message
gets its slot anew, and the leases are replaced. Their epochs go on above those of the leases
before, since sinks remember the fences of their writers. All is one transaction.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct

from relevo import limits
from relevo.actors.calls.ways import KIT_GROUPS
from relevo.actors.core.identity import slot_of
from relevo.actors.operating import events
from relevo.actors.operating.events import SLOTS_CHANGED, SlotsData
from relevo.errors import Conflict, InvalidValue, NotFound
from relevo.kernel.events import Event
from relevo.kernel.leases.service import SQL as LEASES
from relevo.kernel.postgres import catalog

if TYPE_CHECKING:
    from collections.abc import Callable

    from relevo.kernel.postgres import Database, Transaction

SQL = catalog.load("relevo.actors")
ROWS: Final = 5_000
"""That are placed by one statement."""


class ResizedGroup(Struct, frozen=True, kw_only=True):
    """A placement group with another number of slots."""

    placement_group: str
    slots: int
    slots_before: int
    actors: int
    """That are stored, with their reminders."""
    messages: int
    """That wait or are dead letters."""


async def resize_group(
    database: Database, name: str, slots: int, on_rows: Callable[[int], None] = lambda _: None
) -> ResizedGroup:
    """Give a placement group another number of slots; `on_rows` hears how many rows were placed.

    The present number places all rows again. Raises `NotFound` for a group that was never served,
    `Conflict` while hosts serve it, and `InvalidValue`; then nothing has changed.
    """
    if not 1 <= slots <= limits.ACTOR_SLOTS_MAX:
        raise InvalidValue(f"a group has 1 to {limits.ACTOR_SLOTS_MAX} slots, not {slots}")
    if name in KIT_GROUPS:
        raise InvalidValue(
            f"placement group {name!r} is Relevo's own; its number of slots is fixed"
        )

    async def work(tx: Transaction) -> ResizedGroup:
        before = await _lock(tx, name, slots)
        actors = await _place_actors(tx, name, slots, on_rows)
        messages = await _place_messages(tx, name, slots, actors, on_rows)
        await _replace_leases(tx, name, slots)
        await tx.execute(SQL.set_group_slots, name, slots)
        data = SlotsData(placement_group=name, slots=slots, slots_before=before)
        await events.append(tx, Event(SLOTS_CHANGED, f"actor-group/{name}", 1, data))
        return ResizedGroup(
            placement_group=name, slots=slots, slots_before=before, actors=actors,
            messages=messages,
        )  # fmt: skip

    return await database.run(work, idempotent=True)


async def _lock(tx: Transaction, name: str, slots: int) -> int:
    """Keep hosts and senders out until the end of the transaction; return the slots so far."""
    unit = await tx.fetchrow(LEASES.find_unit, "actors", name)
    if unit is not None:
        await tx.execute(LEASES.lock_unit, unit["id"])
    groups = {row["name"]: row["slots"] for row in await tx.fetch(SQL.lock_groups)}
    if name not in groups:
        known = ", ".join(sorted(groups.keys() - KIT_GROUPS)) or "none"
        raise NotFound(f"no host has ever served placement group {name!r}; there are: {known}")
    if hosts := [row["name"] for row in await tx.fetch(SQL.serving_hosts, name)]:
        raise Conflict(
            f"placement group {name!r} is served by {', '.join(hosts)}; stop these hosts and all"
            " programs that call its actors first"
        )
    total = sum(groups.values()) - groups[name] + slots
    if total > limits.ACTOR_SLOTS_MAX:
        raise InvalidValue(
            f"all groups together would have {total} slots, and have {limits.ACTOR_SLOTS_MAX} at"
            " most"
        )
    await tx.execute(SQL.lock_messages)
    return int(groups[name])


async def _place_actors(
    tx: Transaction, name: str, slots: int, on_rows: Callable[[int], None]
) -> int:
    placed, after = 0, ""
    while ids := [row["id"] for row in await tx.fetch(SQL.actors_of_group, name, after, ROWS)]:
        places = [slot_of(one, slots) for one in ids]
        await tx.execute(SQL.place_actors, ids, places)
        await tx.execute(SQL.place_reminders, ids, places)
        placed, after = placed + len(ids), ids[-1]
        on_rows(placed)
    return placed


async def _place_messages(
    tx: Transaction, name: str, slots: int, before: int, on_rows: Callable[[int], None]
) -> int:
    placed, after = 0, 0
    while rows := await tx.fetch(SQL.messages_of_group, name, after, ROWS):
        numbers = [row["number"] for row in rows]
        places = [slot_of(row["receiver"], slots) for row in rows]
        await tx.execute(SQL.place_messages, numbers, places)
        placed, after = placed + len(rows), numbers[-1]
        on_rows(before + placed)
    return placed


async def _replace_leases(tx: Transaction, name: str, slots: int) -> None:
    rows = await tx.fetch(SQL.leases_of_group, name)
    if not rows:
        return
    ids = sorted(row["id"] for row in rows)
    await tx.execute(LEASES.lock_leases, ids)
    await tx.execute(SQL.drop_leases, ids)
    epoch = max(row["epoch"] for row in rows) + 1
    await tx.execute(SQL.make_leases, rows[0]["unit_id"], slots, epoch)
