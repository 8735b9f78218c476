"""Shows the results of all commands.

`json` is the JSON of the API, and `yaml`, `csv` and `ids` are made of it. `table` has rules and
relative times on a terminal, and plain columns with exact times in a pipe or a file.
"""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct, inspect
from rich import box
from rich.cells import cell_len as _width
from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from relevo.cli.output.columns import COLUMNS
from relevo.cli.output.formats import text_of
from relevo.cli.output.printing import printable, terminal_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from rich.console import RenderableType

    from relevo.cli.session import Output

STYLES: Final = {
    "ok": "green", "yes": "green", "active": "green", "applied": "green",
    "warn": "yellow", "pending": "yellow", "paused": "yellow", "skip": "dim", "no": "dim",
    "succeeded": "green", "in_progress": "cyan", "failed": "bold red", "canceled": "dim",
    "waiting": "yellow", "pausing": "yellow", "canceling": "yellow",
    "fail": "bold red", "blocked": "red", "revoked": "red", "expired": "red", "changed": "red",
    "unknown": "red",
}  # fmt: skip
JSON: Final = frozenset({"body", "item", "previous", "rates", "waiters"})
"""Columns that show JSON, most of them that of users."""
_ID_WIDTH: Final = 36
_TEXT_WIDTH: Final = 12
_UNITS: Final = ((86_400.0, "d"), (3_600.0, "h"), (60.0, "min"), (1.0, "s"))


class Renderer:
    """Writes results to standard output."""

    def __init__(self, output: Output = "table", console: Console | None = None) -> None:
        self.output = output
        self.console = console or new_console()
        self._headed = False

    def show(self, body: bytes, response: Any) -> None:
        """Show a JSON answer of the type `response`."""
        if self.output == "json":
            self._write(f"{msgspec.json.format(body, indent=2).decode()}\n")
            return
        decoded = msgspec.json.decode(body)
        if self.output != "table":
            self.data(decoded, response)
        elif isinstance(decoded, dict) and isinstance(decoded.get("items"), list):
            self.table(decoded["items"], _item_type(response))
        else:
            self.record(decoded, response)

    def result(self, value: Struct) -> None:
        """Show a result that did not come from an operation."""
        self.show(msgspec.json.encode(value), type(value))

    def data(self, value: Any, response: Any = None, *, line: bool = False) -> None:
        """Write decoded JSON for programs, also where the output is for people.

        With `line` it is one of many values that follow each other.
        """
        form = "json" if self.output == "table" else self.output
        kind = getattr(_item_type(response), "__name__", "")
        text = text_of(value, form, kind, line=line)
        if line and form == "csv" and self._headed:
            text = text.partition("\n")[2]
        self._headed = True
        self._write(text)

    def _write(self, text: str) -> None:
        shown = terminal_text(text, json=self.output != "csv") if self.console.is_terminal else text
        self.console.out(shown, highlight=False, end="")

    def table(self, rows: Sequence[Mapping[str, Any]], kind: Any = None) -> None:
        """Show rows, without the columns that are empty in all of them."""
        if self.console.is_terminal or not rows:
            self.console.print(self.drawn(rows, kind))
        else:
            self._plain(*self._cells(rows, kind))

    def drawn(self, rows: Sequence[Mapping[str, Any]], kind: Any = None) -> Table | Text:
        """Return the table as a terminal shows it, also again and again in the same place."""
        if not rows:
            return Text("nothing to show", style="dim")
        names, cells = self._cells(rows, kind)
        natural = [max(map(_width, column)) for column in _columns(names, cells)]
        if sum(natural) + _gaps(natural) > self.console.width:
            names, cells = self._cells(rows, kind, brief=True)
        return self._ruled(names, cells)

    def _cells(
        self, rows: Sequence[Mapping[str, Any]], kind: Any, *, brief: bool = False
    ) -> tuple[list[str], list[list[Text]]]:
        times = _times(kind)
        names = [*COLUMNS.get(getattr(kind, "__name__", ""), ())] or list(
            dict.fromkeys(k for row in rows for k in row)
        )
        names = [name for name in names if any(not _is_empty(row.get(name)) for row in rows)]
        return names, [
            [
                self._cell(_shown(name, row.get(name)), is_time=name in times, brief=brief)
                for name in names
            ]
            for row in rows
        ]

    def record(self, value: Any, kind: Any = None) -> None:
        """Show a record, one field per line; lines are not wrapped, so that they can be copied."""
        for line in self._lines(value, kind):
            self.console.print(line, soft_wrap=True)

    def picture(self, body: bytes, response: Any) -> RenderableType:
        """Return a JSON answer as a terminal shows it, to be drawn in the same place again."""
        decoded = msgspec.json.decode(body)
        if isinstance(decoded, dict) and isinstance(decoded.get("items"), list):
            return self.drawn(decoded["items"], _item_type(response))
        return Group(*self._lines(decoded, response))

    def _lines(self, value: Any, kind: Any) -> Iterator[Text]:
        fields = dict(_flat("", value)) if isinstance(value, dict) else {"value": value}
        times = _times(kind)
        width = max((len(name) for name in fields), default=0)
        for name, field in fields.items():
            last = name.rpartition(".")[2]
            cell = self._cell(_percent(last, field), is_time=last in times)
            yield Text.assemble((f"{printable(name):<{width}}  ", "bold"), cell)

    def _ruled(self, names: Sequence[str], cells: Sequence[Sequence[Text]]) -> Table:
        heads = [name.replace("_", " ") for name in names]
        widths = _widths(_columns(heads, cells), self.console.width)
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
        for head, width in zip(heads, widths, strict=False):
            table.add_column(head, width=width, overflow="fold")
        for row in cells:
            table.add_row(*row[: len(widths)])
        if len(widths) < len(heads):
            table.caption = f"not shown: {', '.join(heads[len(widths) :])}; --output json shows all"
            table.caption_justify = "left"
        return table

    def _plain(self, names: Sequence[str], cells: Sequence[Sequence[Text]]) -> None:
        rows = [[Text(name.upper()) for name in names], *cells]
        widths = [max(row[i].cell_len for row in rows) for i in range(len(names))]
        for row in rows:
            padded = (
                cell.plain + " " * (width - cell.cell_len)
                for cell, width in zip(row, widths, strict=True)
            )
            self.console.out("  ".join(padded).rstrip(), highlight=False)

    def _cell(self, value: Any, *, is_time: bool, brief: bool = False) -> Text:
        if _is_empty(value):
            return Text("-", style="dim")
        match value:
            case bool():
                text = "yes" if value else "no"
            case list():
                text = ", ".join(map(str, value))
            case dict():
                text = ", ".join(f"{name}={each}" for name, each in value.items())
            case _:
                text = str(value)
        if is_time:
            text = _time(text, relative=self.console.is_terminal, brief=brief)
        text = printable(text)
        return Text(text, style=STYLES.get(text, "") if self.console.is_terminal else "")


