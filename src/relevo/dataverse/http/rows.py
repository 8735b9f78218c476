"""Reading rows on the Dataverse surface: many, one, related ones, and how many there are."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Final
from uuid import UUID

from msgspec import Meta, Struct, field
from msgspec.structs import replace

from relevo import limits
from relevo.dataverse.http.asking import READ, Asker, asker, page_key
from relevo.dataverse.http.surface import BASE, WEB_API, Asked, AskedMany, AskedOne, key_in
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
Look = Callable[[], Awaitable[Reply | None]]
"""Reads a row; None if there is none, or not for this caller."""


operation = Operations(WEB_API, errors=ERRORS)


class Rows(Struct, frozen=True, kw_only=True):
    """A page of rows; each has the properties that were asked for."""

    context: str = field(name="@odata.context")
    value: list[dict[str, Any]]


class ListRows(AskedMany, frozen=True, kw_only=True):
    """Which rows of which table."""

    name: SetName


class CountRows(AskedMany, frozen=True, kw_only=True):
    """Of which table."""

    name: SetName


class GetRow(AskedOne, frozen=True, kw_only=True):
    """Which row."""

    name: SetName
    id: RowKey


class ListRelated(AskedMany, frozen=True, kw_only=True):
    """Related to which row, and by which navigation."""

    name: SetName
    id: RowKey
    navigation: Annotated[str, Meta(description="The navigation property.")]


@operation("dataverse.rows.list", f"GET {BASE}/{{name}}", READ, response=Rows)
async def list_rows(services: Services, principal: Principal, command: ListRows) -> Reply:
    """List rows of a table: jobs, users, teams, steps and others."""
    who = await asker(services, principal)
    return await _page(services, who, command, who.table(command.name))


@operation("dataverse.rows.count", f"GET {BASE}/{{name}}/$count", READ)
async def count_rows(services: Services, principal: Principal, command: CountRows) -> Text:
    """Say how many rows of a table there are, up to 5000."""
    who = await asker(services, principal)
    table = who.table(command.name)
    query = await _query(services, who, command, table, command.options)
    return _as_text(await _count(services, who, command, query))


@operation("dataverse.rows.get", f"GET {BASE}/{{name}}({{id}})", READ, response=dict[str, Any])
async def get_row(services: Services, principal: Principal, command: GetRow) -> Reply:
    """Show one row of a table."""
    who = await asker(services, principal)
    return await one_row(services, who, command, who.table(command.name), command.id)


@operation(
    "dataverse.related.list",
    f"GET {BASE}/{{name}}({{id}})/{{navigation}}",
    READ,
    response=dict[str, Any],
)
async def list_related(services: Services, principal: Principal, command: ListRelated) -> Reply:
    """List the rows that are related to a row, or show the one that is."""
    who = await asker(services, principal)
    way, link = await _start(services, who, command)
    there = who.catalogue.by_name[way.table]
    if way.collection:
        return await _page(services, who, command, there, (link,))
    request = await _request(services, who, command)
    query = await _row_query(command.options, there, request, "")
    look = await _planned(services, who, command, replace(query, filter=None, links=(link,)))
    return await look() or Reply(status=204)


@operation("dataverse.related.count", f"GET {BASE}/{{name}}({{id}})/{{navigation}}/$count", READ)
async def count_related(services: Services, principal: Principal, command: ListRelated) -> Text:
    """Say how many rows are related to a row, up to 5000."""
    who = await asker(services, principal)
    way, link = await _start(services, who, command)
    there = who.catalogue.by_name[way.table]
    query = await _query(services, who, command, there, command.options)
    return _as_text(await _count(services, who, command, _linked(query, (link,))))


async def one_row(services: Services, who: Asker, asked: AskedOne, table: Table, key: str) -> Reply:
    """Return a row by its key, as the request wants to see it."""
    found = await (await planned_row(services, who, asked, table, key))()
    if found is None:
        raise missing(table, key)
    return found


async def planned_row(
    services: Services, who: Asker, asked: AskedOne, table: Table, key: str
) -> Look:
    """Return what reads a row; all that can be wrong with the request is found out before."""
    request = await _request(services, who, asked)
    query = await _row_query(asked.options, table, request, typed_key(table, key))
    return await _planned(services, who, asked, query)


async def _row_query(options: Options, table: Table, request: Request, key: UUID | str) -> Query:
    return await reading(options.size, odata_options.row_query, options, table, request, key)


async def _planned(services: Services, who: Asker, asked: AskedOne, query: Query) -> Look:
    statement = await _statement(services, who, asked, query)

    async def look() -> Reply | None:
        rows = await _fetch(services, statement)
        if not rows:
            return None
        page = answers.read(rows, statement.shape, asked.preferences, who.caller)
        context = answers.context_url(asked.base, statement.shape, one=True)
        row = {"@odata.context": context, **page.rows[0]}
        tag = row.get("@odata.etag")
        return Reply(body=row, headers=_applied(asked) | ({"ETag": str(tag)} if tag else {}))

    return look


async def _fetch(services: Services, statement: Statement) -> Sequence[Mapping[str, Any]]:
    queries = services.app.database.user_queries
    rows: Any = await queries.fetch(statement.sql, *statement.parameters)
    found: Sequence[Mapping[str, Any]] = rows
    return found


def missing(table: Table, key: str) -> NotFound:
    """Return the error for a row that is not there, or not for this caller."""
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
            f"a key of {table.name} is a GUID, not {text[:64]!r}; write {table.set_name}(GUID)"
        ) from None


async def _request(services: Services, who: Asker, asked: Asked) -> Request:
    return Request(
        catalogue=who.catalogue,
        caller=who.caller,
        now=who.user.now,
        key=await page_key(services),
        page_size=asked.preferences.page_size,
    )


def _document(options: Options) -> str | None:
    """The FetchXML of a request; what is not served beside it is refused."""
    if "sql" in options.other:
        raise OptionNotServed("?sql= is not served; use $filter or fetchXml", pointer="sql")
    text = options.other.get("fetchXml")
    if text is not None and options.system:
        raise InvalidQuery(
            f"fetchXml stands alone; drop {', '.join(sorted(options.system))}", pointer="fetchXml"
        )
    return text


async def _query(
    services: Services, who: Asker, asked: AskedMany, table: Table, options: Options
) -> Query:
    request = await _request(services, who, asked)
    document = _document(options)
    if document is None:
        return await reading(options.size, odata_options.query_of, options, table, request)
    parse = partial(
        fetchxml.parse,
        table=table.name,
        caller=who.caller,
        now=request.now,
        key=request.key,
        page_size=request.page_size,
    )
    return await reading(options.size, parse, document, who.catalogue)


async def _statement(services: Services, who: Asker, asked: AskedOne, query: Query) -> Statement:
    plan = partial(
        planning.plan,
        names=asked.preferences.wants(answers.FORMATTED),
        bytes_max=services.app.database.page_bytes,
    )
    return await reading(asked.options.size, plan, query, who.catalogue, who.caller)


async def _page(
    services: Services,
    who: Asker,
    asked: AskedMany,
    table: Table,
    links: tuple[Link, ...] = (),
) -> Reply:
    options, preferences = asked.options, asked.preferences
    query = _linked(await _query(services, who, asked, table, options), links)
    statement = await _statement(services, who, asked, query)
    rows = await _fetch(services, statement)
    page = answers.read(rows, statement.shape, preferences, who.caller)
    count = await _count(services, who, asked, query) if query.count else None
    document = _document(options)
    url, key = asked.url.partition("?")[0], await page_key(services)
    link = None
    if page.position is not None and document is None:
        link = odata_options.next_link(url, options, table, who.caller, page.position, key)
    body = answers.envelope(
        page,
        context=answers.context_url(asked.base, statement.shape),
        preferences=preferences,
        count=count,
        next_link=link,
    )
    if document is not None and page.position is not None:
        body[f"@{MORE}"] = True
        body[f"@{COOKIE}"] = fetch_paging.next_cookie(
            document, query, page.position, who.caller, key
        )
    return Reply(body=body, headers=_applied(asked))


async def _count(services: Services, who: Asker, asked: AskedMany, query: Query) -> int:
    size = asked.options.size
    statement = await reading(size, planning.plan_count, query, who.catalogue, who.caller)
    (row,) = await _fetch(services, statement)
    return answers.counted(row, statement.shape)


def _as_text(count: int) -> Text:
    return Text("text/plain", str(min(count, limits.QUERY_COUNT_MAX)).encode())


def _applied(asked: Asked) -> dict[str, str]:
    applied = asked.preferences.applied()
    return {"Preference-Applied": applied} if applied else {}


async def _start(services: Services, who: Asker, command: ListRelated) -> tuple[Navigation, Link]:
    """The navigation, and what ties rows to the one that it starts from."""
    table = who.table(command.name)
    way = table.navigation_by_name.get(command.navigation)
    if way is None:
        raise NotFound(f"{table.name} has no navigation {command.navigation[:64]!r}; see $metadata")
    await one_row(services, who, AskedOne(select=table.key), table, command.id)
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
