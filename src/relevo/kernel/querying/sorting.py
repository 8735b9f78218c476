"""The order of rows, and which rows lie behind a position in it.

Nulls come first ascending and last descending; texts sort by their first characters in folded case
and code points, the same on every server; lookups by the name of the row that they point at.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from relevo import limits
from relevo.kernel.expressions.to_sql import Parameters, SqlType
from relevo.kernel.querying.errors import InvalidQuery

if TYPE_CHECKING:
    from collections.abc import Sequence

    from relevo.kernel.querying.catalogue import Column
    from relevo.kernel.querying.frames import FrameContext, QueryFrame
    from relevo.kernel.querying.model import Order
    from relevo.kernel.querying.shapes import SortKey

_LENGTH: Final = limits.QUERY_SORT_LENGTH_MAX


class Sorted(Struct, frozen=True, kw_only=True):
    """An SQL expression by which rows are sorted."""

    sql: str
    type: SqlType
    name: str
    descending: bool = False
    required: bool = False


def row_key(frame: QueryFrame) -> Sorted:
    """Return the key of a frame's rows."""
    key = frame.column(frame.table.key)
    return Sorted(sql=key.of(frame.alias), type=key.sql_type, name=key.name, required=True)


def column_key(frame: QueryFrame, order: Order, root: QueryFrame) -> Sorted:
    """Return the sort keys of an order by a column; only rows of the root always exist."""
    found, column = frame.find(order.path)
    sql, kind = sort_sql(found, column, by_label=order.by_label)
    name = ".".join(order.path)
    plain = column.required and found is root and column.type != "lookup"
    return Sorted(sql=sql, type=kind, name=name, descending=order.descending, required=plain)


def sort_sql(frame: QueryFrame, column: Column, *, by_label: bool) -> tuple[str, SqlType]:
    """Return the expression that a column sorts by, and its type."""
    sql, context = frame.usable(column).of(frame.alias), frame.context
    if column.type == "lookup":
        return text_sql(context, target_name(frame, column)), "text"
    return value_sql(context, column, sql, by_label=by_label)


def value_sql(
    context: FrameContext, column: Column, sql: str, *, by_label: bool
) -> tuple[str, SqlType]:
    """Return the sort key of a column's values, given by some SQL."""
    if column.type == "json":
        raise InvalidQuery(f"The column `{column.name}` has no order; sort by another.")
    if column.type == "choice" and by_label:
        return text_sql(context, _label(context, column, sql)), "text"
    if column.sql_type == "text":
        return text_sql(context, sql), "text"
    return sql, column.sql_type


def text_sql(context: FrameContext, sql: str) -> str:
    """Return the sort key of a text."""
    return f'(left({context.parameters.folded(sql)}, {_LENGTH}) collate "C")'


def target_name(frame: QueryFrame, column: Column) -> str:
    """Return the name of the row that a lookup points at, by joins."""
    names = []
    for target in column.targets:
        table = frame.context.catalogue.by_name.get(target)
        if table is not None:
            there = frame.reach_by(column.name, target, table.key)
            name = there.usable(there.column(table.primary_name))
            names.append(f"{name.of(there.alias)}::text")
    return f"coalesce({', '.join(names)}, null)" if names else f"{column.of(frame.alias)}::text"


def _label(context: FrameContext, column: Column, sql: str) -> str:
    """The text of a choice; its number if it has none."""
    known = {number: column.label(number, context.caller.language) for number in column.labels}
    numbers = context.bound(list(known), "bigint[]")
    texts = context.bound(list(known.values()), "text[]")
    return f"coalesce(({texts})[array_position({numbers}, ({sql})::bigint)], ({sql})::text)"


def order_by(keys: Sequence[Sorted]) -> str:
    """Return the `order by` clause."""
    return ", ".join(_direction(key.sql, key.descending, key.required) for key in keys)


def order_by_cells(keys: Sequence[SortKey], row: str) -> str:
    """Return what stands behind `order by` where the expressions are cells of a row."""
    return ", ".join(_direction(f"{row}.{key.cell}", key.descending, key.required) for key in keys)


def _direction(sql: str, descending: bool, required: bool) -> str:
    if required:  # plain, as indexes are
        return f"{sql} desc" if descending else sql
    return f"{sql} desc nulls last" if descending else f"{sql} asc nulls first"


def behind(keys: Sequence[SortKey], values: Sequence[Any], row: str, parameters: Parameters) -> str:
    """Return the condition that a row lies behind a position."""
    if len(values) != len(keys) or any(
        value is None and key.required for key, value in zip(keys, values, strict=True)
    ):
        raise InvalidQuery("The page that was asked for is one of another query; start again.")
    cells = [f"{row}.{key.cell}" for key in keys]
    bound = [
        None if value is None else parameters.bound(value, key.type)
        for key, value in zip(keys, values, strict=True)
    ]
    if all(key.required for key in keys) and len({key.descending for key in keys}) == 1:
        sign = "<" if keys[0].descending else ">"
        return f"({', '.join(cells)}) {sign} ({', '.join(map(str, bound))})"
    equal = [_equal(cell, value) for cell, value in zip(cells, bound, strict=True)]
    after = [_after(key, cell, value) for key, cell, value in zip(keys, cells, bound, strict=True)]
    ways = [" and ".join([*equal[:n], one]) for n, one in enumerate(after)]
    # The first condition follows from the second, and is one that an index serves.
    return f"{_not_before(keys[0], cells[0], bound[0])} and (({') or ('.join(ways)}))"


def _equal(cell: str, value: str | None) -> str:
    return f"{cell} is null" if value is None else f"{cell} = {value}"


def _after(key: SortKey, cell: str, value: str | None) -> str:
    if not key.descending:
        return f"{cell} is not null" if value is None else f"{cell} > {value}"
    if value is None:
        return "false"
    return f"{cell} < {value}" if key.required else f"({cell} < {value} or {cell} is null)"


def _not_before(key: SortKey, cell: str, value: str | None) -> str:
    if not key.descending:
        return "true" if value is None else f"{cell} >= {value}"
    if value is None:
        return f"{cell} is null"
    return f"{cell} <= {value}" if key.required else f"({cell} <= {value} or {cell} is null)"
