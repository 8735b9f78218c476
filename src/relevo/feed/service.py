"""The feed part of an app: containers with feeds, and the processors that its host serves."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, TypeVar

from relevo.errors import Conflict
from relevo.feed.container import FeedContainer
from relevo.feed.operating import splitting, trimming
from relevo.feed.operating.figures import MEASURE_SECONDS, Figures
from relevo.feed.processing.memory import forget_abandoned
from relevo.kernel import error_text
from relevo.kernel.leases.loops import Duty
from relevo.kernel.postgres.attaching import Attachable

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from relevo.feed.event_feed import EventFeed
    from relevo.feed.processing.processor import Processor
    from relevo.kernel.leases import Leases
    from relevo.kernel.supervision import Supervisor
    from relevo.store import Container, Store

T = TypeVar("T")
LATE: Final = "feed processors that were defined late"


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
        self._supervisor: Supervisor | None = None
        self._defined: Callable[[], object] = _nothing
        """Tells a host that runs that it has a processor more to serve."""
        self._late: list[Processor] = []
        """Those that it does not serve yet."""

    def container(self, handle: Container[T]) -> FeedContainer[T]:
        """Return a container with its feed."""
        return FeedContainer(self, handle)

    def add(self, processor: Processor, container: FeedContainer[Any] | EventFeed) -> Processor:
        """Take a processor into the app; one of that name on that container must not be there.

        If the app is a host already, it serves the processor from now on.
        """
        key = (processor.container, processor.name)
        if key in self.processors:
            raise Conflict(
                f"processor {processor.name!r} of container {processor.container!r} is defined"
                " twice; give the other one its own name"
            )
        self.processors[key] = processor
        self._containers[processor.container] = container
        self._late.append(processor)
        self._defined()
        return processor

    def only(self, chosen: Collection[Processor]) -> None:
        """Serve these processors and no others, whatever the app defines."""
        self.processors = {key: one for key, one in self.processors.items() if one in chosen}

    async def start(self, leases: Leases, supervisor: Supervisor) -> None:
        """Serve every processor; containers that their handles can make are made."""
        for processor in list(self.processors.values()):
            await self._start(processor, leases, supervisor)
        if self._defined is _nothing:
            self._late.clear()
            loop, defined = asyncio.get_running_loop(), asyncio.Event()
            self._defined = lambda: loop.call_soon_threadsafe(defined.set)
            supervisor.run(LATE, lambda: self._serve_late(defined, leases, supervisor))
            self._supervisor = supervisor

    async def _start(self, processor: Processor, leases: Leases, supervisor: Supervisor) -> None:
        try:
            await self._containers[processor.container].describe()
            await processor.start(self.database, self.wakeups, leases, supervisor)
        except Exception as error:
            processor.not_started = error_text.message(error, error_text.LINE_MAX)
            raise

    async def _serve_late(
        self, defined: asyncio.Event, leases: Leases, supervisor: Supervisor
    ) -> None:
        """Serve what is defined while the host runs; a start that fails is tried again."""
        while True:
            defined.clear()
            late = list(self._late)
            started = (self._start(one, leases, supervisor) for one in late)
            outcomes = await asyncio.gather(*started, return_exceptions=True)
            failures = dict(zip(late, outcomes, strict=True))
            self._late = [one for one in self._late if failures.get(one, one) is not None]
            for outcome in outcomes:
                if outcome is not None:
                    raise outcome  # the supervisor shows it, and comes back
            await defined.wait()

    async def stop(self, timeout: float) -> None:
        """Drain every processor."""
        self._defined = _nothing
        if self._supervisor is not None:
            await self._supervisor.stop(LATE)
            self._supervisor = None
        for processor in self.processors.values():
            await processor.stop(timeout)

    def not_started(self) -> list[str]:
        """Return the processors that could not be started so far, each with its reason."""
        return [
            f"processor {one.name} of {one.container} did not start: {one.not_started}"
            for one in self.processors.values()
            if one.not_started is not None
        ]

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


def _nothing() -> None:
    """No host runs; processors are served when one does."""
