"""The actors on a host: joins the placement groups, and runs the slots that come here."""

from __future__ import annotations

import asyncio
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Final

from relevo.actors.calls.ways import KIT_GROUPS
from relevo.actors.core.routing import route_topic
from relevo.actors.operating.figures import pending
from relevo.actors.running.deadlocks import Prober
from relevo.actors.running.due.due_work import DueWork
from relevo.actors.running.recording import TurnRecorder
from relevo.actors.running.runtime import ActorRuntime
from relevo.actors.running.turn_filter import TurnFilter
from relevo.actors.running.watchdog import LoopWatchdog
from relevo.actors.service import Actors
from relevo.actors.storing.commits import TOPIC
from relevo.actors.storing.placement_groups import DeclaredType
from relevo.kernel.leases.model import ACTORS, Membership
from relevo.kernel.part import Part
from relevo.kernel.postgres import catalog
from relevo.kernel.telemetry import logs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from relevo.actors.running.recording import Record
    from relevo.kernel.leases.loops import Duty
    from relevo.kernel.leases.units import Bootstrap, Unit
    from relevo.kernel.part import Host
    from relevo.kernel.postgres.database import Transaction
    from relevo.kernel.postgres.wakeups import Signal

SQL = catalog.load("relevo.actors")
COLLECT: Final = "actors.collect"
WATCHDOG: Final = "actors.watchdog"
DUE: Final = "actors.due"
ROUTES: Final = "actors.routes"
DEADLOCKS: Final = "actors.deadlocks"
DEFINED: Final = "actors.defined"


