"""`relevo top`: queues and lanes at work, drawn again and again."""

from __future__ import annotations

import asyncio
import time
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec
from msgspec import Struct
from rich.console import Group, RenderableType
from rich.text import Text

from relevo.cli import tree
from relevo.cli.calling.calls import way_to
from relevo.cli.generic.commands import all_pages
from relevo.cli.options import EVERYWHERE, command
from relevo.cli.output.live import screen
from relevo.cli.output.printing import printable
from relevo.cli.output.render import Renderer
from relevo.jobs.cli.board import lanes_table, table
from relevo.messaging.operating.describing import WAIT_BOUNDS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from relevo.cli.calling.calls import Calls
    from relevo.cli.session import Session

ROWS_MAX: Final = 40
FIRST_SECONDS: Final = 1.0
"""Between the first two readings: a rate needs both."""


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


@command("top", shared=EVERYWHERE)
@click.option("--once", is_flag=True, help="Look for a second, and end.")
@click.option(
    "--every",
    type=click.FloatRange(0.1, 3_600.0),
    default=2.0,
    metavar="SECONDS",
    help="How often it looks. Default: 2.",
)
@click.pass_obj
def top(session: Session, once: bool, every: float) -> None:
    """Watch queues by class, busiest first: rates, messages, waits, service targets; and lanes.

    On a terminal it is drawn in place, until Ctrl-C; into a pipe one picture after the other, and
    with --output json a line each time. Without JSON, classes that never had messages are left out.
    """
    session.log_quietly()
    asyncio.run(_top(session, None if once else every))


async def _top(session: Session, every: float | None) -> None:
    renderer = Renderer(session.output)
    async with way_to(tree.operation("messages.figures"), session) as calls:
        with screen(renderer, live=every is not None) as draw:
            before, at = await _figures(calls), time.monotonic()
            await asyncio.sleep(min(FIRST_SECONDS, every or FIRST_SECONDS))
            while True:
                after, now = await _figures(calls), time.monotonic()
                rates = rates_of(before, after, now - at)
                before, at = after, now
                reply = await calls.call(tree.operation("lanes.list"), {})
                lanes = msgspec.json.decode(reply.body)["items"]
                if session.output != "table":
                    renderer.data(msgspec.to_builtins({"queues": rates, "lanes": lanes}), line=True)
                else:
                    draw(_picture(renderer, rates, lanes))
                if every is None:
                    return
                await asyncio.sleep(every)


async def _figures(calls: Calls) -> dict[tuple[str, str], dict[str, Any]]:
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


def _picture(
    renderer: Renderer, rates: Sequence[ClassRates], lanes: Sequence[Mapping[str, Any]]
) -> RenderableType:
    shown = table(
        "queue",
        "class",
        "in/s",
        "out/s",
        "in/s 1, 5, 15 min",
        "out/s 1, 5, 15 min",
        "waiting",
        "locked",
        "oldest",
        "wait p50",
        "wait p99",
        "in target",
        "dead",
    )
    used = [one for one in rates if one.is_used]
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
    none = "no queue has had messages" if rates else "there are no queues"
    parts: list[RenderableType] = [shown if used else Text(none, style="dim")]
    if len(used) > ROWS_MAX:
        parts.append(Text(f"and {len(used) - ROWS_MAX} more", style="dim"))
    if lanes:
        parts.append(lanes_table(lanes))
    if renderer.console.is_terminal:
        parts.append(Text(f"as of {datetime.now().astimezone():%H:%M:%S}", style="dim"))
    return Group(*parts)
