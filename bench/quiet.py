"""Takes measurements in turns, and counts those during which the machine was ours.

What else runs weighs unevenly on the sides of a comparison, so each measurement is judged by what
*others* used of the machine meanwhile, never by its own result. Needs /proc; where there is none,
everything counts.
"""

from __future__ import annotations

import os
import statistics
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

QUIET_SHARE: Final = 0.1
"""Of all cores together: up to this much for others, a measurement counts."""
ROUNDS_ENOUGH: Final = 7
ROUNDS_MAX: Final = 20
COUNTED_MIN: Final = 3
"""If a side has fewer quiet measurements, all count on all sides, and the figures say so."""


class Turns(Struct, frozen=True):
    """What was measured: the median of each side, over what counts."""

    medians: dict[str, float]
    quiet: int
    """Quiet measurements of the side that has fewest."""
    rounds: int


async def take_turns(
    sides: Mapping[str, Callable[[], Awaitable[float]]], server_pid: int | None
) -> Turns:
    """Measure side after side, round after round, until each has enough quiet measurements."""
    everything: dict[str, list[float]] = {name: [] for name in sides}
    quiet: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(ROUNDS_MAX):
        for name, measure in sides.items():
            before = _ticks(server_pid)
            value = await measure()
            everything[name].append(value)
            if _others_share(before, _ticks(server_pid)) <= QUIET_SHARE:
                quiet[name].append(value)
        if _fewest(quiet) >= ROUNDS_ENOUGH:
            break
    counted = quiet if _fewest(quiet) >= COUNTED_MIN else everything
    medians = {name: statistics.median(values) for name, values in counted.items()}
    return Turns(medians, _fewest(quiet), _fewest(everything))


def _fewest(series: Mapping[str, list[float]]) -> int:
    return min(len(values) for values in series.values())


class _Ticks(Struct, frozen=True):
    total: int
    busy: int
    ours: int


def _ticks(server_pid: int | None) -> _Ticks | None:
    try:
        fields = [
            int(text) for text in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]
        ]
    except OSError:
        return None
    idle = fields[3] + fields[4]
    ours = sum(_process_ticks(path, server_pid) for path in Path("/proc").glob("[0-9]*/stat"))
    return _Ticks(sum(fields), sum(fields) - idle, ours)


def _process_ticks(path: Path, server_pid: int | None) -> int:
    """The time of a process that is this one, the server or a child of the server; else 0."""
    try:
        fields = path.read_text().rpartition(")")[2].split()
    except OSError:
        return 0  # it has ended
    is_ours = int(path.parent.name) in (os.getpid(), server_pid) or int(fields[1]) == server_pid
    return int(fields[11]) + int(fields[12]) if is_ours else 0


def _others_share(before: _Ticks | None, after: _Ticks | None) -> float:
    if before is None or after is None or after.total == before.total:
        return 0.0
    others = (after.busy - before.busy) - (after.ours - before.ours)
    return others / (after.total - before.total)
