"""Room for urgent jobs: in lanes with `preempt` a running job yields at its next checkpoint.

A host looks when all slots of a lane are taken. An urgent job that still waits at the second look
has found no slot on any host, and asks for one here. The handler is told by its context; one that
ends in another way instead, or never reaches a checkpoint, loses nothing.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final, cast

from msgspec import Struct

from relevo.kernel.postgres import catalog
from relevo.kernel.running.preempting import RunningWork, choose_victims
from relevo.kernel.telemetry.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence, Set
    from uuid import UUID

    from relevo.jobs.running.claims import JobClaim, JobSettlement
    from relevo.jobs.running.execution import JobRun
    from relevo.kernel.postgres import Database
    from relevo.kernel.running.lanes import HostLane
    from relevo.kernel.running.rounds import Rounds

SQL = catalog.load("relevo.jobs")
log = get_logger(__name__)
LOOK_SECONDS: Final = 0.5
"""Longer than an idle host takes to find a ready job."""
ASK_AGAIN_SECONDS: Final = 10.0
"""A job asks for another slot then, if the handler that was asked goes on."""
WAITING_MAX: Final = 16
"""How many jobs ask at once."""


class JobPreemption(Struct, frozen=True):
    """When a running job makes room for a waiting one."""

    gap: int = 3
    min_run: float = 1.0
    max_preemptions: int = 3


RULES: Final = JobPreemption()


class RoomForJobs:
    """Asks running jobs of one host to make room."""

    def __init__(
        self, database: Database, host: UUID, lanes: Mapping[str, HostLane[JobClaim]]
    ) -> None:
        self._database = database
        self._host = host
        self._lanes = lanes
        self._looked_at = 0.0
        self._seen: dict[str, Set[UUID]] = {}
        """Urgent jobs of the last look, by lane."""

    @property
    def is_needed(self) -> bool:
        """Whether an urgent job would find no slot here."""
        return any(not lane.free for lane in self._lanes.values())

    def is_due(self, now: float) -> bool:
        """Whether to look now; never in a host without such lanes."""
        return bool(self._lanes) and now - self._looked_at >= LOOK_SECONDS

    async def make(
        self, hands: Rounds[JobClaim, JobSettlement], now: float, stopped: Set[str]
    ) -> None:
        """Ask handlers of full lanes to yield to urgent jobs; `stopped` ones begin none."""
        self._looked_at = now
        for name, lane in self._lanes.items():
            seen = self._seen.pop(name, frozenset())
            if lane.free:
                continue
            handlers = [one for one in lane.handlers if one not in stopped]
            rows = await self._database.write(SQL.urgent_jobs, handlers, WAITING_MAX)
            if rows:
                self._seen[name] = {row["id"] for row in rows}
                runs = [cast("JobRun", run) for run in hands.runs_of(name)]
                await self._ask([row for row in rows if row["id"] in seen], runs, handlers)

    async def _ask(
        self, rows: Sequence[Any], runs: Sequence[JobRun], handlers: Sequence[str]
    ) -> None:
        """Ask a run for each waiting job, where the rules allow it."""
        by_id = {run.claim.id: run for run in runs if not run.ctx.makes_room}
        if not rows or not by_id:
            return
        now = time.monotonic()
        found = await self._database.write(SQL.jobs_to_stop, self._host, list(by_id))
        running = [
            RunningWork(row["id"], row["priority"], now - by_id[row["id"]].began, row["preempted"])
            for row in found
        ]
        victims = choose_victims([row["priority"] for row in rows], running, RULES)
        pairs = [
            (row["id"], victim.key, by_id[victim.key].claim.number)
            for row, victim in zip(rows, victims, strict=True) if victim is not None
        ]  # fmt: skip
        if not pairs:
            return
        asked = await self._database.write(
            SQL.ask_for_room, self._host, handlers, *map(list, zip(*pairs, strict=True)),
            ASK_AGAIN_SECONDS,
        )  # fmt: skip
        for row in asked:
            by_id[row["id"]].ctx.makes_room = True
            log.info("jobs.asked_for_room", job=str(row["id"]))
