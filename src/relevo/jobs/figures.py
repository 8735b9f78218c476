"""Metrics of the store: jobs by lane."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client.core import GaugeMetricFamily

from relevo.kernel.telemetry.store_figures import StoreFigures

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from prometheus_client.core import Metric

    from relevo.jobs.querying.views import LaneStanding, Views


class JobFigures(StoreFigures[list["LaneStanding"]]):
    """Lanes, of which there are as many as the hosts' programs declare."""

    def __init__(self, views: Callable[[], Views]) -> None:
        super().__init__()
        self._views = views

    async def load(self) -> list[LaneStanding]:
        """Read how the lanes stand."""
        return await self._views().lanes()

    def families(self, shown: Sequence[LaneStanding] | None) -> Iterator[Metric]:
        """Return the metrics."""
        jobs = GaugeMetricFamily(
            "relevo_jobs", "Jobs that have not ended, by state.", labels=("lane", "state")
        )
        oldest = GaugeMetricFamily(
            "relevo_oldest_ready_seconds", "Age of the oldest job that is ready and not running.",
            labels=("lane",),
        )  # fmt: skip
        for lane in shown or ():
            for state in ("ready", "running", "suspended"):
                jobs.add_metric((lane.name, state), getattr(lane, state))
            oldest.add_metric((lane.name,), lane.oldest_seconds or 0.0)
        yield from (jobs, oldest)
