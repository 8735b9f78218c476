"""`/v1/events`: the event log of all parts, to be read or followed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Meta

from relevo import limits
from relevo.errors import InvalidExpression
from relevo.http import event_pages
from relevo.http.event_pages import ERRORS, RESUMABLE, EventsRead, ReadLog
from relevo.kernel import cpu
from relevo.kernel.operation import Operations, Stream
from relevo.webhooks.core import envelopes
from relevo.webhooks.core.envelopes import EventFormat
from relevo.webhooks.core.filters import EventFilter, EventView

if TYPE_CHECKING:
    from relevo.http.access.authenticator import Principal
    from relevo.http.event_pages import Show
    from relevo.http.services import Services
    from relevo.kernel.events import Recorded

operation = Operations(RESUMABLE)


class ReadEventLog(ReadLog, frozen=True, kw_only=True):
    """Which events, from where on, and in which form."""

    types: Annotated[
        tuple[Annotated[str, Meta(max_length=limits.NAME_LENGTH_MAX)], ...],
        Meta(
            max_length=limits.WEBHOOK_TYPES_MAX,
            description="Only events of these types, such as `relevo.job.failed` or"
            " `relevo.job.*`; all without it.",
        ),
    ] = ()
    filter: (
        Annotated[
            str,
            Meta(
                max_length=limits.FILTER_LENGTH_MAX,
                description="A condition that events must meet, such as `data.lane = 'post'`.",
            ),
        ]
        | None
    ) = None
    format: Annotated[
        EventFormat, Meta(description="`cloudevents` is CloudEvents 1.0, `eventgrid` Event Grid's.")
    ] = "cloudevents"


async def stream_event_log(services: Services, _: Principal, command: ReadEventLog) -> Stream:
    """Send events as they come."""
    return await event_pages.stream(services, command, await _show(command))


@operation(
    "events.read",
    "GET /v1/events",
    "events:read",
    stream=stream_event_log,
    errors=(*ERRORS, InvalidExpression),
)
async def read_event_log(services: Services, _: Principal, command: ReadEventLog) -> EventsRead:
    """Read the events of all parts, or wait for some; a stream if asked for."""
    return await event_pages.read(services, command, await _show(command))


async def _show(command: ReadEventLog) -> Show:
    """Return what is sent of an event; raises `InvalidExpression` for a wrong condition."""
    wanted = await cpu.parsed(
        len(command.filter or ""), EventFilter, command.types or ("*",), command.filter
    )

    def show(event: Recorded) -> Any:
        if not wanted.takes(EventView(event)):
            return None
        return msgspec.Raw(envelopes.document(event, command.format))

    return show
