"""Draws the plots of `explanation/ordering.md` from simulated queues.

    python docs/ordering_plots.py      writes the pictures beside the page

Every run gives the same pictures. `tests/docs` fails if the stored ones differ from what the
decisions of `relevo.messaging.core` give.
"""

from __future__ import annotations

import sys
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct
from msgspec.structs import replace

FOLDER: Final = Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER.parent))

from docs.simulation import Served, Traffic, simulate  # noqa: E402 - beside this file

from relevo.messaging.core.classes import CLASSES  # noqa: E402
from relevo.messaging.model import Aging, Strict, Weighted  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Sequence

    from relevo.messaging.model import Ordering

SLOTS: Final = 8
HOLD: Final = 2.0
CAPACITY: Final = SLOTS / HOLD
STEPS: Final = 30
"""Points of a line."""
WITHOUT_EXPRESS: Final = tuple(replace(one, express=False) for one in CLASSES)
COLORS: Final = ("#1f6fb2", "#c2491d", "#3f8f4f")
WIDTH, HEIGHT = 640, 300
LEFT, RIGHT, TOP, BOTTOM = 60, 20, 40, 50


class Line(Struct, frozen=True):
    """A named line of a plot: a value for each step of time."""

    name: str
    values: tuple[float, ...]


def served(
    ordering: Ordering, seconds: float, high: float, low: float, **options: Any
) -> list[Served]:
    """Return what is served while two classes arrive at these shares of the capacity."""
    traffic = [Traffic("high", high * CAPACITY), Traffic("low", low * CAPACITY)]
    return simulate(
        traffic, policy=ordering, slots=SLOTS, hold=HOLD, seconds=seconds, random=Random(1),  # noqa: S311 - arrivals, no secret
        **options,
    )  # fmt: skip


def longest_waits(messages: Sequence[Served], of: str, seconds: float) -> tuple[float, ...]:
    """Return the longest wait, in seconds, of the messages that began in each step."""
    waits = [0.0] * STEPS
    for one in messages:
        if one.of == of:
            step = int(one.began / seconds * STEPS)
            waits[step] = max(waits[step], one.began - one.arrived)
    return tuple(waits)


def totals(messages: Sequence[Served], of: str, seconds: float) -> tuple[float, ...]:
    """Return how many messages had been served at the end of each step."""
    counts = [0] * STEPS
    for one in messages:
        if one.of == of:
            counts[int(one.began / seconds * STEPS)] += 1
    return tuple(float(sum(counts[: n + 1])) for n in range(len(counts)))


def waits_of_high() -> str:
    """One message in a hundred is high, at 130 % load: with and without the express tier."""
    hour = 3_600.0
    with_tier = served(Aging(), hour, 0.013, 1.287)
    without = served(Aging(), hour, 0.013, 1.287, classes=WITHOUT_EXPRESS)
    lines = (
        Line("ageing alone", longest_waits(without, "high", hour)),
        Line("ageing and the express tier (the default)", longest_waits(with_tier, "high", hour)),
    )
    return drawn("Longest wait of high messages, every two minutes", "seconds", lines, hour)


def low_work_done() -> str:
    """High work alone is 120 % of the capacity: what becomes of low work."""
    seconds = 1_200.0
    lines = tuple(
        Line(name, totals(served(ordering, seconds, 1.2, 0.2), "low", seconds))
        for name, ordering in (
            ("Weighted (8 to 1)", Weighted()),
            ("Aging, floor share 5 % (the default)", Aging()),
            ("Strict", Strict()),
        )
    )
    return drawn("Low messages served, in all", "messages", lines, seconds)


PLOTS: Final = {
    "explanation/ordering-waits-of-high.svg": waits_of_high,
    "explanation/ordering-low-work-done.svg": low_work_done,
}


def drawn(title: str, unit: str, lines: Sequence[Line], seconds: float) -> str:
    """Return lines over time as an SVG picture."""
    top = _round_up(max(max(line.values) for line in lines))
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}"'
        f' height="{HEIGHT}" font-family="sans-serif" font-size="12">',
        f"<title>{title}</title>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        f'<text x="{LEFT}" y="20" font-size="14">{title}</text>',
    ]
    for n in range(5):
        value = top * n / 4
        y = _y(value, top)
        parts += [
            f'<line x1="{LEFT}" y1="{y}" x2="{WIDTH - RIGHT}" y2="{y}" stroke="#ddd"/>',
            f'<text x="{LEFT - 6}" y="{y + 4}" text-anchor="end">{value:g}</text>',
        ]
    minutes = int(seconds / 60)
    for minute in range(0, minutes + 1, minutes // 4):
        x = _x(minute / minutes)
        parts.append(f'<text x="{x}" y="{HEIGHT - 32}" text-anchor="middle">{minute}</text>')
    parts += [
        f'<text x="{WIDTH - RIGHT}" y="{HEIGHT - 12}" text-anchor="end">minutes</text>',
        f'<text x="{LEFT}" y="{TOP - 6}" text-anchor="end">{unit}</text>',
    ]
    for n, (line, color) in enumerate(zip(lines, COLORS, strict=False)):
        points = " ".join(
            f"{_x((step + 1) / STEPS)},{_y(value, top)}" for step, value in enumerate(line.values)
        )
        y = TOP + 14 + 16 * n
        parts += [
            f'<polyline points="{points}" fill="none" stroke="{color}" stroke-width="2"/>',
            f'<line x1="{LEFT + 10}" y1="{y - 4}" x2="{LEFT + 30}" y2="{y - 4}" stroke="{color}"'
            ' stroke-width="2"/>',
            f'<text x="{LEFT + 36}" y="{y}">{line.name}</text>',
        ]
    return "\n".join([*parts, "</svg>", ""])


def _x(share: float) -> float:
    return round(LEFT + (WIDTH - LEFT - RIGHT) * share, 1)


def _y(value: float, top: float) -> float:
    return round(HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * value / top, 1)


def _round_up(value: float) -> float:
    sizes = (factor * 10.0**n for n in range(1, 9) for factor in (1, 2, 4, 6))
    return next(size for size in sizes if size > value)


if __name__ == "__main__":
    for place, draw in PLOTS.items():
        (FOLDER / place).write_text(draw(), "utf-8")
