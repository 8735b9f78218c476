"""The jobs part on a host: claims and runs jobs; the leader also does housekeeping for all."""

from __future__ import annotations

import asyncio
import itertools
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Final

from relevo.jobs import states
from relevo.jobs.commands import HOST_TOPIC
from relevo.jobs.figures import JobFigures
from relevo.jobs.running.claims import JobClaim, JobSettlement
from relevo.jobs.running.ledger import JobLedger
from relevo.jobs.running.processes import call_in_process
from relevo.jobs.service import Jobs
from relevo.jobs.submitting.submission import TOPIC
from relevo.jobs.timers import Timers
from relevo.kernel.leases.loops import Duty
from relevo.kernel.part import Part, PerConnection
from relevo.kernel.postgres import catalog
from relevo.kernel.postgres.polling import Question
from relevo.kernel.running.lanes import HostLane
from relevo.kernel.running.processes import Processes
from relevo.kernel.running.runner import Runner
from relevo.kernel.telemetry.store_figures import READ_SECONDS

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from relevo.jobs.registry import HandlerRegistry
    from relevo.kernel.leases import Leases
    from relevo.kernel.part import Host
    from relevo.kernel.postgres import Database, Wakeups
    from relevo.kernel.supervision import Supervisor
    from relevo.kernel.telemetry.metrics import Metrics
    from relevo.settings import Settings

SQL = catalog.load(__package__)
SERVED_SECONDS = 60.0
TEND_SECONDS = 0.5
"""Seconds between two looks of the leader for due work; timers may be late by 1 s."""

_DECLARED: Final = ("name", "lane", "operation_type", "auto_delete", "crashes_max", "priority")
_SERVED: Final = ("name", "slots", "pool", "limit")
JobRunner = Runner[JobClaim, JobSettlement]