class ActorsPart(Part[Actors]):
    """Serves the placement groups of the settings as soon as the app defines types in them.

    So a host without actors joins nothing, and a type that is defined while it runs is served.
    """

    def __init__(self, service: Actors) -> None:
        super().__init__(service)
        self._host: Host | None = None
        self._runtime: ActorRuntime | None = None
        self._units: list[Unit] = []
        self._unit_ids: dict[str, int] = {}
        self._signal: Signal | None = None
        self._recorder: TurnRecorder | None = None
        self._defined = asyncio.Event()
        self._serving = asyncio.Lock()

    async def start(self, host: Host) -> None:
        """Join the placement groups; slots come with the balancer."""
        if self._host is None:
            self._host = host
            self.service.types.on_added = self._defined.set
            self.service.ways.serves = lambda group: group in self._groups()
            host.supervisor.run(DEFINED, self._serve_defined)
        await self._serve(host)

    def record_turns(self, record: Record) -> None:
        """Record what turns do, for a test."""
        self._recorder = TurnRecorder(record)
        if self._runtime is not None:
            self._runtime.workers.recorder = self._recorder

    async def _serve_defined(self) -> None:
        """Serve what is defined while the host runs."""
        while True:
            await self._defined.wait()
            self._defined.clear()
            if self._host is not None:
                await self._serve(self._host)

    async def _serve(self, host: Host) -> None:
        async with self._serving:
            service, groups = self.service, self._groups()
            if not groups:
                return
            if self._runtime is None:
                await self._begin(host)
            assert self._signal is not None
            address = await service.network.listen()
            for group in sorted(groups - {unit.name for unit in self._units}):
                self._signal.listen(TOPIC.format(group))
                await self._join(host, group, address)
            for group in service.types.groups() - groups:
                await service.ways.read_count(group)
            await self._declare(groups)

    def _groups(self) -> set[str]:
        """The placement groups that this host serves."""
        types = self.service.types
        wanted = self.service.placement_groups & types.served_groups()
        return types.groups() & {*wanted, *KIT_GROUPS}

    async def _begin(self, host: Host) -> None:
        """Start what runs slots, whatever their number."""
        logs.filter_lines(TurnFilter())
        service = self.service
        self._runtime = runtime = self._new_runtime(host)
        due = DueWork(runtime, service.wakeups)
        self._signal = due.signal
        runtime.stored.append(lambda _: due.signal.set())
        service.receiver.prober = prober = Prober(runtime, service.ways)
        service.serve(runtime)
        service.types.figures.pending = partial(pending, runtime)
        host.supervisor.run(COLLECT, runtime.eviction.run)
        host.supervisor.run(WATCHDOG, lambda: LoopWatchdog(runtime).run())
        host.supervisor.run(DUE, due.run)
        host.supervisor.run(ROUTES, service.network.routes.run)
        host.supervisor.run(DEADLOCKS, prober.run)

    def at_work(self) -> Sequence[str]:
        """Return the placement groups whose slots are not handed over yet."""
        if self._host is None:
            return ()
        groups = {unit.name for unit in self._units}
        held = Counter(lease.unit for lease in self._host.leases.held if lease.unit in groups)
        return [f"actors of group {name} ({count} slots)" for name, count in held.items()]

    async def stop(self, timeout: float) -> None:
        """Hand over all slots: turns end, and what is on its way is stored."""
        if self._host is None:
            return
        self.service.types.on_added = None
        self.service.ways.serves = lambda _: False
        await self._host.supervisor.stop(DEFINED)
        if self._runtime is None:
            self._host = None
            return
        self._runtime.draining = "shutdown"
        await self._runtime.stateless.close(timeout)
        for unit in self._units:
            await self._host.leases.leave(unit, timeout)
        await self._runtime.stateless.drain("shutdown", timeout)
        for loop in (COLLECT, WATCHDOG, DUE, ROUTES, DEADLOCKS):
            await self._host.supervisor.stop(loop)
        self.service.serve(None)
        self.service.types.figures.pending = tuple
        self.service.receiver.prober = None
        await self.service.network.stop_listening()
        await self._runtime.close()
        self._host = self._runtime = self._signal = None
        self._units.clear()
        self._unit_ids.clear()

    def duties(self) -> list[Duty]:
        """Return what one host does for all: it forgets what has been kept long enough."""
        return self.service.storage.actors.duties()

    async def close(self) -> None:
        """Finish what was accepted."""
        await self.service.close_hosts()
        await self.service.network.close()
        await self.service.storage.close()

    def _new_runtime(self, host: Host) -> ActorRuntime:
        service = self.service
        runtime = ActorRuntime(
            service.types, service.storage, slots_of=service.ways.count,
            activations_max=service.settings.actors_activations_max, now=service.now,
        )  # fmt: skip
        runtime.workers.host = host.leases.name
        runtime.workers.recorder = self._recorder
        runtime.eviction.idle_seconds = service.settings.actors_idle_seconds
        runtime.eviction.memory_max = service.settings.actors_memory_max
        service.may_act = lambda: host.leases.may_act
        runtime.owner_elsewhere = service.ways.known
        runtime.began = self._slot_began
        return runtime

    async def _join(self, host: Host, group: str, address: str) -> None:
        assert self._runtime is not None
        count = self.service.ways.wanted_count(group)
        self._units.append(await host.leases.join(
            "actors", group, self._runtime.holder(group),
            leases=tuple(str(number) for number in range(count)), settings=ACTORS,
            membership=Membership(address=address), bootstrap=self._bootstrap(host, group, count),
        ))  # fmt: skip

    def _bootstrap(self, host: Host, group: str, count: int) -> Bootstrap:
        """Return what happens when this host joins a group, in each of its lives."""
        check = self.service.storage.groups.bootstrap(group, count)

        async def join(tx: Transaction, unit_id: int) -> None:
            await check(tx, unit_id)
            self.service.ways.note_count(group, count)
            self._unit_ids[group] = unit_id
            if self._runtime is not None:
                self._runtime.stateless.begin_life(group, host.leases.life.deadline)
            incarnation = host.leases.life.incarnation
            since = await tx.fetchval(SQL.registered_at, incarnation)
            self.service.network.begin_life(host.leases.name, str(incarnation), since)

        return join

    async def _declare(self, groups: set[str]) -> None:
        """Store the types that are served here, for clients that do not define them."""
        await self.service.storage.groups.declare([
            DeclaredType(
                one.name, one.options.placement_group, one.options.persist,
                {"interfaces": [each.__qualname__ for each in one.implements]},
            )
            for one in self.service.types.by_name.values()
            if one.options.placement_group in groups
        ])  # fmt: skip

    def _slot_began(self, group: str) -> None:
        """Tell all that cache routes, and those who wait here, that a slot has an owner."""
        self.service.ways.note_change(group)
        if group in self._unit_ids:
            self.service.wakeups.send(route_topic(self._unit_ids[group]))
