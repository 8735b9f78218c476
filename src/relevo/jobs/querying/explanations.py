"""Why a job has not run: reads the rows that the question is about, and asks the pure rules."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from relevo.jobs import states
from relevo.jobs.core import reasons
from relevo.jobs.core.reasons import (
    AwaitedEvent,
    HeadOfToken,
    JobExplanation,
    JobServer,
    JobSituation,
)
from relevo.jobs.errors import JobMissing
from relevo.jobs.querying.query import EVERYBODY, JobQuery
from relevo.kernel.postgres import catalog

if TYPE_CHECKING:
    from uuid import UUID

    from relevo.kernel.postgres import Database
    from relevo.kernel.querying.model import Caller

SQL = catalog.load("relevo.jobs")
NAMES_COMPARED_MAX: Final = 10
"""Unregistered handlers that are compared with those that hosts have had."""
_COPIED: Final = (
    "id", "name", "status", "handler", "lane", "now", "attempt", "retries", "crashes",
    "postpone_until", "waiting_event", "chained", "capped", "alone", "token", "host_name",
    "started_at", "modified_at", "completed_at", "error_code", "friendly", "user_name",
    "owner_cap", "hosts",
    "served_at", "braked_until",
)  # fmt: skip


class UnservedHandler(Struct, frozen=True):
    """A handler with ready jobs that no live host serves."""

    name: str
    served_at: datetime | None
    """When a host last declared it; None: never."""
    similar: tuple[str, ...]


class Explanations:
    """Says why jobs of one database have not run."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def job(self, id: UUID, caller: Caller = EVERYBODY) -> JobExplanation:  # noqa: A002
        """Explain a job; a caller who sees fewer jobs learns nothing of the others."""
        return reasons.explain(await self.situation(id, caller))

    async def unserved(self, limit: int = 100) -> list[UnservedHandler]:
        """Return the handlers for which jobs are ready and which no live host serves."""
        found: list[UnservedHandler] = []
        for row in await self._database.fetch(SQL.unserved_handlers, limit):
            near: tuple[str, ...] = ()
            if row["served_at"] is None and len(found) < NAMES_COMPARED_MAX:
                names = await self._database.fetch(SQL.handler_names, row["handler"])
                near = reasons.similar_names(row["handler"], [one["name"] for one in names])
            found.append(UnservedHandler(row["handler"], row["served_at"], near))
        return found

    async def situation(self, id: UUID, caller: Caller = EVERYBODY) -> JobSituation:  # noqa: A002
        """Return the snapshot of a job that the rules decide on."""
        return await self._situation(id, caller, with_head=True)

    async def _situation(self, id: UUID, caller: Caller, *, with_head: bool) -> JobSituation:  # noqa: A002
        row = await self._database.fetchrow(SQL.situation, id)
        if row is None:
            raise JobMissing(f"there is no job {id}")
        more: dict[str, Any] = {}
        if row["status"] in (states.READY, states.WAITING):
            more["servers"] = await self._servers(row["handler"])
            if not more["servers"] and row["served_at"] is None and caller.scope == "all":
                names = await self._database.fetch(SQL.handler_names, row["handler"])
                more["known_handlers"] = tuple(one["name"] for one in names)
        if row["status"] == states.READY and row["chained"] and with_head:
            more |= await self._head(id, caller)
        if row["waiting_event"]:
            waits = await self._database.fetch(SQL.waits_of, id)
            more["waits"] = tuple(AwaitedEvent(*one) for one in waits)
        if row["status"] == states.READY and not (row["chained"] or row["capped"] or row["alone"]):
            more["ahead"] = await self._ahead(row, more["servers"])
        return JobSituation(
            **{name: row[name] for name in _COPIED}, **more, series=row["series"] is not None,
            admitted=row["admitted"] or 0,
        )  # fmt: skip

    async def _servers(self, handler: str) -> tuple[JobServer, ...]:
        rows = await self._database.fetch(SQL.servers_of, handler)
        return tuple(
            JobServer(
                host=row["host"], lane=row["lane"], slots=row["slots"], held=row["held"],
                handlers=tuple(row["handlers"]), pool=row["pool"], limit=row["limit_name"],
                draining=row["draining"],
            )
            for row in rows
        )  # fmt: skip

    async def _head(self, id: UUID, caller: Caller) -> dict[str, Any]:  # noqa: A002
        """The head of the job's token, and why that one has not ended."""
        rows = await self._database.fetch(SQL.chain_heads, [id])
        if not rows:  # it has ended meanwhile
            return {}
        head = rows[0]["head"]
        if caller.scope != "all" and not await JobQuery(self._database, caller).where(id=head):
            return {"hidden_head": True}
        try:
            found = await self._situation(head, caller, with_head=False)
        except JobMissing:
            return {}
        says = reasons.explain(found).says
        return {"head": HeadOfToken(id=head, name=found.name, says=says)}

    async def _ahead(self, row: Any, servers: tuple[JobServer, ...]) -> int:
        """How many claimable jobs come before it, of the handlers that share its lane."""
        handlers = {row["handler"], *(name for one in servers for name in one.handlers)}
        found: int = await self._database.fetchval(
            SQL.jobs_ahead, sorted(handlers), row["rank"], row["sequence"], reasons.AHEAD_MAX
        )
        return found
