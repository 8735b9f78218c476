"""Times of messages: arrival in microseconds, time to live, retry delays, the duplicate window."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final, Literal

from msgspec import Struct

from relevo import limits
from relevo.errors import InvalidValue
from relevo.kernel import checking

if TYPE_CHECKING:
    from random import Random

    from relevo.kernel.backoff import Backoff

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_LAST: Final = datetime(limits.YEAR_MAX, 12, 31, tzinfo=UTC)

EXPIRED: Final = "TTLExpiredException"
EXPIRED_TEXT: Final = "The message expired and was dead lettered."
EXHAUSTED: Final = "MaxDeliveryCountExceeded"


def micros(instant: datetime) -> int:
    """Return an instant in microseconds since 1970, exactly."""
    return (instant - _EPOCH) // _MICROSECOND


def instant(microseconds: int) -> datetime:
    """Return the instant of so many microseconds since 1970."""
    return _EPOCH + microseconds * _MICROSECOND


def checked_ttl(value: float | timedelta | None, pointer: str = "ttl") -> float | None:
    """Return a time to live in seconds, None for no limit."""
    if value is None:
        return None
    found = checking.seconds(value)
    if not found >= limits.MESSAGE_TTL_SECONDS_MIN:
        raise InvalidValue(
            f"{pointer} is {found:g} seconds; it must be at least"
            f" {limits.MESSAGE_TTL_SECONDS_MIN:g}, or None for no limit",
            pointer=pointer,
        )
    return found


def expires_at(arrived: datetime, *ttls: float | None) -> datetime | None:
    """Return when a message expires: the shortest of its own time to live and the entities'."""
    given = [ttl for ttl in ttls if ttl is not None]
    if not given or min(given) >= (_LAST - arrived).total_seconds():
        return None
    return arrived + timedelta(seconds=min(given))


def is_duplicate(accepted: datetime | None, now: datetime, window: float) -> bool:
    """Return whether an id that was accepted at that time is still remembered."""
    return accepted is not None and now < accepted + timedelta(seconds=window)


class FailedDelivery(Struct, frozen=True):
    """What becomes of a message whose delivery failed; `event` is one of the transition table."""

    event: Literal["abandon", "lose_lock", "exhaust", "expire", "expire_to_dead_letters"]
    delivery_count: int
    visible_at: datetime | None = None
    reason: str | None = None
    description: str | None = None


class DeliveryRules(Struct, frozen=True, kw_only=True):
    """What an entity says about failed deliveries."""

    max_delivery_count: int = 10
    dead_letter_on_expiration: bool = False
    in_dead_letters: bool = False
    """In a dead-letter queue nothing expires, and failed deliveries do not count."""


def failed_delivery(
    event: Literal["abandon", "lose_lock"],
    *,
    now: datetime,
    delivery_count: int,
    expires: datetime | None,
    visible_at: datetime | None,
    rules: DeliveryRules,
    deferred: bool = False,
) -> FailedDelivery:
    """Return what becomes of a message that was abandoned, or whose lock was lost.

    It expires if its time is over, unless it was `deferred`; it is dead-lettered if it was
    delivered as often as it may be; else it goes back to its place, from `visible_at` on.
    """
    if rules.in_dead_letters:
        return FailedDelivery(event, delivery_count, visible_at)
    count = delivery_count + 1
    if expires is not None and expires <= now and not deferred:
        if rules.dead_letter_on_expiration:
            return FailedDelivery("expire_to_dead_letters", count, None, EXPIRED, EXPIRED_TEXT)
        return FailedDelivery("expire", count)
    if count >= rules.max_delivery_count:
        text = f"The message was delivered {count} times, which is as often as it may be."
        return FailedDelivery("exhaust", count, None, EXHAUSTED, text)
    return FailedDelivery(event, count, visible_at)


def retry_at(
    now: datetime,
    delivery_count: int,
    *,
    delay: float | timedelta | None = None,
    until: datetime | None = None,
    backoff: Backoff | None = None,
    random: Random,
) -> datetime | None:
    """Return from when on an abandoned message is visible; None is at once.

    `delivery_count` is that after the failure. The receiver says a delay or an instant; else
    the entity's back-off decides.
    """
    if delay is not None and until is not None:
        raise InvalidValue("abandon takes delay= or until=, not both", pointer="delay")
    if until is not None:
        return checking.aware(until, "until")
    if delay is None:
        found = backoff.delay(delivery_count - 1, random) if backoff else 0.0
    else:
        found = checking.seconds(delay)
    if not 0 <= found <= (_LAST - now).total_seconds():
        raise InvalidValue(
            f"delay is {found:g} seconds; it must be at least 0 and end before the year"
            f" {limits.YEAR_MAX}",
            pointer="delay",
        )
    return now + timedelta(seconds=found) if found else None
