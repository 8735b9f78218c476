"""Events of webhooks themselves."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from relevo.kernel.events import EventType

OWN_SUBJECT: Final = "webhook/"
"""How the subject of an event of a webhook begins; its name follows."""


class WebhookDisabled(Struct, frozen=True, kw_only=True, rename="camel"):
    """Why a webhook gets nothing any more."""

    name: str
    reason: str


class WebhookLetter(Struct, frozen=True, kw_only=True, rename="camel"):
    """An event that could not be delivered."""

    name: str
    delivery_id: int
    event_type: str
    event_subject: str
    attempts: int
    error: str


DISABLED: Final = "relevo.webhook.disabled"
DEAD_LETTERED: Final = "relevo.webhook.dead_lettered"
TYPES: Final = (
    EventType(
        name=DISABLED,
        payload=WebhookDisabled,
        sentence="A webhook was disabled, because of what its receiver answered or did not.",
    ),
    EventType(
        name=DEAD_LETTERED,
        payload=WebhookLetter,
        sentence="An event for a webhook became a dead letter after its last attempt.",
    ),
)
