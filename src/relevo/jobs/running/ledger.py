"""The jobs' ledger: the statement that settles and claims them, and what its rows say."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import structlog

from relevo.jobs import states
from relevo.jobs.core import codes, outcomes
from relevo.jobs.errors import JobCanceled
from relevo.jobs.running.checkpoints import Checkpoints
from relevo.jobs.running.claims import Claim, Settlement, arguments, is_plain, returned
from relevo.jobs.running.context import JobContext, Workplace
from relevo.jobs.running.execution import JobRun, call
from relevo.jobs.running.lone import LoneJobs
from relevo.kernel.postgres import catalog
from relevo.kernel.running.calls import Limits
from relevo.kernel.running.ledger import Answer
from relevo.kernel.running.threads import Threads

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterable, Mapping, Sequence, Set
    from uuid import UUID

    from relevo.jobs.brakes import Brakes
    from relevo.jobs.registry import Registry
    from relevo.jobs.running.execution import Caller
    from relevo.kernel.postgres import Database, Wakeups
    from relevo.kernel.running.lanes import HostLane
    from relevo.kernel.running.rounds import Rounds

SQL = catalog.load("relevo.jobs")
log = structlog.get_logger(__name__)
CANCEL_GRACE: Final = 10.0
"""How long an asked handler has to reach a checkpoint before it is cancelled at an await."""
ENDED: Final = "jobs:ended"
"""Wakes those who wait for the end of a job."""


class JobLedger:
    """What one life of a host knows of its jobs."""

    part = JobRun.part
    canceled = JobCanceled

    def __init__(
        self, database: Database, wakeups: Wakeups, host: UUID, name: str, registry: Registry,
        lanes: Mapping[str, HostLane[Claim]], in_process: Caller,
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
        self._handlers = registry.handlers
        self._limits = {
            one.name: Limits(
                time_limit=one.time_limit or registry.lanes[one.lane].time_limit,
                stall_after=registry.lanes[one.lane].stall_after,
            )
            for one in registry.handlers.values()
        }
        self._capped = frozenset(
            name for name in lanes if registry.lanes[name].max_running_per_owner
        )
        self.is_plain = partial(is_plain, capped=self._capped)
        self._threads = Threads(sum(one.slots for one in lanes.values()))
        self._checkpoints = Checkpoints(database, host)
        self._workplace = Workplace(
            host=host, database=database, store=self._checkpoints.store, loop=loop,
            threads=self._threads, service_for=service_for,
        )  # fmt: skip

    async def work(
        self, number: int, finished: Sequence[Settlement], rooms: Mapping[str, int], *, vacant: bool
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

    def read(self, rows: Sequence[Any], rooms: Mapping[str, int]) -> Answer[Claim]:
        """As `Ledger.read`."""
        now, claims = time.monotonic(), dict[str, list[Claim]]()
        asked: dict[UUID, int] = {}
        # Of these nothing is to begin; a statement that was on its way may have claimed some.
        braked: dict[str, UUID | None] = dict.fromkeys(self._stopped)
        for row in rows:
            match row[0]:
                case "claimed":
                    claim = Claim.of(row, now)
                    claims.setdefault(claim.lane, []).append(claim)
                case "parcel":
                    claims.setdefault(row["lane"], []).extend(Claim.of_parcel(row, now))
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
        """Whether a statement also looks for a job that is to run alone."""
        return bool(rooms) or self._lone.wanted

    def settled(self, batch: Sequence[Settlement]) -> None:
        """As `Ledger.settled`."""
        self._wakeups.send(ENDED)
        if self._brakes is not None:
            self._brakes.note(batch)

    async def held(self, numbers: Sequence[int] | None) -> list[Claim]:
        """As `Ledger.held`; none of it is in a parcel then."""
        await self._database.write(SQL.unpack_held, self._host, numbers, idempotent=True)
        rows = await self._database.fetch(SQL.held, self._host, numbers)
        now = time.monotonic()
        return [Claim.of(row, now) for row in rows]

    async def held_keys(self) -> list[tuple[UUID, int]]:
        """As `Ledger.held_keys`."""
        rows = await self._database.fetch(SQL.held_jobs, self._host)
        return [(row["id"], row["claim"]) for row in rows]

    def adopted(self, claims: Sequence[Claim]) -> Answer[Claim]:
        """As `Ledger.adopted`."""
        by_lane: dict[str, list[Claim]] = {}
        for one in claims:
            by_lane.setdefault(one.lane, []).append(one)
            if one.alone:
                self._lone.begin(one, one.taken_at)
        return _answer(by_lane, {}, dict.fromkeys(self._stopped))

    def returned(self, claim: Claim) -> Settlement:
        """As `Ledger.returned`."""
        return returned(claim)

    def broken(self, claim: Claim, text: str) -> Settlement:
        """As `Ledger.broken`."""
        return Settlement(
            claim=claim, event="fail", error=codes.UNEXPECTED, message=outcomes.shortened(text)
        )

    def ended(self, settlement: Settlement) -> Callable[[Claim], bool] | None:
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

    async def prepare(self, hands: Rounds[Claim, Settlement]) -> None:
        """Make room for a job that is to run alone, claim it, and let others in after it."""
        lone, now = self._lone, time.monotonic()
        if lone.claim is not None:
            await lone.watch(now, over=not hands.holds(lone.claim.id))
        elif lone.wanted and not hands.stopping:
            hands.give_back(lambda _: True)
            vacant = hands.vacant
            if vacant or lone.is_late(now):
                free = self._served(name for name, lane in self._lanes.items() if lane.free)
                await hands.claim_by(lambda number: lone.take(number, free, vacant=vacant))

    @property
    def keeps_others_away(self) -> bool:
        """Whether a job is to run alone, or does."""
        return self._lone.busy

    def goes_on(self, hands: Rounds[Claim, Settlement]) -> bool:
        """Whether a job that is to run alone can begin, or is over."""
        claim = self._lone.claim
        return hands.vacant if claim is None else not hands.holds(claim.id)

    def begin(
        self, claim: Claim, task: asyncio.Task[Any], now: float, over: asyncio.Event
    ) -> JobRun:
        """As `Ledger.begin`."""
        handler = self._handlers[claim.handler]
        way = self._in_process if handler.kind == "process" else call
        ctx = JobContext(claim, self._workplace, now)
        limits, in_thread = self._limits[claim.handler], handler.kind == "thread"
        return JobRun(claim, ctx, handler, way, limits, task, over, in_thread=in_thread)

    async def close(self) -> None:
        """As `Ledger.close`."""
        self._threads.close()
        await self._checkpoints.close()

    def _served(self, lanes: Iterable[str]) -> list[tuple[str, str]]:
        """Handlers by lane, without those that fail too often here."""
        stopped = self._stopped
        return [
            (name, one) for name in lanes for one in self._lanes[name].handlers
            if one not in stopped
        ]  # fmt: skip

    @property
    def _stopped(self) -> Set[str]:
        """Handlers that fail too often here."""
        return frozenset() if self._brakes is None else self._brakes.stopped


def _answer(
    claims: dict[str, list[Claim]], asked: Mapping[UUID, int], braked: Mapping[str, UUID | None]
) -> Answer[Claim]:
    """Return an answer; of braked handlers all claims but the one that is let through go back."""
    return Answer(
        claims, {lane: sum([len(one.data or "") for one in many]) for lane, many in claims.items()},
        asked, (lambda one: one.handler in braked and one.id != braked[one.handler])
        if braked else None,
    )  # fmt: skip
