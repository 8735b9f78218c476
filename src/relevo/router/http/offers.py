"""`/v1/router/offers` and `/v1/router/events`, for which Azure has no endpoint.

Both can be polled, with a wait, and both are streams of server-sent events for clients that accept
`text/event-stream`; a client that comes back with `Last-Event-ID` goes on where it was.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from msgspec import Meta, Struct

from relevo.errors import BadContinuation, NotFound
from relevo.feed.http.changes import WAIT_SECONDS_MAX
from relevo.http import event_pages
from relevo.http.event_pages import (
    ERRORS,
    RESUMABLE,
    Continuation,
    EventsRead,
    LastEventId,
    ReadLog,
    WaitSeconds,
)
from relevo.kernel.operation import Operations, Sent, Stream
from relevo.router.http.surface import ResourceId
from relevo.router.watching import OfferEnded, OfferPage, OpenOffer
from relevo.router.wire import envelopes

if TYPE_CHECKING:
    from relevo.http.access.authenticator import Principal
    from relevo.http.event_pages import Show
    from relevo.http.services import Services

operation = Operations(RESUMABLE)


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


class ReadEvents(ReadLog, frozen=True, kw_only=True):
    """From where on, and in which form."""

    envelope: Annotated[
        Literal["cloud_events", "event_grid"],
        Meta(description="What each event is wrapped in: CloudEvents 1.0, or Event Grid's."),
    ] = "cloud_events"


async def stream_events(services: Services, _: Principal, command: ReadEvents) -> Stream:
    """Send the events of the router as they come."""
    return await event_pages.stream(services, command, _wrap(command))


@operation(
    "router.events.read", "GET /v1/router/events", "router:read", stream=stream_events,
    errors=ERRORS,
)  # fmt: skip
async def read_events(services: Services, _: Principal, command: ReadEvents) -> EventsRead:
    """Read the events of the job router, or wait for some; a stream if asked for."""
    return await event_pages.read(services, command, _wrap(command))


def _wrap(command: ReadEvents) -> Show:
    return envelopes.event_grid if command.envelope == "event_grid" else envelopes.cloud_event
