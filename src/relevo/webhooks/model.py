"""Types of webhooks."""

from __future__ import annotations

from datetime import datetime
from typing import Literal
from uuid import UUID

from msgspec import Struct

from relevo.webhooks.core.envelopes import EventFormat

WebhookState = Literal["validating", "enabled", "paused", "disabled"]
DeliveryState = Literal["waiting", "delivered", "dead"]


class WebhookSecret(Struct, frozen=True, kw_only=True):
    """A secret that signs, without itself."""

    id: UUID
    created_at: datetime
    expires_at: datetime | None
    """When it stops to count; null for the present one."""


class Webhook(Struct, frozen=True, kw_only=True):
    """Where events are sent, and which."""

    name: str
    url: str
    """Without its query, which often holds a secret."""
    format: EventFormat
    types: tuple[str, ...]
    filter: str | None
    retry: tuple[float, ...]
    """Seconds between the attempts for one event."""
    state: WebhookState
    reason: str | None
    """Why it is paused or disabled."""
    since: datetime
    """Events from this instant on are sent."""
    created_at: datetime
    changed_at: datetime
    waiting: int
    """Events that are not delivered yet; counted up to 1,000."""
    dead: int
    """Dead letters; counted up to 1,000."""
    failures: int
    """Failed attempts since the last success."""
    failing_since: datetime | None
    last_attempt_at: datetime | None
    last_success_at: datetime | None
    last_error: str | None
    secrets: tuple[WebhookSecret, ...]


class WebhookCreated(Struct, frozen=True, kw_only=True):
    """A new webhook, and the only sight of its secret."""

    webhook: Webhook
    secret: str

    def __repr__(self) -> str:
        return f"WebhookCreated(webhook={self.webhook!r}, secret=…)"


class SecretRotated(Struct, frozen=True, kw_only=True):
    """A new secret, and until when the ones before still sign."""

    secret: str
    old_until: datetime

    def __repr__(self) -> str:
        return f"SecretRotated(secret=…, old_until={self.old_until!r})"


class Delivery(Struct, frozen=True, kw_only=True):
    """An event for a webhook."""

    id: int
    event_id: str
    type: str
    subject: str
    version: int
    at: datetime
    """When the event happened."""
    state: DeliveryState
    attempts: int
    due: datetime
    """When it is tried next; counts while it is waiting."""
    last_attempt_at: datetime | None
    status: int | None
    """The status of the last answer; null if there was none."""
    error: str | None


class DeliveriesChanged(Struct, frozen=True):
    """How many deliveries a command has changed."""

    changed: int
