"""Bulk operations on the Dataverse surface: `BulkDelete` and `BulkDetectDuplicates`.

Rows are named by a `QueryExpression`; its conditions become those of `relevo.bulk`, all of which
must hold. What these cannot say is refused by name, never left out.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Final
from uuid import UUID

import msgspec
from msgspec import Meta, Struct

from relevo import limits
from relevo.api.contract import Operation
from relevo.api.surfaces.dataverse import BASE, HEADERS, NEWEST, Asked, Refused
from relevo.api.surfaces.dataverse_asking import SQL, asker, need
from relevo.api.surfaces.dataverse_changes import DELETE
from relevo.bulk import RowQuery
from relevo.errors import Forbidden, InvalidValue
from relevo.jobs import codes
from relevo.jobs.catalogue import JOBS
from relevo.jobs.model import Recurrence
from relevo.jobs.surroundings import SURROUNDINGS

if TYPE_CHECKING:
    from relevo.api.auth import Principal
    from relevo.api.services import Services
    from relevo.api.surfaces.dataverse_asking import Asker
    from relevo.querying.catalogue import ColumnType, Table

RUN: Final = "bulk:run"
_ONE: Final = {
    "Equal": "=",
    "NotEqual": "!=",
    "GreaterThan": ">",
    "GreaterEqual": ">=",
    "LessThan": "<",
    "LessEqual": "<=",
}
"""Operators of one value, as `relevo.bulk` writes them."""
_PRESENCE: Final = {"Null": False, "NotNull": True}
_GUID_LENGTH: Final = 36


class Condition(Struct, frozen=True, kw_only=True, rename="pascal"):
    """What a column of the rows is compared with."""

    attribute_name: str
    operator: str
    values: list[Any] = []


class Criteria(Struct, frozen=True, kw_only=True, rename="pascal"):
    """Conditions, all of which must hold."""

    filter_operator: str = "And"
    conditions: Annotated[list[Condition], Meta(max_length=limits.QUERY_CONDITIONS_MAX)] = []
    filters: list[Any] = []


class QueryExpression(Struct, frozen=True, kw_only=True, rename="pascal"):
    """Which rows of a table."""

    entity_name: Annotated[str, Meta(description="The table's logical name.")]
    criteria: Criteria = Criteria()
    link_entities: list[Any] = []


Name = Annotated[str, Meta(min_length=1, max_length=256, pattern=r"^[^\x00]*$")]
Instant = Annotated[datetime, Meta(tz=True)]
_RENAMED: Final = {
    "job_name": "JobName",
    "query_set": "QuerySet",
    "query": "Query",
    "recurrence_pattern": "RecurrencePattern",
    "start_date_time": "StartDateTime",
    "recurrence_start_time": "RecurrenceStartTime",
    "send_email_notification": "SendEmailNotification",
}


class Started(Asked, frozen=True, kw_only=True, rename=_RENAMED):
    """What bulk operations have in common."""

    job_name: Name
    recurrence_pattern: Annotated[str, Meta(description="Such as `FREQ=DAILY;`.")] | None = None
    send_email_notification: Annotated[bool, Meta(description="Only `false`: no mail is sent.")] = (
        False
    )


class BulkDelete(Started, frozen=True, kw_only=True, rename=_RENAMED):
    """Which rows are to be deleted, when and how often."""

    query_set: Annotated[list[QueryExpression], Meta(min_length=1, max_length=100)]
    start_date_time: Instant | None = None


class BulkDetectDuplicates(Started, frozen=True, kw_only=True, rename=_RENAMED):
    """Among which rows duplicates are looked for, when and how often."""

    query: QueryExpression
    recurrence_start_time: Instant | None = None


class BulkStarted(Struct, frozen=True, kw_only=True, rename="pascal"):
    """The job that does it."""

    job_id: UUID


async def bulk_delete(services: Services, principal: Principal, command: BulkDelete) -> BulkStarted:
    """Submit a job that deletes rows."""
    who = await asker(services, principal)
    queries = [_rows(principal, who, one) for one in command.query_set]
    options = _when(command, command.start_date_time, who)
    job = await services.app.bulk.delete(queries, name=command.job_name, **options)
    return BulkStarted(job_id=job.id)


async def bulk_detect_duplicates(
    services: Services, principal: Principal, command: BulkDetectDuplicates
) -> BulkStarted:
    """Submit a job that looks for duplicates, by the published rule of the table."""
    who = await asker(services, principal)
    table = _table(who, command.query)
    known = services.app.pipeline.registry.tables.get(table.name)
    container = table.name if known is None else known.container.name
    rows = await services.app.database.fetch(SQL.published_rules, container)
    if len(rows) != 1:
        found = ", ".join(row["name"] for row in rows) or "none"
        raise InvalidValue(
            f"duplicates of {table.name} are found by its one published rule, and there are:"
            f" {found}; publish one with app.bulk.publish_rule",
            pointer="/Query",
        )
    where = _conditions(who, table, command.query)
    options = _when(command, command.recurrence_start_time, who)
    job = await services.app.bulk.detect_duplicates(
        rows[0]["name"], where, name=command.job_name, **options
    )
    return BulkStarted(job_id=job.id)


def _when(command: Started, start: datetime | None, who: Asker) -> dict[str, Any]:
    if command.send_email_notification:
        raise InvalidValue(
            "no mail is sent when a bulk operation ends; say false, and look at the job",
            pointer="/SendEmailNotification",
        )
    pattern = command.recurrence_pattern
    if pattern:
        return {"owner": who.user.id, "recurrence": Recurrence(pattern=pattern, start=start)}
    return {"owner": who.user.id, "start": start}


def _rows(principal: Principal, who: Asker, asked: QueryExpression) -> RowQuery:
    table = _table(who, asked)
    where = _conditions(who, table, asked)
    if table.name == JOBS.name:
        need(principal, DELETE, "job.delete")
        where += reached(principal, who)
    elif table.name in {one.name for one in SURROUNDINGS}:
        raise Forbidden(f"rows of {table.name} are not deleted here; name another table")
    return RowQuery(table=table.name, where=where)


def reached(principal: Principal, who: Asker) -> tuple[tuple[str, str, Any], ...]:
    """What keeps a job from deleting jobs that its user may not delete."""
    match principal.reach.get(DELETE, "all"):
        case "all":
            return ()
        case "own":
            return (("ownerid", "in", [str(one) for one in (who.user.id, *who.user.teams)]),)
        case reach:
            raise Forbidden(
                f"a bulk delete of jobs needs job.delete for own or all jobs, not for {reach!r}"
            )


def _table(who: Asker, asked: QueryExpression) -> Table:
    found = who.catalogue.by_name.get(asked.entity_name)
    if found is None:
        raise Refused(
            codes.WRONG_TABLE, f"there is no table {asked.entity_name[:64]!r}; check its name"
        )
    return found


def _conditions(
    who: Asker, table: Table, asked: QueryExpression
) -> tuple[tuple[str, str, Any], ...]:
    criteria = asked.criteria
    if criteria.filter_operator != "And" or criteria.filters or asked.link_entities:
        raise _unserved("nested filters, Or and linked tables")
    return tuple(_condition(who, table, one) for one in criteria.conditions)


def _condition(who: Asker, table: Table, asked: Condition) -> tuple[str, str, Any]:
    column = table.by_name.get(asked.attribute_name)
    if column is None:
        raise Refused(
            codes.UNKNOWN_COLUMN, f"{table.name} has no column {asked.attribute_name[:64]!r}"
        )
    if column.payload and not who.caller.may_read_payload:
        raise Forbidden(f"a condition on {column.name} needs the right job.payload.read")
    path = "id" if column.name == table.key and table.name != JOBS.name else column.name
    values = [value_of(one, column.type) for one in asked.values]
    if asked.operator in _PRESENCE:
        return path, "exists", _PRESENCE[asked.operator]
    if asked.operator == "In":
        return path, "in", values
    if asked.operator not in _ONE:
        raise _unserved(f"the operator {asked.operator[:64]!r}")
    if len(values) != 1:
        raise InvalidValue(f"{asked.operator} takes one value, not {len(values)}")
    return path, _ONE[asked.operator], values[0]


def _unserved(what: str) -> Refused:
    known = ", ".join((*_ONE, "In", *_PRESENCE))
    return Refused(
        codes.BAD_OPERATOR, f"{what} cannot be used here; conditions that all hold can, by {known}"
    )


def value_of(given: Any, kind: ColumnType) -> Any:
    """Return a value, taken out of its wrapping, as rows have it; raises `InvalidValue`."""
    value = given.get("Value") if isinstance(given, dict) else given
    try:
        match kind, value:
            case (("choice" | "int" | "bigint"), str()):
                return int(value)
            case "float", str():
                return float(value)
            case "datetime", str():
                return msgspec.convert(value, Instant)
            case (("guid" | "lookup"), str()):
                return str(UUID(value)) if len(value) == _GUID_LENGTH else value
            case _:
                return value
    except (ValueError, msgspec.ValidationError):
        raise InvalidValue(f"{value!r:.80} is no value of a column of type {kind}") from None


_COMMON: Final[dict[str, Any]] = {
    "method": "POST",
    "response": BulkStarted,
    "permission": RUN,
    "errors": (Forbidden,),
    "headers": HEADERS,
    "url": "url",
    "fixed": {"version": NEWEST},
    "minds_reach": True,
}

OPERATIONS: Final = (
    Operation(
        name="dataverse.bulk.delete",
        path=f"{BASE}/BulkDelete",
        summary="Delete many rows by a job, once or again and again.",
        request=BulkDelete,
        handler=bulk_delete,
        **_COMMON,
    ),
    Operation(
        name="dataverse.bulk.detect_duplicates",
        path=f"{BASE}/BulkDetectDuplicates",
        summary="Look for duplicates by a job, once or again and again.",
        request=BulkDetectDuplicates,
        handler=bulk_detect_duplicates,
        **_COMMON,
    ),
)
