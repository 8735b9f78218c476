"""Every figure Relevo measures, in one place, so that names and labels are chosen once.

A `Metrics` owns its registry: nothing is global, so two apps in one process keep theirs apart.
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

CONTENT_TYPE = CONTENT_TYPE_LATEST
"""The media type of `Metrics.render`."""

_BUCKETS = (
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
        self.lease_lost = self._counter("lease_lost", "Leases lost instead of released.")
        self.store_commit_seconds = self._histogram(
            "store_commit_seconds", "Time of a transaction, its retries included.", "engine"
        )
        self.store_retries = self._counter("store_retries", "Attempts that had to be repeated.")
        self.clock_skew_seconds = self._gauge(
            "clock_skew_seconds", "This host's clock minus the database's."
        )
        self.group_calls = self._counter("group_calls", "Calls that rode in groups.", "group")
        self.group_statements = self._counter(
            "group_statements", "Statements that carried the groups.", "group"
        )
        self.loop_restarts = self._counter(
            "loop_restarts", "Background loops that failed and were restarted.", "loop"
        )

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(f"relevo_{name}", text, labels, registry=self.registry)

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"relevo_{name}", text, labels, registry=self.registry)

    def _histogram(self, name: str, text: str, *labels: str) -> Histogram:
        return Histogram(f"relevo_{name}", text, labels, registry=self.registry, buckets=_BUCKETS)

    def render(self) -> bytes:
        """Return all figures in the text format of Prometheus (`CONTENT_TYPE`)."""
        return generate_latest(self.registry)


def _version() -> str:
    try:
        return version("relevo")
    except PackageNotFoundError:
        return "unknown"
