"""Which messages a claim takes, in which order: the reference that the SQL is checked against.

    decision = claim([SourceState(name="render", waiting={"high": [...], "low": [...]})], wanted=10)
    decision.taken  # message by message, as they are to be served

What counts, in this order: the limits of the consumers, whose turn it is between sources, whose
turn between tiers or shares, the rank, the sequence number. Sessions and the status of an entity
come before: what they keep back is not among `waiting`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from relevo.messaging.core import ordering, sharing
from relevo.messaging.core.classes import CLASSES
from relevo.messaging.core.ordering import Claimable
from relevo.messaging.core.reserving import Slots
from relevo.messaging.model import FLOOR_SHARE, Aging, Ordering, PriorityClass, Weighted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from relevo.messaging.model import Across


class Tally(Struct, frozen=True, kw_only=True):
    """What claims of an entity leave for the next one."""

    express_run: int = 0
    """Express claims in a row while other work waited."""
    vtimes: Mapping[str, int] = {}
    """Virtual times of the classes, for `Weighted`."""
    tags: Mapping[str, int] = {}
    """The largest tag that was claimed, by class, for entities that are fair."""


class SourceTurns(Struct, frozen=True, kw_only=True):
    """What claims over several sources leave for the next one; both by the name of the source."""

    passed: Mapping[str, int] = {}
    vtimes: Mapping[str, int] = {}


NO_TURNS: Final = SourceTurns()


class SourceState(Struct, frozen=True, kw_only=True):
    """An entity as a claim finds it; `waiting` is by class, each in the order of its index."""

    name: str
    waiting: Mapping[str, Sequence[Claimable]]
    classes: tuple[PriorityClass, ...] = CLASSES
    ordering: Ordering = Aging()
    fair: bool = False
    tally: Tally = Tally()


class ClaimedMessage(Struct, frozen=True):
    """A message that the claim takes; `floor` if only its floor share let it go first."""

    source: str
    of: str
    message: Claimable
    floor: bool = False


class ClaimDecision(Struct, frozen=True, kw_only=True):
    """What a claim takes, first to last, and what it leaves."""

    taken: tuple[ClaimedMessage, ...]
    tallies: Mapping[str, Tally]
    turns: SourceTurns
    slots: Slots | None


def claim(
    sources: Sequence[SourceState],
    wanted: int,
    *,
    slots: Slots | None = None,
    across: Across = "strict",
    turns: SourceTurns = NO_TURNS,
    floor_share: float = FLOOR_SHARE,
) -> ClaimDecision:
    """Decide a claim of so many messages; receivers have no `slots`.

    `across`, `turns` and `floor_share` are for several sources.
    """
    cursors = {source.name: _Cursor(source) for source in sources}
    taken: list[ClaimedMessage] = []
    while len(taken) < wanted:
        heads = {name: cursor.heads(slots) for name, cursor in cursors.items()}
        order = [name for name, found in heads.items() if found]
        if not order:
            break
        if across == "strict":
            name, passed = sharing.floor_turn(order, turns.passed, sharing.patience(floor_share))
            turns = replace(turns, passed=passed)
        else:
            name, vtimes = sharing.share_turn(order, dict.fromkeys(cursors, 1), turns.vtimes)
            turns = replace(turns, vtimes=vtimes)
        one = cursors[name].take(heads[name])
        taken.append(one)
        slots = slots.take(one.of, one.message.fairness_key) if slots else None
    return ClaimDecision(
        taken=tuple(taken),
        tallies={name: cursor.tally for name, cursor in cursors.items()},
        turns=turns,
        slots=slots,
    )


class _Cursor:
    """What is left of a source while a claim is decided."""

    def __init__(self, source: SourceState) -> None:
        self.tally = source.tally
        self._source = source
        self._classes = sorted(source.classes, key=lambda one: -one.base)
        self._gone: dict[str, set[int]] = {of.name: set() for of in source.classes}
        self._start = dict.fromkeys(self._gone, 0)
        """Where in each class the first message stands that is left."""

    def heads(self, slots: Slots | None) -> dict[str, Claimable]:
        """The first message of each class that may have a slot, the highest class first."""
        found = {}
        for of in self._classes:
            for message in self._left_of(of.name):
                obstacle = slots.obstacle(of, message.fairness_key) if slots else None
                if obstacle is None:
                    found[of.name] = message
                if obstacle != "key_full":  # the next may be another tenant's
                    break
        return found

    def _left_of(self, name: str) -> Iterator[Claimable]:
        messages, gone = self._source.waiting.get(name, ()), self._gone[name]
        while self._start[name] < len(messages) and messages[self._start[name]].sequence in gone:
            self._start[name] += 1
        for index in range(self._start[name], len(messages)):
            if messages[index].sequence not in gone:
                yield messages[index]

    def take(self, heads: Mapping[str, Claimable]) -> ClaimedMessage:
        """Take the head whose turn it is."""
        name, floor = self._turn(heads)
        message = heads[name]
        self._gone[name].add(message.sequence)
        if self._source.fair:
            reached = max(self.tally.tags.get(name, 0), message.rank)
            self.tally = replace(self.tally, tags={**self.tally.tags, name: reached})
        return ClaimedMessage(self._source.name, name, message, floor)

    def _turn(self, heads: Mapping[str, Claimable]) -> tuple[str, bool]:
        policy = self._source.ordering
        if isinstance(policy, Weighted):
            weights = {of.name: of.weight for of in self._classes}
            name, vtimes = sharing.share_turn([*heads], weights, self.tally.vtimes)
            self.tally = replace(self.tally, vtimes=vtimes)
            return name, False
        tiers: dict[int, list[tuple[Claimable, str]]] = {}
        for of in self._classes:
            if of.name in heads:
                tier = ordering.tier(policy, of, fair=self._source.fair)
                tiers.setdefault(tier, []).append((heads[of.name], of.name))
        most = sharing.patience(policy.floor_share) if isinstance(policy, Aging) else None
        order = sorted(tiers)
        turn, passed = sharing.floor_turn(order, {1: self.tally.express_run}, most)
        self.tally = replace(self.tally, express_run=passed[1])
        return min(tiers[turn])[1], turn != order[0]
