"""Reads the event log for clients: page by page, waiting, or as a stream of server-sent events.

Each event of a stream has the position behind it as its id, so a client that comes back with
`Last-Event-ID` gets the next event, and none twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
from msgspec import Meta, Struct

from relevo import limits
from relevo.errors import BadContinuation, FeedExpired, FeedRegressed, InvalidValue
from relevo.feed.http.changes import WAIT_SECONDS_MAX
from relevo.kernel import cpu
from relevo.kernel.events.model import check_start, positions_behind
from relevo.kernel.operation import OperationOptions, Sent, Stream

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from relevo.http.services import Services
    from relevo.kernel.events import EventPage, Recorded
    from relevo.kernel.events.model import Start

POLL_SECONDS: Final = 1.0
SIGN_OF_LIFE_SECONDS: Final = 15.0
SEARCH_SECONDS_MAX: Final = 5.0
"""How long one request looks for events that are shown."""
READ_ITEMS_MIN: Final = 500
"""Events that are looked at in one read, however few of them are wanted: most may not be shown."""
Show = Callable[["Recorded"], Any]
"""What is sent of an event; None leaves it out."""
Continuation = Annotated[
    str,
    Meta(max_length=4_000, description="That of the answer before; it goes on there."),
]
WaitSeconds = Annotated[
    float,
    Meta(
        ge=0.0,
        le=limits.FEED_WAIT_SECONDS_MAX,
        description="How long to wait if there is nothing; the answer may come earlier, empty.",
    ),
]
LastEventId = Annotated[
    str,
    Meta(
        max_length=4_000,
        description="Where a stream was broken off; counts in the place of a continuation.",
    ),
]
RESUMABLE: Final[OperationOptions] = {
    "headers": {"last_event_id": "Last-Event-ID"},
    "wait": "wait_seconds",
}
"""Options of operations that clients go on with where they were."""
ERRORS: Final = (BadContinuation, FeedExpired, FeedRegressed)
"""Errors of a position that cannot be read from."""


class ReadLog(Struct, frozen=True, kw_only=True):
    """From where on, and how much."""

    start: Annotated[
        str,
        Meta(
            max_length=50,
            description="`beginning`, `now`, or a time such as `2031-05-30T18:00:00Z`; counts"
            " without a continuation only.",
        ),
    ] = "beginning"
    continuation: Continuation | None = None
    limit: Annotated[
        int, Meta(ge=1, le=limits.FEED_ITEMS_MAX, description="Events at the most.")
    ] = limits.FEED_ITEMS_DEFAULT
    wait_seconds: WaitSeconds = 0.0
    last_event_id: LastEventId | None = None


class EventsRead(Struct, frozen=True):
    """Some events, and where to go on."""

    items: list[Any]
    """In the form that was asked for; those of one subject in their order."""
    continuation: str
    caught_up: bool
    """Whether nothing was left that had been committed before."""


async def read(services: Services, command: ReadLog, show: Show) -> EventsRead:
    """Return the next events that are shown, or wait for some.

    None may come although there are more, if few of many are shown; the answer says so.
    """
    clock = asyncio.get_running_loop().time
    until = clock() + min(command.wait_seconds, WAIT_SECONDS_MAX)
    search_until = clock() + SEARCH_SECONDS_MAX
    page = await _page(services, command, _from(command), min(POLL_SECONDS, command.wait_seconds))
    while True:
        shown = await _shown(page, show)
        fitting = _fitting(shown[: command.limit], services.page_bytes)
        items = [event for _, event in fitting]
        if len(fitting) < len(shown):
            return EventsRead(items, fitting[-1][0], caught_up=False)
        left = until - clock()
        if items or (left <= 0 and (page.caught_up or clock() >= search_until)):
            return EventsRead(items, page.continuation, page.caught_up)
        page = await _page(services, command, page.continuation, max(0.0, min(POLL_SECONDS, left)))


def _fitting(shown: Sequence[tuple[str, Any]], bytes_max: int) -> Sequence[tuple[str, Any]]:
    """Return the first events that fit into a page as they are shown; one always does."""
    room = bytes_max
    for count, (_, event) in enumerate(shown):
        room -= len(msgspec.json.encode(event))
        if room < 0:
            return shown[: max(count, 1)]
    return shown


async def stream(services: Services, command: ReadLog, show: Show) -> Stream:
    """Stream events as they come; raises for a position that cannot be read from."""
    first = await _page(services, command, _from(command), 0.0)
    return Stream(_followed(services, command, show, first))


async def _followed(
    services: Services, command: ReadLog, show: Show, page: EventPage
) -> AsyncIterator[Sent | None]:
    clock = asyncio.get_running_loop().time
    told = known = page.began_at
    said = clock()
    while True:
        for known, shown in await _shown(page, show):
            yield Sent(event="event", data=shown, id=known)
            told, said = known, clock()
        known = page.continuation
        if clock() - said >= SIGN_OF_LIFE_SECONDS:
            # Without it, a client whose filter takes little would come back far behind.
            yield None if told == known else Sent(event="position", data={}, id=known)
            told, said = known, clock()
        page = await _page(services, command, page.continuation, POLL_SECONDS)


async def _shown(page: EventPage, show: Show) -> list[tuple[str, Any]]:
    """Return what is shown of a page, each with the position behind it."""

    def work() -> list[tuple[str, Any]]:
        behind = positions_behind(page)
        return [
            (position, shown)
            for event, position in zip(page.events, behind, strict=True)
            if (shown := show(event)) is not None
        ]

    return await cpu.decoded(sum(len(event.body) for event in page.events), work)


def _from(command: ReadLog) -> str | None:
    return command.last_event_id or command.continuation


async def _page(
    services: Services, command: ReadLog, continuation: str | None, wait: float
) -> EventPage:
    return await services.app.events.read(
        continuation,
        start=_start(command.start),
        max_items=max(command.limit, READ_ITEMS_MIN),
        max_bytes=services.page_bytes,
        wait=wait,
    )


def _start(text: str) -> Start:
    if text in ("beginning", "now"):
        return check_start(text)
    try:
        return check_start(datetime.fromisoformat(text))
    except (ValueError, OverflowError):
        raise InvalidValue(
            f"start is `beginning`, `now` or a time such as 2031-05-30T18:00:00Z, not {text!r}",
            pointer="/start",
        ) from None
