"""`app.governance`: pools, limits, writers and what else governs scarce resources."""

from __future__ import annotations

from typing import TYPE_CHECKING

from relevo.actors.core.identity import checked_key
from relevo.errors import InvalidValue
from relevo.governance.clock import StoreClock
from relevo.governance.core.pools import WAITERS_MAX, PoolOptions
from relevo.governance.holders import Holders
from relevo.governance.pool_actor import define_pool
from relevo.governance.pools import ResourcePool
from relevo.kernel.leases.directory import Directory
from relevo.kernel.part import Part, Service

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime
    from uuid import UUID

    from relevo.actors.service import Actors
    from relevo.kernel.part import Connection, Host

CLOSE_SECONDS = 5.0


class Governance(Service):
    """Governs scarce resources with actors of its own, which every host serves.

    >>> erp = app.governance.pool("erp", size=20)  # doctest: +SKIP
    >>> async with erp.lease(key="acme") as permit:  # doctest: +SKIP
    ...     await call_erp(permit.fence)
    """

    def __init__(self, connection: Connection, actors: Actors) -> None:
        super().__init__(connection)
        self._actors = actors
        self.holders = Holders()
        self.clock = StoreClock(actors.now)
        self._pools: dict[str, ResourcePool] = {}
        define_pool(actors, self.clock, self._ended_lives)

    def pool(
        self,
        name: str,
        *,
        size: int | None = None,
        per_key: int | None = None,
        burst: bool = False,
        max_waiters: int = WAITERS_MAX,
    ) -> ResourcePool:
        """Return a pool; no I/O, so modules may call it on import. It is made when first used.

        At most `size` is in use at once, over all hosts. A key, such as a tenant, has at most
        `per_key` of it; with `burst` more while no other key waits. Without `size` the pool is one
        that this program has named before, or that exists.
        """
        checked_key(name)
        if size is None:
            return self._pools.get(name) or ResourcePool(name, None, self._actors, self.holders)
        if per_key is not None and per_key < 1:
            raise InvalidValue(f"per_key is {per_key!r}; give 1 or more", pointer="per_key")
        options = PoolOptions(size=size, per_key=per_key, burst=burst, max_waiters=max_waiters)
        known = self._pools.get(name)
        if known is None or known.options != options:
            known = self._pools[name] = ResourcePool(name, options, self._actors, self.holders)
        return known

    async def _ended_lives(self, lives: Iterable[UUID]) -> tuple[datetime, set[UUID]]:
        return await Directory(self.database, self.wakeups).ended_lives(lives)


class GovernancePart(Part[Governance]):
    """Lets permits live with the host while there is one."""

    async def start(self, host: Host) -> None:
        """Take permits in the name of the host from now on."""
        self.service.holders.leases = host.leases

    async def stop(self, timeout: float) -> None:
        """Finish releases that are under way; what is left ends with the host."""
        await self.service.holders.close(min(timeout, CLOSE_SECONDS))
        self.service.holders.leases = None

    async def close(self) -> None:
        """Finish releases of a client."""
        await self.service.holders.close(CLOSE_SECONDS)
