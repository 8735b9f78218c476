"""What handlers and actors did and how long it took: added up here, shown when asked for."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter as Counts
from itertools import accumulate
from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client.core import Metric

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

    def collect(self) -> Iterator[Metric]:
        """Return what the registry shows."""
        yield from self._collect_turns()
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
        yield from (activations, ended, late)

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
