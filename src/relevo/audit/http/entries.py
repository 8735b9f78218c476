"""`/v1/audit`: what operators and keys have changed."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated

from msgspec import Meta, Struct

from relevo import limits
from relevo.audit.service import AuditEntry, AuditFilter, CallerKind
from relevo.http import paging
from relevo.http.paging import Cursor, Limit, Page
from relevo.kernel.operation import Operations
from relevo.kernel.pages import first

if TYPE_CHECKING:
    from relevo.http.access.authenticator import Principal
    from relevo.http.services import Services

operation = Operations()
Word = Annotated[str, Meta(max_length=limits.NAME_LENGTH_MAX)]


class ListAudit(Struct, frozen=True, kw_only=True):
    """Which page of the audit."""

    by: Annotated[Word, Meta(description="Only what the key of this id did.")] | None = None
    operation: (
        Annotated[
            Word,
            Meta(description="Only an operation, such as `queues.drop`, or all of `queues`."),
        ]
        | None
    ) = None
    resource: (
        Annotated[
            str,
            Meta(
                max_length=limits.AUDIT_RESOURCE_LENGTH_MAX,
                description="Only paths that begin like this, such as `/v1/queues/mail`.",
            ),
        ]
        | None
    ) = None
    caller: Annotated[CallerKind, Meta(description="Only calls of AI agents.")] | None = None
    since: Annotated[datetime, Meta(tz=True, description="From this instant on.")] | None = None
    until: Annotated[datetime, Meta(tz=True, description="Before this instant.")] | None = None
    cursor: Cursor | None = None
    limit: Limit = limits.PAGE_ROWS_DEFAULT


@operation("audit.list", "GET /v1/audit", "audit:read")
async def list_audit(services: Services, _: Principal, command: ListAudit) -> Page[AuditEntry]:
    """List what operators and keys have changed, the latest first."""
    wanted = AuditFilter(
        by=command.by, operation=command.operation, resource=command.resource,
        caller=command.caller,
        since=command.since, until=command.until,
    )  # fmt: skip
    before = paging.decode(command.cursor, int)
    found = await services.app.audit.list(wanted, before=before, limit=command.limit + 1)
    return paging.page(services.page_bytes, first(found, command.limit), lambda one: one.id)
