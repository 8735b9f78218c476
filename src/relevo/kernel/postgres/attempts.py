"""How an attempt at a call ended, whether to repeat it, and the error for its caller."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Final, Literal

import asyncpg

from relevo.errors import (
    Closed,
    ConnectionsBusy,
    DatabaseUnavailable,
    EmbeddedServerError,
    OutcomeUnknown,
)
from relevo.kernel.postgres.failures import is_own, meaning

if TYPE_CHECKING:
    from relevo.kernel.postgres.pool.session import Block, PoolConnection

Ending = Literal["aborted", "refused", "unknown", "closed", "fault"]
"""How an attempt failed: as `failures.meaning`, with lost connections resolved."""

CONNECT_ERRORS: Final = (
    OSError,
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    EmbeddedServerError,
)
"""Errors of opening a connection."""


class NotConnected(Exception):
    """No connection could be had, so nothing was sent."""

    def __init__(self, reason: BaseException) -> None:
        super().__init__(_text(reason))


class Attempt:
    """How far an attempt got."""

    committing = False
    """From here on its fate may be unknown."""
    own = False
    """The body of its transaction failed by itself."""


class OpenTransaction:
    """A transaction for a block; notes when its commit is sent, and whose error ends it.

    The error of the body is raised even if the connection is dead by then.
    """

    __slots__ = ("_attempt", "_connection", "_transaction")

    def __init__(
        self,
        connection: PoolConnection,
        attempt: Attempt,
        *,
        theirs: bool = False,
        opening: str = "",
    ) -> None:
        self._connection, self._attempt = connection, attempt
        self._transaction = connection.transaction(isolation="read_committed")
        self._transaction.theirs, self._transaction.opening = theirs, opening

    async def __aenter__(self) -> None:
        try:
            await self._transaction.start()
        except asyncio.CancelledError:
            cut(self._connection)  # it is unknown whether it has begun
            raise

    async def __aexit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if error is None:
            self._attempt.committing = True
            await self._transaction.commit()
            return
        self._attempt.own = is_own(error)
        await _roll_back(self._connection, self._transaction)


def cut(connection: asyncpg.Connection) -> None:
    """End a connection at once, if it has not ended by itself."""
    with contextlib.suppress(asyncpg.InterfaceError):  # it is the pool's again
        connection.terminate()


async def _roll_back(connection: PoolConnection, transaction: Block) -> None:
    """Roll back also when canceled; if the connection is gone, the server does it by itself."""
    ended = asyncio.ensure_future(transaction.rollback())
    # If this is canceled again, its error is not reported.
    ended.add_done_callback(lambda task: task.cancelled() or task.exception())
    try:
        await asyncio.shield(ended)
    except asyncio.CancelledError:
        cut(connection)
        raise
    except Exception:
        cut(connection)  # a failed rollback must not leave the transaction open


def ending_of(error: Exception, attempt: Attempt) -> Ending:
    """Classify the error of an attempt."""
    if attempt.own:
        return "fault"
    if isinstance(error, NotConnected):
        return "aborted"
    if isinstance(error, Closed | ConnectionsBusy):
        return "closed"
    found = meaning(error)
    if found == "lost":
        return "unknown" if attempt.committing else "aborted"
    return found


def may_repeat(error: Exception, ending: Ending, *, repeatable: bool) -> bool:
    """Whether another attempt does no harm, and may help; `repeatable` calls may happen twice."""
    match ending:
        case "aborted":
            return True
        case "refused":
            return not isinstance(error, asyncpg.DiskFullError)
        case "unknown":
            return repeatable
        case _:
            return False


def verdict(error: Exception, ending: Ending, where: str, *, unknown: bool) -> Exception:
    """Return the error for the caller; `unknown` if any attempt may have happened."""
    if ending == "fault":
        return error
    if unknown or ending == "unknown":
        return OutcomeUnknown(
            f"the connection to the database at {where} broke during a commit; it may or may not"
            f" have happened ({_text(error)}); look, or repeat it if that does no harm"
        )
    if ending == "closed":
        return error
    if isinstance(error, NotConnected):
        return DatabaseUnavailable(f"cannot connect to the database at {where}: {error}")
    return DatabaseUnavailable(f"the database at {where} did not take the call: {_text(error)}")


def _text(error: BaseException) -> str:
    return str(error) or type(error).__name__
