"""`App` composes the parts; the only module that knows them all."""

from __future__ import annotations

import asyncio
import contextlib
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from relevo import settings as settings_module
from relevo.actors.app_methods import ActorMethods
from relevo.actors.host import ActorsPart
from relevo.actors.operating import events as actor_events
from relevo.actors.service import Actors
from relevo.audit.service import Audit, AuditPart
from relevo.dataverse.bulk.service import Bulk, BulkPart
from relevo.dataverse.users.service import Users
from relevo.errors import Conflict, HostSuperseded, NotFound, RelevoError, SchemaError
from relevo.feed.app_methods import FeedMethods
from relevo.feed.event_feed import EventFeed
from relevo.feed.service import FeedPart, Feeds
from relevo.governance.operating import events as governance_events
from relevo.governance.operating.figures import GovernanceFigures
from relevo.governance.service import Governance, GovernancePart
from relevo.history.service import History, HistoryPart
from relevo.idempotency.service import Idempotency, IdempotencyPart
from relevo.jobs import events as job_events
from relevo.jobs.app_methods import JobMethods
from relevo.jobs.host import JobsPart
from relevo.jobs.service import Jobs
from relevo.kernel import serving, uses
from relevo.kernel.events import EventLogPart
from relevo.kernel.leases.directory import Directory
from relevo.kernel.leases.loops import Housekeeping
from relevo.kernel.leases.model import LeaseConfig
from relevo.kernel.leases.service import Leases
from relevo.kernel.part import Connection, Host, Parts
from relevo.kernel.postgres import catalog, clock, restores
from relevo.kernel.postgres.database import Database
from relevo.kernel.postgres.migration import migrate
from relevo.kernel.postgres.pool import address
from relevo.kernel.postgres.wakeups import Wakeups
from relevo.kernel.sealing import Vault
from relevo.kernel.supervision import Supervisor
from relevo.kernel.telemetry import logs
from relevo.kernel.telemetry.metrics import Metrics
from relevo.messaging import events as message_events
from relevo.messaging.app_methods import MessagingMethods
from relevo.messaging.host import MessagingPart
from relevo.messaging.service import Messaging
from relevo.pipeline.app_methods import PipelineMethods
from relevo.pipeline.service import Pipeline, PipelinePart
from relevo.router.service import Router, RouterPart
from relevo.store import Store
from relevo.store.service import StorePart
from relevo.webhooks.host import WebhooksPart
from relevo.webhooks.service import Webhooks
from relevo.workflows.app_methods import WorkflowMethods

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence
    from datetime import datetime

    from relevo.kernel.running.budgets import BudgetSource
    from relevo.settings import Settings

SQL = catalog.load("relevo.kernel.postgres")


class Health(Struct, frozen=True):
    """Whether a host can do its work, and the reasons if it cannot."""

    ok: bool
    reasons: tuple[str, ...] = ()
    write_probe_age: float | None = None
    """Seconds since the last test write to the database; None before the first."""


