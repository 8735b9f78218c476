"""The overview: how much waits, for how long, what is done and what fails."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from relevo.dashboard import charts
from relevo.dashboard.charts import ChartOf
from relevo.dashboard.page import Action, Page

if TYPE_CHECKING:
    from relevo.dashboard.page import Visit
    from relevo.history.service import FigureHistory

SPANS: Final = ("hour", "day", "month")
DEPTHS: Final = ("jobs.ready", "jobs.running", "router.waiting", "messages.active")
COUNTERS: Final = ("jobs.submitted", "messages.sent", "messages.completed")
WAITS: Final = ("jobs.oldest_seconds", "router.oldest_seconds")
FAILURES: Final = ("jobs.failed_per_minute", "messages.dead")
CHARTS: Final = (
    ChartOf("depth", DEPTHS),
    ChartOf("throughput", COUNTERS, rates=True),
    ChartOf("wait", WAITS, unit="s"),
    ChartOf("failures", FAILURES),
)


async def overview(visit: Visit) -> dict[str, Any]:
    """Return the newest figures, and charts of a span."""
    span = visit.one("span", "hour")
    history: FigureHistory = await visit.run("history.read", span=span)
    newest = history.samples[-1] if history.samples else None
    lines = charts.series(history)
    return {
        "span": span,
        "spans": SPANS,
        "figures": {} if newest is None else newest.figures,
        "sampled_at": None if newest is None else newest.at,
        "rates": {name: lines.rate(name) for name in COUNTERS},
        "charts": [charts.chart(lines, each) for each in CHARTS],
    }


PAGES: Final = (
    Page(
        name="overview", path="/", load=overview, area="overview", operation="history.read",
        group="see",
    ),
)  # fmt: skip
ACTIONS: Final[tuple[Action, ...]] = ()
