"""Rate limits: so much in any window of time, over all hosts and across restarts.

mail = app.governance.limit("mail", rates=[Rate(10, per=1)], burst=20)
await mail.acquire(timeout=5)
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from relevo.errors import DeadlineExceeded, InvalidValue, NotFound, RelevoError
from relevo.governance.calls.gates import GateRef, SeenGeneration
from relevo.governance.calls.limit_calls import (
    LEND_SECONDS,
    LIMIT_TYPE,
    Admission,
    CostAsk,
    LimitCalls,
    LimitOptions,
    LimitView,
)
from relevo.governance.core.lent_tokens import LentTokens
from relevo.governance.errors import PoolExhausted
from relevo.governance.pools import Coordination, new_ticket
from relevo.limits import ACTOR_CALL_SECONDS, LIMIT_ID_LENGTH_MAX

if TYPE_CHECKING:
    from collections.abc import Sequence

    from relevo.actors import Actors
    from relevo.governance.clock import StoreClock
    from relevo.governance.core.assignments import Resolution
    from relevo.governance.core.windows import Rate
    from relevo.governance.holders import Holders

WAIT_SECONDS: Final = 3_600.0
"""How long a caller without a timeout waits for one answer."""


KEYS_KEPT: Final = 10_000
"""So many keys have tokens in hand before those are forgotten whose time is over."""


class _KeyTokens:
    """What a limit has lent this process for one key."""

    def __init__(self) -> None:
        self.tokens = LentTokens()
        self.asking = 0.0
        """The costs of callers that wait for the next loan."""
        self.borrowing: asyncio.Task[None] | None = None
        self.again_at = float("-inf")
        """When to borrow again after the limit had nothing to lend."""


class RateLimit:
    """A limit, as its users see it; having one does no I/O."""

    def __init__(
        self, name: str, options: LimitOptions | None, actors: Actors, holders: Holders,
        clock: StoreClock, *, coordination: Coordination = "server",
    ) -> None:  # fmt: skip
        self.name = name
        self.options = options
        """As this program declares it; None for a limit that exists."""
        self.coordination = coordination
        self._actors = actors
        self._holders = holders
        self._clock = clock
        self._declared: Any = None
        self._lent: dict[str, _KeyTokens] = {}

    async def acquire(
        self,
        cost: float = 1,
        *,
        key: str = "",
        timeout: float | None = None,
        id: str | None = None,  # noqa: A002
        resolution: Resolution | None = None,
    ) -> Admission:
        """Return when the cost is admitted; waits in order, at most so many seconds.

        Raises `PoolExhausted` with `retry_after` if it is not admitted in time. Each key has the
        rates for itself. With an `id` a repeat within ten minutes is admitted and charged nothing:
        repeat with the same id after an answer that was lost. With the `resolution` by which the
        caller came, raises `StaleResolution` if its partition has moved since.
        """
        _check_id(id)
        seen = SeenGeneration.of(resolution)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + (float("inf") if timeout is None else timeout)
        while True:
            left = deadline - loop.time()
            admission = await self._ask(cost, key, max(0.0, min(left, WAIT_SECONDS)), id, seen)
            if admission:
                return admission
            if loop.time() >= deadline:
                if left > 0:
                    admission = await self._ask(cost, key, 0.0, id, seen)  # says when to try again
                if admission:
                    return admission
                raise _exhausted(self.name, cost, admission.retry_after)

    async def try_acquire(
        self,
        cost: float = 1,
        *,
        key: str = "",
        id: str | None = None,  # noqa: A002
    ) -> Admission:
        """Return at once whether the cost was admitted, and else when to try again."""
        _check_id(id)
        return await self._ask(cost, key, 0.0, id)

    async def change(self, rates: Sequence[Rate], burst: float = 0.0) -> None:
        """Change the rates while the limit is used."""
        await self._declare()
        await self.proxy.change(LimitOptions(rates=tuple(rates), burst=burst))

    async def view(self) -> LimitView:
        """Return the rates, and how many wait."""
        await self._declare()
        return await self.proxy.view()

    @property
    def gate(self) -> GateRef:
        """What a resolver knows it by."""
        return GateRef(LIMIT_TYPE, self.name)

    @property
    def proxy(self) -> LimitCalls:
        """The actor that is the limit."""
        return self._actors.proxy(LimitCalls, self.name, type=LIMIT_TYPE)

    async def lend(self, cost: float, *, key: str = "", wait: float = 0.0) -> tuple[float, float]:
        """Return how much may be used here, and until which loop time."""
        asked = CostAsk(ticket=new_ticket(), cost=cost, key=key, wait=wait, lend=True)
        admission = await self._send(asked)
        left = admission.valid_until - await self._clock.now() - self._clock.uncertainty
        return admission.admitted, asyncio.get_running_loop().time() + left

    async def _ask(
        self, cost: float, key: str, wait: float, id_: str | None,
        seen: SeenGeneration | None = None,
    ) -> Admission:  # fmt: skip
        lends = self.coordination == "client" and id_ is None and seen is None
        if lends and await self._take_lent(cost, key):
            return Admission(cost)
        ask = CostAsk(ticket=new_ticket(), cost=cost, key=key, wait=wait, id=id_, seen=seen)
        return await self._send(ask)

    async def _take_lent(self, cost: float, key: str) -> bool:
        """Use what was lent, or borrow: one loan at a time, for all who wait for it."""
        if not cost > 0:
            raise InvalidValue(f"cost is {cost!r}; give more than 0", pointer="cost")
        known, loop = self._of(key), asyncio.get_running_loop()
        if known.tokens.take(cost, loop.time()):
            return True
        if loop.time() < known.again_at:
            return False
        known.asking += cost
        if known.borrowing is None:
            known.borrowing = self._holders.run(self._borrow(known, key))
        await asyncio.wait([known.borrowing])
        return known.tokens.take(cost, loop.time())

    def _of(self, key: str) -> _KeyTokens:
        if key not in self._lent and len(self._lent) >= KEYS_KEPT:
            now = asyncio.get_running_loop().time()
            self._lent = {
                name: one for name, one in self._lent.items()
                if one.borrowing is not None or not one.tokens.is_over(now)
            }  # fmt: skip
        return self._lent.setdefault(key, _KeyTokens())

    async def _borrow(self, known: _KeyTokens, key: str) -> None:
        loop = asyncio.get_running_loop()
        try:
            await asyncio.sleep(0)  # callers of the same moment share the loan
            wanted, known.asking = known.tokens.wanted(known.asking), 0.0
            amount, valid_until = await self.lend(wanted, key=key)
        except RelevoError:
            known.again_at = loop.time() + LEND_SECONDS  # callers ask by themselves, and hear why
        else:
            known.tokens.lent(amount, valid_until, loop.time())
            if not amount:
                known.again_at = loop.time() + LEND_SECONDS
        finally:
            known.borrowing = None

    async def _send(self, ask: CostAsk) -> Admission:
        await self._declare()
        proxy: Any = self.proxy
        seconds = ask.wait or ACTOR_CALL_SECONDS
        try:
            try:
                found: Admission = await proxy.with_(timeout=seconds).ask(ask)
            except NotFound:
                if self.options is None:
                    raise
                self._declared = None  # it was deleted
                await self._declare()
                found = await proxy.with_(timeout=seconds).ask(ask)
        except DeadlineExceeded:
            if not ask.wait:
                raise
            self._holders.run(self._cancel(ask.ticket))
            found = Admission(0.0, 0.0)
        except asyncio.CancelledError:
            self._holders.run(self._cancel(ask.ticket))
            raise
        return found

    async def _cancel(self, ticket: str) -> None:
        try:
            await self.proxy.cancel([ticket])
        except RelevoError:
            return  # it waits in vain; what it is charged then counts as spent

    async def _declare(self) -> None:
        connection = self._actors.connection.opened
        if self.options is not None and self._declared is not connection:
            await self.proxy.declare(self.options)
            self._declared = connection


def _check_id(id_: str | None) -> None:
    given: object = id_
    if given is not None and not (
        isinstance(given, str) and 1 <= len(given) <= LIMIT_ID_LENGTH_MAX
    ):
        raise InvalidValue(
            f"id is {given!r:.80}; give text of 1 to {LIMIT_ID_LENGTH_MAX} characters, or None",
            pointer="id",
        )


def _exhausted(name: str, cost: float, retry_after: float) -> PoolExhausted:
    error = PoolExhausted(
        f"limit {name!r} did not admit a cost of {cost:g} in time; try again in"
        f" {retry_after:.3g} s, or raise its rates"
    )
    error.retry_after = retry_after
    return error
