"""Hosts whose handler cannot take some changes."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

from relevo import App, settings
from relevo.feed.operating.dead_letters import DeadLetters
from relevo.feed.processing import host as processors
from relevo.feed.processing.processor import Processor
from tests.feed.test_processor import AT_ONCE, QUICK, Kitchen

if TYPE_CHECKING:
    from relevo.feed.model import Change
    from relevo.feed.processing.context import ChangeContext

UNIT = "leases/orders/kitchen"


class Diner(Kitchen):
    """A kitchen whose cook cannot take some dishes; keeps all calls and notifications."""

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self.bad: set[str] = set()
        self.calls: list[list[str]] = []
        self.told: list[tuple[str, str, Any]] = []
        self.letters = DeadLetters(self.database, UNIT, None)

    async def picky(self, ctx: ChangeContext, changes: list[Change[Any]]) -> None:
        self.calls.append([change.id for change in changes])
        if self.bad & {change.id for change in changes}:
            raise ValueError("cannot take it")
        await self.cook(changes)

    async def open(self, host: str = "a", handler: Any = None, **options: Any) -> Processor:
        """Serve, with notifications kept from the first one on."""
        own = await self._stack.enter_async_context(AsyncExitStack())
        app = App(settings=settings.load({**QUICK, "database_url": self._url}, environ={}))
        await own.enter_async_context(app.host(name=host))
        self.hosts[host] = own
        told: dict[str, Any] = {"poll_interval": 0.05, "backoff": AT_ONCE, "start": "beginning"}
        processor = Processor("orders", "kitchen", handler or self.picky, **(told | options))
        for event in ("acquired", "released", "error", "stall", "dead_lettered"):
            getattr(processor, f"on_{event}")(self._keep(event))
        await processors.start(processor, app.database, app.wakeups, app.leases, app.supervisor)
        return processor

    def _keep(self, event: str) -> Any:
        return lambda token, details: self.told.append((event, token, details))

    def heard(self, event: str) -> list[Any]:
        return [details for one, _, details in self.told if one == event]

    async def write_one_by_one(self, *numbers: int) -> None:
        for n in numbers:
            await self.orders.upsert({"id": str(n), "city": "x"})

    async def write_as_one_group(self, *numbers: int) -> None:
        result = await self.orders.bulk([{"id": str(n), "city": "x"} for n in numbers])
        assert not result.failures
