"""Waiting messages for tests of the pure core, and what claims make of them."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final

from hypothesis import strategies as st
from msgspec import Struct
from msgspec.structs import replace

from relevo.messaging.core import fairness, ordering
from relevo.messaging.core.claiming import ClaimedMessage, SourceState, claim
from relevo.messaging.core.classes import CLASSES, band_of
from relevo.messaging.core.ordering import Claimable
from relevo.messaging.model import Aging, Deadline, Fifo, Ordering, Strict, Weighted

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from relevo.messaging.core.reserving import Slots

SECOND: Final = ordering.MICROS

POLICIES: Final = st.sampled_from(
    [Fifo(), Strict(), Aging(), Aging(seconds_per_level=5, floor_share=0), Deadline(), Weighted()]
)


class Sent(Struct, frozen=True):
    """A message that was sent with this priority, so many seconds after the start."""

    priority: int
    second: int = 0
    key: str = ""


SENT: Final = st.lists(st.builds(Sent, st.integers(0, 9), st.integers(0, 600)), max_size=40).map(
    lambda sent: sorted(sent, key=lambda one: one.second)
)
"""Messages in the order of their arrival, which is that of their sequence numbers."""


def queue(
    sent: Iterable[Sent], policy: Ordering, *, fair: bool = False, name: str = "queue"
) -> SourceState:
    """A queue of the default classes that accepted these messages, numbered from 1."""
    waiting: dict[str, list[Claimable]] = defaultdict(list)
    last: dict[tuple[str, str], int] = {}
    for sequence, one in enumerate(sent, start=1):
        of = band_of(CLASSES, one.priority)
        tag = None
        if fair:
            tag = fairness.next_tag(sequence, reached=0, last=last.get((of.name, one.key)))
            last[of.name, one.key] = tag
        rank = ordering.rank(
            policy, of, priority=one.priority, arrived=one.second * SECOND, tag=tag
        )
        waiting[of.name].append(Claimable(rank, sequence, one.key))
    ordered = {of: sorted(messages) for of, messages in waiting.items()}
    return SourceState(name=name, waiting=ordered, ordering=policy, fair=fair)


def left(source: SourceState, taken: Sequence[ClaimedMessage]) -> SourceState:
    """The queue without the messages that were taken."""
    gone = {one.message.sequence for one in taken if one.source == source.name}
    waiting = {
        of: [one for one in messages if one.sequence not in gone]
        for of, messages in source.waiting.items()
    }
    return replace(source, waiting=waiting)


def size(source: SourceState) -> int:
    return sum(len(messages) for messages in source.waiting.values())


def service(
    source: SourceState, sizes: Sequence[int] = (), slots: Slots | None = None
) -> list[ClaimedMessage]:
    """Everything that is taken from a queue, in order, by claims of these sizes and a last one."""
    taken: list[ClaimedMessage] = []
    for wanted in (*sizes, size(source)):
        decision = claim([source], wanted, slots=slots)
        source = replace(left(source, decision.taken), tally=decision.tallies[source.name])
        taken += decision.taken
    return taken


def numbers(taken: Iterable[ClaimedMessage]) -> list[int]:
    return [one.message.sequence for one in taken]
