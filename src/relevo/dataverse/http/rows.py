"""Reads rows on the Dataverse surface: lists, single rows, related rows, and counts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Final
from uuid import UUID

from msgspec import Meta, Struct, field
from msgspec.structs import replace

from relevo import limits
from relevo.dataverse.http.requester import READ, Requester, page_key, requester_of
from relevo.dataverse.http.surface import (
    BASE,
    WEB_API,
    RowRequest,
    RowsRequest,
    WebApiRequest,
    key_in,
)
from relevo.errors import Forbidden, InvalidQuery, NotFound, QueryTooCostly
from relevo.kernel.expressions.tree import Compare, Constant
from relevo.kernel.operation import Operations, Reply, Text
from relevo.kernel.querying import answers, planning
from relevo.kernel.querying.errors import OptionNotServed, QueryTooLong
from relevo.kernel.querying.fetchxml import paging as fetch_paging
from relevo.kernel.querying.fetchxml import reader as fetchxml
from relevo.kernel.querying.model import RULES, Link, column
from relevo.kernel.querying.odata import options as odata_options
from relevo.kernel.querying.odata.options import Request
from relevo.kernel.querying.reading import reading

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from relevo.http.access.authenticator import Principal
    from relevo.http.services import Services
    from relevo.kernel.querying.catalogue import Navigation, Table
    from relevo.kernel.querying.model import Query
    from relevo.kernel.querying.odata.options import Options
    from relevo.kernel.querying.shapes import Statement

MORE: Final = "Microsoft.Dynamics.CRM.morerecords"
COOKIE: Final = "Microsoft.Dynamics.CRM.fetchxmlpagingcookie"
ERRORS: Final = (
    InvalidQuery,
    NotFound,
    Forbidden,
    QueryTooLong,
    OptionNotServed,
    QueryTooCostly,
)

SetName = Annotated[str, Meta(description="The entity set, such as `asyncoperations`.")]
RowKey = Annotated[str, Meta(description="The row's key.")]
ReadRow = Callable[[], Awaitable[Reply | None]]
"""Reads a row; returns None if it does not exist or the caller may not read it."""


operation = Operations(WEB_API, errors=ERRORS)


class Rows(Struct, frozen=True, kw_only=True):
    """A page of rows, each with the requested properties."""

    context: str = field(name="@odata.context")
    value: list[dict[str, Any]]


class ListRows(RowsRequest, frozen=True, kw_only=True):
    """A query for rows of a table."""

    name: SetName


class CountRows(RowsRequest, frozen=True, kw_only=True):
    """A query whose rows are counted."""

    name: SetName


class GetRow(RowRequest, frozen=True, kw_only=True):
    """A row."""

    name: SetName
    id: RowKey


class ListRelated(RowsRequest, frozen=True, kw_only=True):
    """A query for the rows that a navigation leads to."""

    name: SetName
    id: RowKey
    navigation: Annotated[str, Meta(description="The navigation property.")]


@operation("dataverse.rows.list", f"GET {BASE}/{{name}}", READ, response=Rows)
async def list_rows(services: Services, principal: Principal, command: ListRows) -> Reply:
    """List rows of a table, such as jobs, users, teams and steps."""
    requester = await requester_of(services, principal)
    return await _page(services, requester, command, requester.table(command.name))


@operation("dataverse.rows.count", f"GET {BASE}/{{name}}/$count", READ)
async def count_rows(services: Services, principal: Principal, command: CountRows) -> Text:
    """Count the rows of a table, up to 5000."""
    requester = await requester_of(services, principal)
    table = requester.table(command.name)
    query = await _query(services, requester, command, table, command.options)
    return _as_text(await _count(services, requester, command, query))


@operation("dataverse.rows.get", f"GET {BASE}/{{name}}({{id}})", READ, response=dict[str, Any])
async def get_row(services: Services, principal: Principal, command: GetRow) -> Reply:
    """Show one row of a table."""
    requester = await requester_of(services, principal)
    return await one_row(services, requester, command, requester.table(command.name), command.id)


@operation(
    "dataverse.related.list",
    f"GET {BASE}/{{name}}({{id}})/{{navigation}}",
    READ,
    response=dict[str, Any],
)
async def list_related(services: Services, principal: Principal, command: ListRelated) -> Reply:
    """List the rows related to a row, or show the single related row."""
    requester = await requester_of(services, principal)
    way, link = await _start(services, requester, command)
    there = requester.catalogue.by_name[way.table]
    if way.collection:
        return await _page(services, requester, command, there, (link,))
    request = await _request(services, requester, command)
    query = await _row_query(command.options, there, request, "")
    look = await _planned(services, requester, command, replace(query, filter=None, links=(link,)))
    return await look() or Reply(status=204)


@operation("dataverse.related.count", f"GET {BASE}/{{name}}({{id}})/{{navigation}}/$count", READ)
async def count_related(services: Services, principal: Principal, command: ListRelated) -> Text:
    """Count the rows related to a row, up to 5000."""
    requester = await requester_of(services, principal)
    way, link = await _start(services, requester, command)
    there = requester.catalogue.by_name[way.table]
    query = await _query(services, requester, command, there, command.options)
    return _as_text(await _count(services, requester, command, _linked(query, (link,))))


async def one_row(
    services: Services, requester: Requester, command: RowRequest, table: Table, key: str
) -> Reply:
    """Return a row by its key, with the requested properties."""
    row = await (await planned_row(services, requester, command, table, key))()
    if row is None:
        raise missing(table, key)
    return row


async def planned_row(
    services: Services, requester: Requester, command: RowRequest, table: Table, key: str
) -> ReadRow:
    """Return a function that reads a row; errors of the request are raised here already."""
    request = await _request(services, requester, command)
    query = await _row_query(command.options, table, request, typed_key(table, key))
    return await _planned(services, requester, command, query)


async def _row_query(options: Options, table: Table, request: Request, key: UUID | str) -> Query:
    return await reading(options.size, odata_options.row_query, options, table, request, key)


async def _planned(
    services: Services, requester: Requester, command: RowRequest, query: Query
) -> ReadRow:
    statement = await _statement(services, requester, command, query)

    async def look() -> Reply | None:
        rows = await _fetch(services, statement)
        if not rows:
            return None
        page = answers.read(rows, statement.shape, command.preferences, requester.caller)
        context = answers.context_url(command.base, statement.shape, one=True)
        row = {"@odata.context": context, **page.rows[0]}
        tag = row.get("@odata.etag")
        return Reply(body=row, headers=_applied(command) | ({"ETag": str(tag)} if tag else {}))

    return look


async def _fetch(services: Services, statement: Statement) -> Sequence[Mapping[str, Any]]:
    queries = services.app.database.user_queries
    rows: Any = await queries.fetch(statement.sql, *statement.parameters)
    records: Sequence[Mapping[str, Any]] = rows
    return records


def missing(table: Table, key: str) -> NotFound:
    """Return the error for a row that does not exist or that the caller may not read."""
    return NotFound(f"there is no {table.name} with the key {key[:64]!r}")


def typed_key(table: Table, text: str) -> UUID | str:
    """Return a key as the table stores it."""
    text = key_in(text, table.key)
    if table.by_name[table.key].sql_type == "text":
        return text
    try:
        return UUID(text)
    except ValueError:
        raise InvalidQuery(
            f"the key of {table.name} is a GUID, not {text[:64]!r}; write {table.set_name}(GUID)"
        ) from None


async def _request(services: Services, requester: Requester, command: WebApiRequest) -> Request:
    return Request(
        catalogue=requester.catalogue,
        caller=requester.caller,
        now=requester.user.now,
        key=await page_key(services),
        page_size=command.preferences.page_size,
    )


def _document(options: Options) -> str | None:
    """Return the FetchXML of a request; raises if it is combined with other options."""
    if "sql" in options.other:
        raise OptionNotServed("?sql= is not supported; use $filter or fetchXml", pointer="sql")
    text = options.other.get("fetchXml")
    if text is not None and options.system:
        raise InvalidQuery(
            f"fetchXml excludes other options; remove {', '.join(sorted(options.system))}",
            pointer="fetchXml",
        )
    return text


async def _query(
    services: Services, requester: Requester, command: RowsRequest, table: Table, options: Options
) -> Query:
    request = await _request(services, requester, command)
    document = _document(options)
    if document is None:
        return await reading(options.size, odata_options.query_of, options, table, request)
    parse = partial(
        fetchxml.parse,
        table=table.name,
        caller=requester.caller,
        now=request.now,
        key=request.key,
        page_size=request.page_size,
    )
    return await reading(options.size, parse, document, requester.catalogue)


async def _statement(
    services: Services, requester: Requester, command: RowRequest, query: Query
) -> Statement:
    plan = partial(
        planning.plan,
        names=command.preferences.wants(answers.FORMATTED),
        bytes_max=services.app.database.page_bytes,
    )
    return await reading(command.options.size, plan, query, requester.catalogue, requester.caller)


async def _page(
    services: Services,
    requester: Requester,
    command: RowsRequest,
    table: Table,
    links: tuple[Link, ...] = (),
) -> Reply:
    options, preferences = command.options, command.preferences
    query = _linked(await _query(services, requester, command, table, options), links)
    statement = await _statement(services, requester, command, query)
    rows = await _fetch(services, statement)
    page = answers.read(rows, statement.shape, preferences, requester.caller)
    count = await _count(services, requester, command, query) if query.count else None
    document = _document(options)
    url, key = command.url.partition("?")[0], await page_key(services)
    link = None
    if page.position is not None and document is None:
        link = odata_options.next_link(url, options, table, requester.caller, page.position, key)
    body = answers.envelope(
        page,
        context=answers.context_url(command.base, statement.shape),
        preferences=preferences,
        count=count,
        next_link=link,
    )
    if document is not None and page.position is not None:
        body[f"@{MORE}"] = True
        body[f"@{COOKIE}"] = fetch_paging.next_cookie(
            document, query, page.position, requester.caller, key
        )
    return Reply(body=body, headers=_applied(command))


async def _count(
    services: Services, requester: Requester, command: RowsRequest, query: Query
) -> int:
    size = command.options.size
    statement = await reading(
        size, planning.plan_count, query, requester.catalogue, requester.caller
    )
    (row,) = await _fetch(services, statement)
    return answers.counted(row, statement.shape)


def _as_text(count: int) -> Text:
    return Text("text/plain", str(min(count, limits.QUERY_COUNT_MAX)).encode())


def _applied(command: WebApiRequest) -> dict[str, str]:
    applied = command.preferences.applied()
    return {"Preference-Applied": applied} if applied else {}


async def _start(
    services: Services, requester: Requester, command: ListRelated
) -> tuple[Navigation, Link]:
    """Return a navigation, and the link from related rows to the row it starts from."""
    table = requester.table(command.name)
    way = table.navigation_by_name.get(command.navigation)
    if way is None:
        raise NotFound(f"{table.name} has no navigation {command.navigation[:64]!r}; see $metadata")
    await one_row(services, requester, RowRequest(select=table.key), table, command.id)
    key = Constant(typed_key(table, command.id))
    link = Link(
        table=table.name,
        alias="start",
        column=way.column,
        parent_column=way.target_column,
        kind="exists",
        filter=Compare("=", column(table.key), key, RULES),
    )
    return way, link


def _linked(query: Query, links: tuple[Link, ...]) -> Query:
    return replace(query, links=(*query.links, *links))
