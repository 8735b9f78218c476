"""The picture of the router: its queues, their waiting jobs and workers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.text import Text

from relevo.cli.output.printing import printable
from relevo.jobs.cli.board import table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.table import Table


def standings_table(queues: Sequence[Mapping[str, Any]]) -> Table:
    """Return queues of the router as a table, from the answer of `router.queues.overview`."""
    shown = table("router queue", "waiting", "longest wait", "offers", "at work", "workers")
    for queue in queues:
        shown.add_row(
            Text(printable(queue["queue_id"])), f"{queue['waiting']:,}",
            waited(queue["longest_wait_seconds"]) or "-", f"{queue['offers']:,}",
            f"{queue['assigned']:,}", f"{queue['workers_active']:,}",
        )  # fmt: skip
    return shown


def waited(seconds: float | None) -> str | None:
    """Return a time as people say it.

    >>> waited(75.0)
    '1:15'
    """
    if seconds is None:
        return None
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
