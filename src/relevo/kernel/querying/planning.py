"""From a query to the SQL that answers it.

    statement = plan(query, catalogue, caller)
    rows = await connection.fetch(statement.sql, *statement.parameters)

Literals are bound parameters and identifiers come from the catalogue. Pages continue behind
the last row's sort values, never at an offset, so rows that come or go shift no others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from relevo import limits
from relevo.kernel.querying.errors import PAGE_LIMIT, UNKNOWN_COLUMN, InvalidQuery
from relevo.kernel.querying.frames import FrameContext, QueryFrame, matching
from relevo.kernel.querying.grouping import grouped
from relevo.kernel.querying.linking import attach
from relevo.kernel.querying.model import Query
from relevo.kernel.querying.selecting import Selection, placed_orders, selected
from relevo.kernel.querying.shapes import FOLLOWED, Nested, Shape, Statement
from relevo.kernel.querying.sorting import behind, order_by_cells
from relevo.kernel.querying.statements import select

if TYPE_CHECKING:
    from relevo.kernel.querying.catalogue import Catalogue
    from relevo.kernel.querying.model import Caller, Expand

NAME_BYTES_MORE: Final = 12
"""What a value of a row has in JSON beside its name: quotes, colon, comma, and a short value."""
PAGED_ROWS_MAX: Final = 50_000
"""How far a page may lie that is named by its number alone."""


def plan(
    query: Query,
    catalogue: Catalogue,
    caller: Caller,
    *,
    names: bool = False,
    bytes_max: int | None = None,
) -> Statement:
    """Return the statement for one page of a query; with `names` also those behind lookups.

    `bytes_max` ends the page where its rows have so many bytes. Raises `InvalidQuery` or
    `ColumnProtected`.
    """
    context = FrameContext(catalogue, caller, bytes_max)
    rows, shape = _rows(context, query, names=names)
    size = min(query.page_size or limits.QUERY_ROWS_MAX, limits.QUERY_ROWS_MAX)
    taken = query.position.taken if query.position else 0
    left = None if query.top is None else max(0, query.top - taken)
    last = left is not None and left <= size
    limit = left if left is not None and last else size + 1
    where = offset = None
    if query.position is not None:
        where = behind(shape.sort, query.position.values, "r", context.parameters)
    elif query.page > 1:
        taken = _offset(query.page, size)
        offset = context.bound(taken, "bigint")
    order = order_by_cells(shape.sort, "r")
    sql = select(
        "r.*",
        f"({rows}) as r",
        where=where,
        order_by=order,
        limit=context.bound(limit, "bigint"),
        offset=offset,
    )
    if bytes_max is not None:
        sql = select("r.*", f"({_within(context, sql, shape, bytes_max)}) as r", order_by=order)
    paged = replace(shape, rows_max=None if last else size, bytes_max=bytes_max, taken=taken)
    return Statement(sql, tuple(context.parameters.values), paged)


def plan_count(query: Query, catalogue: Catalogue, caller: Caller) -> Statement:
    """Return the statement that counts the rows of all pages, in a cell `count`.

    It counts to one more than `limits.QUERY_COUNT_MAX` and no further; `$top` does not matter.
    `answers.counted` reads it.
    """
    context = FrameContext(catalogue, caller)
    if query.aggregate or query.distinct:
        rows, shape = _rows(context, query, names=False)
    else:
        frame = _root(context, query)
        rows = select("1 as one", frame.sql(), where=frame.where())
        shape = Shape(table=frame.table, fields=())
    limit = context.bound(limits.QUERY_COUNT_MAX + 1, "bigint")
    total = shape.input_cell
    some = select(f"r.{total}" if total else "1 as one", f"({rows}) as r", limit=limit)
    cells = f"count(*) as count, max(n.{total}) as {total}" if total else "count(*) as count"
    counted = select(cells, f"({some}) as n")
    return Statement(counted, tuple(context.parameters.values), shape)


def _within(context: FrameContext, rows: str, shape: Shape, bytes_max: int) -> str:
    """Those of the rows, in their order, before which there are fewer than so many bytes.

    The server knows how long a text is without reading it, so rows behind the last one of a page
    cost nothing, however large they are.
    """
    texts = [
        field.cell for field in shape.fields if field.column and field.column.sql_type == "text"
    ]
    texts += [one.cell for one in shape.nested]
    names = sum(len(field.name) + NAME_BYTES_MORE for field in shape.fields)
    size = " + ".join(
        [str(names), *(f"coalesce(octet_length(r.{text}::text), 0)" for text in texts)]
    )
    before = "rows between unbounded preceding and 1 preceding"
    cells = (
        f"r.*, coalesce(sum({size}) over ({before}), 0) as bytes_before,"
        f" lead(true) over ({before}) as {FOLLOWED}"
    )
    sized = select(cells, f"({rows}) as r")
    bound = context.bound(bytes_max, "bigint")
    return select("r.*", f"({sized}) as r", where=f"r.bytes_before < {bound}")


def _offset(page: int, size: int) -> int:
    rows = (page - 1) * size
    if rows + size > PAGED_ROWS_MAX:
        raise InvalidQuery(
            f"Page {page} lies behind {PAGED_ROWS_MAX:,} rows; go there with the paging cookies.",
            dataverse=PAGE_LIMIT,
        )
    return rows


def _root(context: FrameContext, query: Query) -> QueryFrame:
    frame = QueryFrame.of(context, context.table(query.table), query.filter)
    registry: dict[str, QueryFrame] = {}
    attach(frame, query.links, registry)
    frame.links = registry
    frame.add(query.filter)
    return frame


def _rows(context: FrameContext, query: Query, *, names: bool) -> tuple[str, Shape]:
    """All rows of a query, without order: cells for the answer and cells to sort by."""
    frame = _root(context, query)
    if query.aggregate:
        return grouped(frame, query, names=names)
    selection = Selection(frame, names=names)
    for there, item, name in selected(frame, query):
        selection.add(there, item, name)
    orders = placed_orders(frame, query)
    if query.distinct:
        selection.sort_distinct(orders)
    else:
        selection.add_key()
        selection.sort_rows(orders, [frame, *frame.links.values()])
    nested = [_expanded(selection, frame, expand, names=names) for expand in query.expands]
    return selection.sql(distinct=query.distinct), selection.shape(nested)


def _expanded(outer: Selection, parent: QueryFrame, expand: Expand, *, names: bool) -> Nested:
    """Related rows as JSON in one cell."""
    navigation = parent.table.navigation_by_name.get(expand.navigation)
    if navigation is None:
        raise InvalidQuery(
            f"`{parent.table.name}` has no navigation `{expand.navigation[:64]}`; check its name.",
            dataverse=UNKNOWN_COLUMN,
        )
    context = parent.context
    frame = QueryFrame.of(context, context.table(navigation.table), expand.filter)
    mine, theirs = parent.column(navigation.column), frame.column(navigation.target_column)
    frame.conditions.append(matching(parent, mine, frame, theirs))
    attach(frame, expand.links, {})
    frame.add(expand.filter)
    inside = Query(table=navigation.table, items=expand.items, orders=expand.orders)
    selection = Selection(frame, names=names)
    for there, item, name in selected(frame, inside):
        selection.add(there, item, name)
    selection.add_key()
    selection.sort_rows(placed_orders(frame, inside), [frame])
    nested = [_expanded(selection, frame, one, names=names) for one in expand.expands]
    rows, shape = selection.sql(), selection.shape(nested)
    if navigation.collection:
        order = order_by_cells(shape.sort, "r")
        limit = context.bound(expand.top or limits.QUERY_ROWS_MAX + 1, "bigint")
        first = select("r.*", f"({rows}) as r", order_by=order, limit=limit)
        if context.bytes_max is not None:
            first = _within(context, first, shape, context.bytes_max)
        shape = replace(shape, rows_max=limits.QUERY_ROWS_MAX, bytes_max=context.bytes_max)
        sql = select(f"json_agg(row_to_json(r) order by {order})", f"({first}) as r")
    else:
        sql = select("row_to_json(r)", f"({rows}) as r")
    cell = outer.cell(f"({sql})", "e")
    return Nested(name=navigation.name, cell=cell, collection=navigation.collection, shape=shape)
