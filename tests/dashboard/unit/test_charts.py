"""Charts: figures over time, the growth of counters, and their means."""

from __future__ import annotations

from relevo.dashboard.charts import ChartOf, FigureLines, chart

LINES = FigureLines(
    begin=0.0,
    end=40.0,
    step=10.0,
    times=[10.0, 20.0, 30.0, 40.0],
    values=[
        {"waited": 0.0, "delivered": 0.0}, {"waited": 8.0, "delivered": 4.0},
        {"waited": 8.0, "delivered": 4.0}, {"waited": 1.0, "delivered": 1.0},
    ],
)  # fmt: skip


def test_a_mean_is_the_growth_of_one_counter_by_that_of_another() -> None:
    # Nothing was delivered in the third step, and before the fourth a queue was dropped.
    assert LINES.means("waited", "delivered") == [None, 2.0, None, None]
    (line,) = chart(LINES, ChartOf("wait", ("waited",), unit="s", per="delivered")).lines
    assert len(line.points) == 1


def test_a_rate_has_a_gap_where_its_counter_went_back() -> None:
    assert LINES.rates("delivered") == [None, 0.4, 0.0, None]
    drawn = chart(LINES, ChartOf("rate", ("delivered",), rates=True))
    assert (drawn.unit, drawn.top) == ("/s", 0.5)
