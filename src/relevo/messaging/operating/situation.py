"""An entity as the next claim finds it, for those who ask what would be served, and why not."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from relevo.kernel.postgres import catalog, clock
from relevo.messaging.core import explaining, reserving
from relevo.messaging.core.claiming import SourceState, Tally, claim
from relevo.messaging.core.explaining import ConsumersState, MessageExplanation, WaitingMessage
from relevo.messaging.core.hours import Hours
from relevo.messaging.core.ordering import Claimable
from relevo.messaging.core.reserving import Slots
from relevo.messaging.model import Fifo, PriorityClass
from relevo.messaging.operating.consumers import ConsumersView, listed
from relevo.messaging.states import BEHIND, STORED

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from relevo.kernel.postgres import Database
    from relevo.kernel.running.budgets import Budgets
    from relevo.messaging.entities import EntityRecord

SQL = catalog.load("relevo.messaging")
_IN_SUB_QUEUES: Final = Fifo()
HEADS: Final = 1_000
"""Messages of each class that are looked at; the place of one behind them is not known."""


async def source_state(
    database: Database, record: EntityRecord, sub_queue: int, limit: int
) -> SourceState:
    """Return what a claim of an entity or sub-queue chooses from."""
    rows = await database.fetch(SQL.entity_classes, record.id)
    names = {row["number"]: row["name"] for row in rows}
    waiting: dict[str, list[Claimable]] = {}
    for row in await database.fetch(SQL.heads, record.id, sub_queue, limit):
        one = Claimable(row["rank"], row["sequence"], row["key"])
        waiting.setdefault(row["name"], []).append(one)
    tally = await database.fetchrow(SQL.tally, record.id)
    properties = record.properties
    return SourceState(
        name=record.path, waiting=waiting, classes=tuple(map(_class, rows)),
        ordering=properties.ordering if sub_queue == 0 else _IN_SUB_QUEUES,
        fair=properties.fair and sub_queue == 0,
        tally=_tally(tally, names),
    )  # fmt: skip


async def service_order(
    database: Database, record: EntityRecord, sub_queue: int, limit: int
) -> list[int]:
    """Return the numbers of the next messages, in the order in which claims would take them."""
    state = await source_state(database, record, sub_queue, limit)
    return [one.message.sequence for one in claim([state], limit).taken]


async def explained(
    database: Database, budgets: Budgets, record: EntityRecord, sub_queue: int, row: Any
) -> MessageExplanation:
    """Return why a message, a row of `peek_numbers`, waits."""
    held_next = []
    if record.properties.requires_session and sub_queue == 0:
        held_next = [each["sequence"] for each in await database.fetch(SQL.held_next, record.id)]
    state = await source_state(database, record, sub_queue, HEADS)
    consumers = await listed(database, entity=record.id) if sub_queue == 0 else []
    message = WaitingMessage(
        sequence=row["sequence"], of=row["class_name"], state=STORED[row["state"]],
        visible_at=row["visible_at"], locked_until=row["locked_until"],
        expires_at=row["expires_at"], behind_session=row["state"] == BEHIND,
        fairness_key=row["fairness_key"] or "", dead_lettered=sub_queue > 0,
    )  # fmt: skip
    serving = [one for one in consumers if one.hosts]
    states = [_state(one, state.classes) for one in serving]
    explain = partial(
        explaining.explain, message, state, now=await clock.now(database),
        status=record.properties.status, held_next=held_next,
    )  # fmt: skip
    found = explain(states)
    if found.reason == "in_order":  # else no pool or limit need be asked
        shortages = [
            await budgets.shortage(one.definition.pool, one.definition.limit) for one in serving
        ]
        found = explain(
            [replace(one, shortage=text) for one, text in zip(states, shortages, strict=True)]
        )
    return found


def _state(consumers: ConsumersView, classes: Sequence[PriorityClass]) -> ConsumersState:
    """Consumers as they are on the host with most room."""
    definition = consumers.definition
    room = max(consumers.hosts, key=lambda host: host.slots - len(host.held))
    in_use: dict[str, int] = {}
    keys: dict[str, int] = {}
    for held in room.held:
        in_use[held.priority_class] = in_use.get(held.priority_class, 0) + 1
        keys[held.fairness_key] = keys.get(held.fairness_key, 0) + 1
    return ConsumersState(
        name=consumers.name, state=consumers.state,
        hours=None if definition.hours is None else Hours.of(definition.hours),
        slots=Slots(
            free=room.slots - len(room.held), in_use=in_use, keys_in_use=keys,
            reserved=reserving.reservations(
                classes, _known(definition.reserved, classes), room.slots
            ),
            max_per_class=definition.max_per_class,
            max_per_fairness_key=definition.max_per_fairness_key,
        ),
    )  # fmt: skip


def _known(reserved: Mapping[str, int], classes: Sequence[PriorityClass]) -> dict[str, int]:
    """Reservations for classes of this entity; the others belong to other sources."""
    names = {one.name.lower() for one in classes}
    return {name: slots for name, slots in reserved.items() if name.lower() in names}


def _class(row: Any) -> PriorityClass:
    return PriorityClass(
        name=row["name"], priorities=(row["low"], row["high"]), base=row["base"], slo=row["slo"],
        express=row["express"], weight=row["weight"],
    )  # fmt: skip


def _tally(row: Any, names: Mapping[int, str]) -> Tally:
    if row is None:
        return Tally()
    by_name = [names[number] for number in row["numbers"]]
    vtimes = zip(by_name, row["vtimes"], strict=True)
    tags = zip(by_name, row["tags"], strict=True)
    return Tally(
        express_run=row["express_run"],
        vtimes={name: value for name, value in vtimes if value is not None},
        tags={name: value for name, value in tags if value is not None},
    )
