"""What actors did and how long it took: added up here, shown when asked for."""

from __future__ import annotations

from collections import Counter as Counts
from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from relevo.kernel.telemetry.metrics import Durations, HandlerRuns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from prometheus_client.core import Metric


class TurnFigures:
    """The turns of a method, and how long they waited to begin."""

    __slots__ = ("runs", "waits")

    def __init__(self) -> None:
        self.runs = HandlerRuns()
        self.waits = Durations()


class ActorFigures(Collector):
    """Turns of actors by type and method, never by key; as `Runs`."""

    def __init__(self) -> None:
        self._turns: dict[tuple[str, str], TurnFigures] = {}
        self.activations: Counts[str] = Counts()
        self.deactivations: Counts[tuple[str, str]] = Counts()
        self._lateness: dict[str, Durations] = {}
        self._gates: dict[str, Durations] = {}
        self.pending: Callable[[], Iterable[tuple[str, int, int]]] = tuple
        """Yields, while a host runs, types of actors with calls that wait and deferred answers."""

    def of(self, type_name: str, method: str) -> TurnFigures:
        """Return what counts the turns of a method, and their waits."""
        key = (type_name, method)
        found = self._turns.get(key)
        if found is None:
            found = self._turns[key] = TurnFigures()
        return found

    def late(self, type_name: str, seconds: float) -> None:
        """Count a reminder that fired so long after its time."""
        self._lateness.setdefault(type_name, Durations()).add(max(0.0, seconds))

    def gate(self, type_name: str) -> Durations:
        """Return what counts how long answers of a type waited for the commits before them."""
        return self._gates.setdefault(type_name, Durations())

    def collect(self) -> Iterator[Metric]:
        """Return what the registry shows."""
        yield from self._collect_turns()
        yield from self._collect_pending()
        activations = GaugeMetricFamily(
            "relevo_actor_activations", "Actors in memory on this host.", labels=("type",)
        )
        for name, count in self.activations.items():
            activations.add_metric((name,), count)
        ended = CounterMetricFamily(
            "relevo_actor_deactivations",
            "Actors that left memory, by reason; `failed` could not be activated.",
            labels=("type", "reason"),
        )
        for labels, count in self.deactivations.items():
            ended.add_metric(labels, count)
        late = HistogramMetricFamily(
            "relevo_actor_reminder_late_seconds",
            "Time from the occurrence of a reminder to its turn, by the database's clock.",
            labels=("type",),
        )
        for name, times in self._lateness.items():
            late.add_metric((name,), times.shown(), times.seconds)
        gates = HistogramMetricFamily(
            "relevo_actor_gate_seconds",
            "Time that the answer of a turn waited for the commits before it; answers that waited"
            " for none are not counted.",
            labels=("type",),
        )
        for name, times in self._gates.items():
            gates.add_metric((name,), times.shown(), times.seconds)
        yield from (activations, ended, late, gates)

    def _collect_pending(self) -> Iterator[Metric]:
        waiting = GaugeMetricFamily(
            "relevo_actor_waiting_calls",
            "Calls in mailboxes on this host that wait for a turn.",
            labels=("type",),
        )
        deferred = GaugeMetricFamily(
            "relevo_actor_deferred_answers",
            "Answers on this host that a later turn gives.",
            labels=("type",),
        )
        counts = {name: [0, 0] for name in self.activations}
        for name, calls, answers in self.pending():
            count = counts.setdefault(name, [0, 0])
            count[0] += calls
            count[1] += answers
        for name, (calls, answers) in counts.items():
            waiting.add_metric((name,), calls)
            deferred.add_metric((name,), answers)
        yield from (waiting, deferred)

    def _collect_turns(self) -> Iterator[Metric]:
        labels = ("type", "method")
        turns = CounterMetricFamily(
            "relevo_actor_turns",
            "Turns of actors, by method and by how they ended: `done`, `raised` or `lost`."
            " Reminders, timers and the like have their kind as the method.",
            labels=(*labels, "outcome"),
        )
        times = HistogramMetricFamily(
            "relevo_actor_turn_seconds", "Time of a turn, without its commit.", labels=labels
        )
        waits = HistogramMetricFamily(
            "relevo_actor_queue_seconds", "Time that work waited for its turn.", labels=labels
        )
        for key, one in self._turns.items():
            for outcome, count in one.runs.outcomes.items():
                turns.add_metric((*key, outcome), count)
            times.add_metric(key, one.runs.shown(), one.runs.seconds)
            waits.add_metric(key, one.waits.shown(), one.waits.seconds)
        yield from (turns, times, waits)
