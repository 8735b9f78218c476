"""`app.audit`: what operators and keys have changed, for 400 days.

An entry is stored before its operation runs: without it nothing is done. Its outcome follows, in
one commit with the event `relevo.audit.recorded`. Entries hold names and outcomes, never secrets,
bodies or answers.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Final, Literal

from msgspec import Struct

from relevo import limits
from relevo.audit import events
from relevo.kernel.events import Event
from relevo.kernel.leases.loops import Duty
from relevo.kernel.part import Part, Service
from relevo.kernel.postgres import catalog
from relevo.kernel.postgres.repeating import until_fewer

if TYPE_CHECKING:
    from relevo.kernel.events import EventLog
    from relevo.kernel.postgres import Transaction

SQL = catalog.load("relevo.audit")
DONE: Final = "done"
FORGET_ROWS_MAX: Final = 2_000
CallerKind = Literal["agent"]
"""`agent`: an AI agent, all of whose calls are audited."""


class AuditEntry(Struct, frozen=True, kw_only=True):
    """A change that somebody made, or tried to make."""

    id: int
    at: datetime
    by_id: str
    """The id of the key, `local` for the command line beside the database."""
    by_name: str
    operation: str
    resource: str
    """The path of the operation, with what it names."""
    reason: str | None
    caller: CallerKind | None = None
    """`agent` for an AI agent; null for people and their programs."""
    outcome: str | None
    """`done`, or the code of the error; null while it runs, or if its host was killed."""
    ended_at: datetime | None


class AuditFilter(Struct, frozen=True, kw_only=True):
    """Which entries of the audit."""

    by: str | None = None
    operation: str | None = None
    """An operation such as `queues.drop`, or the part before a dot, such as `queues`."""
    resource: str | None = None
    """The beginning of the path."""
    caller: CallerKind | None = None
    since: datetime | None = None
    until: datetime | None = None


class AuditedCall(Struct, frozen=True, kw_only=True):
    """Who calls what, and why."""

    by_id: str
    by_name: str
    operation: str
    resource: str
    reason: str | None
    caller: CallerKind | None = None


class Audit(Service):
    """The audit of an installation.

    >>> for entry in await app.audit.list():  # doctest: +SKIP
    ...     print(entry.at, entry.by_name, entry.operation, entry.resource, entry.outcome)
    """

    def __init__(self, log: EventLog) -> None:
        super().__init__(log.connection)
        self._log = log
        log.catalogue.register(*events.TYPES)

    async def begin(self, call: AuditedCall) -> int:
        """Store that an operation is about to run; returns the number of its entry."""
        rows = await self.database.write(
            SQL.begin_entry,
            call.by_id,
            call.by_name,
            call.operation,
            call.resource,
            call.reason,
            call.caller,
        )
        number: int = rows[0]["id"]
        return number

    async def end(self, number: int, call: AuditedCall, outcome: str = DONE) -> None:
        """Store how it has ended, and append the event."""
        data = events.AuditData(
            by_id=call.by_id, by_name=call.by_name, operation=call.operation,
            resource=call.resource, outcome=outcome, reason=call.reason,
            caller=call.caller,
        )  # fmt: skip
        event = Event(events.RECORDED, f"audit/{call.by_id}", number, data)

        async def work(tx: Transaction) -> None:
            if await tx.fetchval(SQL.end_entry, number, outcome, call.resource) is not None:
                await self._log.append(tx, [event])

        await self.database.run(work, idempotent=True)
        self._log.sent()

    async def list(
        self,
        wanted: AuditFilter | None = None,
        *,
        before: int | None = None,
        limit: int = limits.PAGE_ROWS_DEFAULT,
    ) -> list[AuditEntry]:
        """Return a page of entries, the latest first, with numbers below `before`."""
        asked = wanted or AuditFilter()
        prefix = None if asked.resource is None else f"{_escaped(asked.resource)}%"
        rows = await self.database.fetch(
            SQL.list_entries, before, asked.by, asked.operation, prefix, asked.since, asked.until,
            asked.caller, limit,
        )  # fmt: skip
        return [AuditEntry(**dict(row)) for row in rows]

    async def forget(self) -> None:
        """Remove entries that are older than the audit is kept."""

        async def step() -> int:
            bounds = limits.AUDIT_SECONDS, FORGET_ROWS_MAX
            return len(await self.database.write(SQL.forget_entries, *bounds))

        await until_fewer(FORGET_ROWS_MAX, step)


class AuditPart(Part[Audit]):
    """Keeps the audit within its time."""

    def duties(self) -> list[Duty]:
        """Return the duty of the leader."""
        return [Duty("forget audit", 3_600.0, self.service.forget)]


def _escaped(text: str) -> str:
    """Return a text for LIKE."""
    return text.replace("\\", r"\\").replace("%", r"\%").replace("_", r"\_")
