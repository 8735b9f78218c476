"""The event log with its feed: `app.events`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Unpack

from relevo.errors import InvalidValue
from relevo.feed.container import UnitHandles
from relevo.feed.processing import context
from relevo.feed.processing.processor import Processor
from relevo.kernel import callables
from relevo.kernel.events import EventLog, Recorded
from relevo.kernel.events.model import LOG_NAME

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from relevo.feed.model import Change
    from relevo.feed.options import EventProcessorOptions
    from relevo.feed.service import Feeds
    from relevo.kernel.events import Catalogue, LogState


class EventFeed(EventLog, UnitHandles):
    """The event log, and processors that hosts share."""

    name = LOG_NAME

    def __init__(self, feeds: Feeds, catalogue: Catalogue | None = None) -> None:
        super().__init__(feeds.connection, catalogue)
        self._feeds = feeds

    def on_events(
        self, name: str, **options: Unpack[EventProcessorOptions]
    ) -> Callable[[Callable[..., Any]], Processor]:
        """Decorate `handler(events)` or `handler(ctx, events)`; hosts that serve `name` share it.

        `Processor` explains the options. There is one lease per stripe.
        """
        if unfit := {"mode", "leases", "model"} & options.keys():
            raise InvalidValue(f"a processor of events cannot set {', '.join(sorted(unfit))}")

        def decorate(handler: Callable[..., Any]) -> Processor:
            return self._feeds.add(processor_of(name, handler, **options), self)

        return decorate

    async def describe(self) -> LogState:
        """Return the state of the log, which always exists."""
        return await self.state()


def processor_of(
    name: str, handler: Callable[..., Any], **options: Unpack[EventProcessorOptions]
) -> Processor:
    """Return a processor of events that nobody serves yet, for parts that serve it when needed."""
    return Processor(LOG_NAME, name, _of_changes(handler), mode="events", model=Recorded, **options)


def _of_changes(handler: Callable[..., Any]) -> Callable[..., Any]:
    """Adapt a handler of events to the changes that a processor delivers."""
    wants_context = context.wants_context(handler, "a handler of events")

    def deliver(ctx: Any, changes: Sequence[Change[Recorded]]) -> Any:
        events = [change.item for change in changes]
        return handler(ctx, events) if wants_context else handler(events)

    if not callables.is_async(handler):
        return deliver

    async def deliver_on_loop(ctx: Any, changes: Sequence[Change[Recorded]]) -> None:
        await deliver(ctx, changes)

    return deliver_on_loop
