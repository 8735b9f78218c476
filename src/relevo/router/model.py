"""Documents of jobs and workers, options of their actions, and the check of every document.

    queue = checked("queues", documents.merged("queues", stored, change))
    document_of(queue)      is stored and, with id and etag, returned

`checked` is for callers' documents: it takes enumerations in any letter case, sets every default,
and raises the narrowest error with a pointer at the fault. `stored` skips these checks.
"""

from __future__ import annotations

import functools
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeVar, get_args

import msgspec
from msgspec import Meta, Struct, field
from msgspec.structs import force_setattr

from relevo import limits
from relevo.errors import InvalidValue, MissingField, TooLarge
from relevo.kernel.decoding import converted
from relevo.kernel.labels import Operator
from relevo.router.core.selectors import QueueSelector, WorkerSelector
from relevo.router.wire import documents
from relevo.router.wire.documents import (
    check_id,
    check_key,
    check_label_value,
    check_labels,
    check_unique,
    to_instant,
    to_utc,
)
from relevo.router.wire.exception_policies import ExceptionPolicy, Note, Priority
from relevo.router.wire.policies import (
    ClassificationPolicy,
    DistributionPolicy,
    DocumentPart,
    Id,
    Labels,
    RouterQueue,
    Text,
    WorkerSelectors,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

T = TypeVar("T", bound=Struct)
Kind = Literal[
    "classificationPolicies",
    "distributionPolicies",
    "exceptionPolicies",
    "queues",
    "jobs",
    "workers",
]
Count = Annotated[int, Meta(ge=1, le=limits.ROUTER_COUNT_MAX)]


class JobNote(DocumentPart, frozen=True, kw_only=True):
    """A remark on a job; without a time it is of now."""

    message: Note
    added_at: datetime | None = None

    def __post_init__(self) -> None:
        to_utc(self, "added_at")


class MatchingMode(DocumentPart, frozen=True, kw_only=True):
    """Whether a job is matched at once, later, or when its caller says so."""

    kind: Literal["queueAndMatch", "scheduleAndSuspend", "suspend"]
    schedule_at: datetime | None = None

    def __post_init__(self) -> None:
        if self.kind != "scheduleAndSuspend":
            force_setattr(self, "schedule_at", None)
        to_instant(self, "schedule_at")

    def check(self, at: str) -> None:
        """Refuse a schedule without a time."""
        if self.kind == "scheduleAndSuspend" and self.schedule_at is None:
            raise MissingField(
                "a job that is scheduled needs scheduleAt", pointer=f"{at}/scheduleAt"
            )


class JobDocument(DocumentPart, frozen=True, kw_only=True):
    """The fields of a job that callers may write."""

    channel_id: Id
    channel_reference: Text | None = None
    queue_id: Id | None = None
    classification_policy_id: Id | None = None
    priority: Priority = limits.ROUTER_PRIORITY_DEFAULT
    disposition_code: Text | None = None
    requested_worker_selectors: WorkerSelectors = ()
    labels: Labels = field(default_factory=dict)
    tags: Labels = field(default_factory=dict)
    notes: Annotated[tuple[JobNote, ...], Meta(max_length=limits.ROUTER_NOTES_MAX)] = ()
    matching_mode: MatchingMode = MatchingMode(kind="queueAndMatch")

    def check(self, at: str) -> None:
        """Refuse a job without a queue and without a policy to find one."""
        check_id(self.channel_id, f"{at}/channelId")
        if self.queue_id is None and self.classification_policy_id is None:
            raise MissingField(
                "a job needs queueId or classificationPolicyId, which decide its queue",
                pointer=f"{at}/queueId",
            )
        check_labels({f"{at}/labels": self.labels, f"{at}/tags": self.tags})


class Channel(DocumentPart, frozen=True, kw_only=True):
    """A channel that a worker serves, and the capacity that a job on it takes."""

    channel_id: Id
    capacity_cost_per_job: Annotated[int, Meta(ge=0, le=limits.ROUTER_COUNT_MAX)]
    max_number_of_jobs: Count | None = None


class WorkerDocument(DocumentPart, frozen=True, kw_only=True):
    """The fields of a worker that callers may write."""

    queues: Annotated[tuple[Id, ...], Meta(max_length=limits.ROUTER_QUEUES_PER_WORKER_MAX)] = ()
    capacity: Count = 1
    labels: Labels = field(default_factory=dict)
    tags: Labels = field(default_factory=dict)
    channels: Annotated[
        tuple[Channel, ...], Meta(max_length=limits.ROUTER_CHANNELS_PER_WORKER_MAX)
    ] = ()
    available_for_offers: bool = False
    max_concurrent_offers: Count | None = None

    def __post_init__(self) -> None:
        force_setattr(self, "queues", tuple(dict.fromkeys(self.queues)))

    def check(self, at: str) -> None:
        """Refuse a channel that is there twice, and labels beyond the bounds."""
        for number, one in enumerate(self.queues):
            check_id(one, f"{at}/queues/{number}")
        channels = [channel.channel_id for channel in self.channels]
        for number, one in enumerate(channels):
            check_id(one, f"{at}/channels/{number}/channelId")
        check_unique(channels, f"{at}/channels", "channelId")
        check_labels({f"{at}/labels": self.labels, f"{at}/tags": self.tags})


class CancelJobOptions(DocumentPart, frozen=True, kw_only=True):
    """The note and disposition code of a canceled job."""

    note: Note | None = None
    disposition_code: Text | None = None


class CompleteJobOptions(DocumentPart, frozen=True, kw_only=True):
    """The note of a completed job."""

    note: Note | None = None


class CloseJobOptions(DocumentPart, frozen=True, kw_only=True):
    """The disposition code and note of a closed job, and when it is closed."""

    disposition_code: Text | None = None
    close_at: datetime | None = None
    note: Note | None = None

    def __post_init__(self) -> None:
        to_instant(self, "close_at")


class UnassignJobOptions(DocumentPart, frozen=True, kw_only=True):
    """Whether a job that is taken back waits for its caller."""

    suspend_matching: bool = False


class DeclineJobOfferOptions(DocumentPart, frozen=True, kw_only=True):
    """When a declined job may be offered to the worker again."""

    retry_offer_at: datetime | None = None

    def __post_init__(self) -> None:
        to_instant(self, "retry_offer_at")


class ReclassifyJobOptions(DocumentPart, frozen=True, kw_only=True):
    """No options yet."""


_TYPES: Final[Mapping[str, type[DocumentPart]]] = {
    "classificationPolicies": ClassificationPolicy,
    "distributionPolicies": DistributionPolicy,
    "exceptionPolicies": ExceptionPolicy,
    "queues": RouterQueue,
    "jobs": JobDocument,
    "workers": WorkerDocument,
}
_WITH_RULES: Final = frozenset({"classificationPolicies", "distributionPolicies"})


def checked(kind: Kind, document: Mapping[str, Any] | None, *, now: datetime | None = None) -> Any:
    """Return a merged document as its struct; raises with a pointer at the fault.

    With `now`, notes without a time are of then.
    """
    plain = documents.settled(msgspec.to_builtins(document or {}))
    if kind in _WITH_RULES:
        _check_expressions(plain)
    found = read(_TYPES[kind], plain)
    if now is not None and isinstance(found, JobDocument):
        notes = (
            note if note.added_at else msgspec.structs.replace(note, added_at=now)
            for note in found.notes
        )
        return msgspec.structs.replace(found, notes=tuple(notes))
    return found


def stored(kind: Kind, document: Mapping[str, Any]) -> Any:
    """Return the struct of a document that was checked when it was written."""
    return msgspec.convert(document, _TYPES[kind])


def read(kind: type[T], value: Any, at: str = "") -> T:
    """Return a plain value as a struct of this vocabulary, checked."""
    found = converted(_canonical(value), kind, at)
    _check(found, at)
    return found


def document_of(part: Struct) -> documents.Document:
    """Return a struct as a plain document: without unset fields, with empty ones."""
    document = documents.written(documents.without_nulls(msgspec.to_builtins(part)))
    assert isinstance(document, dict)
    return document


_ENUMERATIONS: Final[dict[str, dict[str, str]]] = {
    name: {one.casefold(): one for one in values}
    for name, values in {
        "kind": [
            *("static", "expression", "function", "webhook", "directMap"),
            *("conditional", "passThrough", "ruleEngine", "weightedAllocation"),
            *("bestWorker", "longestIdle", "roundRobin", "queueLength", "waitTime"),
            *("cancel", "manualReclassify", "reclassify"),
            *("queueAndMatch", "scheduleAndSuspend", "suspend"),
        ],
        "labelOperator": get_args(Operator),
        "language": ["powerFx"],
        "scoringParameters": ["jobLabels", "workerSelectors"],
    }.items()
}


def _canonical(value: Any, names: Mapping[str, str] | None = None) -> Any:
    """Return a value with enumerations as we spell them; `names` are those of this place."""
    match value:
        case dict():
            return {
                name: each
                if name in documents.MAPS or name == "value"
                else _canonical(each, _ENUMERATIONS.get(name))
                for name, each in value.items()
            }
        case list():
            return [_canonical(each, names) for each in value]
        case str() if names is not None:
            return names.get(value.casefold(), value)
        case _:
            return value


def _check_expressions(document: Any) -> None:
    """Refuse more expressions than a policy may have, before any is parsed."""
    size = sum(len(one.encode("utf-8", "surrogatepass")) for one in _expressions(document))
    if size > limits.EXPRESSION_POLICY_BYTES_MAX:
        raise TooLarge(
            f"the expressions of this policy have {size:,} bytes together and may have"
            f" {limits.EXPRESSION_POLICY_BYTES_MAX:,}; shorten them, or use several policies"
        )


def _expressions(value: Any) -> Iterator[str]:
    match value:
        case dict():
            for name, each in value.items():
                if name == "expression" and isinstance(each, str):
                    yield each
                elif name not in documents.OWN_WORDS:
                    yield from _expressions(each)
        case list():
            for each in value:
                yield from _expressions(each)
        case _:
            pass


_PLAIN: Final = frozenset({str, int, float, bool, type(None), dict, datetime})
"""Types without inner checks."""


@functools.cache
def _names(kind: type[Struct]) -> tuple[tuple[str, str], ...]:
    """Return the names of a struct's fields, ours and those of the wire."""
    return tuple((one.name, one.encode_name) for one in msgspec.structs.fields(kind))


def _check(value: Any, at: str) -> None:
    match value:
        case QueueSelector() | WorkerSelector():
            _check_selector(value, at)
        case Struct():
            for name, wire in _names(type(value)):
                each = getattr(value, name)
                if type(each) not in _PLAIN:
                    _check(each, f"{at}/{wire}")
            if isinstance(value, DocumentPart):
                value.check(at)
        case tuple():
            for number, each in enumerate(value):
                _check(each, f"{at}/{number}")
        case _:
            pass


def _check_selector(selector: QueueSelector | WorkerSelector, at: str) -> None:
    check_key(selector.key, f"{at}/key")
    if selector.value is not None:
        check_label_value(selector.value, f"{at}/value")
    seconds = getattr(selector, "expires_after_seconds", None)
    if seconds is not None and not 0 < seconds <= limits.ROUTER_SECONDS_MAX:
        raise InvalidValue(
            f"a selector expires after more than 0 and at most {limits.ROUTER_SECONDS_MAX:.0f}"
            f" seconds, not {seconds}",
            pointer=f"{at}/expiresAfterSeconds",
        )
