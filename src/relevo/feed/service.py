"""The feed part of an app: containers with feeds, and the processors that its host serves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from relevo.errors import Conflict
from relevo.feed import splitting, trimming
from relevo.feed.container import FeedContainer
from relevo.feed.figures import MEASURE_SECONDS, Figures
from relevo.feed.memory import forget_abandoned
from relevo.leases.loops import Duty
from relevo.postgres.attaching import Attachable

if TYPE_CHECKING:
    from collections.abc import Collection

    from relevo.feed.event_feed import EventFeed
    from relevo.feed.processor import Processor
    from relevo.leases import Leases
    from relevo.store import Container, Store
    from relevo.supervision import Supervisor

T = TypeVar("T")


class Feeds(Attachable):
    """Every processor that an app defines; they are served while the app is a host.

    Containers and processors are defined before the app connects, so the database comes later.
    """

    def __init__(self, store: Store, *, target_lag: int = 1_000) -> None:
        super().__init__("feeds")
        self.store = store
        self.figures = Figures(target_lag)
        self.processors: dict[tuple[str, str], Processor] = {}
        self._containers: dict[str, FeedContainer[Any] | EventFeed] = {}
        self._serving = False

    def container(self, handle: Container[T]) -> FeedContainer[T]:
        """Return a container with its feed."""
        return FeedContainer(self, handle)

    def add(self, processor: Processor, container: FeedContainer[Any] | EventFeed) -> Processor:
        """Take a processor into the app; one of that name on that container must not be there."""
        if self._serving:
            raise Conflict(
                f"processor {processor.name!r} is defined while the host runs, which would not"
                " serve it; define processors before `app.host()`, or end the host first"
            )
        key = (processor.container, processor.name)
        if key in self.processors:
            raise Conflict(
                f"processor {processor.name!r} of container {processor.container!r} is defined"
                " twice; give the other one its own name"
            )
        self.processors[key] = processor
        self._containers[processor.container] = container
        return processor

    def only(self, chosen: Collection[Processor]) -> None:
        """Serve these processors and no others, whatever the app defines."""
        self.processors = {key: one for key, one in self.processors.items() if one in chosen}

    async def start(self, leases: Leases, supervisor: Supervisor) -> None:
        """Serve every processor; containers that their handles can make are made."""
        self._serving = True
        for (name, _), processor in self.processors.items():
            await self._containers[name].describe()
            await processor.start(self.database, self.wakeups, leases, supervisor)

    async def stop(self, timeout: float) -> None:
        """Drain every processor."""
        self._serving = False
        for processor in self.processors.values():
            await processor.stop(timeout)

    def duties(self) -> list[Duty]:
        """Return what housekeeping should do for the feeds."""
        return [
            Duty("trim versions", 10.0, lambda: trimming.trim(self.database, self.wakeups)),
            Duty("thin times", 3_600.0, lambda: trimming.thin_times(self.database)),
            Duty("split large ranges", 60.0, self._split),
            Duty("measure lag", MEASURE_SECONDS, lambda: self.figures.measure(self.database)),
            Duty("forget leases in memory", 600.0, lambda: forget_abandoned(self.database)),
        ]

    async def _split(self) -> None:
        await splitting.split_large(self.database, self.store)
        await splitting.split_busy(self.database, self.store)
