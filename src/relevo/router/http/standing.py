"""`/v1/router/channels` and `/v1/router/queues`: which channels there are, and how queues stand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

from msgspec import Meta, Struct

from relevo import limits
from relevo.http import paging
from relevo.http.paging import Cursor, Limit, Page
from relevo.kernel.operation import Operation
from relevo.kernel.pages import first
from relevo.router import overview
from relevo.router.http.insight import ByRouterId
from relevo.router.overview import QueueStanding
from relevo.router.resources import MANAGED_CHANNELS

if TYPE_CHECKING:
    from relevo.http.access.authenticator import Principal
    from relevo.http.services import Services


class ListChannels(Struct, frozen=True, kw_only=True):
    """Which page of channels."""

    cursor: Cursor | None = None
    limit: Limit = limits.PAGE_ROWS_DEFAULT


class ChannelInfo(Struct, frozen=True, kw_only=True):
    """A channel that is known."""

    id: str
    name: str
    managed: bool
    """Whether it is one of those that come with the router."""


class DefineChannel(ByRouterId, frozen=True, kw_only=True):
    """A channel, and what people call it."""

    name: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=limits.ROUTER_LABEL_TEXT_LENGTH_MAX,
            description="For people.",
        ),
    ]


async def list_channels(
    services: Services, _: Principal, command: ListChannels
) -> Page[ChannelInfo]:
    """Return the channels that come with the router, and those that were defined, by id."""
    known = await services.app.router.channels()
    after = paging.decode(command.cursor, str) or ""
    shown = [
        ChannelInfo(id=one, name=name, managed=one in MANAGED_CHANNELS)
        for one, name in sorted(known.items())
        if one > after
    ]
    return paging.page(services.page_bytes, first(shown, command.limit), lambda one: one.id)


async def define_channel(services: Services, _: Principal, command: DefineChannel) -> ChannelInfo:
    """Give a channel a name; in strict mode it can be used from then on."""
    await services.app.router.define_channel(command.id, command.name)
    managed = command.id in MANAGED_CHANNELS
    return ChannelInfo(id=command.id, name=command.name, managed=managed)


class ListStandings(Struct, frozen=True, kw_only=True):
    """Which page of queues, or which queue."""

    queue: Annotated[str, Meta(description="Only this queue.")] | None = None
    cursor: Cursor | None = None
    limit: Limit = limits.PAGE_ROWS_DEFAULT


async def queue_overview(
    services: Services, _: Principal, command: ListStandings
) -> Page[QueueStanding]:
    """Return how queues stand, by id."""
    after = paging.decode(command.cursor, str) or ""
    found = await overview.queues(
        services.app.database, queue_id=command.queue, after=after, limit=command.limit + 1
    )
    return paging.page(services.page_bytes, first(found, command.limit), lambda one: one.queue_id)


OPERATIONS: Final = (
    Operation(
        name="router.channels.list",
        method="GET",
        path="/v1/router/channels",
        summary="List the channels that are known.",
        request=ListChannels,
        response=Page[ChannelInfo],
        permission="router:read",
        handler=list_channels,
    ),
    Operation(
        name="router.channels.define",
        method="PUT",
        path="/v1/router/channels/{id}",
        summary="Give a channel a name; in strict mode it can be used from then on.",
        request=DefineChannel,
        response=ChannelInfo,
        permission="router:manage",
        handler=define_channel,
    ),
    Operation(
        name="router.queues.overview",
        method="GET",
        path="/v1/router/queues",
        summary="Say of every queue who waits, what is offered and at work, and who is there.",
        request=ListStandings,
        response=Page[QueueStanding],
        permission="router:read",
        handler=queue_overview,
    ),
)
