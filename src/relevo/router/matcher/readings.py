"""Converts rows to the values of matching, and applies rules to them."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct

from relevo.errors import RuleFailed
from relevo.kernel.telemetry.logs import get_logger
from relevo.router.core import classification, queueing, rules, scoring_rules
from relevo.router.core.capacity import ChannelTerms
from relevo.router.core.classification import QueueCandidate, Subject, Unclassifiable
from relevo.router.core.selectors import WorkerSelector
from relevo.router.events import ErrorData
from relevo.router.matching.situation import JobState, Mode, QueueState, Scoring, WorkerState
from relevo.router.wire.policies import (
    BestWorkerMode,
    LongestIdleMode,
    RoundRobinMode,
    ScoringRuleOptions,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from random import Random

    import asyncpg

    from relevo.router.core.classification import Classified
    from relevo.router.core.rules import Answers, RuleCall
    from relevo.router.core.world import WorkerRow
    from relevo.router.matcher.rule_calls import RuleCaller
    from relevo.router.storage import Resources
    from relevo.router.wire.policies import ClassificationPolicy

log = get_logger(__name__)
MODES: Final[dict[type[Struct], Mode]] = {
    BestWorkerMode: "bestWorker",
    LongestIdleMode: "longestIdle",
    RoundRobinMode: "roundRobin",
}
_selectors = msgspec.json.Decoder(tuple[WorkerSelector, ...]).decode
_declines = msgspec.json.Decoder(dict[str, datetime | None]).decode


class JobReading(Struct, frozen=True):
    """A job as the matcher reads it."""

    id: str
    status: str
    queue_id: str
    channel_id: str
    priority: int
    enqueued_at: datetime | None
    arrival: int | None
    version: int
    round: int
    entered: bool
    policy_id: str | None
    selectors: tuple[WorkerSelector, ...]
    labels: dict[str, Any]
    offered: frozenset[str]
    declined: dict[str, datetime | None]
    due_at: datetime | None
    fired: tuple[str, ...]

    def barred(self, now: datetime) -> dict[str, None]:
        """Return the workers that declined the job and may not be asked yet."""
        return {who: None for who, at in self.declined.items() if at is None or at > now}

    def is_overlooked(self, resources: Resources) -> bool:
        """Whether its timer is too late, because the rules for waiting have changed."""
        if self.status != "queued" or self.enqueued_at is None:
            return False
        for rule, seconds in queueing.wait_rules(resources, self.queue_id):
            due = self.enqueued_at + timedelta(seconds=seconds)
            if queueing.firing(self.queue_id, rule) not in self.fired and (
                self.due_at is None or due < self.due_at
            ):
                return True
        return False

    def next_retry(self, now: datetime) -> datetime | None:
        """Return when the first of them may be asked again."""
        return min((at for at in self.declined.values() if at and at > now), default=None)


def job(row: asyncpg.Record) -> JobReading:
    """Return a job from a row of `matching_jobs`."""
    return JobReading(  # type: ignore[call-arg]
        *row[:11],
        _selectors(row[11]) + _selectors(row[12]),
        msgspec.json.decode(row[13]),
        frozenset(row[14] or ()),
        _declines(row[15]) if row[15] else {},
        row[16],
        tuple(row[17]),
    )


def job_state(read: JobReading, now: datetime) -> JobState:
    """Return a waiting job for the index."""
    assert read.enqueued_at is not None
    return JobState(
        id=read.id, queue=read.queue_id, channel=read.channel_id, selectors=read.selectors,
        priority=read.priority, enqueued_at=read.enqueued_at.timestamp(),
        arrival=read.arrival or 0, open_offers=read.offered, declined=read.barred(now),
        version=read.version, labels=read.labels,
    )  # fmt: skip


def worker(row: WorkerRow) -> WorkerState:
    """Return an available worker for the index."""
    return WorkerState(
        id=row.id, available=row.available, queues=frozenset(row.queues),
        channels={
            each.channel_id: ChannelTerms(each.capacity_cost_per_job, each.max_number_of_jobs)
            for each in row.channels
        },
        labels=row.labels, capacity=row.capacity, max_offers=row.max_offers, used=row.used,
        jobs=row.by_channel, open_offers=row.offers, idle_since=row.idle_since.timestamp(),
        version=row.version,
    )  # fmt: skip


def queue(resources: Resources, queue_id: str, pointer: str | None) -> QueueState:
    """Return a queue for the index, with its distribution policy."""
    policy = resources.distribution(queue_id)
    if policy is None:
        return QueueState(id=queue_id, pointer=pointer)
    mode = policy.mode
    return QueueState(
        id=queue_id, mode=MODES[type(mode)], max_concurrent_offers=mode.offers_max,
        bypass_selectors=mode.bypass_selectors, offer_ttl=policy.offer_expires_after_seconds,
        scoring=_scoring(mode), pointer=pointer,
    )  # fmt: skip


def _scoring(mode: Any) -> Scoring:
    if not isinstance(mode, BestWorkerMode):
        return Scoring()
    options, rule = mode.scoring_rule_options or ScoringRuleOptions(), mode.scoring_rule
    kind: Any = "default" if rule is None else "outside" if rules.is_external(rule) else "local"
    return Scoring(
        rule=kind, descending=options.descending_order, parameters=options.scoring_parameters,
        batch=options.is_batch_scoring_enabled, batch_size=options.batch_size,
    )  # fmt: skip


class Scorer:
    """Rates workers by rules that need no call."""

    def __init__(self, resources: Callable[[], Resources]) -> None:
        self._resources = resources

    def __call__(
        self, queue: QueueState, job: JobState, workers: Sequence[WorkerState]
    ) -> dict[str, float]:
        """Return the scores of workers that have one."""
        rule = scoring_rule(self._resources(), queue.id)
        try:
            return scoring_rules.scores(rule, queue.scoring, job, workers)
        except RuleFailed as error:
            log.warning("router.scoring_failed", queue=queue.id, job=job.id, error=error.message)
            return {}


def scoring_rule(resources: Resources, queue_id: str) -> Any:
    """Return the rule that rates workers of a queue, if it has one."""
    policy = resources.distribution(queue_id)
    return policy.mode.scoring_rule if policy and isinstance(policy.mode, BestWorkerMode) else None


async def scores(
    resources: Resources,
    queue: QueueState,
    job: JobState,
    workers: Sequence[WorkerState],
    caller: RuleCaller,
) -> dict[str, float] | None:
    """Return the scores that a rule elsewhere gives; None if it failed altogether."""
    rule = scoring_rule(resources, queue.id)
    if rule is None:
        return None
    answers = await caller.answers(scoring_rules.calls(rule, queue.scoring, job, workers))
    try:
        return scoring_rules.scores(rule, queue.scoring, job, workers, answers)
    except RuleFailed as error:
        log.warning("router.scoring_failed", queue=queue.id, job=job.id, error=error.message)
        return None


def policy_of(job: JobReading, resources: Resources) -> ClassificationPolicy | None:
    """Return the policy that a job is to be classified by."""
    return resources.classification_policies.get(job.policy_id or "")


def evaluates(job: JobReading, resources: Resources) -> bool:
    """Whether a job's classification evaluates expressions."""
    policy = policy_of(job, resources)
    return policy is not None and classification.evaluates(policy)


