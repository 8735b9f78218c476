"""What a host and the database tell each other of jobs: one statement settles and claims."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, Final

import structlog

from relevo.jobs import states
from relevo.jobs.core import codes, outcomes
from relevo.jobs.errors import JobCanceled
from relevo.jobs.running.claims import Claim, Settlement, arguments, is_plain, returned
from relevo.jobs.running.lone import LoneJobs
from relevo.kernel.postgres import catalog

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
    from uuid import UUID

    import asyncpg

    from relevo.jobs.brakes import Brakes
    from relevo.jobs.running.execution import Run
    from relevo.jobs.running.lanes import HostLane
    from relevo.kernel.postgres import Database, Wakeups

SQL = catalog.load("relevo.jobs")
log = structlog.get_logger(__name__)
SETTLE_ROWS_MAX: Final = 1_000
APART_ROWS: Final = 100
"""From how many jobs on to settle and to claim is worth a statement each."""
SWEEP_SECONDS: Final = 5.0
"""How often a host looks for claims that it holds and does not know of."""
CANCEL_GRACE: Final = 10.0
"""How long an asked handler has to reach a checkpoint before it is cancelled at an await."""
ENDED: Final = "jobs:ended"
"""Wakes those who wait for the end of a job."""


class Rounds:
    """Settles what a host has finished, claims what is next, and passes on what is asked."""

    def __init__(
        self, database: Database, wakeups: Wakeups, host: UUID, name: str,
        lanes: Mapping[str, HostLane], runs: Mapping[UUID, Run], writing: Set[str],
        numbers: Iterator[int], brakes: Brakes | None,
    ) -> None:  # fmt: skip
        self._database = database
        self._wakeups = wakeups
        self._host = host
        self._name = name
        self._lanes = lanes
        self._runs = runs
        self._writing = writing
        """Lanes of which nothing is to come in parcels."""
        self._numbers = numbers
        """Of claims; a life uses none twice, whoever works in it."""
        self._brakes = brakes
        self._lone = LoneJobs(database, host, name)
        self._capped = frozenset(
            name for name, one in lanes.items() if one.lane.max_running_per_owner
        )
        self._begun = False
        self._swept_at = time.monotonic()
        self._strangers: set[tuple[UUID, int]] = set()
        self._rows_max = SETTLE_ROWS_MAX
        self._unheard: list[int] = []
        """Numbers of claims whose answer was lost; what they took is looked up."""
        self.stopping = False
        """Whether nothing more is to be claimed."""
        self.finished: list[Settlement] = []
        """What is to be settled."""

    def heed(self, settlement: Settlement) -> None:
        """Give back the jobs of a handler if a run that ended just now is one failure too many."""
        if self._brakes is not None and self._brakes.stops(settlement):
            self._give_back(lambda one: one.handler == settlement.claim.handler)

    async def next(self) -> bool:
        """Settle and claim; whether there is reason to do so again at once."""
        if not self._begun:
            await self._return_left_over()
        if self._unheard:
            await self._adopt()
        if time.monotonic() - self._swept_at > SWEEP_SECONDS:
            await self._sweep()
        await self._see_to_lone_jobs()
        now = time.monotonic()
        for lane in self._lanes.values():
            self.finished += map(returned, lane.late(now, stopping=self.stopping))
        size = self._rows_to_settle()
        batch, self.finished = self.finished[:size], self.finished[size:]
        rooms = {} if self.stopping or self._lone.busy else self._rooms()
        try:
            await self._settle_and_claim(batch, rooms)
        finally:
            for lane in self._lanes.values():
                if lane.waiting:  # they begin while the next statements are on their way
                    lane.came.set()
        if self._lone.busy:  # it can begin, or it is over
            claim = self._lone.claim
            return self._vacant if claim is None else claim.id not in self._known()
        return any(self._lanes[name].more for name in self._rooms())

    def _rows_to_settle(self) -> int:
        """How many; without those of a claim that is not finished yet, if there are many others:
        what was claimed together may be a parcel, which costs least as a whole."""
        size = min(len(self.finished), self._rows_max)
        last = self.finished[size - 1].claim.number if size > APART_ROWS else 0
        if any(lane.waiting and lane.waiting[0].number == last for lane in self._lanes.values()):
            whole = size
            while whole and self.finished[whole - 1].claim.number == last:
                whole -= 1
            return whole if whole >= APART_ROWS else size
        return size

    async def _settle_and_claim(self, batch: Sequence[Settlement], rooms: dict[str, int]) -> None:
        """One statement does both. Where there is much of both, several do it at the same time:
        none waits for the others, claims alone wait for no disk, and few failures do not make the
        settlement of many successes dear."""
        if min(len(batch), sum(rooms.values())) < APART_ROWS:
            await self._work(batch, rooms)
            return
        plain, rest = list[Settlement](), list[Settlement]()
        for one in batch:
            (plain if is_plain(one, self._capped) else rest).append(one)
        parts = [self._work(part, {}) for part in (plain, rest) if part]
        told = await asyncio.gather(self._work([], rooms), *parts, return_exceptions=True)
        for error in filter(None, told):
            raise error

    async def _work(self, batch: Sequence[Settlement], rooms: dict[str, int]) -> None:
        number, listens = next(self._numbers), bool(rooms) or self._lone.wanted
        vacant = not batch and self._lone.hears(time.monotonic()) and self._vacant
        try:
            rows = await self._database.write(
                SQL.work if batch else SQL.claim, self._host, self._name, number,
                *self._wanted(rooms, listens), *(arguments(batch, self._capped) if batch else ()),
                [self._lanes[name].free for name in rooms], not self._writing.isdisjoint(rooms),
                vacant,
            )  # fmt: skip
        except BaseException:
            self.finished[:0] = batch  # written again, or found stale
            self._unheard.append(number)
            raise
        if batch:
            self._rows_max = min(SETTLE_ROWS_MAX, self._rows_max * 2)
            self._wakeups.send(ENDED)
            if self._brakes is not None:
                self._brakes.note(batch)
        try:
            got = self._receive(rows)
        except BaseException:
            self._unheard.append(number)
            raise
        if listens:
            self._lone.hear(time.monotonic(), waits=bool(rows) and rows[-1][0] == "lone")
        self._forget_pauses(rows)
        for name, room in rooms.items():
            self._lanes[name].more = 2 * got.get(name, 0) >= room  # a parcel more may not have fit

    async def _return_left_over(self) -> None:
        """Give back what a former worker of this life held when it was cut off."""
        rows = await self._held(None)
        now = time.monotonic()
        self.finished += [returned(Claim.of(row, now)) for row in rows]
        self._begun = True

    def isolate(self, error: Exception) -> None:
        """Settle fewer at a time, so that one that cannot be written does not hold up the rest."""
        if self._rows_max > 1 or not self.finished:
            self._rows_max = max(1, min(self._rows_max, len(self.finished)) // 2)
            return
        bad = self.finished[0]
        self.finished[0] = Settlement(
            claim=bad.claim, event="fail", error=codes.UNEXPECTED,
            message=outcomes.shortened(f"what became of the run could not be stored: {error!r}"),
        )  # fmt: skip
        self._rows_max = SETTLE_ROWS_MAX

    def _rooms(self) -> dict[str, int]:
        found = {}
        for name, lane in self._lanes.items():
            if room := lane.appetite.room(lane.held):
                found[name] = room
        return found

    def _wanted(
        self, rooms: dict[str, int], listens: bool
    ) -> tuple[list[str], list[int], list[str], list[str]]:
        pairs = self._served(self._lanes) if listens else []
        return (
            list(rooms), list(rooms.values()), [lane for lane, _ in pairs],
            [handler for _, handler in pairs],
        )  # fmt: skip

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

    async def _see_to_lone_jobs(self) -> None:
        """Make room for a job that is to run alone, claim it, and let others in after it."""
        lone, now = self._lone, time.monotonic()
        if lone.claim is not None:
            await lone.watch(now, over=lone.claim.id not in self._known())
        elif lone.wanted and not self.stopping:
            self._give_back(lambda _: True)
            vacant = self._vacant
            if vacant or lone.is_late(now):
                await self._claim_lone(vacant=vacant)

    async def _claim_lone(self, *, vacant: bool) -> None:
        number, free = next(self._numbers), (one for one, lane in self._lanes.items() if lane.free)
        try:
            claim = await self._lone.take(number, self._served(free), vacant=vacant)
        except BaseException:
            self._unheard.append(number)
            raise
        if claim is not None:
            self._lanes[claim.lane].waiting.append(claim)

    def _receive(self, rows: Sequence[Any]) -> dict[str, int]:
        now, came = time.monotonic(), dict[str, list[Claim]]()
        # Of these nothing is to begin; a statement that was on its way may have claimed some.
        braked: dict[str, UUID | None] = dict.fromkeys(self._stopped)
        for row in rows:
            match row[0]:
                case "claimed":
                    claim = Claim.of(row, now)
                    came.setdefault(claim.lane, []).append(claim)
                case "parcel":
                    came.setdefault(row["lane"], []).extend(Claim.of_parcel(row, now))
                case "asked":
                    self._ask(row["id"], row["status"])
                case "braked":
                    braked[row["handler"]] = row["id"]
                case "stale":
                    log.warning("jobs.stale_settlement", job=str(row["id"]))
        for name, claims in came.items():
            lane = self._lanes[name]
            lane.appetite.weigh(len(claims), sum([len(one.data or "") for one in claims]))
            lane.waiting += claims
        if braked:
            self._give_back(lambda one: one.handler in braked and one.id != braked[one.handler])
        return {name: len(claims) for name, claims in came.items()}

    def _give_back(self, wanted: Callable[[Claim], bool]) -> None:
        """Give back what was claimed and has not begun."""
        for lane in self._lanes.values():
            self.finished += map(returned, lane.take_all(wanted))

    def _ask(self, id_: UUID, status: int) -> None:
        """Pass on to a running handler what is asked of its job."""
        run = self._runs.get(id_)
        if run is None:  # not begun: it is given back, and what is asked happens at once
            taken = (lane.take(id_) for lane in self._lanes.values())
            self.finished += [returned(one) for one in taken if one is not None]
            return
        if status == states.REMOVED:
            run.ctx.gone = True
        elif run.ctx.asked != states.CANCELING:
            run.ctx.asked = status
        if status in (states.REMOVED, states.CANCELING):
            run.end_within(CANCEL_GRACE, JobCanceled(f"job {id_} was canceled"))

    def _forget_pauses(self, rows: Sequence[Any]) -> None:
        """Take back what nobody asks any more: a job was resumed before its handler yielded."""
        pausing = [one for one in self._runs.values() if one.ctx.asked == states.PAUSING]
        if pausing:
            asked = {row["id"] for row in rows}
            for run in pausing:
                if run.ctx.id not in asked:
                    run.ctx.asked = states.IN_PROGRESS

    async def _sweep(self) -> None:
        """Give back what the database says is held here and nobody here knows of.

        An answer that was lost, or a run that was cut off: seen twice, it is not under way either.
        """
        self._swept_at = time.monotonic()
        rows = await self._database.fetch(SQL.held_jobs, self._host)
        known = self._known()
        strangers = {(row["id"], row["claim"]) for row in rows if row["id"] not in known}
        if orphans := strangers & self._strangers:
            found = await self._held(sorted({claim for _, claim in orphans}))
            now = time.monotonic()
            self.finished += [
                returned(Claim.of(row, now))
                for row in found if (row["id"], row["claim"]) in orphans
            ]  # fmt: skip
        self._strangers = strangers - orphans

    async def _adopt(self) -> None:
        """Look up what was claimed by statements whose answer was lost."""
        rows = await self._held(self._unheard)
        self._unheard.clear()
        known = self._known()
        found = [row for row in rows if row["id"] not in known]
        self._receive(found)
        for one in (Claim.of(row, time.monotonic()) for row in found):
            if one.alone:
                self._lone.begin(one, one.taken_at)

    async def _held(self, claims: Sequence[int] | None) -> list[asyncpg.Record]:
        """What this host holds of some claims, or all; none of it is in a parcel then."""
        await self._database.write(SQL.unpack_held, self._host, claims, idempotent=True)
        return await self._database.fetch(SQL.held, self._host, claims)

    @property
    def _vacant(self) -> bool:
        """Whether nothing is in hand."""
        return not (
            self._runs or self.finished or any(lane.waiting for lane in self._lanes.values())
        )

    def _known(self) -> set[UUID]:
        """What is in hand: claims that wait, run, or are to be settled."""
        waiting = {one.id for lane in self._lanes.values() for one in lane.waiting}
        return waiting | set(self._runs) | {one.claim.id for one in self.finished}
