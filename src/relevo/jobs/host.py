"""The host's side of `app.jobs`: claim and run jobs here, and see to those of all as the leader."""

from __future__ import annotations

import asyncio
import itertools
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from relevo.jobs import states
from relevo.jobs.brakes import Brakes
from relevo.jobs.commands import Commands
from relevo.jobs.loops import Timers
from relevo.jobs.registry import Registry
from relevo.jobs.running.processes import call_in_process
from relevo.jobs.running.runner import job_runner
from relevo.jobs.waits import Waits
from relevo.kernel.leases.loops import Duty
from relevo.kernel.postgres import catalog
from relevo.kernel.postgres.attaching import Attachable
from relevo.kernel.running.processes import Processes

if TYPE_CHECKING:
    from collections.abc import Callable

    from relevo.jobs.model import Lane
    from relevo.jobs.running.context import JobContext
    from relevo.jobs.running.runner import JobRunner
    from relevo.kernel.leases import Leases
    from relevo.kernel.postgres import Database, Wakeups
    from relevo.kernel.supervision import Supervisor
    from relevo.settings import Settings

SQL = catalog.load(__package__)
SERVED_SECONDS = 60.0
TEND_SECONDS = 0.75
"""How often the leader looks at what happens to jobs by itself: timers are to be in time by 1 s."""


class Hosting(Attachable):
    """Jobs as a host has them: lanes and handlers, runs of these, and the duties of a leader.

    `relevo.jobs.service.Jobs` adds what clients do with them.
    """

    def __init__(self, settings: Settings) -> None:
        super().__init__("app.jobs")
        self.registry = Registry()
        self._settings = settings
        self._host: JobRunner | None = None
        self._supervisor: Supervisor | None = None
        self._processes = Processes()
        self._numbers = itertools.count(1)
        self._brakes: Brakes | None = None
        self._waits: Waits | None = None
        self._commands: Commands | None = None
        self.service_for: Callable[[JobContext], Any] | None = None
        """What gives a run its `ctx.service`: the event pipeline."""

    def attach(self, database: Database, wakeups: Wakeups) -> None:
        """Connect, or connect anew."""
        super().attach(database, wakeups)
        self._brakes = Brakes(
            database, wakeups, failures=self._settings.jobs_brake_failures,
            minutes=self._settings.jobs_brake_minutes,
        )  # fmt: skip
        self._waits = Waits(database, wakeups)
        strict = ("strict_states", "strict_delete")
        self._commands = Commands(
            database, wakeups,
            strict=frozenset(one for one in strict if getattr(self._settings, f"jobs_{one}")),
        )  # fmt: skip

    def configure(self, *lanes: Lane) -> None:
        """Add lanes, or change those that there are; before handlers name them."""
        for one in lanes:
            self.registry.configure(one)

    @property
    def commands(self) -> Commands:
        """What carries out commands."""
        self._connected  # noqa: B018 - raises if not connected
        assert self._commands is not None
        return self._commands

    @property
    def waits(self) -> Waits:
        """What suspended jobs wait for."""
        self._connected  # noqa: B018 - raises if not connected
        assert self._waits is not None
        return self._waits

    @property
    def brakes(self) -> Brakes:
        """Which extensions fail too often, and what holds them back."""
        self._connected  # noqa: B018 - raises if not connected
        assert self._brakes is not None
        return self._brakes

    def duties(self) -> list[Duty]:
        """What one host does for all."""
        told = self._settings

        def kept(days: float) -> timedelta | None:
            return timedelta(days=days) if days else None

        timers = Timers(
            self.database, self.wakeups, crashes_max=told.jobs_crashes_max,
            retention={
                states.SUCCEEDED: kept(told.jobs_keep_succeeded_days),
                states.CANCELED: kept(told.jobs_keep_canceled_days),
                states.FAILED: kept(told.jobs_keep_failed_days),
            },
        )  # fmt: skip
        self.timers = timers
        tending = Duty("jobs.tend", TEND_SECONDS, self._tend)
        return [tending, *timers.duties(), *self.waits.duties()]

    async def _tend(self) -> None:
        """See to what happens to jobs by itself; an idle installation costs one look."""
        found = await self.database.fetchrow(SQL.tend)
        assert found is not None
        if found["lost"]:
            await self.timers.recover()
        if found["series"]:
            await self.timers.start_series()
        if found["waits"]:
            await self.waits.wake()
            await self.waits.end_orphans(self.commands)
        if found["brakes"] and self.brakes.on:
            await self.brakes.watch()

    async def start(self, leases: Leases, supervisor: Supervisor) -> None:
        """Write which lanes and handlers there are; begin to claim and run."""
        lanes = self.registry.declared()
        await self.database.write(
            SQL.declare_lanes, [one.name for one in lanes], [one.events for one in lanes],
            [one.priority for one in lanes], [one.max_running_per_owner for one in lanes],
            [one.shared_tokens for one in lanes],
            idempotent=True,
        )  # fmt: skip
        if not self.registry.handlers:
            return
        await self._declare()
        self._supervisor = supervisor
        supervisor.run("jobs.declare", self._declare_often)
        supervisor.run("jobs.failures", self.brakes.count)
        supervisor.run("jobs.work", lambda: self._work(leases))

    async def _declare(self) -> None:
        found = list(self.registry.handlers.values())
        await self.database.write(
            SQL.declare_handlers, [one.name for one in found], [one.lane for one in found],
            [one.operation_type for one in found], [one.auto_delete for one in found],
            [one.crashes_max for one in found],
            idempotent=True,
        )  # fmt: skip

    async def _declare_often(self) -> None:
        while True:
            await self._declare()
            await asyncio.sleep(SERVED_SECONDS)

    async def _work(self, leases: Leases) -> None:
        """Serve one life after the other."""
        while True:
            if not leases.may_act:
                await asyncio.sleep(0.1)
                continue
            self._host = job_runner(
                self.database, self.wakeups, leases, self.registry,
                partial(call_in_process, self._processes), self.service_for, self._numbers,
                self.brakes,
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
