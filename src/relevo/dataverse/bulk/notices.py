"""A mail at the end of a bulk delete, at most one for each recipient and run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from relevo.dataverse.bulk.engine import add
from relevo.dataverse.bulk.mailing import Mail, Transport
from relevo.dataverse.bulk.sources import SQL
from relevo.errors import InvalidValue
from relevo.kernel import callables, error_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from relevo.jobs.running.context import JobContext
    from relevo.kernel.postgres import Database

_CONTROLS: Final = dict.fromkeys((*range(0x20), 0x7F), " ")
"""What could end a line of a mail's header, and begin another."""


class Notice(Struct, frozen=True, kw_only=True):
    """Who is told, and by which transport."""

    transport: str
    to: tuple[str, ...]


def noticed(to: Sequence[str], transports: Sequence[str]) -> Notice | None:
    """Return who is told, by the first transport there is; None if it is nobody.

    Raises `InvalidValue` without a transport, and for what is no address.
    """
    if not to:
        return None
    if not transports:
        raise InvalidValue(
            "no mail can be sent: this app has no transport; register one with"
            " @app.bulk.transport(name), or ask for no notification",
            pointer="notify",
        )
    for one in to:
        if "@" not in one or one != one.translate(_CONTROLS):
            raise InvalidValue(
                f"{one[:100]!r} is no address; give such as ana@example.org", pointer="notify"
            )
    return Notice(transport=transports[0], to=tuple(to))


class Notices:
    """Tells people of the end of one run."""

    def __init__(
        self, database: Database, ctx: JobContext, asked: Notice | None,
        transports: Mapping[str, Transport],
    ) -> None:  # fmt: skip
        self._database = database
        self._ctx = ctx
        self._asked = asked
        self._transports = transports

    async def send(self, outcome: str, counts: Mapping[str, Any]) -> None:
        """Send to all who have not got it; what goes wrong is told with the job, and harms none.

        Recipients are noted before: after a crash in between a mail is not sent again.
        """
        asked = self._asked
        if asked is None:
            return
        transport = self._transports.get(asked.transport)
        if transport is None:
            self._complain(f"this host has no transport {asked.transport!r}")
            return
        for to in asked.to:
            recipient = to.casefold()
            if not await self._database.write(SQL.begin_delivery, self._ctx.id, recipient, False):
                continue
            try:
                mail = self._mail(to, recipient, outcome, counts)
                await callables.run(transport, mail)
            except Exception as error:  # of somebody else's code
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
        add(self._ctx, f"no notification was sent: {text}")
