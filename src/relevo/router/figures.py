"""Metrics of the store: router jobs and workers by queue."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from prometheus_client.core import GaugeMetricFamily

from relevo.kernel.telemetry.store_figures import SERIES_MAX, StoreFigures
from relevo.router import overview

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from prometheus_client.core import Metric

    from relevo.kernel.postgres import Database
    from relevo.router.overview import QueueStanding

WORKERS: Final = ("active", "draining", "inactive")


class RouterFigures(StoreFigures[list["QueueStanding"]]):
    """The first queues by id."""

    def __init__(self, database: Callable[[], Database]) -> None:
        super().__init__()
        self._database = database

    async def load(self) -> list[QueueStanding]:
        """Read how the queues stand."""
        return await overview.queues(self._database(), limit=SERIES_MAX)

    def families(self, shown: Sequence[QueueStanding] | None) -> Iterator[Metric]:
        """Return the metrics."""
        jobs = GaugeMetricFamily(
            "relevo_router_jobs",
            "Router jobs: `waiting` for a worker, `offered` to one, or `assigned`; those with an"
            " open offer wait, too.",
            labels=("queue", "state"),
        )
        waits = GaugeMetricFamily(
            "relevo_router_longest_wait_seconds", "Wait of the router job that waits longest.",
            labels=("queue",),
        )  # fmt: skip
        workers = GaugeMetricFamily(
            "relevo_router_workers",
            "Workers that serve a queue: `active`, `draining` or `inactive`.",
            labels=("queue", "state"),
        )
        for queue in shown or ():
            key = queue.queue_id
            jobs.add_metric((key, "waiting"), queue.waiting)
            jobs.add_metric((key, "offered"), queue.offers)
            jobs.add_metric((key, "assigned"), queue.assigned)
            waits.add_metric((key,), queue.longest_wait_seconds or 0.0)
            for state in WORKERS:
                workers.add_metric((key, state), getattr(queue, f"workers_{state}"))
        yield from (jobs, waits, workers)
