"""The plots of the documentation are those that the simulation draws."""

from __future__ import annotations

import pytest

from docs import ordering_plots


@pytest.mark.parametrize("place", ordering_plots.PLOTS)
def test_a_plot_is_as_drawn_from_the_core(place: str) -> None:
    stored = (ordering_plots.FOLDER / place).read_text("utf-8")
    assert stored == ordering_plots.PLOTS[place](), "run: python docs/ordering_plots.py"
