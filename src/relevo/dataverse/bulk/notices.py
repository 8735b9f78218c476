"""The mail at the end of a bulk delete: at most one for each recipient and run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from relevo.dataverse.bulk.engine import add_message
from relevo.dataverse.bulk.mail import Mail, Transport
from relevo.dataverse.bulk.sources import SQL
from relevo.errors import InvalidValue
from relevo.kernel import callables, error_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from relevo.jobs.running.context import JobContext
    from relevo.kernel.postgres import Database

_CONTROLS: Final = dict.fromkeys((*range(0x20), 0x7F), " ")
"""Characters that could end a header line of a mail and start another."""


class Notice(Struct, frozen=True, kw_only=True):
    """The recipients of a notification, and its transport."""

    transport: str
    to: tuple[str, ...]


def noticed(to: Sequence[str], transports: Sequence[str]) -> Notice | None:
    """Return the notification, through the first transport; None without recipients.

    Raises `InvalidValue` if there is no transport, and for an invalid address.
    """
    if not to:
        return None
    if not transports:
        raise InvalidValue(
            "cannot send mail: this app has no transport; register one with"
            " @app.bulk.transport(name), or leave out the notification",
            pointer="notify",
        )
    for address in to:
        if "@" not in address or address != address.translate(_CONTROLS):
            raise InvalidValue(
                f"{address[:100]!r} is not a mail address; use one such as ana@example.org",
                pointer="notify",
            )
    return Notice(transport=transports[0], to=tuple(to))


class Notices:
    """Sends the notifications of one run."""

    def __init__(
        self, database: Database, ctx: JobContext, notice: Notice | None,
        transports: Mapping[str, Transport],
    ) -> None:  # fmt: skip
        self._database = database
        self._ctx = ctx
        self._notice = notice
        self._transports = transports

    async def send(self, outcome: str, counts: Mapping[str, Any]) -> None:
        """Send to all recipients that have not been sent it; errors become the job's message.

        A recipient is recorded first, so a mail is not sent again after a crash.
        """
        notice = self._notice
        if notice is None:
            return
        transport = self._transports.get(notice.transport)
        if transport is None:
            self._complain(f"this host has no transport {notice.transport!r}")
            return
        for to in notice.to:
            recipient = to.casefold()
            if not await self._database.write(SQL.begin_delivery, self._ctx.id, recipient, False):
                continue
            try:
                mail = self._mail(to, recipient, outcome, counts)
                await callables.run(transport, mail)
            except Exception as error:  # the transport is the user's code
                self._complain(f"{to}: {type(error).__name__}: {error_text.message(error, 500)}")
                continue
            await self._database.write(SQL.end_delivery, self._ctx.id, recipient, idempotent=True)

    def _mail(self, to: str, recipient: str, outcome: str, counts: Mapping[str, Any]) -> Mail:
        ctx = self._ctx
        return Mail(
            to=to, subject=f"{ctx.name}: {outcome}"[:250].translate(_CONTROLS),
            body=f"The bulk delete {ctx.name!r} has ended: {outcome}.\nIts job is {ctx.id}.\n",
            row=dict(counts), key=f"{ctx.id}/{recipient}",
        )  # fmt: skip

    def _complain(self, text: str) -> None:
        add_message(self._ctx, f"no notification was sent: {text}")
