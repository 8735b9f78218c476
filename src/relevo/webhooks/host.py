"""The webhooks part on a host: collects events and sends them, as soon as there is a webhook.

Two kinds of leases share the work among hosts: those of the processor that collects, one per stripe
of the event log, and one for each webhook, whose owner sends.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Final

import structlog

from relevo import limits
from relevo.errors import Conflict, LeaseLost, NotFound, RelevoError
from relevo.feed.event_feed import processor_of
from relevo.feed.processing import host as serving
from relevo.kernel.leases.loops import Duty
from relevo.kernel.part import Part
from relevo.kernel.postgres import catalog
from relevo.kernel.postgres.repeating import until_fewer
from relevo.kernel.telemetry.store_figures import READ_SECONDS
from relevo.webhooks.due import DueWebhooks
from relevo.webhooks.fan_out import PROCESSOR, FanOut
from relevo.webhooks.figures import WebhookFigures
from relevo.webhooks.sender import SenderTools, WebhookSender, disable
from relevo.webhooks.service import DEFINED, Webhooks

if TYPE_CHECKING:
    from datetime import datetime
    from uuid import UUID

    from relevo.feed.event_feed import EventFeed
    from relevo.feed.processing.processor import Processor
    from relevo.kernel.leases import Lease, Unit
    from relevo.kernel.outbound.client import Client
    from relevo.kernel.part import Host
    from relevo.kernel.postgres import Transaction
    from relevo.kernel.telemetry.metrics import Metrics

SQL = catalog.load(__package__)
log = structlog.get_logger(__name__)
UNIT: Final = ("webhooks", "relevo.webhooks")
"""Kind and name of the unit with a lease for each webhook."""
WATCH: Final = "webhooks.watch"
DUE: Final = "webhooks.due"
LOOK_SECONDS: Final = 15.0
FORGET_ROWS_MAX: Final = 2_000
COLLECTED_MAX: Final = 500
"""Events that are collected at once."""
AGAIN_SECONDS: Final = 0.5


class WebhooksPart(Part[Webhooks]):
    """Collects and sends events on a host."""

    def __init__(self, service: Webhooks, feed: EventFeed, metrics: Metrics) -> None:
        super().__init__(service)
        self._feed = feed
        self.figures = WebhookFigures(lambda: service.database)
        metrics.registry.register(self.figures)
        self._host: Host | None = None
        self._serving: ServedWebhooks | None = None

    def duties(self) -> list[Duty]:
        """Return the duties of the leader."""
        return [
            Duty("webhooks.figures", READ_SECONDS, self.figures.read),
            Duty("forget deliveries", 60.0, self.forget),
            Duty("disable overfull webhooks", 60.0, self.disable_overfull),
        ]

    async def start(self, host: Host) -> None:
        """Serve webhooks as soon as there are some."""
        self._host = host
        host.supervisor.run(WATCH, self._watch)

    async def stop(self, timeout: float) -> None:
        """Let requests under way end, and release the leases."""
        if self._host is None:
            return
        await self._host.supervisor.stop(WATCH)
        await self._leave(timeout)
        self._host = None

    async def forget(self) -> None:
        """Remove deliveries that ended long ago."""
        await self._forget("delivered", limits.WEBHOOK_DELIVERED_SECONDS)
        await self._forget("dead", limits.WEBHOOK_DEAD_SECONDS)

    async def _forget(self, state: str, seconds: float) -> None:
        async def step() -> int:
            bounds = state, seconds, FORGET_ROWS_MAX
            rows = await self.service.database.write(SQL.forget_deliveries, *bounds)
            return len(rows)

        await until_fewer(FORGET_ROWS_MAX, step)

    async def disable_overfull(self) -> None:
        """Disable webhooks for which too much waits, so that the database does not fill."""
        most, database = limits.WEBHOOK_PENDING_MAX, self.service.database
        for row in await database.fetch(SQL.overfull_webhooks, most):
            reason = f"more than {most} events wait or are dead letters"
            await database.run(partial(self._disable, row["id"], reason), idempotent=True)
            self.service.log.sent()

    async def _disable(self, webhook_id: UUID, reason: str, tx: Transaction) -> None:
        await self.service.log.append(tx, await disable(tx, webhook_id, reason))

    async def _watch(self) -> None:
        """Begin to serve when there is a webhook; stop when there is none any more."""
        service = self.service
        with service.wakeups.signal(DEFINED) as told:
            while True:
                since = await service.database.fetchval(SQL.oldest_webhook)
                if since is None:
                    await self._leave(limits.WEBHOOK_SECONDS_MAX)
                elif self._serving is None:
                    await self._join(since)
                if self._serving is not None:
                    await self._serving.sync()
                await told.wait(LOOK_SECONDS)

    async def _join(self, since: datetime) -> None:
        assert self._host is not None
        self._serving = ServedWebhooks(self.service, self._feed, self._host, since)
        await self._serving.join()

    async def _leave(self, timeout: float) -> None:
        if self._serving is not None:
            await self._serving.leave(timeout)
            self._serving = None


class ServedWebhooks:
    """The webhooks while a host serves them."""

    def __init__(self, service: Webhooks, feed: EventFeed, host: Host, since: datetime) -> None:
        self._service = service
        self._feed = feed
        self._host = host
        database, wakeups = service.connection.opened
        self._due = DueWebhooks(database, wakeups)
        self._processor: Processor = processor_of(
            PROCESSOR, FanOut(database, wakeups).handle, start=since,
            max_items=COLLECTED_MAX, on_start_mismatch="ignore",
        )  # fmt: skip
        self._client: Client | None = None
        self._unit: Unit | None = None

    async def join(self) -> None:
        """Take part in collecting and in sending."""
        from relevo.kernel.outbound.client import Client  # here: it takes long to import

        service, host = self._service, self._host
        if self._client is None:
            self._client = await Client(
                service.allowed, seconds=limits.WEBHOOK_SECONDS_MAX, attempts=1,
                connections=limits.WEBHOOKS_MAX * limits.WEBHOOK_CONCURRENCY,
            ).__aenter__()  # fmt: skip
            host.supervisor.run(DUE, self._due.run)
        database, wakeups = service.connection.opened
        await serving.start(self._processor, database, wakeups, host.leases, host.supervisor)
        if self._unit is None:
            self._unit = await host.leases.join(*UNIT, self._hold, bootstrap=_without_leases)

    async def sync(self) -> None:
        """See to it that every webhook has a lease, and nothing else has."""
        if self._unit is None:
            await self.join()
        assert self._unit is not None
        if await self._service.database.write(SQL.sync_leases, *UNIT, idempotent=True):
            self._service.wakeups.send(self._unit.topic)

    async def leave(self, timeout: float) -> None:
        """Release the leases; the last host forgets the unit that collects, if it is not needed."""
        if self._unit is not None:
            await self._host.leases.leave(self._unit, timeout)
            self._unit = None
        await serving.stop(self._processor, timeout)
        await self._host.supervisor.stop(DUE)
        if self._client is not None:
            await self._client.__aexit__(None, None, None)
            self._client = None
        database = self._service.database
        if await database.fetchval(SQL.oldest_webhook) is None:
            try:
                await self._feed.unit(PROCESSOR).delete()
            except (Conflict, NotFound):
                return  # others serve it still, or have forgotten it

    async def _hold(self, lease: Lease) -> None:
        assert self._client is not None
        service = self._service
        tools = SenderTools(
            log=service.log, client=self._client, vault=service.vault, due=self._due,
            collecting=self._processor.unit_name, public_host=service.public_host,
        )  # fmt: skip
        while not lease.stopping.is_set():
            try:
                await WebhookSender(tools, lease).run()
            except LeaseLost:
                return
            except RelevoError as error:
                log.warning("webhooks.interrupted", lease=lease.name, error=str(error))
                await asyncio.sleep(AGAIN_SECONDS)


async def _without_leases(tx: Transaction, unit_id: int) -> None:
    """Join the unit as it is; `sync` makes the leases."""
