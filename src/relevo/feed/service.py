"""The feed part of an app: containers with feeds, and the processors that its host serves."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, TypeVar

from relevo.errors import Conflict
from relevo.feed.container import FeedContainer
from relevo.feed.operating import range_splitting, trimming
from relevo.feed.operating.estimator import MEASURE_SECONDS, LagFigures
from relevo.feed.processing import host as serving
from relevo.feed.processing.memory_leases import forget_abandoned
from relevo.kernel import callables, error_text
from relevo.kernel.leases.loops import Duty
from relevo.kernel.part import Part, Service
from relevo.kernel.postgres.polling import Question

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from relevo.feed.event_feed import EventFeed
    from relevo.feed.processing.processor import Processor
    from relevo.kernel.part import Connection, Host
    from relevo.kernel.postgres import Database
    from relevo.store import Container, Store

T = TypeVar("T")
LATE: Final = "feed processors that were defined late"


class Feeds(Service):
    """Every processor that an app defines; they are served while the app is a host.

    Containers and processors are defined before the app connects, so the database comes later.
    """

    def __init__(self, connection: Connection, store: Store, *, target_lag: int = 1_000) -> None:
        super().__init__(connection)
        self.store = store
        self.figures = LagFigures(target_lag)
        self.processors: dict[tuple[str, str], Processor] = {}
        self._containers: dict[str, FeedContainer[Any] | EventFeed] = {}
        self._defined: Callable[[], object] = _nothing
        """Wakes a running host when a processor is added."""
        self._late: list[Processor] = []
        """Processors that the host does not serve yet."""

    def container(self, handle: Container[T]) -> FeedContainer[T]:
        """Return a container with its feed."""
        return FeedContainer(self, handle)

    def add(self, processor: Processor, container: FeedContainer[Any] | EventFeed) -> Processor:
        """Add a processor; its name must be unique on its container.

        If the app is a host already, it serves the processor from now on.
        """
        key = (processor.container, processor.name)
        if key in self.processors:
            first = self.processors[key].handler
            raise Conflict(
                f"processor {processor.name!r} of container {processor.container!r} is defined"
                f" twice: {callables.place(first)}, and now {callables.place(processor.handler)};"
                " give the other one its own name"
            )
        self.processors[key] = processor
        self._containers[processor.container] = container
        self._late.append(processor)
        self._defined()
        return processor

    def only(self, chosen: Collection[Processor]) -> None:
        """Serve these processors only."""
        self.processors = {key: one for key, one in self.processors.items() if one in chosen}

    def not_started(self) -> list[str]:
        """Return the processors that could not be started, each with its reason."""
        return [
            f"processor {processor.name} of {processor.container} did not start:"
            f" {processor.not_started}"
            for processor in self.processors.values()
            if processor.not_started is not None
        ]


class FeedPart(Part[Feeds]):
    """Serves the processors of an app on its host, including those defined later."""

    def __init__(self, service: Feeds) -> None:
        super().__init__(service)
        self._host: Host | None = None

    async def start(self, host: Host) -> None:
        """Serve every processor; creates containers whose handles have a partition key."""
        feeds = self.service
        for processor in list(feeds.processors.values()):
            await self._start(processor, host)
        if self._host is None:
            feeds._late.clear()
            loop, defined = asyncio.get_running_loop(), asyncio.Event()
            feeds._defined = lambda: loop.call_soon_threadsafe(defined.set)
            host.supervisor.run(LATE, lambda: self._serve_late(defined, host))
            self._host = host

    async def _start(self, processor: Processor, host: Host) -> None:
        database, wakeups = self.service.connection.opened
        try:
            await self.service._containers[processor.container].describe()
            await serving.start(processor, database, wakeups, host.leases, host.supervisor)
        except Exception as error:
            processor.not_started = error_text.message(error, error_text.LINE_MAX)
            raise

    async def _serve_late(self, defined: asyncio.Event, host: Host) -> None:
        """Serve processors that are defined while the host runs; failed starts are retried."""
        feeds = self.service
        while True:
            defined.clear()
            late = list(feeds._late)
            started = (self._start(one, host) for one in late)
            outcomes = await asyncio.gather(*started, return_exceptions=True)
            failures = dict(zip(late, outcomes, strict=True))
            feeds._late = [one for one in feeds._late if failures.get(one, one) is not None]
            for outcome in outcomes:
                if outcome is not None:
                    raise outcome  # the supervisor shows it, and comes back
            await defined.wait()

    async def stop(self, timeout: float) -> None:
        """Drain every processor."""
        self.service._defined = _nothing
        if self._host is not None:
            await self._host.supervisor.stop(LATE)
            self._host = None
        for processor in self.service.processors.values():
            await serving.stop(processor, timeout)

    def at_work(self) -> Sequence[str]:
        """Return the processors that hold leases: their calls are under way."""
        held = {name: len(each.leases) for name, each in self.service.processors.items()}
        return [f"processor {name} ({count} leases)" for name, count in held.items() if count]

    def duties(self) -> list[Duty]:
        """Return the housekeeping duties of the feeds."""
        database, wakeups = self.service.connection.opened
        return [
            Duty(
                "trim versions", 10.0, lambda: trimming.trim(database, wakeups),
                Question(trimming.KEEPS_VERSIONS),
            ),
            Duty("thin times", 3_600.0, lambda: trimming.thin_times(database)),
            Duty("split large ranges", 60.0, lambda: self._split(database)),
            Duty("measure lag", MEASURE_SECONDS, lambda: self.service.figures.measure(database)),
            Duty("forget leases in memory", 600.0, lambda: forget_abandoned(database)),
        ]  # fmt: skip

    async def _split(self, database: Database) -> None:
        await range_splitting.split_large(database, self.service.store)
        await range_splitting.split_busy(database, self.service.store)


def _nothing() -> None:
    """No host runs; processors are served when one does."""
