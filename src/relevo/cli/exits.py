"""Exit codes: stable, few, and in one table that the help and the reference print."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from relevo import errors


class Exit(Struct, frozen=True):
    """An exit code, what it means, and the errors that end in it."""

    code: int
    meaning: str
    errors: tuple[type[errors.RelevoError], ...] = ()


OK: Final = 0
UNEXPECTED: Final = 1
USAGE: Final = 2
REFUSED: Final = 4

EXITS: Final = (
    Exit(OK, "It was done."),
    Exit(
        UNEXPECTED,
        "Unexpected: a fault of Relevo or of its surroundings; --debug shows where.",
        (errors.RelevoError,),
    ),
    Exit(USAGE, "Usage or bad input: mend the command line or a setting.", (errors.CallerError,)),
    Exit(3, "Not found.", (errors.NotFound,)),
    Exit(
        REFUSED,
        "Refused by state: what is asked for does not fit how things are now.",
        (errors.Conflict, errors.ConditionNotMet, errors.SchemaError),
    ),
    Exit(
        5,
        "Unauthorised: no valid key, or one that may not do this.",
        (errors.Unauthenticated, errors.Forbidden),
    ),
    Exit(
        6,
        "Unreachable or overloaded: nothing was done; the same command may be tried again.",
        (errors.Unavailable, errors.EmbeddedServerError, errors.RateLimited),
    ),
    Exit(
        7,
        "Partial or unknown: some of it may have been done; look before repeating.",
        (errors.OutcomeUnknown,),
    ),
)

_BY_ERROR: Final = {kind: each.code for each in EXITS for kind in each.errors}


def exit_code(error: BaseException) -> int:
    """Return the code of an error: that of the nearest class in the table."""
    codes = (_BY_ERROR[kind] for kind in type(error).__mro__ if kind in _BY_ERROR)
    return next(codes, UNEXPECTED)


def of_signal(number: int) -> int:
    """Return the code of a process that was ended by a signal, as shells have it."""
    return 128 + number
