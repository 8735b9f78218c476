"""`/v1/consumers`: who serves which queues, and operators who pause them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from msgspec import Meta, Struct

from relevo import limits
from relevo.errors import NotFound
from relevo.http import paging
from relevo.http.paging import Cursor, Limit, Page
from relevo.kernel.operation import Operations
from relevo.kernel.pages import first
from relevo.messaging.http.models import Instant
from relevo.messaging.operating import consumers
from relevo.messaging.operating.consumers import ConsumersView

if TYPE_CHECKING:
    from relevo.http.access.authenticator import Principal
    from relevo.http.services import Services

operation = Operations(errors=(NotFound,))


class ListConsumers(Struct, frozen=True, kw_only=True):
    """Which page of consumers."""

    cursor: Cursor | None = None
    limit: Limit = limits.PAGE_ROWS_DEFAULT


@operation("consumers.list", "GET /v1/consumers", "queues:read", errors=())
async def list_consumers(
    services: Services, _: Principal, command: ListConsumers
) -> Page[ConsumersView]:
    """List consumers, the hosts that serve them and what those hold."""
    after = paging.decode(command.cursor, str) or ""
    found = await consumers.listed(services.app.database, after=after, limit=command.limit + 1)
    return paging.page(services.page_bytes, first(found, command.limit), lambda one: one.name)


class ByConsumers(Struct, frozen=True, kw_only=True):
    """Which consumers."""

    name: Annotated[
        str, Meta(max_length=limits.MESSAGE_ID_LENGTH_MAX, description="The consumers' name.")
    ]


@operation("consumers.get", "GET /v1/consumers/{name}", "queues:read")
async def get_consumers(services: Services, _: Principal, command: ByConsumers) -> ConsumersView:
    """Show consumers, the hosts that serve them and what those hold."""
    return await consumers.found(services.app.database, command.name)


class PauseConsumers(ByConsumers, frozen=True, kw_only=True):
    """Which consumers claim nothing, why and until when."""

    reason: (
        Annotated[
            str,
            Meta(max_length=limits.MESSAGE_REASON_LENGTH_MAX, description="Why, for people."),
        ]
        | None
    ) = None
    until: (
        Annotated[Instant, Meta(description="When they go on. Without it, when resumed.")] | None
    ) = None


@operation("consumers.pause", "POST /v1/consumers/{name}:pause", "queues:manage")
async def pause_consumers(
    services: Services, _: Principal, command: PauseConsumers
) -> ConsumersView:
    """Let consumers claim nothing more; messages wait, and handlers finish."""
    database = services.app.database
    await consumers.pause(database, command.name, reason=command.reason, until=command.until)
    return await consumers.found(database, command.name)


@operation("consumers.resume", "POST /v1/consumers/{name}:resume", "queues:manage")
async def resume_consumers(services: Services, _: Principal, command: ByConsumers) -> ConsumersView:
    """Let paused consumers go on."""
    messaging = services.app.messaging
    await consumers.resume(messaging.database, messaging.wakeups, command.name)
    return await consumers.found(messaging.database, command.name)


class ScaleView(Struct, frozen=True, kw_only=True):
    """How many replicas consumers should have; a scaler reads `value`."""

    value: int
    by: str
    """The measure that asks for them: `backlog`, `rate`, `slo`, or a bound."""
    replicas: int
    """Hosts that serve them now."""


@operation("consumers.scale", "GET /v1/consumers/{name}/scale", "queues:read")
async def scale_consumers(services: Services, _: Principal, command: ByConsumers) -> ScaleView:
    """Say how many replicas consumers should have."""
    found = await services.app.messaging.tools.scaler.desired(command.name)
    return ScaleView(value=found.value, by=found.by, replicas=found.replicas)
