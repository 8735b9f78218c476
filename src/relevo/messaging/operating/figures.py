"""Metrics of the store: messages by entity and class, and replicas of consumers.

At most `SERIES_MAX` pairs of entity and class are shown by name, those with most messages first;
the rest is added up as `others`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from relevo.kernel.telemetry.metrics import OTHERS
from relevo.kernel.telemetry.store_figures import SERIES_MAX, StoreFigures
from relevo.messaging.operating import describing
from relevo.messaging.operating.describing import MessageCounts
from relevo.messaging.operating.scaling import Desired

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from prometheus_client.core import Metric

    from relevo.kernel.postgres import Database
    from relevo.messaging.operating.scaling import Scaler

PAGE: Final = 500
STATES: Final = ("active", "locked", "deferred", "scheduled", "dead_letter")
COUNTERS: Final = {
    "sent": "Messages accepted.",
    "delivered": "Messages given to receivers and consumers.",
    "completed": "Messages completed.",
    "abandoned": "Messages given back as failed.",
    "lock_lost": "Messages whose lock expired, or whose host ended.",
    "dead_lettered": "Messages moved to dead-letter queues.",
    "expired": "Messages whose time to live was over.",
    "preempted": "Messages suspended for others.",
    "unrouted": "Messages to topics that no subscription wanted.",
    "filter_errors": "Rules that had no result for a message.",
}
_LABELS: Final = ("entity", "class")
Key = tuple[str, str]


class Standing(Struct, frozen=True):
    """The counters of all entities, and how many replicas consumers should have."""

    counts: dict[Key, MessageCounts]
    replicas: dict[str, Desired]


class MessageFigures(StoreFigures[Standing]):
    """Entities and consumers."""

    def __init__(self, database: Callable[[], Database], scaler: Callable[[], Scaler]) -> None:
        super().__init__()
        self._database = database
        self._scaler = scaler

    async def load(self) -> Standing:
        """Read the counters of all entities, and how many replicas consumers should have."""
        found: dict[Key, MessageCounts] = {}
        after = ""
        while page := await describing.figures(self._database(), after=after, limit=PAGE):
            for one in page:
                found.update(((one.path, name), counts) for name, counts in one.classes.items())
            after = page[-1].path.lower()
        return Standing(bounded(found), await self._scaler().all())

    def families(self, shown: Standing | None) -> Iterator[Metric]:
        """Return the metrics."""
        shown = shown or Standing({}, {})
        yield from _of_entities(shown.counts)
        yield from _of_consumers(shown.replicas)


def _of_entities(shown: dict[Key, MessageCounts]) -> Iterator[Metric]:
    for name, text in COUNTERS.items():
        family = CounterMetricFamily(f"relevo_messages_{name}", text, labels=_LABELS)
        for key, counts in shown.items():
            family.add_metric(key, getattr(counts, name))
        yield family
    floors = CounterMetricFamily(
        "relevo_message_floor_claims", "Claims that only the floor share let go first.",
        labels=_LABELS,
    )  # fmt: skip
    states = GaugeMetricFamily("relevo_messages", "Messages by state.", labels=(*_LABELS, "state"))
    ages = GaugeMetricFamily(
        "relevo_message_oldest_age_seconds", "Wait of the oldest claimable message.",
        labels=_LABELS,
    )  # fmt: skip
    ratios = GaugeMetricFamily(
        "relevo_message_target_ratio",
        "Share of first deliveries within the service target of the class.", labels=_LABELS,
    )  # fmt: skip
    for key, counts in shown.items():
        floors.add_metric(key, counts.floor_claims)
        ages.add_metric(key, counts.oldest_age or 0.0)
        for state in STATES:
            states.add_metric((*key, state), getattr(counts, state))
        if (ratio := counts.slo_ratio) is not None:
            ratios.add_metric(key, ratio)
    yield from (floors, states, ages, ratios)


def _of_consumers(shown: dict[str, Desired]) -> Iterator[Metric]:
    slots = GaugeMetricFamily(
        "relevo_consumers_slots", "Slots of consumers on all hosts.", labels=("consumers",)
    )
    desired = GaugeMetricFamily(
        "relevo_consumers_desired", "Replicas that consumers should have.",
        labels=("consumers",),
    )  # fmt: skip
    for consumers, one in shown.items():
        slots.add_metric((consumers,), one.slots)
        desired.add_metric((consumers,), one.value)
    yield from (slots, desired)


def bounded(found: dict[Key, MessageCounts]) -> dict[Key, MessageCounts]:
    """Return the figures of the busiest, and the sum of the others."""
    if len(found) <= SERIES_MAX:
        return found
    order = sorted(found, key=lambda key: -(found[key].active + found[key].locked))
    kept = {key: found[key] for key in order[: SERIES_MAX - 1]}
    return {**kept, (OTHERS, OTHERS): describing.total([found[key] for key in order[len(kept) :]])}
