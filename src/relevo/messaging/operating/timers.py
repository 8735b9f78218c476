"""The leader's duties: due, expired and lost messages, counters, arrivals, what is over."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from relevo.kernel import faults
from relevo.kernel.leases.loops import Duty
from relevo.kernel.postgres import catalog
from relevo.kernel.postgres.polling import Question
from relevo.messaging.entities import Entities
from relevo.messaging.operating import consumers
from relevo.messaging.sending import ARRIVED, TOPIC

if TYPE_CHECKING:
    from relevo.kernel.postgres import Database, Wakeups

SQL = catalog.load("relevo.messaging")
TEND_SECONDS: Final = 0.5
"""Expiry takes effect within 2 s, schedules within 1 s of their time."""
FORGET_SECONDS: Final = 30.0
ROWS: Final = 1_000


class MessageTimers:
    """Does what is due for all entities, in parts of so many rows."""

    def __init__(self, database: Database, wakeups: Wakeups) -> None:
        self._database = database
        self._wakeups = wakeups
        self._entities = Entities(database)

    def duties(self) -> list[Duty]:
        """Return the duties of the leader."""
        return [
            Duty("messaging.tend", TEND_SECONDS, self.tend, Question(SQL.tend)),
            Duty("messaging.forget", FORGET_SECONDS, self.forget),
        ]

    async def tend(self) -> None:
        """Do what is due; an idle installation costs one statement."""
        found = await self._database.fetchrow(SQL.tend)
        assert found is not None
        if _is_due(found["due"]):
            await self.make_due()
        if _is_due(found["expired"]):
            await self.expire()
        if _is_due(found["lost"]):
            await self.recover()
        if found["counts"]:
            await self._database.write(SQL.fold_counts)
        if found["targets"]:
            await self.breach_targets()
        if found["pauses"]:
            await self.resume_consumers()
        if found["arrivals"]:
            self._wakeups.send(ARRIVED)

    async def make_due(self) -> None:
        """Make scheduled and invisible messages claimable whose time has come."""
        await self._each(SQL.make_due)

    async def recover(self) -> None:
        """Take messages back from ended hosts and expired locks."""
        await self._each(SQL.recover)

    async def _each(self, sql: str) -> None:
        """Repeat a statement that returns entities until it finds none, and wake these."""
        while entities := await self._value(sql, ROWS):
            await faults.point("mid_dead_letter")
            self._wakeups.send(ARRIVED, *(TOPIC.format(id_) for id_ in entities))

    async def expire(self) -> None:
        """Remove or dead-letter messages whose time to live is over."""
        while await self._value(SQL.expire, ROWS):
            pass

    async def breach_targets(self) -> None:
        """Deal with messages that missed the target of their class."""
        while await self._value(SQL.breach_targets, ROWS):
            self._wakeups.send(ARRIVED)

    async def resume_consumers(self) -> None:
        """Let consumers go on whose pause is over."""
        await self._database.run(consumers.resume_due)

    async def forget(self) -> None:
        """Forget remembered ids and settlements, idle entities, what dropped ones have left."""
        while await self._value(SQL.forget, ROWS) >= ROWS:
            pass
        await self._entities.drop_idle()
        while await self._value(SQL.purge_dropped, ROWS):
            pass

    async def _value(self, sql: str, *args: Any) -> Any:
        rows = await self._database.write(sql, *args)
        return rows[0][0]


def _is_due(seconds: float | None) -> bool:
    return seconds is not None and seconds <= 0
