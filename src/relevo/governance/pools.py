"""Pools: at most so many users of a scarce resource at once, over all hosts.

erp = app.governance.pool("erp", size=20, per_key=5)
async with erp.lease(key=tenant) as permit:
    await call_erp(fence=permit.fence)
"""

from __future__ import annotations

import asyncio
import secrets
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, Literal

from msgspec import Struct, structs

from relevo.errors import DeadlineExceeded, InvalidValue, NoHost, NotFound, RelevoError
from relevo.governance.calls.gates import GateRef, SeenGeneration
from relevo.governance.calls.pool_calls import (
    ANSWER_SECONDS,
    POOL_TYPE,
    PermitAsk,
    PoolCalls,
    PoolView,
)
from relevo.governance.chunks import HostChunk, PoolBorrowing, check_need
from relevo.governance.core.pools import WAITERS_MAX, PoolOptions
from relevo.governance.errors import PermitLost, PoolExhausted
from relevo.governance.holders import PERMIT_SECONDS, Holders

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
    from types import TracebackType

    from relevo.actors import Actors
    from relevo.governance.calls.pool_calls import GrantedPermit
    from relevo.governance.core.assignments import Resolution
    from relevo.governance.core.lending import ChunkAsk, Loan
    from relevo.kernel.leases.life import Life

CALL_SECONDS: Final = 30.0
AGAIN_SECONDS: Final = 0.5
RELEASE_SECONDS: Final = 5.0
Coordination = Literal["server", "client"]


class PermitFence(Struct, frozen=True, order=True):
    """Proof of a permit; of two of one pool the higher number is the younger."""

    pool: str
    number: int
    use: int = 0
    """With `coordination="client"` the number is that of all permits that a host has borrowed, and
    this counts their uses. Those of two hosts are in order if they cannot be in use at once.
    """


class PoolPermit(Struct, frozen=True):
    """A permit in use; it goes back at the end of its `async with`."""

    fence: PermitFence
    item: str | None = None
    """The thing itself, of a pool of items."""


