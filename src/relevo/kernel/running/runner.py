"""A host at work for a part: rounds settle and claim, slots run handlers meanwhile.

Everything here belongs to one life of the host. When that life ends, handlers are canceled,
nothing is written any more, and the next life begins without claims: the rows of the
ended life go to the first host that looks.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import random
import time
from typing import TYPE_CHECKING, Final, Generic

from relevo.errors import RelevoError
from relevo.kernel import uses
from relevo.kernel.backoff import Backoff
from relevo.kernel.postgres.polling import Question
from relevo.kernel.running.figures import RunFigures
from relevo.kernel.running.ledger import C, S
from relevo.kernel.running.rounds import Rounds
from relevo.kernel.running.runs import HostStops
from relevo.kernel.telemetry import tracing
from relevo.kernel.telemetry.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Mapping

    from relevo.kernel.leases import Leases
    from relevo.kernel.leases.life import Life
    from relevo.kernel.postgres import Wakeups
    from relevo.kernel.postgres.wakeups import Signal
    from relevo.kernel.running.lanes import HostLane
    from relevo.kernel.running.ledger import Ledger
    from relevo.kernel.running.runs import Run
    from relevo.kernel.telemetry.metrics import Metrics

log = get_logger(__name__)
PROBE_SECONDS: Final = 0.25
"""How often a host looks whose poll does not look for it: submits in callers' transactions send no
wake-up, and some work is decided by time."""
SETTLE_SECONDS: Final = 0.02
"""How long a finished run may wait for others that are about to be finished."""
TURN_RUNS: Final = 25
TURN_SECONDS: Final = 0.0005
"""Others in the loop have their turn after a handler that took so long, or after so many quick
ones when there is something to settle."""
GUARD_SECONDS: Final = 0.25
"""How soon handlers are cut off when the host may not act any more, or their time is over."""
LOOK_SECONDS: Final = 0.001
"""How long a look at the host's own deadline counts for handlers that begin."""
END_SECONDS: Final = 1.0
"""The time that a handler has to clean up when its host must stop."""
WRITE_SECONDS: Final = 5.0


