"""The event log: append, read, and housekeeping."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from relevo import limits
from relevo.errors import InvalidValue
from relevo.kernel.events import appending, model, reading
from relevo.kernel.events.catalogue import Catalogue
from relevo.kernel.events.model import EventPage, LogPlace
from relevo.kernel.leases.loops import Duty
from relevo.kernel.part import Part, Service
from relevo.kernel.postgres import catalog
from relevo.kernel.telemetry.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import timedelta

    from relevo.kernel.events.model import By, Event, LogState, Start
    from relevo.kernel.part import Connection
    from relevo.kernel.postgres import Transaction

SQL = catalog.load(__package__)
log = get_logger(__name__)
DAYS_AHEAD = 2
"""Partitions are there so many days before they are needed."""


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
        await appending.append(tx, self.catalogue, events, _pipeline(by, pipeline))

    def sent(self, *topics: str) -> None:
        """Wake readers of the log, and of other topics; call it after committing events.

        A hint: losing one delays.
        """
        self.wakeups.send(model.TOPIC, *topics)

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
            began_at=model.encode(place),
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
