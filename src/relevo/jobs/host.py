"""What hosts do for jobs: claim and run them here, and see to those of all as the leader."""

from __future__ import annotations

import asyncio
import itertools
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

from relevo.jobs import states
from relevo.jobs.loops import Timers
from relevo.jobs.running.processes import call_in_process
from relevo.jobs.running.runner import job_runner
from relevo.jobs.service import Jobs
from relevo.kernel.leases.loops import Duty
from relevo.kernel.part import Part, PerConnection
from relevo.kernel.postgres import catalog
from relevo.kernel.running.processes import Processes

if TYPE_CHECKING:
    from relevo.jobs.running.runner import JobRunner
    from relevo.kernel.leases import Leases
    from relevo.kernel.part import Host
    from relevo.kernel.postgres import Database, Wakeups
    from relevo.kernel.supervision import Supervisor
    from relevo.settings import Settings

SQL = catalog.load(__package__)
SERVED_SECONDS = 60.0
TEND_SECONDS = 0.75
"""How often the leader looks at what happens to jobs by itself: timers are to be in time by 1 s."""


class JobsPart(Part[Jobs]):
    """Runs jobs on a host, and does what one host does for those of all."""

    def __init__(self, service: Jobs, settings: Settings) -> None:
        super().__init__(service)
        self._settings = settings
        self._timers = PerConnection(service.connection, self._new_timers)
        self._host: JobRunner | None = None
        self._supervisor: Supervisor | None = None
        self._processes = Processes()
        self._numbers = itertools.count(1)

    @property
    def timers(self) -> Timers:
        """What happens to jobs by itself."""
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
        """What one host does for all."""
        tending = Duty("jobs.tend", TEND_SECONDS, self._tend)
        return [tending, *self.timers.duties(), *self.service.waits.duties()]

    async def _tend(self) -> None:
        """See to what happens to jobs by itself; an idle installation costs one look."""
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
        if found["brakes"] and jobs.brakes.on:
            await jobs.brakes.watch()

    async def declare(self) -> None:
        """Write which lanes and handlers there are."""
        lanes = self.service.registry.declared()
        await self.service.database.write(
            SQL.declare_lanes, [one.name for one in lanes], [one.events for one in lanes],
            [one.priority for one in lanes], [one.max_running_per_owner for one in lanes],
            [one.shared_tokens for one in lanes],
            idempotent=True,
        )  # fmt: skip
        await self._declare_handlers()

    async def _declare_handlers(self) -> None:
        handlers = list(self.service.registry.handlers.values())
        if handlers:
            await self.service.database.write(
                SQL.declare_handlers, [one.name for one in handlers],
                [one.lane for one in handlers], [one.operation_type for one in handlers],
                [one.auto_delete for one in handlers], [one.crashes_max for one in handlers],
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
        """Serve one life after the other."""
        while True:
            if not leases.may_act:
                await asyncio.sleep(0.1)
                continue
            jobs = self.service
            self._host = job_runner(
                *jobs.connection.opened, leases, jobs.registry,
                partial(call_in_process, self._processes), jobs.service_for, self._numbers,
                jobs.brakes,
            )  # fmt: skip
            await self._host.run()
            if self._host.stopping:  # whoever stops it ends this loop next
                await asyncio.Event().wait()

    async def stop(self, timeout: float) -> None:
        """Claim nothing more; let handlers end, then give back what they did not finish."""
        if self._supervisor is None:
            return
        if self._host is not None:
            await self._host.stop(timeout)
        await self._supervisor.stop("jobs.work")
        await self._supervisor.stop("jobs.failures")
        await self._supervisor.stop("jobs.declare")
        await self._processes.close()
        self._host = self._supervisor = None

    async def close(self) -> None:
        """Finish the submits and commands that were accepted, and end waits."""
        await self.service._tools().close()
