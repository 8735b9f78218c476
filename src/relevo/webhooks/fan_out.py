"""Collects events for webhooks: the handler of an ordinary processor of the event log.

It compares events with what webhooks want and stores one row for each match, in the transaction
that moves the position of its lease: so each event is stored once for each webhook, whatever is
killed. It calls nobody outside, and so no receiver can hold it up.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from msgspec import Struct

from relevo.kernel import cpu
from relevo.kernel.postgres import catalog
from relevo.webhooks.core.filters import EventFilter, EventView, is_own
from relevo.webhooks.service import DELIVERIES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from relevo.feed.processing.context import ChangeContext
    from relevo.kernel.events import Recorded
    from relevo.kernel.postgres import Database, Wakeups

SQL = catalog.load(__package__)
PROCESSOR: Final = "relevo.webhooks"
"""The processor's name, under which its lag and leases are shown."""
_COMPARISON_BYTES: Final = 64
"""What a comparison of an event with a webhook costs, as bytes that are decoded."""


class WantedEvents(Struct, frozen=True):
    """What a webhook wants, compiled."""

    id: UUID
    name: str
    revision: int
    since: datetime
    filter: EventFilter


class FanOut:
    """Stores events for the webhooks that want them."""

    def __init__(self, database: Database, wakeups: Wakeups) -> None:
        self._database = database
        self._wakeups = wakeups
        self._wanted: dict[UUID, WantedEvents] = {}

    async def handle(self, ctx: ChangeContext, events: Sequence[Recorded]) -> None:
        """Store the matches of a batch together with the position behind it."""
        wanted = await self._read_wanted()
        size = sum(len(event.body) for event in events) + (
            _COMPARISON_BYTES * len(events) * len(wanted)
        )
        found = await cpu.decoded(size, lambda: matched(events, wanted))
        if not found:
            return
        async with ctx.transaction() as tx:
            await tx.execute(
                SQL.enqueue,
                [webhook for webhook, _ in found],
                [event.id for _, event in found],
                [event.stripe for _, event in found],
                [event.lsn for _, event in found],
                [event.at for _, event in found],
                [event.type for _, event in found],
                [event.schema for _, event in found],
                [event.subject for _, event in found],
                [event.version for _, event in found],
                [bytes(event.body).decode() for _, event in found],
            )
        self._wakeups.send(DELIVERIES)

    async def _read_wanted(self) -> list[WantedEvents]:
        """Return what webhooks want at this moment; compiles only what has changed."""
        rows = await self._database.fetch(SQL.wanted_webhooks)
        revisions = {row["id"]: row["revision"] for row in rows}
        changed = [
            one
            for one, revision in revisions.items()
            if one not in self._wanted or self._wanted[one].revision != revision
        ]
        kept = {one: self._wanted[one] for one in revisions if one not in changed}
        if changed:
            read = await self._database.fetch(SQL.webhook_filters, changed)
            kept |= await cpu.off_loop(_compiled, [dict(row) for row in read])
        self._wanted = kept
        return list(kept.values())


def matched(
    events: Sequence[Recorded], wanted: Sequence[WantedEvents]
) -> list[tuple[UUID, Recorded]]:
    """Return the webhooks and the events that they want."""
    found = []
    for event in events:
        view = EventView(event)
        found += [
            (one.id, event)
            for one in wanted
            if event.at >= one.since and one.filter.takes(view) and not is_own(event, one.name)
        ]
    return found


def _compiled(rows: Sequence[Mapping[str, Any]]) -> dict[UUID, WantedEvents]:
    return {
        row["id"]: WantedEvents(
            id=row["id"], name=row["name"], revision=row["revision"], since=row["since"],
            filter=EventFilter(tuple(row["types"]), row["filter"]),
        )
        for row in rows
    }  # fmt: skip
