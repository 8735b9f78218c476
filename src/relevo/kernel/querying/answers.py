"""From rows to the JSON that clients of Dataverse read.

    page = read(rows, statement.shape, preferences, caller)
    page.rows, page.more, page.position

Annotations are only sent if they are wanted, except the entity tag.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec
from msgspec import Struct

from relevo import limits
from relevo.kernel.pages import fitting, json_bytes
from relevo.kernel.querying.errors import AGGREGATE_LIMIT, InvalidQuery
from relevo.kernel.querying.model import Position
from relevo.kernel.querying.shapes import FOLLOWED

if TYPE_CHECKING:
    from relevo.kernel.querying.catalogue import Column, Table
    from relevo.kernel.querying.model import Caller
    from relevo.kernel.querying.preferences import Preferences
    from relevo.kernel.querying.shapes import Field, Nested, Shape

FORMATTED: Final = "OData.Community.Display.V1.FormattedValue"
LOGICAL_NAME: Final = "Microsoft.Dynamics.CRM.lookuplogicalname"
NAVIGATION: Final = "Microsoft.Dynamics.CRM.associatednavigationproperty"
COUNT_EXCEEDED: Final = "Microsoft.Dynamics.CRM.totalrecordcountlimitexceeded"

Row = Mapping[str, Any]
"""A row of a statement by its cells: the driver's values, or JSON."""


class AnswerPage(Struct, frozen=True):
    """The rows of a page as they are sent."""

    rows: list[dict[str, Any]]
    more: bool
    """Whether there is a next page."""
    position: Position | None
    """Where the next page starts, if there is one."""


def read(rows: Sequence[Row], shape: Shape, preferences: Preferences, caller: Caller) -> AnswerPage:
    """Return a page; raises `InvalidQuery` if too many rows went into groups."""
    if rows:
        _check_input(rows[0], shape)
    writer = _AnswerWriter(preferences, caller)
    kept = rows[: shape.rows_max]
    written_rows = [writer.row(one, shape) for one in kept]
    if shape.bytes_max is not None:
        written_rows = written_rows[: fitting(map(json_bytes, written_rows), shape.bytes_max)]
        kept = kept[: len(written_rows)]
    more = _is_followed(rows, len(kept), shape)
    position = None
    if more:
        values = tuple(kept[-1][key.cell] for key in shape.sort)
        position = Position(values, shape.taken + len(kept))
    return AnswerPage(written_rows, more, position)


def _is_followed(rows: Sequence[Row], kept: int, shape: Shape) -> bool:
    """Whether there are rows behind the first so many, also such as the statement left out."""
    if kept < len(rows) or not rows:
        return kept < len(rows)
    return shape.bytes_max is not None and bool(rows[-1][FOLLOWED])


def counted(row: Row, shape: Shape) -> int:
    """Return the count of `plan_count`; raises `InvalidQuery` if too many rows were grouped."""
    _check_input(row, shape)
    found: int = row["count"]
    return found


def _check_input(row: Row, shape: Shape) -> None:
    most = shape.input_max
    if shape.input_cell is not None and most is not None and (row[shape.input_cell] or 0) > most:
        raise InvalidQuery(
            f"More than {most:,} rows would go into the groups; filter them further.",
            dataverse=AGGREGATE_LIMIT,
        )


def envelope(
    page: AnswerPage,
    *,
    context: str,
    preferences: Preferences,
    count: int | None = None,
    next_link: str | None = None,
) -> dict[str, Any]:
    """Return the document of a page; `count` is what `plan_count` gave, if it was asked for."""
    document: dict[str, Any] = {"@odata.context": context}
    if count is not None:
        document["@odata.count"] = min(count, limits.QUERY_COUNT_MAX)
        if preferences.wants(COUNT_EXCEEDED):
            document[f"@{COUNT_EXCEEDED}"] = count > limits.QUERY_COUNT_MAX
    document["value"] = page.rows
    if next_link is not None:
        document["@odata.nextLink"] = next_link
    return document


def context_url(base: str, shape: Shape, *, one: bool = False) -> str:
    """Return the address of the description of what is sent; `base` ends without a slash."""
    names = [field.name for field in shape.fields]
    names += [f"{nested.name}()" for nested in shape.nested]
    whole = len(shape.fields) >= len(shape.table.columns) and not shape.nested
    chosen = "" if whole else f"({','.join(names)})"
    return f"{base}/$metadata#{shape.table.set_name}{chosen}{'/$entity' if one else ''}"


