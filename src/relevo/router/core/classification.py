"""Classification: a policy and a job's labels give its queue, selectors and priority.

Pure, in two phases. `needed` lists the calls to the outside that the policy's rules need; with
their answers `classify` gives the outcome, and the trail of how it came about. Both look at the
same labels, and an outcome names the versions that it was made for: its writer compares them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal

from msgspec import Struct

from relevo import limits
from relevo.errors import RuleFailed
from relevo.kernel.labels import Value
from relevo.router import events
from relevo.router.core import queueing, rules
from relevo.router.core.attachments import Selector, rule_of, yielded
from relevo.router.core.rules import RuleCall
from relevo.router.core.selectors import WorkerSelector, all_hold
from relevo.router.events import ErrorData
from relevo.router.wire import announcements
from relevo.router.wire.policies import ExpressionRule

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from random import Random

    from relevo.router.core.attachments import Attachment
    from relevo.router.core.rules import Answers
    from relevo.router.core.world import JobRow, World
    from relevo.router.wire.policies import ClassificationPolicy, RouterRule

QueueBy = Literal["selectors", "job", "fallback"]

_QUEUES: Final = "/queueSelectorAttachments"
_WORKERS: Final = "/workerSelectorAttachments"
_PRIORITY: Final = "/prioritizationRule"
_UNSTORABLE: Final = re.compile("[\0\ud800-\udfff]")


class Subject(Struct, frozen=True, kw_only=True):
    """The job as it was when its classification began."""

    version: int
    labels: Mapping[str, Value]
    queue_id: str | None = None
    priority: int = limits.ROUTER_PRIORITY_DEFAULT


class QueueCandidate(Struct, frozen=True):
    """A queue that a job may go to: its labels, `Id` among them, and how many jobs wait in it."""

    id: str
    labels: Mapping[str, Value]
    waiting: int = 0


class ClassificationStep(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The result of an attachment or rule of the policy."""

    place: str
    """Its place, as a JSON pointer into the policy."""
    kind: str
    value: Any = None
    """The decision of a condition, the number of the allocation drawn, the priority."""
    selectors: tuple[Selector, ...] = ()
    failure: str | None = None


class Classified(Struct, frozen=True, kw_only=True):
    """The result of a classification."""

    job_version: int
    policy_version: int
    queue_id: str
    queue_by: QueueBy
    attached: tuple[WorkerSelector, ...]
    priority: int
    trail: tuple[ClassificationStep, ...]


class Unclassifiable(Struct, frozen=True, kw_only=True):
    """A classification that failed, with at least one error."""

    job_version: int
    policy_version: int
    errors: tuple[ErrorData, ...]
    trail: tuple[ClassificationStep, ...]


def needed(policy: ClassificationPolicy, labels: Mapping[str, Value]) -> tuple[RuleCall, ...]:
    """Return the calls that must be made before a job with these labels can be classified."""
    payload = {"job": dict(labels)}
    return tuple(
        RuleCall(place, rule, payload) for place, rule in _rules(policy) if rules.is_external(rule)
    )


def evaluates(policy: ClassificationPolicy) -> bool:
    """Whether a policy has expressions, which take time."""
    return any(isinstance(rule, ExpressionRule) for _, rule in _rules(policy))


def classify(
    job: Subject,
    policy: ClassificationPolicy,
    queues: Mapping[str, QueueCandidate],
    random: Random,
    *,
    policy_version: int = 0,
    answers: Answers | None = None,
) -> Classified | Unclassifiable:
    """Apply a policy to a job; `answers` are those of the calls that `needed` lists.

    Raises nothing. The result lists every rule that failed, not only the first.
    """
    run = _Run(job, answers or {}, random)
    of_queues = run.attach(_QUEUES, policy.queue_selector_attachments)
    of_workers = run.attach(_WORKERS, policy.worker_selector_attachments)
    priority = run.priority(policy.prioritization_rule)
    chosen = _choose(of_queues, job, policy, queues)
    if chosen is None and not run.errors:
        run.fail(
            "QueueNotFound",
            f"{_no_match(of_queues)}, the job names no queue and the policy no fallbackQueueId;"
            " give one of them",
        )
    if chosen is None or run.errors:
        return Unclassifiable(
            job_version=job.version,
            policy_version=policy_version,
            errors=tuple(run.errors),
            trail=tuple(run.trail),
        )
    return Classified(
        job_version=job.version,
        policy_version=policy_version,
        queue_id=chosen[0],
        queue_by=chosen[1],
        attached=tuple(worker for worker in of_workers if isinstance(worker, WorkerSelector)),
        priority=priority,
        trail=tuple(run.trail),
    )


def _choose(
    selectors: Sequence[Selector],
    job: Subject,
    policy: ClassificationPolicy,
    queues: Mapping[str, QueueCandidate],
) -> tuple[str, QueueBy] | None:
    """Return the queue and what named it: matching selectors, else the job, else the policy."""
    matching = [one for one in _looked_at(selectors, queues) if all_hold(selectors, one.labels)]
    if matching:
        return min(matching, key=lambda one: (one.waiting, one.id)).id, "selectors"
    if job.queue_id is not None:
        return job.queue_id, "job"
    if policy.fallback_queue_id is not None:
        return policy.fallback_queue_id, "fallback"
    return None


