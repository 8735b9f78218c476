"""Isolates the change that makes a batch fail: decides which part is tried next. Pure.

A lane is in trouble from the first failure of a batch until the end of that batch. First the full
batch is tried again; after `limit` failures it is halved, left before right, and a half that fails
is halved again, so that in the end a bad change stands alone. Only one that failed `limit` times
alone is condemned: a neighbour's failures never count against it. After crashes nothing can be
halved, since a process that is killed reports nothing: then changes go one by one.

A change is named by its key, (LSN, ordinal), and with `atomic_groups` a group by (LSN, 0). Changes
that were confirmed or superseded are no longer among the keys, so a span needs only its end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self, TypeVar

import msgspec
from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

V = TypeVar("V")
Key = tuple[int, int]
"""LSN and ordinal of a change: its place in the log of its range."""


class Isolation(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A lane in trouble; kept with the lease, so that its next owner goes on where it was."""

    until: dict[int, int]
    """The end of the batch that failed, by range: a retry never grows."""
    singles: bool = False
    """Go one by one, and mark each change before the call."""
    attempts: int = 0
    """Failures in a row."""
    ends: tuple[Key, ...] = ()
    """Ends of the spans that are still to be tried, the next one last."""
    alone: Key | None = None
    failures: int = 0
    """How often the change `alone` failed as the only one of a call."""
    marked: Key | None = None
    """The change that is being called with, one by one."""
    suspect: Key | None = None
    """The change that was marked when the lease was lost uncleanly."""

    @property
    def closely(self) -> bool:
        """Whether parts of the batch are tried, not all of it."""
        return self.singles or bool(self.ends)

    def part(self, keys: Sequence[Key]) -> Sequence[Key]:
        """Return the next part to try of the remaining changes; `keys` are in order, not empty."""
        if self.singles:
            return keys[:1]
        ends = self._ahead(keys[0])
        return [key for key in keys if key <= ends[-1]] if ends else keys

    def failed(self, part: Sequence[Key], limit: int | None) -> Isolation:
        """A call with `part` failed."""
        alone, failures = (part[0] if len(part) == 1 else None), 0
        if alone is not None:
            failures = 1 + (self.failures if alone == self.alone else 0)
        ends, attempts = self._ahead(part[0]), self.attempts + 1
        if len(part) > 1 and (ends or (limit is not None and attempts >= limit)):
            ends = (*(ends or (part[-1],)), part[(len(part) - 1) // 2])
        return msgspec.structs.replace(
            self, attempts=attempts, ends=ends, alone=alone, failures=failures,
            marked=None, suspect=None,
        )  # fmt: skip

    def condemned(self, limit: int | None) -> bool:
        """Whether the change that failed last has failed often enough alone."""
        return limit is not None and self.failures >= limit

    def passed(self, range_id: int, *, through: bool = False) -> Isolation | None:
        """Some of a range is done, or all of it; None: no more trouble."""
        until = {one: lsn for one, lsn in self.until.items() if not (through and one == range_id)}
        if not until:
            return None
        return msgspec.structs.replace(
            self, until=until, attempts=0, alone=None, failures=0, marked=None, suspect=None,
            ends=() if through else self.ends,
        )  # fmt: skip

    def mark(self, key: Key | None) -> Isolation:
        """The change `key` is about to be called with; None: nothing is."""
        return msgspec.structs.replace(self, marked=key, suspect=None)

    def one_by_one(self, until: Mapping[int, int]) -> Isolation:
        """Go on one by one, over the ranges in `until` too."""
        return msgspec.structs.replace(self, singles=True, ends=(), until={**until, **self.until})

    def within(self, bound: Mapping[int, int]) -> Self:
        """The same, but no further than some LSNs by range."""
        until = {one: min(lsn, bound.get(one, lsn)) for one, lsn in self.until.items()}
        return msgspec.structs.replace(self, until=until)

    def over(self, lineages: Mapping[int, Sequence[int]]) -> Isolation | None:
        """The same over the ranges that there are now; a range that was split left it to others."""
        until = inherited(self.until, lineages)
        return msgspec.structs.replace(self, until=until) if until else None

    def _ahead(self, key: Key) -> tuple[Key, ...]:
        return tuple(end for end in self.ends if end >= key)


class Troubles(Isolation, frozen=True, kw_only=True, omit_defaults=True):
    """All trouble of a lease as it is stored: of the complete lease, or of its lanes.

    Trouble of the complete lease is worked off by a single lane.
    """

    until: dict[int, int] = {}
    of: int = 1
    """How many lanes there were; with another number of them theirs are forgotten."""
    lanes: dict[int, Isolation] = {}
    watch: dict[int, int] = {}
    """Up to where the calls of an owner that crashed may have been: until this is behind, another
    crash counts as one more, wherever the position is by then."""

    @classmethod
    def note(
        cls, lanes: Mapping[int, Isolation], of: int, watch: Mapping[int, int]
    ) -> Troubles | None:
        """Return the trouble to store; None if there is none."""
        if not lanes and not watch:
            return None
        if of > 1 or not lanes:
            return cls(of=of, lanes=dict(lanes), watch=dict(watch))
        whole = {name: getattr(lanes[0], name) for name in Isolation.__struct_fields__}
        return cls(**whole, watch=dict(watch))

    def split(self, of: int) -> dict[int, Isolation]:
        """Return the trouble by lane for `of` lanes; lane 0 has that of the complete lease."""
        if self.until:
            fields = {name: getattr(self, name) for name in Isolation.__struct_fields__}
            return {0: Isolation(**fields)}
        return dict(self.lanes) if self.of == of else {}


def inherited(values: Mapping[int, V], lineages: Mapping[int, Sequence[int]]) -> dict[int, V]:
    """Return values by range for the ranges that there are now: a split one left its own."""
    found = ((one, [i for i in line if i in values]) for one, line in lineages.items())
    return {one: values[known[0]] for one, known in found if known}
