"""The catalogue of event types, and the rows that an append stores. Pure.

Every part lists its event types as data. An append refuses a type that is not in the catalogue, and
the reference of events is generated from the same list.
"""

from __future__ import annotations

import difflib
import re
import unicodedata
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct

from relevo.errors import Conflict, InvalidValue, TooLarge
from relevo.kernel.events import model
from relevo.kernel.events.model import EventRow

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from relevo.kernel.events.model import Event, Recorded

NAME: Final = re.compile(r"[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)+")
SCHEMA_MAX: Final = 32_767
_encode: Final = msgspec.json.Encoder().encode


class EventType(Struct, frozen=True, kw_only=True):
    """A kind of event.

    >>> class Completed(Struct, frozen=True):
    ...     attempts: int
    >>> EventType(name="relevo.job.completed", payload=Completed, sentence="A job is done.").version
    1
    """

    name: str
    """Lower-case words with dots, from the general to the special, the last in the past tense."""
    payload: type[Struct]
    """The struct of the event's data. Members may be added under the same version."""
    sentence: str
    """The event, in one sentence."""
    version: int = 1
    """Rises when readers of the payload must be changed."""

    def __post_init__(self) -> None:
        if NAME.fullmatch(self.name) is None:
            raise InvalidValue(
                f"an event type is named like 'relevo.job.completed', not {self.name!r}"
            )
        if not self.sentence[:1].isupper() or not self.sentence.endswith("."):
            raise InvalidValue(f"event type {self.name!r} needs a sentence, not {self.sentence!r}")
        if not 1 <= self.version <= SCHEMA_MAX:
            raise InvalidValue(
                f"the version of event type {self.name!r} is 1 to {SCHEMA_MAX}, not {self.version}"
            )


class Catalogue:
    """The event types of one app, by name."""

    def __init__(self, types: Iterable[EventType] = ()) -> None:
        self._types: dict[str, EventType] = {}
        self.register(*types)

    def register(self, *types: EventType) -> None:
        """Add types; one of that name must not be there unless it is the same."""
        for one in types:
            if self._types.setdefault(one.name, one) != one:
                raise Conflict(
                    f"event type {one.name!r} is registered twice with different meanings;"
                    " give the other one its own name"
                )

    def __iter__(self) -> Iterator[EventType]:
        return iter(sorted(self._types.values(), key=lambda one: one.name))

    def __contains__(self, name: str) -> bool:
        return name in self._types

    def of(self, event: Event) -> EventType:
        """Return the type of an event; refuse an unknown one and data of another struct."""
        found = self._types.get(event.type)
        if found is None:
            near = difflib.get_close_matches(event.type, self._types, 1)
            hint = f"did you mean {near[0]!r}?" if near else "register it in the catalogue first"
            raise InvalidValue(f"there is no event type {event.type!r}; {hint}", pointer="type")
        if type(event.data) is not found.payload:
            raise InvalidValue(
                f"data of event {event.type!r} is a {found.payload.__name__}, not a"
                f" {type(event.data).__name__}",
                pointer="data",
            )
        return found

    def row(self, event: Event) -> EventRow:
        """Return an event as it is stored; refuse one that the log does not take."""
        kind = self.of(event)
        if (
            _has_control(event.subject)
            or not 1 <= len(event.subject.encode()) <= model.SUBJECT_BYTES_MAX
        ):
            raise InvalidValue(
                f"the subject of event {event.type!r} is text without control characters of 1 to"
                f" {model.SUBJECT_BYTES_MAX} bytes, not {event.subject[:100]!r}",
                pointer="subject",
            )
        if not 0 <= event.version <= model.VERSION_MAX:
            raise InvalidValue(
                f"the version of {event.subject!r} is 0 to 2^63 - 1, not {event.version}",
                pointer="version",
            )
        body = _encode(event.data)
        if len(body) > model.DATA_BYTES_MAX:
            raise TooLarge(
                f"data of event {event.type!r} of {event.subject!r} has {len(body)} bytes; at most"
                f" {model.DATA_BYTES_MAX} are taken. Store it elsewhere and say where"
            )
        return EventRow(kind.name, kind.version, event.subject, event.version, body.decode())

    def payload(self, event: Recorded) -> Any:
        """Return an event's data as the struct of its type.

        Plain values if this program does not know the type, or knows another version of it.
        """
        known = self._types.get(event.type)
        if known is None or known.version != event.schema:
            return event.data
        return msgspec.json.decode(event.body, type=known.payload)

    def reference(self) -> str:
        """Return the reference of all types as Markdown: a table per type, ordered by name."""
        return "\n".join(_section(one) for one in self)


def _section(one: EventType) -> str:
    rows = [
        f"| `{member.encode_name}` | {_type_name(member.type)} | {_yes(member.required)} |"
        for member in msgspec.structs.fields(one.payload)
    ]
    table = ["| member | type | always |", "|---|---|---|", *rows, ""] if rows else []
    return "\n".join([f"## `{one.name}`", "", f"{one.sentence} Version {one.version}.", "", *table])


def _yes(said: bool) -> str:
    return "yes" if said else "no"


def _type_name(annotation: Any) -> str:
    name = annotation.__name__ if isinstance(annotation, type) else str(annotation)
    return f"`{name}`".replace("|", "\\|")


def _has_control(text: str) -> bool:
    return not text.isprintable() and any(unicodedata.category(one) in ("Cc", "Cs") for one in text)
