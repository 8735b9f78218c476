"""Arrivals: what callers' transactions have sent, accepted after their commit."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from relevo.errors import CallerError, NotFound, RelevoError
from relevo.kernel import faults
from relevo.kernel.postgres import catalog
from relevo.kernel.postgres.polling import Question
from relevo.kernel.telemetry.logs import get_logger
from relevo.messaging.core.acceptance import Outgoing
from relevo.messaging.core.content import BODY_KINDS, Body
from relevo.messaging.core.heads import message_of
from relevo.messaging.sending import ARRIVED, TOPIC, evaluated

if TYPE_CHECKING:
    from relevo.kernel.postgres import Database, Transaction, Wakeups
    from relevo.messaging.service import MessagingTools

SQL = catalog.load(__package__)
log = get_logger(__name__)
LOOK_SECONDS: Final = 0.25
"""How often a host looks: sends in callers' transactions wake nobody."""
ROWS: Final = 500


class Arrivals:
    """Accepts arrivals of this installation, oldest first; every host does, each its share."""

    def __init__(self, database: Database, wakeups: Wakeups, tools: MessagingTools) -> None:
        self._database = database
        self._wakeups = wakeups
        self._tools = tools

    async def run(self) -> None:
        """Accept for as long as the host serves."""
        question = Question(SQL.arrival_entities, lambda: (1,), of_rows=True)
        with self._wakeups.signal(ARRIVED, question=question) as woken:
            while True:
                try:
                    while await self.accept():
                        pass
                except RelevoError as error:
                    log.warning("messaging.arrivals_failed", error=error.message[:500])
                await woken.wait(woken.patience(LOOK_SECONDS))

    async def accept(self) -> int:
        """Accept what has arrived, at most so many; returns how many."""
        rows = await self._database.fetch(SQL.arrival_entities, ROWS)
        if not rows:
            return 0
        for row in rows:
            with suppress(NotFound):  # known now, so that the transaction needs no other connection
                await self._tools.definitions.by_id(row["entity_id"])
        try:
            count, places = await self._database.run(self._accept)
        except StaleDefinitions:
            return await self.accept()
        self._wakeups.send(*(TOPIC.format(id_) for id_ in set(places)))
        return count

    async def _accept(self, tx: Transaction) -> tuple[int, list[int]]:
        rows = await tx.fetch(SQL.arrivals, ROWS)
        given = []
        for row in sorted(rows, key=lambda one: one["id"]):
            with suppress(NotFound):  # its entity was dropped, and its messages with it
                definition = await self._tools.definitions.by_id(row["entity_id"])
                given.append((definition, outgoing_of(row)))
        if not given:
            return len(rows), []
        plan = await evaluated(given)
        await faults.point("mid_forward")
        found = await tx.fetch(SQL.accept_arrivals, *plan.columns())
        if found and found[0]["outcome"] == "stale":
            self._tools.definitions.forget(*{one.path for one, _ in given})
            raise StaleDefinitions("definitions changed while arrivals were evaluated")
        return len(rows), plan.places


class StaleDefinitions(CallerError):
    """Definitions changed while arrivals were evaluated; nothing was stored."""


def outgoing_of(row: Any) -> Outgoing:
    """Return the message of an arrival."""
    message = message_of(
        row["head"], priority=row["priority"], priority_class=row["priority_class"],
        fairness_key=row["fairness_key"] or "", ttl=row["ttl"], at=row["due_at"],
        message_id=row["message_id"], session_id=row["session_id"],
    )  # fmt: skip
    return Outgoing(
        message=message, body=Body(BODY_KINDS[row["body_kind"]], row["body"]),
        message_id=row["message_id"], hops=row["hops"], enqueued=row["enqueued_sequence"],
        expires=row["expires_at"], dead=row["dead"], arrived=True,
    )  # fmt: skip
