"""The picture of system jobs at work: lanes above, running jobs with their progress below."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from rich import box
from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from relevo.cli.output.printing import printable
from relevo.cli.output.render import STYLES, Renderer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

ROWS_MAX: Final = 20
BAR_WIDTH: Final = 24


def board(
    renderer: Renderer,
    lanes: Sequence[Mapping[str, Any]],
    running: Sequence[Mapping[str, Any]],
    *more_tables: RenderableType,
) -> RenderableType:
    """Return the view of lanes and running jobs, from the answers of the API; others follow."""
    parts: list[RenderableType] = [lanes_table(lanes)]
    if running:
        parts.append(_running(running[:ROWS_MAX]))
        if len(running) > ROWS_MAX:
            parts.append(Text(f"and {len(running) - ROWS_MAX} more", style="dim"))
    else:
        parts.append(Text("nothing runs at this moment", style="dim"))
    return Group(*parts, *more_tables, *as_of(renderer))


def as_of(renderer: Renderer) -> list[RenderableType]:
    """Return the line that says when a picture was drawn, on a terminal."""
    if not renderer.console.is_terminal:
        return []
    return [Text(f"as of {datetime.now().astimezone():%H:%M:%S}", style="dim")]


def table(*names: str) -> Table:
    """Return an empty table with these columns."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    for name in names:
        table.add_column(name, overflow="fold")
    return table


def lanes_table(lanes: Sequence[Mapping[str, Any]]) -> Table:
    """Return lanes of system jobs as a table."""
    shown = table("lane", "running", "ready", "suspended", "oldest ready")
    for lane in lanes:
        shown.add_row(
            Text(printable(lane["name"])),
            *(str(lane[n]) for n in ("running", "ready", "suspended")), _ago(lane["oldest"]),
        )  # fmt: skip
    return shown


def _running(jobs: Sequence[Mapping[str, Any]]) -> Table:
    shown = table("job", "lane", "status", "host", "attempt", "runs for", "progress")
    for job in jobs:
        shown.add_row(
            Text(printable(job["name"])), Text(printable(job["lane"])),
            Text(job["status"].replace("_", " "), style=STYLES.get(job["status"], "")),
            Text(printable(job["host_name"] or "-")), str(job["attempt"]), _ago(job["started_at"]),
            _bar(job["progress"]),
        )  # fmt: skip
    return shown


def _bar(progress: float | None) -> RenderableType:
    if progress is None:
        return Text("-", style="dim")
    bar = ProgressBar(total=1.0, completed=progress, width=BAR_WIDTH)
    grid = Table.grid(padding=(0, 1))
    grid.add_row(bar, f"{progress:.0%}")
    return grid


def _ago(given: str | datetime | None) -> str:
    """How long ago something was.

    >>> _ago(None)
    '-'
    """
    if given is None:
        return "-"
    instant = given if isinstance(given, datetime) else datetime.fromisoformat(given)
    seconds = max(0, int((datetime.now(UTC) - instant).total_seconds()))
    minutes, rest = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
