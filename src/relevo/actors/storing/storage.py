"""The stored side of actors: states, map entries, recorded calls, commits, and all the rest."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from relevo import limits
from relevo.actors.core.deltas import RecordedCall, StoredActor
from relevo.actors.storing.commits import Commits
from relevo.actors.storing.dead_letters import DeadLetters
from relevo.actors.storing.inbox import Inbox
from relevo.actors.storing.placement_groups import PlacementGroups
from relevo.actors.storing.sending import Sending
from relevo.actors.storing.stored_actors import StoredActors
from relevo.kernel.postgres import catalog
from relevo.kernel.postgres.grouping import Group

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Sequence

    from relevo.actors.core.deltas import Delta
    from relevo.kernel.pages import Fetched
    from relevo.kernel.postgres import Database, Wakeups

SQL = catalog.load("relevo.actors")
LOAD_BYTES: Final = 8 * limits.MIB
"""Documents that one statement gives."""


class ActorStorage:
    """The stored side of the actors that a host runs.

    `may_act` says whether the host is within its self-fencing deadline: a commit whose connection
    is lost is repeated as long as it is.

    >>> storage = ActorStorage(database, wakeups, may_act=lambda: leases.may_act)  # doctest: +SKIP
    >>> stored = await storage.load("account/s:alice")  # doctest: +SKIP
    """

    def __init__(
        self,
        database: Database,
        wakeups: Wakeups,
        *,
        may_act: Callable[[], bool] = lambda: True,
    ) -> None:
        self._database = database
        self._commits = Commits(database, wakeups, may_act)
        self._loads: Group[str, StoredActor] = Group(
            "load actor", self._load, metrics=database.metrics
        )
        self.inbox = Inbox(database)
        self.sending = Sending(database, wakeups)
        self.dead_letters = DeadLetters(database, wakeups)
        self.actors = StoredActors(database)
        self.groups = PlacementGroups(database)

    async def load(self, actor: str) -> StoredActor:
        """Return what is stored of an actor; concurrent calls share statements."""
        return await self._loads.call(actor)

    async def commit(self, delta: Delta) -> None:
        """Return when a delta is durable; deltas of an actor are stored in the order of the calls.

        Raises `LeaseLost` if the slot has another owner and `CommitConflict` if the delta does not
        build on what is stored: it was not stored then. `DatabaseUnavailable` says the same,
        `OutcomeUnknown` that it may or may not have been stored. Other errors are the database's
        about the data of this actor, which were not stored either.
        """
        await self._commits.commit(delta)

    def commit_soon(self, delta: Delta) -> asyncio.Future[None]:
        """Store a delta after those given before; the future ends as `commit` does."""
        return self._commits.commit_soon(delta)

    async def entry(self, actor: str, map_name: str, key: str) -> bytes | None:
        """Return the value of an entry of a map, or None."""
        value: bytes | None = await self._database.fetchval(SQL.actor_entry, actor, map_name, key)
        return value

    async def entries(
        self, actor: str, map_name: str, after: str = "", limit: int = limits.PAGE_ROWS_DEFAULT
    ) -> Fetched[tuple[str, bytes]]:
        """Return entries of a map whose keys come after `after`: a page of them."""
        page = await self._database.fetch_page(
            SQL.actor_entries, actor, map_name, after, limit, rows=limit
        )
        return page.each(lambda row: (row["key"], row["value"]))

    async def recorded(self, actor: str, call_id: str) -> RecordedCall | None:
        """Return the recorded call of an id, or None."""
        row = await self._database.fetchrow(SQL.recorded_call, actor, call_id)
        return RecordedCall(**row) if row is not None else None

    async def has_reminder(self, actor: str, name: str) -> bool:
        """Return whether an actor has a reminder of a name."""
        return bool(await self._database.fetchval(SQL.has_reminder, actor, name))

    async def close(self) -> None:
        """Finish what was accepted."""
        await self._commits.close()
        await self.sending.close()
        await self._loads.close()

    async def _load(self, actors: Sequence[str]) -> list[StoredActor | Exception]:
        found: dict[str, StoredActor | Exception] = {}
        pending = deque(dict.fromkeys(actors))
        while pending:
            asked = list(pending)
            pending.clear()
            for actor, row in zip(
                asked, await self._database.fetch(SQL.load_actors, asked, LOAD_BYTES), strict=True
            ):
                if row["is_left_out"]:
                    pending.append(actor)
                elif row["revision"] is None:
                    found[actor] = StoredActor()
                else:
                    found[actor] = StoredActor(
                        row["revision"], row["incarnation"], row["document"], row["schema"],
                        row["quarantine_error"],
                    )  # fmt: skip
        return [found[actor] for actor in actors]
