"""Metrics of the pools and limits that are in memory on this host."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from relevo.governance.actors.limit_actor import LimitActor
from relevo.governance.actors.pool_actor import PoolActor
from relevo.governance.calls.limit_calls import LIMIT_TYPE
from relevo.governance.calls.pool_calls import POOL_TYPE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from prometheus_client.core import Metric

    from relevo.actors import Actor
    from relevo.actors.running.runtime import ActorRuntime

SERIES_MAX: Final = 256
"""Pools and limits of a host that are shown; the names of others are left out."""


class GovernanceFigures(Collector):
    """What pools and limits do, shown by the host that they are on; labels are their names."""

    def __init__(self, runtime: Callable[[], ActorRuntime | None] = lambda: None) -> None:
        self._runtime = runtime

    def collect(self) -> Iterator[Metric]:
        """Return what the registry shows."""
        yield from self._of_pools()
        yield from self._of_limits()

    def _of_pools(self) -> Iterator[Metric]:
        labels = ("pool",)
        size = GaugeMetricFamily("relevo_pool_size", "Permits that a pool has.", labels=labels)
        in_use = GaugeMetricFamily("relevo_pool_in_use", "Permits that are in use.", labels=labels)
        waiting = GaugeMetricFamily(
            "relevo_pool_waiting", "Callers that wait for a permit.", labels=labels
        )
        granted = CounterMetricFamily(
            "relevo_pool_permits", "Permits that a pool has ever granted.", labels=labels
        )
        for actor in self._active(POOL_TYPE):
            if isinstance(actor, PoolActor) and (pool := actor.pool) is not None:
                name = (str(actor.ctx.key),)
                size.add_metric(name, pool.ledger.size)
                in_use.add_metric(name, pool.ledger.in_use)
                waiting.add_metric(name, pool.waiting)
                granted.add_metric(name, pool.ledger.last_number)
        yield from (size, in_use, waiting, granted)

    def _of_limits(self) -> Iterator[Metric]:
        waiting = GaugeMetricFamily(
            "relevo_limit_waiting", "Callers that wait to be admitted.", labels=("limit",)
        )
        keys = GaugeMetricFamily(
            "relevo_limit_keys", "Keys whose spending still matters.", labels=("limit",)
        )
        asked = CounterMetricFamily(
            "relevo_limit_cost",
            "Cost that was `admitted`, or `refused` at once, since the limit came to its host.",
            labels=("limit", "outcome"),
        )
        for actor in self._active(LIMIT_TYPE):
            if isinstance(actor, LimitActor) and (buckets := actor.buckets) is not None:
                name = str(actor.ctx.key)
                waiting.add_metric((name,), actor.waiting)
                keys.add_metric((name,), len(buckets))
                asked.add_metric((name, "admitted"), actor.admitted)
                asked.add_metric((name, "refused"), actor.refused)
        yield from (waiting, keys, asked)

    def _active(self, type_name: str) -> list[Actor[object]]:
        runtime = self._runtime()
        if runtime is None:
            return []
        found = [
            one.instance
            for slot in list(runtime.slots.values())
            for one in slot.activations.values()
            if one.definition.name == type_name and one.state == "active"
        ]
        return found[:SERIES_MAX]
