"""Groups and aggregates in SQL, over a bounded number of rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct

from relevo import limits
from relevo.kernel.expressions.to_sql import SqlType
from relevo.kernel.querying.catalogue import Column
from relevo.kernel.querying.errors import AGGREGATE_ALIAS, InvalidQuery
from relevo.kernel.querying.frames import QueryFrame
from relevo.kernel.querying.selecting import Chosen, selected, target_label, tie, written_orders
from relevo.kernel.querying.shapes import Field, Shape, SortKey
from relevo.kernel.querying.sorting import Sorted, text_sql, value_sql
from relevo.kernel.querying.statements import select

if TYPE_CHECKING:
    from collections.abc import Iterator

    from relevo.kernel.querying.model import Item, Order, Query

_MOST: Final = limits.QUERY_AGGREGATE_ROWS_MAX
_SUMMED: Final = frozenset({"int", "bigint", "float"})
_COMPARED: Final = _SUMMED | {"datetime"}


class _Output(Struct, frozen=True, kw_only=True):
    """A cell of a group: how it is made from the rows `i`, and what it is."""

    name: str
    sql: str
    type: SqlType
    group: bool
    start: QueryFrame
    path: tuple[str, ...]
    shown: Column | None = None
    """The column, if its values are shown as they are."""
    target: str | None = None
    """Of a lookup: the table that it points into."""
    label: str | None = None
    """Of a lookup, if it is wanted: the name of the row that it points at."""


def grouped(frame: QueryFrame, query: Query, *, names: bool) -> tuple[str, Shape]:
    """Return the groups of a query without order, and how they are read; `names` behind lookups.

    Reading checks how many rows went in: the cell `total` says it, up to one more than may be.
    """
    inputs: dict[str, str] = {}
    outputs = [_output(chosen, inputs, names=names) for chosen in selected(frame, query)]
    _check_names(outputs)
    most = min(query.aggregate_limit or _MOST, _MOST)
    cells = {f"c{n}": one.sql for n, one in enumerate(outputs)}
    cells |= {f"t{n}": one.target for n, one in enumerate(outputs) if one.target}
    cells |= {f"n{n}": one.label for n, one in enumerate(outputs) if one.label}
    sort = list(_sort(frame, query, outputs))
    cells |= {f"s{n}": key.sql for n, key in enumerate(sort)}
    cells["total"] = "(sum(count(*)) over ())::bigint"
    made = ", ".join(f"{sql} as {name}" for name, sql in cells.items())
    rows = ", ".join([*(f"{sql} as {name}" for name, sql in inputs.items()), "1 as one"])
    limit = frame.context.bound(most + 1, "bigint")
    source = select(rows, frame.sql(), where=frame.where(), limit=limit)
    groups = ", ".join(output.sql for output in outputs if output.group)
    shape = Shape(
        table=frame.table,
        fields=tuple(
            Field(
                name=one.name,
                cell=f"c{n}",
                table=frame.table,
                column=one.shown,
                target_cell=f"t{n}" if one.target else None,
                name_cell=f"n{n}" if one.label else None,
            )
            for n, one in enumerate(outputs)
        ),
        sort=tuple(
            SortKey(cell=f"s{n}", type=key.type, name=key.name, descending=key.descending)
            for n, key in enumerate(sort)
        ),
        input_cell="total",
        input_max=most,
    )
    return select(made, f"({source}) as i", group_by=groups), shape


def _output(chosen: Chosen, inputs: dict[str, str], *, names: bool) -> _Output:
    frame, item, name = chosen
    if item.aggregate == "count":
        return _Output(
            name=_named(name),
            sql="count(*)",
            type="bigint",
            group=False,
            start=frame,
            path=item.path,
        )
    found, column = frame.find(item.path)
    sql = found.usable(column).of(found.alias)
    if item.aggregate is None and not item.groupby:
        raise InvalidQuery(
            f"`{column.name}` is neither grouped by nor aggregated; group by it.",
            dataverse=AGGREGATE_ALIAS,
        )
    if item.date_grouping is not None:
        sql = _part(found, column, item)
    cell = _input(sql, inputs)
    if item.groupby:
        lookup = column.type == "lookup"
        target = column.target.replace("{t}", found.alias) if lookup else ""
        name_of = target_label(found, column) if lookup and names else ""
        whole = item.date_grouping is not None
        return _Output(
            name=name or column.wire,
            sql=cell,
            type="bigint" if whole else column.sql_type,
            group=True,
            start=frame,
            path=item.path,
            shown=None if whole else column,
            # The same in all rows of the group.
            target=f"min({_input(target, inputs)})" if target else None,
            label=f"min({_input(name_of, inputs)})" if name_of else None,
        )
    sql, kind = _aggregate(item, column, cell)
    shown = column if item.aggregate in ("min", "max") else None
    return _Output(
        name=_named(name), sql=sql, type=kind, group=False, start=frame, path=item.path, shown=shown
    )


def _input(sql: str, inputs: dict[str, str]) -> str:
    """Select something of the rows that go in; returns what it is called."""
    cell = f"i{len(inputs)}"
    inputs[cell] = sql
    return f"i.{cell}"


def _named(name: str | None) -> str:
    if name is None:
        raise InvalidQuery(
            "Something that is counted or calculated has no name; give it an alias.",
            dataverse=AGGREGATE_ALIAS,
        )
    return name


def _check_names(outputs: list[_Output]) -> None:
    names = [output.name for output in outputs]
    for name in names:
        if names.count(name) > 1:
            raise InvalidQuery(f"Two results are called `{name[:64]}`; rename one.")


def _part(frame: QueryFrame, column: Column, item: Item) -> str:
    """The part of a date that is grouped by, as a number."""
    if column.type != "datetime":
        raise InvalidQuery(f"`{column.name}` is no date; group by it without dategrouping.")
    context = frame.context
    zone = context.bound(context.caller.zone if item.user_zone else "UTC", "text")
    local = f"({column.of(frame.alias)} at time zone {zone})"
    return f"extract({item.date_grouping} from {local})::bigint"


def _aggregate(item: Item, column: Column, cell: str) -> tuple[str, SqlType]:
    match item.aggregate:
        case "countcolumn":
            return f"count({'distinct ' if item.distinct else ''}{cell})", "bigint"
        case "sum" | "avg" if column.type not in _SUMMED:
            what = f"{item.aggregate} needs numbers"
        case "min" | "max" if column.type not in _COMPARED:
            what = f"{item.aggregate} needs numbers or dates"
        case "sum":
            kind: SqlType = "float8" if column.type == "float" else "numeric"
            return f"sum({cell})::{kind}", kind
        case "avg":
            return f"avg({cell})::float8", "float8"
        case _:
            return f"{item.aggregate}({cell})", column.sql_type
    raise InvalidQuery(f"{what}, and `{column.name}` has none; aggregate another column.")


def _sort(frame: QueryFrame, query: Query, outputs: list[_Output]) -> Iterator[Sorted]:
    """What is ordered by, then all groups: only these tell rows apart."""
    for start, order in written_orders(frame, query):
        yield _order(start, order, outputs)
    for output in outputs:
        if output.group and output.shown is not None:
            yield tie(output.shown, output.sql)
        elif output.group:
            yield Sorted(sql=output.sql, type=output.type, name=output.name)


def _order(start: QueryFrame, order: Order, outputs: list[_Output]) -> Sorted:
    wanted = order.alias if order.alias is not None else ".".join(order.path)
    for output in outputs:
        by_path = output.group and (output.start, output.path) == (start, order.path)
        if output.name != order.alias and not (order.alias is None and by_path):
            continue
        sql, kind = output.sql, output.type
        if output.group and output.shown is not None:
            sql, kind = value_sql(start.context, output.shown, sql, by_label=order.by_label)
        elif kind == "text":
            sql = text_sql(start.context, sql)
        return Sorted(sql=sql, type=kind, name=output.name, descending=order.descending)
    raise InvalidQuery(
        f"Groups cannot be sorted by `{wanted[:128]}`; sort by what they are grouped by, or by an "
        "alias.",
        dataverse=AGGREGATE_ALIAS,
    )
