"""Every figure Relevo measures, in one place, so that names and labels are chosen once.

A `Metrics` owns its registry: nothing is global, so two apps in one process keep theirs apart.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter as Counts
from importlib.metadata import PackageNotFoundError, version
from itertools import accumulate
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client.core import Metric


CONTENT_TYPE = CONTENT_TYPE_LATEST
"""The media type of `Metrics.render`."""

BUCKETS = (
    0.0005,
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
    30.0,
)
_BOUNDS = (*map(str, BUCKETS), "+Inf")

LAG_SERIES_MAX = 256
"""Leases of a host whose lag is shown one by one."""
OTHERS = "others"
"""The label under which the rest is shown."""


class BoundedSeries:
    """A gauge by unit and token that never has more than so many series.

    A unit may have ten thousand leases. Whoever comes when all places are taken is shown only as
    part of the unit's `others`, the largest value of which counts.
    """

    def __init__(self, gauge: Gauge, most: int) -> None:
        self._gauge = gauge
        self._most = most
        self._shown: set[tuple[str, str]] = set()
        self._rest: dict[tuple[str, str], float] = {}

    def set(self, unit: str, token: str, value: float) -> None:
        """Show a value."""
        key = (unit, token)
        if key in self._shown or len(self._shown) < self._most:
            self._shown.add(key)
            self._gauge.labels(unit=unit, token=token).set(value)
        else:
            self._rest[key] = value
            self._show_rest(unit)

    def drop(self, unit: str, token: str) -> None:
        """Show it no longer: the lease is another host's."""
        key = (unit, token)
        if key in self._shown:
            self._shown.discard(key)
            self._gauge.remove(unit, token)
        elif self._rest.pop(key, None) is not None:
            self._show_rest(unit)

    def _show_rest(self, unit: str) -> None:
        values = [value for (of, _), value in self._rest.items() if of == unit]
        if values:
            self._gauge.labels(unit=unit, token=OTHERS).set(max(values))
        else:
            self._gauge.remove(unit, OTHERS)


class Durations:
    """How long things took."""

    def __init__(self) -> None:
        self.buckets = [0] * (len(BUCKETS) + 1)
        """How many took up to each bound, and longer than all."""
        self.seconds = 0.0

    def add(self, seconds: float) -> None:
        """Count one."""
        self.buckets[bisect_left(BUCKETS, seconds)] += 1
        self.seconds += seconds

    def shown(self) -> list[tuple[str, float]]:
        """Return how many took up to each bound, as the library shows it."""
        return list(zip(_BOUNDS, map(float, accumulate(self.buckets)), strict=True))


class HandlerRuns(Durations):
    """How the runs of one handler ended, and how long they took."""

    def __init__(self) -> None:
        super().__init__()
        self.outcomes: Counts[str] = Counts()

    def ended(self, outcome: str, seconds: float) -> None:
        """Count a run."""
        self.outcomes[outcome] += 1
        self.add(seconds)


class Runs(Collector):
    """Runs of handlers. Counted in the event loop alone, so that it needs no lock for each run:
    a job that does nothing takes 15 µs, to count it by the library's own classes took 3 more."""

    def __init__(self) -> None:
        self._handlers: dict[tuple[str, str], HandlerRuns] = {}

    def of(self, part: str, handler: str) -> HandlerRuns:
        """Return what counts the runs of a handler."""
        return self._handlers.setdefault((part, handler), HandlerRuns())

    def collect(self) -> Iterator[Metric]:
        """Return what the registry shows."""
        runs = CounterMetricFamily(
            "relevo_handler_runs",
            "Runs of handlers of jobs, and calls of handlers of changes with the unit as their"
            " name; by how they ended: `done`, `retry`, `fail`, `suspend` …",
            labels=("part", "handler", "outcome"),
        )
        times = HistogramMetricFamily(
            "relevo_handler_run_seconds", "Time of a handler's run.", labels=("part", "handler")
        )
        for labels, one in self._handlers.items():
            for outcome, count in one.outcomes.items():
                runs.add_metric((*labels, outcome), count)
            times.add_metric(labels, one.shown(), one.seconds)
        yield runs
        yield times


