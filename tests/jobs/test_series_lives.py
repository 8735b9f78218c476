"""Whole lives of recurring jobs: with crashes, outages, long runs, and clocks that change."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo
from itertools import islice, pairwise
from zoneinfo import ZoneInfo

from hypothesis import assume, given
from hypothesis import strategies as st

from relevo.jobs.core.operation_types import ASYNC_REQUEST
from relevo.jobs.core.series import Occurrence, Series, due, first, following, plan
from relevo.kernel.recurrence import instants

FREQUENCIES = st.sampled_from(["MINUTELY", "HOURLY", "DAILY", "WEEKLY", "MONTHLY"])
ZONES = st.sampled_from([None, "Europe/Madrid", "America/New_York", "Australia/Lord_Howe"])
ANCHORS = st.datetimes(datetime(2025, 1, 1), datetime(2026, 12, 31)).map(
    lambda one: one.replace(microsecond=0, tzinfo=UTC)
)


@st.composite
def plans(draw: st.DrawFn) -> Series:
    text = f"FREQ={draw(FREQUENCIES)};INTERVAL={draw(st.integers(1, 40))}"
    if draw(st.booleans()):
        text += f";COUNT={draw(st.integers(1, 12))}"
    return plan(
        text + ";",
        anchor=draw(ANCHORS),
        zone=draw(ZONES),
        operation_type=ASYNC_REQUEST,
        missed=draw(st.sampled_from(["coalesce", "skip", "all"])),
        overlap=draw(st.sampled_from(["queue", "skip", "parallel"])),
    )


class Store:
    """What a database would hold of a series: its waiting row and the rows that were claimed."""

    def __init__(self, one: Series) -> None:
        self.series = one
        self.waiting: Occurrence | None = first(one)
        self.next = following(one, first(one), first(one).nominal)
        self.ready = False
        self.runs: list[Occurrence] = []
        self.unfinished = False
        self.ended = False
        self.caught_up: datetime | None = None

    def fall_due(self, now: datetime, *, crash: bool) -> None:
        """S3, in a transaction of its own; a crash leaves nothing of it."""
        if self.waiting is None or self.ready or self.waiting.nominal > now:
            return
        found = due(
            self.series, self.waiting, now=now, caught_up=self.caught_up, unfinished=self.unfinished
        )
        if crash:
            return
        self.waiting, self.next = found.occurrence, found.next
        self.ready = found.action == "run"
        if found.action == "end":
            self.waiting, self.ended = None, True

    def claim(self, now: datetime, *, crash: bool) -> None:
        """S5: the run starts and the next row is inserted, both or neither."""
        if not self.ready or self.waiting is None or crash:
            return
        if self.series.missed != "all" and self.caught_up is not None:  # it was not caught up with
            assert self.waiting.nominal > self.caught_up
        self.caught_up = now
        self.runs.append(self.waiting)
        self.waiting, self.ready, self.unfinished = self.next, False, True
        if self.waiting is not None:
            self.next = following(self.series, self.waiting, self.waiting.nominal)


STEPS = st.lists(
    st.tuples(st.floats(0, 4, allow_nan=False), st.booleans(), st.booleans(), st.booleans()),
    max_size=30,
)


@given(plans(), STEPS)
def test_a_live_series_has_one_row_that_waits_and_no_instant_runs_twice(
    one: Series, steps: list[tuple[float, bool, bool, bool]]
) -> None:
    # A17, A18: with outages of up to four periods, crashes in either transaction and long runs.
    store = Store(one)
    period = _period(one)
    now = first(one).nominal
    for jump, crash_due, crash_claim, finish in steps:
        now += jump * period
        store.fall_due(now, crash=crash_due)
        store.claim(now, crash=crash_claim)
        store.unfinished = store.unfinished and not finish
    nominal = [run.nominal for run in store.runs]
    assert all(before < after for before, after in pairwise(nominal))
    every = list(islice(instants(one.pattern, one.anchor, zone=one.zone), 200))
    assume(not nominal or nominal[-1] <= every[-1])
    assert set(nominal) <= set(every)
    if store.waiting is not None:
        assert store.waiting.nominal not in nominal
    else:
        assert one.pattern.count is not None
    if one.missed == "all" and one.overlap != "skip":
        assert nominal == every[: len(nominal)]
    if one.pattern.count is not None:
        assert [run.ordinal for run in store.runs] == [every.index(run) + 1 for run in nominal]


def _period(one: Series) -> timedelta:
    days = {"MINUTELY": 1 / 1_440, "HOURLY": 1 / 24, "DAILY": 1, "WEEKLY": 7, "MONTHLY": 31}
    return timedelta(days=days[one.pattern.frequency]) * one.pattern.interval


def _local(zone: tzinfo | None, one: datetime) -> datetime:
    return one.astimezone(zone or UTC)


def _zoned(text: str, anchor: datetime, zone: str | None) -> Series:
    return plan(text, anchor=anchor, zone=zone, operation_type=ASYNC_REQUEST)


def _chain(one: Series, length: int) -> list[datetime]:
    found: list[datetime] = []
    row: Occurrence | None = first(one)
    while row is not None and len(found) < length:
        result = due(one, row, now=row.nominal + timedelta(seconds=1))
        assert result.action == "run"
        found.append(result.occurrence.nominal)
        row = result.next
    return found


@given(ANCHORS, st.integers(1, 40), st.sampled_from(["HOURLY", "MINUTELY"]), ZONES)
def test_elapsed_patterns_are_as_far_apart_as_they_say_whatever_the_zone(
    anchor: datetime, interval: int, frequency: str, zone: str | None
) -> None:
    # A19
    one = _zoned(f"FREQ={frequency};INTERVAL={interval}", anchor, zone)
    step = interval * (3_600 if frequency == "HOURLY" else 60)
    found = _chain(one, 60)
    assert {(b - a).total_seconds() for a, b in pairwise(found)} == {step}


@given(ANCHORS, st.integers(1, 9), ZONES)
def test_daily_runs_keep_the_local_time_except_in_gaps(
    anchor: datetime, interval: int, zone: str | None
) -> None:
    # A18: without a zone nothing moves; with one, only what falls into a gap.
    one = _zoned(f"FREQ=DAILY;INTERVAL={interval}", anchor, zone)
    found = _chain(one, 120)
    assert len(set(found)) == len(found)
    start = _local(one.zone, anchor)
    for run in found:
        local = _local(one.zone, run)
        wanted = datetime.combine(local.date(), start.time(), tzinfo=one.zone or UTC)
        in_gap = wanted.astimezone(UTC).astimezone(one.zone or UTC).time() != wanted.time()
        assert local.time() == start.time() or in_gap


def test_a_daily_run_in_the_gap_of_spring() -> None:
    # A18
    anchor = datetime(2026, 3, 28, 2, 30, tzinfo=ZoneInfo("Europe/Madrid"))
    found = _chain(_zoned("FREQ=DAILY", anchor, "Europe/Madrid"), 3)
    local = [f"{_local(ZoneInfo('Europe/Madrid'), one):%d %H:%M}" for one in found]
    assert local == ["28 02:30", "29 03:30", "30 02:30"]
