"""When a host runs a job with nothing beside it: hosts were lost with the job, and it may be why.

Any of the jobs that a lost host held may have crashed it. A job that was lost twice must run
alone: if its host ends then, it was this job and no other. A host that hears of such a job claims
nothing more and gives back claims that have not begun. When all runs have ended, it claims the job
and keeps everything else away until the job is over.

Both waits have a bound. A run longer than the first goes on beside the job, whose crash then
proves nothing; a job that takes longer than the second has company again.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from relevo import limits
from relevo.jobs.running.claims import JobClaim
from relevo.kernel.postgres import catalog
from relevo.kernel.telemetry.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from relevo.kernel.postgres import Database

SQL = catalog.load("relevo.jobs")
log = get_logger(__name__)
RETRY_SECONDS: Final = 1.0
"""When to look again for a job that another host seems to have taken."""


class LoneJobs:
    """Jobs that must run alone, as one host sees them; times are of its monotonic clock."""

    def __init__(self, database: Database, host: UUID, name: str) -> None:
        self._database = database
        self._host = host
        self._name = name
        self.claim: JobClaim | None = None
        """The one that the host has in hand."""
        self._began = 0.0
        self._since: float | None = None
        """Since when the host makes room."""
        self._deaf_until = 0.0

    @property
    def wanted(self) -> bool:
        """Whether the host makes room for one."""
        return self._since is not None

    @property
    def busy(self) -> bool:
        """Whether nothing else may be claimed."""
        return self.claim is not None or self._since is not None

    def hears(self, now: float) -> bool:
        """Whether the host would run one now."""
        return now >= self._deaf_until

    def hear(self, now: float, *, waits: bool) -> None:
        """Take in whether one waits."""
        if not waits or not self.hears(now):
            self._since = None
        elif self._since is None:
            self._since = now

    def is_late(self, now: float) -> bool:
        """Whether the host has waited long enough for other runs to end."""
        return self._since is not None and now - self._since >= limits.JOB_ALONE_WAIT_SECONDS_MAX

    async def take(
        self, number: int, handlers: Sequence[tuple[str, str]], *, vacant: bool
    ) -> list[JobClaim]:
        """Claim one of handlers (lane, name), under a number; nothing if there is none.

        Then another host has it, or its slots are taken for long. Only a `vacant` host, which holds
        nothing else, knows the reason if it ends.
        """
        rows = await self._database.write(
            SQL.claim_lone, self._host, self._name, number, [lane for lane, _ in handlers],
            [name for _, name in handlers], vacant,
        )  # fmt: skip
        now, self._since = time.monotonic(), None
        if not rows:
            pause = RETRY_SECONDS if vacant else limits.JOB_ALONE_RETRY_SECONDS
            self._deaf_until = now + pause
            return []
        claim = JobClaim.of(rows[0], now)
        log.warning("jobs.runs_alone", job=str(claim.id), handler=claim.handler)
        self.begin(claim, now)
        return [claim]

    def begin(self, claim: JobClaim, now: float) -> None:
        """The host has one in hand."""
        self.claim, self._began = claim, now

    async def watch(self, now: float, *, over: bool) -> None:
        """Let others in again when the job is over, or has kept them away for long enough."""
        if self.claim is None:
            return
        if not over:
            if now - self._began < limits.JOB_ALONE_SECONDS_MAX:
                return
            fence = (self.claim.id, self._host, self.claim.number)
            await self._database.write(SQL.end_alone, *fence, idempotent=True)
        self.claim = None
