"""Pools as operators see them, and permits of programs that are no hosts."""

from __future__ import annotations

import asyncio
import hashlib
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from msgspec import Struct

from relevo.errors import NotFound
from relevo.governance.calls.pool_calls import ANSWER_SECONDS, POOL_TYPE, PermitAsk, PoolCalls
from relevo.governance.core.pools import WaitingKey
from relevo.governance.errors import PoolExhausted
from relevo.governance.operating.kit_service import KitService
from relevo.governance.pools import ResourcePool, new_ticket
from relevo.kernel.pages import Fetched, first
from relevo.kernel.postgres import catalog

if TYPE_CHECKING:
    from relevo.governance.calls.pool_calls import GrantedPermit, PoolView, StoredPermit
    from relevo.governance.core.pools import PoolOptions

SQL = catalog.load("relevo.governance")
CALL_SECONDS: Final = 10.0


class PoolSummary(Struct, frozen=True, kw_only=True):
    """A pool, in a list."""

    name: str
    size: int | None = None
    """Null, as the others, if it does not answer now."""
    in_use: int | None = None
    waiting: int | None = None
    """Callers that wait for a permit."""


class PoolDetails(Struct, frozen=True, kw_only=True):
    """A pool, with its settings and what waits for it."""

    name: str
    size: int
    """How much may be in use at once."""
    in_use: int
    """Above the size only after that was reduced."""
    waiting: int
    """Callers that wait for a permit."""
    items: tuple[str, ...] | None
    """The named things that it has, if it does not count."""
    per_key: int | None
    """How much a key may have at once; null is no cap."""
    burst: bool
    """Whether a key may have more while no other key waits."""
    max_waiters: int
    waiters: tuple[WaitingKey, ...]
    """The keys that have waited longest."""


class PermitInUse(Struct, frozen=True, kw_only=True):
    """A permit in use."""

    number: int
    """Numbers of a pool only grow."""
    key: str
    weight: int
    item: str | None
    """The named thing that it is for."""
    host: str | None
    """The host that has it, as long as it lives."""
    id: str | None
    """Names the permit of another program."""
    expires_at: datetime | None
    """When that ends unless it is renewed."""


class PoolService(KitService):
    """Makes, changes and removes pools, and grants permits that have a time to live."""

    type_name = POOL_TYPE

    async def list(self, after: str, limit: int) -> tuple[Fetched[PoolSummary], str]:
        """Return pools beyond a name, and the name at which the page ends."""
        found, end = await self.views(after, limit, self._view_of)
        return found.each(lambda one: _summary(*one)), end

    async def get(self, name: str) -> PoolDetails:
        """Return a pool; raises `NotFound`."""
        return _state(name, await self._view_of(name))

    async def _view_of(self, name: str) -> PoolView:
        view: PoolView = await (await self._proxy(name)).view()
        return view

    async def put(self, name: str, options: PoolOptions, *, by: str | None = None) -> bool:
        """Make a pool or change it; whether it is new. Nothing that is in use is revoked."""
        return bool(await (await self._proxy(name, by)).put(options) == "created")

    async def resize(self, name: str, size: int, *, by: str | None = None) -> None:
        """Change the size of a pool; raises `NotFound`."""
        await (await self._proxy(name, by)).resize(size)

    async def delete(self, name: str, *, by: str | None = None) -> None:
        """Remove a pool; raises `NotFound`, and `InUse` while permits are in use."""
        if not await (await self._proxy(name, by)).remove():
            raise NotFound(f"there is no pool {name!r}")

    async def permits(self, name: str, after: int, limit: int) -> Fetched[PermitInUse]:
        """Return permits in use, beyond a number."""
        found: list[StoredPermit] = await (await self._proxy(name)).permits(after, limit)
        lives = {UUID(one.permit.holder.host) for one in found if one.permit.holder.host}
        rows = await self.governance.database.fetch(SQL.host_names, list(lives)) if lives else []
        hosts = {str(row["incarnation"]): row["name"] for row in rows}
        return first(found, limit).each(lambda one: _permit(one, hosts))

    async def lease(
        self,
        name: str,
        *,
        key: str = "",
        weight: int = 1,
        priority: int = 4,
        ttl: float,
        wait: float = 0.0,
        repeat: str | None = None,
    ) -> GrantedPermit:
        """Return a permit that ends after `ttl` seconds unless it is renewed.

        Raises `PoolExhausted` if there is none within `wait` seconds. Asked again with the same
        `repeat` it returns the same permit, as long as that is in use.
        """
        ticket = new_ticket() if repeat is None else _ticket(repeat)
        proxy = await self._proxy(name)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait
        try:
            while True:
                left = max(0.0, deadline - loop.time())
                ask = PermitAsk(
                    tickets=(ticket,), key=key, weight=weight, priority=priority, ttl=ttl,
                    wait=min(left, ANSWER_SECONDS),
                )  # fmt: skip
                calling = proxy.with_(timeout=ask.wait + CALL_SECONDS)
                found: list[GrantedPermit] = await calling.ask(ask)
                if found:
                    return found[0]
                if not left:
                    raise PoolExhausted(
                        f"pool {name!r} had no permit for key {key!r} within {wait:g} s; try again"
                        " later, or raise its size"
                    )
        except asyncio.CancelledError:
            if repeat is None:  # nobody learns of the permit; else the caller may ask again
                pool = ResourcePool(name, None, self.governance.actors, self.governance.holders)
                pool.give_back([ticket])
            raise

    async def renew(self, name: str, permit_id: str, ttl: float) -> GrantedPermit:
        """Put off the end of a permit; raises `NotFound` if it has ended."""
        proxy = await self._proxy(name)
        gone = await proxy.renew([permit_id], ttl)
        found: GrantedPermit | None = None if gone else await proxy.held(permit_id)
        if found is None:
            raise NotFound(
                f"pool {name!r} has no permit {permit_id!r}: it was released or has expired; stop"
                " what it allowed, and lease another"
            )
        return found

    async def release(self, name: str, permit_id: str) -> None:
        """Take a permit back; one that has ended is nothing new."""
        await (await self._proxy(name)).release([permit_id])

    async def _proxy(self, name: str, by: str | None = None) -> Any:
        return await self.proxy(PoolCalls, name, by)


def instant(seconds: float | None) -> datetime | None:
    """Return a time of the store."""
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)


def _ticket(repeat: str) -> str:
    return hashlib.blake2b(repeat.encode(), digest_size=12).hexdigest()


def _summary(name: str, view: PoolView | None) -> PoolSummary:
    if view is None:
        return PoolSummary(name=name)
    return PoolSummary(name=name, size=view.size, in_use=view.in_use, waiting=view.waiting)


def _state(name: str, view: PoolView) -> PoolDetails:
    options = view.options
    return PoolDetails(
        name=name, size=view.size, in_use=view.in_use, waiting=view.waiting, items=options.items,
        per_key=options.per_key, burst=options.burst, max_waiters=options.max_waiters,
        waiters=view.waiters,
    )  # fmt: skip


def _permit(stored: StoredPermit, hosts: dict[str, str]) -> PermitInUse:
    permit = stored.permit
    host = permit.holder.host
    return PermitInUse(
        number=permit.number, key=permit.key, weight=permit.weight, item=permit.item,
        host=None if host is None else hosts.get(host, host),
        id=stored.ticket if host is None else None, expires_at=instant(permit.expires_at),
    )  # fmt: skip
