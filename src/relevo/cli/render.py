"""How results are shown: one place for all commands.

`json` is what the API answers. `table` is for people: with rules and relative times on a terminal,
plain columns with exact times when it goes into a pipe or a file.
"""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec
from msgspec import Struct, inspect
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from relevo.api.keys import KeyInfo
from relevo.api.surfaces.bulk import ItemOutcome
from relevo.api.surfaces.bulk_deletes import BulkDeleteView
from relevo.api.surfaces.feed import ChangeView
from relevo.api.surfaces.items import ItemView
from relevo.api.surfaces.job_models import JobView
from relevo.api.surfaces.letters import LetterInfo
from relevo.api.surfaces.routing_policies import (
    ClassificationPolicyView,
    DistributionPolicyView,
    ExceptionPolicyView,
    RouterQueueView,
)
from relevo.api.surfaces.store import ContainerView
from relevo.api.surfaces.units import FeedView, LeaseView
from relevo.jobs.views import JobCount, SuspendedCount
from relevo.leases.model import HostInfo, LeaseInfo
from relevo.router.views import RouterJob, RouterWorker
from relevo.router.watching import OpenOffer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from relevo.cli.session import Output

COLUMNS: Final[dict[type[Struct], tuple[str, ...]]] = {
    HostInfo: (
        "name", "live", "draining", "leases", "address", "labels", "version", "started_at",
        "end_reason",
    ),
    LeaseInfo: ("kind", "unit", "name", "state", "owner", "epoch", "handoff_to", "free_since"),
    ContainerView: (
        "name", "partition_key", "ttl_seconds", "versions_seconds", "previous_images", "created_at",
    ),
    ItemView: ("id", "partition_key", "body", "etag", "ts"),
    ItemOutcome: ("id", "created", "etag", "error"),
    ChangeView: ("id", "partition_key", "operation", "item", "previous", "ts"),
    FeedView: ("container", "name", "mode", "leases", "estimated_lag", "exact", "lag_seconds"),
    LeaseView: (
        "lease_token", "owner", "state", "estimated_lag", "exact", "lag_seconds", "attempts",
    ),
    LetterInfo: (
        "id", "item_id", "partition_key", "reason", "error_type", "attempts", "last_failed_at",
    ),
    RouterQueueView: ("id", "name", "distributionPolicyId", "exceptionPolicyId", "labels"),
    DistributionPolicyView: ("id", "name", "offerExpiresAfterSeconds", "mode"),
    ClassificationPolicyView: ("id", "name", "fallbackQueueId", "prioritizationRule"),
    ExceptionPolicyView: ("id", "name", "exceptionRules"),
    RouterJob: ("id", "status", "queueId", "channelId", "priority", "labels", "enqueuedAt"),
    RouterWorker: ("id", "state", "loadRatio", "capacity", "queues", "labels"),
    OpenOffer: (
        "offer_id", "job_id", "queue_id", "channel_id", "job_priority", "job_labels", "expires_at",
    ),
    JobView: (
        "id", "name", "lane", "status", "token", "attempt", "progress", "created_at",
        "postpone_until", "host", "error_code",
    ),
    BulkDeleteView: (
        "id", "name", "sources", "status", "success", "failure", "progress", "created_at",
        "postpone_until", "pattern",
    ),
    JobCount: ("state", "status", "operation_type", "type_label", "jobs"),
    SuspendedCount: (
        "type_label", "handler", "jobs", "for_event", "for_time", "for_somebody", "since",
        "next_at",
    ),
    KeyInfo: ("id", "name", "kind", "roles", "scopes", "state", "expires_at", "last_used_at"),
}  # fmt: skip
"""The columns of a table, for types with more than fit on a screen; `json` has them all."""

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
_UNITS: Final = ((86_400.0, "d"), (3_600.0, "h"), (60.0, "min"), (1.0, "s"))


class Renderer:
    """Writes results to standard output."""

    def __init__(self, output: Output = "table", console: Console | None = None) -> None:
        self.output = output
        self.console = console or new_console()

    def show(self, body: bytes, response: Any) -> None:
        """Show an answer that is JSON, whose type is `response`."""
        if self.output == "json":
            self.console.out(msgspec.json.format(body, indent=2).decode(), highlight=False)
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
        return self._ruled(*self._cells(rows, kind))

    def _cells(
        self, rows: Sequence[Mapping[str, Any]], kind: Any
    ) -> tuple[list[str], list[list[Text]]]:
        times = _times(kind)
        names = [*COLUMNS.get(kind, ())] or list(dict.fromkeys(k for row in rows for k in row))
        names = [name for name in names if any(not _is_empty(row.get(name)) for row in rows)]
        return names, [
            [self._cell(_shown(name, row.get(name)), is_time=name in times) for name in names]
            for row in rows
        ]

    def record(self, value: Any, kind: Any = None) -> None:
        """Show one thing, a field on each line; lines are never broken, so they can be copied."""
        fields = dict(_flat("", value)) if isinstance(value, dict) else {"value": value}
        times = _times(kind)
        width = max((len(name) for name in fields), default=0)
        for name, field in fields.items():
            cell = self._cell(field, is_time=name.rpartition(".")[2] in times)
            line = Text.assemble((f"{printable(name):<{width}}  ", "bold"), cell)
            self.console.print(line, soft_wrap=True)

    def _ruled(self, names: Sequence[str], cells: Sequence[Sequence[Text]]) -> Table:
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
        for name in names:
            table.add_column(name.replace("_", " "), overflow="fold")
        for row in cells:
            table.add_row(*row)
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

    def _cell(self, value: Any, *, is_time: bool) -> Text:
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
            text = _time(text, relative=self.console.is_terminal)
        text = printable(text)
        return Text(text, style=STYLES.get(text, "") if self.console.is_terminal else "")


def new_console(*, stderr: bool = False) -> Console:
    """Return a console that shows text as it is: names in brackets are not markup."""
    return Console(
        file=sys.stderr if stderr else sys.stdout, markup=False, highlight=False, emoji=False
    )


def note(text: str) -> None:
    """Say something beside the result, on standard error."""
    click.echo(text, err=True)


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


def _shown(name: str, value: Any) -> Any:
    """Return what users put into their work as the JSON that it is."""
    if name in JSON and value is not None:
        return msgspec.json.encode(value).decode()
    if name == "progress" and value is not None:
        return f"{value:.0%}"
    return f"{value:.1f}" if isinstance(value, float) else value


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


def _time(text: str, *, relative: bool) -> str:
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
    return f"{instant.astimezone():%Y-%m-%d %H:%M:%S} ({shown})"
