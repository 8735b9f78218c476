"""The picture of feeds: processors and how far they are behind."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.text import Text

from relevo.cli.output.printing import printable
from relevo.jobs.cli.board import table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.table import Table


def feeds_table(feeds: Sequence[Mapping[str, Any]]) -> Table:
    """Return processors as a table, from the answer of `feeds.list`."""
    shown = table("feed", "processor", "leases", "waiting changes", "oldest")
    for feed in feeds:
        behind = f"{feed['estimated_lag']:,}" + ("" if feed["exact"] else " or more")
        waits = feed["estimated_lag"] > 0
        shown.add_row(
            Text(printable(feed["container"])), Text(printable(feed["name"])),
            str(feed["leases"]), behind, f"{feed['lag_seconds']:,.1f} s" if waits else "-",
        )  # fmt: skip
    return shown
