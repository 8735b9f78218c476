"""The chunks that pools have lent to this host, and the callers that it serves from them."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from relevo.errors import DeadlineExceeded, InvalidValue, PoolExhausted, RelevoError
from relevo.governance.calls.pool_calls import ANSWER_SECONDS
from relevo.governance.core.chunks import IDLE_SECONDS, Chunk
from relevo.governance.core.fairness import PRIORITY_MAX, Waiter
from relevo.governance.core.lending import ChunkAsk, Loan

if TYPE_CHECKING:
    from relevo.governance.holders import Holders
    from relevo.kernel.leases.life import Life

CALLS_MAX: Final = 2
"""Messages on their way: the one that waits for news, and the one that takes its place."""
AGAIN_SECONDS: Final = 0.5
CALL_SECONDS: Final = ANSWER_SECONDS + 10.0


class PoolBorrowing(Struct, frozen=True):
    """What chunks need of the pool that they are of."""

    name: str
    waiters_max: int
    lend: Callable[[ChunkAsk, float], Awaitable[Loan]]
    give_back: Callable[[Iterable[str]], object]


class HostChunk:
    """A chunk of a pool, for one key and in one life of this host."""

    def __init__(self, pool: PoolBorrowing, key: str, life: Life, holders: Holders) -> None:
        self.life = life
        self.number = 0
        """Of the permit that is the chunk."""
        self.uses = 0
        """How many callers were served."""
        self.is_over = False
        self._pool = pool
        self._key = key
        self._holders = holders
        self._ticket = secrets.token_hex(12)
        self._loop = asyncio.get_running_loop()
        self._chunk = Chunk(self._loop.time())
        self._waiters: dict[int, tuple[Waiter, asyncio.Future[bool]]] = {}
        self._waiter = 0
        self._news = asyncio.Event()
        self._calls: set[asyncio.Task[None]] = set()
        self._rests_until = 0.0
        self._task = holders.keep(self._run())

    def take(self, weight: int) -> bool:
        """Serve a caller at once, if there is enough here and this host may still act."""
        return self._holders.lives(self.life) and not self.is_over and self._chunk.take(weight)

    async def wait(self, weight: int, priority: int, deadline: float | None) -> bool:
        """Wait until there is enough here; False if the chunk has ended.

        Raises `PoolExhausted` at the deadline, which is a loop time; None is never.
        """
        if len(self._waiters) >= self._pool.waiters_max:
            raise PoolExhausted(
                f"{self._pool.waiters_max} callers wait here for pool {self._pool.name!r} already;"
                " try again later, or raise max_waiters"
            )
        self._waiter += 1
        now = self._loop.time()
        waiter = Waiter(self._waiter, "", now, weight, priority)
        served: asyncio.Future[bool] = self._loop.create_future()
        self._waiters[waiter.number] = (waiter, served)
        self._serve(self._chunk.wait(waiter, now))
        if self._chunk.must_ask(now):
            self._news.set()
        try:
            async with asyncio.timeout_at(deadline):
                return await served
        except BaseException as error:
            self._leave(waiter, served)
            if isinstance(error, TimeoutError):
                raise PoolExhausted(
                    f"pool {self._pool.name!r} had no permit for key {self._key!r} in time; try"
                    " again later, or raise its size"
                ) from None
            raise

    def release(self, weight: int) -> None:
        """A caller is done."""
        chunk = self._chunk
        served = chunk.release(weight, self._loop.time())
        if served:
            self._serve(served)
        elif chunk.recalled or chunk.waiting:
            self._news.set()

    def _leave(self, waiter: Waiter, served: asyncio.Future[bool]) -> None:
        if served.done() and not served.cancelled() and not served.exception() and served.result():
            self.release(waiter.weight)
        elif self._waiters.pop(waiter.number, None) is not None:
            self._chunk.cancel(waiter.number)
            self._news.set()

    def _serve(self, waiters: Iterable[Waiter]) -> None:
        for waiter in waiters:
            _, served = self._waiters.pop(waiter.number)
            if served.cancelled():
                self.release(waiter.weight)
            else:
                served.set_result(True)

    async def _run(self) -> None:
        """Tell the pool what is new, until nothing is left here or the life has ended."""
        try:
            while self._holders.life is self.life and not self._chunk.is_over():
                self._news.clear()
                now = self._loop.time()
                may_ask = now >= self._rests_until and len(self._calls) < CALLS_MAX
                if may_ask and self._chunk.must_ask(now):
                    self._ask(now)
                try:
                    await asyncio.wait_for(self._news.wait(), IDLE_SECONDS / 2)
                except TimeoutError:
                    continue
        finally:
            self._end()

    def _ask(self, now: float) -> None:
        ask = ChunkAsk(
            ticket=self._ticket, key=self._key, host=str(self.life.incarnation),
            message=self._chunk.ask(now),
        )  # fmt: skip
        call = self._holders.keep(self._told(ask))
        self._calls.add(call)
        call.add_done_callback(self._calls.discard)

    async def _told(self, ask: ChunkAsk) -> None:
        seq = ask.message.seq
        try:
            loan = await self._pool.lend(ask, CALL_SECONDS)
        except RelevoError as error:
            self._chunk.failed(seq)
            self._rests_until = self._loop.time() + AGAIN_SECONDS
            if not isinstance(error, DeadlineExceeded):
                self._refuse(error)
        else:
            self._learn(seq, loan)
        finally:
            self._loop.call_soon(self._news.set)

    def _learn(self, seq: int, loan: Loan) -> None:
        if self.is_over:
            return
        if loan.is_lost:
            self._end()
            return
        self.number = max(self.number, loan.number)
        now = self._loop.time()
        served = self._chunk.learn(seq, granted=loan.granted, recalled=loan.recalled, now=now)
        self._serve(served)
        if loan.refused:
            self._refuse(PoolExhausted(loan.refused))

    def _refuse(self, error: RelevoError) -> None:
        """Let callers fail: those that ask for the most, if that is what the pool refuses."""
        least = 0
        if isinstance(error, InvalidValue):
            least = max((waiter.weight for waiter, _ in self._waiters.values()), default=0)
        for waiter, served in list(self._waiters.values()):
            if waiter.weight >= least:
                del self._waiters[waiter.number]
                self._chunk.cancel(waiter.number)
                if not served.done():
                    served.set_exception(error)

    def _end(self) -> None:
        """Serve nobody any more; callers go to the next chunk."""
        if self.is_over:
            return
        self.is_over = True
        for _, served in self._waiters.values():
            if not served.done():
                served.set_result(False)
        self._waiters.clear()
        for call in self._calls:
            call.cancel()
        if self._holders.life is self.life:
            self._pool.give_back([self._ticket])


def check_need(weight: int, priority: int) -> None:
    """Raise `InvalidValue` for what no pool grants."""
    if weight < 1:
        raise InvalidValue(f"weight is {weight}; give 1 or more", pointer="weight")
    if not 0 <= priority <= PRIORITY_MAX:
        raise InvalidValue(
            f"priority is {priority}; it must be from 0 to {PRIORITY_MAX}", pointer="priority"
        )
