"""What errors of the driver mean; those that a server can be made to raise are in test_database."""

from __future__ import annotations

import ssl

import asyncpg
import pytest

from relevo.errors import LeaseLost, OutcomeUnknown
from relevo.kernel.postgres.failures import Unanswered, is_demoted, is_own, meaning


def last_word(word: BaseException) -> asyncpg.ConnectionDoesNotExistError:
    """A connection that the server closed after it had said something."""
    error = asyncpg.ConnectionDoesNotExistError("connection was closed in the middle of operation")
    error.__cause__ = word
    return error


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (asyncpg.SerializationError("x"), "aborted"),
        (asyncpg.DeadlockDetectedError("x"), "aborted"),
        (asyncpg.AdminShutdownError("x"), "aborted"),
        (asyncpg.IdleSessionTimeoutError("x"), "aborted"),
        (asyncpg.InterfaceError("connection is closed"), "aborted"),
        (asyncpg.InterfaceError("cannot perform operation: connection is closed"), "aborted"),
        (asyncpg.InterfaceError("… connection has been released back to the pool"), "aborted"),
        (last_word(asyncpg.AdminShutdownError("x")), "aborted"),
        (last_word(asyncpg.IdleInTransactionSessionTimeoutError("x")), "aborted"),
        (asyncpg.TooManyConnectionsError("x"), "refused"),
        (asyncpg.DiskFullError("x"), "refused"),
        (asyncpg.CannotConnectNowError("x"), "refused"),
        (asyncpg.CrashShutdownError("x"), "lost"),
        (asyncpg.ConnectionDoesNotExistError("x"), "lost"),
        (last_word(asyncpg.CrashShutdownError("x")), "lost"),
        (last_word(ConnectionResetError("x")), "lost"),
        (asyncpg.ProtocolViolationError("server conn crashed?"), "lost"),
        (asyncpg.InternalClientError("x"), "lost"),
        (Unanswered("x"), "lost"),
        (ConnectionResetError("x"), "lost"),
        (ssl.SSLError("x"), "lost"),
        (asyncpg.UniqueViolationError("x"), "fault"),
        (asyncpg.QueryCanceledError("x"), "fault"),
        (asyncpg.InFailedSQLTransactionError("x"), "fault"),
        (asyncpg.InterfaceError("the server expects 1 argument, 2 were passed"), "fault"),
        (asyncpg.DataError("invalid input: 'connection is closed'"), "fault"),
        (asyncpg.InterfaceError("another operation is in progress"), "fault"),
        (LookupError("x"), "fault"),
    ],
    ids=repr,
)
def test_each_error_has_its_meaning(error: Exception, expected: str) -> None:
    assert meaning(error) == expected


def test_only_words_of_the_database_are_not_the_bodys_own() -> None:
    of_the_database = [asyncpg.PostgresError("x"), asyncpg.InterfaceError("x"), Unanswered("x")]
    own = [TimeoutError("x"), OSError("x"), LeaseLost("x"), OutcomeUnknown("x")]
    assert [is_own(error) for error in of_the_database] == [False] * 3
    assert [is_own(error) for error in own] == [True] * 4


def test_a_read_only_server_is_known_by_its_refusal() -> None:
    assert is_demoted(asyncpg.ReadOnlySQLTransactionError("x"))
    assert not is_demoted(asyncpg.SerializationError("x"))
