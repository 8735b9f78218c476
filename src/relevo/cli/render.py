"""How results are shown: one place for all commands.

`json` is what the API answers. `table` is for people: with rules and relative times on a terminal,
plain columns with exact times when it goes into a pipe or a file.
"""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec
from msgspec import Struct, inspect
from rich import box
from rich.cells import cell_len as _width
from rich.console import Console
from rich.table import Table
from rich.text import Text

from relevo.cli.columns import COLUMNS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from relevo.cli.session import Output

STYLES: Final = {
    "ok": "green", "yes": "green", "active": "green", "applied": "green",
    "warn": "yellow", "pending": "yellow", "paused": "yellow", "skip": "dim", "no": "dim",
    "succeeded": "green", "in_progress": "cyan", "failed": "bold red", "canceled": "dim",
    "waiting": "yellow", "pausing": "yellow", "canceling": "yellow",
    "fail": "bold red", "blocked": "red", "revoked": "red", "expired": "red", "changed": "red",
    "unknown": "red",
}  # fmt: skip
JSON: Final = frozenset({"body", "item", "previous"})
"""Columns that show what users put there."""
_ID_WIDTH: Final = 36
_TEXT_WIDTH: Final = 12
_UNITS: Final = ((86_400.0, "d"), (3_600.0, "h"), (60.0, "min"), (1.0, "s"))


class Renderer:
    """Writes results to standard output."""

    def __init__(self, output: Output = "table", console: Console | None = None) -> None:
        self.output = output
        self.console = console or new_console()

    def show(self, body: bytes, response: Any) -> None:
        """Show an answer that is JSON, whose type is `response`."""
        if self.output == "json":
            text = msgspec.json.format(body, indent=2).decode()
            shown = json_printable(text) if self.console.is_terminal else text
            self.console.out(shown, highlight=False)
            return
        decoded = msgspec.json.decode(body)
        if isinstance(decoded, dict) and isinstance(decoded.get("items"), list):
            self.table(decoded["items"], _item_type(response))
        else:
            self.record(decoded, response)

    def result(self, value: Struct) -> None:
        """Show a result that did not come from an operation."""
        self.show(msgspec.json.encode(value), type(value))

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
        names = [*COLUMNS.get(kind, ())] or list(dict.fromkeys(k for row in rows for k in row))
        names = [name for name in names if any(not _is_empty(row.get(name)) for row in rows)]
        return names, [
            [
                self._cell(_shown(name, row.get(name)), is_time=name in times, brief=brief)
                for name in names
            ]
            for row in rows
        ]

    def record(self, value: Any, kind: Any = None) -> None:
        """Show one thing, a field on each line; lines are never broken, so they can be copied."""
        fields = dict(_flat("", value)) if isinstance(value, dict) else {"value": value}
        times = _times(kind)
        width = max((len(name) for name in fields), default=0)
        for name, field in fields.items():
            last = name.rpartition(".")[2]
            cell = self._cell(_percent(last, field), is_time=last in times)
            line = Text.assemble((f"{printable(name):<{width}}  ", "bold"), cell)
            self.console.print(line, soft_wrap=True)

    def _ruled(self, names: Sequence[str], cells: Sequence[Sequence[Text]]) -> Table:
        heads = [name.replace("_", " ") for name in names]
        widths = _widths(_columns(heads, cells), self.console.width)
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
        for head, width in zip(heads, widths, strict=False):
            table.add_column(head, width=width, overflow="fold")
        for row in cells:
            table.add_row(*row[: len(widths)])
        if len(widths) < len(heads):
            table.caption = f"no room for {', '.join(heads[len(widths) :])}: --output json has all"
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
    """Return a console that shows text as it is: names in brackets are not markup."""
    return Console(
        file=sys.stderr if stderr else sys.stdout, markup=False, highlight=False, emoji=False
    )


def note(text: str) -> None:
    """Say something beside the result, on standard error."""
    click.echo("\n".join(map(printable, text.split("\n"))), err=True)


def echo_json(body: bytes, *, indent: int = -1) -> None:
    """Write JSON to standard output: in one line, unless told to indent it."""
    text = msgspec.json.format(body, indent=indent).decode()
    click.echo(json_printable(text) if sys.stdout.isatty() else text)


def echo_text(text: str) -> None:
    """Write a text to standard output."""
    click.echo("\n".join(map(printable, text.split("\n"))) if sys.stdout.isatty() else text)


def printable(text: str) -> str:
    """Return text without characters that would move the cursor or change the terminal.

    >>> printable("a\\x1b[2J")
    'a\\\\x1b[2J'
    """
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode() for c in text
    )


def json_printable(text: str) -> str:
    """Return the same JSON without characters that would change a terminal or the order of text.

    JSON itself escapes only the first 32; those of C1, and those that turn the direction of
    writing, would reach the terminal as they are.

    >>> print(json_printable('"a\x9b2J\u202eb"'))
    "a\\u009b2J\\u202eb"
    """
    lines = text.split("\n")
    if all(map(str.isprintable, lines)):
        return text
    return "\n".join(
        "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in line) for line in lines
    )


def _columns(heads: Sequence[str], cells: Sequence[Sequence[Text]]) -> list[list[str]]:
    """The texts of columns, each under its head."""
    return [[head, *(row[n].plain for row in cells)] for n, head in enumerate(heads)]


def _widths(columns: Sequence[Sequence[str]], room: int) -> list[int]:
    """How wide columns are; the last ones are dropped if there is no room.

    Words as long as an id are never broken. The first columns get what is left.
    """
    natural = [max(map(_width, column)) for column in columns]
    found = [
        max(min(whole, _TEXT_WIDTH), min(max(map(_longest, column)), _ID_WIDTH))
        for whole, column in zip(natural, columns, strict=True)
    ]
    while len(found) > 1 and sum(found) + _gaps(found) > room:
        found.pop()
    left = max(0, room - sum(found) - _gaps(found))
    for n, width in enumerate(found):
        more = min(natural[n] - width, left)
        found[n], left = width + more, left - more
    return found


def _longest(text: str) -> int:
    return max(map(_width, text.split()), default=0)


def _gaps(widths: Sequence[int]) -> int:
    """What stands beside the cells."""
    return 3 * len(widths) - 1


def _shown(name: str, value: Any) -> Any:
    """Return what users put into their work as the JSON that it is."""
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
    fields = {field.name: field.type for field in msgspec.structs.fields(response)}
    (item,) = fields["items" if "items" in fields else "value"].__args__
    return item


def _times(kind: Any) -> frozenset[str]:
    """Return the names of the fields that are times, in a struct and in the structs it holds."""
    if kind is None:
        return frozenset()
    info = inspect.type_info(kind)
    found: set[str] = set()
    _collect_times(info, found)
    return frozenset(found)


def _collect_times(info: inspect.Type, found: set[str]) -> None:
    if not isinstance(info, inspect.StructType):
        return
    for field in info.fields:
        kinds = field.type.types if isinstance(field.type, inspect.UnionType) else (field.type,)
        if any(isinstance(kind, inspect.DateTimeType) for kind in kinds):
            found.add(field.encode_name)
        for kind in kinds:
            _collect_times(kind, found)


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
