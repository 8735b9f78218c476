"""The columns of result tables, by the names of types, which need not be imported."""

from __future__ import annotations

from typing import Final

COLUMNS: Final[dict[str, tuple[str, ...]]] = {
    "HostInfo": (
        "name", "live", "draining", "leases", "address", "labels", "version", "started_at",
        "end_reason",
    ),
    "LeaseInfo": ("kind", "unit", "name", "state", "owner", "epoch", "handoff_to", "free_since"),
    "ContainerView": (
        "name", "partition_key", "ttl_seconds", "versions_seconds", "previous_images", "created_at",
    ),
    "ItemView": ("id", "partition_key", "body", "etag", "ts"),
    "ItemOutcome": ("id", "created", "etag", "error"),
    "ChangeView": ("id", "partition_key", "operation", "item", "previous", "ts"),
    "FeedView": ("container", "name", "mode", "leases", "estimated_lag", "exact", "lag_seconds"),
    "UnitLeaseView": (
        "lease_token", "owner", "state", "estimated_lag", "exact", "lag_seconds", "attempts",
    ),
    "LetterInfo": (
        "id", "item_id", "partition_key", "reason", "error_type", "attempts", "last_failed_at",
    ),
    "RouterQueueView": ("id", "name", "distributionPolicyId", "exceptionPolicyId", "labels"),
    "DistributionPolicyView": ("id", "name", "offerExpiresAfterSeconds", "mode"),
    "ClassificationPolicyView": ("id", "name", "fallbackQueueId", "prioritizationRule"),
    "ExceptionPolicyView": ("id", "name", "exceptionRules"),
    "RouterJob": ("id", "status", "queueId", "channelId", "priority", "labels", "enqueuedAt"),
    "RouterWorker": ("id", "state", "loadRatio", "capacity", "queues", "labels"),
    "OpenOffer": (
        "offer_id", "job_id", "queue_id", "channel_id", "job_priority", "job_labels", "expires_at",
    ),
    "JobView": (
        "id", "name", "status", "lane", "token", "error_code", "created_at", "postpone_until",
        "progress", "attempt", "host",
    ),
    "BulkDeleteView": (
        "id", "name", "status", "success", "failure", "sources", "progress", "created_at",
        "postpone_until", "pattern",
    ),
    "JobCount": ("state", "status", "operation_type", "type_label", "jobs"),
    "SuspendedCount": (
        "type_label", "handler", "jobs", "for_event", "for_time", "for_somebody", "since",
        "next_at",
    ),
    "KeyInfo": ("id", "name", "kind", "roles", "scopes", "state", "expires_at", "last_used_at"),
    "QueueView": ("name", "status", "ordering", "max_delivery_count", "lock_duration"),
    "TopicView": ("name", "status", "default_message_ttl", "duplicate_detection_window"),
    "SubscriptionView": ("name", "topic", "status", "ordering", "max_delivery_count"),
    "ConsumersView": ("name", "sources", "state", "reason", "until", "hosts"),
    "MessageView": (
        "sequence_number", "message_id", "state", "priority_class", "priority", "body",
        "properties", "lock_token", "enqueued_at", "delivery_count",
    ),
    "AuditEntry": ("at", "by_name", "operation", "resource", "outcome", "reason", "by_id"),
    "Webhook": ("name", "state", "url", "types", "waiting", "dead", "failing_since", "last_error"),
    "Delivery": (
        "id", "type", "subject", "state", "attempts", "status", "error", "due", "at",
    ),
    "ListedActor": ("id", "host", "revision", "updated_at", "quarantined_at"),
    "ReminderView": ("name", "due", "method", "every", "recurrence", "attempt", "error"),
    "ActorLetter": ("id", "kind", "actor", "method", "name", "attempt", "dead_at", "error"),
    "ActorFault": ("kind", "name", "attempt", "at", "dead", "error"),
    "QuarantinedActor": ("id", "quarantined_at", "quarantine_error", "schema", "bytes"),
}  # fmt: skip
"""The columns of types with too many fields for a screen; `json` has all fields. The most important
come first, because a narrow terminal omits the last ones."""