def new_console(*, stderr: bool = False) -> Console:
    """Return a console without markup, so that names in brackets are shown."""
    return Console(
        file=sys.stderr if stderr else sys.stdout, markup=False, highlight=False, emoji=False
    )


def _columns(heads: Sequence[str], cells: Sequence[Sequence[Text]]) -> list[list[str]]:
    """Return the texts of columns, each with its heading."""
    return [[head, *(row[n].plain for row in cells)] for n, head in enumerate(heads)]


def _widths(columns: Sequence[Sequence[str]], room: int) -> list[int]:
    """Return the widths of columns; the last ones are dropped if there is no space.

    Words up to the length of an id are not broken. The first columns get the remaining space.
    """
    natural = [max(map(_width, column)) for column in columns]
    widths = [
        max(min(whole, _TEXT_WIDTH), min(max(map(_longest, column)), _ID_WIDTH))
        for whole, column in zip(natural, columns, strict=True)
    ]
    while len(widths) > 1 and sum(widths) + _gaps(widths) > room:
        widths.pop()
    left = max(0, room - sum(widths) - _gaps(widths))
    for n, width in enumerate(widths):
        more = min(natural[n] - width, left)
        widths[n], left = width + more, left - more
    return widths


def _longest(text: str) -> int:
    return max(map(_width, text.split()), default=0)


def _gaps(widths: Sequence[int]) -> int:
    """Return the width between the cells."""
    return 3 * len(widths) - 1


def _shown(name: str, value: Any) -> Any:
    """Return a value for display; users' data as JSON."""
    if name in JSON and value is not None:
        return msgspec.json.encode(value).decode()
    shown = _percent(name, value)
    return f"{shown:.1f}" if isinstance(shown, float) else shown


def _percent(name: str, value: Any) -> Any:
    return f"{value:.0%}" if name == "progress" and value is not None else value


def _is_empty(value: Any) -> bool:
    return value is None or value in ("", [], {})


def _flat(prefix: str, value: Mapping[str, Any]) -> Any:
    for name, field in value.items():
        if isinstance(field, dict) and field:
            yield from _flat(f"{prefix}{name}.", field)
        else:
            yield f"{prefix}{name}", field


def _item_type(response: Any) -> Any:
    """Return the type of a page's items, or the type itself."""
    try:
        fields = {field.name: field.type for field in msgspec.structs.fields(response)}
        (item,) = fields["items" if "items" in fields else "value"].__args__
    except (TypeError, KeyError, AttributeError, ValueError):
        return response
    return item


def _times(kind: Any) -> frozenset[str]:
    """Return the names of time fields of a struct and of its nested structs."""
    if kind is None:
        return frozenset()
    info = inspect.type_info(kind)
    names: set[str] = set()
    _collect_times(info, names)
    return frozenset(names)


def _collect_times(info: inspect.Type, names: set[str]) -> None:
    if not isinstance(info, inspect.StructType):
        return
    for field in info.fields:
        kinds = field.type.types if isinstance(field.type, inspect.UnionType) else (field.type,)
        if any(isinstance(kind, inspect.DateTimeType) for kind in kinds):
            names.add(field.encode_name)
        for kind in kinds:
            _collect_times(kind, names)


def _time(text: str, *, relative: bool, brief: bool) -> str:
    try:
        instant = datetime.fromisoformat(text)
    except ValueError:
        return text
    if not relative:
        return instant.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    seconds = (datetime.now(UTC) - instant).total_seconds()
    size, unit = next(((s, u) for s, u in _UNITS if abs(seconds) >= s), (1.0, "s"))
    away = f"{abs(seconds) / size:.0f} {unit}"
    shown = f"{away} ago" if seconds >= 0 else f"in {away}"
    return shown if brief else f"{instant.astimezone():%Y-%m-%d %H:%M:%S} ({shown})"
