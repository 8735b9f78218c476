"""Line charts as SVG, drawn on the server from the history of figures. Pure."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Final

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Sequence

    from relevo.history.service import FigureHistory

WIDTH: Final = 640
HEIGHT: Final = 120


class FigureLines(Struct, frozen=True):
    """Figures over time."""

    begin: float
    """Seconds since 1970."""
    end: float
    step: float
    times: list[float]
    values: list[dict[str, float | None]]

    def of(self, name: str) -> list[float | None]:
        """Return a figure at every time."""
        return [each.get(name) for each in self.values]

    def rates(self, name: str) -> list[float | None]:
        """Return how fast a counter grows, per second; None where it went back."""
        values = self.of(name)
        found: list[float | None] = []
        if values:
            found.append(None)
        for i in range(1, len(values)):
            now, before, seconds = values[i], values[i - 1], self.times[i] - self.times[i - 1]
            grown = None if now is None or before is None else now - before
            found.append(None if grown is None or grown < 0 else grown / seconds)
        return found

    def means(self, name: str, per: str) -> list[float | None]:
        """Return how much a counter grew for each step of another one; None where that stood."""
        pairs = zip(self.rates(name), self.rates(per), strict=True)
        return [grown / steps if steps and grown is not None else None for grown, steps in pairs]

    def rate(self, name: str) -> float | None:
        """Return how fast a counter grew lately, per second."""
        return self.rates(name)[-1] if self.times else None


class ChartLine(Struct, frozen=True):
    """One line of a chart."""

    name: str
    points: tuple[str, ...]
    """Unbroken stretches, as SVG writes them: `x,y x,y …`."""
    last: float | None


class ChartOf(Struct, frozen=True):
    """A chart that a page wants: figures, the growth of counters, or their mean per counter."""

    name: str
    figures: tuple[str, ...]
    rates: bool = False
    unit: str = ""
    per: str = ""


class Chart(Struct, frozen=True):
    """A chart to be drawn: everything is in place, colours are the style sheet's."""

    name: str
    unit: str
    top: float
    lines: tuple[ChartLine, ...]
    begin: datetime | None
    end: datetime | None


def series(history: FigureHistory) -> FigureLines:
    """Return the figures of a history, ready to be drawn."""
    times = [sample.at.timestamp() for sample in history.samples]
    end = history.now.timestamp()
    return FigureLines(
        begin=min([end - 30 * history.step_seconds, *times[:1]]),
        end=end,
        step=history.step_seconds,
        times=times,
        values=[sample.figures for sample in history.samples],
    )


def chart(lines: FigureLines, wanted: ChartOf) -> Chart:
    """Return a chart of figures over time."""
    columns = {each: _column(lines, wanted, each) for each in wanted.figures}
    seen = [value for column in columns.values() for value in column if value is not None]
    top = nice_top(max(seen, default=0.0))
    return Chart(
        name=wanted.name,
        unit="/s" if wanted.rates else wanted.unit,
        top=top,
        lines=tuple(
            ChartLine(each, _stretches(lines, column, top), column[-1] if column else None)
            for each, column in columns.items()
        ),
        begin=datetime.fromtimestamp(lines.begin).astimezone(),
        end=datetime.fromtimestamp(lines.end).astimezone(),
    )


def _column(lines: FigureLines, wanted: ChartOf, name: str) -> list[float | None]:
    if wanted.per:
        return lines.means(name, wanted.per)
    return lines.rates(name) if wanted.rates else lines.of(name)


def nice_top(value: float) -> float:
    """Return the upper end of a scale that holds a value.

    >>> nice_top(0), nice_top(7), nice_top(23), nice_top(0.3)
    (1.0, 10.0, 25.0, 0.5)
    """
    if value <= 0:
        return 1.0
    size = 1.0
    while size < value:
        size *= 10
    while size / 10 >= value:
        size /= 10
    return next(size * share for share in (0.2, 0.25, 0.5, 1.0) if size * share >= value)


def _stretches(lines: FigureLines, column: Sequence[float | None], top: float) -> tuple[str, ...]:
    """Return the parts of a line between gaps: missing values, and times without a sample."""
    found: list[list[str]] = [[]]
    before: float | None = None
    span = max(1.0, lines.end - lines.begin)
    for at, value in zip(lines.times, column, strict=True):
        if value is None or (before is not None and at - before > 3.5 * lines.step):
            found.append([])
        before = at
        if value is not None:
            x = (at - lines.begin) / span * WIDTH
            y = HEIGHT - value / top * (HEIGHT - 2) - 1
            found[-1].append(f"{x:.1f},{y:.1f}")
    return tuple(" ".join(each) for each in found if each)