class JobWaits(Collector):
    """Waits of jobs for their first start; counted as `Runs` are."""

    def __init__(self) -> None:
        self._handlers: dict[str, Durations] = {}

    def of(self, handler: str) -> Durations:
        """Return what counts the waits of a handler's jobs."""
        return self._handlers.setdefault(handler, Durations())

    def collect(self) -> Iterator[Metric]:
        """Return what the registry shows."""
        waits = HistogramMetricFamily(
            "relevo_job_wait_seconds",
            "Time from the submit of a job, or from when it was due, to its first start, by this"
            " host's clock.",
            labels=("handler",),
        )
        for handler, wait in self._handlers.items():
            waits.add_metric((handler,), wait.shown(), wait.seconds)
        yield waits


class GroupCounts:
    """The calls and statements of the groups of one name."""

    __slots__ = ("calls", "statements")

    def __init__(self) -> None:
        self.calls = 0
        self.statements = 0


class StatementFigures(Collector):
    """Commits and groups of a process; counted as `Runs` are."""

    def __init__(self) -> None:
        self.commits = Durations()
        self._groups: dict[str, GroupCounts] = {}

    def of(self, group: str) -> GroupCounts:
        """Return what counts the calls of a group."""
        return self._groups.setdefault(group, GroupCounts())

    def collect(self) -> Iterator[Metric]:
        """Return what the registry shows."""
        commits = HistogramMetricFamily(
            "relevo_store_commit_seconds", "Time of a transaction, its retries included.",
            labels=("engine",),
        )  # fmt: skip
        commits.add_metric(("postgresql",), self.commits.shown(), self.commits.seconds)
        calls = CounterMetricFamily(
            "relevo_group_calls", "Calls that rode in groups.", labels=("group",)
        )
        statements = CounterMetricFamily(
            "relevo_group_statements", "Statements that carried the groups.", labels=("group",)
        )
        for name, one in self._groups.items():
            calls.add_metric((name,), one.calls)
            statements.add_metric((name,), one.statements)
        yield from (commits, calls, statements)


class MessageTimes(Collector):
    """Waits of messages for their first delivery, and how long handlers had them; as `Runs`."""

    def __init__(self) -> None:
        self._times: dict[tuple[str, str], tuple[Durations, Durations]] = {}

    def of(self, consumers: str, priority_class: str) -> tuple[Durations, Durations]:
        """Return what counts the waits, and the times in hand, of a class at consumers."""
        key = (consumers, priority_class)
        found = self._times.get(key)
        if found is None:
            found = self._times[key] = (Durations(), Durations())
        return found

    def collect(self) -> Iterator[Metric]:
        """Return what the registry shows."""
        labels = ("consumers", "class")
        waits = HistogramMetricFamily(
            "relevo_message_wait_seconds",
            "Time from the arrival of a message to its first delivery, by this host's clock.",
            labels=labels,
        )
        holds = HistogramMetricFamily(
            "relevo_message_hold_seconds", "Time that a handler had a message.", labels=labels
        )
        for key, (wait, hold) in self._times.items():
            waits.add_metric(key, wait.shown(), wait.seconds)
            holds.add_metric(key, hold.shown(), hold.seconds)
        yield waits
        yield holds


