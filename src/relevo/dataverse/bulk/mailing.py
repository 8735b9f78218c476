"""Bulk mail (type 2), activity propagation (6) and quick campaign (11): once for each recipient.

Mail cannot be taken back, so a recipient is noted before the transport is called: after a crash
between the two it is not known whether the mail went out, and it is not sent again. An activity is
written in the transaction of its chunk, so it is there exactly once.
"""

from __future__ import annotations

import asyncio
import string
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from relevo.dataverse.bulk import engine
from relevo.dataverse.bulk.model import Row, RowFailure, RowQuery
from relevo.dataverse.bulk.sources import SQL
from relevo.errors import InvalidValue
from relevo.jobs.core import codes
from relevo.kernel import callables, error_text

if TYPE_CHECKING:
    from relevo.dataverse.bulk.engine import Walk
    from relevo.jobs.running.context import JobContext
    from relevo.kernel.postgres import Database, Transaction

Transport = Callable[["Mail"], Awaitable[None] | None]
"""Sends one mail, a plain function in a thread; what it raises is noted with its recipient."""
Sink = Callable[["Transaction", dict[str, Any], dict[str, Any]], Awaitable[None]]
"""Writes one activity for a member, in the transaction that it is given."""


class Mail(Struct, frozen=True, kw_only=True):
    """A mail to one recipient, as a transport gets it."""

    to: str
    subject: str
    body: str
    row: dict[str, Any]
    key: str
    """Of job and recipient; the same if it should ever come twice."""


class Mailing(Struct, frozen=True, kw_only=True):
    """What a bulk mail is asked for."""

    transport: str
    recipients: RowQuery
    address: str
    subject: str
    body: str
    per_second: float | None = None
    max_failures: int | None = None


class Propagation(Struct, frozen=True, kw_only=True):
    """What an activity propagation is asked for."""

    sink: str
    members: RowQuery
    activity: dict[str, Any]
    unique: str | None = None
    """The field that members are told apart by, if they have it, else by their keys."""
    max_failures: int | None = None


class Mailer:
    """Sends the mails of one job."""

    def __init__(
        self, database: Database, ctx: JobContext, asked: Mailing, transport: Transport
    ) -> None:
        self._database = database
        self._ctx = ctx
        self._asked = asked
        self._transport = transport
        self._next_at = 0.0

    async def run(self, walk: Walk) -> dict[str, int]:
        """Send to all recipients; returns the counts."""
        return await walk.over([self._asked.recipients], outside=self._send_all)

    async def _send_all(self, rows: Sequence[Row]) -> list[RowFailure]:
        failures = []
        for row in rows:
            self._ctx.check()
            try:
                failure = await self._send(row)
            except Exception as error:
                failure = engine.failure_of(row, error)
            if failure is not None:
                failures.append(failure)
        return failures

    async def _send(self, row: Row) -> RowFailure | None:
        to = row.body.get(self._asked.address)
        if not isinstance(to, str) or "@" not in to:
            raise InvalidValue(f"{self._asked.address} is no address: {to!r}")
        recipient = to.casefold()
        begun = await self._database.write(SQL.begin_delivery, self._ctx.id, recipient, False)
        if not begun:
            return await self._known(row, recipient)
        await self._pace()
        words = {name: str(value) for name, value in row.body.items()}
        mail = Mail(
            to=to, subject=string.Template(self._asked.subject).safe_substitute(words),
            body=string.Template(self._asked.body).safe_substitute(words), row=row.body,
            key=f"{self._ctx.id}/{recipient}",
        )  # fmt: skip
        try:
            await callables.run(self._transport, mail)
        except Exception as error:
            # Not again: nobody knows how far the transport came.
            text = f"{type(error).__name__}: {error_text.message(error, engine.ERROR_LENGTH_MAX)}"
            return RowFailure(row.id, codes.HANDLER_FAILED, text)
        await self._database.write(SQL.end_delivery, self._ctx.id, recipient, idempotent=True)
        return None

    async def _known(self, row: Row, recipient: str) -> RowFailure | None:
        """The recipient was noted before: by another row, or before a crash."""
        if await self._database.fetchval(SQL.delivery, self._ctx.id, recipient):
            return None
        text = "it is not known whether the mail was sent; it is not sent again"
        return RowFailure(row.id, codes.HANDLER_FAILED, text)

    async def _pace(self) -> None:
        if self._asked.per_second is None:
            return
        now = time.monotonic()
        self._next_at = max(self._next_at, now) + 1.0 / self._asked.per_second
        self._ctx.beaten_at = now
        await asyncio.sleep(self._next_at - now - 1.0 / self._asked.per_second)


def propagating(ctx: JobContext, asked: Propagation, sink: Sink) -> engine.Apply:
    """Return what writes one activity for each member, once."""

    async def act(tx: Transaction, source: Any, row: Row) -> None:
        del source
        key = "/".join(map(str, row.key))
        if asked.unique is not None and (value := row.body.get(asked.unique)) not in (None, ""):
            key = str(value).casefold()
        if await tx.fetch(SQL.begin_delivery, ctx.id, key, True):
            await callables.call(sink, tx, row.body, asked.activity)

    return engine.each(act)
