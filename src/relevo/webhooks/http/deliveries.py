"""`/v1/webhooks/{name}/deliveries`: what was sent, what waits, and dead letters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from msgspec import Meta

from relevo import limits
from relevo.errors import NotFound
from relevo.http import paging
from relevo.http.paging import Cursor, Limit, Page
from relevo.kernel.operation import Operations
from relevo.kernel.pages import first
from relevo.webhooks.http.webhooks import SCOPE, ByWebhook
from relevo.webhooks.model import DeliveriesChanged, Delivery, DeliveryState
from relevo.webhooks.service import CHANGED_MAX

if TYPE_CHECKING:
    from relevo.http.access.authenticator import Principal
    from relevo.http.services import Services

operation = Operations(scope=SCOPE, errors=(NotFound,))
State = Annotated[
    DeliveryState,
    Meta(description="`dead` letters, those `waiting`, or those `delivered` in the last day."),
]


class ListDeliveries(ByWebhook, frozen=True, kw_only=True):
    """Which page of a webhook's deliveries."""

    state: State = "dead"
    cursor: Cursor | None = None
    limit: Limit = limits.PAGE_ROWS_DEFAULT


@operation("webhooks.deliveries.list", "GET /v1/webhooks/{name}/deliveries", "webhooks:read")
async def list_deliveries(
    services: Services, _: Principal, command: ListDeliveries
) -> Page[Delivery]:
    """List deliveries of a webhook by id, by default its dead letters."""
    after = paging.decode(command.cursor, int) or 0
    found = await services.app.webhooks.deliveries(
        command.name, command.state, after=after, limit=command.limit + 1
    )
    return paging.page(services.page_bytes, first(found, command.limit), lambda one: one.id)


class ByDelivery(ByWebhook, frozen=True, kw_only=True):
    """Which delivery."""

    id: Annotated[int, Meta(ge=1, le=2**63 - 1, description="The delivery's id.")]


class ByDeliveryState(ByWebhook, frozen=True, kw_only=True):
    """Which deliveries."""

    state: State = "dead"
    limit: Annotated[
        int, Meta(ge=1, le=CHANGED_MAX, description="So many at the most, the oldest first.")
    ] = CHANGED_MAX


@operation(
    "webhooks.deliveries.replay",
    "POST /v1/webhooks/{name}/deliveries/{id}:replay",
    "webhooks:manage",
)
async def replay_delivery(
    services: Services, _: Principal, command: ByDelivery
) -> DeliveriesChanged:
    """Send an event to a webhook again, as if it were new."""
    return DeliveriesChanged(await services.app.webhooks.replay(command.name, command.id))


@operation(
    "webhooks.deliveries.replay_all",
    "POST /v1/webhooks/{name}/deliveries:replay",
    "webhooks:manage",
)
async def replay_deliveries(
    services: Services, _: Principal, command: ByDeliveryState
) -> DeliveriesChanged:
    """Send all dead letters of a webhook again, or those of another state."""
    return DeliveriesChanged(
        await services.app.webhooks.replay(command.name, state=command.state, limit=command.limit)
    )


@operation(
    "webhooks.deliveries.discard",
    "DELETE /v1/webhooks/{name}/deliveries/{id}",
    "webhooks:manage",
)
async def discard_delivery(
    services: Services, _: Principal, command: ByDelivery
) -> DeliveriesChanged:
    """Remove an event for a webhook without sending it."""
    return DeliveriesChanged(await services.app.webhooks.discard(command.name, command.id))


@operation(
    "webhooks.deliveries.discard_all",
    "POST /v1/webhooks/{name}/deliveries:discard",
    "webhooks:manage",
)
async def discard_deliveries(
    services: Services, _: Principal, command: ByDeliveryState
) -> DeliveriesChanged:
    """Remove all dead letters of a webhook, or those of another state."""
    return DeliveriesChanged(
        await services.app.webhooks.discard(command.name, state=command.state, limit=command.limit)
    )
