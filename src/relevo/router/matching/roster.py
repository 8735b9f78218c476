"""The workers' side of matching: each worker as it stands, at its places in its crew."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from relevo.router.core.capacity import load_ratio
from relevo.router.matching.crews import Crew, Ring

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

    from relevo.kernel.labels import Value
    from relevo.router.matching.crews import WorkerClass
    from relevo.router.matching.ordering import Groups, Key
    from relevo.router.matching.situation import WorkerState
    from relevo.router.matching.vocabulary import Vocabulary


class RosterWorker:
    """A worker: its last reading, and the decisions since."""

    __slots__ = (
        "group",
        "homes",
        "id",
        "jobs",
        "member_of",
        "open_offers",
        "stamp",
        "state",
        "used",
    )

    def __init__(self, state: WorkerState, member_of: WorkerClass) -> None:
        self.id = state.id
        self.homes: list[tuple[Groups | Ring, Key]] = []
        self.take(state, member_of, 0)

    def take(self, state: WorkerState, member_of: WorkerClass, stamp: int) -> None:
        """Stand as the reading says."""
        self.state = state
        self.stamp = stamp
        self.member_of = member_of
        self.group = member_of.number
        self.used = state.used
        self.open_offers = state.open_offers
        self.jobs: Mapping[str, int] = state.jobs

    def change(self, channel: str, cost: int, sign: int) -> None:
        """An offer on a channel has been made to it (1), or taken back (-1)."""
        self.used += sign * cost
        self.open_offers += sign
        self.jobs = {**self.jobs, channel: self.jobs.get(channel, 0) + sign}

    def fits(self, channel: str) -> bool:
        """Whether another job of a channel may be offered to it."""
        state = self.state
        terms = state.channels.get(channel)
        if terms is None or not state.available or self.used + terms.cost > state.capacity:
            return False
        if terms.max_jobs is not None and self.jobs.get(channel, 0) >= terms.max_jobs:
            return False
        return state.max_offers is None or self.open_offers < state.max_offers

    @property
    def is_full(self) -> bool:
        """Whether not even the cheapest job fits."""
        return self.used + self.member_of.crew.least > self.state.capacity

    @property
    def rank(self) -> tuple[float, float, str]:
        """Its place among others by load, idle time and id, smaller first."""
        return load_ratio(self.used, self.state.capacity), self.state.idle_since, self.id

    def place(self) -> None:
        """Take its places among those with room."""
        state, crew = self.state, self.member_of.crew
        if not state.available or (
            state.max_offers is not None and self.open_offers >= state.max_offers
        ):
            return
        key = (*self.rank, self.group, self)
        if crew.cheapest is not None and self.used + crew.cheapest <= state.capacity:
            crew.plain.add(key)
            self.homes.append((crew.plain, key))
        for channel, groups in crew.limited.items():
            if self.fits(channel):
                groups.add(key)
                self.homes.append((groups, key))
        for channel, ring in crew.rings.items():
            if self.fits(channel):
                turn = (self.id, self.group, self)
                ring.add(turn)
                self.homes.append((ring, turn))

    def unplace(self) -> None:
        """Give up its places."""
        for home, key in self.homes:
            home.remove(key)
        self.homes.clear()

    def snapshot(self) -> WorkerState:
        """Return the worker with the decisions since it was read."""
        return replace(
            self.state, used=self.used, open_offers=self.open_offers, jobs=dict(self.jobs)
        )


class Roster:
    """All workers, by id and by ability."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.workers: dict[str, RosterWorker] = {}
        self._vocabulary = vocabulary
        self._crews: dict[Hashable, Crew] = {}
        self._by_queue: dict[str, dict[Crew, None]] = {}

    def put(self, state: WorkerState, stamp: int) -> RosterWorker | None:
        """Take in a reading; return the worker, without its places, unless nothing changed."""
        worker = self.workers.get(state.id)
        if worker is None:
            worker = self.workers[state.id] = RosterWorker(state, self._join(state))
            worker.stamp = stamp
            return worker
        before = worker.state
        alike = (
            before.capacity == state.capacity
            and before.queues == state.queues
            and before.channels == state.channels
            and same_labels(before.labels, state.labels)
        )
        if alike and _same_load(worker, state):
            worker.state, worker.stamp = state, stamp
            return None
        if worker.homes:
            worker.unplace()
        member_of = worker.member_of
        if not alike:
            self._leave(member_of)
            member_of = self._join(state)
        worker.take(state, member_of, stamp)
        return worker

    def remove(self, worker: RosterWorker) -> None:
        """Forget a worker."""
        worker.unplace()
        del self.workers[worker.id]
        self._leave(worker.member_of)

    def crews(self, queue: str, channel: str) -> list[Crew]:
        """Return the crews that serve a queue and a channel."""
        return [crew for crew in self._by_queue.get(queue, ()) if channel in crew.channels]

    def ring(self, crew: Crew, channel: str) -> Ring:
        """Return a crew's workers with room on a channel by id, kept from the first call on."""
        found = crew.rings.get(channel)
        if found is None:
            found = crew.rings[channel] = Ring()
            for worker in self.workers.values():
                # Those without places are about to be placed, and will find the ring.
                if worker.member_of.crew is crew and worker.homes and worker.fits(channel):
                    turn = (worker.id, worker.group, worker)
                    found.add(turn)
                    worker.homes.append((found, turn))
        return found

    def _join(self, state: WorkerState) -> WorkerClass:
        known = state.queues, frozenset(state.channels.items())
        crew = self._crews.get(known)
        if crew is None:
            crew = self._crews[known] = Crew(state.queues, state.channels, self._vocabulary)
            for queue in state.queues:
                self._by_queue.setdefault(queue, {})[crew] = None
        return crew.class_of(state)

    def _leave(self, member_of: WorkerClass) -> None:
        crew = member_of.crew
        crew.leave(member_of)
        if crew.classes:
            return
        del self._crews[crew.queues, frozenset(crew.channels.items())]
        for queue in crew.queues:
            del self._by_queue[queue][crew]
            if not self._by_queue[queue]:
                del self._by_queue[queue]


def same_labels(one: Mapping[str, Value], other: Mapping[str, Value]) -> bool:
    """Whether two sets of labels are equal in value and in kind: true is not 1."""
    return one is other or (
        one == other and all(isinstance(one[k], bool) == isinstance(other[k], bool) for k in one)
    )


def _same_load(worker: RosterWorker, state: WorkerState) -> bool:
    before = worker.state
    return (
        worker.used == state.used
        and worker.open_offers == state.open_offers
        and worker.jobs == state.jobs
        and before.available == state.available
        and before.idle_since == state.idle_since
        and before.max_offers == state.max_offers
    )
