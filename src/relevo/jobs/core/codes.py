"""The codes of async-service as `errorcode` stores them: signed 32-bit, with the text of each.

    shown(CANNOT_PAUSE)  # "0x80044167"
    TEXTS[CANNOT_PAUSE]  # "A job that has not started cannot be paused."

Clients compare codes, not texts: the numbers are those of Dataverse and never change, the texts
are for people and may.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from relevo.errors import InvalidValue

if TYPE_CHECKING:
    from collections.abc import Mapping

_texts: Final[dict[int, str]] = {}
TEXTS: Final[Mapping[int, str]] = MappingProxyType(_texts)
"""The meaning of every code of this part, in a sentence."""


def stored(unsigned: int) -> int:
    """Return a code written as `0x8004…` as the signed number that `errorcode` stores."""
    if not 0 <= unsigned < 2**32:
        raise InvalidValue(f"a code has 32 bits, not {unsigned:#x}; write it as 0x8004…")
    return unsigned - 2**32 if unsigned >= 2**31 else unsigned


def shown(code: int) -> str:
    """Return a stored code as bodies of errors show it, `0x80044167`; unsigned ones are kept."""
    if not -(2**31) <= code < 2**32:
        raise InvalidValue(f"a code has 32 bits, not {code}; give one of relevo.jobs.core.codes")
    return f"0x{code & 0xFFFFFFFF:08X}"


def _code(unsigned: int, text: str) -> int:
    code = stored(unsigned)
    if code in TEXTS:
        raise InvalidValue(f"{shown(code)} has two names; use the one it has")
    _texts[code] = text
    return code


# Refused commands.
CANNOT_CHANGE: Final = _code(0x80044162, "The job is in a state that does not allow this change.")
STATE_CHANGED: Final = _code(0x80044163, "The job was changed by another process meanwhile.")
CANNOT_CANCEL: Final = _code(0x80044165, "A completed job cannot be canceled.")
CANNOT_RESUME: Final = _code(0x80044166, "Only a suspended or pausing job can be resumed.")
CANNOT_PAUSE: Final = _code(0x80044167, "A job that has not started cannot be paused.")
NOT_RECURRING: Final = _code(0x80044168, "A job that does not recur has no pattern to change.")
CANNOT_RECUR: Final = _code(0x80044169, "Jobs of this type cannot recur.")
CANNOT_DELETE: Final = _code(0x8004416A, "Only a completed job can be deleted.")
PLATFORM_CANCEL: Final = _code(0x80044F00, "A job of the platform cannot be canceled.")
PLATFORM_PAUSE: Final = _code(
    0x80044F01, "A job of the platform cannot be paused, resumed or retried."
)
PLATFORM_DELETE: Final = _code(
    0x80044F02, "A job of the platform can be deleted only when it is completed."
)

# How a run ends.
LOOP_DETECTED: Final = _code(
    0x80044182, "The operation would be too deep in a chain of causes; it may be an endless loop."
)
HANDLER_MISSING: Final = _code(
    0x80044303, "No host has a handler that knows the job and its arguments."
)
REMOTE_FAILED: Final = _code(0x80044306, "Another system could not be reached or refused.")
RECORD_MISSING: Final = _code(0x80045031, "The record of the workflow does not exist.")
BUSY: Final = _code(0x8004A001, "The service is busy; try again later.")
UNEXPECTED: Final = _code(0x80040216, "Something failed inside the service.")
HANDLER_FAILED: Final = _code(0x80040224, "The handler ended with an error, or its host was lost.")
HANDLER_REFUSED: Final = _code(0x80040265, "The handler refused to go on.")
TIME_LIMIT: Final = _code(0x80081111, "The job ran longer than its lane allows.")
BRAKED: Final = _code(0x80060917, "The extension failed too often; its jobs wait.")

# Recurrence (7).
BAD_PATTERN: Final = _code(0x8004E100, "The recurrence pattern is not valid or has no instant.")
TOO_FREQUENT: Final = _code(0x8004D2A0, "Jobs of this type recur daily at most.")
BAD_INTERVAL: Final = _code(0x8004D2A1, "The interval of a recurrence is 1 to 365.")

# The web API (10, 11).
BAD_REQUEST: Final = _code(0x80040203, "The request is malformed or asks for something impossible.")
NOT_FOUND: Final = _code(0x80040217, "There is no such row.")
FORBIDDEN: Final = _code(0x80040220, "The caller lacks the right to do this.")
PROTECTED_COLUMN: Final = _code(0x80048405, "The column cannot be changed by a client.")
STALE_ETAG: Final = _code(0x80060882, "The row is not the version that If-Match names.")
THROTTLED: Final = _code(0x80072322, "The caller sent more requests than it may; wait.")
BAD_XML: Final = _code(0x80040303, "The document is not well-formed or declares a type.")
WRONG_TABLE: Final = _code(0x80041102, "The table of the query is not the requested one.")
UNKNOWN_COLUMN: Final = _code(0x80041103, "The table has no such column.")
BAD_OPERATOR: Final = _code(0x80041106, "The operator is not known or not served.")
UNKNOWN_ELEMENT: Final = _code(0x8004111C, "The query has an element that is not known.")
BAD_COOKIE: Final = _code(0x80041129, "The paging cookie belongs to another order.")
BAD_AGGREGATE_ORDER: Final = _code(0x80041134, "An aggregate query is ordered by an alias.")
TOO_MANY_PAGES: Final = _code(0x8004430A, "Pages that far need a paging cookie.")
TOO_MANY_CONDITIONS: Final = _code(0x8004430C, "The query has too many conditions.")
TOO_MANY_LINKS: Final = _code(0x8004430D, "The query has too many linked tables.")
TOO_MANY_ROWS: Final = _code(0x8004E023, "The aggregate would read too many rows; filter more.")
