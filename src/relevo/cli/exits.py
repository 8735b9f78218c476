"""Exit codes: one table, which the help and the reference print."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from relevo import errors


class Exit(Struct, frozen=True):
    """An exit code, its meaning, and its errors."""

    code: int
    meaning: str
    errors: tuple[type[errors.RelevoError], ...] = ()


OK: Final = 0
UNEXPECTED: Final = 1
USAGE: Final = 2
REFUSED: Final = 4

EXITS: Final = (
    Exit(OK, "Success."),
    Exit(
        UNEXPECTED,
        "Unexpected error in Relevo or its environment; --debug shows the traceback.",
        (errors.RelevoError,),
    ),
    Exit(USAGE, "Invalid input: correct the command line or a setting.", (errors.CallerError,)),
    Exit(3, "Not found.", (errors.NotFound,)),
    Exit(
        REFUSED,
        "Refused: the current state does not allow it.",
        (errors.Conflict, errors.ConditionNotMet, errors.SchemaError),
    ),
    Exit(
        5,
        "Unauthorised: no valid key, or a key without the permission.",
        (errors.Unauthenticated, errors.Forbidden),
    ),
    Exit(
        6,
        "Unreachable or overloaded: nothing was done; try the same command again.",
        (errors.Unavailable, errors.EmbeddedServerError, errors.RateLimited),
    ),
    Exit(
        7,
        "Partial or unknown outcome: some of it may have been done; check before repeating.",
        (errors.OutcomeUnknown,),
    ),
)

_BY_ERROR: Final = {kind: each.code for each in EXITS for kind in each.errors}


def exit_code(error: BaseException) -> int:
    """Return the exit code of an error, that of its nearest class in the table."""
    codes = (_BY_ERROR[kind] for kind in type(error).__mro__ if kind in _BY_ERROR)
    return next(codes, UNEXPECTED)


def of_signal(number: int) -> int:
    """Return the exit code of a process ended by a signal, as in shells."""
    return 128 + number
