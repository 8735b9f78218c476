"""The pool's side of chunks: what it has lent to hosts, and what their callers wait for.

    lending = Lending(pool)
    grants = lending.tell(ask, now)  # what follows for everybody
    lending.loan(ask.ticket)  # Loan(number=1, granted=8, recalled=False)

A caller of a host waits in the queue of the pool as one that asks by itself. What it is granted
goes to the chunk of its host, which is one permit that grows and shrinks (`core/chunks.py`).
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from msgspec import Struct

from relevo.governance.core.chunks import ChunkMessage, Need
from relevo.governance.core.permits import Holder
from relevo.governance.core.pools import Request
from relevo.governance.errors import PoolExhausted

if TYPE_CHECKING:
    from collections.abc import Iterable

    from relevo.governance.core.permits import Permit
    from relevo.governance.core.pools import Grant, Pool


class ChunkAsk(Struct, frozen=True, kw_only=True):
    """A message of a host on one of its chunks."""

    ticket: str
    """The name of the chunk, which the host makes and never uses again."""
    key: str
    host: str
    """The life of the host, with which the chunk ends."""
    message: ChunkMessage


class Loan(Struct, frozen=True):
    """What a pool has lent to a host for a key."""

    number: int = 0
    """Of the permit that is the chunk; 0 if nothing is lent."""
    granted: int = 0
    recalled: bool = False
    is_lost: bool = False
    """The pool does not know of what the host has: it was taken from it."""
    refused: str = ""
    """Why nothing that the host needs may wait: too many wait already."""


class _Record:
    """What a pool knows of a chunk."""

    __slots__ = ("granted", "needs", "refused", "returned", "seq")

    def __init__(self, granted: int, returned: int) -> None:
        self.granted = granted
        self.returned = returned
        self.seq = 0
        self.refused = ""
        self.needs: dict[int, Need] = {}
        """What waits in the queue of the pool, by number."""


class Lending:
    """The chunks of one pool."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._records: dict[str, _Record] = {}

    def restore(self, ticket: str, permit: Permit, returned: int) -> None:
        """Take in a chunk as it was stored."""
        self._pool.chunks[ticket] = permit.number
        self._records[ticket] = _Record(returned + permit.weight, returned)

    def __contains__(self, ticket: str) -> bool:
        return ticket in self._records

    def returned(self, ticket: str) -> int:
        """Return what is to be stored of a chunk beside its permit."""
        return self._records[ticket].returned

    def tell(self, ask: ChunkAsk, now: float) -> list[Grant]:
        """Take in a message; returns the grants that follow, to anybody.

        Raises `InvalidValue` for a need that is never granted, and then changes nothing.
        """
        message = ask.message
        for need in {*message.needs}:
            self._pool.check(need.weight, need.priority)
        record = self._records.get(ask.ticket)
        if record is None:
            record = self._records[ask.ticket] = _Record(message.returned, message.returned)
        grants: list[Grant] = []
        if (back := message.returned - record.returned) > 0:
            record.returned = message.returned
            record.granted = max(record.granted, record.returned)
            grants = self.took(self._pool.return_chunk(ask.ticket, back, now))
        if message.granted != record.granted or message.seq <= record.seq:
            return grants  # it does not know of its last grants: its needs are outdated
        record.seq, record.refused = message.seq, ""
        grants += self._need(ask, record, now)
        if message.ahead and not record.needs:
            more = self._pool.extend_chunk(ask.ticket, message.ahead)
            record.granted += more
        return grants

    def _need(self, ask: ChunkAsk, record: _Record, now: float) -> list[Grant]:
        """Let what a host needs now wait; what waits already keeps its place."""
        wanted = Counter(ask.message.needs)
        gone = []
        for number, need in record.needs.items():
            if wanted[need]:
                wanted[need] -= 1
            else:
                gone.append(number)
        for number in gone:
            del record.needs[number]
            self._pool.cancel(number)
        grants = self.took(self._pool.release((), now)) if gone else []
        for need in ask.message.needs:
            if not wanted[need]:
                continue
            wanted[need] -= 1
            request = Request(
                key=ask.key, weight=need.weight, priority=need.priority,
                holder=Holder(host=ask.host), chunk=ask.ticket,
            )  # fmt: skip
            try:
                number, more = self._pool.ask(request, now)
            except PoolExhausted as error:
                record.refused = "" if record.needs else error.message
                break  # those before it wait
            record.needs[number] = need
            grants += self.took(more)
        return grants

    def took(self, grants: Iterable[Grant]) -> list[Grant]:
        """Count what was granted to chunks; each grant counts once."""
        grants = list(grants)
        for grant in grants:
            record = self._records.get(grant.chunk) if grant.chunk is not None else None
            if record is not None and (need := record.needs.pop(grant.waiter, None)) is not None:
                record.granted += need.weight
        return grants

    def loan(self, ask: ChunkAsk) -> Loan:
        """Return what a host is to know of its chunk."""
        record = self._records.get(ask.ticket)
        if record is None or record.granted < ask.message.granted:
            return Loan(is_lost=True)
        permit = self._pool.chunk(ask.ticket)
        return Loan(
            number=0 if permit is None else permit.number, granted=record.granted,
            recalled=self._is_recalled(record), refused=record.refused,
        )  # fmt: skip

    def has_news(self, ask: ChunkAsk) -> bool:
        """Whether a host does not know yet how its chunk stands."""
        loan = self.loan(ask)
        known = (ask.message.granted, ask.message.recalled)
        return loan.is_lost or bool(loan.refused) or (loan.granted, loan.recalled) != known

    def _is_recalled(self, record: _Record) -> bool:
        ledger = self._pool.ledger
        return self._pool.waiting > len(record.needs) or ledger.in_use > ledger.size

    def is_needed(self, ticket: str) -> bool:
        """Whether callers of a host wait."""
        record = self._records.get(ticket)
        return record is not None and bool(record.needs)

    def give_up(self, ticket: str) -> None:
        """Let nobody wait for a host that is silent; it keeps what it has."""
        record = self._records.get(ticket)
        for number in [] if record is None else list(record.needs):
            self._pool.cancel(number)
        if record is not None:
            record.needs.clear()

    def drop(self, ticket: str) -> bool:
        """Forget a chunk and what its host needs; whether there was any."""
        self.give_up(ticket)
        return self._records.pop(ticket, None) is not None
