"""`app.router`: jobs, workers, offers, policies and queues, in Python.

A change is committed when its call returns; matching follows by itself. Names are
those of Azure's API in Python's spelling, together with those of its first versions:
`register_worker`, `total_capacity`, `offer_ttl`, `define_channel`.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal

from relevo.kernel import checking
from relevo.kernel.leases.loops import Duty
from relevo.kernel.outbound.addresses import Allowed
from relevo.kernel.outbound.lazy_client import LazyClient
from relevo.kernel.part import Part, PerConnection
from relevo.kernel.postgres import catalog
from relevo.kernel.postgres.repeating import until_fewer
from relevo.kernel.telemetry.store_figures import READ_SECONDS
from relevo.router import events
from relevo.router.administration import Administration, StoredResource
from relevo.router.commands import RouterCall, RouterCommands
from relevo.router.core import workers
from relevo.router.explanations import Explanations
from relevo.router.figures import RouterFigures
from relevo.router.jobs import JobOperations
from relevo.router.matcher.matcher import Matcher
from relevo.router.matcher.rule_calls import RuleCaller
from relevo.router.offers import Desk
from relevo.router.storage import MANAGED_CHANNELS, Remembered, RouterOptions
from relevo.router.watching import Watching
from relevo.router.workers import WorkerOperations

if TYPE_CHECKING:
    from collections.abc import Mapping

    from relevo.kernel.events import EventLog
    from relevo.kernel.part import Host
    from relevo.kernel.postgres import Database, Wakeups
    from relevo.kernel.telemetry.metrics import Metrics
    from relevo.router.core.world import World
    from relevo.router.wire.credentials import Sealer
    from relevo.settings import Settings

SQL = catalog.load(__package__)
OFFERS_KEPT_SECONDS = 86_400.0
"""How long an offer without an assignment is kept, to tell 409 from 404."""
FORGET_ROWS_MAX = 2_000
"""Rows that are forgotten in one transaction."""
DAY = 86_400.0


class Router(JobOperations, WorkerOperations):
    """The job router of an app.

    >>> await app.router.register_worker("ana", queues=["kitchen"], channels={"pizza": 50})
    ...     # doctest: +SKIP
    """

    def __init__(self, settings: Settings, log: EventLog, sealer: Sealer) -> None:
        self.options = RouterOptions(
            unassign_max=settings.router_unassign_max or None,
            deregister_on_expiry=settings.router_deregister_on_expiry,
            idle_seconds=settings.router_worker_idle_days * DAY or None,
            job_retention_seconds=settings.router_job_retention_days * DAY or None,
            strict_channels=settings.router_strict_channels,
        )
        self._allowed = Allowed.parse(settings.outbound_allow)
        self._log = log
        self._sealer = sealer
        self._tools = PerConnection(
            log.connection, lambda database, wakeups: Tools(database, wakeups, self)
        )
        log.catalogue.register(*events.TYPES)

    @property
    def watching(self) -> Watching:
        """The offers of a worker, as they come and end."""
        return self._tools().watching

    @property
    def policies(self) -> Administration:
        """Policies and queues as the wire has them."""
        return self._tools().policies

    @property
    def explanations(self) -> Explanations:
        """Explanations of waiting jobs and idle workers."""
        return self._tools().explanations

    @property
    def client(self) -> LazyClient:
        """The client for calls to other services, limited to allowed addresses."""
        return self._tools().client

    async def set_distribution_policy(
        self,
        policy_id: str,
        *,
        mode: Literal["longestIdle", "roundRobin", "bestWorker"]
        | Mapping[str, Any] = "longestIdle",
        offer_ttl: timedelta | float | None = None,
        name: str | None = None,
    ) -> StoredResource:
        """Set a distribution policy; `mode` may be the wire's object."""
        seconds = None if offer_ttl is None else checking.seconds(offer_ttl)
        change = {
            "name": name, "offerExpiresAfterSeconds": seconds,
            "mode": {"kind": mode} if isinstance(mode, str) else dict(mode),
        }  # fmt: skip
        return await self.policies.patch("distributionPolicies", policy_id, change)

    async def set_queue(
        self,
        queue_id: str,
        *,
        distribution_policy: str,
        exception_policy: str | None = None,
        labels: Mapping[str, Any] | None = None,
        name: str | None = None,
    ) -> StoredResource:
        """Make or change a queue."""
        change = {
            "distributionPolicyId": distribution_policy, "exceptionPolicyId": exception_policy,
            "name": name, "labels": dict(labels or {}),
        }  # fmt: skip
        return await self.policies.patch("queues", queue_id, change)

    async def define_channel(self, channel_id: str, name: str) -> None:
        """Give a channel a name; in strict mode only defined and managed channels can be used."""
        await self.policies.define_channel(channel_id, name)

    async def channels(self) -> dict[str, str]:
        """Return the channels that are known, with their names."""
        managed = {one: one for one in MANAGED_CHANNELS}
        return managed | await self.policies.channels()

    def worker(self, worker_id: str) -> Desk:
        """Return the desk of a worker: `async for offer in app.router.worker("ana").offers()`."""
        return Desk(self, worker_id)


