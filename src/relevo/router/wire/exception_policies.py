"""Exception policies: rules with their triggers and actions. Wire form."""

from __future__ import annotations

from typing import Annotated, Any, Final, TypeAlias
from uuid import UUID, uuid5

import msgspec
from msgspec import Meta, field
from msgspec.structs import force_setattr

from relevo import limits
from relevo.router.wire.documents import (
    check_labels,
    check_unique,
)
from relevo.router.wire.policies import DocumentPart, Id, Seconds, Text, WorkerSelectors

Note = Annotated[str, Meta(max_length=limits.ROUTER_NOTE_LENGTH_MAX)]
Priority = Annotated[int, Meta(ge=limits.ROUTER_PRIORITY_MIN, le=limits.ROUTER_PRIORITY_MAX)]
_ACTION_IDS: Final = UUID("6f0b1d0c-3c0f-5e0a-9c39-1d2a7c1f4b60")
"""An action without an id gets one from its rule and place: sent twice, it is the same."""


class QueueLengthTrigger(
    DocumentPart, frozen=True, kw_only=True, tag_field="kind", tag="queueLength"
):
    """Fires for a job that finds so many others in its queue."""

    threshold: Annotated[int, Meta(ge=0, le=limits.ROUTER_COUNT_MAX)]


class WaitTimeTrigger(DocumentPart, frozen=True, kw_only=True, tag_field="kind", tag="waitTime"):
    """Fires for a job that has waited so long."""

    threshold_seconds: Seconds


ExceptionTrigger: TypeAlias = QueueLengthTrigger | WaitTimeTrigger


class _Action(DocumentPart, frozen=True, kw_only=True, tag_field="kind"):
    id: Id | None = None
    """Given by the service if the caller gives none."""


class CancelExceptionAction(_Action, frozen=True, kw_only=True, tag="cancel"):
    """Cancels the job."""

    note: Note | None = None
    disposition_code: Text = "Cancelled"


class ManualReclassifyExceptionAction(_Action, frozen=True, kw_only=True, tag="manualReclassify"):
    """Sets queue and priority where given, and asks more of workers."""

    queue_id: Id | None = None
    priority: Priority | None = None
    worker_selectors: WorkerSelectors = ()


class ReclassifyExceptionAction(_Action, frozen=True, kw_only=True, tag="reclassify"):
    """Changes labels and policy where given, and has the job classified."""

    classification_policy_id: Id | None = None
    labels_to_upsert: dict[str, Any] = field(default_factory=dict)

    def check(self, at: str) -> None:
        """Refuse labels beyond the bounds; null is a label to be removed."""
        given = {key: value for key, value in self.labels_to_upsert.items() if value is not None}
        check_labels({f"{at}/labelsToUpsert": given})


ExceptionAction: TypeAlias = (
    CancelExceptionAction | ManualReclassifyExceptionAction | ReclassifyExceptionAction
)


class ExceptionRule(DocumentPart, frozen=True, kw_only=True):
    """A trigger, and the actions on the job."""

    id: Id
    trigger: ExceptionTrigger
    actions: Annotated[tuple[ExceptionAction, ...], Meta(max_length=limits.ROUTER_RULES_MAX)]

    def __post_init__(self) -> None:
        if any(action.id is None for action in self.actions):
            named = (
                one if one.id else msgspec.structs.replace(one, id=self._id_of(number))
                for number, one in enumerate(self.actions)
            )
            force_setattr(self, "actions", tuple(named))

    def _id_of(self, number: int) -> str:
        return str(uuid5(_ACTION_IDS, f"{number}/{self.id}"))


class ExceptionPolicy(DocumentPart, frozen=True, kw_only=True):
    """Rules for queues that are too long and jobs that wait too long."""

    name: Text | None = None
    exception_rules: Annotated[
        tuple[ExceptionRule, ...], Meta(max_length=limits.ROUTER_RULES_MAX)
    ] = ()

    def check(self, at: str) -> None:
        """Refuse duplicate ids of rules."""
        ids = [rule.id for rule in self.exception_rules]
        check_unique(ids, f"{at}/exceptionRules", "id")
