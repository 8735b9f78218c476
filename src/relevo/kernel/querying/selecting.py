"""The cells of a row: selected columns, sort keys, and other values of the answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from relevo.kernel.querying.errors import UNKNOWN_COLUMN, InvalidQuery
from relevo.kernel.querying.frames import QueryFrame, matching
from relevo.kernel.querying.model import Item, Order, all_links
from relevo.kernel.querying.shapes import Field, Nested, Shape, SortKey
from relevo.kernel.querying.sorting import Sorted, column_key, row_key
from relevo.kernel.querying.statements import select

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from relevo.kernel.querying.catalogue import Column
    from relevo.kernel.querying.model import Query

Placed = tuple[QueryFrame, Order]
"""An order, and the frame that its path starts at."""
Chosen = tuple[QueryFrame, Item, str | None]
"""An item, the frame that its path starts at, and its name unless it is the column's own."""


class Selection:
    """Gathers the cells of a statement's rows; `names` asks for those behind lookups too."""

    def __init__(self, frame: QueryFrame, *, names: bool) -> None:
        self.frame = frame
        self.names = names
        self.cells: dict[str, str] = {}
        self.fields: list[Field] = []
        self.sort: list[SortKey] = []
        self.key_cell: str | None = None
        self.version_cell: str | None = None
        self._shown: list[tuple[QueryFrame, Column, str]] = []

    def cell(self, sql: str, prefix: str = "c") -> str:
        """Select an expression and return the name of its cell."""
        name = f"{prefix}{len(self.cells)}"
        self.cells[name] = sql
        return name

    def add(self, frame: QueryFrame, item: Item, name: str | None = None) -> None:
        """Select a column; without a name it has its own."""
        found, column = frame.find(item.path)
        name = name or item.alias or column.wire
        if any(field.name == name for field in self.fields):
            return
        hidden = column.payload and not frame.context.caller.may_read_payload
        sql = found.shown(column)
        target = name_cell = None
        if column.type == "lookup" and not hidden:
            if column.target:
                target = self.cell(column.target.replace("{t}", found.alias))
            if self.names:
                name_cell = self.cell(target_label(found, column))
        cell = self.cell(sql)
        self._shown.append((found, column, sql))
        self.fields.append(
            Field(
                name=name,
                cell=cell,
                table=found.table,
                column=column,
                target_cell=target,
                name_cell=name_cell,
            )
        )

    def add_key(self) -> None:
        """Select the key and version of a row."""
        table = self.frame.table
        self.key_cell = self.cell(self.frame.column(table.key).of(self.frame.alias), "k")
        if table.version is not None:
            self.version_cell = self.cell(
                self.frame.column(table.version).of(self.frame.alias), "v"
            )

    def sort_by(self, key: Sorted) -> None:
        """Sort by an expression, after earlier orders."""
        cell = self.cell(key.sql, "s")
        self.sort.append(
            SortKey(
                cell=cell,
                type=key.type,
                name=key.name,
                descending=key.descending,
                required=key.required,
            )
        )

    def sort_rows(self, orders: Iterable[Placed], frames: Iterable[QueryFrame]) -> None:
        """Sort by orders, then by the keys of the frames whose rows make a row."""
        keys = [column_key(frame, order, self.frame) for frame, order in orders]
        falling = bool(keys) and keys[-1].descending  # one direction, as an index has
        for frame in frames:
            # A row without a related one has a null there.
            root = frame is self.frame
            keys.append(replace(row_key(frame), descending=falling, required=root))
        seen: set[str] = set()
        for key in keys:
            if key.sql not in seen:
                seen.add(key.sql)
                self.sort_by(key)

    def sort_distinct(self, orders: Iterable[Placed]) -> None:
        """Sort by orders, then by everything that is selected: only that tells rows apart."""
        for frame, order in orders:
            if frame.find(order.path) not in [(one, column) for one, column, _ in self._shown]:
                raise InvalidQuery(
                    f"Different rows cannot be sorted by `{'.'.join(order.path)[:128]}`, which is "
                    "not selected; select it too."
                )
            self.sort_by(column_key(frame, order, self.frame))
        for _, column, sql in self._shown:
            self.sort_by(tie(column, sql))

    def sql(self, *, distinct: bool = False) -> str:
        """Return the select statement, without order and limit."""
        cells = ", ".join(f"{sql} as {name}" for name, sql in self.cells.items())
        what = f"distinct {cells}" if distinct else cells
        return select(what, self.frame.sql(), where=self.frame.where())

    def shape(self, nested: Sequence[Nested] = ()) -> Shape:
        """Return how the rows are read."""
        return Shape(
            table=self.frame.table,
            fields=tuple(self.fields),
            nested=tuple(nested),
            key_cell=self.key_cell,
            version_cell=self.version_cell,
            sort=tuple(self.sort),
        )


def tie(column: Column, sql: str) -> Sorted:
    """Return a key that differs where values differ, and is short however long they are."""
    if column.sql_type == "text":
        return Sorted(sql=f'(md5({sql}) collate "C")', type="text", name=column.name)
    return Sorted(sql=sql, type=column.sql_type, name=column.name)


def selected(frame: QueryFrame, query: Query) -> list[Chosen]:
    """Return all items of a query: where each path starts, and its name unless it is the usual."""
    own = query.items or tuple(Item(path=(column.name,)) for column in frame.table.columns)
    found: list[Chosen] = [(frame, item, item.alias) for item in own]
    for link in all_links(query.links):
        if link.alias in frame.links:
            there = frame.links[link.alias]
            found += [
                (there, item, item.alias or f"{link.alias}.{'.'.join(item.path)}")
                for item in link.items
            ]
    return found


def placed_orders(frame: QueryFrame, query: Query) -> list[Placed]:
    """Return the orders of a query and of its joined links, and where each path starts."""
    return [_by_path(frame, query, *one) for one in written_orders(frame, query)]


def written_orders(frame: QueryFrame, query: Query) -> list[Placed]:
    """Return the orders as they are written, which may be by alias."""
    found = [(frame, order) for order in query.orders]
    for link in all_links(query.links):
        if link.alias in frame.links and link.kind != "first":
            found += [(frame.links[link.alias], order) for order in link.orders]
    return found


def _by_path(frame: QueryFrame, query: Query, start: QueryFrame, order: Order) -> Placed:
    """An order by the alias of an item is one by its path."""
    if order.path:
        return start, order
    for there, item, name in selected(frame, query):
        if name == order.alias and item.path:
            return there, replace(order, path=item.path)
    raise InvalidQuery(
        f"Nothing that is selected is called `{(order.alias or '')[:64]}`; sort by a column.",
        dataverse=UNKNOWN_COLUMN,
    )


def target_label(frame: QueryFrame, column: Column) -> str:
    """Return the name of the row that a lookup points at; looked up for rows that are shown."""
    names = []
    for target in column.targets:
        table = frame.context.catalogue.by_name.get(target)
        if table is None:
            continue
        there = QueryFrame.of(frame.context, table)
        name = there.column(table.primary_name)
        if not name.payload:
            on = matching(frame, column, there, there.column(table.key))
            names.append(f"({select(f'{name.of(there.alias)}::text', there.sql(), where=on)})")
    return f"coalesce({', '.join(names)}, null)" if names else "null::text"
