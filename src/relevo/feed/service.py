"""The feed part of an app: containers with feeds, and the processors that its host serves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from relevo.errors import Conflict
from relevo.feed import trimming
from relevo.feed.container import FeedContainer
from relevo.leases.loops import Duty

if TYPE_CHECKING:
    from relevo.feed.event_feed import EventFeed
    from relevo.feed.processor import Processor
    from relevo.leases import Leases
    from relevo.postgres import Database, Wakeups
    from relevo.store import Container, Store
    from relevo.supervision import Supervisor

T = TypeVar("T")


class Feeds:
    """Every processor that an app defines; they are served while the app is a host.

    Containers and processors are defined before the app connects, so the database comes later.
    """

    def __init__(self, store: Store) -> None:
        self.store = store
        self.processors: dict[tuple[str, str], Processor] = {}
        self._containers: dict[str, FeedContainer[Any] | EventFeed] = {}
        self._attached: tuple[Database, Wakeups] | None = None
        self._serving: tuple[Leases, Supervisor] | None = None

    @property
    def database(self) -> Database:
        """The pool; raises before the app is connected."""
        return self._connected[0]

    @property
    def wakeups(self) -> Wakeups:
        """Hints to and from other processes."""
        return self._connected[1]

    @property
    def _connected(self) -> tuple[Database, Wakeups]:
        if self._attached is None:
            raise Conflict("the app is not connected; use feeds inside `async with app`")
        return self._attached

    def attach(self, database: Database, wakeups: Wakeups) -> None:
        """Connect."""
        self._attached = (database, wakeups)

    def container(self, handle: Container[T]) -> FeedContainer[T]:
        """Return a container with its feed."""
        return FeedContainer(self, handle)

    def add(self, processor: Processor, container: FeedContainer[Any] | EventFeed) -> Processor:
        """Take a processor into the app; one of that name on that container must not be there."""
        key = (processor.container, processor.name)
        if key in self.processors:
            raise Conflict(
                f"processor {processor.name!r} of container {processor.container!r} is defined"
                " twice; give the other one its own name"
            )
        self.processors[key] = processor
        self._containers[processor.container] = container
        return processor

    async def start(self, leases: Leases, supervisor: Supervisor) -> None:
        """Serve every processor; containers that their handles can make are made."""
        for (name, _), processor in self.processors.items():
            await self._containers[name].describe()
            await processor.start(self.database, self.wakeups, leases, supervisor)

    async def stop(self, timeout: float) -> None:
        """Drain every processor."""
        for processor in self.processors.values():
            await processor.stop(timeout)

    def duties(self) -> list[Duty]:
        """Return what housekeeping should do for the feeds."""
        return [
            Duty("trim versions", 10.0, lambda: trimming.trim(self.database, self.wakeups)),
            Duty("split large ranges", 60.0, self._split_large),
        ]

    async def _split_large(self) -> None:
        await trimming.split_large(self.database, self.store)
