"""The table of everything that can be asked of Relevo (DESIGN D13).

Routing, OpenAPI, authorisation, the CLI's generic commands and the reference come from it.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Final

import msgspec

from relevo.dataverse.http import actions as dataverse_actions
from relevo.dataverse.http import bulk as dataverse_bulk
from relevo.dataverse.http import bulk_deletes, users
from relevo.dataverse.http import changes as dataverse_changes
from relevo.dataverse.http import metadata as dataverse_metadata
from relevo.dataverse.http import rows as dataverse_rows
from relevo.dataverse.http import surface as dataverse
from relevo.errors import Conflict, NotFound
from relevo.feed.http import administration as unit_administration
from relevo.feed.http import changes as feed
from relevo.feed.http import dead_letters as letters
from relevo.feed.http import operations as unit_operations
from relevo.feed.http import units
from relevo.http import openapi, system, v1
from relevo.http.access import authenticator as auth
from relevo.http.access.keys import KeyCreated, KeyInfo
from relevo.http.paging import Page
from relevo.http.surface import Surfaces
from relevo.jobs.http import jobs
from relevo.jobs.http import views as job_views
from relevo.kernel.leases.model import HostInfo, LeaseInfo
from relevo.kernel.operation import PUBLIC, Method, Operation, Outcome, Text
from relevo.router.http import insight as routing_insight
from relevo.router.http import jobs as routing_jobs
from relevo.router.http import offers as routing_offers
from relevo.router.http import policies as routing_policies
from relevo.router.http import standing as routing_standing
from relevo.router.http import surface as routing
from relevo.router.http import workers as routing_workers
from relevo.store.http import bulk, items
from relevo.store.http import containers as store

if TYPE_CHECKING:
    from relevo.http.services import Services

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