class ResourcePool:
    """A pool, as its users see it; having one does no I/O."""

    def __init__(
        self, name: str, options: PoolOptions | None, actors: Actors, holders: Holders,
        coordination: Coordination = "server",
    ) -> None:  # fmt: skip
        self.name = name
        self.options = options
        """As this program declares it; None for a pool that exists."""
        self.coordination = coordination
        self._chunks: dict[str, HostChunk] = {}
        """What this host has borrowed, by key."""
        self._borrowing = PoolBorrowing(
            name, WAITERS_MAX if options is None else options.max_waiters, self._lend,
            self.give_back,
        )  # fmt: skip
        self._actors = actors
        self.holders = holders
        self._declared: Any = None
        self._returns: dict[str, asyncio.Future[None]] = {}
        """Tickets that are to be released."""
        self._returning: asyncio.Task[None] | None = None

    def items(self, names: Iterable[str]) -> ResourcePool:
        """Return the pool as one of named things, such as licences: each permit is for one."""
        if self.coordination == "client":
            raise InvalidValue(
                f"pool {self.name!r} cannot have items and lend them to hosts in chunks; use"
                ' coordination="server"',
                pointer="coordination",
            )
        options = self.options or PoolOptions()
        names = tuple(names)
        options = structs.replace(options, size=len(names), items=names)
        return ResourcePool(self.name, options, self._actors, self.holders)

    def lease(
        self,
        key: str = "",
        *,
        weight: int = 1,
        priority: int = 4,
        timeout: float | None = None,
        resolution: Resolution | None = None,
    ) -> AbstractAsyncContextManager[PoolPermit]:
        """Run the body with a permit; waits for one, fairly among keys, at most so many seconds.

        Raises `PoolExhausted` if there is none in time, or if too many wait. The permit lives as
        long as this host, or 30 s past the last renewal of a client. If it may have ended while
        the body runs, the body is canceled and `PermitLost` raised. With the `resolution` by which
        the caller came, raises `StaleResolution` if its partition has moved since.
        """
        if timeout is not None and not timeout >= 0:
            raise InvalidValue(f"timeout is {timeout!r}; give seconds of 0 or more")
        lends = self.coordination == "client" and resolution is None
        if lends and (life := self.holders.life) is not None:
            return _ChunkLease(self, life, key, weight, priority, timeout)
        seen = SeenGeneration.of(resolution)
        return self.lease_of_pool(key, weight, priority, timeout, seen)

    @asynccontextmanager
    async def lease_of_pool(
        self, key: str, weight: int, priority: int, timeout: float | None,
        seen: SeenGeneration | None = None,
    ) -> AsyncIterator[PoolPermit]:  # fmt: skip
        """Run the body with a permit of its own, that the pool is asked for."""
        life = self.holders.life
        ticket = new_ticket()
        try:
            granted, asked_at = await self._acquire(
                ticket, key, weight, priority, timeout, life, seen
            )
            async with self.holders.holding(life, asked_at, lambda: self._renewed(ticket)):
                yield PoolPermit(PermitFence(self.name, granted.number), granted.item)
        except NoHost:
            self.give_back([ticket])  # nobody is there to hear it now
            raise
        finally:
            if ticket not in self._returns:
                await self._give_back(ticket)

    async def resize(self, size: int) -> None:
        """Change how much may be in use; nothing is revoked, and grants stop until it fits."""
        await self._declare()
        await self.proxy.resize(size)

    async def view(self) -> PoolView:
        """Return what is in use, and how many wait."""
        await self._declare()
        return await self.proxy.view()

    @property
    def gate(self) -> GateRef:
        """What a resolver knows it by."""
        return GateRef(POOL_TYPE, self.name)

    @property
    def proxy(self) -> PoolCalls:
        """The actor that is the pool."""
        return self._actors.proxy(PoolCalls, self.name, type=POOL_TYPE)

    def chunk(self, key: str, life: Life) -> HostChunk:
        """Return what this host has borrowed for a key."""
        chunk = self._chunks.get(key)
        if chunk is None or chunk.is_over or chunk.life is not life:
            for old in [one for one, each in self._chunks.items() if each.is_over]:
                del self._chunks[old]
            chunk = self._chunks[key] = HostChunk(self._borrowing, key, life, self.holders)
        return chunk

    async def ask(self, ask: PermitAsk, seconds: float) -> list[GrantedPermit]:
        """Ask the pool, which is made first if this program declares it."""
        proxy: Any = self.proxy.with_(timeout=seconds)  # type: ignore[attr-defined]
        found: list[GrantedPermit] = await self._made(lambda: proxy.ask(ask))
        return found

    async def _lend(self, ask: ChunkAsk, seconds: float) -> Loan:
        proxy: Any = self.proxy.with_(timeout=seconds)  # type: ignore[attr-defined]
        loan: Loan = await self._made(lambda: proxy.lend(ask))
        return loan

    async def _made(self, call: Callable[[], Awaitable[Any]]) -> Any:
        await self._declare()
        try:
            return await call()
        except NotFound:
            if self.options is None:
                raise
            self._declared = None  # it was deleted
            await self._declare()
            return await call()

    def give_back(self, tickets: Iterable[str]) -> list[asyncio.Future[None]]:
        """Release what tickets have or ask for, in the background, until that has succeeded."""
        loop = asyncio.get_running_loop()
        given = [self._returns.setdefault(ticket, loop.create_future()) for ticket in tickets]
        if self._returning is None or self._returning.done():
            self._returning = self.holders.run(self._return())
        return given

    async def _declare(self) -> None:
        connection = self._actors.connection.opened
        if self.options is not None and self._declared is not connection:
            await self.proxy.declare(self.options)
            self._declared = connection

    async def _acquire(
        self, ticket: str, key: str, weight: int, priority: int, seconds: float | None,
        life: Life | None, seen: SeenGeneration | None,
    ) -> tuple[GrantedPermit, float]:  # fmt: skip
        """Return the permit, and the loop time from which it counts."""
        loop = asyncio.get_running_loop()
        deadline = float("inf") if seconds is None else loop.time() + seconds
        while True:
            asked_at = loop.time()
            left = max(0.0, deadline - asked_at)
            ask = PermitAsk(
                tickets=(ticket,), key=key, weight=weight, priority=priority,
                host=None if life is None else str(life.incarnation), ttl=PERMIT_SECONDS,
                wait=min(left, ANSWER_SECONDS), seen=seen,
            )  # fmt: skip
            try:
                found = await self.ask(ask, min(CALL_SECONDS, left or CALL_SECONDS))
            except DeadlineExceeded:
                found = []
            if found:
                break
            if loop.time() >= deadline:
                raise PoolExhausted(
                    f"pool {self.name!r} had no permit for key {key!r} within {seconds:g} s; try"
                    " again later, or raise its size"
                )
        if life is None:  # it may have been granted long before its answer came
            asked_at = loop.time()
            if not await self._renewed(ticket):
                raise PoolExhausted(f"the permit of pool {self.name!r} ended before it arrived")
        return found[0], asked_at

    async def _renewed(self, ticket: str) -> bool:
        return not await self.proxy.renew([ticket], PERMIT_SECONDS)

    async def _give_back(self, ticket: str) -> None:
        """Release a permit; if the pool cannot be reached now, the caller need not wait for it."""
        await asyncio.wait(self.give_back([ticket]), timeout=RELEASE_SECONDS)

    async def _return(self) -> None:
        while self._returns:
            tickets = list(self._returns)
            try:
                await self.proxy.release(tickets)
            except RelevoError as error:
                ends = isinstance(error, NoHost) and self.holders.is_closing
                if ends or not self._actors.connection.is_open:
                    return  # permits end without it
                await asyncio.sleep(AGAIN_SECONDS)
            else:
                for ticket in tickets:
                    self._returns.pop(ticket).set_result(None)


