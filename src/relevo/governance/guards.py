"""Guards: a breaker, a limit and a pool before one resource, entered in that order.

erp = app.governance.guard("erp", pool=pool, limit=limit, breaker=Breaker(failures=5))
async with erp.enter(key=tenant):
    await call_erp()
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

from relevo.errors import PoolExhausted
from relevo.governance.core.breaking import BreakerState
from relevo.governance.errors import BreakerOpen, PermitLost, StaleResolution

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from relevo.governance.core.assignments import Resolution
    from relevo.governance.core.breaking import BreakerRules
    from relevo.governance.pools import PoolPermit, ResourcePool
    from relevo.governance.rate_limits import RateLimit


class ResourceGuard:
    """What every use of a resource passes. The breaker is this process's own view of it."""

    def __init__(
        self,
        resource: str,
        pool: ResourcePool | None,
        limit: RateLimit | None,
        breaker: BreakerRules | None,
    ) -> None:
        self.resource = resource
        self._pool = pool
        self._limit = limit
        self._breaker = None if breaker is None else BreakerState(breaker)

    @asynccontextmanager
    async def enter(
        self,
        *,
        key: str = "",
        cost: float = 1,
        timeout: float | None = None,
        resolution: Resolution | None = None,
    ) -> AsyncIterator[PoolPermit | None]:
        """Run the body once the breaker, the limit and the pool admit it.

        An error of the body counts as a failure of the resource. Raises `BreakerOpen` at once while
        there were too many, and `PoolExhausted` if limit and pool do not admit it in time. With the
        `resolution` by which the caller came, they refuse it with `StaleResolution` if its
        partition has moved since; `resolver.use(entity, gate=guard)` then resolves once more.
        """
        loop = asyncio.get_running_loop()
        self._ask_breaker(loop.time())
        deadline = None if timeout is None else loop.time() + timeout
        entered = False
        try:
            async with AsyncExitStack() as gates:
                if self._limit is not None:
                    await self._limit.acquire(
                        cost, key=key, timeout=_left(deadline), resolution=resolution
                    )
                permit = None
                if self._pool is not None:
                    lease = self._pool.lease(key, timeout=_left(deadline), resolution=resolution)
                    permit = await gates.enter_async_context(lease)
                entered = True
                yield permit
        except BaseException as error:
            if self._breaker is not None:
                if entered and isinstance(error, Exception) and not isinstance(error, _OURS):
                    self._breaker.failed(loop.time())
                else:
                    self._breaker.withdrawn()
            raise
        if self._breaker is not None:
            self._breaker.succeeded(loop.time())

    def _ask_breaker(self, now: float) -> None:
        wait = 0.0 if self._breaker is None else self._breaker.ask(now)
        if wait:
            raise BreakerOpen(
                f"{self.resource!r} failed too often; it is tried again in {wait:.3g} s",
                retry_after=wait,
            )


_OURS = (PermitLost, PoolExhausted, BreakerOpen, StaleResolution)
"""Errors that say nothing about the resource."""


def _left(deadline: float | None) -> float | None:
    if deadline is None:
        return None
    return max(0.0, deadline - asyncio.get_running_loop().time())
