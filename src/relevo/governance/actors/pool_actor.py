"""The actor that is a pool: it grants permits, and stores each grant before it is answered.

The rules are in `core/pools.py`; here they meet the store, the time and the callers. A caller waits
by a deferred answer, so waiters hold no turn and releases never queue behind them.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from msgspec import Struct, structs

from relevo.errors import InUse, InvalidValue, NotFound, SettingsMismatch
from relevo.governance.actors.borrowers import Borrowers
from relevo.governance.actors.gates import GateActor
from relevo.governance.calls.changes import PutOutcome  # noqa: TC001 - read when it runs
from relevo.governance.calls.pool_calls import (
    ANSWER_SECONDS,
    WAITERS_SHOWN,
    GrantedPermit,
    PermitAsk,
    PoolView,
    StoredPermit,
)
from relevo.governance.core.lending import ChunkAsk, Lending, Loan
from relevo.governance.core.permits import Holder, PermitLedger, PermitState
from relevo.governance.core.pools import Grant, Pool, PoolOptions, Request, shown_options
from relevo.governance.errors import PoolExhausted
from relevo.governance.operating import events

if TYPE_CHECKING:
    from collections.abc import Iterable

    from relevo.actors import Deferred

LOOK_SECONDS: Final = 1.0
"""How often a pool looks for permits that have ended while somebody waits."""
FORGOTTEN_MAX: Final = 10_000
"""Tickets that are remembered because they were released before they were asked for."""


class PoolState(Struct):
    """What is stored of a pool beside its permits."""

    declared: PoolOptions | None = None
    """As it was made."""
    options: PoolOptions | None = None
    """As it is now."""
    last: int = 0


class _Ask:
    """A caller that waits for an answer."""

    __slots__ = ("deferred", "tickets", "until")

    def __init__(
        self, deferred: Deferred[list[GrantedPermit]], tickets: list[str], until: float
    ) -> None:
        self.deferred = deferred
        self.tickets = tickets
        self.until = until


class PoolActor(GateActor[PoolState]):
    """Grants the permits of one pool."""

    async def on_activate(self) -> None:
        self._pool: Pool | None = None
        self._stored = self.map("permits", StoredPermit)
        self._numbers: dict[str, int] = {}
        """Permits by ticket."""
        self._tickets: dict[int, str] = {}
        """Tickets by permit."""
        self._waiting: dict[str, int] = {}
        """Waiters by ticket."""
        self._waiters: dict[int, str] = {}
        self._asks: dict[str, _Ask] = {}
        """Who waits for an answer, by ticket."""
        self._left_at: dict[str, float] = {}
        """Since when nobody waits for the answer to a waiting ticket."""
        self._forgotten: OrderedDict[str, None] = OrderedDict()
        self._chunks: Borrowers | None = None
        """The pool's chunks, and the hosts that wait for news of theirs."""
        if self.state.options is not None:
            await self._restore(self.state.options)

    async def _restore(self, options: PoolOptions) -> None:
        found = [stored async for _, stored in self._stored.scan()]
        for stored in found:
            self._numbers[stored.ticket] = stored.permit.number
            self._tickets[stored.permit.number] = stored.ticket
        permits = tuple(stored.permit for stored in found)
        state = PermitState(options.size, self.state.last, permits, options.items)
        self._open(Pool(options, PermitLedger.restored(state)))
        for stored in found:
            if stored.permit.chunk:
                self._lent.restore(stored.ticket, stored.permit, stored.returned)

    def _open(self, pool: Pool) -> None:
        self._pool, self._chunks = pool, Borrowers(Lending(pool))

    @property
    def pool(self) -> Pool | None:
        """What there is to measure; None if it was removed."""
        return self._pool

    def _known(self) -> Pool:
        if self._pool is None:
            raise NotFound(f"there is no pool {self.ctx.key!r}")
        return self._pool

    @property
    def _lent(self) -> Lending:
        return self._borrowers.lending

    @property
    def _borrowers(self) -> Borrowers:
        assert self._chunks is not None
        return self._chunks

    async def declare(self, options: PoolOptions) -> None:
        if self._pool is None:
            self._make(options)
        elif options not in (self.state.declared, self.state.options):
            raise SettingsMismatch(
                f"pool {self.ctx.key!r} exists with {shown_options(self.state.options)}, and this"
                f" program declares {shown_options(options)}; declare the same, or change the pool"
                " with resize"
            )

    def _make(self, options: PoolOptions) -> None:
        """Begin without permits; their numbers go on from those of a pool that was removed."""
        state = structs.replace(Pool(options).ledger.state(), last=self.state.last)
        self._open(Pool(options, PermitLedger.restored(state)))
        self.state.declared = self.state.options = options
        self.log_change(events.POOL_CREATED)

    async def put(self, options: PoolOptions) -> PutOutcome:
        pool = self._pool
        if pool is None:
            self._make(options)
            return "created"
        if options == self.state.options:
            return "same"
        grants = pool.change(options, await self.kit.clock.now())
        self.state.options = options
        await self._store(grants)
        self.log_change(events.POOL_CHANGED)
        return "changed"

    async def remove(self) -> bool:
        pool = self._pool
        if pool is None:
            return False
        await self._collect(pool)
        if len(pool.ledger):
            raise InUse(
                f"{len(pool.ledger)} permits of pool {self.ctx.key!r} are in use; set its size to"
                " 0, and remove it when they have come back"
            )
        await self._drop(pool, list(self._waiting), await self.kit.clock.now())
        self._pool = self._chunks = None
        self.state.declared = self.state.options = None
        self.log_change(events.POOL_DELETED)
        return True

    async def ask(self, ask: PermitAsk) -> Any:
        pool, now = self._known(), await self.kit.clock.now()
        await self.check_generation(ask.seen)
        tickets = [ticket for ticket in ask.tickets if ticket not in self._forgotten]
        entered = False
        for ticket in tickets:
            if ticket not in self._numbers and ticket not in self._waiting:
                try:
                    await self._enter(pool, ask, ticket, now)
                except PoolExhausted:
                    if not entered:
                        raise
                    break  # those before it count
                entered = True
        granted = self._granted(tickets)
        waiting = [ticket for ticket in tickets if ticket in self._waiting]
        if granted or not waiting:
            self._leave_waiting(waiting, now)
            return granted
        if ask.wait <= 0:
            await self._drop(pool, waiting, now)
            return []
        deferred: Deferred[list[GrantedPermit]] = self.defer()
        entry = _Ask(deferred, waiting, now + min(ask.wait, ANSWER_SECONDS))
        for ticket in waiting:
            self._asks[ticket] = entry
            self._left_at.pop(ticket, None)
        self._watch()
        return deferred

    async def _enter(self, pool: Pool, ask: PermitAsk, ticket: str, now: float) -> None:
        request = Request(
            key=ask.key, weight=ask.weight, priority=ask.priority,
            holder=Holder(host=ask.host, name="" if ask.host else ticket),
            ttl=None if ask.host else ask.ttl,
        )  # fmt: skip
        number, grants = pool.ask(request, now)
        self._waiting[ticket], self._waiters[number] = number, ticket
        await self._store(grants)

    async def _store(self, grants: list[Grant]) -> None:
        """Store grants, and answer those who wait for them."""
        answered: dict[int, _Ask] = {}
        for grant in self._lent.took(grants):
            if grant.chunk is not None:
                await self._store_chunk(grant.chunk)
                continue
            ticket, permit = self._waiters.pop(grant.waiter), grant.permit
            del self._waiting[ticket]
            self._left_at.pop(ticket, None)
            self._numbers[ticket], self._tickets[permit.number] = permit.number, ticket
            await self._stored.set(str(permit.number), StoredPermit(permit, ticket))
            self.state.last = max(self.state.last, permit.number)
            if (entry := self._asks.get(ticket)) is not None:
                answered[id(entry)] = entry
        for entry in answered.values():
            await self._answer(entry)
        if self._borrowers:
            self._borrowers.inform_all(await self.kit.clock.now())

    async def _answer(self, entry: _Ask) -> None:
        now = await self.kit.clock.now()
        for ticket in entry.tickets:
            self._asks.pop(ticket, None)
        self._leave_waiting([one for one in entry.tickets if one in self._waiting], now)
        entry.deferred.resolve(self._granted(entry.tickets))

    def _leave_waiting(self, tickets: list[str], now: float) -> None:
        """Let requests go on waiting whose caller is expected to ask again."""
        for ticket in tickets:
            self._left_at[ticket] = now
        if tickets:
            self._watch()

    def _granted(self, tickets: Iterable[str]) -> list[GrantedPermit]:
        found = []
        for ticket in tickets:
            number = self._numbers.get(ticket)
            permit = None if number is None else self._known().ledger.get(number)
            if permit is not None:
                found.append(GrantedPermit(ticket, permit.number, permit.item, permit.expires_at))
        return found

    # -- chunks -------------------------------------------------------------------------------

    async def lend(self, ask: ChunkAsk) -> Any:
        self._known()
        now, ticket = await self.kit.clock.now(), ask.ticket
        if ticket in self._forgotten:
            return Loan(is_lost=True)
        grants = self._lent.tell(ask, now)
        self._borrowers.inform(ticket, now)  # of the message before
        await self._store(grants)
        await self._store_chunk(ticket)
        loan = self._borrowers.answer(ask, now)
        if loan is not None:
            return loan
        deferred: Deferred[Loan] = self.defer()
        self._borrowers.add(ask, deferred, now)
        self._watch()
        return deferred

    async def _store_chunk(self, ticket: str) -> None:
        permit, known = self._known().chunk(ticket), self._numbers.get(ticket)
        if known is not None and (permit is None or permit.number != known):
            await self._remove([known])
        if permit is not None and ticket in self._lent:
            self._numbers[ticket], self._tickets[permit.number] = permit.number, ticket
            stored = StoredPermit(permit, ticket, self._lent.returned(ticket))
            if await self._stored.get(str(permit.number)) != stored:
                await self._stored.set(str(permit.number), stored)
            self.state.last = max(self.state.last, permit.number)

    # -- the end of permits -------------------------------------------------------------------

    async def release(self, tickets: list[str]) -> None:
        if self._pool is None:
            return
        await self._drop(self._pool, tickets, await self.kit.clock.now())

    async def _drop(self, pool: Pool, tickets: Iterable[str], now: float) -> None:
        """Take back what tickets have, and forget what they ask for."""
        numbers, given_up = [], []
        for ticket in tickets:
            number = self._numbers.pop(ticket, None)
            if self._lent.drop(ticket):
                self._forgotten[ticket] = None
                self._borrowers.inform(ticket, now)
            if number is not None:
                numbers.append(number)
            elif (waiter := self._waiting.pop(ticket, None)) is not None:
                pool.cancel(waiter)
                del self._waiters[waiter]
                self._left_at.pop(ticket, None)
                if (entry := self._asks.get(ticket)) is not None:
                    given_up.append(entry)
            else:
                self._forgotten[ticket] = None
        while len(self._forgotten) > FORGOTTEN_MAX:
            self._forgotten.popitem(last=False)
        await self._remove(numbers)
        await self._store(pool.release(numbers, now))
        for entry in given_up:
            await self._answer(entry)

    async def _remove(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            await self._stored.delete(str(number))
            ticket = self._tickets.pop(number, None)
            if ticket is not None:
                self._numbers.pop(ticket, None)

    async def renew(self, tickets: list[str], ttl: float) -> list[str]:
        gone, now = [], await self.kit.clock.now()
        for ticket in tickets:
            number = self._numbers.get(ticket)
            permit = None if number is None else self._known().ledger.get(number)
            if permit is None or permit.expires_at is None or permit.expires_at <= now:
                gone.append(ticket)
                continue
            renewed = self._known().ledger.renew(permit.number, now + ttl)
            await self._stored.set(str(permit.number), StoredPermit(renewed, ticket))
        return gone

    async def resize(self, size: int) -> None:
        options = self._known().options
        if options.items is not None:
            raise InvalidValue(
                f"pool {self.ctx.key!r} has items and no size; change its items", pointer="size"
            )
        await self.put(structs.replace(options, size=size))

    async def view(self) -> PoolView:
        pool = self._known()
        await self._collect(pool)
        waiters = pool.waiting_keys(await self.kit.clock.now(), WAITERS_SHOWN)
        return PoolView(pool.ledger.size, pool.ledger.in_use, pool.waiting, pool.options, waiters)

    async def held(self, ticket: str) -> GrantedPermit | None:
        found = self._granted([ticket]) if self._pool is not None else []
        return found[0] if found else None

    async def permits(self, after: int, limit: int) -> list[StoredPermit]:
        pool = self._known()
        await self._collect(pool)
        found = pool.ledger.page(after, limit + 1)
        return [StoredPermit(one, self._tickets[one.number]) for one in found]

    # -- what ends by itself ------------------------------------------------------------------

    def _watch(self) -> None:
        if "look" not in self.timers.names:
            self.timers.set("look", self._look, after=0.0, every=LOOK_SECONDS)

    async def _look(self) -> None:
        pool = self._pool
        if pool is None or (not pool.waiting and not self._borrowers):
            self.timers.cancel("look")
            return
        if pool.waiting:
            await self._collect(pool)
        now = await self.kit.clock.now()
        late = {id(one): one for one in self._asks.values() if one.until <= now}
        for entry in late.values():
            await self._answer(entry)
        left = [one for one, at in self._left_at.items() if at + ANSWER_SECONDS <= now]
        await self._drop(pool, left, now)
        if self._borrowers.give_up_silent(now):
            grants = pool.release((), now)
            await self._store(grants)
        elif self._borrowers:
            self._borrowers.inform_all(now)

    async def _collect(self, pool: Pool) -> None:
        """Take back what has expired, or belonged to hosts that have ended."""
        hosts = {UUID(one) for one in pool.ledger.hosts()}
        if not hosts and all(one.expires_at is None for one in pool.ledger):
            return
        read, lives = await self.kit.ended_lives(hosts)
        now, ended = read.timestamp(), {str(one) for one in lives}
        gone = [
            one.number for one in pool.ledger
            if one.holder.host in ended or (one.expires_at or now + 1) <= now
        ]  # fmt: skip
        if gone:
            for number in gone:
                self._lent.drop(self._tickets[number])
            await self._remove(gone)
            await self._store(pool.tick(now, ended))
