"""Bulk actions on the Dataverse surface: `BulkDelete` and `BulkDetectDuplicates`.

A `QueryExpression` selects rows; its operators are those of FetchXML under other names. Unsupported
features, such as links, are refused by name, never ignored. Null counts as not given.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal
from uuid import UUID

import msgspec
from msgspec import Meta, Struct

from relevo import limits
from relevo.dataverse.bulk import RowQuery
from relevo.dataverse.bulk import model as bulk
from relevo.dataverse.http.changes import DELETE
from relevo.dataverse.http.requester import READ, RECORDS, SQL, need, requester_of
from relevo.dataverse.http.surface import BASE, WEB_API, RequestRefused, WebApiRequest
from relevo.errors import Forbidden, InvalidValue
from relevo.jobs.core import codes
from relevo.jobs.model import Recurrence
from relevo.jobs.querying.catalogue import JOBS
from relevo.jobs.querying.related_tables import RELATED_TABLES
from relevo.kernel import cpu
from relevo.kernel.operation import Operations
from relevo.kernel.querying.fetchxml.conditions import OPERATORS, Asker

if TYPE_CHECKING:
    from relevo.dataverse.http.requester import Requester
    from relevo.http.access.authenticator import Principal
    from relevo.http.services import Services
    from relevo.kernel.querying.catalogue import ColumnType, Table

RUN: Final = "bulk:run"
_IRREGULAR: Final = {
    "Equal": "eq",
    "NotEqual": "ne",
    "GreaterThan": "gt",
    "GreaterEqual": "ge",
    "LessThan": "lt",
    "LessEqual": "le",
    "DoesNotBeginWith": "not-begin-with",
    "DoesNotEndWith": "not-end-with",
    "Last7Days": "last-seven-days",
    "Next7Days": "next-seven-days",
    "EqualUserId": "eq-userid",
    "NotEqualUserId": "ne-userid",
    "EqualUserTeams": "eq-userteams",
    "EqualUserOrUserTeams": "eq-useroruserteams",
    "EqualBusinessId": "eq-businessid",
    "NotEqualBusinessId": "ne-businessid",
}
_OPERATORS: Final = {
    **{
        "".join(map(str.capitalize, name.split("-"))).replace("Olderthan", "OlderThan"): name
        for name in OPERATORS
        if name not in {*_IRREGULAR.values(), "neq"}
    },
    **_IRREGULAR,
}
"""The FetchXML operator of every supported QueryExpression operator."""
_GUID_LENGTH: Final = 36


operation = Operations(WEB_API, errors=(Forbidden,))


class ConditionExpression(Struct, frozen=True, kw_only=True, rename="pascal"):
    """A condition on a column."""

    attribute_name: str
    operator: str
    values: list[Any] | None = None
    compare_columns: bool | None = None
    """Whether the value is the name of another column."""
    entity_name: str | None = None
    """The table; linked tables are not supported."""


class FilterExpression(Struct, frozen=True, kw_only=True, rename="pascal"):
    """Conditions and nested filters, of which all or any must hold."""

    filter_operator: Literal["And", "Or"] | None = None
    conditions: (
        Annotated[list[ConditionExpression], Meta(max_length=limits.QUERY_CONDITIONS_MAX)] | None
    ) = None
    filters: list[FilterExpression] | None = None
    any_all_filter_link_entity: Any = None


class QueryExpression(Struct, frozen=True, kw_only=True, rename="pascal"):
    """A query for rows of a table."""

    entity_name: Annotated[str, Meta(description="The table's logical name.")]
    criteria: FilterExpression | None = None
    link_entities: list[Any] | None = None
    top_count: int | None = None


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
    "to_recipients": "ToRecipients",
    "cc_recipients": "CCRecipients",
}


class Started(WebApiRequest, frozen=True, kw_only=True, rename=_RENAMED):
    """Parameters that all bulk actions have."""

    job_name: Name
    recurrence_pattern: Annotated[str, Meta(description="Such as `FREQ=DAILY;`.")] | None = None
    send_email_notification: (
        Annotated[bool, Meta(description="Send a mail at the end; only for `BulkDelete`.")] | None
    ) = None


class Party(Struct, frozen=True, kw_only=True):
    """A recipient of a mail; users have no addresses, so the request gives one."""

    addressused: str | None = None


Recipients = Annotated[tuple[Party, ...], Meta(max_length=100)]


class BulkDelete(Started, frozen=True, kw_only=True, rename=_RENAMED):
    """Which rows to delete, when, and how often."""

    query_set: Annotated[list[QueryExpression], Meta(min_length=1, max_length=100)]
    start_date_time: Instant | None = None
    to_recipients: Recipients | None = None
    cc_recipients: Recipients | None = None


class BulkDetectDuplicates(Started, frozen=True, kw_only=True, rename=_RENAMED):
    """Where to look for duplicates, when, and how often."""

    query: QueryExpression
    recurrence_start_time: Instant | None = None


class BulkStarted(Struct, frozen=True, kw_only=True, rename="pascal"):
    """The job of a bulk action."""

    job_id: UUID


@operation("dataverse.bulk.delete", f"POST {BASE}/BulkDelete", RUN)
async def bulk_delete(services: Services, principal: Principal, command: BulkDelete) -> BulkStarted:
    """Delete many rows by a job, once or repeatedly."""
    requester = await requester_of(services, principal)
    queries = [await _rows(services, principal, requester, one) for one in command.query_set]
    options = _when(command, command.start_date_time, requester)
    notify = _recipients(command)
    job = await services.app.bulk.delete(queries, name=command.job_name, notify=notify, **options)
    return BulkStarted(job_id=job.id)


@operation("dataverse.bulk.detect_duplicates", f"POST {BASE}/BulkDetectDuplicates", RUN)
async def bulk_detect_duplicates(
    services: Services, principal: Principal, command: BulkDetectDuplicates
) -> BulkStarted:
    """Find duplicates by a job, once or repeatedly.

    The published rule of the table defines which rows are duplicates.
    """
    requester = await requester_of(services, principal)
    table = _table(principal, requester, command.query)
    known = services.app.pipeline.registry.tables.get(table.name)
    container = table.name if known is None else known.container.name
    rows = await services.app.database.fetch(SQL.published_rules, container)
    if len(rows) != 1:
        names = ", ".join(row["name"] for row in rows) or "none"
        raise InvalidValue(
            f"{table.name} needs exactly one published duplicate rule; it has: {names}. Publish"
            " one with app.bulk.publish_rule",
            pointer="/Query",
        )
    if command.send_email_notification:
        raise InvalidValue(
            "BulkDetectDuplicates sends no mail; set it to false and query the job",
            pointer="/SendEmailNotification",
        )
    criteria = await cpu.off_loop(_criteria, table, command.query)
    row_query = RowQuery(table=table.name, criteria=criteria, scope=requester.caller.scope)
    await services.app.bulk.checked(row_query, Asker(requester.caller, requester.user.now))
    options = _when(command, command.recurrence_start_time, requester)
    job = await services.app.bulk.detect_duplicates(
        rows[0]["name"], criteria=criteria, name=command.job_name,
        by_key=principal.user is not None, **options,
    )  # fmt: skip
    return BulkStarted(job_id=job.id)


def _recipients(command: BulkDelete) -> list[str]:
    """Return the addresses that get a mail at the end."""
    if not command.send_email_notification:
        return []
    parties = (*(command.to_recipients or ()), *(command.cc_recipients or ()))
    addresses = [party.addressused for party in parties if party.addressused is not None]
    if not addresses or len(addresses) < len(parties):
        raise InvalidValue(
            "SendEmailNotification needs recipients, each with addressused; add them, or set it to"
            " false",
            pointer="/ToRecipients",
        )
    return addresses


def _when(command: Started, start: datetime | None, requester: Requester) -> dict[str, Any]:
    pattern = command.recurrence_pattern
    if pattern:
        return {"owner": requester.user.id, "recurrence": Recurrence(pattern=pattern, start=start)}
    return {"owner": requester.user.id, "start": start}


async def _rows(
    services: Services, principal: Principal, requester: Requester, expression: QueryExpression
) -> RowQuery:
    table = _table(principal, requester, expression)
    criteria = await cpu.off_loop(_criteria, table, expression)
    if table.name == JOBS.name:
        need(principal, DELETE, "job.delete")
    elif table.name in {surrounding.name for surrounding in RELATED_TABLES}:
        raise Forbidden(f"rows of {table.name} cannot be deleted here; use another table")
    else:
        need(principal, "items:write", "items:write")
    made = RowQuery(table=table.name, criteria=criteria, **bounds_of(principal))
    return await services.app.bulk.checked(made, Asker(requester.caller, requester.user.now))


def bounds_of(principal: Principal) -> dict[str, Any]:
    """Return the limits of a query to the jobs that its user may read and delete.

    The rights of an OpenID Connect token are known only now, so they apply to all runs.
    """
    return {
        "scope": principal.reach.get(READ, "all") if READ in principal.permissions else "own",
        "reach": principal.reach.get(DELETE, "all"),
        "by_key": principal.user is not None,
    }


def _table(principal: Principal, requester: Requester, expression: QueryExpression) -> Table:
    table = requester.catalogue.by_name.get(expression.entity_name)
    if table is None:
        if RECORDS not in principal.permissions:
            raise Forbidden(
                f"the table {expression.entity_name[:64]!r} is not about jobs; other tables need"
                f" the right {RECORDS}; use a key that has it"
            )
        raise RequestRefused(
            codes.WRONG_TABLE, f"there is no table {expression.entity_name[:64]!r}; check its name"
        )
    return table


def _criteria(table: Table, expression: QueryExpression) -> bulk.Criteria:
    """Return the conditions of a query; raises `RequestRefused` for unsupported features."""
    if expression.link_entities:
        raise _unsupported("LinkEntities are not supported; use columns of the table itself")
    if expression.top_count is not None:
        raise _unsupported("TopCount is not supported: a bulk operation takes all rows; remove it")
    return _group(table, expression.criteria or FilterExpression())


def _group(table: Table, expression: FilterExpression, depth: int = 1) -> bulk.Criteria:
    if depth > limits.QUERY_DEPTH_MAX:
        raise InvalidValue(f"Filters are nested deeper than {limits.QUERY_DEPTH_MAX}; flatten them")
    if expression.any_all_filter_link_entity is not None:
        raise _unsupported(
            "AnyAllFilterLinkEntity is not supported; use columns of the table itself"
        )
    return bulk.Criteria(
        any=expression.filter_operator == "Or",
        tests=tuple(_test(table, condition) for condition in expression.conditions or ()),
        groups=tuple(_group(table, one, depth + 1) for one in expression.filters or ()),
    )


def _test(table: Table, expression: ConditionExpression) -> bulk.Criterion:
    if expression.entity_name not in (None, table.name):
        raise _unsupported(
            f"{expression.entity_name!r:.66} is another table; use columns of {table.name}"
        )
    operator = _OPERATORS.get(expression.operator)
    if operator is None:
        known = ", ".join(sorted(_OPERATORS))
        raise _unsupported(f"unknown operator {expression.operator[:64]!r}; supported are {known}")
    if len(expression.values or ()) > limits.QUERY_LIST_MAX:
        raise InvalidValue(
            f"a condition has at most {limits.QUERY_LIST_MAX:,} values; split the query"
        )
    return bulk.Criterion(
        column=expression.attribute_name,
        operator=operator,
        values=tuple(map(_text, expression.values or ())),
        against_column=bool(expression.compare_columns),
    )


def _text(given: Any) -> str:
    """Return a value, unwrapped, as text."""
    value = given.get("Value") if isinstance(given, dict) else given
    match value:
        case str():
            return value
        case bool():
            return "true" if value else "false"
        case int() | float():
            return str(value)
        case _:
            raise InvalidValue(f"{value!r:.80} cannot be compared with; send text or a number")


def _unsupported(what: str) -> RequestRefused:
    return RequestRefused(codes.BAD_OPERATOR, what)


def value_of(given: Any, kind: ColumnType) -> Any:
    """Return a value, unwrapped, in the type of a column; raises `InvalidValue`."""
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
        raise InvalidValue(f"{value!r:.80} is not a value of type {kind}") from None
