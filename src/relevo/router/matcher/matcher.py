"""The matcher: one host of the installation matches jobs to workers.

It keeps an index in memory, built from rows and kept current by the hints of the event log, commits
decisions in batches under the fence of its lease, and acts on due times. Everything
it knows can be read again: if it dies, the next matcher begins with the rows.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from typing import TYPE_CHECKING, Any, TypeVar

from relevo.errors import LeaseLost, RelevoError, TooLarge
from relevo.kernel import cpu, faults
from relevo.kernel.events.model import TOPIC
from relevo.kernel.leases import fencing
from relevo.kernel.leases.model import SINGLETON
from relevo.kernel.postgres import catalog, clock
from relevo.kernel.telemetry.logs import get_logger
from relevo.router.matcher import readings, steps
from relevo.router.matcher.memory import ROWS_MAX, Follower, Hints, Memory, in_parts
from relevo.router.matcher.pending_rules import ClassificationAnswers, PendingRules
from relevo.router.matcher.readings import JobReading
from relevo.router.matching.situation import Decision, NeedsScores

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from relevo.kernel.leases import Lease, Leases
    from relevo.kernel.postgres import Database, Transaction, Wakeups
    from relevo.kernel.postgres.wakeups import Signal
    from relevo.router.commands import RouterCall, RouterCommands
    from relevo.router.matcher.rule_calls import RuleCaller
    from relevo.router.storage import Remembered

SQL = catalog.load("relevo.router")
T = TypeVar("T")
log = get_logger(__name__)
POLL_SECONDS = 1.0
DEAF_POLL_SECONDS = 0.5
"""How often the log is read without a wake-up, and without a listener."""
IDLE_SECONDS_MAX = 5.0
"""How often due times are read although none is known."""
SHORTEST_SLEEP = 0.005
RULES_SECONDS_MAX = 0.2
"""CPU time of scoring rules before decisions are committed and the log is read."""


class Matcher:
    """Runs matching on the host that owns its lease."""

    def __init__(
        self,
        database: Database,
        wakeups: Wakeups,
        commands: RouterCommands,
        remembered: Remembered,
        caller: RuleCaller,
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
                await MatcherRun(self, lease).run()
            except LeaseLost:
                return
            except RelevoError as error:
                log.warning("router.matching_interrupted", error=str(error))
                await _stopped_within(lease.stopping, 0.5)


class MatcherRun:
    """Matching from one reading of all rows to the next failure."""

    def __init__(self, of: Matcher, lease: Lease) -> None:
        self._database = of._database
        self._wakeups = of._wakeups
        self._commands = of._commands
        self._lease = lease
        self._follower = Follower(of._database)
        self._asking = PendingRules(of._caller, of._wakeups)
        self._memory = Memory(of._database, of._remembered)
        self._broken: set[object] = set()
        """Due steps that failed; they are not tried again, and the log has the reason."""
        self._woken: Signal
        """Set by wake-ups, and by the host's poll if the log has gone on."""
        self._idle_until = 0.0
        """By the loop's clock: when the next timer is due, as far as is known."""
        self._random = random.Random()  # noqa: S311 - weighted allocation, not a secret

    async def run(self) -> None:
        """Build the index from the rows, then follow."""
        with self._wakeups.signal(TOPIC, question=self._follower.question) as woken:
            self._woken = woken
            try:
                await self._follower.begin()
                await self._build()
                hinted = True
                while not self._lease.stopping.is_set():
                    self._lease.check()
                    sleep = await self._round(hinted=hinted)
                    hinted = sleep <= 0 or await self._lease.until_stopping(
                        woken, max(sleep, SHORTEST_SLEEP)
                    )
            finally:
                await self._asking.close()

    async def _build(self) -> None:
        """Read all rows of matching; then classify and enqueue the jobs that need it."""
        self._memory.clock = await clock.now(self._database)
        await self._memory.renew_resources()
        after, unsettled = "", list[JobReading]()
        while rows := await self._database.fetch(SQL.worker_ids, after, ROWS_MAX):
            after = rows[-1]["id"]
            await self._memory.read_workers(row["id"] for row in rows)
        number = 0
        while rows := await self._database.fetch(SQL.unsettled_jobs, number, ROWS_MAX):
            number = rows[-1]["number"]
            unsettled += await self._memory.put_jobs([row["id"] for row in rows])
        await self._bring_on(unsettled)
        log.info(
            "router.matching", jobs=len(self._memory.waiting.queue_of), epoch=self._lease.epoch
        )

    async def _round(self, *, hinted: bool) -> float:
        """Read the named rows, decide, commit; return the seconds until the next due time.

        Without a hint, if the log is silent too, no timer can have become due earlier
        than was known: then one question is all that an idle matcher costs.
        """
        hints = await self._follower.read()
        quiet = not (hinted or hints.jobs or hints.workers or hints.resources or hints.more)
        if quiet and self._idle_until > (now := asyncio.get_running_loop().time()):
            return min(self._poll, self._idle_until - now)
        with self._database.metrics.router_match_seconds.time():
            return await self._match(hints)

    async def _match(self, hints: Hints) -> float:
        if hints.resources or await self._memory.are_resources_stale():
            await self._memory.renew_resources()
        await self._take_answers()
        hints.workers |= self._memory.stale.workers
        self._memory.stale.workers = set()
        await self._memory.read_workers(hints.workers)
        hints.jobs |= self._memory.stale.jobs
        self._memory.stale.jobs = set()
        await self._read_jobs(hints.jobs)
        sleep = await self._look_at_clock()
        decided = await self._decide()
        if decided or hints.more or self._memory.stale.jobs or self._memory.stale.workers:
            return 0.0
        self._idle_until = asyncio.get_running_loop().time() + sleep
        return min(self._poll, sleep)

    @property
    def _poll(self) -> float:
        """The longest sleep; shorter if no wake-up can arrive."""
        usual = POLL_SECONDS if self._wakeups.listening else DEAF_POLL_SECONDS
        return self._woken.patience(usual)

    async def _read_jobs(self, ids: Iterable[str]) -> None:
        """Read jobs, and bring on those that have not arrived in the index yet."""
        unsettled = list[JobReading]()
        for part in in_parts(ids):
            unsettled += await self._memory.put_jobs(part)
        await self._bring_on(unsettled)

    async def _bring_on(self, unsettled: list[JobReading]) -> None:
        """Classify, and let rules for the length of a queue look, until all have arrived.

        Before anything is decided, so that no job behind them in the order is served first. A
        job comes round again when a rule has moved it; each rule does so once.
        """
        while unsettled:
            calls, moved = [], []
            for part in in_parts(unsettled):
                for job, call in (*await self._classified(part), *self._entering(part)):
                    moved.append(job.id)
                    calls.append(call)
            unsettled = []
            for some in in_parts(calls):
                await self._commit(some)
            for ids in in_parts(moved):
                unsettled += await self._memory.put_jobs(ids)

    def _entering(self, found: Sequence[JobReading]) -> Iterable[tuple[JobReading, RouterCall]]:
        entering = [job for job in found if job.status == "queued"]
        entering.sort(key=lambda one: (one.enqueued_at, one.arrival))
        ahead = Counter(self._memory.waiting.by_queue)
        for job in entering:
            yield job, steps.enter(job.id, ahead[job.queue_id])
            ahead[job.queue_id] += 1

    async def _classified(
        self, found: Sequence[JobReading]
    ) -> Iterable[tuple[JobReading, RouterCall]]:
        """Apply the policies of jobs; calls to other services are made meanwhile."""
        ready: list[ClassificationAnswers] = []
        for job in found:
            if job.status != "pendingClassification" or job.id in self._asking.busy:
                continue
            calls = readings.calls_for(job, self._memory.resources)
            if calls:
                self._asking.classify(job, self._memory.resources, calls)
            else:
                ready.append(ClassificationAnswers(job, self._memory.resources, {}))
        return zip([one.job for one in ready], await self._outcomes(ready), strict=True)

    async def _outcomes(self, asked: Sequence[ClassificationAnswers]) -> list[RouterCall]:
        """Classify; in a thread if rules are evaluated, of which a policy may have many."""

        def apply() -> list[RouterCall]:
            return [self._outcome(one) for one in asked]

        if any(readings.evaluates(one.job, one.resources) for one in asked):
            return await cpu.off_loop(apply)
        return apply()

    def _outcome(self, asked: ClassificationAnswers) -> RouterCall:
        outcome = readings.outcome(
            asked.job, asked.resources, self._memory.waiting.by_queue, self._random, asked.answers
        )
        return steps.classified(asked.job, readings.policy_of(asked.job, asked.resources), outcome)

    async def _take_answers(self) -> None:
        """Take answers of other services; outdated ones are asked for again."""
        asked, scored = self._asking.take()
        for part in in_parts(await self._outcomes(asked)):
            await self._commit(part)
        for found in scored:
            self._memory.index.scored(found.wanted, found.scores)
            well = found.scores is not None
            self._memory.waiting.scored(found.wanted.job, self._memory.clock, well=well)
        self._memory.stale.jobs.update(one.job.id for one in asked)

    async def _look_at_clock(self) -> float:
        """Carry out due steps; return the seconds until the next one."""
        row = (await self._database.fetch(SQL.due, ROWS_MAX))[0]
        self._memory.clock = row["now"]
        ended = dict(zip(row["offers"] or (), row["workers"] or (), strict=True))
        looked = list(dict.fromkeys([*(row["jobs"] or ()), *self._memory.overlooked]))[:ROWS_MAX]
        self._memory.overlooked.difference_update(looked)
        due: dict[object, RouterCall] = {
            one: steps.expire(one, worker) for one, worker in ended.items()
        }
        due |= {f"absent {one}": steps.take_for_absent(one) for one in set(ended.values())}
        due |= {f"look {one}": steps.look(one) for one in looked}
        for one in self._broken.intersection(due):
            del due[one]
        results = await self._commit(list(due.values())) if due else []
        self._broken.update(
            one for one, result in zip(due, results, strict=True) if isinstance(result, Exception)
        )
        self._memory.stale.jobs.update(self._memory.waiting.due(self._memory.clock))
        if due or self._memory.overlooked:
            return 0.0
        longest = self._woken.patience(IDLE_SECONDS_MAX)
        return self._memory.waiting.seconds_left(
            self._memory.clock, min(longest, row["seconds"] or longest)
        )

    async def _decide(self) -> bool:
        """Let the index decide, and commit; rows of rejected decisions are read again."""
        if self._memory.index.rates_by_rule:
            found = await cpu.off_loop(self._decide_for_a_while)
        else:
            found = self._memory.index.decide(ROWS_MAX)
        for one in found:
            if isinstance(one, NeedsScores):
                self._ask_for_scores(one)
        decisions = [one for one in found if isinstance(one, Decision)]
        if not decisions:
            return not self._memory.index.is_at_rest
        await faults.point("before_offers")
        revision = self._memory.resources.revision
        results = await self._commit([steps.issue(one, revision) for one in decisions])
        await faults.point("after_offers")
        for decision, issued in zip(decisions, results, strict=True):
            if issued is not True:
                self._memory.index.reject(decision)
                self._memory.stale.resources = True
                self._memory.stale.jobs.add(decision.job)
                self._memory.stale.workers.add(decision.worker)
        return True

    def _decide_for_a_while(self) -> list[Decision | NeedsScores]:
        """Decide by rules that take time; not for so long that all else has to wait for it."""
        end = time.thread_time() + RULES_SECONDS_MAX
        return self._memory.index.decide(ROWS_MAX, lambda: time.thread_time() > end)

    def _ask_for_scores(self, wanted: NeedsScores) -> None:
        job = self._memory.index.job(wanted.job)
        queue = None if job is None else self._memory.index.queue(job.queue)
        if job is not None and queue is not None:
            workers = [
                one for one in map(self._memory.index.worker, wanted.workers) if one is not None
            ]
            self._asking.score(wanted, self._memory.resources, queue, job, workers)

    async def _commit(self, calls: Sequence[RouterCall]) -> list[Any]:
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


async def _stopped_within(stopping: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await stopping.wait()
    except TimeoutError:
        return
