"""Metrics of the store: waiting events, dead letters and lag by webhook."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct
from prometheus_client.core import GaugeMetricFamily

from relevo.kernel.postgres import catalog
from relevo.kernel.telemetry.store_figures import StoreFigures

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from prometheus_client.core import Metric

    from relevo.kernel.postgres import Database

SQL = catalog.load(__package__)


class WebhookStanding(Struct, frozen=True, kw_only=True):
    """How a webhook stands."""

    name: str
    waiting: int
    dead: int
    lag: float | None
    """Seconds since the oldest waiting event happened; None if none waits."""


class WebhookFigures(StoreFigures[list[WebhookStanding]]):
    """All webhooks; there is a bound on their number."""

    def __init__(self, database: Callable[[], Database]) -> None:
        super().__init__()
        self._database = database

    async def load(self) -> list[WebhookStanding]:
        """Read how webhooks stand."""
        return [WebhookStanding(**dict(row)) for row in await self._database().fetch(SQL.standings)]

    def families(self, shown: Sequence[WebhookStanding] | None) -> Iterator[Metric]:
        """Return the metrics."""
        deliveries = GaugeMetricFamily(
            "relevo_webhook_events",
            "Events for a webhook that are `waiting` or `dead`.",
            labels=("webhook", "state"),
        )
        lag = GaugeMetricFamily(
            "relevo_webhook_lag_seconds",
            "Age of the oldest event that waits for a webhook.",
            labels=("webhook",),
        )
        for one in shown or ():
            deliveries.add_metric((one.name, "waiting"), one.waiting)
            deliveries.add_metric((one.name, "dead"), one.dead)
            lag.add_metric((one.name,), one.lag or 0.0)
        yield from (deliveries, lag)
