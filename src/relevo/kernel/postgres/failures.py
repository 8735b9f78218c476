"""The meaning of a database error for its call.

aborted   the transaction is known not to have happened and may be tried again at once
lost      the connection broke; the last statement may or may not have happened
refused   known not to have happened, and the server cannot take it now (disk full, starting, …)
fault     the statement itself is wrong or its data are; trying again changes nothing
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal

import asyncpg

from relevo.kernel.postgres import catalog

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from relevo.errors import RelevoError

Meaning = Literal["aborted", "lost", "refused", "fault"]

# An ErrorResponse of these arrives instead of a commit, never after one: a backend that is told to
# end while it waits for its synchronous replica closes the connection without a word.
_ABORTED = (
    asyncpg.SerializationError,
    asyncpg.DeadlockDetectedError,
    asyncpg.ReadOnlySQLTransactionError,  # demoted; the next connection finds the new primary
    asyncpg.AdminShutdownError,
    asyncpg.IdleSessionTimeoutError,
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
    asyncpg.CrashShutdownError,  # it ends a backend anywhere, also just past its commit
    asyncpg.InternalClientError,
    OSError,  # and so TimeoutError
)


class Unanswered(TimeoutError):
    """A statement was not answered in its time."""


_DRIVER = (
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    Unanswered,
)


def meaning(error: BaseException) -> Meaning:
    """Classify an error that a statement raised."""
    if isinstance(error, _ABORTED):
        return "aborted"
    if isinstance(error, _REFUSED):
        return "refused"
    if isinstance(error, asyncpg.InterfaceError):
        # The driver says that the connection is closed before it sends anything. Its other words
        # are for a wrong use, e.g. a bad argument, whose text quotes the value.
        misused = isinstance(error, (asyncpg.DataError, ValueError))
        closed = not misused and _says_closed(str(error))
        return "aborted" if closed else "fault"
    if isinstance(error, _LOST):
        last_word = error.__cause__  # what the server said before it closed the connection
        return "aborted" if isinstance(last_word, _ABORTED) else "lost"
    return "fault"


def is_own(error: BaseException) -> bool:
    """Whether a body inside a transaction raised this by itself, not because of the database."""
    return not isinstance(error, _DRIVER)


def explain(error: asyncpg.PostgresError, sql: str, version: str) -> None:
    """Note with an error of the server which statement of Relevo's met it, and on which server."""
    if (name := catalog.name_of(sql)) is not None and not hasattr(error, "__notes__"):
        error.add_note(f"statement {name} of Relevo, on PostgreSQL {version}")


def unexpected(error: asyncpg.PostgresError) -> str:
    """Return the text for an unexpected error: what happened, where, and what to do."""
    where = "; ".join(getattr(error, "__notes__", ())) or "statement of the program"
    return (
        f"PostgreSQL refused a statement: {error} (SQLSTATE {error.sqlstate}; {where}). Relevo does"
        " not know this error. `relevo doctor` checks the server, its settings and the role's"
        " rights; if it finds nothing, report this message"
    )


def is_demoted(error: BaseException) -> bool:
    """Whether the connection leads to a server that no longer takes writes."""
    return isinstance(error, asyncpg.ReadOnlySQLTransactionError)


def _says_closed(text: str) -> bool:
    return "connection is closed" in text or "released back to the pool" in text


@contextmanager
def naming_refusals(refusals: Mapping[str, type[RelevoError]]) -> Iterator[None]:
    """Raise what Relevo's own functions refuse, by their state, whichever driver reports it."""
    try:
        yield
    except Exception as error:
        fault = getattr(error, "orig", None) or error  # SQLAlchemy wraps that of the driver
        fault = fault.__cause__ if _state(fault) is None and fault.__cause__ else fault
        refusal = refusals.get(_state(fault) or "")
        if refusal is None:
            raise
        raise refusal(_text(fault)) from error


def _state(fault: BaseException) -> str | None:
    state: str | None = getattr(fault, "sqlstate", None) or getattr(fault, "pgcode", None)
    return state


def _text(fault: BaseException) -> str:
    """The message and the hint, where the driver tells them apart."""
    details = getattr(fault, "diag", fault)  # of psycopg
    message = getattr(details, "message_primary", None) or getattr(details, "message", str(fault))
    hint = getattr(details, "message_hint", None) or getattr(details, "hint", None)
    return f"{message}; {hint}" if hint else str(message)
