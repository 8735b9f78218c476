"""The bodies of deliveries: an event in the form of CloudEvents 1.0 or of Event Grid. Pure.

Events of the job router have the names, subjects and fields that Azure publishes, so that a handler
written for those works. All others have Relevo's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

import msgspec

from relevo.router.wire import envelopes
from relevo.router.wire.envelopes import CloudEvent, EventGridEvent

if TYPE_CHECKING:
    from datetime import datetime
    from uuid import UUID

    from relevo.kernel.events import Recorded

EventFormat = Literal["cloudevents", "eventgrid"]
VALIDATION_TYPE: Final = "Microsoft.EventGrid.SubscriptionValidationEvent"
_CLOUD_EVENTS: Final = "application/cloudevents+json; charset=utf-8"
_JSON: Final = "application/json; charset=utf-8"


class _VersionedCloudEvent(CloudEvent, frozen=True, kw_only=True):
    """With what orders the events of a subject, and the version of the data's form."""

    datacontenttype: str = "application/json"
    subjectversion: str
    dataversion: str


class _Handshake(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    validation_code: str
    validation_url: str | None = None


class _Answer(msgspec.Struct, frozen=True, rename="camel"):
    validation_response: str


def body(recorded: Recorded, form: EventFormat) -> bytes:
    """Return an event as it is sent: Event Grid sends arrays."""
    shown = document(recorded, form)
    return b"[" + shown + b"]" if form == "eventgrid" else shown


def document(recorded: Recorded, form: EventFormat) -> bytes:
    """Return the JSON of an event."""
    shown = _event_grid(recorded) if form == "eventgrid" else _cloud_event(recorded)
    return msgspec.json.encode(shown)


def headers(form: EventFormat, webhook: str, attempt: int, schema: int) -> dict[str, str]:
    """Return the headers of a delivery that its form asks for; `attempt` counts from 1."""
    if form == "cloudevents":
        return {"content-type": _CLOUD_EVENTS}
    return {
        "content-type": _JSON, "aeg-event-type": "Notification", "aeg-subscription-name": webhook,
        "aeg-delivery-count": str(attempt - 1), "aeg-data-version": f"{schema}.0",
        "aeg-metadata-version": "1",
    }  # fmt: skip


def validation(code: UUID, url: str | None, log: str, now: datetime) -> bytes:
    """Return the event by which Event Grid asks an endpoint whether it wants events."""
    event = EventGridEvent(
        id=str(code), topic=f"/relevo/{log}", subject="", event_type=VALIDATION_TYPE,
        event_time=now, data_version="2",
        data=msgspec.Raw(
            msgspec.json.encode(_Handshake(validation_code=str(code), validation_url=url))
        ),
    )  # fmt: skip
    return msgspec.json.encode([event])


def validation_headers(webhook: str) -> dict[str, str]:
    """Return the headers of the validation event."""
    return {
        "content-type": _JSON, "aeg-event-type": "SubscriptionValidation",
        "aeg-subscription-name": webhook, "aeg-delivery-count": "0",
    }  # fmt: skip


def confirms(answer: bytes, code: UUID) -> bool:
    """Return whether an endpoint has answered the validation event with its code."""
    try:
        found = msgspec.json.decode(answer, type=_Answer)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False
    return found.validation_response.lower() == str(code)


def _cloud_event(recorded: Recorded) -> CloudEvent:
    shown = envelopes.cloud_event(recorded)
    return _VersionedCloudEvent(
        id=recorded.id,
        source=envelopes.source(recorded),
        subject=shown.subject if shown else recorded.subject,
        type=shown.type if shown else recorded.type,
        time=recorded.at,
        data=recorded.body,
        subjectversion=str(recorded.version),
        dataversion=str(recorded.schema),
    )


def _event_grid(recorded: Recorded) -> EventGridEvent:
    return envelopes.event_grid(recorded) or EventGridEvent(
        id=recorded.id, topic=envelopes.source(recorded), subject=recorded.subject,
        event_type=recorded.type, event_time=recorded.at, data_version=f"{recorded.schema}.0",
        data=recorded.body,
    )  # fmt: skip