class JobsPart(Part[Jobs]):
    """Runs jobs on a host, and does the leader's duties."""

    def __init__(self, service: Jobs, settings: Settings, metrics: Metrics) -> None:
        super().__init__(service)
        self.figures = JobFigures(lambda: service.views)
        metrics.registry.register(self.figures)
        self._settings = settings
        self._timers = PerConnection(service.connection, self._new_timers)
        self._host: JobRunner | None = None
        self._supervisor: Supervisor | None = None
        self._processes = Processes()
        self._numbers = itertools.count(1)

    @property
    def timers(self) -> Timers:
        """Due series, lost hosts, retention."""
        return self._timers()

    def _new_timers(self, database: Database, wakeups: Wakeups) -> Timers:
        settings = self._settings

        def kept(days: float) -> timedelta | None:
            return timedelta(days=days) if days else None

        return Timers(
            database, wakeups, crashes_max=settings.jobs_crashes_max,
            retention={
                states.SUCCEEDED: kept(settings.jobs_keep_succeeded_days),
                states.CANCELED: kept(settings.jobs_keep_canceled_days),
                states.FAILED: kept(settings.jobs_keep_failed_days),
            },
        )  # fmt: skip

    def duties(self) -> list[Duty]:
        """Return the duties of the leader."""
        tending = Duty("jobs.tend", TEND_SECONDS, self._tend, Question(SQL.tend))
        measuring = Duty("jobs.figures", READ_SECONDS, self.figures.read)
        return [tending, measuring, *self.timers.duties(), *self.service.waits.duties()]

    async def _tend(self) -> None:
        """Do due work; an idle installation costs one statement."""
        jobs = self.service
        found = await jobs.database.fetchrow(SQL.tend)
        assert found is not None
        if found["lost"]:
            await self.timers.recover()
        if found["series"]:
            await self.timers.start_series()
        if found["waits"]:
            await jobs.waits.wake()
            await jobs.waits.end_orphans(jobs.commands)
        if found["batches"]:
            await jobs.batches.tend()
        if found["brakes"] and jobs.brakes.on:
            await jobs.brakes.watch()

    async def declare(self) -> None:
        """Store the lanes and handlers of this host."""
        lanes = self.service.registry.declared()
        await self.service.database.write(
            SQL.declare_lanes, [lane.name for lane in lanes], [lane.events for lane in lanes],
            [lane.priority for lane in lanes], [lane.max_running_per_owner for lane in lanes],
            [lane.shared_tokens for lane in lanes],
            idempotent=True,
        )  # fmt: skip
        await self._declare_handlers()
        if self.service.registry.handlers:
            await self.service.schedules.declare(self.service.registry.handlers)

    async def _declare_handlers(self) -> None:
        handlers = list(self.service.registry.handlers.values())
        if handlers:
            await self.service.database.write(
                SQL.declare_handlers,
                *([getattr(handler, name) for handler in handlers] for name in _DECLARED),
                idempotent=True,
            )

    async def _declare_served(self, host: UUID) -> None:
        """Store what this life of the host serves, for those who ask why a job waits."""
        registry = self.service.registry
        handlers = list(registry.handlers.values())
        served = {handler.lane for handler in handlers}
        lanes = [lane for name, lane in registry.lanes.items() if name in served]
        await self.service.database.write(
            SQL.declare_served, host,
            *([getattr(lane, name) for lane in lanes] for name in _SERVED),
            [handler.lane for handler in handlers], [handler.name for handler in handlers],
            idempotent=True,
        )  # fmt: skip

    async def start(self, host: Host) -> None:
        """Begin to claim and run; a host without handlers has nothing to run."""
        if not self.service.registry.handlers:
            return
        self._supervisor = host.supervisor
        self._supervisor.run("jobs.declare", self._declare_often)
        self._supervisor.run("jobs.failures", self.service.brakes.count)
        self._supervisor.run("jobs.work", lambda: self._work(host.leases))

    async def _declare_often(self) -> None:
        while True:
            await self._declare_handlers()
            await asyncio.sleep(SERVED_SECONDS)

    async def _work(self, leases: Leases) -> None:
        """Run jobs, one life of the host after the other."""
        while True:
            if not leases.may_act:
                await asyncio.sleep(0.1)
                continue
            await self._declare_served(leases.life.incarnation)
            self._host = self._runner(leases)
            await self._host.run()
            if self._host.stopping:  # `stop` ends this loop next
                await asyncio.Event().wait()

    def _runner(self, leases: Leases) -> JobRunner:
        """Return the runtime that claims and runs jobs until the host's present life ends."""
        jobs, life = self.service, leases.life
        host = life.incarnation
        database, wakeups = jobs.connection.opened
        lanes = _served(jobs.registry)
        ledger = JobLedger(
            database, wakeups, host, leases.name, jobs.registry, lanes,
            partial(call_in_process, self._processes), jobs.service_for, jobs.brakes,
            asyncio.get_running_loop(),
        )  # fmt: skip
        topics = (TOPIC, HOST_TOPIC.format(host))
        return Runner(wakeups, leases, life, lanes, ledger, self._numbers, topics, database.metrics)

    async def stop(self, timeout: float) -> None:
        """Claim nothing more; let handlers end, then give back unfinished jobs."""
        if self._supervisor is None:
            return
        if self._host is not None:
            await self._host.stop(timeout)
        await self._supervisor.stop("jobs.work")
        await self._supervisor.stop("jobs.failures")
        await self._supervisor.stop("jobs.declare")
        await self._processes.close()
        self._host = self._supervisor = None

    def at_work(self) -> Sequence[str]:
        """Return the running jobs."""
        claims = [] if self._host is None else self._host.at_work
        return [f"job {claim.name} ({claim.label})" for claim in claims]

    async def close(self) -> None:
        """Finish accepted submits and commands, and end waits."""
        await self.service._tools().close()


def _served(registry: HandlerRegistry) -> dict[str, HostLane[JobClaim]]:
    """The lanes that the handlers of an app are in."""
    handlers: dict[str, list[str]] = {}
    for handler in registry.handlers.values():
        handlers.setdefault(handler.lane, []).append(handler.name)
    lanes = {}
    for name, names in handlers.items():
        lane = registry.lanes[name]
        budget = registry.budgets.open(lane.pool, lane.limit, lane.slots)
        lanes[name] = HostLane[JobClaim](name, lane.slots, names, budget=budget)
    return lanes
