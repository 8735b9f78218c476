"""What a host and the database tell each other of jobs: one statement settles and claims."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, Final

import structlog

from relevo.jobs import codes, outcomes, states
from relevo.jobs.errors import JobCanceled
from relevo.jobs.running.claims import Claim, Settlement, arguments, is_plain, returned
from relevo.postgres import catalog

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence, Set
    from uuid import UUID

    import asyncpg

    from relevo.jobs.brakes import Brakes
    from relevo.jobs.running.execution import Run
    from relevo.jobs.running.lanes import HostLane
    from relevo.postgres import Database, Wakeups

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

    def take(self, settlement: Settlement) -> None:
        """Take in what a run came to; it is settled with the next statement."""
        self.finished.append(settlement)
        if (
            settlement.event != "done"
            and self._brakes is not None
            and self._brakes.stops(settlement)
        ):
            self._give_back({settlement.claim.handler})

    async def next(self) -> bool:
        """Settle and claim; whether there is reason to do so again at once."""
        if not self._begun:
            await self._return_left_over()
        if self._unheard:
            await self._adopt()
        if time.monotonic() - self._swept_at > SWEEP_SECONDS:
            await self._sweep()
        now = time.monotonic()
        for lane in self._lanes.values():
            self.finished += map(returned, lane.late(now, stopping=self.stopping))
        size = self._rows_to_settle()
        batch, self.finished = self.finished[:size], self.finished[size:]
        rooms = {} if self.stopping else self._rooms()
        try:
            await self._settle_and_claim(batch, rooms)
        finally:
            for lane in self._lanes.values():
                if lane.waiting:  # they begin while the next statements are on their way
                    lane.came.set()
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
        number = next(self._numbers)
        try:
            rows = await self._database.write(
                SQL.work if batch else SQL.claim, self._host, self._name, number,
                *self._wanted(rooms), *(arguments(batch, self._capped) if batch else ()),
                [self._lanes[name].free for name in rooms], not self._writing.isdisjoint(rooms),
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

    def _wanted(self, rooms: dict[str, int]) -> tuple[list[str], list[int], list[str], list[str]]:
        stopped: Set[str] = set() if self._brakes is None else self._brakes.stopped
        pairs = [
            (name, one) for name in rooms for one in self._lanes[name].handlers
            if one not in stopped
        ]  # fmt: skip
        return (
            list(rooms), list(rooms.values()), [lane for lane, _ in pairs],
            [handler for _, handler in pairs],
        )  # fmt: skip

    def _receive(self, rows: Sequence[Any]) -> dict[str, int]:
        now, came = time.monotonic(), dict[str, list[Claim]]()
        for row in rows:
            match row[0]:
                case "claimed":
                    claim = Claim.of(row, now)
                    came.setdefault(claim.lane, []).append(claim)
                case "parcel":
                    came.setdefault(row["lane"], []).extend(Claim.of_parcel(row, now))
                case "asked":
                    self._ask(row["id"], row["status"])
                case "stale":
                    log.warning("jobs.stale_settlement", job=str(row["id"]))
        for name, claims in came.items():
            lane = self._lanes[name]
            lane.appetite.weigh(len(claims), sum([len(one.data or "") for one in claims]))
            lane.waiting += claims
        if self._brakes is not None and (stopped := self._brakes.stopped):
            self._give_back(stopped)  # claimed by a statement that was on its way
        return {name: len(claims) for name, claims in came.items()}

    def _give_back(self, handlers: Set[str], probes: Set[UUID] = frozenset()) -> None:
        """Give back what was claimed of handlers and has not begun, but for probes of brakes."""
        for lane in self._lanes.values():
            taken = lane.take_all(lambda one: one.handler in handlers and one.id not in probes)
            self.finished += map(returned, taken)

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
        self._receive([row for row in rows if row["id"] not in known])

    async def _held(self, claims: Sequence[int] | None) -> list[asyncpg.Record]:
        """What this host holds of some claims, or all; none of it is in a parcel then."""
        await self._database.write(SQL.unpack_held, self._host, claims, idempotent=True)
        return await self._database.fetch(SQL.held, self._host, claims)

    def _known(self) -> set[UUID]:
        """What is in hand: claims that wait, run, or are to be settled."""
        waiting = {one.id for lane in self._lanes.values() for one in lane.waiting}
        return waiting | set(self._runs) | {one.claim.id for one in self.finished}
