"""What the database refuses in transactions of callers, as errors of Relevo."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from relevo.errors import EntityDisabled, NotFound, RelevoError, TooLarge

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

REFUSALS: Final[Mapping[str, type[RelevoError]]] = {
    "RV012": NotFound, "RV013": EntityDisabled, "RV015": TooLarge,
}  # fmt: skip
"""By the state that `relevo.arrive_messages` and `relevo.count_message_operation` raise."""


@contextmanager
def naming_refusals() -> Iterator[None]:
    """Raise what the database refuses by its name, whichever driver reports it."""
    try:
        yield
    except Exception as error:
        fault = getattr(error, "orig", None) or error  # SQLAlchemy wraps that of the driver
        fault = fault.__cause__ if _state(fault) is None and fault.__cause__ else fault
        refusal = REFUSALS.get(_state(fault) or "")
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
