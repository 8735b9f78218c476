"""The matcher: one host of the installation decides who is offered what.

It keeps an index in memory, built from rows and kept current by the hints of the event log, commits
decisions in sets under the fence of its lease, and looks after what the clock makes due. Everything
it knows can be read again: when it dies, another one begins with the rows.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from typing import TYPE_CHECKING, Any, TypeVar

import structlog

from relevo.errors import LeaseLost, RelevoError, TooLarge
from relevo.kernel import cpu, faults
from relevo.kernel.events.model import TOPIC
from relevo.kernel.leases import fencing
from relevo.kernel.leases.model import SINGLETON
from relevo.kernel.postgres import catalog, clock
from relevo.router import storage
from relevo.router.core import queueing
from relevo.router.matcher import readings, steps
from relevo.router.matcher.asking import Asked, Asking
from relevo.router.matcher.following import Follower, Hints
from relevo.router.matcher.notebook import Notebook
from relevo.router.matcher.readings import JobReading
from relevo.router.matching.index import Index
from relevo.router.matching.situation import Decision, NeedsScores
from relevo.router.resources import NOTHING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    from relevo.kernel.leases import Lease, Leases
    from relevo.kernel.postgres import Database, Transaction, Wakeups
    from relevo.kernel.postgres.wakeups import Signal
    from relevo.router.commands import Call, Commands
    from relevo.router.matcher.calling import Caller
    from relevo.router.resources import Remembered, Resources

SQL = catalog.load("relevo.router")
T = TypeVar("T")
log = structlog.get_logger(__name__)
ROWS_MAX = 2_000
"""Rows that are read, decided or committed at once."""
POLL_SECONDS = 1.0
DEAF_POLL_SECONDS = 0.5
"""How often the log is looked at if nobody wakes the matcher, or nobody can."""
IDLE_SECONDS_MAX = 5.0
"""How often it is asked what is due although nothing can be."""
UNSETTLED = frozenset({"queued", "pendingClassification"})
"""What a job is that the matcher has to do with."""
SHORTEST_SLEEP = 0.005
RULES_SECONDS_MAX = 0.2
"""CPU time that scoring rules have before what was decided is committed and the log is read."""


class Matcher:
    """What a host does while it owns matching."""

    def __init__(
        self,
        database: Database,
        wakeups: Wakeups,
        commands: Commands,
        remembered: Remembered,
        caller: Caller,
    ) -> None:
        self._database = database
        self._wakeups = wakeups
        self._commands = commands
        self._remembered = remembered
        self._caller = caller

    async def join(self, leases: Leases) -> None:
        """Be a candidate for matching."""
        await leases.join("matcher", "router", self._hold, leases=["matcher"], settings=SINGLETON)

    async def _hold(self, lease: Lease) -> None:
        """Match until the lease must go; after a failure of the store, begin with the rows."""
        while not lease.stopping.is_set():
            try:
                lease.check()
                await Matching(self, lease).run()
            except LeaseLost:
                return
            except RelevoError as error:
                log.warning("router.matching_interrupted", error=str(error))
                await _stopped_within(lease.stopping, 0.5)


class Matching:
    """One life of the index."""

    def __init__(self, of: Matcher, lease: Lease) -> None:
        self._database = of._database
        self._wakeups = of._wakeups
        self._commands = of._commands
        self._remembered = of._remembered
        self._lease = lease
        self._follower = Follower(of._database)
        self._asking = Asking(of._caller, of._wakeups)
        self._resources: Resources = NOTHING
        self._index = Index(readings.Scorer(lambda: self._resources))
        self._notes = Notebook()
        self._stale = Hints()
        self._overlooked: set[str] = set()
        """Jobs that a rule that is newer than their timer looks at earlier."""
        self._broken: set[object] = set()
        """Whose timers cannot be served: something is wrong with them, and the log says what."""
        self._clock: datetime
        self._idle_until = 0.0
        """By the loop's clock: when the next timer is due, as far as is known."""
        self._random = random.Random()  # noqa: S311 - weighted allocation, not a secret

    async def run(self) -> None:
        """Build the index from the rows, then follow."""
        with self._wakeups.signal(TOPIC) as woken:
            try:
                await self._follower.begin()
                await self._build()
                told = True
                while not self._lease.stopping.is_set():
                    self._lease.check()
                    sleep = await self._round(told=told)
                    told = sleep <= 0 or await self._wait(woken, max(sleep, SHORTEST_SLEEP))
            finally:
                await self._asking.close()

    async def _wait(self, woken: Signal, seconds: float) -> bool:
        """Sleep until somebody says that something has happened: then return True."""
        waits = [
            asyncio.ensure_future(woken.wait(seconds)),
            asyncio.ensure_future(self._lease.stopping.wait()),
        ]
        try:
            done, _ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            return any(one.result() for one in done)
        finally:
            for one in waits:
                one.cancel()
            await asyncio.gather(*waits, return_exceptions=True)

    async def _build(self) -> None:
        """Read everything that matching looks at; then bring on what has not got that far."""
        self._clock = await clock.now(self._database)
        await self._renew_resources()
        after, unsettled = "", list[JobReading]()
        while rows := await self._database.fetch(SQL.worker_ids, after, ROWS_MAX):
            after = rows[-1]["id"]
            await self._read_workers(row["id"] for row in rows)
        number = 0
        while rows := await self._database.fetch(SQL.unsettled_jobs, number, ROWS_MAX):
            number = rows[-1]["number"]
            unsettled += await self._put_jobs([row["id"] for row in rows])
        await self._bring_on(unsettled)
        log.info("router.matching", jobs=len(self._notes.queue_of), epoch=self._lease.epoch)

    async def _round(self, *, told: bool) -> float:
        """Look at what was named, decide, commit; return for how long there is nothing to do.

        If nobody was `told` anything and the log is silent, no timer can have become due earlier
        than was known: then one question is all that an idle matcher costs.
        """
        hints = await self._follower.read()
        quiet = not (told or hints.jobs or hints.workers or hints.resources or hints.more)
        if quiet and self._idle_until > (now := asyncio.get_running_loop().time()):
            return min(self._poll, self._idle_until - now)
        with self._database.metrics.router_match_seconds.time():
            return await self._match(hints)

    async def _match(self, hints: Hints) -> float:
        if hints.resources or await self._are_resources_stale():
            await self._renew_resources()
        await self._take_answers()
        hints.workers |= self._stale.workers
        self._stale.workers = set()
        await self._read_workers(hints.workers)
        hints.jobs |= self._stale.jobs
        self._stale.jobs = set()
        await self._read_jobs(hints.jobs)
        sleep = await self._look_at_clock()
        decided = await self._decide()
        if decided or hints.more or self._stale.jobs or self._stale.workers:
            return 0.0
        self._idle_until = asyncio.get_running_loop().time() + sleep
        return min(self._poll, sleep)

    @property
    def _poll(self) -> float:
        """How long the matcher sleeps at the most: it must look oftener if nobody can wake it."""
        return POLL_SECONDS if self._wakeups.listening else DEAF_POLL_SECONDS

    async def _are_resources_stale(self) -> bool:
        """Whether decisions were rejected because there is a later revision of the resources.

        Not every revision is in the log: that of a channel, or of a change that changed nothing.
        """
        asked, self._stale.resources = self._stale.resources, False
        if not asked:
            return False
        revision: int = await self._database.fetchval(SQL.revision)
        return revision != self._resources.revision

    async def _renew_resources(self) -> None:
        """Policies or queues have changed: tell the index, and look at jobs with other rules."""
        before, self._resources = self._resources, await self._remembered.now(self._database)
        pointers = {
            row["queue_id"]: row["worker_id"] for row in await self._database.fetch(SQL.pointers)
        }
        for queue_id in self._resources.queues:
            self._index.put_queue(readings.queue(self._resources, queue_id, pointers.get(queue_id)))
        for queue_id in before.queues.keys() - self._resources.queues.keys():
            self._index.remove_queue(queue_id)
        ruled_otherwise = {
            queue_id for queue_id in self._resources.queues
            if queueing.exception_policy(before, queue_id)
            != queueing.exception_policy(self._resources, queue_id)
        }  # fmt: skip
        self._stale.jobs.update(self._notes.jobs_in(ruled_otherwise))

    async def _read_workers(self, ids: Iterable[str]) -> None:
        for part in _parts(ids):
            found = {one.id: one for one in await storage.workers(self._database, part)}
            for worker_id in part:
                worker = found.get(worker_id)
                if worker is None or not worker.available:
                    self._notes.registered(worker_id, None)
                    self._index.remove_worker(worker_id)
                else:
                    again = self._notes.registered(worker_id, worker.registration)
                    self._stale.jobs |= again
                    self._index.put_worker(readings.worker(worker))

    async def _read_jobs(self, ids: Iterable[str]) -> None:
        """Read jobs, and bring on those that have not arrived in the index yet."""
        unsettled = list[JobReading]()
        for part in _parts(ids):
            unsettled += await self._put_jobs(part)
        await self._bring_on(unsettled)

    async def _put_jobs(self, ids: Sequence[str]) -> list[JobReading]:
        """Put jobs that wait into the index; return those that something must happen to before."""
        rows = await self._database.fetch(SQL.matching_jobs, ids)
        found = {row["id"]: readings.job(row) for row in rows if row["status"] in UNSETTLED}
        unsettled = []
        for job_id in ids:
            job = found.get(job_id)
            if job is not None and job.status == "queued" and job.entered:
                self._put(job)
                continue
            self._drop(job_id)
            if job is not None and job.status in ("queued", "pendingClassification"):
                unsettled.append(job)
        return unsettled

    def _put(self, job: JobReading) -> None:
        if self._notes.put(job, self._clock):
            self._index.remove_job(job.id)
        if job.is_overlooked(self._resources):
            self._overlooked.add(job.id)
        self._index.put_job(readings.job_state(job, self._clock))

    def _drop(self, job_id: str) -> None:
        if self._notes.drop(job_id):
            self._index.remove_job(job_id)

    async def _bring_on(self, unsettled: list[JobReading]) -> None:
        """Classify, and let rules for the length of a queue look, until all have arrived.

        Before anything is decided, so that nobody behind them in the order is served first. A
        job comes round again when a rule has moved it; each rule does so once.
        """
        while unsettled:
            calls, moved = [], []
            for part in _parts(unsettled):
                for job, call in (*await self._classified(part), *self._entering(part)):
                    moved.append(job.id)
                    calls.append(call)
            unsettled = []
            for some in _parts(calls):
                await self._commit(some)
            for ids in _parts(moved):
                unsettled += await self._put_jobs(ids)

    def _entering(self, found: Sequence[JobReading]) -> Iterable[tuple[JobReading, Call]]:
        entering = [job for job in found if job.status == "queued"]
        entering.sort(key=lambda one: (one.enqueued_at, one.arrival))
        ahead = Counter(self._notes.waiting)
        for job in entering:
            yield job, steps.enter(job.id, ahead[job.queue_id])
            ahead[job.queue_id] += 1

    async def _classified(self, found: Sequence[JobReading]) -> Iterable[tuple[JobReading, Call]]:
        """Apply the policies of jobs; what needs calls to the outside is asked meanwhile."""
        ready: list[Asked] = []
        for job in found:
            if job.status != "pendingClassification" or job.id in self._asking.busy:
                continue
            calls = readings.calls_for(job, self._resources)
            if calls:
                self._asking.classify(job, self._resources, calls)
            else:
                ready.append(Asked(job, self._resources, {}))
        return zip([one.job for one in ready], await self._outcomes(ready), strict=True)

    async def _outcomes(self, asked: Sequence[Asked]) -> list[Call]:
        """Classify; in a thread if rules are evaluated, of which a policy may have many."""

        def apply() -> list[Call]:
            return [self._outcome(one) for one in asked]

        if any(readings.evaluates(one.job, one.resources) for one in asked):
            return await cpu.off_loop(apply)
        return apply()

    def _outcome(self, asked: Asked) -> Call:
        outcome = readings.outcome(
            asked.job, asked.resources, self._notes.waiting, self._random, asked.answers
        )
        return steps.classified(asked.job, readings.policy_of(asked.job, asked.resources), outcome)

    async def _take_answers(self) -> None:
        """Take in what was asked outside; what is out of date by now is asked anew."""
        asked, scored = self._asking.take()
        for part in _parts(await self._outcomes(asked)):
            await self._commit(part)
        for found in scored:
            self._index.scored(found.wanted, found.scores)
            well = found.scores is not None
            self._notes.scored(found.wanted.job, self._clock, well=well)
        self._stale.jobs.update(one.job.id for one in asked)

    async def _look_at_clock(self) -> float:
        """Do what is due; return for how long nothing is."""
        row = (await self._database.fetch(SQL.due, ROWS_MAX))[0]
        self._clock = row["now"]
        ended = dict(zip(row["offers"] or (), row["workers"] or (), strict=True))
        looked = list(dict.fromkeys([*(row["jobs"] or ()), *self._overlooked]))[:ROWS_MAX]
        self._overlooked.difference_update(looked)
        due: dict[object, Call] = {one: steps.expire(one, worker) for one, worker in ended.items()}
        due |= {f"absent {one}": steps.take_for_absent(one) for one in set(ended.values())}
        due |= {f"look {one}": steps.look(one) for one in looked}
        for one in self._broken.intersection(due):
            del due[one]
        results = await self._commit(list(due.values())) if due else []
        self._broken.update(
            one for one, result in zip(due, results, strict=True) if isinstance(result, Exception)
        )
        self._stale.jobs.update(self._notes.due(self._clock))
        if due or self._overlooked:
            return 0.0
        return self._notes.seconds_left(
            self._clock, min(IDLE_SECONDS_MAX, row["seconds"] or IDLE_SECONDS_MAX)
        )

    async def _decide(self) -> bool:
        """Let the index decide, and commit; what no longer holds is read again."""
        if self._index.rates_by_rule:
            found = await cpu.off_loop(self._decide_for_a_while)
        else:
            found = self._index.decide(ROWS_MAX)
        for one in found:
            if isinstance(one, NeedsScores):
                self._ask_for_scores(one)
        decisions = [one for one in found if isinstance(one, Decision)]
        if not decisions:
            return not self._index.is_at_rest
        await faults.point("before_offers")
        revision = self._resources.revision
        results = await self._commit([steps.issue(one, revision) for one in decisions])
        await faults.point("after_offers")
        for decision, issued in zip(decisions, results, strict=True):
            if issued is not True:
                self._index.reject(decision)
                self._stale.resources = True
                self._stale.jobs.add(decision.job)
                self._stale.workers.add(decision.worker)
        return True

    def _decide_for_a_while(self) -> list[Decision | NeedsScores]:
        """Decide by rules that take time; not for so long that all else has to wait for it."""
        end = time.thread_time() + RULES_SECONDS_MAX
        return self._index.decide(ROWS_MAX, lambda: time.thread_time() > end)

    def _ask_for_scores(self, wanted: NeedsScores) -> None:
        job = self._index.job(wanted.job)
        queue = None if job is None else self._index.queue(job.queue)
        if job is not None and queue is not None:
            workers = [one for one in map(self._index.worker, wanted.workers) if one is not None]
            self._asking.score(wanted, self._resources, queue, job, workers)

    async def _commit(self, calls: Sequence[Call]) -> list[Any]:
        """Run calls in one transaction that holds only while the lease does.

        One that breaks, or is too much for one transaction, must not keep the others from being
        done: then they are done in parts. The result of a call that broke is its error.
        """

        async def fenced(tx: Transaction) -> None:
            await fencing.require(tx, self._lease.fence)

        self._lease.check()
        try:
            return await self._commands.together(calls, fenced)
        except Exception as error:
            if isinstance(error, RelevoError) and not isinstance(error, TooLarge):
                raise
            if len(calls) == 1:
                log.exception("router.step_broke", workers=calls[0].workers, jobs=calls[0].jobs)
                return [error]
        middle = len(calls) // 2
        return await self._commit(calls[:middle]) + await self._commit(calls[middle:])


def _parts(found: Iterable[T]) -> list[list[T]]:
    rows = list(found)
    return [rows[n : n + ROWS_MAX] for n in range(0, len(rows), ROWS_MAX)]


async def _stopped_within(stopping: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await stopping.wait()
    except TimeoutError:
        return
