"""Sessions: messages that belong together, for one receiver at a time, in the order of arrival.

async with await orders.accept_next(wait=20) as session:
    for message in await session.receive(10):
        await message.complete()
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from relevo import limits
from relevo.errors import Conflict, MessageNotFound, SessionLockLost, SessionTaken
from relevo.kernel import checking
from relevo.kernel.postgres import catalog, clock
from relevo.messaging.core import content, tokens
from relevo.messaging.receiving import LOOK_SECONDS, taken
from relevo.messaging.sending import TOPIC
from relevo.messaging.states import require_receiving

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from relevo.kernel.postgres import Database, Wakeups
    from relevo.messaging.entities import EntityRecord
    from relevo.messaging.receiving import Receiving
    from relevo.messaging.running.context import Received

SQL = catalog.load(__package__)
RENEW_SHARE: Final = 1 / 3
"""After which share of the time that is left a lock is renewed."""


class SessionInfo(Struct, frozen=True, kw_only=True):
    """A session of an entity."""

    session_id: str
    held: bool
    locked_until: datetime | None
    updated_at: datetime
    state_bytes: int | None


class Sessions:
    """Gives out the sessions of entities."""

    def __init__(self, database: Database, wakeups: Wakeups, receiving: Receiving) -> None:
        self.database = database
        self.wakeups = wakeups
        self.receiving = receiving

    async def accept(self, record: EntityRecord, session_id: str) -> Session:
        """Hold a session; raises `SessionTaken` while another holds it."""
        _require_sessions(record)
        checking.text("session_id", session_id, limits.MESSAGE_ID_LENGTH_MAX, of="a session")
        found = await self._accept(record, session_id)
        if found is None:
            raise SessionTaken(
                f"session {session_id!r} of {record.path!r} is held by another receiver; wait until"
                " it is closed, or accept_next() to get another"
            )
        return found

    async def accept_next(self, record: EntityRecord, wait: float | None) -> Session | None:
        """Hold the session whose first message is next; None if there is none within `wait`."""
        _require_sessions(record)
        deadline = asyncio.get_running_loop().time() + (wait or 0.0)
        with self.wakeups.signal(TOPIC.format(record.id)) as woken:
            while (found := await self._accept(record, None)) is None:
                left = deadline - asyncio.get_running_loop().time()
                if left <= 0:
                    return None
                await woken.wait(min(left, LOOK_SECONDS))
        return found

    async def _accept(self, record: EntityRecord, key: str | None) -> Session | None:
        async def give_back(rows: Sequence[Any]) -> None:
            for row in rows:
                await Session(self, record.id, row).close()

        call = self.database.write(SQL.accept_session, record.id, key, None)
        rows = await taken(call, give_back)
        return Session(self, record.id, rows[0]) if rows else None

    async def held(self, record: EntityRecord, session_id: str, holder: int) -> Session:
        """Return a session that was accepted before, for the holder of that number."""
        _require_sessions(record)
        row = await self.database.fetchrow(SQL.held_session, record.id, session_id, holder)
        if row is None:
            raise SessionLockLost(
                f"{record.path!r} has no session {session_id!r} that is held; accept it first"
            )
        return Session(self, record.id, row)

    async def list(
        self, record: EntityRecord, *, after: str, limit: int, since: datetime | None = None
    ) -> list[SessionInfo]:
        """Return the sessions of an entity by their ids, a page at a time."""
        rows = await self.database.fetch(SQL.sessions, record.id, after, since, limit)
        return [
            SessionInfo(
                session_id=row["key"], held=row["held"], locked_until=row["locked_until"],
                updated_at=row["updated_at"], state_bytes=row["state_bytes"],
            )
            for row in rows
        ]  # fmt: skip


class Session:
    """A session that is held: its messages come to this holder alone, in the order of arrival."""

    def __init__(self, sessions: Sessions, entity: int, row: Any) -> None:
        self._sessions = sessions
        self._entity = entity
        self._id: int = row["session"]
        self.session_id: str = row["key"]
        self.holder: int = row["holder"]
        """Grows with every holder: an old one is told from the present one."""
        self.locked_until: datetime | None = row["locked_until"]
        self.lost = asyncio.Event()
        """Is set when the session is not held any more."""

    async def receive(self, max_messages: int = 1, *, wait: float | None = None) -> list[Received]:
        """Return the next messages of the session; an empty list after `wait` seconds."""
        sessions = self._sessions
        deadline = asyncio.get_running_loop().time() + (wait or 0.0)
        with sessions.wakeups.signal(TOPIC.format(self._entity)) as woken:
            while True:
                call = sessions.database.write(
                    SQL.receive_from_session, self._id, self.holder, max_messages,
                    tokens.new_number(), False, None, None,
                )  # fmt: skip
                rows = await taken(call, sessions.receiving.release)
                if rows and rows[0]["kind"] == "lost":
                    raise self._lost()
                left = deadline - asyncio.get_running_loop().time()
                if rows or left <= 0:
                    return await sessions.receiving.received(rows)
                await woken.wait(min(left, LOOK_SECONDS))

    async def receive_deferred(self, *numbers: int) -> list[Received]:
        """Lock deferred messages of the session by their numbers, all or none."""
        rows = await self._sessions.database.write(
            SQL.receive_deferred_from_session, self._entity, list(numbers), tokens.new_number(),
            False, self._id, self.holder,
        )  # fmt: skip
        if len(rows) < len(set(numbers)):
            raise MessageNotFound(
                f"not all of {', '.join(map(str, numbers[:20]))} are deferred in session"
                f" {self.session_id!r}, or it is not held any more; nothing was locked"
            )
        return await self._sessions.receiving.received(rows)

    async def renew(self) -> None:
        """Begin the lock anew, and with it those of the session's messages."""
        rows = await self._sessions.database.write(SQL.renew_session, self._id, self.holder)
        if not rows:
            raise self._lost()
        self.locked_until = rows[0]["locked_until"]

    @asynccontextmanager
    async def renewing(self) -> AsyncIterator[None]:
        """Renew the lock while the block runs; `lost` says if that fails, nothing is raised."""
        task = asyncio.ensure_future(self._renew())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _renew(self) -> None:
        while self.locked_until is not None:
            now = await clock.now(self._sessions.database)
            left = (self.locked_until - now).total_seconds()
            await asyncio.sleep(max(0.0, left * RENEW_SHARE))
            await self.renew()

    async def get_state(self) -> bytes | None:
        """Return the stored state of the session."""
        row = await self._sessions.database.fetchrow(SQL.session_state, self._id, self.holder)
        if row is None:
            raise self._lost()
        found: bytes | None = row["state"]
        return found

    async def set_state(self, state: bytes | None) -> None:
        """Store the state of the session, which outlives its messages; None removes it."""
        if state is not None:
            most = limits.MESSAGE_SESSION_STATE_BYTES_MAX
            state = content.check_saved("state", state, most)
        await self._do(SQL.set_session_state, state)

    async def close(self, *, lost: bool = False) -> None:
        """Give the session back, with what is not settled; `lost` counts that as failed."""
        await self._do(SQL.close_session, lost)
        self._sessions.wakeups.send(TOPIC.format(self._entity))

    async def _do(self, sql: str, value: Any) -> None:
        rows = await self._sessions.database.write(sql, self._id, self.holder, value)
        if not rows[0][0]:
            raise self._lost()

    def _lost(self) -> SessionLockLost:
        self.lost.set()
        return SessionLockLost(
            f"session {self.session_id!r} is not held any more: its lock has expired, or it was"
            " closed; accept it again"
        )

    async def __aenter__(self) -> Session:
        return self

    async def __aexit__(self, kind: Any, error: Any, traceback: Any) -> None:
        if not self.lost.is_set():
            try:
                await self.close()
            except SessionLockLost:
                if error is None:
                    raise


def _require_sessions(record: EntityRecord) -> None:
    require_receiving(record.path, record.properties.status)
    if not record.properties.requires_session:
        raise Conflict(
            f"{record.path!r} has no sessions; receive() from it, or create it with"
            " requires_session=True"
        )
