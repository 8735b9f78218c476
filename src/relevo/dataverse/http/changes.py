"""Changing jobs on the Dataverse surface: commands by PATCH, alone or many at once, and DELETE."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any, Final
from uuid import UUID

from msgspec import Meta

from relevo import limits
from relevo.dataverse.http.asking import READ, asker, need, scope_of
from relevo.dataverse.http.rows import Look, RowKey, SetName, planned_row, typed_key
from relevo.dataverse.http.surface import (
    BASE,
    HEADERS,
    NAMESPACE,
    WEB_API,
    Asked,
    AskedOne,
    Protected,
    Refused,
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

    from relevo.dataverse.http.asking import Asker
    from relevo.http.access.authenticator import Principal
    from relevo.http.services import Services
    from relevo.kernel.querying.catalogue import Table

WRITE: Final = "jobs:write"
DELETE: Final = "jobs:delete"
_ROW: Final = f"{BASE}/{{name}}({{id}})"
_WITH_VERSION: Final = {**HEADERS, "if_match": "If-Match"}
_SHOWN: Final = OtherStatus(200, lambda reply: reply.status == 200, "The job as it is then.")
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
IfMatch = Annotated[str, Meta(description='The version that is meant, `W/"12"`; `*` for any.')]


operation = Operations(WEB_API)


class UpdateRow(AskedOne, frozen=True, kw_only=True):
    """Which job, and what is to change."""

    name: SetName
    id: RowKey
    if_match: IfMatch | None = None
    row: Annotated[
        dict[str, Any],
        Meta(description="`statecode`, `statuscode`, `postponeuntil`, or how it recurs."),
    ]


class DeleteRow(Asked, frozen=True, kw_only=True):
    """Which job."""

    name: SetName
    id: RowKey
    if_match: IfMatch | None = None


class UpdateRows(Asked, frozen=True, kw_only=True, rename={"targets": "Targets"}):
    """Which jobs, and what is to change of each."""

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
    """Cancel, pause, resume or postpone a job, or change how it recurs."""
    who = await asker(services, principal)
    table, key = _job(who, command.name, command.id)
    look: Look | None = None
    if command.preferences.representation:
        need(principal, READ, "job.read")
        look = await planned_row(services, who, command, table, str(key))
    scope = await scope_of(services, principal, who, WRITE, [key])
    ask = _ask(who, table, key, command.row, scope, _version(command.if_match))
    await services.app.jobs.commands.give(ask)
    row = None if look is None else await look()
    if row is None:  # not wanted, or beyond what the caller may read: the change was made
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

    A handler that runs it is asked to stop.
    """
    who = await asker(services, principal)
    _, key = _job(who, command.name, command.id)
    scope = await scope_of(services, principal, who, DELETE, [key])
    version = _version(command.if_match)
    await services.app.jobs.command(key, "delete", version=version, user=who.user.id, scope=scope)


@operation(
    "dataverse.rows.update_multiple",
    f"POST {BASE}/{JOBS.set_name}/{NAMESPACE}.UpdateMultiple",
    WRITE,
    errors=_ERRORS,
)
async def update_rows(services: Services, principal: Principal, command: UpdateRows) -> None:
    """Change many jobs in one transaction, all or none."""
    who = await asker(services, principal)
    table = who.catalogue.by_name[JOBS.name]
    rows: dict[UUID, Mapping[str, Any]] = {}
    for number, target in enumerate(command.targets):
        key = typed_key(table, str(target.get(JOBS.key)))
        assert isinstance(key, UUID)
        if key in rows:
            raise Refused(
                codes.BAD_REQUEST,
                f"the job {key} is there twice; give each one target",
                pointer=f"/Targets/{number}",
            )
        rows[key] = {name: value for name, value in target.items() if name != JOBS.key}
    scope = await scope_of(services, principal, who, WRITE, rows)
    asks = [_ask(who, table, key, row, scope, None) for key, row in rows.items()]
    if asks:
        await services.app.jobs.commands.give_all(asks)


def _job(who: Asker, set_name: str, text: str) -> tuple[Table, UUID]:
    table = who.table(set_name)
    if table.name != JOBS.name:
        raise MethodNotAllowed(f"{table.set_name} are only read here; change {JOBS.set_name}")
    key = typed_key(table, text)
    assert isinstance(key, UUID)
    return table, key


def _address(key: UUID) -> str:
    return f"{JOBS.set_name}({key})"


def _ask(
    who: Asker,
    table: Table,
    key: UUID,
    row: Mapping[str, Any],
    scope: CommandScope,
    version: int | None,
) -> Ask:
    """What a change means, wholly or not at all."""
    known = {*table.by_name, *table.by_wire, *table.navigation_by_name}
    found = command_of(row, known)
    if isinstance(found, CommandRefusal):
        kind = Protected if found.code == codes.PROTECTED_COLUMN else Refused
        raise kind(found.code, found.text)
    meant = found.at(who.user.now)
    return Ask(
        id=key,
        command=meant.name or "",
        until=meant.until,
        change=meant if meant.of_series else None,
        version=version,
        user=who.user.id,
        scope=scope,
    )


def _version(tag: str | None) -> int | None:
    """The version in `If-Match`; None if any will do."""
    if tag is None or tag.strip() == "*":
        return None
    found = _VERSION.fullmatch(tag.strip())
    if found is None:
        raise ConditionNotMet(f"If-Match {tag[:64]!r} is no version of a row; send its @odata.etag")
    return int(found[1])
