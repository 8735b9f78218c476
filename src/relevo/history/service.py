"""Samples the figures of all parts, and reads them again.

The leading host takes a sample every 10 s, in one statement. The first sample of each minute and of
each hour is kept longer, so the table has at most 2,550 rows, however long an installation runs.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final, Literal

import msgspec
from msgspec import Struct

from relevo.kernel.leases.loops import Duty
from relevo.kernel.part import Part, Service
from relevo.kernel.postgres import catalog

SQL = catalog.load("relevo.history")
SAMPLE_SECONDS: Final = 10.0
Span = Literal["hour", "day", "month"]
STEPS: Final[dict[Span, int]] = {"hour": 10, "day": 60, "month": 3_600}
"""The seconds between two samples of a span."""


class Sample(Struct, frozen=True, kw_only=True):
    """The figures of all parts at one time."""

    at: datetime
    figures: dict[str, float | None]
    """By name, such as `jobs.ready`; null where there was nothing to measure."""


class FigureHistory(Struct, frozen=True, kw_only=True):
    """Samples of a span, the oldest first."""

    now: datetime
    step_seconds: int
    samples: list[Sample]


class History(Service):
    """The figures of the last hour, day and 30 days."""

    async def read(self, span: Span) -> FigureHistory:
        """Return the samples of a span and the present time."""
        step = STEPS[span]
        rows = await self.database.fetch(SQL.read_samples, step)
        samples = [
            Sample(
                at=row["at"],
                figures=msgspec.json.decode(row["figures"], type=dict[str, float | None]),
            )
            for row in rows
            if row["at"] is not None
        ]
        return FigureHistory(now=rows[0]["now"], step_seconds=step, samples=samples)

    async def take_sample(self) -> None:
        """Measure all parts and store the figures."""
        await self.database.write(SQL.take_sample, idempotent=True)


class HistoryPart(Part[History]):
    """Takes samples on the leading host."""

    def duties(self) -> list[Duty]:
        """Return the duty of sampling."""
        return [Duty("sample figures", SAMPLE_SECONDS, self.service.take_sample)]
