"""The actors on a host: joins the placement groups, and runs the slots that come here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from relevo.actors.commits import TOPIC
from relevo.actors.running.due import DueWork
from relevo.actors.running.runtime import ActorRuntime
from relevo.actors.service import Actors
from relevo.actors.ways import KIT_GROUP
from relevo.kernel.leases.model import ACTORS
from relevo.kernel.part import Part

if TYPE_CHECKING:
    from relevo.kernel.leases.loops import Duty
    from relevo.kernel.leases.units import Unit
    from relevo.kernel.part import Host

COLLECT: Final = "actors.collect"
DUE: Final = "actors.due"


class ActorsPart(Part[Actors]):
    """Serves the placement groups of the settings, if the app defines types in them."""

    def __init__(self, service: Actors) -> None:
        super().__init__(service)
        self._host: Host | None = None
        self._runtime: ActorRuntime | None = None
        self._units: list[Unit] = []

    async def start(self, host: Host) -> None:
        """Join the placement groups; slots come with the balancer."""
        service = self.service
        groups = service.types.groups() & {*service.settings.actors_placement_groups, KIT_GROUP}
        if not groups:
            return
        self._host = host
        self._runtime = ActorRuntime(
            service.types, service.storage, slots_of=service.ways.count,
            activations_max=service.settings.actors_activations_max, now=service.now,
        )  # fmt: skip
        service.may_act = lambda: host.leases.may_act
        service.serve(self._runtime)
        host.supervisor.run(COLLECT, self._runtime.collect)
        signal = service.wakeups.signal()
        for group in groups:
            signal.listen(TOPIC.format(group))
        self._runtime.stored.append(lambda _: signal.set())
        host.supervisor.run(DUE, DueWork(self._runtime, signal).run)
        for group in sorted(groups):
            count = await service.ways.read_count(group)
            self._units.append(await host.leases.join(
                "actors", group, self._runtime.holder(group),
                leases=tuple(str(number) for number in range(count)), settings=ACTORS,
                bootstrap=service.storage.groups.bootstrap(group, count),
            ))  # fmt: skip

    async def stop(self, timeout: float) -> None:
        """Hand over all slots: turns end, and what is on its way is stored."""
        if self._host is None or self._runtime is None:
            return
        self._runtime.draining = "shutdown"
        for unit in self._units:
            await self._host.leases.leave(unit, timeout)
        await self._host.supervisor.stop(COLLECT)
        await self._host.supervisor.stop(DUE)
        self.service.serve(None)
        await self._runtime.close()
        self._host = self._runtime = None
        self._units.clear()

    def duties(self) -> list[Duty]:
        """Return what one host does for all: it forgets what has been kept long enough."""
        return self.service.storage.actors.duties()

    async def close(self) -> None:
        """Finish what was accepted."""
        await self.service.storage.close()