def _looked_at(
    selectors: Sequence[Selector], queues: Mapping[str, QueueCandidate]
) -> Iterable[QueueCandidate]:
    """Return the queues that can match: none without selectors, one if its id is asked for."""
    if not selectors:
        return ()
    for selector in selectors:
        if selector.key == "Id" and selector.label_operator == "equal":
            named = queues.get(selector.value) if isinstance(selector.value, str) else None
            return () if named is None else (named,)
    return queues.values()


def _no_match(selectors: Sequence[Selector]) -> str:
    if not selectors:
        return "the policy attaches no queue selectors"
    return f"no queue has the labels that {len(selectors)} selectors ask for"


def _rules(policy: ClassificationPolicy) -> Iterator[tuple[str, RouterRule]]:
    """Yield the rules of a policy with their places, where `_Run` looks for their answers."""
    flavours: tuple[tuple[str, Iterable[Attachment]], ...] = (
        (_QUEUES, policy.queue_selector_attachments),
        (_WORKERS, policy.worker_selector_attachments),
    )
    for of, attachments in flavours:
        for index, attachment in enumerate(attachments):
            rule = rule_of(attachment)
            if rule is not None:
                yield f"{of}/{index}", rule
    if policy.prioritization_rule is not None:
        yield _PRIORITY, policy.prioritization_rule


class _Run:
    """A classification under way: it notes errors and goes on with the rest."""

    def __init__(self, job: Subject, answers: Answers, random: Random) -> None:
        self.errors: list[ErrorData] = []
        self.trail: list[ClassificationStep] = []
        self._job = job
        self._payload = {"job": dict(job.labels)}
        self._answers = answers
        self._random = random

    def fail(self, code: str, message: str, target: str | None = None) -> None:
        """Note an error. It may quote user text, and the event with it must be storable."""
        text = _UNSTORABLE.sub("?", message)
        self.errors.append(ErrorData(code=code, message=text, target=target))

    def attach(self, of: str, attachments: Iterable[Attachment]) -> tuple[Selector, ...]:
        """Return the selectors of all attachments of one kind, in their order."""
        found: tuple[Selector, ...] = ()
        for index, attachment in enumerate(attachments):
            place, kind = f"{of}/{index}", _tag(attachment)
            value_of = partial(self._value, place)
            try:
                one = yielded(attachment, self._job.labels, value_of, self._random)
                if len(found) + len(one.selectors) > limits.ROUTER_SELECTORS_MAX:
                    raise RuleFailed(
                        f"with this one there are more than {limits.ROUTER_SELECTORS_MAX} selectors"
                    )
            except RuleFailed as error:
                self._note_failure(place, kind, error)
                continue
            found += one.selectors
            self.trail.append(
                ClassificationStep(place=place, kind=kind, value=one.value, selectors=one.selectors)
            )
        return found

    def priority(self, rule: RouterRule | None) -> int:
        """Return the priority that the policy's rule gives; without one it stays."""
        if rule is None:
            return self._job.priority
        try:
            found = rules.priority(self._value(_PRIORITY, rule))
        except RuleFailed as error:
            self._note_failure(_PRIORITY, _tag(rule), error)
            return self._job.priority
        self.trail.append(ClassificationStep(place=_PRIORITY, kind=_tag(rule), value=found))
        return found

    def _value(self, place: str, rule: RouterRule) -> Any:
        return rules.value_of(rule, self._payload, self._answers, place)

    def _note_failure(self, place: str, kind: str, error: RuleFailed) -> None:
        self.fail("RuleFailed", error.message, place)
        self.trail.append(ClassificationStep(place=place, kind=kind, failure=error.message))


def _tag(part: Struct) -> str:
    return str(part.__struct_config__.tag)


def classified(
    world: World,
    job_id: str,
    round_: int,
    policy: ClassificationPolicy | None,
    outcome: Classified | Unclassifiable,
) -> bool:
    """Write an outcome, unless the job or its policy have changed since they were read."""
    job = world.jobs.get(job_id)
    if job is None or job.status != "pendingClassification":
        return False
    if (job.version, job.round) != (outcome.job_version, round_):
        return False
    if world.resources.classification_policies.get(job.policy_id or "") != policy:
        return False
    if isinstance(outcome, Unclassifiable):
        _fail(world, job, outcome.errors)
    elif outcome.queue_id not in world.resources.queues:
        gone = f"queue {outcome.queue_id!r} was deleted meanwhile; classify the job again"
        _fail(world, job, (ErrorData(code="QueueNotFound", message=gone),))
    else:
        _send(world, job, outcome)
    return True


def _send(world: World, job: JobRow, outcome: Classified) -> None:
    job.priority, job.attached = outcome.priority, outcome.attached
    world.edit(job)
    data = events.JobClassified(
        **{**announcements.job(job), "queue_id": outcome.queue_id},
        queue_details=announcements.queue(world.resources, outcome.queue_id),
        classification_policy_id=job.policy_id, priority=job.priority,
        attached_worker_selectors=announcements.selectors(job.attached),
    )  # fmt: skip
    world.tell_of_job(job, "job.classified", data)
    queueing.enqueue(world, job, outcome.queue_id)


def _fail(world: World, job: JobRow, errors: tuple[ErrorData, ...]) -> None:
    job.status = "classificationFailed"
    queueing.plan(world, job)
    world.act_on(job)
    data = events.JobClassificationFailed(
        **announcements.job(job), classification_policy_id=job.policy_id, errors=errors
    )
    world.tell_of_job(job, "job.classification_failed", data)
