"""Time to live, failed deliveries, retry delays, the duplicate window."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relevo.errors import InvalidValue
from relevo.kernel.backoff import Backoff
from relevo.messaging.core import times
from relevo.messaging.core.times import DeliveryRules, failed_delivery
from relevo.messaging.states import MESSAGE

NOW = datetime(2026, 7, 1, tzinfo=UTC)
LATER = NOW + timedelta(seconds=10)
BACKOFF = Backoff(first=2.0, factor=3.0, longest=30.0, jitter=(0.8, 1.2))


@given(st.datetimes(datetime(1970, 1, 1), datetime(9000, 1, 1), timezones=st.just(UTC)))
def test_microseconds_are_exact(instant: datetime) -> None:
    assert times.instant(times.micros(instant)) == instant


@given(st.lists(st.none() | st.floats(1, 1e9), max_size=4))
def test_the_shortest_time_to_live_counts(ttls: list[float | None]) -> None:
    found = times.expires_at(NOW, *ttls)
    given_ttls = [ttl for ttl in ttls if ttl is not None]
    assert found == (NOW + timedelta(seconds=min(given_ttls)) if given_ttls else None)


def test_a_time_to_live_beyond_the_calendar_is_none() -> None:
    assert times.expires_at(NOW, 1e300) is None
    assert times.checked_ttl(timedelta(minutes=1)) == 60
    for bad in (0.5, -1, float("nan"), timedelta(0)):
        with pytest.raises(InvalidValue, match="at least 1"):
            times.checked_ttl(bad)


@given(st.integers(1, 20))
def test_a_message_that_always_fails_is_delivered_so_often_and_then_dead(most: int) -> None:
    rules, count, deliveries, event = DeliveryRules(max_delivery_count=most), 0, 0, "abandon"
    while event == "abandon":
        deliveries += 1
        found = failed_delivery(
            "abandon",
            now=NOW,
            delivery_count=count,
            expires=None,
            visible_at=None,
            rules=rules,
        )
        count, event = found.delivery_count, found.event
    assert (deliveries, event, found.reason) == (most, "exhaust", times.EXHAUSTED)  # M4
    assert MESSAGE.next("locked", event) == "dead_lettered"


@pytest.mark.parametrize(
    ("expires", "keep", "deferred", "count", "event"),
    [
        (LATER, False, False, 0, "lose_lock"),
        (NOW, False, False, 0, "expire"),
        (NOW, True, False, 0, "expire_to_dead_letters"),
        (NOW, True, False, 9, "expire_to_dead_letters"),
        (NOW, True, True, 0, "lose_lock"),
        (NOW, True, True, 9, "exhaust"),
    ],
)
def test_expiry_comes_before_the_delivery_count(
    expires: datetime, keep: bool, deferred: bool, count: int, event: str
) -> None:
    found = failed_delivery(
        "lose_lock",
        now=NOW,
        delivery_count=count,
        expires=expires,
        visible_at=None,
        rules=DeliveryRules(dead_letter_on_expiration=keep),
        deferred=deferred,
    )
    assert found.event == event


def test_failures_in_a_dead_letter_queue_count_nothing() -> None:
    found = failed_delivery(
        "abandon",
        now=NOW,
        delivery_count=10,
        expires=NOW,
        visible_at=LATER,
        rules=DeliveryRules(in_dead_letters=True),
    )
    assert (found.event, found.delivery_count, found.visible_at) == ("abandon", 10, LATER)


@given(st.integers(1, 100), st.integers())
def test_the_back_off_grows_with_the_deliveries_and_varies_by_a_fifth(
    count: int, seed: int
) -> None:
    at = times.retry_at(NOW, count, backoff=BACKOFF, random=Random(seed))
    usual = min(30.0, 2.0 * 3.0 ** (count - 1))
    assert at is not None
    assert 0.8 * usual - 1e-6 <= (at - NOW).total_seconds() <= 1.2 * usual + 1e-6


def test_a_delay_or_an_instant_that_is_said_counts_instead() -> None:
    random = Random(1)
    assert times.retry_at(NOW, 1, delay=10, backoff=BACKOFF, random=random) == LATER
    assert times.retry_at(NOW, 1, until=LATER, backoff=BACKOFF, random=random) == LATER
    assert times.retry_at(NOW, 1, delay=0, backoff=BACKOFF, random=random) is None
    assert times.retry_at(NOW, 1, random=random) is None
    for bad in (-1.0, 1e300, float("nan")):
        with pytest.raises(InvalidValue, match="delay is"):
            times.retry_at(NOW, 1, delay=bad, random=random)
    with pytest.raises(InvalidValue, match="not both"):
        times.retry_at(NOW, 1, delay=1, until=LATER, random=random)


def test_an_id_is_remembered_for_the_window_from_its_first_acceptance() -> None:
    assert not times.is_duplicate(None, NOW, 20)
    assert times.is_duplicate(NOW, NOW + timedelta(seconds=19.9), 20)
    assert not times.is_duplicate(NOW, NOW + timedelta(seconds=20), 20)
