"""Sorted collections for matching: members in order, and the first member of each of many groups.

Everything is exact: what was taken out is gone, so nothing grows with the history of changes.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

Key = tuple[Any, ...]
"""A place in an order. The last element is the member itself, the one before the number of its
group; what comes before these is never all equal, so that they are never compared."""

FEW: Final = 32
"""So many groups are picked out one by one rather than found among all."""

BLOCK: Final = 512
"""Members in a block before it is split: moving so many pointers costs less than the search."""


class Ordered:
    """A sorted list in blocks: adding, removing and walking cost the same at any length."""

    __slots__ = ("_lasts", "blocks")

    def __init__(self, *keys: Key) -> None:
        self.blocks: list[list[Key]] = []
        """All keys in order, in lists none of which is empty."""
        self._lasts: list[Key] = []
        for key in keys:
            self.add(key)

    def __bool__(self) -> bool:
        return bool(self._lasts)

    def __iter__(self) -> Iterator[Key]:
        for block in self.blocks:
            yield from block

    def add(self, key: Key) -> None:
        """Put a key in its place."""
        lasts = self._lasts
        at = bisect_left(lasts, key)
        if at < len(lasts):
            block = self.blocks[at]
            insort(block, key)
        elif lasts:
            at -= 1
            block = self.blocks[at]
            block.append(key)
            lasts[at] = key
        else:
            self.blocks.append([key])
            lasts.append(key)
            return
        if len(block) > BLOCK:
            self.blocks[at : at + 1] = [block[: BLOCK // 2], block[BLOCK // 2 :]]
            lasts.insert(at, block[BLOCK // 2 - 1])

    def remove(self, key: Key) -> None:
        """Take out a key that is there."""
        lasts = self._lasts
        block = self.blocks[0]
        if block[0] is key and len(block) > 1:  # as a rule it is the first one's turn
            del block[0]
            return
        at = bisect_left(lasts, key)
        block = self.blocks[at]
        if len(block) == 1:
            del self.blocks[at], lasts[at]
            return
        place = bisect_left(block, key)
        del block[place]
        if place == len(block):
            lasts[at] = block[-1]

    def after(self, bound: Key) -> Iterator[Key]:
        """Walk from the first key above `bound`."""
        at = bisect_right(self._lasts, bound)
        if at == len(self._lasts):
            return
        block = self.blocks[at]
        for place in range(bisect_right(block, bound), len(block)):
            yield block[place]
        for block in self.blocks[at + 1 :]:
            yield from block


class Groups:
    """Members in order within numbered groups, and the groups by their first members.

    Sets of groups are bits of an integer: `occupied` are those that have members.
    """

    __slots__ = ("_firsts", "_groups", "_tops", "occupied")

    def __init__(self) -> None:
        self._groups: dict[int, Ordered] = {}
        self._firsts: dict[int, Key] = {}
        self._tops = Ordered()
        """The first members of all groups."""
        self.occupied = 0

    def add(self, key: Key) -> None:
        """Put a member into its group."""
        number = key[-2]
        first = self._firsts.get(number)
        if first is None:
            self._groups[number] = Ordered(key)
            self.occupied |= 1 << number
        else:
            self._groups[number].add(key)
            if key > first:
                return
            self._tops.remove(first)
        self._firsts[number] = key
        self._tops.add(key)

    def remove(self, key: Key) -> None:
        """Take a member out of its group."""
        number = key[-2]
        group = self._groups[number]
        group.remove(key)
        if self._firsts[number] is not key:
            return
        self._tops.remove(key)
        if group.blocks:
            self._firsts[number] = first = group.blocks[0][0]
            self._tops.add(first)
        else:
            del self._groups[number], self._firsts[number]
            self.occupied ^= 1 << number

    def group(self, number: int) -> Ordered:
        """Return the members of a group that is occupied."""
        return self._groups[number]

    def first_after(self, bound: Key, chosen: int) -> Key | None:
        """Return the first of a chosen group that comes first after `bound`."""
        for key in self._tops.after(bound):
            if chosen >> key[-2] & 1:
                return key
        return None

    def first(self, chosen: Chosen) -> Key | None:
        """Return the first member of all chosen groups.

        Few groups are picked out; of many one is met soon by walking all by their first members. So
        neither a rare choice nor a crowd in front that was not chosen makes this slow.
        """
        bits = chosen.bits & self.occupied
        if not bits:
            return None
        firsts = self._firsts
        if bits.bit_count() ** 2 > len(firsts):
            for block in self._tops.blocks:
                for key in block:
                    if bits >> key[-2] & 1:
                        return key
        if chosen.few is None:
            return min([firsts[number] for number in numbers(bits)])
        return min(filter(None, map(firsts.get, chosen.few)))

    def firsts(self, chosen: Chosen) -> Iterator[Key]:
        """Walk the first members of the chosen groups, in order."""
        bits = chosen.bits & self.occupied
        for block in self._tops.blocks:
            for key in block:
                if bits >> key[-2] & 1:
                    yield key


class Chosen(NamedTuple):
    """A set of groups: as bits, and if they are few their numbers as well."""

    bits: int
    few: tuple[int, ...] | None


def choose(bits: int) -> Chosen:
    """Return a set of groups that will be used often."""
    return Chosen(bits, tuple(numbers(bits)) if bits >= 0 and bits.bit_count() <= FEW else None)


def numbers(bits: int) -> Iterator[int]:
    """Walk the numbers of a set of bits, smallest first."""
    while bits:
        lowest = bits & -bits
        yield lowest.bit_length() - 1
        bits ^= lowest
