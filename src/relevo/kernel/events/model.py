"""Types of the event log: events, pages and positions of readers. Pure."""

from __future__ import annotations

import base64
import binascii
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

import msgspec
from msgspec import Struct

from relevo import limits
from relevo.errors import BadContinuation, InvalidValue
from relevo.kernel.postgres.restores import Lost

if TYPE_CHECKING:
    from collections.abc import Iterator

By = Literal["subject", "pipeline"]
"""The choice of an event's stripe, and so of its order."""
Start = Literal["now", "beginning"] | datetime
"""Everything committed from now on, everything kept, or everything younger than an instant."""

LOG_ID: Final = 0
"""The number of the log among the containers, which are counted from 1."""
LOG_NAME: Final = "relevo.events"
TOPIC: Final = f"feed:{LOG_ID}"
"""Sent after the commit of events; readers of the log wait for it."""
DATA_BYTES_MAX: Final = 512 * limits.KIB
SUBJECT_BYTES_MAX: Final = 1_100
EVENTS_PER_APPEND_MAX: Final = 10_000
VERSION_MAX: Final = 2**63 - 1
PIPELINE_MAX: Final = 2**31 - 1


class Event(Struct, frozen=True):
    """Something that happened to a subject, to be appended in the transaction that makes it so."""

    type: str
    """A name of the catalogue, such as "relevo.job.completed"."""
    subject: str
    """The subject of the event, such as `job/7f3a`."""
    version: int
    """The subject's version after it; of two events of a subject, the higher is the later."""
    data: Struct
    """The payload: the struct that the catalogue has for this type."""


class EventRow(NamedTuple):
    """An event as it is appended."""

    type: str
    schema: int
    """The version of the type's payload."""
    subject: str
    version: int
    body: str
    """The payload's JSON."""


class Recorded(Struct, frozen=True, kw_only=True):
    """An event as the log holds it."""

    log: str
    """The incarnation of the log."""
    stripe: int
    lsn: int
    at: datetime
    type: str
    schema: int
    """The version of the type's payload."""
    subject: str
    version: int
    body: msgspec.Raw = msgspec.field(name="data")
    """The payload's JSON."""

    @property
    def id(self) -> str:
        """Stable over retries, replays and readers: fits as an idempotency key."""
        return f"{self.log}:{self.stripe}:{self.lsn}:0"

    @property
    def data(self) -> Any:
        """The payload as plain values; `Catalogue.payload` gives it as its struct."""
        return msgspec.json.decode(self.body)


class Stripe(Struct, frozen=True, kw_only=True):
    """A part of the log with an order of its own."""

    id: int
    kind: By
    trimmed_lsn: int
    """Nothing up to this LSN is there any more."""


class LogState(Struct, frozen=True, kw_only=True):
    """The log as one look showed it."""

    incarnation: str
    kept: timedelta
    trimmed_before: datetime | None
    """Everything before this instant was trimmed; None if nothing ever was."""
    last_lsn: int
    lost: Lost
    """Positions here belong to events that a restore has lost."""
    stripes: tuple[Stripe, ...]


class EventPage(Struct, frozen=True, kw_only=True):
    """Some events, by LSN, and where to go on."""

    events: tuple[Recorded, ...]
    continuation: str
    caught_up: bool
    """True when nothing that was committed before this read is pending."""
    began_at: str
    """The continuation at which it begins."""


class LogPlace(Struct, frozen=True, array_like=True):
    """The position of a reader of all stripes: the LSN it has seen of each."""

    incarnation: str
    positions: dict[int, int]


def encode(place: LogPlace) -> str:
    """Return a place as an opaque text that travels."""
    return base64.urlsafe_b64encode(msgspec.json.encode(place)).decode().rstrip("=")


def decode(text: str, state: LogState) -> LogPlace:
    """Return the position in a continuation; refuse one that is damaged or of another log."""
    try:
        place = _read(text)
    except (binascii.Error, ValueError) as error:
        raise BadContinuation("the continuation cannot be read; pass it as it was given") from error
    if place.incarnation != state.incarnation:
        raise BadContinuation("the continuation belongs to the event log of another database")
    if place.positions.keys() != {stripe.id for stripe in state.stripes}:
        raise BadContinuation("the continuation names other stripes than the event log has")
    return place


def positions_behind(page: EventPage) -> Iterator[str]:
    """Yield the continuation behind each event of a page."""
    place = _read(page.began_at)
    positions = dict(place.positions)
    for event in page.events:
        positions[event.stripe] = event.lsn
        yield encode(LogPlace(place.incarnation, positions))


def _read(text: str) -> LogPlace:
    raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    return msgspec.json.decode(raw, type=LogPlace)


def check_start(start: object) -> Start:
    """Return a start option; refuse anything else by name."""
    if start == "now" or start == "beginning":
        return start
    if isinstance(start, datetime) and start.tzinfo is not None:
        return start
    raise InvalidValue(f"start is 'now', 'beginning' or a datetime with a time zone, not {start!r}")
