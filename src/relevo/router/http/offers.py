"""`/v1/router/offers` and `/v1/router/events`, for which Azure has no endpoint.

Both can be polled, with a wait, and both are streams of server-sent events for clients that accept
`text/event-stream`; a client that comes back with `Last-Event-ID` goes on where it was.
"""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from msgspec import Meta, Struct

from relevo import limits
from relevo.errors import BadContinuation, FeedExpired, FeedRegressed, InvalidValue, NotFound
from relevo.feed.http.changes import WAIT_SECONDS_MAX
from relevo.kernel.events.model import check_start
from relevo.kernel.operation import Operations, Sent, Stream
from relevo.router.http.surface import ResourceId
from relevo.router.watching import SIGN_OF_LIFE_SECONDS, OfferEnded, OfferPage, OpenOffer
from relevo.router.wire import envelopes

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from relevo.http.access.authenticator import Principal
    from relevo.http.services import Services
    from relevo.kernel.events import EventPage, Recorded
    from relevo.kernel.events.model import Start

POLL_SECONDS: Final = 1.0
LAST_EVENT_ID: Final = {"last_event_id": "Last-Event-ID"}
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


operation = Operations(headers=LAST_EVENT_ID, wait="wait_seconds")


class ReadOffers(Struct, frozen=True, kw_only=True):
    """Whose offers, and from where on."""

    worker: ResourceId
    continuation: Continuation | None = None
    wait_seconds: WaitSeconds = 0.0
    last_event_id: LastEventId | None = None


async def stream_offers(services: Services, _: Principal, command: ReadOffers) -> Stream:
    """Stream the open offers of a worker, then every change to its offers."""
    router = services.app.router
    await router.get_worker(command.worker)
    continuation = command.last_event_id or command.continuation
    followed = router.watching.follow(command.worker, continuation)
    return Stream(_offer(one) async for one in followed)


@operation(
    "router.offers.list",
    "GET /v1/router/offers",
    "workers:read",
    stream=stream_offers,
    errors=(NotFound, BadContinuation),
    scope="worker:{worker}",
)
async def read_offers(services: Services, _: Principal, command: ReadOffers) -> OfferPage:
    """List the open offers of a worker, or wait for one; streams on request."""
    router = services.app.router
    await router.get_worker(command.worker)  # a sign of life, and there must be one
    wait = min(command.wait_seconds, WAIT_SECONDS_MAX)
    continuation = command.last_event_id or command.continuation
    return await router.watching.read(command.worker, continuation, wait)


def _offer(one: tuple[OpenOffer | OfferEnded, str | None] | None) -> Sent | None:
    if one is None:
        return None
    happened, continuation = one
    name = "offer" if isinstance(happened, OpenOffer) else "ended"
    return Sent(event=name, data=happened, id=continuation)


class ReadEvents(Struct, frozen=True, kw_only=True):
    """From where on, and in which form."""

    envelope: Annotated[
        Literal["cloud_events", "event_grid"],
        Meta(description="What each event is wrapped in: CloudEvents 1.0, or Event Grid's."),
    ] = "cloud_events"
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
    """In the envelope that was asked for; those of one job or worker in their order."""
    continuation: str
    caught_up: bool
    """Whether nothing was left that had been committed before."""


async def stream_events(services: Services, _: Principal, command: ReadEvents) -> Stream:
    """Send the events of the router as they come."""
    first = await _page(services, command, _from(command), 0.0)

    async def events() -> AsyncIterator[Sent | None]:
        clock = asyncio.get_running_loop().time
        page, said = first, clock()
        while True:
            items = _wrapped(command, page)
            for number, one in enumerate(items, 1):
                # A client that is cut off within a page reads all of it again.
                at = page.continuation if number == len(items) else None
                yield Sent(event="event", data=one, id=at)
            if items:
                said = clock()
            elif clock() - said >= SIGN_OF_LIFE_SECONDS:
                said = clock()
                yield None
            page = await _page(services, command, page.continuation, POLL_SECONDS)

    return Stream(events())


@operation(
    "router.events.read",
    "GET /v1/router/events",
    "router:read",
    stream=stream_events,
    errors=(BadContinuation, FeedExpired, FeedRegressed),
)
async def read_events(services: Services, _: Principal, command: ReadEvents) -> EventsRead:
    """Read the events of the job router, or wait for some; a stream if asked for."""
    clock = asyncio.get_running_loop().time
    until = clock() + min(command.wait_seconds, WAIT_SECONDS_MAX)
    page = await _page(services, command, _from(command), min(POLL_SECONDS, command.wait_seconds))
    while True:
        items = _wrapped(command, page)
        left = until - clock()
        if items or (page.caught_up and left <= 0):
            return EventsRead(items, page.continuation, page.caught_up)
        page = await _page(services, command, page.continuation, max(0.0, min(POLL_SECONDS, left)))


def _from(command: ReadEvents) -> str | None:
    return command.last_event_id or command.continuation


async def _page(
    services: Services, command: ReadEvents, continuation: str | None, wait: float
) -> EventPage:
    return await services.app.events.read(
        continuation,
        start=_start(command.start),
        max_items=command.limit,
        max_bytes=services.page_bytes,
        wait=wait,
    )


def _wrapped(command: ReadEvents, page: EventPage) -> list[Any]:
    wrap: Callable[[Recorded], Any] = (
        envelopes.event_grid if command.envelope == "event_grid" else envelopes.cloud_event
    )
    return [found for event in page.events if (found := wrap(event)) is not None]


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
