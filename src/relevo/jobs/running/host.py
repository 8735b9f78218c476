"""A host's work with jobs: one statement settles and claims, slots run handlers meanwhile.

Everything here belongs to one life of the host. When that life ends, handlers are cancelled,
nothing is written any more, and the next life begins with empty hands: the rows are taken from the
ended one by whoever looks first.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final

import structlog

from relevo.core.backoff import Backoff
from relevo.errors import RelevoError
from relevo.jobs import codes, outcomes, states
from relevo.jobs.commands import HOST_TOPIC
from relevo.jobs.errors import JobCanceled
from relevo.jobs.running.claims import Claim, Settlement, arguments
from relevo.jobs.running.context import JobContext, Workplace
from relevo.jobs.running.execution import HostStops, Run, call
from relevo.jobs.running.slots import WAIT_SECONDS, Appetite
from relevo.jobs.submission import TOPIC
from relevo.postgres import catalog
from relevo.postgres.grouping import Group

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from uuid import UUID

    from relevo.jobs.model import Lane
    from relevo.jobs.registry import Handler, Registry
    from relevo.jobs.running.execution import Caller
    from relevo.leases import Leases
    from relevo.postgres import Database, Wakeups
    from relevo.postgres.wakeups import Signal

SQL = catalog.load("relevo.jobs")
log = structlog.get_logger(__name__)
PROBE_SECONDS: Final = 0.25
"""How often an idle host looks: what foreign transactions submit has no other herald."""
SETTLE_ROWS_MAX: Final = 1_000
APART_ROWS: Final = 100
"""From how many jobs on to settle and to claim is worth a statement each."""
SETTLE_SECONDS: Final = 0.02
"""How long a finished job may wait for others that are about to be finished."""
GUARD_SECONDS: Final = 0.25
"""How soon handlers are cut off when the host may not act any more, or their time is over."""
SWEEP_SECONDS: Final = 5.0
"""How often a host looks for claims that it holds and does not know of."""
CANCEL_GRACE: Final = 10.0
"""How long an asked handler has to reach a checkpoint before it is cancelled at an await."""
END_SECONDS: Final = 1.0
"""What a handler gets to clean up when its host has to stop."""
WRITE_SECONDS: Final = 5.0
KEEP_SECONDS: Final = 1.0
"""What waits longer for a slot is given back to the others."""
ENDED: Final = "jobs:ended"
"""Wakes those who wait for the end of a job."""


class HostLane:
    """What a lane holds on this host."""

    def __init__(self, lane: Lane, handlers: Sequence[Handler]) -> None:
        self.lane = lane
        self.handlers = {one.name: one for one in handlers}
        self.waiting: deque[Claim] = deque()
        self.running = 0
        self.more = False
        """Whether there was more to claim than the last statement took."""
        self.came = asyncio.Event()
        self.appetite = Appetite(lane.slots)

    @property
    def held(self) -> int:
        """Claims that wait or run."""
        return len(self.waiting) + self.running

    @property
    def free(self) -> int:
        """How many more could begin at once."""
        return max(0, self.lane.slots - self.held)


class JobHost:
    """Claims and runs jobs in one life of a host."""

    def __init__(
        self, database: Database, wakeups: Wakeups, leases: Leases, registry: Registry,
        in_process: Caller, service_for: Callable[[JobContext], Any] | None = None,
        numbers: Iterator[int] | None = None,
        note: Callable[[Sequence[Settlement]], None] | None = None,
    ) -> None:  # fmt: skip
        self._database = database
        self._wakeups = wakeups
        self._leases = leases
        self._registry = registry
        self._in_process = in_process
        self._note = note
        self._life = leases.life
        self._host: UUID = self._life.incarnation
        self._numbers = numbers or itertools.count(1)
        """Of claims; this life uses none twice, whoever works in it."""
        self._begun = False
        self._swept_at = time.monotonic()
        self._strangers: set[tuple[UUID, int]] = set()
        self._over = asyncio.Event()
        self._rows_max = SETTLE_ROWS_MAX
        self._unheard: list[int] = []
        """Numbers of claims whose answer was lost; what they took is looked up."""
        self._finished: list[Settlement] = []
        self._runs: dict[UUID, Run] = {}
        self._lanes = self._own_lanes()
        self._capped = frozenset(
            name for name, one in self._lanes.items() if one.lane.max_running_per_owner
        )
        self._random = random.Random()  # noqa: S311 - jitter, not a secret
        self._loop = asyncio.get_running_loop()
        self._threads = ThreadPoolExecutor(
            sum(one.lane.slots for one in self._lanes.values()) or 1, "relevo-job"
        )
        """One for each slot: a lane whose functions take long keeps no other waiting."""
        self._workplace = Workplace(
            host=self._host, database=database, store=self._checkpoint, loop=self._loop,
            threads=self._threads, service_for=service_for,
        )  # fmt: skip
        self._told = asyncio.Event()
        self._stopping = False
        self._checkpoints: Group[tuple[Claim, float | None, str | None], int] = Group(
            "job checkpoint", self._store_checkpoints, key=lambda one: one[0].id,
            metrics=database.metrics,
        )  # fmt: skip

    def _own_lanes(self) -> dict[str, HostLane]:
        served: dict[str, list[Handler]] = {}
        for one in self._registry.handlers.values():
            served.setdefault(one.lane, []).append(one)
        return {name: HostLane(self._registry.lanes[name], found) for name, found in served.items()}

    @property
    def stopping(self) -> bool:
        """Whether it was told to stop."""
        return self._stopping

    @property
    def ended(self) -> bool:
        """Whether the life is over in which these claims were made."""
        return not self._leases.lives(self._life)

    async def run(self) -> None:
        """Work until stopped, or until the life ends."""
        slots = [
            asyncio.ensure_future(self._slot(lane))
            for lane in self._lanes.values() for _ in range(lane.lane.slots)
        ]  # fmt: skip
        slots.append(asyncio.ensure_future(self._guard()))
        try:
            with self._wakeups.signal(TOPIC, HOST_TOPIC.format(self._host)) as woken:
                await self._serve(woken)
        finally:
            self._over.set()
            for one in slots:
                one.cancel()
            await asyncio.gather(*slots, return_exceptions=True)
            self._threads.shutdown(wait=False, cancel_futures=True)
            await self._checkpoints.close()

    async def _serve(self, woken: Signal) -> None:
        listening = asyncio.ensure_future(self._listen(woken))
        backoff, failures = Backoff(), 0
        try:
            while not self._stopping or self._unfinished:
                self._told.clear()
                if self.ended:
                    self._abandon()
                    return
                try:
                    busy = await self._round()
                    failures = 0
                except RelevoError as error:
                    log.warning("jobs.round_failed", error=str(error)[:500])
                    await asyncio.sleep(min(2.0, backoff.delay(min(failures, 5), self._random)))
                    failures += 1
                    continue
                except Exception as error:
                    log.exception("jobs.round_refused")
                    self._isolate(error)
                    await asyncio.sleep(min(2.0, backoff.delay(min(failures, 5), self._random)))
                    failures += 1
                    continue
                if not busy:
                    await self._rest()
        finally:
            listening.cancel()

    async def _listen(self, woken: Signal) -> None:
        while True:
            await woken.wait(PROBE_SECONDS)
            self._told.set()

    async def _rest(self) -> None:
        """Wait until enough was finished, something was told, or it is time to look."""
        if self._finished and not any(lane.waiting for lane in self._lanes.values()):
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(SETTLE_SECONDS if self._finished else PROBE_SECONDS):
                await self._told.wait()

    async def _guard(self) -> None:
        """Cut handlers off when the deadline passes, also while a statement hangs (A5).

        And those that have used up their own time.
        """
        while True:
            await asyncio.sleep(GUARD_SECONDS)
            if self.ended:
                self._abandon()
            now = time.monotonic()
            for run in self._runs.values():
                run.watch(now)

    async def _sweep(self) -> None:
        """Give back what the database says is held here and nobody here knows of.

        An answer that was lost, or a run that was cut off: seen twice, it is not under way either.
        """
        self._swept_at = time.monotonic()
        rows = await self._database.fetch(SQL.held_jobs, self._host)
        known = set(self._runs) | {one.claim.id for one in self._finished}
        known |= {one.id for lane in self._lanes.values() for one in lane.waiting}
        strangers = {(row["id"], row["claim"]) for row in rows if row["id"] not in known}
        if orphans := strangers & self._strangers:
            found = await self._database.fetch(SQL.held, self._host, None)
            now = time.monotonic()
            self._finished += [
                Settlement(claim=Claim.of(row, now), event="return")
                for row in found if (row["id"], row["claim"]) in orphans
            ]  # fmt: skip
        self._strangers = strangers - orphans

    async def _round(self) -> bool:
        """Settle and claim; whether there is reason to do so again at once.

        One statement does both. Where there is much of both, two do it at the same time: neither
        waits for the other, and claims alone wait for no disk.
        """
        if not self._begun:
            await self._return_left_over()
        if self._unheard:
            await self._adopt()
        if time.monotonic() - self._swept_at > SWEEP_SECONDS:
            await self._sweep()
        self._finished += self._given_back()
        batch, self._finished = self._finished[: self._rows_max], self._finished[self._rows_max :]
        rooms = {} if self._stopping else self._rooms()
        if min(len(batch), sum(rooms.values())) < APART_ROWS:
            await self._work(batch, rooms)
        else:
            told = await asyncio.gather(
                self._work(batch, {}), self._work([], rooms), return_exceptions=True
            )
            for error in filter(None, told):
                raise error
        for lane in self._lanes.values():
            if lane.waiting:  # they begin while the next statements are on their way
                lane.came.set()
        return any(self._lanes[name].more for name in self._rooms())

    async def _work(self, batch: Sequence[Settlement], rooms: dict[str, int]) -> None:
        number = next(self._numbers)
        try:
            rows = await self._database.write(
                SQL.work, self._host, self._leases.name, number, *self._wanted(rooms),
                *arguments(batch, self._capped), [self._lanes[name].free for name in rooms],
            )  # fmt: skip
        except BaseException:
            self._finished[:0] = batch  # written again, or found stale
            self._unheard.append(number)
            raise
        if batch:
            self._rows_max = min(SETTLE_ROWS_MAX, self._rows_max * 2)
            self._wakeups.send(ENDED)
            if self._note is not None:
                self._note(batch)
        got = self._receive(rows)
        self._forget_pauses(rows)
        for name, room in rooms.items():
            self._lanes[name].more = got.get(name, 0) >= room

    async def _return_left_over(self) -> None:
        """Give back what a former worker of this life held when it was cut off."""
        rows = await self._database.fetch(SQL.held, self._host, None)
        now = time.monotonic()
        self._finished += [Settlement(claim=Claim.of(row, now), event="return") for row in rows]
        self._begun = True

    def _isolate(self, error: Exception) -> None:
        """Settle fewer at a time, so that one that cannot be written does not hold up the rest."""
        if self._rows_max > 1 or not self._finished:
            self._rows_max = max(1, min(self._rows_max, len(self._finished)) // 2)
            return
        bad = self._finished[0]
        self._finished[0] = Settlement(
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
        pairs = [(name, one) for name in rooms for one in self._lanes[name].handlers]
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
                case "asked":
                    self._ask(row["id"], row["status"])
                case "stale":
                    log.warning("jobs.stale_settlement", job=str(row["id"]))
        for name, claims in came.items():
            lane = self._lanes[name]
            lane.appetite.weigh(len(claims), sum([len(one.data or "") for one in claims]))
            lane.waiting += claims
        return {name: len(claims) for name, claims in came.items()}

    def _ask(self, id_: UUID, status: int) -> None:
        """Pass on to a running handler what is asked of its job."""
        run = self._runs.get(id_)
        if run is None:
            self._return_waiting(id_)
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

    def _return_waiting(self, id_: UUID) -> None:
        """Give back a claim that was not started yet: what is asked then happens at once."""
        for lane in self._lanes.values():
            for claim in lane.waiting:
                if claim.id == id_:
                    lane.waiting.remove(claim)
                    self._finished.append(Settlement(claim=claim, event="return"))
                    return

    def _given_back(self) -> list[Settlement]:
        """What has waited here for too long; others may have a slot for it."""
        now, found = time.monotonic(), list[Settlement]()
        for lane in self._lanes.values():
            late = now - WAIT_SECONDS
            if lane.waiting and lane.waiting[0].taken_at < late:
                lane.appetite.full()
            kept = now - KEEP_SECONDS
            while lane.waiting and (self._stopping or lane.waiting[-1].taken_at < kept):
                found.append(Settlement(claim=lane.waiting.pop(), event="return"))
        return found

    async def _slot(self, lane: HostLane) -> None:
        """Run the jobs of a lane, one after the other."""
        task = asyncio.current_task()
        assert task is not None
        while not self._over.is_set():
            while not lane.waiting or self._stopping:
                lane.came.clear()
                await lane.came.wait()
                await asyncio.sleep(0)  # the next statements first: they work while this runs
            if self.ended:  # perhaps only for a moment: then they are still ours
                await asyncio.sleep(GUARD_SECONDS)
                continue
            claim = lane.waiting.popleft()
            lane.running += 1
            try:
                settlement = await self._begin(lane, claim, task).execute()
            except Exception as error:
                log.exception("jobs.run_failed", job=str(claim.id))
                settlement = Settlement(
                    claim=claim, event="fail", error=codes.UNEXPECTED,
                    message=f"the run ended with {type(error).__name__}",
                )  # fmt: skip
            finally:
                self._runs.pop(claim.id, None)
                lane.running -= 1
            if settlement is not None:
                self._finished.append(settlement)
            if not lane.waiting:
                if lane.more and not lane.running:
                    lane.appetite.hungry()
                self._told.set()
                await asyncio.sleep(0)  # so that the statement is on its way while the rest runs
            elif len(self._finished) >= lane.appetite.step:
                self._told.set()
                await asyncio.sleep(0)
            elif len(self._finished) == 1:
                self._loop.call_later(SETTLE_SECONDS, self._told.set)

    def _begin(self, lane: HostLane, claim: Claim, task: asyncio.Task[Any]) -> Run:
        handler = lane.handlers[claim.handler]
        way = self._in_process if handler.kind == "process" else call
        run = Run(JobContext(claim, self._workplace), handler, lane.lane, way, task)
        self._runs[claim.id] = run
        return run

    async def _checkpoint(self, claim: Claim, progress: float | None, saved: str | None) -> int:
        return await self._checkpoints.call((claim, progress, saved))

    async def _store_checkpoints(
        self, calls: Sequence[tuple[Claim, float | None, str | None]]
    ) -> list[int | Exception]:
        rows = await self._database.write(
            SQL.checkpoints, self._host, [one.id for one, _, _ in calls],
            [one.number for one, _, _ in calls], [progress for _, progress, _ in calls],
            [saved for _, _, saved in calls], idempotent=True,
        )  # fmt: skip
        found = {row["id"]: -1 if row["deleted"] else row["status"] for row in rows}
        return [found.get(one.id, -1) for one, _, _ in calls]

    async def _adopt(self) -> None:
        """Look up what was claimed by statements whose answer was lost."""
        rows = await self._database.fetch(SQL.held, self._host, self._unheard)
        self._unheard.clear()
        known = {one.id for lane in self._lanes.values() for one in lane.waiting} | set(self._runs)
        known |= {one.claim.id for one in self._finished}
        self._receive([row for row in rows if row["id"] not in known])

    def _abandon(self) -> None:
        """The life has ended: what runs is cut off, and nothing of it is written."""
        for lane in self._lanes.values():
            lane.waiting.clear()
        for run in self._runs.values():
            run.drop(JobCanceled("the host's life has ended"))

    async def stop(self, timeout: float) -> None:
        """Claim nothing more, let handlers end, and give back what is not finished then (S17)."""
        self._stopping = True
        if await self._ends_within(timeout):
            return
        for run in self._runs.values():
            run.cut(HostStops("the host is stopping"))
        if await self._ends_within(END_SECONDS):
            return
        for run in self._runs.values():  # threads that reach no checkpoint
            if not run.ctx.settled and not run.dropped:
                self._finished.append(Settlement(claim=run.ctx.claim, event="return"))
            run.drop(HostStops("the host is stopping"))
        if not await self._ends_within(WRITE_SECONDS):
            log.warning("jobs.not_returned", jobs=len(self._finished))

    @property
    def _unfinished(self) -> bool:
        return bool(
            self._finished
            or any(lane.waiting for lane in self._lanes.values())
            or any(not run.dropped for run in self._runs.values())
        )

    async def _ends_within(self, seconds: float) -> bool:
        """Whether everything is settled and written by then."""
        self._told.set()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._over.wait()
        return self._over.is_set()
