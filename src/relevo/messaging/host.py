"""The messaging part on a host: serves consumers, accepts arrivals; the leader keeps house."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from relevo.kernel.leases.loops import Duty
from relevo.kernel.part import Part, PerConnection
from relevo.kernel.telemetry.store_figures import READ_SECONDS
from relevo.messaging.arrivals import Arrivals
from relevo.messaging.operating.figures import MessageFigures
from relevo.messaging.operating.timers import MessageTimers
from relevo.messaging.running.host import ConsumersHost
from relevo.messaging.service import Messaging

if TYPE_CHECKING:
    from collections.abc import Sequence

    from relevo.kernel.part import Host
    from relevo.kernel.supervision import Supervisor
    from relevo.kernel.telemetry.metrics import Metrics

ARRIVALS: Final = "messaging.arrivals"


class MessagingPart(Part[Messaging]):
    """Serves the consumers of an app, and does the leader's duties."""

    def __init__(self, service: Messaging, metrics: Metrics) -> None:
        super().__init__(service)
        self.figures = MessageFigures(lambda: service.database, lambda: service.tools.scaler)
        metrics.registry.register(self.figures)
        self._timers = PerConnection(service.connection, MessageTimers)
        self.consumers = ConsumersHost(service)
        self._supervisor: Supervisor | None = None

    @property
    def timers(self) -> MessageTimers:
        """Due, expired and lost messages."""
        return self._timers()

    def duties(self) -> list[Duty]:
        """Return the duties of the leader."""
        return [*self.timers.duties(), Duty("messaging.figures", READ_SECONDS, self.figures.read)]

    async def declare(self) -> None:
        """Make the entities that consumers of this host serve, if they are missing."""
        for source in self.service.sources.values():
            await source.ensure()

    async def start(self, host: Host) -> None:
        """Begin to accept arrivals and to serve consumers."""
        self._supervisor = host.supervisor
        arrivals = Arrivals(*self.service.connection.opened, self.service.tools)
        self._supervisor.run(ARRIVALS, arrivals.run)
        await self.consumers.start(host)

    async def stop(self, timeout: float) -> None:
        """Claim nothing more; let handlers end, then give back unfinished messages."""
        if self._supervisor is None:
            return
        await self.consumers.stop(timeout)
        await self._supervisor.stop(ARRIVALS)
        self._supervisor = None

    def at_work(self) -> Sequence[str]:
        """Return the messages in handlers."""
        return self.consumers.at_work()

    async def close(self) -> None:
        """Finish accepted sends and settlements."""
        await self.service.tools.close()
