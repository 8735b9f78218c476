"""What an error of the database means for the call that met it.

aborted   the transaction is known not to have happened and may be tried again at once
lost      the connection broke; what was sent last may or may not have happened
refused   known not to have happened, and the server cannot take it now (disk full, starting, …)
fault     the statement itself is wrong or its data are; trying again changes nothing
"""

from __future__ import annotations

import asyncio
from typing import Literal

import asyncpg

Meaning = Literal["aborted", "lost", "refused", "fault"]

# An ErrorResponse of these arrives instead of a commit, never after one: a backend that is told to
# end while it waits for its synchronous replica closes the connection without a word.
_ABORTED = (
    asyncpg.SerializationError,
    asyncpg.DeadlockDetectedError,
    asyncpg.ReadOnlySQLTransactionError,  # the node was demoted; the next connection finds the new one
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.IdleInTransactionSessionTimeoutError,
    asyncpg.InvalidCachedStatementError,
)
_REFUSED = (
    asyncpg.CannotConnectNowError,
    asyncpg.TooManyConnectionsError,
    asyncpg.DiskFullError,
    asyncpg.OutOfMemoryError,
    asyncpg.InsufficientResourcesError,
    asyncpg.LockNotAvailableError,
)
_LOST = (
    asyncpg.PostgresConnectionError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    ConnectionError,
    asyncio.TimeoutError,
    OSError,
)


def meaning(error: BaseException) -> Meaning:
    """Classify an error that a statement raised."""
    if isinstance(error, _ABORTED):
        return "aborted"
    if isinstance(error, _REFUSED):
        return "refused"
    if isinstance(error, asyncpg.InterfaceError) and not _is_closed(error):
        return "fault"  # asyncpg's own word for a wrong use, e.g. a bad argument type
    if isinstance(error, _LOST):
        return "lost"
    return "fault"


def _is_closed(error: asyncpg.InterfaceError) -> bool:
    text = str(error)
    return "closed" in text or "clos" in text or "connection" in text and "lost" in text


def is_demoted(error: BaseException) -> bool:
    """Whether the connection leads to a server that no longer takes writes."""
    return isinstance(error, asyncpg.ReadOnlySQLTransactionError)
