"""Figures that must not grow without bound, and spans without a hard dependency."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from relevo.kernel.telemetry import tracing
from relevo.kernel.telemetry.metrics import LAG_SERIES_MAX, BoundedSeries, Metrics
from tests.support.spans import ids, is_child, linked

if TYPE_CHECKING:
    from tests.support.spans import Spans


def series(metrics: Metrics) -> dict[str, float]:
    (family,) = metrics.feed_lag_seconds.collect()
    return {sample.labels["token"]: sample.value for sample in family.samples}


def test_beyond_a_bound_only_the_worst_of_the_others_is_shown() -> None:
    metrics = Metrics()
    lag = BoundedSeries(metrics.feed_lag_seconds, 2)
    for token, value in (("a", 1.0), ("b", 2.0), ("c", 3.0), ("d", 9.0), ("a", 5.0)):
        lag.set("u", token, value)
    assert series(metrics) == {"a": 5.0, "b": 2.0, "others": 9.0}
    lag.drop("u", "d")
    assert series(metrics) == {"a": 5.0, "b": 2.0, "others": 3.0}
    lag.drop("u", "c")
    lag.drop("u", "a")
    lag.drop("u", "never seen")
    assert series(metrics) == {"b": 2.0}


def test_a_unit_with_thousands_of_leases_has_a_bounded_number_of_series() -> None:
    metrics = Metrics()
    for number in range(5_000):
        metrics.feed_lag.set("u", f"{number:04X}", float(number))
    assert len(series(metrics)) == LAG_SERIES_MAX + 1


def test_a_span_is_opened_where_a_tracer_provider_is_set(spans: Spans) -> None:
    with tracing.span("call", {"relevo.unit": "u", "relevo.changes": 3}):
        assert spans.ended == []
    assert spans.one("call").attributes == {"relevo.unit": "u", "relevo.changes": 3}


def test_spans_that_nobody_collects_are_not_opened() -> None:
    assert not tracing.is_on()
    with tracing.span("call", {}) as nothing, tracing.sending("send", "q") as neither:
        assert nothing is neither is None
        assert tracing.parent() is tracing.here() is None


@pytest.mark.parametrize(
    "text", ["", "x", f"00-{'0' * 32}-{'1' * 16}-01", f"00-{'1' * 32}-{'1' * 16}-01-more", "é" * 55]
)
def test_what_is_no_trace_parent_is_ignored(spans: Spans, text: str) -> None:
    work = tracing.TracedWork(destination="q", id="1", parents=(text,))
    with tracing.processing(work), tracing.serving("GET", [text.encode()]):
        pass
    processed = spans.one("process q")
    assert (processed.parent, processed.links) == (None, ())


def test_one_parent_is_continued_and_several_are_linked(spans: Spans) -> None:
    with spans.opened("caller"):
        parent = tracing.parent()
        assert parent is not None
    other = f"00-{'1' * 32}-{'2' * 16}-00"
    with spans.opened("around the host"):
        for parents, count, first in (((parent,), 1, True), ((parent, other), 2, True)):
            work = tracing.TracedWork(
                destination="q", id="1", count=count, parents=parents, first=first
            )
            with tracing.processing(work):
                pass
    one, two = spans.named("process q")
    caller = spans.one("caller")
    assert is_child(one, of=caller)
    assert two.parent is None
    assert linked(two) == {ids(caller), (int("1" * 32, 16), int("2" * 16, 16))}


def test_without_opentelemetry_there_is_no_span_and_no_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    monkeypatch.setitem(sys.modules, "opentelemetry.trace", None)
    tracing._trace.cache_clear()
    with tracing.span("call", {}) as nothing:
        assert nothing is None
    tracing._trace.cache_clear()
