"""The selectors that attachments of a classification policy yield for a job.

The two flavours, for queues and for workers, have five kinds each that mean the same. Pure: values
of rules come from the caller, the draw from the given `Random`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias, assert_never

from msgspec import Struct

from relevo.errors import RuleFailed
from relevo.router.core import rules
from relevo.router.core.selectors import QueueSelector, WorkerSelector
from relevo.router.wire import policies as parts

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from random import Random

    from relevo.kernel.labels import Value

Selector: TypeAlias = QueueSelector | WorkerSelector
Attachment: TypeAlias = parts.QueueAttachment | parts.WorkerAttachment


class Yield(Struct, frozen=True):
    """The selectors of an attachment, and the decisions on the way."""

    selectors: tuple[Selector, ...]
    value: bool | int | None = None
    """Whether its condition holds, or which allocation was drawn."""


def yielded(
    attachment: Attachment,
    labels: Mapping[str, Value],
    value_of: Callable[[parts.RouterRule], Any],
    random: Random,
) -> Yield:
    """Return the selectors for a job with these labels; raises `RuleFailed`."""
    match attachment:
        case parts.StaticQueueAttachment():
            return Yield((attachment.queue_selector,))
        case parts.StaticWorkerAttachment():
            return Yield((attachment.worker_selector,))
        case parts.ConditionalQueueAttachment() | parts.ConditionalWorkerAttachment():
            holds = rules.condition(value_of(attachment.condition))
            return Yield(_selectors(attachment) if holds else (), holds)
        case parts.PassThroughQueueAttachment() | parts.PassThroughWorkerAttachment():
            return Yield(_passed(attachment, labels))
        case parts.RuleEngineQueueAttachment(rule=rule):
            return Yield(rules.queue_selectors(rule, value_of(rule)))
        case parts.RuleEngineWorkerAttachment(rule=rule):
            return Yield(rules.worker_selectors(rule, value_of(rule)))
        case parts.WeightedQueueAttachment() | parts.WeightedWorkerAttachment():
            drawn = _drawn([allocation.weight for allocation in attachment.allocations], random)
            return Yield(_selectors(attachment.allocations[drawn]), drawn)
        case _:
            assert_never(attachment)


def rule_of(attachment: Attachment) -> parts.RouterRule | None:
    """Return the rule whose value an attachment needs, if it has one."""
    match attachment:
        case parts.ConditionalQueueAttachment() | parts.ConditionalWorkerAttachment():
            return attachment.condition
        case parts.RuleEngineQueueAttachment() | parts.RuleEngineWorkerAttachment():
            return attachment.rule
        case _:
            return None


def _selectors(
    of: parts.ConditionalQueueAttachment
    | parts.ConditionalWorkerAttachment
    | parts.QueueAllocation
    | parts.WorkerAllocation,
) -> tuple[Selector, ...]:
    if isinstance(of, parts.ConditionalQueueAttachment | parts.QueueAllocation):
        return of.queue_selectors
    return of.worker_selectors


def _passed(
    attachment: parts.PassThroughQueueAttachment | parts.PassThroughWorkerAttachment,
    labels: Mapping[str, Value],
) -> tuple[Selector, ...]:
    """Ask for the job's own label; nothing if it has none."""
    value = labels.get(attachment.key)
    if value is None:
        return ()
    key, operator = attachment.key, attachment.label_operator
    if isinstance(attachment, parts.PassThroughQueueAttachment):
        return (QueueSelector(key, operator, value),)
    expiry = attachment.expires_after_seconds
    return (WorkerSelector(key, operator, value, expires_after_seconds=expiry),)


def _drawn(weights: Sequence[float], random: Random) -> int:
    """Return the index of one weight, drawn in proportion; never one that is 0."""
    drawable = [index for index, weight in enumerate(weights) if weight > 0]
    if not drawable:
        raise RuleFailed("no allocation has a weight above 0; give at least one")
    return random.choices(drawable, [weights[index] for index in drawable])[0]
