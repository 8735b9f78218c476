"""The states of a system job as a drawing, with the path that a job has taken. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct

if TYPE_CHECKING:
    from relevo.jobs.http.models import JobView

NODES: Final = {
    "waiting_for_resources": (70, 40), "in_progress": (280, 40), "waiting": (175, 125),
    "succeeded": (520, 20), "failed": (520, 75), "canceled": (520, 130),
}  # fmt: skip
"""Statuses with the middle of their boxes; pausing and canceling are kinds of in progress."""
_EDGES: Final = (
    ("waiting_for_resources", "in_progress"), ("in_progress", "waiting"),
    ("waiting", "waiting_for_resources"), ("in_progress", "succeeded"), ("in_progress", "failed"),
    ("in_progress", "canceled"), ("waiting", "canceled"),
)  # fmt: skip
_WITHIN: Final = {"pausing": "in_progress", "canceling": "in_progress"}
HALF_WIDTH: Final = 62
HALF_HEIGHT: Final = 14


class StateNode(Struct, frozen=True):
    """A status in the drawing."""

    status: str
    x: int
    y: int
    visited: bool
    now: bool


class StateEdge(Struct, frozen=True):
    """A line between two statuses, as an SVG path."""

    path: str
    taken: bool


class StateDiagram(Struct, frozen=True):
    """A drawing of the path of a job."""

    nodes: tuple[StateNode, ...]
    edges: tuple[StateEdge, ...]


def state_diagram(job: JobView) -> StateDiagram:
    """Return the states of a job, and which it has been in as far as its record says."""
    now = _WITHIN.get(job.status, job.status)
    started = job.started_at is not None or job.attempt > 0
    waited = now == "waiting" or job.retries > 0 or job.postpone_until is not None
    visited = {"waiting_for_resources", now}
    visited |= {"in_progress"} if started else set()
    visited |= {"waiting"} if waited else set()
    nodes = tuple(
        StateNode(name, x, y, name in visited, name == now) for name, (x, y) in NODES.items()
    )
    taken = {
        ("waiting_for_resources", "in_progress"): started,
        ("in_progress", "waiting"): waited and started and (job.retries > 0 or now == "waiting"),
        ("waiting", "waiting_for_resources"): waited and now != "waiting",
        ("waiting", "canceled"): now == "canceled" and not started,
        ("in_progress", now): started and now in ("succeeded", "failed", "canceled"),
    }
    return StateDiagram(
        nodes, tuple(StateEdge(_path(*edge), taken.get(edge, False)) for edge in _EDGES)
    )


def _path(begin: str, end: str) -> str:
    (x1, y1), (x2, y2) = NODES[begin], NODES[end]
    if abs(x2 - x1) > 2 * HALF_WIDTH + 10:  # side by side: from edge to edge
        x1, x2 = x1 + HALF_WIDTH, x2 - HALF_WIDTH
        return f"M{x1},{y1} C{(x1 + x2) // 2},{y1} {(x1 + x2) // 2},{y2} {x2},{y2}"
    up = y2 < y1
    y1, y2 = y1 + (-HALF_HEIGHT if up else HALF_HEIGHT), y2 + (HALF_HEIGHT if up else -HALF_HEIGHT)
    return f"M{x1},{y1} C{x1},{(y1 + y2) // 2} {x2},{(y1 + y2) // 2} {x2},{y2}"