class _ChunkLease(AbstractAsyncContextManager[PoolPermit]):
    """A permit from what this host has borrowed; a class, because it is made so often."""

    __slots__ = ("_chunk", "_holding", "_key", "_life", "_pool", "_priority", "_timeout", "_weight")

    def __init__(
        self, pool: ResourcePool, life: Life, key: str, weight: int, priority: int,
        timeout: float | None,
    ) -> None:  # fmt: skip
        self._pool = pool
        self._life = life
        self._key = key
        self._weight = weight
        self._priority = priority
        self._timeout = timeout
        self._chunk: HostChunk | None = None
        self._holding: AbstractAsyncContextManager[Any] | None = None

    async def __aenter__(self) -> PoolPermit:
        pool = self._pool
        chunk = pool.chunk(self._key, self._life)
        if not (self._weight > 0 and chunk.take(self._weight)):
            if self._timeout == 0:  # the pool says at once whether there is any
                self._holding = pool.lease_of_pool(self._key, self._weight, self._priority, 0)
                return await self._holding.__aenter__()
            chunk = await self._waited(chunk)
        self._holding = pool.holders.holding(chunk.life, 0.0, _never)
        try:
            await self._holding.__aenter__()
        except BaseException:
            chunk.release(self._weight)
            raise
        self._chunk = chunk
        chunk.uses += 1
        return PoolPermit(PermitFence(pool.name, chunk.number, chunk.uses))

    async def _waited(self, chunk: HostChunk) -> HostChunk:
        check_need(self._weight, self._priority)
        deadline = None
        if self._timeout is not None:
            deadline = asyncio.get_running_loop().time() + self._timeout
        while not await chunk.wait(self._weight, self._priority, deadline):
            life = self._pool.holders.life
            if life is None:
                raise PermitLost("this process is no host any more")
            chunk = self._pool.chunk(self._key, life)
        return chunk

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        assert self._holding is not None
        try:
            return await self._holding.__aexit__(kind, error, trace)
        finally:
            if self._chunk is not None:
                self._chunk.release(self._weight)


async def _never() -> bool:
    return False


def new_ticket() -> str:
    """Return a name for a request that no other has."""
    return secrets.token_hex(12)
