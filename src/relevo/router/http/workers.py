"""`/routing/workers` and their offers: the requests of Azure's client."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Final

import msgspec
from msgspec import Meta

from relevo import limits
from relevo.errors import ConditionNotMet, InUse, InvalidState, NotFound, OfferGone
from relevo.http.paging import Page
from relevo.kernel.operation import Operations, Versioned
from relevo.router.core.offers import Accepted
from relevo.router.http.jobs import QUERY, Done, after, page_of
from relevo.router.http.surface import (
    FIXED,
    MERGE_PATCH,
    PREVIEW,
    ById,
    Listing,
    ListResources,
    PatchResource,
    one_of,
)
from relevo.router.listing import WorkerFilter
from relevo.router.wire.views import RouterWorker, Shown

if TYPE_CHECKING:
    from relevo.http.access.authenticator import Principal
    from relevo.http.services import Services

STATES: Final = ("all", "active", "draining", "inactive")
_SCOPE: Final = "worker:{id}"


operation = Operations(fixed=FIXED, scope=_SCOPE)


class ListWorkers(ListResources, frozen=True, kw_only=True, rename="camel"):
    """Which workers, and which page of them; conditions combine with "and"."""

    state: Annotated[
        str, Meta(description="Only in this state.", extra_json_schema={"enum": list(STATES)})
    ] = "all"
    queue_id: Annotated[str, Meta(description="Only workers of this queue.")] | None = None
    channel_id: Annotated[str, Meta(description="Only workers with this channel.")] | None = None
    has_capacity: Annotated[
        bool, Meta(description="Only who could take one more job, on that channel or on any.")
    ] = False


class ByOffer(ById, frozen=True, kw_only=True, rename="camel"):
    """Which offer to which worker."""

    offer_id: Annotated[str, Meta(description="The offer, to this worker.")]


class DeclineOffer(ByOffer, frozen=True, kw_only=True, rename="camel"):
    """When a declined job may come again."""

    retry_offer_at: (
        Annotated[datetime, Meta(description="When this worker may be asked again.")] | None
    ) = None


@operation(
    "router.workers.list",
    "GET /routing/workers",
    "workers:read",
    response=Listing[RouterWorker],
    scope=None,
)
async def list_workers(
    services: Services, _: Principal, command: ListWorkers
) -> Page[RouterWorker]:
    """List workers."""
    wanted = WorkerFilter(
        state=one_of(command.state, STATES, "state"),  # type: ignore[arg-type]
        queue_id=command.queue_id,
        channel_id=command.channel_id,
        has_capacity=command.has_capacity,
    )
    limit = min(command.limit, limits.ROUTER_PAGE_ROWS_MAX)
    found = await services.app.router.list_workers(wanted, after(command), limit)
    return page_of(services, found, lambda one: _seen(one, command.api_version))


@operation("router.workers.get", "GET /routing/workers/{id}", "workers:read", errors=(NotFound,))
async def get_worker(services: Services, _: Principal, command: ById) -> Versioned[RouterWorker]:
    """Show a worker with its offers and assignments."""
    shown = await services.app.router.show_worker(command.id)
    return _versioned(shown, command.api_version)


@operation(
    "router.workers.patch",
    "PATCH /routing/workers/{id}",
    "router:work",
    MERGE_PATCH,
    errors=(ConditionNotMet,),
)
async def patch_worker(
    services: Services, _: Principal, command: PatchResource
) -> Versioned[RouterWorker]:
    """Create a worker, or change it by a merge patch."""
    router = services.app.router
    shown = await router.put_worker(command.id, command.patch, command.conditions)
    return _versioned(shown, command.api_version)


@operation("router.workers.delete", "DELETE /routing/workers/{id}", "router:work", errors=(InUse,))
async def delete_worker(services: Services, _: Principal, command: ById) -> None:
    """Delete a worker that has no assignments; again changes nothing."""
    await services.app.router.delete_worker(command.id)


@operation(
    "router.offers.accept",
    "POST /routing/workers/{id}/offers/{offerId}:accept",
    "offers:answer",
    errors=(NotFound, OfferGone),
    query=QUERY,
)
async def accept_offer(services: Services, _: Principal, command: ByOffer) -> Accepted:
    """Turn an offer into an assignment; of several workers, the first wins."""
    return await services.app.router.accept_offer(command.id, command.offer_id)


@operation(
    "router.offers.decline",
    "POST /routing/workers/{id}/offers/{offerId}:decline",
    "offers:answer",
    errors=(NotFound, InvalidState, OfferGone),
    query=QUERY,
)
async def decline_offer(services: Services, _: Principal, command: DeclineOffer) -> Done:
    """Give an offer back, for good or until a time."""
    await services.app.router.decline_offer(
        command.id, command.offer_id, retry_at=command.retry_offer_at
    )
    return Done()


def _seen(view: RouterWorker, version: str) -> RouterWorker:
    """Return a worker as callers of a version know it."""
    if version == PREVIEW or view.max_concurrent_offers is None:
        return view
    return msgspec.structs.replace(view, max_concurrent_offers=None)


def _versioned(shown: Shown[RouterWorker], version: str) -> Versioned[RouterWorker]:
    return Versioned(
        body=_seen(shown.view, version),
        etag=shown.view.etag,
        modified_at=shown.modified_at,
        created=shown.created,
    )
