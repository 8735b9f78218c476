"""Workers by their abilities, and which of them could take another job, in order.

A *crew* are the workers that serve the same queues and channels on the same terms; a *class* those
of a crew with the same capacity and the same labels but for `Id`. What a class can do is worked out
once for all its workers. Those with room stand in their crew's `Groups`, a group per class, by load
and idle time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from relevo.kernel.labels import Value, holds, identity
from relevo.router.matching.ordering import Chosen, Groups, Ordered, choose
from relevo.router.matching.vocabulary import anchor

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

    from relevo.router.core.capacity import ChannelTerms
    from relevo.router.matching.ordering import Key
    from relevo.router.matching.situation import WorkerState
    from relevo.router.matching.vocabulary import Anchor, SelectorShape, Vocabulary


class WorkerClass:
    """Workers that no selector tells apart, unless it names one by `Id`."""

    __slots__ = (
        "_epoch",
        "_held",
        "_selectors",
        "_shapes",
        "_wanted",
        "anchors",
        "capacity",
        "crew",
        "known",
        "labels",
        "members",
        "number",
    )

    def __init__(
        self, crew: Crew, number: int, known: Hashable, capacity: int, labels: Mapping[str, Value]
    ) -> None:
        self.crew = crew
        self.number = number
        self.known = known
        self.capacity = capacity
        self.labels = labels
        self.anchors: frozenset[Anchor | None] = frozenset(
            [None, *(anchor(key, value) for key, value in labels.items())]
        )
        """Under which labels jobs may wait for these workers."""
        self.members = 0
        self._epoch = -1
        self._held, self._selectors = 0, 0
        self._wanted, self._shapes = choose(0), 0

    def holds(self, vocabulary: Vocabulary) -> int:
        """Return the selectors that these labels meet, as bits."""
        if self._epoch != vocabulary.epoch:
            self._forget(vocabulary.epoch)
        selectors = vocabulary.selectors
        for number in range(self._selectors, len(selectors)):
            one = selectors[number]
            if holds(one.label_operator, self.labels.get(one.key), one.value):
                self._held |= 1 << number
        self._selectors = len(selectors)
        return self._held

    def meets(self, vocabulary: Vocabulary) -> Chosen:
        """Return the shapes that these labels meet."""
        shapes = vocabulary.shapes
        if self._epoch == vocabulary.epoch and self._shapes == len(shapes):
            return self._wanted
        held = self.holds(vocabulary)
        wanted = self._wanted.bits
        if len(shapes) - self._shapes < len(vocabulary.selectors):
            for shape in shapes[self._shapes :]:
                if shape.mask & held == shape.mask:
                    wanted |= 1 << shape.number
        else:
            unmet = 0
            for number, asked_by in enumerate(vocabulary.asked_by):
                if not held >> number & 1:
                    unmet |= asked_by
            wanted = vocabulary.every & ~unmet
        self._shapes = len(shapes)
        self._wanted = choose(wanted)
        return self._wanted

    def _forget(self, epoch: int) -> None:
        self._epoch = epoch
        self._held, self._selectors = 0, 0
        self._wanted, self._shapes = choose(0), 0


class Ring:
    """Workers that have room on a channel by id, for the round robin."""

    __slots__ = ("everyone", "groups")

    def __init__(self) -> None:
        self.groups = Groups()
        self.everyone = Ordered()

    def add(self, key: Key) -> None:
        """Let a worker take its turn."""
        self.groups.add(key)
        self.everyone.add(key)

    def remove(self, key: Key) -> None:
        """Take a worker out."""
        self.groups.remove(key)
        self.everyone.remove(key)


class Crew:
    """Workers that serve the same queues and channels on the same terms."""

    def __init__(
        self, queues: frozenset[str], channels: Mapping[str, ChannelTerms], vocabulary: Vocabulary
    ) -> None:
        self.queues = queues
        self.channels = channels
        self.classes: dict[Hashable, WorkerClass] = {}
        unlimited = [terms.cost for terms in channels.values() if terms.max_jobs is None]
        self.cheapest = min(unlimited, default=None)
        self.least = min((terms.cost for terms in channels.values()), default=0)
        """The least free capacity that any job needs."""
        self.plain = Groups()
        """Workers with room on the cheapest channel that has no limit of its own. In a class they
        stand by what they have used: behind one that has no room for a job nobody has."""
        self.limited = {
            channel: Groups() for channel, terms in channels.items() if terms.max_jobs is not None
        }
        """Workers with room, by channel that has a limit."""
        self.rings: dict[str, Ring] = {}
        """By channel, once a queue goes round."""
        self._vocabulary = vocabulary
        self._epoch = vocabulary.epoch
        self._log: list[WorkerClass] = []
        self._columns: dict[int, tuple[int, int]] = {}
        """By selector: the classes that meet it, as bits, and how far in the log they were read."""
        self._met: dict[int, tuple[Chosen, int]] = {}
        """The same by shape."""
        self._free: list[int] = []

    def class_of(self, state: WorkerState) -> WorkerClass:
        """Return the class of a worker, which joins it."""
        labels = {key: value for key, value in state.labels.items() if key != "Id"}
        known = state.capacity, frozenset((key, *identity(one)) for key, one in labels.items())
        found = self.classes.get(known)
        if found is None:
            number = self._free.pop() if self._free else len(self.classes)
            found = WorkerClass(self, number, known, state.capacity, labels)
            self.classes[known] = found
            self._log.append(found)
        found.members += 1
        return found

    def leave(self, member_of: WorkerClass) -> None:
        """A worker has left its class."""
        member_of.members -= 1
        if member_of.members:
            return
        del self.classes[member_of.known]
        self._free.append(member_of.number)
        if len(self._log) > 2 * len(self.classes) + 64:
            self._log = list(self.classes.values())
            self._columns.clear()
            self._met.clear()

    def roomy(self, channel: str) -> Groups:
        """Return the workers with room for a channel, or for a cheaper one."""
        return self.limited.get(channel, self.plain)

    def meeting(self, shape: SelectorShape) -> Chosen:
        """Return the classes that meet a shape: the index from labels to workers.

        Bits of classes that are gone may be left; they have no workers.
        """
        if self._epoch != self._vocabulary.epoch:
            self._epoch = self._vocabulary.epoch
            self._columns.clear()
            self._met.clear()
        found = self._met.get(shape.number)
        if found is None or found[1] != len(self._log):
            bits = -1
            for selector in shape.selectors:
                bits &= self._column(selector)
            found = self._met[shape.number] = choose(bits), len(self._log)
        return found[0]

    def _column(self, selector: int) -> int:
        vocabulary = self._vocabulary
        bits, seen = self._columns.get(selector, (0, 0))
        if seen < len(self._log):
            for one in self._log[seen:]:
                bit = 1 << one.number
                # A number may have belonged to a class that is gone.
                bits = bits | bit if one.holds(vocabulary) >> selector & 1 else bits & ~bit
            self._columns[selector] = bits, len(self._log)
        return bits
