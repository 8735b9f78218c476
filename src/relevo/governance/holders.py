"""Who holds permits: this host, as long as it lives, or a client that renews them in time.

A body that runs under a permit is canceled when that may have ended: at the self-fencing deadline
of its host, or when a client could not renew.
"""

from __future__ import annotations

import asyncio
from contextvars import Context
from typing import TYPE_CHECKING, Final

from relevo.errors import RelevoError
from relevo.governance.errors import PermitLost

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine
    from types import TracebackType

    from relevo.kernel.leases.life import Life
    from relevo.kernel.leases.service import Leases

PERMIT_SECONDS: Final = 30.0
"""How long a permit of a client is valid without renewal."""
MARGIN_SECONDS: Final = 3.0
"""So long before the end of a permit that could not be renewed its body is canceled."""
LOOK_SECONDS: Final = 0.2


class Holding:
    """Permits that a body stands on: `async with` cancels the body when they may have ended.

    It then raises `PermitLost`, and it does so at once if they have ended before the body.
    """

    __slots__ = ("_holders", "life", "renew", "renewing", "scope", "valid_until")

    def __init__(
        self,
        holders: Holders,
        life: Life | None,
        valid_until: float,
        renew: Callable[[], Awaitable[bool]],
    ) -> None:
        self._holders = holders
        self.scope = asyncio.timeout(None)
        self.life = life
        """The life of the host that holds them; None for a client."""
        self.valid_until = valid_until
        """Loop time, for a client."""
        self.renew = renew
        self.renewing: asyncio.Task[None] | None = None

    async def __aenter__(self) -> None:
        if self.life is not None and not self._holders.lives(self.life):
            raise _lost()
        await self.scope.__aenter__()
        self._holders.watch(self)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._holders.unwatch(self)
        try:
            await self.scope.__aexit__(kind, error, trace)
        except TimeoutError:
            raise _lost() from None


class Holders:
    """What this process holds, and whether it may still."""

    def __init__(self) -> None:
        self.leases: Leases | None = None
        """Those of this host; None in a client."""
        self._holdings: set[Holding] = set()
        self._watch: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._kept: set[asyncio.Task[None]] = set()
        self.is_closing = False
        """Whether what is under way is waited for now."""

    @property
    def life(self) -> Life | None:
        """The present life of this host, None in a client."""
        return None if self.leases is None else self.leases.life

    def lives(self, life: Life) -> bool:
        """Whether a life is the present one of this host, and within its deadline."""
        return self.leases is not None and self.leases.lives(life)

    def holding(
        self, life: Life | None, asked_at: float, renew: Callable[[], Awaitable[bool]]
    ) -> Holding:
        """Run a body under a permit; raises `PermitLost` if that may have ended before it."""
        return Holding(self, life, asked_at + PERMIT_SECONDS, renew)

    def watch(self, holding: Holding) -> None:
        """Cancel the body when its permit may have ended."""
        self._holdings.add(holding)
        if self._watch is None or self._watch.done():
            self._watch = self.run(self._look())

    def unwatch(self, holding: Holding) -> None:
        """Forget a body that has ended."""
        self._holdings.discard(holding)

    def run(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        """Run something beside the caller, and outside of any turn of an actor."""
        task = asyncio.get_running_loop().create_task(work, context=Context())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def keep(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        """Run something as `run` does, until this process stops to hold anything."""
        task = self.run(work)
        self._kept.add(task)
        task.add_done_callback(self._kept.discard)
        return task

    async def close(self, seconds: float) -> None:
        """Wait for what is under way, such as releases; what runs all the time ends."""
        self.is_closing = True
        for task in list(self._kept):
            task.cancel()
        if self._watch is not None:
            self._watch.cancel()
        if tasks := list(self._tasks):
            _, left = await asyncio.wait(tasks, timeout=seconds)
            for task in left:
                task.cancel()
        self.is_closing = False

    async def _look(self) -> None:
        loop = asyncio.get_running_loop()
        while self._holdings:
            for holding in list(self._holdings):
                if not self._is_valid(holding, loop.time()):
                    self._holdings.discard(holding)
                    holding.scope.reschedule(loop.time())
                elif self._must_renew(holding, loop.time()):
                    holding.renewing = self.run(self._renew(holding))
            await asyncio.sleep(LOOK_SECONDS)

    def _is_valid(self, holding: Holding, now: float) -> bool:
        if holding.life is None:
            return now < holding.valid_until - MARGIN_SECONDS
        return self.lives(holding.life)

    def _must_renew(self, holding: Holding, now: float) -> bool:
        return (
            holding.life is None
            and now > holding.valid_until - PERMIT_SECONDS * 2 / 3
            and (holding.renewing is None or holding.renewing.done())
        )

    async def _renew(self, holding: Holding) -> None:
        asked_at = asyncio.get_running_loop().time()
        try:
            renewed = await holding.renew()
        except RelevoError:
            return
        holding.valid_until = asked_at + PERMIT_SECONDS if renewed else 0.0


def _lost() -> PermitLost:
    return PermitLost(
        "the permit may have ended, because this process was cut off from the database or from the"
        " pool; what ran under it was canceled"
    )
