"""Budgets of lanes and consumers: permits and tokens in hand, from pools and limits of all hosts.

A share asks for permits in bulk, for as many slots as have work, and only while its lane knows that
work waits. A permit serves one run of the lane after the other for a moment, then it goes back to
the pool, so that others get their turn. Tokens of a limit are borrowed for a
quarter of a second; what is not used by then is not used at all.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from relevo.errors import HostSuperseded, RelevoError
from relevo.governance.calls.pool_calls import ANSWER_SECONDS, PermitAsk
from relevo.governance.pools import new_ticket
from relevo.kernel import error_text
from relevo.kernel.telemetry.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from relevo.governance.calls.limit_calls import LimitView
    from relevo.governance.calls.pool_calls import PoolView
    from relevo.governance.pools import ResourcePool
    from relevo.governance.rate_limits import RateLimit
    from relevo.governance.service import Governance
    from relevo.kernel.leases.life import Life
    from relevo.kernel.running.budgets import Budget

log = get_logger(__name__)
TURN_SECONDS: Final = 0.25
"""For how long a permit serves one lane, run after run, while others may wait for it."""
AGAIN_SECONDS: Final = 0.5
LOOK_SECONDS: Final = 0.02
VIEW_SECONDS: Final = 2.0
"""How long a pool or limit may take to say what is left of it."""
ASKED_MAX: Final = 256
"""Permits that a lane asks for at once."""


class ClusterBudgets:
    """Budgets by the names of a pool and a limit, which hold over all hosts."""

    def __init__(self, governance: Governance) -> None:
        self._governance = governance
        self._opened = 0

    def open(self, pool: str | None, limit: str | None) -> Budget:
        """As `BudgetSource.open`; what does not exist is named in the log, and grants nothing."""
        self._opened += 1
        return _ClusterShare(
            self._governance,
            None if pool is None else self._governance.pool(pool),
            None if limit is None else self._governance.limit(limit),
            self._opened,
        )

    async def shortage(self, pool: str | None, limit: str | None) -> str | None:
        """As `BudgetSource.shortage`; a pool or limit that does not answer grants nothing."""
        if pool is not None:
            calls: Any = self._governance.pool(pool).proxy
            try:
                seen: PoolView = await calls.with_(timeout=VIEW_SECONDS).view()
            except RelevoError as error:
                return f"pool {pool!r} does not answer: {error_text.shown(error)}"
            if seen.in_use >= seen.size:
                return f"pool {pool!r} has {seen.in_use} of {seen.size} permits in use"
        if limit is not None:
            calls = self._governance.limit(limit).proxy
            try:
                rates: LimitView = await calls.with_(timeout=VIEW_SECONDS).view()
            except RelevoError as error:
                return f"limit {limit!r} does not answer: {error_text.shown(error)}"
            if rates.waiting:
                return f"the rates of limit {limit!r} are used up ({rates.waiting} waiting)"
        return None


class _Token:
    """Tokens of a limit, for use until a loop time."""

    __slots__ = ("count", "valid_until")

    def __init__(self, count: int, valid_until: float) -> None:
        self.count = count
        self.valid_until = valid_until


class _ClusterShare:
    """What one lane has of a pool and a limit."""

    def __init__(
        self, governance: Governance, pool: ResourcePool | None, limit: RateLimit | None,
        number: int,
    ) -> None:  # fmt: skip
        self._governance = governance
        self._pool = pool
        self._limit = limit
        self._number = number
        self._life: Life | None = None
        """The life of the host that holds the permits."""
        self._in_hand: dict[str, float] = {}
        """Tickets of permits that nothing uses, and since when this lane has them."""
        self._used: dict[str, float] = {}
        """The same of those that claims use."""
        self._asked: list[str] = []
        self._tokens = _Token(0, 0.0)
        self._wanted = 0
        self._ready: Callable[[], None] = lambda: None
        self._asking_permits: asyncio.Task[None] | None = None
        self._asking_tokens: asyncio.Task[None] | None = None

    @property
    def free(self) -> int:
        """As `Budget.free`."""
        return min(self._room, self._valid_tokens)

    @property
    def serves_ahead(self) -> bool:
        """As `Budget.serves_ahead`: not with a limit, and with a pool until a turn is over."""
        if self._limit is not None:
            return False
        oldest = min(self._used.values(), default=float("inf"))
        return self._is_valid and asyncio.get_running_loop().time() - oldest < TURN_SECONDS

    @property
    def _room(self) -> int:
        """Permits in hand; without a pool as many as are wanted."""
        if self._pool is None:
            return max(self._wanted, self._tokens.count)
        return len(self._in_hand) if self._is_valid else 0

    @property
    def _valid_tokens(self) -> int:
        """Tokens in hand; without a limit one for each permit."""
        if self._limit is None:
            return self._room
        now = asyncio.get_running_loop().time()
        return self._tokens.count if now < self._tokens.valid_until else 0

    def want(self, count: int, ready: Callable[[], None]) -> None:
        """As `Budget.want`."""
        self._wanted, self._ready = count, ready
        if self._pool is not None:
            spare = list(self._in_hand)[count:]
            for ticket in spare:
                del self._in_hand[ticket]
            if not count:  # the request under way then ends
                spare += self._asked
                self._asked = []
            self._release(spare)
        self._pump()

    def take(self, count: int) -> int:
        """As `Budget.take`."""
        taken = min(count, self.free)
        if self._pool is not None:
            for ticket in list(self._in_hand)[:taken]:
                self._used[ticket] = self._in_hand.pop(ticket)
        self._tokens.count = max(0, self._tokens.count - taken)
        self._wanted = max(0, self._wanted - taken)
        return taken

    def give_back(self, count: int, *, used: bool) -> None:
        """As `Budget.give_back`."""
        if not used:
            self._tokens.count += count  # valid no longer than before
        if self._pool is None:
            return
        now, back = asyncio.get_running_loop().time(), []
        for ticket in list(self._used)[:count]:
            since = self._used.pop(ticket)
            # That of a run that has ended may serve the next, which the round after it claims:
            # `want` then gives back what is not needed.
            may_serve = used or self._wanted > len(self._in_hand)
            if may_serve and now - since < TURN_SECONDS and self._is_valid:
                self._in_hand[ticket] = since
            else:
                back.append(ticket)
        self._release(back)
        self._pump()
        if self._wanted and self.free:
            self._ready()

    def _pump(self) -> None:
        """Ask for what lacks, unless that is under way."""
        run = self._governance.holders.run
        if self._lacks_permits and (self._asking_permits is None or self._asking_permits.done()):
            self._asking_permits = run(self._keep_asking(self._ask_permits))
        if self._lacks_tokens and (self._asking_tokens is None or self._asking_tokens.done()):
            self._asking_tokens = run(self._keep_asking(self._ask_tokens))

    @property
    def _lacks_permits(self) -> bool:
        return self._pool is not None and self._wanted > self._room

    @property
    def _lacks_tokens(self) -> bool:
        return self._limit is not None and min(self._wanted, self._room) > self._valid_tokens

    def _release(self, tickets: list[str]) -> None:
        if tickets:
            assert self._pool is not None
            self._pool.give_back(tickets)

    @property
    def _is_valid(self) -> bool:
        """Whether the host still lives by whose life the permits are held."""
        leases = self._governance.holders.leases
        return leases is not None and self._life is not None and leases.lives(self._life)

    async def _keep_asking(self, ask: Callable[[], Awaitable[bool]]) -> None:
        loop = asyncio.get_running_loop()
        while True:
            began, had = loop.time(), self.free
            try:
                if not await ask():
                    return
            except HostSuperseded:
                return
            except RelevoError as error:
                log.warning(
                    "budget.unavailable", pool=self._pool and self._pool.name,
                    limit=self._limit and self._limit.name, error=error_text.shown(error),
                )  # fmt: skip
                await asyncio.sleep(AGAIN_SECONDS)
            self._pump()
            if self.free > had:
                self._ready()
            elif loop.time() - began < LOOK_SECONDS:
                await asyncio.sleep(LOOK_SECONDS)

    async def _ask_permits(self) -> bool:
        """Ask for the permits that lack; False if none do."""
        pool, life = self._pool, self._governance.holders.life
        if pool is None or not self._lacks_permits:
            return False
        if life is None:
            await asyncio.sleep(AGAIN_SECONDS)
            return True
        if life is not self._life:  # what the former life held has ended with it
            self._in_hand.clear()
            self._used.clear()
            self._asked, self._life = [], life
        lacking = min(self._wanted - len(self._in_hand), ASKED_MAX)
        self._asked += [new_ticket() for _ in range(lacking - len(self._asked))]
        asked = PermitAsk(
            tickets=tuple(self._asked), key=f"lane {life.incarnation} {self._number}",
            host=str(life.incarnation), wait=ANSWER_SECONDS,
        )  # fmt: skip
        granted = [one.ticket for one in await pool.ask(asked, ANSWER_SECONDS + 10.0)]
        now, late = asyncio.get_running_loop().time(), []
        for ticket in granted:
            if ticket not in self._asked:
                late.append(ticket)  # it was given up meanwhile
                continue
            self._asked.remove(ticket)
            if len(self._in_hand) < self._wanted:
                self._in_hand[ticket] = now
            else:
                late.append(ticket)
        excess = max(0, len(self._asked) - max(0, self._wanted - len(self._in_hand)))
        late += self._asked[:excess]
        del self._asked[:excess]
        self._release(late)
        return True

    async def _ask_tokens(self) -> bool:
        """Ask for the tokens that lack; False if none do."""
        if self._limit is None or not self._lacks_tokens:
            return False
        lent, valid_until = await self._limit.lend(
            min(self._wanted, self._room), wait=ANSWER_SECONDS
        )
        self._tokens = _Token(int(lent), valid_until)
        loop = asyncio.get_running_loop()
        loop.call_later(max(0.0, valid_until - loop.time()) + 0.001, self._pump)
        return True
