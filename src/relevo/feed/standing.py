"""How a lease stands: what was read and confirmed, what is in trouble, and storing that."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct

from relevo.feed.isolation import Isolation, Key
from relevo.feed.model import Change
from relevo.feed.progress import Delivery, Progress
from relevo.leases.hosts import instant
from relevo.store.ranges import Interval

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import asyncpg

    from relevo.feed.journal import Cause, Journal
    from relevo.feed.reading import Batch
    from relevo.postgres import Transaction


def key_of(change: Change[Any]) -> Key:
    """Return the place of a change in the log of its range."""
    return change.lsn, change.ordinal


class Part(Struct, frozen=True, kw_only=True):
    """What one call is made with: the first changes of what is left of a batch."""

    range_id: int
    batch: tuple[Change[Any], ...]
    changes: tuple[Change[Any], ...]
    end: int
    """The position behind it."""
    within: Key | None
    """The last change, if the rest of its group comes later."""
    until: int
    """The end of the batch."""

    @classmethod
    def of(cls, range_id: int, batch: Batch, size: int, until: int) -> Part:
        """Return the first `size` changes of a batch."""
        last, rest = batch.changes[size - 1], batch.changes[size:]
        cut = bool(rest) and rest[0].lsn == last.lsn
        return cls(
            range_id=range_id, batch=batch.changes, changes=batch.changes[:size],
            end=last.lsn - cut if rest else batch.position,
            within=key_of(last) if cut else None, until=until,
        )  # fmt: skip

    @property
    def through(self) -> bool:
        """Whether nothing of the batch comes after it."""
        return self.within is None and self.end >= self.until


class Standing:
    """What a worker knows of its lease; the journal stores it under the lease's fence."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self.interval = Interval()
        self.progress = Progress({})
        self.trouble: Isolation | None = None
        self.attempts = 0
        """Failed calls in a row."""
        self.crashes = 0
        """Unclean losses in a row, here."""
        self.stored_at = instant()

    async def open(self) -> dict[int, int]:
        """Take over what the last owner left; return the positions."""
        stored = await self.journal.open()
        self.interval, self.attempts = stored.interval, stored.attempts
        self.trouble, self.crashes = stored.isolation, stored.crashes
        return stored.positions

    def begin(
        self, positions: Mapping[int, int], lineages: Mapping[int, Sequence[int]]
    ) -> dict[int, int]:
        """Stand at stored positions in the ranges that there are now; a split one left its own."""
        found = {}
        for range_id, lineage in lineages.items():
            known = [positions[one] for one in lineage if one in positions]
            found[range_id] = known[0] if known else 0
        self.trouble = self.trouble and self.trouble.over(lineages)
        self.progress = Progress(found)
        return found

    def is_done(self, range_id: int, change: Change[Any]) -> bool:
        """Whether a change of a group that is through only in part was done before."""
        within = self.trouble.within.get(range_id) if self.trouble else None
        return within is not None and key_of(change) <= within

    async def confirm(self, delivery: Delivery, part: Part, change: Change[Any] | None) -> bool:
        """Store what a call confirmed; True if that was all of its changes."""
        if change is None or key_of(change) >= key_of(part.changes[-1]):
            self.progress.confirm(delivery)
            await self._save(part.changes[-1], self._after(part))
            return True
        later = any(c.lsn == change.lsn and c.ordinal > change.ordinal for c in part.batch)
        self.progress.confirm(delivery, change.lsn - later)
        if self.progress.positions != self.progress.stored:
            trouble = self.trouble
            if trouble is not None and trouble.until.get(part.range_id) == part.until:
                trouble = trouble.passed(part.range_id, within=trouble.within.get(part.range_id))
            await self._save(change, trouble)
        return False

    async def confirm_in(self, tx: Transaction, delivery: Delivery, part: Part) -> None:
        """Store a call's changes as confirmed in a transaction; `committed` follows."""
        positions = {**self.progress.positions, part.range_id: delivery.end}
        await self.journal.checkpoint(positions, part.changes[-1].ts, self._after(part), tx)

    def committed(self, delivery: Delivery, part: Part) -> None:
        """The transaction of `confirm_in` has been committed."""
        self.progress.confirm(delivery)
        self._stored(self.progress.positions, self._after(part))

    async def fail(
        self, delivery: Delivery, part: Part, error: Exception, limit: int | None
    ) -> Isolation:
        """Take a call back and count it; unless that condemns its only change, store the count."""
        self.progress.withdraw(delivery)
        left = [key_of(c) for c in part.changes if c.lsn > delivery.confirmed]
        trouble = self.trouble or Isolation(until={part.range_id: part.until})
        trouble = trouble.failed(left, limit)
        self.attempts += 1
        if not trouble.condemned(limit):
            await self.journal.failed(self.attempts, error, trouble)
            self.trouble = trouble
        return trouble

    async def bury(self, part: Part, cause: Cause, handler: str, *, block: bool) -> asyncpg.Record:
        """Dead-letter the only change of a part and stand behind it; return the letter's row."""
        trouble = self._after(part)
        positions = {**self.progress.positions, part.range_id: part.end}
        row = await self.journal.bury(
            part.changes[0], cause, positions, trouble, handler=handler, block=block
        )
        self.progress.skip(part.range_id, part.end)
        self._stored(positions, trouble)
        return row

    async def mark(self, part: Part) -> None:
        """Store which change a call is about to be made with."""
        assert self.trouble is not None
        marked = self.trouble.mark(key_of(part.changes[0]))
        await self.journal.mark(marked)
        self.trouble = marked

    async def leave(self, range_id: int) -> None:
        """Nothing is left in a range of the batch in trouble."""
        assert self.trouble is not None
        self.progress.skip(range_id, self.trouble.until[range_id])
        await self._save(None, self.trouble.passed(range_id, through=True))

    async def settle(self) -> None:
        """Store what may be stored, if it moved; so a quiet unit resumes near the head, too."""
        if self.progress.positions != self.progress.stored:
            await self._save(None, self.trouble)

    def _after(self, part: Part) -> Isolation | None:
        """The trouble that is left when a part is done; a part of another batch changes nothing."""
        trouble = self.trouble
        if trouble is None or trouble.until.get(part.range_id) != part.until:
            return trouble
        return trouble.passed(part.range_id, within=part.within, through=part.through)

    async def _save(self, last: Change[Any] | None, trouble: Isolation | None) -> None:
        positions = self.progress.positions
        if positions != self.progress.stored or trouble != self.trouble:
            await self.journal.checkpoint(positions, last.ts if last else None, trouble)
            self._stored(positions, trouble)

    def _stored(self, positions: dict[int, int], trouble: Isolation | None) -> None:
        self.progress.stored, self.stored_at = dict(positions), instant()
        self.trouble, self.attempts = trouble, 0
        if trouble is None:
            self.crashes = 0
