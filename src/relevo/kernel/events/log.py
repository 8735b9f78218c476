"""The event log: the catalogue of event types, append, read, and housekeeping.

Every part lists its event types as data and registers them. An append refuses a type that is not
registered, and the reference of events is generated from the same list.
"""

from __future__ import annotations

import difflib
import re
import unicodedata
from typing import TYPE_CHECKING, Any, Final

import msgspec
import structlog
from msgspec import Struct

from relevo import limits
from relevo.errors import Conflict, InvalidValue, TooLarge
from relevo.kernel.events import model, reading
from relevo.kernel.events.model import EventPage, LogPlace
from relevo.kernel.leases.loops import Duty
from relevo.kernel.part import Part, Service
from relevo.kernel.postgres import catalog

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from datetime import timedelta

    from relevo.kernel.events.model import By, Event, LogState, Recorded, Start
    from relevo.kernel.part import Connection
    from relevo.kernel.postgres import Transaction

NAME: Final = re.compile(r"[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)+")
SCHEMA_MAX: Final = 32_767


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


SQL = catalog.load(__package__)
log = structlog.get_logger(__name__)
DAYS_AHEAD = 2
"""Partitions are there so many days before they are needed."""

Row = tuple[str, int, str, int, str]


class EventLog(Service):
    """The events of an installation, kept for a set time.

    >>> async with database.transaction() as tx:  # doctest: +SKIP
    ...     await tx.execute("update …")
    ...     await events.append(tx, [Event("relevo.job.completed", "job/7", 3, Completed(1))])
    >>> events.sent()  # doctest: +SKIP
    """

    def __init__(self, connection: Connection, catalogue: Catalogue | None = None) -> None:
        super().__init__(connection)
        self.catalogue = Catalogue() if catalogue is None else catalogue
        self._encoder = msgspec.json.Encoder()

    async def append(
        self,
        tx: Transaction,
        events: Sequence[Event],
        *,
        by: By = "subject",
        pipeline: int | None = None,
    ) -> None:
        """Append events in the caller's transaction: once, as its last statement, then commit.

        `by="subject"` promises that a subject's events are read in the order of their appends; two
        transactions with subjects of one stripe follow each other. `by="pipeline"` lets those of
        different pipelines (a small number per writer, over 16 stripes) never wait for each other;
        readers then order a subject's events by `version`. Do not mix both for one subject.

        Refuses by name, before anything is written: an unknown type, data of another struct or
        above 512 KiB, more than 10,000 events. Call `sent()` after the commit.
        """
        number = _pipeline(by, pipeline)
        if len(events) > model.EVENTS_PER_APPEND_MAX:
            raise TooLarge(
                f"{len(events)} events in one append; at most {model.EVENTS_PER_APPEND_MAX} are"
                " taken, use several transactions"
            )
        if events:
            rows = [self._row(event) for event in events]
            await tx.execute(SQL.append, *map(list, zip(*rows, strict=True)), number)

    def sent(self, *topics: str) -> None:
        """Wake readers of the log, and of other topics; call it after committing events.

        A hint: losing one delays.
        """
        self.wakeups.send(model.TOPIC, *topics)

    def _row(self, event: Event) -> Row:
        kind = self.catalogue.of(event)
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
        body = self._encoder.encode(event.data)
        if len(body) > model.DATA_BYTES_MAX:
            raise TooLarge(
                f"data of event {event.type!r} of {event.subject!r} has {len(body)} bytes; at most"
                f" {model.DATA_BYTES_MAX} are taken. Store it elsewhere and say where"
            )
        return kind.name, kind.version, event.subject, event.version, body.decode()

    async def read(
        self,
        after: str | None = None,
        *,
        start: Start = "beginning",
        max_items: int = limits.FEED_ITEMS_DEFAULT,
        max_bytes: int = limits.FEED_BYTES_MAX,
        wait: float | None = None,
    ) -> EventPage:
        """Return the next events after a continuation, else from `start` on, by LSN.

        With `wait`, waits up to so many seconds for something to come. Raises `FeedExpired` if
        events that this reader has not seen were trimmed, `BadContinuation` for a foreign token.
        """
        with self.wakeups.signal(model.TOPIC) as woken:
            place = await self._place(after, model.check_start(start))
            page = await self._page(place, max_items, max_bytes)
            if page.events or not wait:
                return page
            await woken.wait(min(wait, limits.FEED_WAIT_SECONDS_MAX))
            return await self._page(place, max_items, max_bytes)

    async def _place(self, after: str | None, start: Start) -> LogPlace:
        state = await reading.look(self.database)
        if after is None:
            found = await reading.resolve(self.database, state, start)
            return LogPlace(state.incarnation, found)
        place = model.decode(after, state)
        reading.check_positions(state, place.positions)
        return place

    async def _page(self, place: LogPlace, max_items: int, max_bytes: int) -> EventPage:
        events = await reading.read(
            self.database, place.incarnation, place.positions, max_items=max_items,
            max_bytes=max_bytes, frugal=True,
        )  # fmt: skip
        positions = {**place.positions, **{event.stripe: event.lsn for event in events}}
        return EventPage(
            events=events,
            continuation=model.encode(LogPlace(place.incarnation, positions)),
            caught_up=not events,
        )

    async def state(self) -> LogState:
        """Return the retention of events, and what was trimmed."""
        return await reading.look(self.database)

    async def keep(self, kept: timedelta) -> None:
        """Set the retention; events are trimmed by whole days. The default is 7 days."""
        if not kept.total_seconds() > 0:
            raise InvalidValue(f"events are kept for a time above 0, not {kept}")
        await self.database.write(SQL.keep, kept, idempotent=True)

    async def prepare(self) -> int:
        """Make the partitions of the next days; return how many were missing."""
        made = 0
        for day in range(DAYS_AHEAD + 1):
            made += await self._do(SQL.make_partition, day)
        return made

    async def trim(self) -> int:
        """Trim days that are older than the retention; return the number of dropped partitions.

        Also notes how far the log has come, for readers that start at an instant.

        A day is declared trimmed first, and dropped by a call at least a minute later: so no
        statement that found it readable finds it gone.
        """
        await self.database.write(SQL.mark_time, idempotent=True)
        dropped = await self._do(SQL.drop_trimmed)
        if trimmed := await self._do(SQL.trim):
            log.info("events.trimmed", days=trimmed)
        return dropped

    async def _do(self, sql: str, *arguments: Any) -> int:
        rows = await self.database.write(sql, *arguments, idempotent=True)
        return int(rows[0][0])


class EventLogPart(Part[EventLog]):
    """Keeps the partitions of the log in step with the days."""

    def duties(self) -> list[Duty]:
        """Return the housekeeping duties of the log."""
        return [
            Duty("make event partitions", 600.0, self.service.prepare),
            Duty("trim events", 60.0, self.service.trim),
        ]


def _pipeline(by: By, pipeline: int | None) -> int | None:
    if by == "subject" and pipeline is None:
        return None
    if by == "pipeline" and pipeline is not None and 0 <= pipeline <= model.PIPELINE_MAX:
        return pipeline
    raise InvalidValue(
        "events are striped by='subject', or by='pipeline' with pipeline= a number from 0; got"
        f" by={by!r}, pipeline={pipeline!r}"
    )


def _has_control(text: str) -> bool:
    return not text.isprintable() and any(unicodedata.category(one) in ("Cc", "Cs") for one in text)
