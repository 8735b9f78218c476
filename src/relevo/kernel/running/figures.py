"""Metrics of a part's runs on this host."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from relevo.kernel.running.lanes import HostLane
    from relevo.kernel.telemetry.metrics import Metrics


class RunFigures:
    """Counts runs, and shows the claims of lanes while it is open."""

    def __init__(self, metrics: Metrics, part: str, lanes: Mapping[str, HostLane[Any]]) -> None:
        self._metrics = metrics
        self._part = part
        self._lanes = lanes
        self.runs = {
            handler: metrics.runs.of(part, handler)
            for lane in lanes.values() for handler in lane.handlers
        }  # fmt: skip
        """The counters of each handler."""
        for name, lane in lanes.items():
            metrics.claims_waiting.labels(part=part, lane=name).set_function(lane.waiting.__len__)
            metrics.slots_in_use.labels(part=part, lane=name).set_function(lane.count_running)

    def close(self) -> None:
        """Show nothing more of lanes that are not served."""
        for name in self._lanes:
            self._metrics.claims_waiting.remove(self._part, name)
            self._metrics.slots_in_use.remove(self._part, name)
