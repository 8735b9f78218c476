"""Changes of jobs on the Dataverse surface: commands by PATCH, singly or in sets, and DELETE."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any, Final
from uuid import UUID

from msgspec import Meta

from relevo import limits
from relevo.dataverse.http.requester import READ, need, requester_of, scope_of
from relevo.dataverse.http.rows import ReadRow, RowKey, SetName, planned_row, typed_key
from relevo.dataverse.http.surface import (
    BASE,
    HEADERS,
    NAMESPACE,
    WEB_API,
    Protected,
    RequestRefused,
    RowRequest,
    WebApiRequest,
)
from relevo.errors import ConditionNotMet, Forbidden, InvalidQuery, MethodNotAllowed, NotFound
from relevo.jobs.commands import Ask, CommandScope
from relevo.jobs.core import codes
from relevo.jobs.core.patches import command_of
from relevo.jobs.errors import JobMissing, JobRefused, PlatformJob, StaleJob
from relevo.jobs.querying.catalogue import JOBS
from relevo.jobs.states import CommandRefusal
from relevo.kernel.operation import Operations, OtherStatus, Reply

if TYPE_CHECKING:
    from collections.abc import Mapping

    from relevo.dataverse.http.requester import Requester
    from relevo.http.access.authenticator import Principal
    from relevo.http.services import Services
    from relevo.kernel.querying.catalogue import Table

WRITE: Final = "jobs:write"
DELETE: Final = "jobs:delete"
_ROW: Final = f"{BASE}/{{name}}({{id}})"
_WITH_VERSION: Final = {**HEADERS, "if_match": "If-Match"}
_SHOWN: Final = OtherStatus(200, lambda reply: reply.status == 200, "The changed job.")
_VERSION: Final = re.compile(r'(?:W/)?"(\d{1,18})"')
_ERRORS: Final = (
    JobMissing,
    JobRefused,
    PlatformJob,
    StaleJob,
    Protected,
    InvalidQuery,
    MethodNotAllowed,
    ConditionNotMet,
    Forbidden,
)
IfMatch = Annotated[str, Meta(description='The expected version, such as `W/"12"`; `*` for any.')]


operation = Operations(WEB_API)


class UpdateRow(RowRequest, frozen=True, kw_only=True):
    """A job and its changes."""

    name: SetName
    id: RowKey
    if_match: IfMatch | None = None
    row: Annotated[
        dict[str, Any],
        Meta(description="`statecode`, `statuscode`, `postponeuntil`, or the recurrence."),
    ]


class DeleteRow(WebApiRequest, frozen=True, kw_only=True):
    """A job to delete."""

    name: SetName
    id: RowKey
    if_match: IfMatch | None = None


class UpdateRows(WebApiRequest, frozen=True, kw_only=True, rename={"targets": "Targets"}):
    """Jobs and their changes."""

    targets: Annotated[
        list[dict[str, Any]],
        Meta(max_length=limits.QUERY_TARGETS_MAX, description="Each with its `asyncoperationid`."),
    ]


@operation(
    "dataverse.rows.update",
    f"PATCH {_ROW}",
    WRITE,
    response=None,
    errors=(*_ERRORS, NotFound),
    outcomes=(_SHOWN,),
    headers=_WITH_VERSION,
    body="row",
)
async def update_row(services: Services, principal: Principal, command: UpdateRow) -> Reply:
    """Cancel, pause, resume or postpone a job, or change its recurrence."""
    requester = await requester_of(services, principal)
    table, key = _job(requester, command.name, command.id)
    look: ReadRow | None = None
    if command.preferences.representation:
        need(principal, READ, "job.read")
        look = await planned_row(services, requester, command, table, str(key))
    scope = await scope_of(services, principal, requester, WRITE, [key])
    ask = _ask(requester, table, key, command.row, scope, _version(command.if_match))
    await services.app.jobs.commands.give(ask)
    row = None if look is None else await look()
    if row is None:  # not requested, or the caller may not read it; the change was made
        return Reply(status=204, headers={"OData-EntityId": f"{command.base}/{_address(key)}"})
    return Reply(
        body=row.body, headers={**row.headers, "Preference-Applied": "return=representation"}
    )


@operation(
    "dataverse.rows.delete",
    f"DELETE {_ROW}",
    DELETE,
    errors=(*_ERRORS, NotFound),
    headers=_WITH_VERSION,
)
async def delete_row(services: Services, principal: Principal, command: DeleteRow) -> None:
    """Delete a job.

    If it is running, its handler is asked to stop.
    """
    requester = await requester_of(services, principal)
    _, key = _job(requester, command.name, command.id)
    scope = await scope_of(services, principal, requester, DELETE, [key])
    version = _version(command.if_match)
    await services.app.jobs.command(
        key, "delete", version=version, user=requester.user.id, scope=scope
    )


@operation(
    "dataverse.rows.update_multiple",
    f"POST {BASE}/{JOBS.set_name}/{NAMESPACE}.UpdateMultiple",
    WRITE,
    errors=_ERRORS,
)
async def update_rows(services: Services, principal: Principal, command: UpdateRows) -> None:
    """Change many jobs in one transaction, all or none."""
    requester = await requester_of(services, principal)
    table = requester.catalogue.by_name[JOBS.name]
    rows: dict[UUID, Mapping[str, Any]] = {}
    for number, target in enumerate(command.targets):
        key = typed_key(table, str(target.get(JOBS.key)))
        assert isinstance(key, UUID)
        if key in rows:
            raise RequestRefused(
                codes.BAD_REQUEST,
                f"job {key} is listed twice; give each job one target",
                pointer=f"/Targets/{number}",
            )
        rows[key] = {name: value for name, value in target.items() if name != JOBS.key}
    scope = await scope_of(services, principal, requester, WRITE, rows)
    asks = [_ask(requester, table, key, row, scope, None) for key, row in rows.items()]
    if asks:
        await services.app.jobs.commands.give_all(asks)


def _job(requester: Requester, set_name: str, text: str) -> tuple[Table, UUID]:
    table = requester.table(set_name)
    if table.name != JOBS.name:
        raise MethodNotAllowed(
            f"{table.set_name} are read-only; only {JOBS.set_name} can be changed"
        )
    key = typed_key(table, text)
    assert isinstance(key, UUID)
    return table, key


def _address(key: UUID) -> str:
    return f"{JOBS.set_name}({key})"


def _ask(
    requester: Requester,
    table: Table,
    key: UUID,
    row: Mapping[str, Any],
    scope: CommandScope,
    version: int | None,
) -> Ask:
    """Return the command of a change; raises `RequestRefused`."""
    known = {*table.by_name, *table.by_wire, *table.navigation_by_name}
    patch = command_of(row, known)
    if isinstance(patch, CommandRefusal):
        kind = Protected if patch.code == codes.PROTECTED_COLUMN else RequestRefused
        raise kind(patch.code, patch.text)
    meant = patch.at(requester.user.now)
    return Ask(
        id=key,
        command=meant.name or "",
        until=meant.until,
        change=meant if meant.of_series else None,
        version=version,
        user=requester.user.id,
        scope=scope,
    )


def _version(tag: str | None) -> int | None:
    """Return the version in `If-Match`; None for any."""
    if tag is None or tag.strip() == "*":
        return None
    match = _VERSION.fullmatch(tag.strip())
    if match is None:
        raise ConditionNotMet(f"If-Match {tag[:64]!r} is not a row version; send its @odata.etag")
    return int(match[1])