class Tools:
    """The objects that carry out a router's calls on one connection."""

    def __init__(self, database: Database, wakeups: Wakeups, router: Router) -> None:
        remembered = Remembered(router._sealer, router.options)
        self.database = database
        self.client = client = LazyClient(router._allowed)
        self.commands = RouterCommands(database, router._log, remembered)
        self.policies = Administration(database, router._log, router._sealer)
        self.watching = Watching(database, wakeups)
        self.caller = RuleCaller(client)
        self.matcher = Matcher(database, wakeups, self.commands, remembered, self.caller)
        self.explanations = Explanations(database, remembered, self.caller)


class RouterPart(Part[Router]):
    """Makes a host a candidate for matching, and deletes expired rows."""

    def __init__(self, service: Router, metrics: Metrics) -> None:
        super().__init__(service)
        self.figures = RouterFigures(lambda: service._tools().database)
        metrics.registry.register(self.figures)

    async def start(self, host: Host) -> None:
        """Become a candidate for matching."""
        await self.service._tools().matcher.join(host.leases)

    async def close(self) -> None:
        """Let calls under way end."""
        await self.service._tools().commands.close()
        await self.service._tools().client.close()

    def duties(self) -> list[Duty]:
        """Return what housekeeping should do for the router."""
        return [
            Duty("deregister idle workers", 60.0, self.deregister_idle),
            Duty("forget ended offers", 60.0, self.forget),
            Duty("router.figures", READ_SECONDS, self.figures.read),
        ]

    async def deregister_idle(self) -> int:
        """Deregister workers that were idle for too long; return how many."""
        seconds, tools = self.service.options.idle_seconds, self.service._tools()
        if seconds is None:
            return 0
        rows = await tools.database.fetch(SQL.idle_workers, seconds)
        for row in rows:
            await tools.commands.call(_deregister_call(row["id"], timedelta(seconds=seconds)))
        return len(rows)

    async def forget(self) -> None:
        """Delete ended offers, and jobs whose retention is over."""
        await self._forget(SQL.forget_offers, OFFERS_KEPT_SECONDS)
        if self.service.options.job_retention_seconds is not None:
            await self._forget(SQL.forget_jobs, self.service.options.job_retention_seconds)

    async def _forget(self, sql: str, seconds: float) -> None:
        """Delete in small batches until nothing of that age is left."""
        database = self.service._tools().database

        async def step() -> int:
            rows = await database.write(sql, seconds, FORGET_ROWS_MAX, idempotent=True)
            return int(rows[0][0])

        await until_fewer(FORGET_ROWS_MAX, step)


def _deregister_call(worker_id: str, limit: timedelta) -> RouterCall:
    def decide(world: World) -> None:
        worker = world.workers.get(worker_id)
        if worker is None or not worker.available or worker.holding:
            return
        if world.now - max(worker.seen_at, worker.idle_since) > limit:
            workers.deregister(world, worker, edited=False)

    return RouterCall(decide, whole=(worker_id,))
