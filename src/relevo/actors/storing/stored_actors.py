"""Administration of stored actors: lists, quarantine, and what is forgotten after a time."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from relevo import limits
from relevo.actors.operating import events
from relevo.errors import LeaseLost
from relevo.kernel.leases.loops import Duty
from relevo.kernel.postgres import catalog
from relevo.kernel.postgres.repeating import until_fewer

if TYPE_CHECKING:
    from relevo.kernel.events import Event
    from relevo.kernel.leases import Fence
    from relevo.kernel.pages import Fetched
    from relevo.kernel.postgres import Database, Transaction

SQL = catalog.load("relevo.actors")
TRIM_ROWS: Final = 1_000
TRIM_ROUNDS: Final = 200
TRIM_SECONDS: Final = 600.0
TOMBSTONE_SECONDS: Final = 7 * 86_400.0
"""How long it is known that an actor was deleted."""


class ListedActor(Struct, frozen=True):
    """An actor that has stored data."""

    id: str
    """Canonical id."""
    revision: int
    incarnation: int
    updated_at: datetime
    quarantined_at: datetime | None
    host: str | None
    """The host that owns its slot; whether the actor is active there, only that host knows."""


class QuarantinedActor(Struct, frozen=True):
    """An actor whose state cannot be used, and why."""

    id: str
    revision: int
    schema: int
    quarantined_at: datetime
    quarantine_error: str
    bytes: int | None
    """Of the document."""


class StoredActors:
    """Lists actors and repairs what is stored of them."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def duties(self) -> list[Duty]:
        """What the leader does for actors."""
        return [Duty("actors.trim", TRIM_SECONDS, self.trim)]

    async def list(
        self, type_name: str, after: str = "", limit: int = limits.PAGE_ROWS_DEFAULT
    ) -> Fetched[ListedActor]:
        """Return actors of a type beyond the canonical id `after`: a page, in the order of ids."""
        first = max(f"{type_name}/", after)
        page = await self._database.fetch_page(
            SQL.list_actors,
            first,
            f"{type_name}0",
            limit,
            rows=limit,  # "0" comes after "/"
        )
        return page.each(lambda row: ListedActor(**row))

    async def quarantine(self, actor: str, fence: Fence, error: str) -> None:
        """Note that the state of an actor cannot be used; it stays as it is.

        Raises `LeaseLost` if the fence of its slot does not hold.
        """
        rows = await self._database.write(
            SQL.quarantine, fence.lease_id, fence.epoch, actor, error, idempotent=True
        )
        if not rows[0][0]:
            raise LeaseLost(f"slot {fence.name} of {fence.unit} has another owner")

    async def quarantined(
        self, after: str = "", limit: int = limits.PAGE_ROWS_DEFAULT
    ) -> Fetched[QuarantinedActor]:
        """Return actors in quarantine beyond a canonical id: a page; `load` exports their state."""
        page = await self._database.fetch_page(SQL.list_quarantined, after, limit, rows=limit)
        return page.each(lambda row: QuarantinedActor(**row))

    async def retry(self, actor: str, event: Event | None = None) -> bool:
        """End the quarantine with the state as it is; False if there is none."""
        return await self._end_quarantine(actor, replace=False, event=event)

    async def replace(
        self, actor: str, document: bytes, schema: int, event: Event | None = None
    ) -> bool:
        """End the quarantine with another state; False if there is none."""
        return await self._end_quarantine(actor, True, document, schema, event=event)

    async def reset(self, actor: str, event: Event | None = None) -> bool:
        """End the quarantine with the default state; map entries stay. False if there is none."""
        return await self._end_quarantine(actor, True, event=event)

    async def log(self, event: Event) -> None:
        """Log an event of an actor that stores nothing itself."""

        async def work(tx: Transaction) -> None:
            await events.append(tx, event)

        await self._database.run(work)

    async def trim(self) -> int:
        """Forget old recorded calls and tombstones, in small transactions; return how many."""
        calls = limits.ACTOR_CALL_ID_HOURS * 3_600
        return await self._trim(SQL.trim_calls, calls) + await self._trim(
            SQL.trim_tombstones, TOMBSTONE_SECONDS
        )

    async def _trim(self, sql: str, seconds: float) -> int:
        async def step() -> int:
            return len(await self._database.write(sql, seconds, TRIM_ROWS, idempotent=True))

        return await until_fewer(TRIM_ROWS, step, rounds=TRIM_ROUNDS)

    async def _end_quarantine(
        self,
        actor: str,
        replace: bool,
        document: bytes | None = None,
        schema: int = 1,
        *,
        event: Event | None = None,
    ) -> bool:
        rows = await events.change(
            self._database, SQL.end_quarantine, actor, replace, document, schema, event=event
        )
        return bool(rows)