def etag(version: object) -> str:
    """Return the entity tag of a row's version."""
    return f'W/"{version}"'


def written(value: Any, column: Column | None = None) -> Any:
    """Return a value as JSON has it: dates in UTC, ids as text, sums as numbers."""
    if column is not None and column.type == "datetime" and isinstance(value, str):
        value = datetime.fromisoformat(value)  # inside JSON it came as text
    match value:
        case datetime():
            return instant(value)
        case UUID():
            return str(value)
        case Decimal():
            return int(value) if value == value.to_integral_value() else float(value)
        case _:
            return value


def instant(value: datetime) -> str:
    """Return a date as it is sent: UTC, whole seconds unless there are fractions."""
    text = value.astimezone(UTC).replace(tzinfo=None).isoformat()
    return f"{text.rstrip('0') if '.' in text else text}Z"


def shown_date(value: datetime, caller: Caller) -> str:
    """Return a date for people: in their zone, in the order that their language has."""
    local = value.astimezone(ZoneInfo(caller.zone))
    if caller.language == "es":
        return f"{local.day}/{local.month}/{local.year} {local.hour}:{local.minute:02}"
    hour, half = (local.hour - 1) % 12 + 1, "AM" if local.hour < 12 else "PM"
    return f"{local.month}/{local.day}/{local.year} {hour}:{local.minute:02} {half}"


class _AnswerWriter:
    def __init__(self, preferences: Preferences, caller: Caller) -> None:
        self.caller = caller
        self.formatted = preferences.wants(FORMATTED)
        self.logical_name = preferences.wants(LOGICAL_NAME)
        self.navigation = preferences.wants(NAVIGATION)

    def row(self, row: Row, shape: Shape) -> dict[str, Any]:
        document: dict[str, Any] = {}
        if shape.version_cell is not None and row[shape.version_cell] is not None:
            document["@odata.etag"] = etag(row[shape.version_cell])
        for field in shape.fields:
            self.field(document, row, field)
        if shape.key_cell is not None:
            document.setdefault(shape.table.key, written(row[shape.key_cell]))
        for nested in shape.nested:
            document[nested.name] = self.nested(row[nested.cell], nested)
        return document

    def field(self, document: dict[str, Any], row: Row, field: Field) -> None:
        value, column = row[field.cell], field.column
        document[field.name] = written(value, column)
        if value is None or column is None:
            return
        if self.formatted:
            text = self.text(value, row, field, column)
            if text is not None:
                document[f"{field.name}@{FORMATTED}"] = text
        if column.type == "lookup" and (self.logical_name or self.navigation):
            self.lookup(document, row, field, column)

    def text(self, value: Any, row: Row, field: Field, column: Column) -> str | None:
        match column.type:
            case "choice" | "bool":
                return column.label(value, self.caller.language)
            case "datetime":
                date = datetime.fromisoformat(value) if isinstance(value, str) else value
                return shown_date(date, self.caller)
            case "lookup":
                return None if field.name_cell is None else row[field.name_cell]
            case _:
                return None

    def lookup(self, document: dict[str, Any], row: Row, field: Field, column: Column) -> None:
        target = row[field.target_cell] if field.target_cell is not None else None
        if target is None and column.targets:
            target = column.targets[0]
        if self.logical_name and target is not None:
            document[f"{field.name}@{LOGICAL_NAME}"] = target
        name = _navigation(field.table, column, target)
        if self.navigation and name is not None:
            document[f"{field.name}@{NAVIGATION}"] = name

    def nested(self, cell: Any, nested: Nested) -> Any:
        found = msgspec.json.decode(cell) if isinstance(cell, (str, bytes)) else cell
        if nested.collection:
            rows = found or []
            kept = rows[: nested.shape.rows_max]
            if _is_followed(rows, len(kept), nested.shape):
                raise InvalidQuery(
                    f"`{nested.name}` leads from a row to more rows than fit into it; expand it"
                    " with $top or $select, or read these rows by the address of that row and"
                    f" /{nested.name}.",
                    pointer="$expand",
                )
            return [self.row(one, nested.shape) for one in kept]
        return None if found is None else self.row(found, nested.shape)


def _navigation(table: Table | None, column: Column, target: str | None) -> str | None:
    """The navigation that goes where the lookup points."""
    for one in table.navigations if table is not None else ():
        if one.column == column.name and one.table == target and not one.collection:
            return one.name
    return None
