"""Bulk mail (type 2), activity propagation (6) and quick campaign (11): once for each recipient.

Mail cannot be recalled, so a recipient is recorded before the transport is called. After a crash
between the two it is unknown whether the mail was sent, and it is not sent again. An activity is
written in the transaction of its chunk, so it exists exactly once.
"""

from __future__ import annotations

import asyncio
import string
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from relevo.dataverse.bulk import engine
from relevo.dataverse.bulk.model import BulkRow, RowFailure, RowQuery
from relevo.dataverse.bulk.sources import SQL
from relevo.errors import InvalidValue
from relevo.jobs.core import codes
from relevo.kernel import callables, error_text

if TYPE_CHECKING:
    from relevo.dataverse.bulk.engine import BulkRun
    from relevo.jobs.running.context import JobContext
    from relevo.kernel.postgres import Database, Transaction

Transport = Callable[["Mail"], Awaitable[None] | None]
"""Sends one mail; a plain function runs in a thread. Errors are recorded with the recipient."""
Sink = Callable[["Transaction", dict[str, Any], dict[str, Any]], Awaitable[None]]
"""Writes one activity for a member, in the given transaction."""


class Mail(Struct, frozen=True, kw_only=True):
    """A mail to one recipient, as a transport gets it."""

    to: str
    subject: str
    body: str
    row: dict[str, Any]
    key: str
    """Identifies job and recipient: an idempotency key for the mail service."""


class Mailing(Struct, frozen=True, kw_only=True):
    """The parameters of a bulk mail."""

    transport: str
    recipients: RowQuery
    address: str
    subject: str
    body: str
    per_second: float | None = None
    max_failures: int | None = None


class Propagation(Struct, frozen=True, kw_only=True):
    """The parameters of an activity propagation."""

    sink: str
    members: RowQuery
    activity: dict[str, Any]
    unique: str | None = None
    """The field that identifies a member; members without it are identified by their keys."""
    max_failures: int | None = None


class Mailer:
    """Sends the mails of one job."""

    def __init__(
        self, database: Database, ctx: JobContext, mailing: Mailing, transport: Transport
    ) -> None:
        self._database = database
        self._ctx = ctx
        self._mailing = mailing
        self._transport = transport
        self._next_at = 0.0

    async def run(self, walk: BulkRun) -> dict[str, int]:
        """Send to all recipients; return the counts."""
        return await walk.over([self._mailing.recipients], outside=self._send_all)

    async def _send_all(self, rows: Sequence[BulkRow]) -> list[RowFailure]:
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

    async def _send(self, row: BulkRow) -> RowFailure | None:
        to = row.body.get(self._mailing.address)
        if not isinstance(to, str) or "@" not in to:
            raise InvalidValue(f"{self._mailing.address} is not a mail address: {to!r}")
        recipient = to.casefold()
        begun = await self._database.write(SQL.begin_delivery, self._ctx.id, recipient, False)
        if not begun:
            return await self._known(row, recipient)
        await self._pace()
        words = {name: str(value) for name, value in row.body.items()}
        mail = Mail(
            to=to, subject=string.Template(self._mailing.subject).safe_substitute(words),
            body=string.Template(self._mailing.body).safe_substitute(words), row=row.body,
            key=f"{self._ctx.id}/{recipient}",
        )  # fmt: skip
        try:
            await callables.run(self._transport, mail)
        except Exception as error:
            # Not retried: the transport may have sent the mail.
            text = f"{type(error).__name__}: {error_text.message(error, engine.ERROR_LENGTH_MAX)}"
            return RowFailure(row.id, codes.HANDLER_FAILED, text)
        await self._database.write(SQL.end_delivery, self._ctx.id, recipient, idempotent=True)
        return None

    async def _known(self, row: BulkRow, recipient: str) -> RowFailure | None:
        """Return the outcome for a recipient recorded by another row or before a crash."""
        if await self._database.fetchval(SQL.delivery, self._ctx.id, recipient):
            return None
        text = "the mail may or may not have been sent; it is not sent again"
        return RowFailure(row.id, codes.HANDLER_FAILED, text)

    async def _pace(self) -> None:
        if self._mailing.per_second is None:
            return
        now = time.monotonic()
        self._next_at = max(self._next_at, now) + 1.0 / self._mailing.per_second
        self._ctx.beaten_at = now
        await asyncio.sleep(self._next_at - now - 1.0 / self._mailing.per_second)


def propagating(ctx: JobContext, propagation: Propagation, sink: Sink) -> engine.Apply:
    """Return a function that writes one activity for each member, once."""

    async def act(tx: Transaction, source: Any, row: BulkRow) -> None:
        del source
        key = "/".join(map(str, row.key))
        if propagation.unique is not None and (value := row.body.get(propagation.unique)) not in (
            None,
            "",
        ):
            key = str(value).casefold()
        if await tx.fetch(SQL.begin_delivery, ctx.id, key, True):
            await callables.call(sink, tx, row.body, propagation.activity)

    return engine.each(act)
