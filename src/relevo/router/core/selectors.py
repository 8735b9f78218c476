"""Selectors: conditions of a job on a worker's labels, or of a policy on a queue's.

A list of selectors holds when each of them does; two on one key make a range. The structs are the
wire form.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Literal, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from relevo.kernel.labels import Operator, Value, holds

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

SelectorStatus = Literal["active", "expired"]


class QueueSelector(Struct, frozen=True, rename="camel"):
    """A condition on a queue: how one of its labels compares with a value."""

    key: str
    label_operator: Operator
    value: Value | None = None


class WorkerSelector(Struct, frozen=True, rename="camel"):
    """A condition on a worker, its time limit, and whether the job is expedited meanwhile.

    The clock of `expires_after_seconds` starts when the job enters a queue; `expires_at` is then
    set. An expired selector asks for nothing any more.
    """

    key: str
    label_operator: Operator
    value: Value | None = None
    expires_after_seconds: float | None = None
    expedite: bool = False
    status: SelectorStatus = "active"
    expires_at: datetime | None = None


AnySelector = TypeVar("AnySelector", bound=WorkerSelector | QueueSelector)


def started(selector: WorkerSelector, now: datetime) -> WorkerSelector:
    """Return the selector with its clock running; one that runs, or needs none, stays as it is."""
    if selector.expires_after_seconds is None or selector.expires_at is not None:
        return selector
    return replace(selector, expires_at=now + timedelta(seconds=selector.expires_after_seconds))


def asked(selector: WorkerSelector) -> WorkerSelector:
    """Return the selector as the caller wrote it, without the service's fields."""
    return replace(selector, status="active", expires_at=None)


def is_over(selector: WorkerSelector, now: datetime) -> bool:
    """Whether an active selector's time is up, so that it must be expired."""
    ends = selector.expires_at
    return selector.status == "active" and ends is not None and ends <= now


def expired(selector: WorkerSelector) -> WorkerSelector:
    """Return the selector as one that asks for nothing any more."""
    return replace(selector, status="expired")


def active(selectors: Iterable[WorkerSelector]) -> tuple[WorkerSelector, ...]:
    """Return those that have not expired."""
    return tuple(selector for selector in selectors if selector.status == "active")


def is_expedited(selectors: Iterable[WorkerSelector]) -> bool:
    """Whether a job with these goes before all others of its queue, whatever its priority."""
    return any(selector.expedite and selector.status == "active" for selector in selectors)


def all_hold(
    selectors: Iterable[WorkerSelector | QueueSelector], labels: Mapping[str, Value]
) -> bool:
    """Whether the labels are all that is asked for; expired selectors ask for nothing."""
    return first_failing(selectors, labels) is None


def first_failing(
    selectors: Iterable[AnySelector], labels: Mapping[str, Value]
) -> AnySelector | None:
    """Return the first selector that the labels do not meet, or None if they meet them all."""
    for selector in selectors:
        if isinstance(selector, WorkerSelector) and selector.status != "active":
            continue
        if not holds(selector.label_operator, labels.get(selector.key), selector.value):
            return selector
    return None
