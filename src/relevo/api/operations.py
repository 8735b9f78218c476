"""The table of everything that can be asked of Relevo (DESIGN D13).

Routing, OpenAPI, authorisation, the CLI's generic commands and the reference come from it.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Final

import msgspec

from relevo.api import auth, openapi
from relevo.api.contract import PUBLIC, Method, Operation, Outcome, Text
from relevo.api.keys import KeyCreated, KeyInfo
from relevo.api.paging import Page
from relevo.api.surface import Surfaces
from relevo.api.surfaces import (
    bulk,
    bulk_deletes,
    dataverse,
    dataverse_actions,
    dataverse_bulk,
    dataverse_changes,
    dataverse_metadata,
    dataverse_rows,
    feed,
    items,
    job_views,
    jobs,
    letters,
    routing,
    routing_insight,
    routing_jobs,
    routing_offers,
    routing_policies,
    routing_standing,
    routing_workers,
    store,
    system,
    unit_administration,
    unit_operations,
    units,
    users,
    v1,
)
from relevo.errors import Conflict, NotFound
from relevo.leases.model import HostInfo, LeaseInfo

if TYPE_CHECKING:
    from relevo.api.services import Services

__all__ = ["OPERATIONS", "PUBLIC", "SURFACES", "Method", "Operation", "Text", "call", "operation"]

SURFACES: Final = Surfaces((v1.SURFACE, routing.SURFACE, dataverse.SURFACE))


async def _openapi(_: Services, __: auth.Principal, ___: system.Nothing) -> Text:
    """Return the document that this table makes."""
    return Text("application/json", _document())


@functools.cache
def _document() -> bytes:
    return msgspec.json.encode(openapi.document(OPERATIONS, SURFACES))


OPERATIONS: Final[tuple[Operation, ...]] = (
    Operation(
        name="system.livez",
        method="GET",
        path="/livez",
        summary="Say that the process answers.",
        request=system.Nothing,
        response=system.Liveness,
        permission=PUBLIC,
        handler=system.livez,
        in_overload=True,
    ),
    Operation(
        name="system.readyz",
        method="GET",
        path="/readyz",
        summary="Say whether the host can do its work, and if not, why.",
        request=system.Nothing,
        response=system.Readiness,
        permission=PUBLIC,
        handler=system.readyz,
        outcomes=(Outcome(503, lambda readiness: not readiness.ready, "Not ready."),),
        in_overload=True,
    ),
    Operation(
        name="system.health",
        method="GET",
        path="/v1/health",
        summary="Say whether the host can do its work, with the reasons in full.",
        request=system.Nothing,
        response=system.Readiness,
        permission="health:read",
        handler=system.health,
    ),
    Operation(
        name="system.metrics",
        method="GET",
        path="/metrics",
        summary="Read the figures of this host in the text format of Prometheus.",
        request=system.Nothing,
        response=Text,
        permission="metrics:read",
        handler=system.metrics,
        in_overload=True,
    ),
    Operation(
        name="system.openapi",
        method="GET",
        path="/openapi.json",
        summary="Describe this API as an OpenAPI 3.1 document.",
        request=system.Nothing,
        response=Text,
        permission=PUBLIC,
        handler=_openapi,
    ),
    Operation(
        name="hosts.list",
        method="GET",
        path="/v1/hosts",
        summary="List the hosts.",
        request=v1.ListHosts,
        response=Page[HostInfo],
        permission="hosts:read",
        handler=v1.list_hosts,
    ),
    Operation(
        name="hosts.drain",
        method="POST",
        path="/v1/hosts/{name}:drain",
        summary="Have a host hand over all it owns.",
        request=v1.ByHostName,
        response=None,
        permission="hosts:drain",
        handler=v1.drain_host,
        errors=(NotFound,),
    ),
    Operation(
        name="hosts.resume",
        method="POST",
        path="/v1/hosts/{name}:resume",
        summary="Let a drained host take leases again.",
        request=v1.ByHostName,
        response=None,
        permission="hosts:drain",
        handler=v1.resume_host,
        errors=(NotFound,),
    ),
    Operation(
        name="leases.list",
        method="GET",
        path="/v1/leases",
        summary="List leases and who owns them.",
        request=v1.ListLeases,
        response=Page[LeaseInfo],
        permission="leases:read",
        handler=v1.list_leases,
    ),
    Operation(
        name="leases.move",
        method="POST",
        path="/v1/leases/{kind}/{unit}/{name}:move",
        summary="Ask for a lease to go to another host.",
        request=v1.MoveLease,
        response=None,
        permission="leases:move",
        handler=v1.move_lease,
        errors=(Conflict,),
    ),
    Operation(
        name="leases.pause",
        method="POST",
        path="/v1/leases/{kind}/{unit}/{name}:pause",
        summary="Have the owner of a lease let go, and nobody take over.",
        request=v1.ByLease,
        response=None,
        permission="leases:pause",
        handler=v1.pause_lease,
        errors=(NotFound,),
    ),
    Operation(
        name="leases.resume",
        method="POST",
        path="/v1/leases/{kind}/{unit}/{name}:resume",
        summary="Let a paused or blocked lease be owned again.",
        request=v1.ByLease,
        response=None,
        permission="leases:pause",
        handler=v1.resume_lease,
        errors=(NotFound,),
    ),
    Operation(
        name="keys.list",
        method="GET",
        path="/v1/keys",
        summary="List access keys.",
        request=v1.ListKeys,
        response=Page[KeyInfo],
        permission="keys:read",
        handler=v1.list_keys,
    ),
    Operation(
        name="keys.create",
        method="POST",
        path="/v1/keys",
        summary="Make an access key; its secret is shown this once.",
        request=v1.CreateKey,
        response=KeyCreated,
        permission="keys:write",
        handler=v1.create_key,
        errors=(Conflict,),
        status=201,
    ),
    Operation(
        name="keys.get",
        method="GET",
        path="/v1/keys/{id}",
        summary="Show an access key.",
        request=v1.ByKeyId,
        response=KeyInfo,
        permission="keys:read",
        handler=v1.get_key,
        errors=(NotFound,),
    ),
    Operation(
        name="keys.revoke",
        method="DELETE",
        path="/v1/keys/{id}",
        summary="End an access key for good; again changes nothing.",
        request=v1.ByKeyId,
        response=KeyInfo,
        permission="keys:write",
        handler=v1.revoke_key,
        errors=(NotFound,),
    ),
    *store.OPERATIONS,
    *items.OPERATIONS,
    *bulk.OPERATIONS,
    *feed.OPERATIONS,
    *units.OPERATIONS,
    *unit_operations.OPERATIONS,
    *unit_administration.OPERATIONS,
    *letters.OPERATIONS,
    *users.OPERATIONS,
    *routing_policies.OPERATIONS,
    *routing_jobs.OPERATIONS,
    *routing_workers.OPERATIONS,
    *routing_offers.OPERATIONS,
    *routing_insight.OPERATIONS,
    *routing_standing.OPERATIONS,
    *jobs.OPERATIONS,
    *job_views.OPERATIONS,
    *bulk_deletes.OPERATIONS,
    *dataverse_metadata.OPERATIONS,
    *dataverse_rows.OPERATIONS,
    *dataverse_changes.OPERATIONS,
    *dataverse_bulk.OPERATIONS,
    *dataverse_actions.OPERATIONS,
)

_BY_NAME: Final = {operation.name: operation for operation in OPERATIONS}
assert len(_BY_NAME) == len(OPERATIONS), "two operations share a name"


def operation(name: str) -> Operation:
    """Return the operation of a name; raises `KeyError`."""
    return _BY_NAME[name]


async def call(
    operation: Operation,
    services: Services,
    principal: auth.Principal,
    command: Any,
    *,
    stream: bool = False,
) -> Any:
    """Authorise and run an operation: the one way in, for HTTP and for the CLI in process."""
    auth.authorise(principal, operation, command)
    handler = operation.stream if stream and operation.stream else operation.handler
    return await handler(services, principal, command)
