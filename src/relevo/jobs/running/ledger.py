"""The jobs' ledger: the statement that settles and claims jobs, and its answer."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from relevo.jobs import parcels, states
from relevo.jobs.core import codes, outcomes
from relevo.jobs.errors import JobCanceled
from relevo.jobs.running.claims import JobClaim, JobSettlement, arguments, is_plain, returned
from relevo.jobs.running.context import Checkpoint, JobContext, Workplace
from relevo.jobs.running.execution import JobRun, call
from relevo.jobs.running.lone import LoneJobs
from relevo.jobs.running.room import RoomForJobs
from relevo.kernel.postgres import catalog
from relevo.kernel.postgres.grouping import Group
from relevo.kernel.running.calls import Limits
from relevo.kernel.running.ledger import Answer
from relevo.kernel.running.threads import Threads
from relevo.kernel.telemetry.logs import get_logger

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterable, Mapping, Sequence, Set
    from uuid import UUID

    from relevo.jobs.brakes import Brakes
    from relevo.jobs.registry import HandlerRegistry
    from relevo.jobs.running.execution import Caller
    from relevo.kernel.postgres import Database, Wakeups
    from relevo.kernel.running.lanes import HostLane
    from relevo.kernel.running.rounds import Rounds

SQL = catalog.load("relevo.jobs")
log = get_logger(__name__)
CANCEL_GRACE: Final = 10.0
"""Seconds for a canceled handler to reach a checkpoint before it is canceled at an await."""
ENDED: Final = "jobs:ended"
"""Wakes callers that wait for the end of a job."""


class JobLedger:
    """The jobs of one life of a host."""

    part = JobRun.part
    canceled = JobCanceled
    due_sql = SQL.jobs_due

    def __init__(
        self, database: Database, wakeups: Wakeups, host: UUID, name: str,
        registry: HandlerRegistry, lanes: Mapping[str, HostLane[JobClaim]], in_process: Caller,
        service_for: Callable[[JobContext], Any] | None, brakes: Brakes | None,
        loop: asyncio.AbstractEventLoop,
    ) -> None:  # fmt: skip
        self._database = database
        self._wakeups = wakeups
        self._host = host
        self._name = name
        self._lanes = lanes
        self._in_process = in_process
        self._brakes = brakes
        self._lone = LoneJobs(database, host, name)
        preempting = {name: lane for name, lane in lanes.items() if registry.lanes[name].preempt}
        self._room = RoomForJobs(database, host, preempting)
        self._handlers = registry.handlers
        self._limits = {
            handler.name: Limits(
                time_limit=handler.time_limit or registry.lanes[handler.lane].time_limit,
                stall_after=registry.lanes[handler.lane].stall_after,
            )
            for handler in registry.handlers.values()
        }
        waits = database.metrics.job_waits
        self._waits = {name: waits.of(name) for name in self._handlers}
        self._capped = frozenset(
            name for name in lanes if registry.lanes[name].max_running_per_owner
        )
        self.is_plain = partial(is_plain, capped=self._capped)
        self._threads = Threads(sum(lane.slots for lane in lanes.values()))
        self._checkpoints: Group[Checkpoint, int] = Group(
            "job checkpoint", self._store_checkpoints, key=lambda given: given[0].id,
            metrics=database.metrics,
        )  # fmt: skip
        self._workplace = Workplace(
            host=host, database=database, store=self._checkpoints.call, loop=loop,
            threads=self._threads, service_for=service_for,
        )  # fmt: skip

    async def work(
        self,
        number: int,
        finished: Sequence[JobSettlement],
        rooms: Mapping[str, int],
        *,
        vacant: bool,
    ) -> Sequence[Any]:
        """As `Ledger.work`."""
        handlers = self._served(self._lanes) if self._listens(rooms) else []
        return await self._database.write(
            SQL.work if finished else SQL.claim, self._host, self._name, number,
            list(rooms), list(rooms.values()), [lane for lane, _ in handlers],
            [handler for _, handler in handlers],
            *(arguments(finished, self._capped) if finished else ()),
            [self._lanes[name].free for name in rooms],
            not self._workplace.writing.isdisjoint(rooms),
            vacant and self._lone.hears(time.monotonic()),
        )  # fmt: skip

    def due_arguments(self, rooms: Mapping[str, int], *, vacant: bool) -> Sequence[Any]:
        """As `Ledger.due_arguments`."""
        return self._host, [handler for _, handler in self._served(rooms)], vacant

    @property
    def looks_often(self) -> bool:
        """As `Ledger.looks_often`: a job must run alone, or an urgent one may need room."""
        return self._lone.busy or self._room.is_needed

    async def waiting(self, lanes: Sequence[str]) -> set[str]:
        """As `Ledger.waiting`."""
        handlers = self._served(lanes)
        rows = await self._database.fetch(
            SQL.lanes_with_jobs, [lane for lane, _ in handlers], [name for _, name in handlers]
        )
        return {row["lane"] for row in rows}

    def read(self, rows: Sequence[Any], rooms: Mapping[str, int]) -> Answer[JobClaim]:
        """As `Ledger.read`."""
        now, claims = time.monotonic(), dict[str, list[JobClaim]]()
        asked: dict[UUID, int] = {}
        # No job of these may begin; a statement under way may have claimed some.
        braked: dict[str, UUID | None] = dict.fromkeys(self._stopped)
        for row in rows:
            match row[0]:
                case "claimed":
                    claim = JobClaim.of(row, now)
                    claims.setdefault(claim.lane, []).append(claim)
                case "parcel":
                    claims.setdefault(row["lane"], []).extend(parcels.claims_in(row, now))
                case "asked":
                    asked[row["id"]] = row["status"]
                case "braked":
                    braked[row["handler"]] = row["id"]
                case "stale":
                    log.warning("jobs.stale_settlement", job=str(row["id"]))
        if self._listens(rooms):
            self._lone.hear(now, waits=bool(rows) and rows[-1][0] == "lone")
        return _answer(claims, asked, braked)

    def _listens(self, rooms: Mapping[str, int]) -> bool:
        """Whether a statement also looks for a job that must run alone."""
        return bool(rooms) or self._lone.wanted

    def settled(self, batch: Sequence[JobSettlement]) -> None:
        """As `Ledger.settled`."""
        self._wakeups.send(ENDED)
        if self._brakes is not None:
            self._brakes.note(batch)

    async def held(self, numbers: Sequence[int] | None) -> list[JobClaim]:
        """As `Ledger.held`; none of it is in a parcel then."""
        await parcels.unpack_held(self._database, self._host, numbers)
        rows = await self._database.fetch(SQL.held, self._host, numbers)
        now = time.monotonic()
        return [JobClaim.of(row, now) for row in rows]

    async def held_keys(self) -> list[tuple[UUID, int]]:
        """As `Ledger.held_keys`."""
        rows = await self._database.fetch(SQL.held_jobs, self._host)
        return [(row["id"], row["claim"]) for row in rows]

    def adopted(self, claims: Sequence[JobClaim]) -> Answer[JobClaim]:
        """As `Ledger.adopted`."""
        by_lane: dict[str, list[JobClaim]] = {}
        for claim in claims:
            by_lane.setdefault(claim.lane, []).append(claim)
            if claim.alone:
                self._lone.begin(claim, claim.taken_at)
        return _answer(by_lane, {}, dict.fromkeys(self._stopped))

    def returned(self, claim: JobClaim) -> JobSettlement:
        """As `Ledger.returned`."""
        return returned(claim)

    def broken(self, claim: JobClaim, text: str) -> JobSettlement:
        """As `Ledger.broken`."""
        return JobSettlement(
            claim=claim, event="fail", error=codes.UNEXPECTED, message=outcomes.shortened(text)
        )

    def ended(self, settlement: JobSettlement) -> Callable[[JobClaim], bool] | None:
        """Give back the jobs of a handler if a run that ended just now is one failure too many."""
        if self._brakes is None or not self._brakes.stops(settlement):
            return None
        return lambda one: one.handler == settlement.claim.handler

    def ask(self, run: JobRun, what: int) -> None:
        """Pass on the status that is asked for: pause, cancel or remove."""
        if what == states.REMOVED:
            run.ctx.gone = True
        elif run.ctx.asked != states.CANCELING:
            run.ctx.asked = what
        if what in (states.REMOVED, states.CANCELING):
            run.end_within(CANCEL_GRACE, JobCanceled(f"job {run.ctx.id} was canceled"))

    def not_asked(self, runs: Mapping[UUID, Any], asked: Mapping[UUID, int]) -> None:
        """Take back a pause: a job was resumed before its handler yielded."""
        for id_, run in runs.items():
            if run.ctx.asked == states.PAUSING and id_ not in asked:
                run.ctx.asked = states.IN_PROGRESS

    async def prepare(self, hands: Rounds[JobClaim, JobSettlement]) -> None:
        """Make room for urgent jobs, and for one that must run alone: claim it, go on after it."""
        lone, now = self._lone, time.monotonic()
        if lone.claim is not None:
            await lone.watch(now, over=not hands.holds(lone.claim.id))
        elif lone.wanted and not hands.stopping:
            hands.give_back(lambda _: True)
            vacant = hands.vacant
            if vacant or lone.is_late(now):
                await hands.claim_one(
                    lambda number, free: lone.take(number, self._served(free), vacant=vacant)
                )
        elif self._room.is_due(now) and not hands.stopping:
            await self._room.make(hands, now, self._stopped)

    @property
    def keeps_others_away(self) -> bool:
        """Whether a job must run alone, or does."""
        return self._lone.busy

    def goes_on(self, hands: Rounds[JobClaim, JobSettlement]) -> bool:
        """Whether a job that must run alone can begin, or has ended."""
        claim = self._lone.claim
        return hands.vacant if claim is None else not hands.holds(claim.id)

    def begin(
        self, claim: JobClaim, task: asyncio.Task[Any], now: float, over: asyncio.Event
    ) -> JobRun:
        """As `Ledger.begin`."""
        handler = self._handlers[claim.handler]
        if claim.attempt == 1:
            self._waits[claim.handler].add(max(0.0, time.time() - (claim.due or claim.created)))
        way = self._in_process if handler.kind == "process" else call
        ctx = JobContext(claim, self._workplace, now)
        limits, in_thread = self._limits[claim.handler], handler.kind == "thread"
        return JobRun(claim, ctx, handler, way, limits, task, over, in_thread=in_thread)

    async def _store_checkpoints(self, given: Sequence[Checkpoint]) -> list[int | Exception]:
        """Store checkpoints of many handlers with one statement; return the status of each job.

        -1 is a job that was deleted, or that this host does not hold any more.
        """
        rows = await self._database.write(
            SQL.checkpoints, self._host, [claim.id for claim, _, _ in given],
            [claim.number for claim, _, _ in given], [progress for _, progress, _ in given],
            [saved for _, _, saved in given], idempotent=True,
        )  # fmt: skip
        statuses = {row["id"]: -1 if row["deleted"] else row["status"] for row in rows}
        return [statuses.get(claim.id, -1) for claim, _, _ in given]

    async def close(self) -> None:
        """As `Ledger.close`."""
        self._threads.close()
        await self._checkpoints.close()

    def _served(self, lanes: Iterable[str]) -> list[tuple[str, str]]:
        """Return handlers by lane, except those that fail too often here."""
        stopped = self._stopped
        return [
            (name, handler) for name in lanes for handler in self._lanes[name].handlers
            if handler not in stopped
        ]  # fmt: skip

    @property
    def _stopped(self) -> Set[str]:
        """Handlers that fail too often here."""
        return frozenset() if self._brakes is None else self._brakes.stopped


def _answer(
    claims: dict[str, list[JobClaim]], asked: Mapping[UUID, int], braked: Mapping[str, UUID | None]
) -> Answer[JobClaim]:
    """Return an answer; claims of braked handlers go back, except the probe."""
    return Answer(
        claims, {lane: sum([len(one.data or "") for one in many]) for lane, many in claims.items()},
        asked, (lambda one: one.handler in braked and one.id != braked[one.handler])
        if braked else None,
    )  # fmt: skip
