"""How far running jobs are: checkpoints of many handlers are stored with one statement."""

from __future__ import annotations

from typing import TYPE_CHECKING

from relevo.kernel.postgres import catalog
from relevo.kernel.postgres.grouping import Group

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from relevo.jobs.running.claims import Claim
    from relevo.kernel.postgres import Database

SQL = catalog.load("relevo.jobs")


class Checkpoints:
    """Stores checkpoints of the jobs that a host runs; each answers what is asked of its job."""

    def __init__(self, database: Database, host: UUID) -> None:
        self._database = database
        self._host = host
        self._group: Group[tuple[Claim, float | None, str | None], int] = Group(
            "job checkpoint", self._together, key=lambda one: one[0].id, metrics=database.metrics
        )

    async def store(self, claim: Claim, progress: float | None, saved: str | None) -> int:
        """Store how far a job is; returns its status, -1 if it is deleted or not ours any more."""
        return await self._group.call((claim, progress, saved))

    async def close(self) -> None:
        """Wait for what is under way."""
        await self._group.close()

    async def _together(
        self, calls: Sequence[tuple[Claim, float | None, str | None]]
    ) -> list[int | Exception]:
        rows = await self._database.write(
            SQL.checkpoints, self._host, [one.id for one, _, _ in calls],
            [one.number for one, _, _ in calls], [progress for _, progress, _ in calls],
            [saved for _, _, saved in calls], idempotent=True,
        )  # fmt: skip
        found = {row["id"]: -1 if row["deleted"] else row["status"] for row in rows}
        return [found.get(one.id, -1) for one, _, _ in calls]
