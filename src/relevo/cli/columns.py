"""The columns of result tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from relevo.actors.http.reminders import ReminderView
from relevo.actors.operating.administration import ActorFault
from relevo.actors.operating.letters import ActorLetter
from relevo.actors.storing.stored_actors import ListedActor, QuarantinedActor
from relevo.dataverse.http.bulk_deletes import BulkDeleteView
from relevo.feed.http.changes import ChangeView
from relevo.feed.http.dead_letters import LetterInfo
from relevo.feed.http.units import FeedView, UnitLeaseView
from relevo.http.access.keys import KeyInfo
from relevo.jobs.http.models import JobView
from relevo.jobs.querying.views import JobCount, SuspendedCount
from relevo.kernel.leases.model import HostInfo, LeaseInfo
from relevo.messaging.http.entities import VIEWS
from relevo.messaging.http.models import MessageView
from relevo.messaging.operating.consumers import ConsumersView
from relevo.router.http.policies import (
    ClassificationPolicyView,
    DistributionPolicyView,
    ExceptionPolicyView,
    RouterQueueView,
)
from relevo.router.watching import OpenOffer
from relevo.router.wire.views import RouterJob, RouterWorker
from relevo.store.http.bulk import ItemOutcome
from relevo.store.http.containers import ContainerView
from relevo.store.http.items import ItemView

if TYPE_CHECKING:
    from msgspec import Struct

COLUMNS: Final[dict[type[Struct], tuple[str, ...]]] = {
    HostInfo: (
        "name", "live", "draining", "leases", "address", "labels", "version", "started_at",
        "end_reason",
    ),
    LeaseInfo: ("kind", "unit", "name", "state", "owner", "epoch", "handoff_to", "free_since"),
    ContainerView: (
        "name", "partition_key", "ttl_seconds", "versions_seconds", "previous_images", "created_at",
    ),
    ItemView: ("id", "partition_key", "body", "etag", "ts"),
    ItemOutcome: ("id", "created", "etag", "error"),
    ChangeView: ("id", "partition_key", "operation", "item", "previous", "ts"),
    FeedView: ("container", "name", "mode", "leases", "estimated_lag", "exact", "lag_seconds"),
    UnitLeaseView: (
        "lease_token", "owner", "state", "estimated_lag", "exact", "lag_seconds", "attempts",
    ),
    LetterInfo: (
        "id", "item_id", "partition_key", "reason", "error_type", "attempts", "last_failed_at",
    ),
    RouterQueueView: ("id", "name", "distributionPolicyId", "exceptionPolicyId", "labels"),
    DistributionPolicyView: ("id", "name", "offerExpiresAfterSeconds", "mode"),
    ClassificationPolicyView: ("id", "name", "fallbackQueueId", "prioritizationRule"),
    ExceptionPolicyView: ("id", "name", "exceptionRules"),
    RouterJob: ("id", "status", "queueId", "channelId", "priority", "labels", "enqueuedAt"),
    RouterWorker: ("id", "state", "loadRatio", "capacity", "queues", "labels"),
    OpenOffer: (
        "offer_id", "job_id", "queue_id", "channel_id", "job_priority", "job_labels", "expires_at",
    ),
    JobView: (
        "id", "name", "status", "lane", "token", "error_code", "created_at", "postpone_until",
        "progress", "attempt", "host",
    ),
    BulkDeleteView: (
        "id", "name", "status", "success", "failure", "sources", "progress", "created_at",
        "postpone_until", "pattern",
    ),
    JobCount: ("state", "status", "operation_type", "type_label", "jobs"),
    SuspendedCount: (
        "type_label", "handler", "jobs", "for_event", "for_time", "for_somebody", "since",
        "next_at",
    ),
    KeyInfo: ("id", "name", "kind", "roles", "scopes", "state", "expires_at", "last_used_at"),
    VIEWS["queue"]: ("name", "status", "ordering", "max_delivery_count", "lock_duration"),
    VIEWS["topic"]: ("name", "status", "default_message_ttl", "duplicate_detection_window"),
    VIEWS["subscription"]: ("name", "topic", "status", "ordering", "max_delivery_count"),
    ConsumersView: ("name", "sources", "state", "reason", "until", "hosts"),
    MessageView: (
        "sequence_number", "message_id", "state", "priority_class", "priority", "body",
        "properties", "lock_token", "enqueued_at", "delivery_count",
    ),
    ListedActor: ("id", "host", "revision", "updated_at", "quarantined_at"),
    ReminderView: ("name", "due", "method", "every", "recurrence", "attempt", "error"),
    ActorLetter: ("id", "kind", "actor", "method", "name", "attempt", "dead_at", "error"),
    ActorFault: ("kind", "name", "attempt", "at", "dead", "error"),
    QuarantinedActor: ("id", "quarantined_at", "quarantine_error", "schema", "bytes"),
}  # fmt: skip
"""The columns of types with too many fields for a screen; `json` has all fields. The most important
come first, because a narrow terminal omits the last ones."""
