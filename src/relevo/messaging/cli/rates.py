"""What happens to the messages of queues and subscriptions, from two readings of their figures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct
from rich.text import Text

from relevo.cli import tree
from relevo.cli.generic.commands import all_pages
from relevo.cli.output.printing import printable
from relevo.jobs.cli.board import table
from relevo.messaging.operating.describing import WAIT_BOUNDS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.console import RenderableType

    from relevo.cli.calling.calls import Calls

ROWS_MAX: Final = 40
ClassFigures = dict[tuple[str, str], dict[str, Any]]
"""Figures by path and class."""


class ClassRates(Struct, frozen=True, kw_only=True):
    """A class of a queue or subscription: what happens to its messages."""

    queue: str
    class_: str = msgspec.field(name="class")
    in_per_second: float
    """Messages a second that were sent."""
    out_per_second: float
    """Messages a second that were completed."""
    in_rates: tuple[float, float, float]
    """The same over the last 1, 5 and 15 minutes, what is longer ago weighing less."""
    out_rates: tuple[float, float, float]
    waiting: int
    locked: int
    dead_letter: int
    oldest_seconds: float | None
    wait_p50: float | None
    """Seconds that half of the messages waited for their first delivery at most, since the last
    look or, if there was none, ever; by buckets that double."""
    wait_p99: float | None
    in_target: float | None
    """The share of first deliveries within the service target, since the last look; of all if
    there was none."""

    @property
    def is_used(self) -> bool:
        """Whether there are messages, or were ever any."""
        return self.wait_p50 is not None or self.waiting + self.locked + self.dead_letter > 0


async def figures(calls: Calls) -> ClassFigures:
    """Return the figures of all classes that are received from, by path and class."""
    reply = await all_pages(calls, tree.operation("messages.figures"), {})
    return {
        (entity["path"], name): counts
        for entity in msgspec.json.decode(reply.body)["items"]
        if entity["kind"] != "topic"
        for name, counts in entity["classes"].items()
    }


def rates_of(
    before: Mapping[tuple[str, str], Mapping[str, Any]],
    after: Mapping[tuple[str, str], Mapping[str, Any]],
    seconds: float,
) -> list[ClassRates]:
    """Return what happened between two readings, the most waiting first."""
    found = []
    for (path, name), counts in after.items():
        earlier = before.get((path, name), counts)
        grown = {key: max(0, counts[key] - earlier[key]) for key in _GROWING}
        recent = grown["in_target"] + grown["out_of_target"]
        waits = [n - m for n, m in zip(counts["waits"], earlier["waits"], strict=True)]
        waits = waits if any(waits) else counts["waits"]
        share = grown if recent else counts
        total = share["in_target"] + share["out_of_target"]
        found.append(
            ClassRates(
                queue=path, class_=name, in_per_second=grown["sent"] / seconds,
                out_per_second=grown["completed"] / seconds, in_rates=counts["rates"]["sent"],
                out_rates=counts["rates"]["completed"], waiting=counts["active"],
                locked=counts["locked"], dead_letter=counts["dead_letter"],
                oldest_seconds=counts["oldest_age"], wait_p50=wait_percentile(waits, 0.5),
                wait_p99=wait_percentile(waits, 0.99),
                in_target=share["in_target"] / total if total else None,
            )
        )  # fmt: skip
    return sorted(found, key=lambda one: (-one.waiting, -one.in_per_second, one.queue))


def wait_percentile(waits: Sequence[int], share: float) -> float | None:
    """Return how many seconds this share of the messages waited at most; None if there are none.

    That is the end of a bucket; longer waits than the buckets tell apart count as twice the last.
    """
    wanted, reached = share * sum(waits), 0
    bounds: tuple[float, ...] = (*WAIT_BOUNDS, 2 * WAIT_BOUNDS[-1])
    for count, bound in zip(waits, bounds, strict=True):
        reached += count
        if count and reached >= wanted:
            return bound
    return None


_GROWING: Final = ("sent", "completed", "in_target", "out_of_target")


def _rates(rates: Sequence[float]) -> str:
    return "  ".join(f"{rate:,.1f}" for rate in rates)


def rates_table(rates: Sequence[ClassRates]) -> list[RenderableType]:
    """Return the classes that have had messages as a table, and what it leaves out."""
    used = [one for one in rates if one.is_used]
    if not used:
        none = "no queue has had messages" if rates else "there are no queues"
        return [Text(none, style="dim")]
    shown = table(
        "queue", "class", "in/s", "out/s", "in/s 1, 5, 15 min", "out/s 1, 5, 15 min", "waiting",
        "locked", "oldest", "wait p50", "wait p99", "in target", "dead",
    )  # fmt: skip
    for one in used[:ROWS_MAX]:
        shown.add_row(
            Text(printable(one.queue)), Text(printable(one.class_)), f"{one.in_per_second:,.1f}",
            f"{one.out_per_second:,.1f}", _rates(one.in_rates), _rates(one.out_rates),
            f"{one.waiting:,}", f"{one.locked:,}",
            *(
                "-" if seconds is None else f"{seconds:,.{1 if seconds >= 1 else 3}f} s"
                for seconds in (one.oldest_seconds, one.wait_p50, one.wait_p99)
            ),
            "-" if one.in_target is None else f"{one.in_target:.1%}", f"{one.dead_letter:,}",
        )  # fmt: skip
    more = len(used) - ROWS_MAX
    return [shown, *([Text(f"and {more} more", style="dim")] if more > 0 else [])]
