"""How everything that changes jobs, workers and offers is done: in groups, one transaction each.

Load under locks, decide, write, append events, commit, wake. A call says which rows it touches and
brings the decision, a plain function over the `World`; calls that share a group see each other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from uuid import UUID

import structlog
from msgspec import Struct

from relevo.errors import RelevoError
from relevo.kernel.postgres.grouping import Group
from relevo.router import storage, watching
from relevo.router.core.world import World
from relevo.router.events import OFFERS
from relevo.router.storage import Needs

if TYPE_CHECKING:
    from collections.abc import Awaitable, Sequence

    from relevo.kernel.events import Event, EventLog
    from relevo.kernel.postgres import Database, Transaction
    from relevo.router.resources import Remembered

LANES = 2
"""Transactions under way at once in a host; more would mostly wait for each other's rows."""
log = structlog.get_logger(__name__)


class Call(Struct, frozen=True):
    """What to decide, and the rows that it needs."""

    decide: Callable[[World], Any]
    workers: tuple[str, ...] = ()
    jobs: tuple[str, ...] = ()
    offers: tuple[UUID, ...] = ()
    whole: tuple[str, ...] = ()
    lane: str = ""


class Commands:
    """Runs calls in groups."""

    def __init__(self, database: Database, events: EventLog, remembered: Remembered) -> None:
        self._database = database
        self._events = events
        self._remembered = remembered
        self._group: Group[Call, Any] = Group(
            "router", self._run, lane=lambda call: call.lane, lanes=LANES, metrics=database.metrics
        )

    async def call(self, call: Call) -> Any:
        """Return what one call decided, once that is committed."""
        return await self._group.call(call)

    async def together(
        self,
        calls: Sequence[Call],
        before: Callable[[Transaction], Awaitable[None]] | None = None,
    ) -> list[Any]:
        """Run calls in one transaction of their own; `before` may refuse it (a fence)."""

        async def work(tx: Transaction) -> tuple[list[Any], bool, list[Event]]:
            world = await storage.load(tx, _needs(calls), self._remembered)
            results = [_decided(call, world) for call in calls]
            if before is not None:
                await before(tx)
            changed = await storage.save(tx, world, self._events)
            for job_id, why in world.skipped:
                log.warning("router.exception_action_skipped", job=job_id, reason=why)
            return results, changed, world.events

        results, changed, events = await self._database.run(work)
        if changed:
            self._events.sent(*watching.topics(events))
            self._count_offers(events)
        return results

    def _count_offers(self, events: Sequence[Event]) -> None:
        metrics = self._database.metrics
        happened = Counter(one.type for one in events if one.type.startswith(OFFERS))
        for type_, count in happened.items():
            metrics.router_offers.labels(event=type_.removeprefix(OFFERS)).inc(count)

    async def close(self) -> None:
        """Let calls under way end."""
        await self._group.close()

    async def _run(self, calls: Sequence[Call]) -> list[Any]:
        return await self.together(calls)


def _needs(calls: Sequence[Call]) -> Needs:
    needs = Needs()
    for call in calls:
        needs.workers.update(call.workers)
        needs.jobs.update(call.jobs)
        needs.offers.update(call.offers)
        needs.whole.update(call.whole)
    return needs


def _decided(call: Call, world: World) -> Any:
    """A refusal is the answer of its own call; decisions refuse before they change anything."""
    try:
        return call.decide(world)
    except RelevoError as error:
        return error
