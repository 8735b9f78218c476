"""Bulk operations on the Dataverse surface: `BulkDelete` and `BulkDetectDuplicates`.

Rows are named by a `QueryExpression`, whose operators are those of FetchXML under other names. What
cannot be done, such as following links, is refused by name, never left out. Null is as nothing.
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
from relevo.dataverse.http.asking import READ, RECORDS, SQL, asker, need
from relevo.dataverse.http.changes import DELETE
from relevo.dataverse.http.surface import BASE, WEB_API, Asked, Refused
from relevo.errors import Forbidden, InvalidValue
from relevo.jobs.core import codes
from relevo.jobs.model import Recurrence
from relevo.jobs.querying.catalogue import JOBS
from relevo.jobs.querying.related_tables import RELATED_TABLES
from relevo.kernel import cpu
from relevo.kernel.operation import Operations
from relevo.kernel.querying.fetchxml.conditions import OPERATORS
from relevo.kernel.querying.fetchxml.conditions import Asker as Now

if TYPE_CHECKING:
    from relevo.dataverse.http.asking import Asker
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
"""Every operator that is served, by its name in a QueryExpression."""
_GUID_LENGTH: Final = 36


operation = Operations(WEB_API, errors=(Forbidden,))


class Condition(Struct, frozen=True, kw_only=True, rename="pascal"):
    """What a column of the rows is compared with."""

    attribute_name: str
    operator: str
    values: list[Any] | None = None
    compare_columns: bool | None = None
    """Whether the value is the name of another column."""
    entity_name: str | None = None
    """The table, if it is said; a linked one is not served."""


class Criteria(Struct, frozen=True, kw_only=True, rename="pascal"):
    """Conditions and filters inside, of which all or any must hold."""

    filter_operator: Literal["And", "Or"] | None = None
    conditions: Annotated[list[Condition], Meta(max_length=limits.QUERY_CONDITIONS_MAX)] | None = (
        None
    )
    filters: list[Criteria] | None = None
    any_all_filter_link_entity: Any = None


class QueryExpression(Struct, frozen=True, kw_only=True, rename="pascal"):
    """Which rows of a table."""

    entity_name: Annotated[str, Meta(description="The table's logical name.")]
    criteria: Criteria | None = None
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


class Started(Asked, frozen=True, kw_only=True, rename=_RENAMED):
    """What bulk operations have in common."""

    job_name: Name
    recurrence_pattern: Annotated[str, Meta(description="Such as `FREQ=DAILY;`.")] | None = None
    send_email_notification: (
        Annotated[
            bool, Meta(description="Whether a mail is sent at the end; only of `BulkDelete`.")
        ]
        | None
    ) = None


class Party(Struct, frozen=True, kw_only=True):
    """Somebody who gets a mail: users have no addresses, so one has to be given."""

    addressused: str | None = None


Recipients = Annotated[tuple[Party, ...], Meta(max_length=100)]


class BulkDelete(Started, frozen=True, kw_only=True, rename=_RENAMED):
    """Which rows are to be deleted, when and how often."""

    query_set: Annotated[list[QueryExpression], Meta(min_length=1, max_length=100)]
    start_date_time: Instant | None = None
    to_recipients: Recipients | None = None
    cc_recipients: Recipients | None = None


class BulkDetectDuplicates(Started, frozen=True, kw_only=True, rename=_RENAMED):
    """Among which rows duplicates are looked for, when and how often."""

    query: QueryExpression
    recurrence_start_time: Instant | None = None


class BulkStarted(Struct, frozen=True, kw_only=True, rename="pascal"):
    """The job that does it."""

    job_id: UUID


@operation("dataverse.bulk.delete", f"POST {BASE}/BulkDelete", RUN)
async def bulk_delete(services: Services, principal: Principal, command: BulkDelete) -> BulkStarted:
    """Delete many rows by a job, once or again and again."""
    who = await asker(services, principal)
    queries = [await _rows(services, principal, who, one) for one in command.query_set]
    options = _when(command, command.start_date_time, who)
    notify = _told(command)
    job = await services.app.bulk.delete(queries, name=command.job_name, notify=notify, **options)
    return BulkStarted(job_id=job.id)


@operation("dataverse.bulk.detect_duplicates", f"POST {BASE}/BulkDetectDuplicates", RUN)
async def bulk_detect_duplicates(
    services: Services, principal: Principal, command: BulkDetectDuplicates
) -> BulkStarted:
    """Look for duplicates by a job, once or again and again.

    The published rule of the table says which rows are duplicates.
    """
    who = await asker(services, principal)
    table = _table(principal, who, command.query)
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
    if command.send_email_notification:
        raise InvalidValue(
            "no mail is sent when a detection ends; say false, and look at the job",
            pointer="/SendEmailNotification",
        )
    criteria = await cpu.off_loop(_criteria, table, command.query)
    asked = RowQuery(table=table.name, criteria=criteria, scope=who.caller.scope)
    await services.app.bulk.checked(asked, Now(who.caller, who.user.now))
    options = _when(command, command.recurrence_start_time, who)
    job = await services.app.bulk.detect_duplicates(
        rows[0]["name"], criteria=criteria, name=command.job_name,
        by_key=principal.user is not None, **options,
    )  # fmt: skip
    return BulkStarted(job_id=job.id)


def _told(command: BulkDelete) -> list[str]:
    """Return the addresses that get a mail at the end."""
    if not command.send_email_notification:
        return []
    told = (*(command.to_recipients or ()), *(command.cc_recipients or ()))
    found = [one.addressused for one in told]
    if not found or None in found:
        raise InvalidValue(
            "a mail at the end needs recipients, each with its addressused; give these, or say"
            " false and look at the job",
            pointer="/ToRecipients",
        )
    return [one for one in found if one is not None]


def _when(command: Started, start: datetime | None, who: Asker) -> dict[str, Any]:
    pattern = command.recurrence_pattern
    if pattern:
        return {"owner": who.user.id, "recurrence": Recurrence(pattern=pattern, start=start)}
    return {"owner": who.user.id, "start": start}


async def _rows(
    services: Services, principal: Principal, who: Asker, asked: QueryExpression
) -> RowQuery:
    table = _table(principal, who, asked)
    criteria = await cpu.off_loop(_criteria, table, asked)
    if table.name == JOBS.name:
        need(principal, DELETE, "job.delete")
    elif table.name in {one.name for one in RELATED_TABLES}:
        raise Forbidden(f"rows of {table.name} are not deleted here; name another table")
    else:
        need(principal, "items:write", "items:write")
    made = RowQuery(table=table.name, criteria=criteria, **bounds_of(principal))
    return await services.app.bulk.checked(made, Now(who.caller, who.user.now))


def bounds_of(principal: Principal) -> dict[str, Any]:
    """What keeps a job from looking at and deleting jobs that its user may not.

    Rights of a token are known as long as it lasts: what it allows now holds for all runs.
    """
    return {
        "scope": principal.reach.get(READ, "all") if READ in principal.permissions else "own",
        "reach": principal.reach.get(DELETE, "all"),
        "by_key": principal.user is not None,
    }


def _table(principal: Principal, who: Asker, asked: QueryExpression) -> Table:
    found = who.catalogue.by_name.get(asked.entity_name)
    if found is None:
        if RECORDS not in principal.permissions:
            raise Forbidden(
                f"the table {asked.entity_name[:64]!r} is none of jobs; others need the right"
                f" {RECORDS}; use a key that has it"
            )
        raise Refused(
            codes.WRONG_TABLE, f"there is no table {asked.entity_name[:64]!r}; check its name"
        )
    return found


def _criteria(table: Table, asked: QueryExpression) -> bulk.Criteria:
    """Return the conditions of a query; what bulk operations cannot do is refused by name."""
    if asked.link_entities:
        raise _unserved("LinkEntities are not followed; name columns of the table itself")
    if asked.top_count is not None:
        raise _unserved("TopCount is not served: all rows are meant; leave it out")
    return _group(table, asked.criteria or Criteria())


def _group(table: Table, asked: Criteria, depth: int = 1) -> bulk.Criteria:
    if depth > limits.QUERY_DEPTH_MAX:
        raise InvalidValue(f"Filters nest deeper than {limits.QUERY_DEPTH_MAX}; write them flatter")
    if asked.any_all_filter_link_entity is not None:
        raise _unserved("AnyAllFilterLinkEntity is not served; name columns of the table itself")
    return bulk.Criteria(
        any=asked.filter_operator == "Or",
        tests=tuple(_test(table, one) for one in asked.conditions or ()),
        groups=tuple(_group(table, one, depth + 1) for one in asked.filters or ()),
    )


def _test(table: Table, asked: Condition) -> bulk.Criterion:
    if asked.entity_name not in (None, table.name):
        raise _unserved(f"{asked.entity_name!r:.66} is another table; name columns of {table.name}")
    operator = _OPERATORS.get(asked.operator)
    if operator is None:
        known = ", ".join(sorted(_OPERATORS))
        raise _unserved(f"the operator {asked.operator[:64]!r} is not served; there are {known}")
    if len(asked.values or ()) > limits.QUERY_LIST_MAX:
        raise InvalidValue(
            f"a condition has at most {limits.QUERY_LIST_MAX:,} values; split the query"
        )
    return bulk.Criterion(
        column=asked.attribute_name,
        operator=operator,
        values=tuple(map(_text, asked.values or ())),
        against_column=bool(asked.compare_columns),
    )


def _text(given: Any) -> str:
    """A value, taken out of its wrapping, as text."""
    value = given.get("Value") if isinstance(given, dict) else given
    match value:
        case str():
            return value
        case bool():
            return "true" if value else "false"
        case int() | float():
            return str(value)
        case _:
            raise InvalidValue(f"{value!r:.80} is no value of a condition; send text or a number")


def _unserved(what: str) -> Refused:
    return Refused(codes.BAD_OPERATOR, what)


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
