"""Benches, each side by side with the bare limit of what it is built on.

    python -m bench              all of them
    python -m bench grouping     one

A bench is a module of this package with a function `run` that returns `Figure`s. It lets both sides
take turns in one process on one server and compares medians, so that what else the machine does
weighs on both; ratios are to be trusted, absolute rates are those of the machine.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct


class Figure(Struct, frozen=True, kw_only=True):
    """One measured figure, and what it is held against."""

    name: str
    measured: float
    unit: str
    beside: float | None = None
    """The bare limit, in the same unit."""
    bound: float | None = None
    """What the ratio measured / beside must reach (`at_least`) or stay under (`at_most`)."""
    sense: Literal["at_least", "at_most"] = "at_least"

    @property
    def ratio(self) -> float | None:
        """How the figure stands to the bare limit; None if there is none, or it is 0."""
        return self.measured / self.beside if self.beside else None

    @property
    def holds(self) -> bool | None:
        """Whether the figure is as promised; None where nothing is."""
        if self.bound is None or self.ratio is None:
            return None
        return self.ratio >= self.bound if self.sense == "at_least" else self.ratio <= self.bound