def calls_for(job: JobReading, resources: Resources) -> tuple[RuleCall, ...]:
    """Return the calls to the outside that a job's classification needs."""
    policy = policy_of(job, resources)
    return () if policy is None else classification.needed(policy, job.labels)


def outcome(
    job: JobReading,
    resources: Resources,
    waiting: Mapping[str, int],
    random: Random,
    answers: Answers,
) -> Classified | Unclassifiable:
    """Classify a job by its policy; an error becomes the reason of its failure."""
    policy = policy_of(job, resources)
    if policy is None:
        message = f"classification policy {job.policy_id!r} is gone; set another one"
        return _unclassifiable(job, "PolicyNotFound", message)
    subject = Subject(
        version=job.version, labels=job.labels, queue_id=job.queue_id, priority=job.priority
    )
    try:
        return classification.classify(
            subject, policy, candidates(resources, waiting), random,
            policy_version=resources.revision, answers=answers,
        )  # fmt: skip
    except Exception:
        log.exception("router.classification_broke", job=job.id, policy=job.policy_id)
        message = f"classification policy {job.policy_id!r} could not be applied; see the log"
        return _unclassifiable(job, "InternalError", message)


def _unclassifiable(job: JobReading, code: str, message: str) -> Unclassifiable:
    error = ErrorData(code=code, message=message)
    return Unclassifiable(job_version=job.version, policy_version=0, trail=(), errors=(error,))


def candidates(resources: Resources, waiting: Mapping[str, int]) -> dict[str, QueueCandidate]:
    """Return all queues that a job may go to."""
    return {
        queue_id: QueueCandidate(
            queue_id, {**queue.labels, "Id": queue_id}, waiting.get(queue_id, 0)
        )
        for queue_id, queue in resources.queues.items()
    }
