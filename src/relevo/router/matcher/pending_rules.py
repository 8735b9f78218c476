"""Calls of external rules under way beside the matcher's rounds, and their answers.

Nothing is written here. Answers are kept until the next round takes them, and compares them
with the rows of then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from relevo.kernel import faults
from relevo.kernel.events.model import TOPIC
from relevo.kernel.telemetry.logs import get_logger
from relevo.router.core.rules import RuleAnswer
from relevo.router.matcher import readings
from relevo.router.matcher.readings import JobReading
from relevo.router.matching.situation import NeedsScores
from relevo.router.storage import Resources

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from relevo.kernel.postgres import Wakeups
    from relevo.router.core.rules import RuleCall
    from relevo.router.matcher.rule_calls import RuleCaller
    from relevo.router.matching.situation import JobState, QueueState, WorkerState

AT_ONCE_MAX: Final = 64
"""Jobs that are asked about at once; each may need several calls."""
log = get_logger(__name__)


class ClassificationAnswers(Struct, frozen=True):
    """The answers for a job's classification, and the policies they were asked by."""

    job: JobReading
    resources: Resources
    answers: Mapping[str, RuleAnswer]


class Scored(Struct, frozen=True):
    """The scores of a job's workers; None if the rule failed altogether."""

    wanted: NeedsScores
    scores: Mapping[str, float] | None


class PendingRules:
    """Calls under way, and the answers that arrived."""

    def __init__(self, caller: RuleCaller, wakeups: Wakeups) -> None:
        self.busy: set[str] = set()
        """Jobs that are being asked about for their classification."""
        self._caller = caller
        self._wakeups = wakeups
        self._room = asyncio.Semaphore(AT_ONCE_MAX)
        self._tasks: set[asyncio.Task[None]] = set()
        self._asked: list[ClassificationAnswers] = []
        self._scored: list[Scored] = []

    def classify(self, job: JobReading, resources: Resources, calls: tuple[RuleCall, ...]) -> None:
        """Make the calls that a job's classification needs."""

        async def ask() -> None:
            await faults.point("before_classification")
            answers = await self._caller.answers(calls)
            self._asked.append(ClassificationAnswers(job, resources, answers))

        def give_up() -> None:
            # Without answers its rules fail, and so does the classification, in the open.
            self._asked.append(ClassificationAnswers(job, resources, {}))

        self.busy.add(job.id)
        self._start(ask, give_up)

    def score(
        self,
        wanted: NeedsScores,
        resources: Resources,
        queue: QueueState,
        job: JobState,
        workers: list[WorkerState],
    ) -> None:
        """Ask how well workers suit a job."""

        async def ask() -> None:
            found = await readings.scores(resources, queue, job, workers, self._caller)
            self._scored.append(Scored(wanted, found))

        self._start(ask, lambda: self._scored.append(Scored(wanted, None)))

    def take(self) -> tuple[list[ClassificationAnswers], list[Scored]]:
        """Return the answers since the last time."""
        asked, self._asked = self._asked, []
        scored, self._scored = self._scored, []
        self.busy.difference_update(one.job.id for one in asked)
        return asked, scored

    async def close(self) -> None:
        """Cancel the calls under way."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _start(self, ask: Callable[[], Awaitable[None]], give_up: Callable[[], None]) -> None:
        async def run() -> None:
            try:
                async with self._room:
                    await ask()
            except Exception:
                log.exception("router.asking_failed")
                give_up()
            self._wakeups.send(TOPIC)

        task = asyncio.get_running_loop().create_task(run(), name="router.asking")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