class Metrics:
    """The figures of one app; times are seconds."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.build_info = self._gauge("build_info", "1, labelled with the version.", "version")
        self.build_info.labels(version=_version()).set(1)
        self.http_request_seconds = self._histogram(
            "http_request_seconds",
            "Time from the head of a request to its answer.",
            "operation",
            "status",
        )
        self.leases = self._gauge("leases", "Leases this host owns.", "state")
        self.lease_margin_seconds = self._gauge(
            "lease_margin_seconds", "Time until this host stops acting unless it renews its life."
        )
        self.lease_lost = self._counter("lease_lost", "Leases lost instead of released.")
        self.lease_handoffs = self._counter(
            "lease_handoffs", "Leases handed over to the host that asked for them.", "unit"
        )
        self.lease_statements = self._counter(
            "lease_statements",
            "Statements on the lease store; those that serve all units of a host have unit `all`.",
            "unit",
            "statement",
        )
        self.heartbeat_delay_seconds = self._histogram(
            "heartbeat_delay_seconds", "How much later than planned a renewal had succeeded."
        )
        self._feed_figures()
        self._run_figures()
        self._actor_figures()
        self._router_figures()
        self.statements = StatementFigures()
        self.registry.register(self.statements)
        self.store_retries = self._counter("store_retries", "Attempts that had to be repeated.")
        self.pool_wait_seconds = self._histogram(
            "pool_wait_seconds",
            "Time that calls waited for a connection of the pool, of those that had to.",
            "use",
        )
        self.clock_skew_seconds = self._gauge(
            "clock_skew_seconds", "This host's clock minus the database's."
        )
        self.webhook_deliveries = self._counter(
            "webhook_deliveries",
            "Attempts to send an event to a webhook: `delivered`, `failed`, `gone` (410), or `dead`"
            " for the last one.",
            "outcome",
        )
        self.loop_restarts = self._counter(
            "loop_restarts", "Background loops that failed and were restarted.", "loop"
        )

    def _feed_figures(self) -> None:
        self.feed_changes = self._counter(
            "feed_changes", "Changes that handlers have returned from.", "unit"
        )
        self.feed_batches = self._counter(
            "feed_batches", "Batches that handlers have returned from.", "unit"
        )
        self.feed_lag_seconds = self._gauge(
            "feed_lag_seconds",
            "Age of the oldest change that the last call of a lease was made with, 0 when there is"
            f" nothing left; `{OTHERS}` is the worst of those beyond {LAG_SERIES_MAX} leases.",
            "unit",
            "token",
        )
        self.feed_lag = BoundedSeries(self.feed_lag_seconds, LAG_SERIES_MAX)
        self.feed_pending = self._gauge(
            "feed_pending", "Changes that a unit has before it; shown by the leading host.", "unit"
        )
        self.feed_desired_hosts = self._gauge(
            "feed_desired_hosts",
            "Hosts that would have `feed_target_lag` changes each, at most one per lease with lag;"
            " shown by the leading host.",
            "unit",
        )

    def _run_figures(self) -> None:
        self.runs = Runs()
        self.registry.register(self.runs)
        self.job_waits = JobWaits()
        self.registry.register(self.job_waits)
        self.message_times = MessageTimes()
        self.registry.register(self.message_times)
        self.claims_waiting = self._gauge(
            "claims_waiting", "What this host has claimed and not begun.", "part", "lane"
        )
        self.slots_in_use = self._gauge(
            "slots_in_use", "Runs under way on this host.", "part", "lane"
        )
        self.messages_preempt_ignored = self._counter(
            "messages_preempt_ignored",
            "Handlers that were asked to suspend and did not within their grace.",
            "consumers",
        )

    def _actor_figures(self) -> None:
        self.actor_commit_seconds = self._histogram(
            "actor_commit_seconds", "Time to store a batch of turns, repeats included."
        )
        self.actor_commit_turns = self._counter(
            "actor_commit_turns", "Turns that were stored; divide by commits for the batch size."
        )
        self.actor_fence_rejections = self._counter(
            "actor_fence_rejections", "Turns that were not stored: the slot had another owner."
        )

    def _router_figures(self) -> None:
        self.router_offers = self._counter(
            "router_offers",
            "Offers, by what happened to them on this host: `issued`, `accepted`, `declined`,"
            " `expired` or `revoked`.",
            "event",
        )
        self.router_match_seconds = self._histogram(
            "router_match_seconds",
            "Time of a round of the matcher: read what has changed, decide, commit.",
        )

    def count_lease_statement(self, statement: str, unit: str = "all", count: int = 1) -> None:
        """Count statements on the lease store; most serve all units of a host at once."""
        self.lease_statements.labels(unit=unit, statement=statement).inc(count)

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(f"relevo_{name}", text, labels, registry=self.registry)

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"relevo_{name}", text, labels, registry=self.registry)

    def _histogram(self, name: str, text: str, *labels: str) -> Histogram:
        return Histogram(f"relevo_{name}", text, labels, registry=self.registry, buckets=BUCKETS)

    def render(self) -> bytes:
        """Return all figures in the text format of Prometheus (`CONTENT_TYPE`)."""
        return generate_latest(self.registry)


def _version() -> str:
    try:
        return version("relevo")
    except PackageNotFoundError:
        return "unknown"
