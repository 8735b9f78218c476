"""Hosts that wait for news of what a pool has lent them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from relevo.governance.calls.pool_calls import ANSWER_SECONDS

if TYPE_CHECKING:
    from relevo.actors import Deferred
    from relevo.governance.core.lending import ChunkAsk, Lending, Loan


class _Borrower:
    """A host that waits."""

    __slots__ = ("ask", "deferred", "until")

    def __init__(self, deferred: Deferred[Loan], ask: ChunkAsk, until: float) -> None:
        self.deferred = deferred
        self.ask = ask
        self.until = until


class Borrowers:
    """Who waits for news of chunks, by their tickets."""

    def __init__(self, lending: Lending) -> None:
        self.lending = lending
        self._waiting: dict[str, _Borrower] = {}
        self._silent: dict[str, float] = {}
        """Since when no host waits for news of a chunk that it needs."""

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def answer(self, ask: ChunkAsk, now: float) -> Loan | None:
        """Return what there is to say to a message; None if its host is to wait for news."""
        loan, is_needed = self.lending.loan(ask), self.lending.is_needed(ask.ticket)
        if self.lending.has_news(ask) or not (loan.number or is_needed):
            if is_needed:
                self._silent[ask.ticket] = now
            return loan
        return None

    def add(self, ask: ChunkAsk, deferred: Deferred[Loan], now: float) -> None:
        """Let a host wait."""
        self._waiting[ask.ticket] = _Borrower(deferred, ask, now + ANSWER_SECONDS)
        self._silent.pop(ask.ticket, None)

    def inform(self, ticket: str, now: float) -> None:
        """Tell a host how its chunk stands, if it waits for that."""
        if (borrower := self._waiting.pop(ticket, None)) is not None:
            borrower.deferred.resolve(self.lending.loan(borrower.ask))
            if self.lending.is_needed(ticket):
                self._silent[ticket] = now

    def inform_all(self, now: float) -> None:
        """Tell hosts what they were granted, and whether others wait for what is idle there."""
        for ticket, borrower in list(self._waiting.items()):
            if borrower.until <= now or self.lending.has_news(borrower.ask):
                self.inform(ticket, now)

    def give_up_silent(self, now: float) -> bool:
        """Let nobody wait for hosts that have gone; whether there were any."""
        late = [one for one, since in self._silent.items() if since + ANSWER_SECONDS <= now]
        for ticket in late:
            del self._silent[ticket]
            self.lending.give_up(ticket)
        return bool(late)