class App(
    FeedMethods, JobMethods, WorkflowMethods, PipelineMethods, MessagingMethods, ActorMethods
):
    """Relevo on one database: embedded by default, or the PostgreSQL at a URL.

    `async with app` connects and migrates: a client. `async with app.host()` also serves.

    >>> app = relevo.App()  # doctest: +SKIP
    >>> async with app:  # doctest: +SKIP
    ...     print(await app.now())
    """

    def __init__(
        self,
        database_url: str | None = None,
        *,
        settings: Settings | None = None,
        **overrides: Any,
    ) -> None:
        if settings is None:
            settings = settings_module.load({"database_url": database_url, **overrides})
        self.settings = settings
        logs.join_program(settings.log_level)
        self.metrics = Metrics()
        self.supervisor = Supervisor(self.metrics)
        self.vault = Vault(settings.secret_key, settings.home)
        self.parts = Parts()
        self._connection = connection = Connection()
        self.store = self.parts.add(StorePart(Store(connection)))
        self.feeds = Feeds(connection, self.store, target_lag=settings.feed_target_lag)
        self.events = EventFeed(self.feeds)
        self.parts.add(EventLogPart(self.events))
        self.parts.add(FeedPart(self.feeds))
        self.router = self.parts.add(
            RouterPart(Router(settings, self.events, self.vault), self.metrics)
        )
        catalogue = self.events.catalogue
        self.actors = self.parts.add(
            ActorsPart(Actors(connection, settings, self.vault, catalogue))
        )
        self.metrics.registry.register(self.actors.types.figures)
        self.governance = self.parts.add(GovernancePart(Governance(connection, self.actors)))
        self.metrics.registry.register(GovernanceFigures(lambda: self.actors.own_runtime))
        self.users = Users(connection)
        self.jobs = self.parts.add(JobsPart(Jobs(connection, settings), settings, self.metrics))
        self.pipeline = self.parts.add(PipelinePart(Pipeline(self.jobs, self.vault, self.users)))
        self.messaging = self.parts.add(
            MessagingPart(Messaging(connection, settings), self.metrics)
        )
        self.history = self.parts.add(HistoryPart(History(connection)))
        self.use_budgets(self.governance.budgets)
        self.actors.permit_of = lambda pool, size: self.governance.pool(pool, size=size).lease
        catalogue.register(
            *job_events.TYPES,
            *message_events.CATALOGUE,
            *actor_events.CATALOGUE,
            *governance_events.CATALOGUE,
        )
        self.audit = self.parts.add(AuditPart(Audit(self.events)))
        self.idempotency = self.parts.add(IdempotencyPart(Idempotency(connection)))
        webhooks = Webhooks(self.events, settings, self.vault)
        self.webhooks = self.parts.add(WebhooksPart(webhooks, self.events, self.metrics))
        self._bulk: Bulk | None = None
        self._connected = False
        self._leases: Leases | None = None

    @property
    def database(self) -> Database:
        """The pool; raises before `async with app`."""
        return self._connection.opened[0]

    @property
    def database_url(self) -> str:
        """URL of the database in use, for your own SQLAlchemy, psycopg or asyncpg.

        Of the embedded database it is known from `async with app` on, and `Conflict` before.
        """
        if self._connection.is_open:
            return self.database.endpoint.url_for_drivers
        if self.settings.database_url is None:
            raise Conflict(
                "the embedded database has no URL before it runs; read app.database_url inside"
                " `async with app`"
            )
        return address.for_drivers(self.settings.database_url)

    @property
    def wakeups(self) -> Wakeups:
        """Hints to and from other processes."""
        return self._connection.opened[1]

    @property
    def directory(self) -> Directory:
        """Hosts and leases, and the operators' commands on them."""
        return Directory(self.database, self.wakeups)

    @property
    def leases(self) -> Leases:
        """The leases of this host; raises unless `app.host()` runs."""
        if self._leases is None:
            raise Conflict("this app is a client; leases are held inside `async with app.host()`")
        return self._leases

    def use_budgets(self, source: BudgetSource) -> None:
        """Set where lanes and consumers get the pools and limits that they name.

        By default they are those of `app.governance`, which all hosts share.
        """
        self.jobs.registry.budgets.source = source
        self.messaging.registry.budgets.source = source

    def serve_only(self, *names: str) -> None:
        """Serve only these jobs, processors, consumers and types of actors on this host, by name.

        A type of actors is served with all others of its placement group.
        Raises `NotFound` for a name that the app does not define.
        """
        jobs, feeds = self.jobs.registry.handlers, self.feeds.processors
        consumers = self.messaging.registry.consumers
        types = self.actors.types.by_name
        known = {*jobs, *consumers, *types, *(one.name for one in feeds.values())}
        if strange := sorted(set(names) - known):
            raise NotFound(
                f"this app has no job, processor, consumers or actor type {strange[0]!r}; it has"
                f" {', '.join(sorted(known)) or 'none'}"
            )
        for name in jobs.keys() - set(names):
            del jobs[name]
        for name in consumers.keys() - set(names):
            del consumers[name]
        self.actors.types.serve_only(names)
        self.feeds.only([one for one in feeds.values() if one.name in names])

    def serve_bulk(self) -> None:
        """Let this host run bulk operations of all apps; call this before it serves."""
        self._bulk = self.bulk

    @property
    def bulk(self) -> Bulk:
        """Bulk operations; a host that uses this before it serves runs those of all apps."""
        if self._bulk is None:
            made = Bulk(self.jobs, self.users.rights_of, self.pipeline.registry)
            self._bulk = self.parts.add(BulkPart(made))
        return self._bulk

    async def now(self) -> datetime:
        """Return the time by which Relevo decides: `relevo.now()` of the database."""
        return await clock.now(self.database)

    async def connect(self) -> None:
        """Open the database and migrate its schema, as `async with app` does."""
        database = await Database.open(self.settings, self.metrics)
        try:
            await self._prepare(database)
        except BaseException:
            await database.close()
            raise
        self._connection.open(database, Wakeups(database))
        self._connected = True

    async def _prepare(self, database: Database) -> None:
        if self.settings.migrate:
            await migrate.up(database)
        elif pending := await migrate.check(database):
            raise SchemaError(
                f"the database lacks {', '.join(pending)}; run `relevo migrate up`, or start with"
                " migrate = true"
            )
        await restores.recognise(database, serving=False)

    async def close(self) -> None:
        """Disconnect; the embedded server stops if no other process uses it."""
        await self.supervisor.stop()
        if self._connected:
            await self.parts.close()
            await self.wakeups.close()
            await self.database.close()
            self._connected = False

    @property
    def is_connected(self) -> bool:
        """Whether it has a database now."""
        return self._connected

    def forget_connection(self) -> None:
        """Forget, in a forked child, the connection of the parent, which stays as it is."""
        self._connected = False

    async def __aenter__(self) -> App:
        await self.connect()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @asynccontextmanager
    async def host(
        self,
        *,
        name: str | None = None,
        labels: Mapping[str, str] | None = None,
        placement_groups: Sequence[str] | None = None,
    ) -> AsyncIterator[App]:
        """Serve: register as a host, hold leases, run handlers; drains at the end.

        Actors are served in these placement groups, by default in those of the setting
        `actors_placement_groups`.
        """
        self.actors.serve_groups(placement_groups)
        opened = not self._connected
        if opened:
            await self.connect()
        try:
            async with self._serving(name, labels):
                yield self
        finally:
            if opened:
                await self.close()

    @asynccontextmanager
    async def _serving(
        self, name: str | None, labels: Mapping[str, str] | None
    ) -> AsyncIterator[None]:
        if self._leases is not None:
            raise Conflict("this app is a host already; two hosts are two Apps")
        settings = self.settings
        self._leases = Leases(
            self.database,
            self.wakeups,
            self.supervisor,
            config=LeaseConfig(
                expiration=settings.lease_expiration,
                renew=settings.lease_renew,
                acquire=settings.lease_acquire,
            ),
            name=name or settings.host_name,
            address=settings.address,
            labels=labels,
        )
        self.supervisor.run("wakeups.listen", self.wakeups.listen)
        self.supervisor.run("wakeups.poll", self.wakeups.polling.run)
        try:
            await restores.recognise(self.database, serving=True)
            await self._leases.start()
            housekeeping = Housekeeping(self.database, self.wakeups)
            housekeeping.duties += self.parts.duties()
            await housekeeping.join(self._leases)
            await self.parts.start(Host(self._leases, self.supervisor))
            yield
        finally:
            await self.parts.stop(settings.drain_seconds)
            with contextlib.suppress(RelevoError):
                await self._leases.stop(settings.drain_seconds)
            self._leases = None
            await self.supervisor.stop("wakeups.poll")
            await self.supervisor.stop("wakeups.listen")

    async def until_signal(self) -> None:
        """Return at SIGTERM or SIGINT; raise `HostSuperseded` if another host takes its name."""
        await serving.until_signal(self.leases.superseded)
        if self.leases.superseded.is_set():
            raise HostSuperseded(
                f"another process registered as {self.leases.name!r}; give each its own name"
            )

    def run(self, *, name: str | None = None) -> None:
        """Serve until a signal; for worker processes."""

        async def serve() -> None:
            async with self.host(name=name):
                await self.until_signal()

        serving.run(serve())

    async def health(self) -> Health:
        """Return whether this host can do its work, with every reason if it cannot."""
        reasons = [
            f"loop {loop.name} failed: {loop.error}"
            for loop in self.supervisor.health()
            if not loop.running
        ]
        reasons += self.feeds.not_started()
        if self._leases is None:
            reasons.append("host is not running")
        elif self._leases.superseded.is_set():
            reasons.append(f"another process took over as host {self._leases.name}")
        elif not self._leases.may_act:
            reasons.append("host is past its self-fencing deadline: no renewal succeeded in time")
        elif self._leases.draining:
            reasons.append("host is draining")
        age: float | None = None
        try:
            async with asyncio.timeout(2.0):
                with uses.used_for("host"):
                    await self.database.fetchval(SQL.ping)
            held = self._leases
            if held is not None and held.may_act and not held.superseded.is_set():
                probed = await held.probe_writes()
                age = round(probed.age, 3)
                if probed.error is not None:
                    reasons.append(f"database does not take writes: {probed.error}")
        except (RelevoError, TimeoutError) as error:
            reasons.append(f"database is not reachable: {str(error) or 'no answer within 2 s'}")
        return Health(not reasons, tuple(reasons), age)

    def measure(self) -> bytes:
        """Return the current metrics in Prometheus' text form."""
        if self._leases is not None:
            held = self._leases.held
            moving = sum(lease.stopping.is_set() for lease in held)
            self.metrics.leases.labels(state="held").set(len(held) - moving)
            self.metrics.leases.labels(state="releasing").set(moving)
            self.metrics.lease_margin_seconds.set(max(0.0, self._leases.margin))
            self.metrics.clock_skew_seconds.set(-self._leases.skew)
        self.feeds.figures.forget_old(self.metrics)
        return self.metrics.render()
