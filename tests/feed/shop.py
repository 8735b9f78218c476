"""A shop as a user would build it: a container of orders and hosts that come and go."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

from relevo import App, settings
from relevo.kernel.backoff import Backoff
from tests.feed.test_reading import put

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from relevo.feed import Change, FeedContainer, Processor

QUICK = {"lease_expiration": 3.0, "lease_renew": 0.5, "lease_acquire": 0.5, "drain_seconds": 5.0}
OPTIONS: dict[str, Any] = {
    "start": "beginning", "poll_interval": 0.05, "backoff": Backoff(first=0.01, longest=0.02),
}  # fmt: skip


class Shop:
    """A monitored container with `orders` by city, and hosts that are started and stopped."""

    def __init__(self, url: str, client: App, stack: AsyncExitStack) -> None:
        self._url = url
        self._stack = stack
        self.orders: FeedContainer[Any] = client.container("orders", "/city", ranges=4)
        self.client = client
        self.seen: dict[str, Counter[str]] = {}
        """Host to how often it was given which item."""

    def app(self) -> App:
        return App(settings=settings.load({**QUICK, "database_url": self._url}, environ={}))

    async def host(
        self, name: str, handler: Any = None, *, unit: str = "kitchen", **options: Any
    ) -> Processor:
        """Start a host that stays until the test ends."""
        return await self._stack.enter_async_context(self.hosting(name, handler, unit, **options))

    @asynccontextmanager
    async def hosting(
        self,
        name: str,
        handler: Any = None,
        unit: str = "kitchen",
        *,
        listeners: Mapping[str, Callable[..., Any]] | None = None,
        **options: Any,
    ) -> AsyncIterator[Processor]:
        """A host from the start of the block to its end; listeners are there from the first on."""
        app, seen = self.app(), self.seen.setdefault(name, Counter())

        async def note(changes: list[Change[Any]]) -> None:
            seen.update(change.id for change in changes)

        orders = app.container("orders")
        processor = orders.processor(unit, handler or note, **{**OPTIONS, **options})
        for event, callback in (listeners or {}).items():
            getattr(processor, event)(callback)
        async with app.host(name=name):
            yield processor

    async def write(self, *ids: object) -> None:
        result = await self.orders.bulk({"id": str(i), "city": f"c{i}"} for i in ids)
        assert not result.failures

    async def write_unseen(self, item_id: str) -> None:
        """Write in a transaction of one's own, in SQL: nobody is woken by it."""
        async with self.client.database.transaction() as tx:
            await put(tx, {"id": item_id, "city": "x"})

    @property
    def delivered(self) -> Counter[str]:
        return sum(self.seen.values(), Counter())

    async def until_delivered(self, *ids: object) -> None:
        await until(lambda: {str(i) for i in ids} <= set(self.delivered), f"{ids} are delivered")

    async def owners(self, unit: str = "kitchen", leases_in: str = "leases") -> Counter[str | None]:
        found = await self.client.directory.leases(unit=f"{leases_in}/orders/{unit}", limit=500)
        return Counter(lease.owner for lease in found)

    async def until_owners(self, wanted: dict[str | None, int], unit: str = "kitchen") -> None:
        async def so() -> bool:
            return await self.owners(unit) == Counter(wanted)

        await until(so, f"leases are owned as {wanted}")


async def until(condition: Callable[[], Any], what: str) -> None:
    give_up = time.monotonic() + 30
    while True:
        held = condition()
        if held if isinstance(held, bool) else await held:
            return
        assert time.monotonic() < give_up, what
        await asyncio.sleep(0.01)