class Runner(Generic[C, S]):
    """Claims and runs the work of a part in one life of a host."""

    def __init__(
        self, wakeups: Wakeups, leases: Leases, life: Life, lanes: Mapping[str, HostLane[C]],
        ledger: Ledger[C, S], numbers: Iterator[int], topics: tuple[str, ...], metrics: Metrics,
    ) -> None:  # fmt: skip
        self._wakeups = wakeups
        self._leases = leases
        self._life = life
        """The life in whose name the ledger claims; not always the present one."""
        self._lanes = lanes
        self._ledger = ledger
        self._topics = topics
        """The topics of its wake-ups."""
        self._over = asyncio.Event()
        self._abandoned = False
        """Whether claims were dropped: what they were is read anew, by the next runner."""
        self._runs: dict[Hashable, Run[C, S]] = {}
        self._random = random.Random()  # noqa: S311 - jitter, not a secret
        self._loop = asyncio.get_running_loop()
        self._figures = RunFigures(metrics, ledger.part, lanes)
        self._told = asyncio.Event()
        self._rounds = Rounds(ledger, lanes, self._runs, numbers, self._told.set)
        self._slots: set[asyncio.Task[None]] = set()
        self._looks_at = 0.0
        self._surroundings = contextvars.copy_context()
        """Context variables as every run finds them."""
        self._surroundings.run(uses.begin, "handlers")
        self._log = log.bind(part=ledger.part)
        self._traced = tracing.is_on()

    @property
    def stopping(self) -> bool:
        """Whether it is stopping."""
        return self._rounds.stopping

    @property
    def at_work(self) -> list[C]:
        """The claims whose handlers run."""
        return [run.claim for run in self._runs.values() if not run.dropped]

    @property
    def ended(self) -> bool:
        """Whether the life is over in which these claims were made."""
        return not self._leases.lives(self._life)

    async def run(self) -> None:
        """Work until stopped, or until the life ends."""
        for lane in self._lanes.values():
            for _ in range(lane.slots):
                self._open_slot(lane)
        guard = asyncio.ensure_future(self._guard())
        try:
            question = Question(self._ledger.due_sql, self._rounds.due_arguments)
            with self._wakeups.signal(*self._topics, question=question) as woken:
                await self._serve(woken)
        finally:
            self._over.set()
            guard.cancel()
            for slot in self._slots:
                slot.cancel()
            if self._slots:  # a handler that ignores its cancellation is not waited for
                await asyncio.wait(self._slots, timeout=END_SECONDS)
            for lane in self._lanes.values():
                if lane.budget is not None:
                    lane.budget.close(lane.running)
            self._figures.close()
            await self._ledger.close()

    async def _serve(self, woken: Signal) -> None:
        listening = asyncio.ensure_future(self._listen(woken))
        backoff, failures = Backoff(), 0
        try:
            while self._goes_on:
                self._told.clear()
                if self.ended or self._abandoned:
                    self._abandon()
                    return
                try:
                    busy = await self._rounds.next()
                    failures = 0
                except RelevoError as error:
                    self._log.warning("running.round_failed", error=str(error)[:500])
                    await asyncio.sleep(min(2.0, backoff.delay(min(failures, 5), self._random)))
                    failures += 1
                    continue
                except Exception as error:
                    self._log.exception("running.round_refused")
                    self._rounds.isolate(error)
                    await asyncio.sleep(min(2.0, backoff.delay(min(failures, 5), self._random)))
                    failures += 1
                    continue
                if not busy and self._goes_on:
                    await self._rest(woken)
        finally:
            listening.cancel()

    async def _listen(self, woken: Signal) -> None:
        while True:
            await woken.wait(woken.patience(PROBE_SECONDS))
            self._told.set()

    async def _rest(self, woken: Signal) -> None:
        """Wait until enough runs have finished, a wake-up came, or it is time to look."""
        if self._rounds.finished:
            if not any(lane.waiting for lane in self._lanes.values()):
                return
            seconds = SETTLE_SECONDS
        else:
            probes = self._rounds.looks_often
            seconds = PROBE_SECONDS if probes else woken.patience(PROBE_SECONDS)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._told.wait()

    async def _guard(self) -> None:
        """Cut handlers off when the deadline passes, also while a statement hangs.

        And those that have used up their own time.
        """
        while True:
            await asyncio.sleep(GUARD_SECONDS)
            if self.ended:
                self._abandon()
            now = time.monotonic()
            for run in self._runs.values():
                run.watch(now)

    def _open_slot(self, lane: HostLane[C]) -> None:
        """Open a slot of a lane; if it ends, another takes its place."""
        slot = self._loop.create_task(self._slot(lane), context=self._surroundings.copy())
        self._slots.add(slot)

        def ended(task: asyncio.Task[None]) -> None:
            self._slots.discard(task)
            if not task.cancelled() and (error := task.exception()) is not None:
                self._log.error("running.slot_failed", lane=lane.name, error=repr(error)[:500])
            if not self._over.is_set():
                self._open_slot(lane)

        slot.add_done_callback(ended)

    async def _slot(self, lane: HostLane[C]) -> None:
        """Run the work of a lane, one after the other, while handlers leave the context unchanged.

        A task per run would isolate them as well, but cost more than most handlers.
        """
        task = asyncio.current_task()
        assert task is not None
        while contextvars.copy_context() == self._surroundings and not task.cancelling():
            while not lane.may_begin or self._rounds.stopping:
                lane.came.clear()
                await lane.came.wait()
                await asyncio.sleep(0)  # the next statements first: they work while this runs
            now = time.monotonic()
            if now >= self._looks_at:
                if self.ended:  # perhaps only for a moment: then they are still ours
                    await asyncio.sleep(GUARD_SECONDS)
                    continue
                self._looks_at = now + LOOK_SECONDS
            claim = lane.waiting.popleft()
            lane.running += 1
            run = None
            try:
                run = self._ledger.begin(claim, task, now, self._over)
                self._runs[claim.id] = run
                if self._traced:
                    run.trace()
                settlement = await run.execute()
            except BaseException as error:
                if self._over.is_set():
                    raise
                self._log.exception("running.run_failed", id=claim.label)
                text = f"the run ended with {type(error).__name__}"
                settlement = self._ledger.broken(claim, text)
            finally:
                self._runs.pop(claim.id, None)
                lane.end_run()
            if self._end_run(lane, claim, run, settlement):
                await asyncio.sleep(0)

    def _end_run(
        self, lane: HostLane[C], claim: C, run: Run[C, S] | None, settlement: S | None
    ) -> bool:
        """Keep the outcome for the next round; True if other tasks of the loop go first."""
        figures = self._figures.runs[claim.handler]
        if settlement is not None:
            self._rounds.finished.append(settlement)
            figures.ended(settlement.event, settlement.seconds)
            lane.appetite.note_run(settlement.seconds)
            if settlement.event != "done":
                self._rounds.heed(settlement)
        elif run is not None and run.settled:
            figures.ended("done", run.seconds)
        finished = len(self._rounds.finished)
        yields = settlement is None or settlement.seconds > TURN_SECONDS
        if not lane.waiting:
            if lane.more and not lane.running:
                lane.appetite.hungry()
            self._told.set()
            return True  # so that the statement is on its way while the rest runs
        if finished >= lane.appetite.step:
            self._told.set()
            return yields or finished % TURN_RUNS == 0
        if finished == 1:
            self._loop.call_later(SETTLE_SECONDS, self._told.set)
        return yields

    def _abandon(self) -> None:
        """End the life: cut off all runs, and write nothing.

        If the life goes on after all, because a renewal came late, another runner returns what it
        holds; this one does not know it any more.
        """
        self._abandoned = True
        self._told.set()
        for lane in self._lanes.values():
            lane.waiting.clear()
        for run in self._runs.values():
            run.drop(self._ledger.canceled("the host's life has ended"))

    async def stop(self, timeout: float) -> None:
        """Claim nothing more, let handlers end, and return unfinished claims."""
        self._rounds.stopping = True
        if await self._ends_within(timeout):
            return
        for run in self._runs.values():
            run.cut(HostStops("the host is stopping"))
        if await self._ends_within(END_SECONDS):
            return
        for run in self._runs.values():  # threads that reach no checkpoint
            if not run.settled and not run.dropped:
                self._rounds.finished.append(self._ledger.returned(run.claim))
            run.drop(HostStops("the host is stopping"))
        if not await self._ends_within(WRITE_SECONDS):
            self._log.warning("running.not_returned", count=len(self._rounds.finished))

    @property
    def _goes_on(self) -> bool:
        """Whether it is not stopping, or has not finished yet."""
        return bool(
            not self._rounds.stopping
            or self._rounds.finished
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
