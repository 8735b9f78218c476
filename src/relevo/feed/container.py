"""A container with its feed, as `app.container(…)` returns it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar, Unpack

from msgspec import UNSET

from relevo import limits
from relevo.errors import InvalidValue
from relevo.feed.model import FeedRange
from relevo.feed.operating.dead_letters import DeadLetters
from relevo.feed.operating.estimator import Estimator
from relevo.feed.operating.operations import UnitHandle
from relevo.feed.processing.processor import Processor
from relevo.feed.reading.pull import Reader
from relevo.kernel import callables
from relevo.store import Container, keys
from relevo.store.keys import epk
from relevo.store.ranges import WHOLE, under

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from relevo.feed.model import ChangePage, Mode
    from relevo.feed.operating.estimator import TotalLag
    from relevo.feed.options import ProcessorOptions
    from relevo.feed.reading.filters import Given
    from relevo.feed.reading.start import Start
    from relevo.feed.service import Feeds

T = TypeVar("T")


class UnitHandles:
    """Gives handles of units by the names of their processors."""

    name: str
    _feeds: Feeds

    def change_feed_estimator(self, name: str, leases_in: str = "leases") -> Estimator:
        """Return an estimator of the lag of the unit `name`; it takes no lease."""
        return Estimator(self._feeds.database, self.name, name, leases_in)

    async def estimator_loop(
        self,
        name: str,
        callback: Callable[[TotalLag], Any],
        *,
        every: float = 5.0,
        leases_in: str = "leases",
    ) -> None:
        """Call back with the lag of the unit `name` every `every` seconds, until canceled."""
        await self.change_feed_estimator(name, leases_in).watch(callback, every)

    def unit(self, name: str, leases_in: str = "leases") -> UnitHandle:
        """Return the unit of the processor `name` for an operator: pause, rewind, snapshots."""
        return UnitHandle(*self._feeds.connection.opened, self.name, name, leases_in)

    def dead_letters(self, name: str, leases_in: str = "leases") -> DeadLetters:
        """Return the dead letters of the processor `name`: to inspect, redrive or discard."""
        processor = self._feeds.processors.get((self.name, name))
        return DeadLetters(self._feeds.database, f"{leases_in}/{self.name}/{name}", processor)


class FeedContainer(Container[T], UnitHandles):
    """Items, and everything that happened to them."""

    def __init__(self, feeds: Feeds, handle: Container[T]) -> None:
        super().__init__(handle._store, handle.name, handle._options, handle.model)
        self._feeds = feeds

    def on_changes(
        self, name: str, **options: Unpack[ProcessorOptions]
    ) -> Callable[[Callable[..., Any]], Processor]:
        """Decorate `handler(changes)` or `handler(ctx, changes)`; hosts that serve `name` share it.

        `Processor` explains the options. It runs inside `async with app.host()`.
        """
        callables.check_name(name, "container.on_changes")

        def decorate(handler: Callable[..., Any]) -> Processor:
            return self.processor(name, handler, **options)

        return decorate

    def processor(
        self, name: str, handler: Callable[..., Any], **options: Unpack[ProcessorOptions]
    ) -> Processor:
        """Return a processor of this container's changes, served while the app is a host."""
        options.setdefault("model", self.model or Any)
        return self._feeds.add(Processor(self.name, name, handler, **options), self)

    async def read_changes(
        self,
        *,
        start: Start = "beginning",
        mode: Mode = "latest",
        feed_range: FeedRange | None = None,
        partition_key: Any = UNSET,
        max_items: int = limits.FEED_ITEMS_DEFAULT,
        max_bytes: int = limits.FEED_BYTES_MAX,
        continuation: str | None = None,
        wait: float | None = None,
        filter: Given | None = None,  # noqa: A002
    ) -> AsyncIterator[ChangePage[T]]:
        """Yield pages of changes; ends when caught up, or `wait` seconds after the last change.

        With `wait=math.inf` it never ends.

        A continuation outranks `start`; it never expires in latest-version mode, and needs the same
        filter. `filter` is conditions as of `query`, or a `Filter`. `partition_key` reads one key;
        of a hierarchical one the first parts are enough, such as `["tenant-1"]`.
        """
        info = await self.describe()
        interval = feed_range.interval if feed_range else WHOLE
        if partition_key is not UNSET:
            if feed_range is not None:
                raise InvalidValue("read by feed_range or by partition_key, not both")
            parts = keys.of_caller(partition_key, info.partition_key, prefix=True)
            interval = under(epk(parts))
        reader = await Reader.open(
            *self._feeds.connection.opened, self.name, start=start, mode=mode,
            interval=interval, continuation=continuation, model=self.model or Any,
            filter=filter,
        )  # fmt: skip
        async for page in reader.follow(max_items, max_bytes, wait=wait):
            yield page

    async def feed_ranges(self, n: int | None = None) -> list[FeedRange]:
        """Return the ranges of the feed, or at least `n` intervals of it."""
        found = [FeedRange(one.interval) for one in (await self.ranges()).open]
        while n is not None and len(found) < n:
            found = [half for one in found for half in one.split(2)]
        return found
