"""Durable messages to actors from outside of actors, by themselves or in a caller's transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import asyncpg
import msgspec

from relevo.actors.storing.commits import TOPIC, transposed
from relevo.errors import InvalidValue
from relevo.kernel.postgres import catalog, foreign
from relevo.kernel.postgres.grouping import Group

if TYPE_CHECKING:
    from collections.abc import Sequence

    from relevo.actors.core.deltas import OutgoingMessage
    from relevo.kernel.postgres import Database, Wakeups

SQL = catalog.load("relevo.actors")
UNKNOWN_SLOT: Final = "RV020"
IN_TRANSACTION: Final = foreign.Function(
    "relevo.send_actor_messages",
    (
        "text[]", "text[]", "int4[]", "text[]", "text[]::bytea[]", "text[]", "text[]",
        "int4[]", "text[]",
    ),
    otherwise="; durable messages to actors can be sent in transactions of these only",
)  # fmt: skip


class Sending:
    """Stores messages to actors; concurrent sends share statements."""

    def __init__(self, database: Database, wakeups: Wakeups) -> None:
        self._database = database
        self._wakeups = wakeups
        self._group: Group[tuple[OutgoingMessage, ...], list[int]] = Group(
            "send actor message", self._store, metrics=database.metrics
        )

    async def send(self, messages: Sequence[OutgoingMessage], tx: Any = None) -> list[int]:
        """Store messages and return their numbers: all or none.

        With `tx`, a connection of asyncpg, psycopg or SQLAlchemy in a transaction of the caller,
        they are there when that commits, and are noticed within a second.
        """
        if not messages:
            return []
        if tx is None:
            return await self._group.call(tuple(messages))
        arrays = _columns(messages)
        arrays[4] = ["\\x" + one.body.hex() for one in messages]  # text, in all drivers
        try:
            numbers = await IN_TRANSACTION.call(tx, arrays, self._database.schema)
        except asyncpg.PostgresError as error:
            raise _refused(error) from error
        return list(numbers)

    async def close(self) -> None:
        """Finish the sends that were accepted."""
        await self._group.close()

    async def _store(self, sends: Sequence[tuple[OutgoingMessage, ...]]) -> list[Any]:
        messages = [one for send in sends for one in send]
        try:
            rows = await self._database.write(SQL.send_messages, *_columns(messages))
        except asyncpg.PostgresError as error:
            raise _refused(error) from error
        self._wakeups.send(*{TOPIC.format(one.placement_group) for one in messages})
        numbers = iter(rows[0][0])
        return [[next(numbers) for _ in send] for send in sends]


def _columns(messages: Sequence[OutgoingMessage]) -> list[list[Any]]:
    """Return the arrays of `relevo.send_actor_messages`."""
    rows = [
        (
            one.receiver, one.placement_group, one.slot, one.method, one.body, one.digest,
            msgspec.json.encode(one.headers).decode(), one.attempts, one.on_dead,
        )
        for one in messages
    ]  # fmt: skip
    return transposed(rows, 9)


def _refused(error: asyncpg.PostgresError) -> Exception:
    if error.sqlstate != UNKNOWN_SLOT:
        return error
    return InvalidValue(f"the message cannot be sent: {error}; no host has joined such a group")
