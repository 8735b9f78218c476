"""Figures of all units for autoscalers: what is pending, and how many hosts that is for."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from relevo.errors import NotFound
from relevo.feed.operating.estimator import Estimator
from relevo.kernel.events.model import LOG_NAME
from relevo.kernel.leases.hosts import instant
from relevo.kernel.postgres import catalog

if TYPE_CHECKING:
    from relevo.kernel.postgres import Database
    from relevo.kernel.telemetry.metrics import Metrics

SQL = catalog.load("relevo.feed")
MEASURE_SECONDS: Final = 15.0
OLD_SECONDS: Final = 60.0
"""Figures that were not renewed for so long are another host's by now."""
COUNT_MAX: Final = 1_000
"""Changes that are counted per lease; beyond that it is extrapolated."""
UNITS_MAX: Final = 500


class Figures:
    """What the leading host shows of every unit."""

    def __init__(self, target_lag: int) -> None:
        self._target_lag = target_lag
        self._measured_at = -math.inf

    async def measure(self, database: Database) -> None:
        """Estimate all units anew."""
        found = []
        for row in await database.fetch(SQL.all_units, UNITS_MAX, LOG_NAME):
            leases_in, _, name = row["unit"].partition(f"/{row['container']}/")
            estimator = Estimator(database, row["container"], name, leases_in, count_max=COUNT_MAX)
            try:
                found.append((row["unit"], await estimator.total()))
            except NotFound:  # gone since
                continue
        metrics = database.metrics
        self._clear(metrics)
        for unit, total in found:
            metrics.feed_pending.labels(unit=unit).set(total.estimated_lag)
            desired = total.desired_instances(self._target_lag)
            metrics.feed_desired_hosts.labels(unit=unit).set(desired)
        self._measured_at = instant()

    def forget_old(self, metrics: Metrics) -> None:
        """Show nothing that another host has gone on measuring."""
        if instant() - self._measured_at > OLD_SECONDS:
            self._clear(metrics)

    def _clear(self, metrics: Metrics) -> None:
        metrics.feed_pending.clear()
        metrics.feed_desired_hosts.clear()
