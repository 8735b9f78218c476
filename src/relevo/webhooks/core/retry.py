"""What follows an attempt: delivered, another attempt later, or a dead letter. Pure."""

from __future__ import annotations

from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Final, Literal

from msgspec import Struct

from relevo import limits
from relevo.errors import InvalidValue

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from random import Random

MINUTE: Final = 60.0
HOUR: Final = 3_600.0
WAITS: Final = (
    5.0, 30.0, 2 * MINUTE, 10 * MINUTE, HOUR, 4 * HOUR, 8 * HOUR, 16 * HOUR, 24 * HOUR, 24 * HOUR,
)  # fmt: skip
"""Seconds between attempts: eleven attempts within a little more than three days."""
JITTER: Final = (0.8, 1.2)
_GONE: Final = 410

Verdict = Literal["delivered", "failed", "gone"]


class AttemptOutcome(Struct, frozen=True, kw_only=True):
    """How an attempt ended."""

    verdict: Verdict
    status: int | None = None
    """The status of the answer; None if there was none."""
    error: str | None = None
    retry_after: float | None = None
    """Seconds for which the receiver asks to be left alone."""


def check_waits(waits: Sequence[float]) -> tuple[float, ...]:
    """Return the waits of a schedule; raises `InvalidValue`."""
    most, longest = limits.WEBHOOK_ATTEMPTS_MAX - 1, limits.WEBHOOK_WAIT_SECONDS_MAX
    if len(waits) > most:
        raise InvalidValue(
            f"retry has {len(waits)} waits; at most {most} are taken", pointer="/retry"
        )
    for wait in waits:
        if not 1.0 <= wait <= longest:
            raise InvalidValue(
                f"retry has a wait of {wait:g} s; a wait is 1 to {longest:g} s", pointer="/retry"
            )
    return tuple(float(wait) for wait in waits)


def judged(status: int, headers: Mapping[str, str], now: datetime) -> AttemptOutcome:
    """Return the outcome of an answer: 2xx is success, 410 the wish to get nothing more.

    Redirects are failures: they are not followed.
    """
    if 200 <= status < 300:
        return AttemptOutcome(verdict="delivered", status=status)
    return AttemptOutcome(
        verdict="gone" if status == _GONE else "failed",
        status=status,
        error=f"answered with status {status}",
        retry_after=retry_after(headers.get("retry-after"), now),
    )


def retry_after(text: str | None, now: datetime) -> float | None:
    """Return the seconds that `Retry-After` asks for, at most a day; None if it says nothing.

    >>> now = datetime(2031, 5, 30, tzinfo=UTC)
    >>> retry_after("120", now), retry_after("Fri, 30 May 2031 00:01:00 GMT", now)
    (120.0, 60.0)
    >>> retry_after("soon", now), retry_after("-1", now)
    (None, None)
    """
    if text is None or len(text) > 100:
        return None
    seconds: float
    if text.strip().isascii() and text.strip().isdigit():
        seconds = float(text)
    else:
        try:
            at = parsedate_to_datetime(text)
        except (ValueError, TypeError, OverflowError):
            return None
        seconds = ((at if at.tzinfo else at.replace(tzinfo=UTC)) - now).total_seconds()
    return min(seconds, limits.WEBHOOK_WAIT_SECONDS_MAX) if seconds >= 0 else None


def next_wait(
    waits: Sequence[float], attempts: int, asked: float | None, random: Random
) -> float | None:
    """Return the seconds until the next attempt after so many failed ones; None: a dead letter.

    The receiver may ask for a longer wait than the schedule has, not for more attempts.
    """
    if attempts > len(waits):
        return None
    return max(waits[attempts - 1] * random.uniform(*JITTER), asked or 0.0)
