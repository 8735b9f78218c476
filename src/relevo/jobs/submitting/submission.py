"""Submits jobs: checks them, then stores them in groups or in the caller's transaction."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import msgspec
from asyncpg.pgproto import pgproto

from relevo.errors import InvalidValue
from relevo.jobs.core import series
from relevo.jobs.model import (
    DATA_BYTES_MAX,
    MISFIRE_GRACE_MAX,
    NAME_LENGTH_MAX,
    TOKEN_LENGTH_MAX,
    UNSERVED,
    Recurrence,
    Submission,
)
from relevo.kernel import checking
from relevo.kernel.postgres import catalog
from relevo.kernel.postgres.foreign import Function
from relevo.kernel.postgres.grouping import Group
from relevo.kernel.telemetry import tracing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from relevo.jobs.batches.handles import BatchHandle
    from relevo.kernel.postgres import Database, Wakeups

SQL = catalog.load("relevo.jobs")
TOPIC: Final = "jobs"
"""Wakes hosts: there may be something to claim."""
BULK_ROWS: Final = 1_000
ROWS_MAX: Final = 99
"""More jobs than these become parcels (`relevo.parcel_min`), by the function."""
_ENCODER = msgspec.json.Encoder()
LANE_LENGTH_MAX: Final = 64
IN_TRANSACTION: Final = Function(
    name="relevo.submit_jobs_in",
    types=(
        "uuid[]", "text[]", "text[]", "text[]", "text[]", "timestamptz[]", "text[]", "int2[]",
        "uuid[]", "text[]::jsonb[]",
    ),
    otherwise=", or call the SQL function relevo.submit_job yourself",
)  # fmt: skip
"""Stores jobs in the caller's transaction; returns its numbers, by which waits see its end."""


def new_id() -> UUID:
    """Return a key for a job."""
    return new_ids(1)[0]


def new_ids(count: int) -> list[UUID]:
    """Return ascending keys that follow those of earlier calls (UUID version 7).

    So inserts stay at one end of the index. The first has 61 random bits, the others count on. They
    are of the driver's class, which is a UUID and made in a fifth of the time.
    """
    millis, nanos = divmod(time.time_ns(), 1_000_000)
    clock = millis << 80 | 0x7 << 76 | (nanos << 12) // 1_000_000 << 64
    first = clock | 0x2 << 62 | int.from_bytes(os.urandom(8), "big") >> 3
    return [pgproto.UUID(value.to_bytes(16, "big")) for value in range(first, first + count)]


def checked(
    handler: str,
    data: Any = None,
    *,
    name: str | None = None,
    token: str | None = None,
    start: datetime | None = None,
    lane: str | None = None,
    priority: int | None = None,
    owner: UUID | str | None = None,
    retain: bool = False,
    on_failure: str = "continue",
    system: bool = False,
    id: UUID | None = None,  # noqa: A002 - the word of the API
    options: Mapping[str, Any] | None = None,
    batch: UUID | BatchHandle | None = None,
    origin: UUID | None = None,
) -> Submission:
    """Return a job to be made, or refuse it by name before anything is written."""
    if not handler:
        raise InvalidValue(
            f"a job needs the name of its handler, not {handler!r}", pointer="handler"
        )
    for what, value, most in (
        ("handler", handler, NAME_LENGTH_MAX), ("name", name, NAME_LENGTH_MAX),
        ("token", token, TOKEN_LENGTH_MAX), ("lane", lane, LANE_LENGTH_MAX),
    ):  # fmt: skip
        checking.text(what, value, most, of="a job")
    if priority is not None and (type(priority) is not int or not 0 <= priority <= 9):
        raise InvalidValue(f"a job's priority is 0 to 9, not {priority!r}", pointer="priority")
    if on_failure not in ("continue", "hold"):
        raise InvalidValue(
            f"on_failure is continue or hold, not {on_failure!r}", pointer="on_failure"
        )
    if options is not None and not isinstance(options, Mapping):
        raise InvalidValue(f"options of a job are a mapping, not {options!r}", pointer="options")
    flags = {"retain": retain, "hold": on_failure == "hold", "system": system}
    extra = {**(options or {}), **{key: True for key, value in flags.items() if value}}
    extra |= _relations(batch, origin)
    if extra:
        checking.json("options", extra, DATA_BYTES_MAX, of="a job")
    return Submission(
        id=id or new_id(), handler=handler, data=encoded(data), name=name, token=token or None,
        start=None if start is None else checking.aware(start, "start"), lane=lane,
        priority=priority, options=extra or None,
        owner=None if owner is None else checking.uuid("owner", owner, of="a job"),
    )  # fmt: skip


def _relations(batch: UUID | BatchHandle | None, origin: UUID | None) -> dict[str, str]:
    """Return what a job belongs to, as the SQL function takes it."""
    found = {}
    if batch is not None:
        key = batch if isinstance(batch, UUID | str) else batch.id
        found["batch"] = str(checking.uuid("batch", key, of="a job"))
    if origin is not None:
        found["origin"] = str(origin)
    return found


def in_trace(job: Submission) -> Submission:
    """Return a job with the trace parent of the span that submits it, if there is one."""
    parent = tracing.parent()
    if parent is None:
        return job
    options = dict(job.options or {})
    options["details"] = {**options.get("details", {}), tracing.TRACEPARENT: parent}
    return msgspec.structs.replace(job, options=options)


def encoded(data: Any) -> str:
    """Return data of a job as it is stored, or refuse it."""
    return checking.json("data", {} if data is None else data, DATA_BYTES_MAX, of="a job")


def whole(
    recurrence: str | Recurrence | None, start: datetime | None, timezone: str | None
) -> Recurrence | None:
    """Return a recurrence with the start and the zone that stand beside it."""
    if timezone is not None and not isinstance(timezone, str):
        raise InvalidValue(f"timezone is the name of a zone, not {timezone!r}", pointer="timezone")
    if not recurrence:  # none, or an empty pattern
        if timezone is not None:
            raise InvalidValue(
                "timezone needs a recurrence; put the zone of a single start into the start itself",
                pointer="timezone",
            )
        return None
    if isinstance(recurrence, str):
        recurrence = Recurrence(pattern=recurrence)
    elif not isinstance(recurrence, Recurrence):
        raise InvalidValue(
            f"recurrence is a pattern or a Recurrence, not {recurrence!r}", pointer="recurrence"
        )
    for what, value in (("start", start), ("timezone", timezone)):
        there = getattr(recurrence, what)
        if None not in (value, there) and value != there:
            raise InvalidValue(
                f"{what} is {value}, but that of the recurrence is {there}; give it once",
                pointer=what,
            )
    return msgspec.structs.replace(
        recurrence, start=recurrence.start or start, timezone=recurrence.timezone or timezone
    )


def recurring(
    recurrence: Recurrence,
    now: datetime,
    operation_type: int,
    *,
    later_than: datetime | None = None,
    of: UUID | None = None,
) -> Callable[[Submission], Submission]:
    """Return the function that makes a job the first row of a series; raises `InvalidRecurrence`.

    The search for the first instant may take some time, and is done once for all jobs of a call.
    With `later_than` the row is that of the first instant after it, of the series `of`.
    """
    if not 0 <= recurrence.misfire_grace <= MISFIRE_GRACE_MAX:
        raise InvalidValue(
            f"misfire_grace is 0 to {MISFIRE_GRACE_MAX:g} s, not {recurrence.misfire_grace:g}",
            pointer="recurrence",
        )
    anchor = (
        now if recurrence.start is None else checking.aware(recurrence.start, "recurrence.start")
    )
    plan = series.plan(
        recurrence.pattern, anchor=anchor, operation_type=operation_type, zone=recurrence.timezone,
        missed=recurrence.missed, overlap=recurrence.overlap,
        misfire_grace=timedelta(seconds=recurrence.misfire_grace),
    )  # fmt: skip
    first = series.first(plan) if later_than is None else series.restarted(plan, later_than)
    series.following(plan, first, now)  # if that cannot be counted, it must not be tried when due
    details = {
        "overlap": recurrence.overlap, "missed": recurrence.missed, "ordinal": first.ordinal,
        "misfire_grace": recurrence.misfire_grace, "stop_on_failure": recurrence.stop_on_failure,
    }  # fmt: skip
    about = {
        "pattern": recurrence.pattern, "zone": recurrence.timezone, "anchor": anchor.isoformat(),
        "nominal": first.nominal.isoformat(), "deferred": True,
    }  # fmt: skip

    def made(job: Submission) -> Submission:
        if "batch" in (job.options or {}):
            raise InvalidValue(
                "a batch ends and a recurrence goes on; submit the series apart from the batch",
                pointer="batch",
            )
        options = {**(job.options or {}), **about, "series": str(of or job.id)}
        options["details"] = {**options.get("details", {}), **details}
        return msgspec.structs.replace(job, start=first.nominal, options=options)

    return made


class Submitting:
    """Writes jobs: single ones in groups, many in few statements."""

    def __init__(self, database: Database, wakeups: Wakeups) -> None:
        self._database = database
        self._wakeups = wakeups
        self._lanes: frozenset[str] = frozenset()
        self._group: Group[Submission, UUID] = Group(
            "job submit", self._store, calls_max=BULK_ROWS, metrics=database.metrics
        )

    async def one(self, job: Submission) -> UUID:
        """Store a job; it is committed when this returns."""
        return await self._group.call(job, order=job.token)

    async def many(self, batches: Sequence[Sequence[Sequence[Any]]]) -> None:
        """Store jobs, given as arrays of the statement, in order, in one transaction."""

        async def work(tx: Any) -> None:
            for arrays in batches:
                await tx.execute(*statement(arrays))

        if len(batches) == 1:
            await self._write(batches[0])
        else:
            await self._database.run(work)
        self._wakeups.send(TOPIC)

    async def close(self) -> None:
        """Wait for calls under way."""
        await self._group.close()

    async def check_lane(self, lane: str, handler: str | None, tx: Any = None) -> None:
        """Refuse a lane that no host has configured, before it can spoil a group; lanes stay.

        With `handler`, refuse also a lane in which no host runs jobs of that handler. Reads with
        `tx`, if given: a caller with a connection must not wait for a second one.
        """
        reader = tx or self._database
        if lane not in self._lanes:
            rows = await reader.fetch(SQL.lanes)
            self._lanes = frozenset(row["name"] for row in rows)
        if lane not in self._lanes:
            raise InvalidValue(
                f"there is no lane {lane!r}; configure it on a host, or use one of"
                f" {', '.join(sorted(self._lanes))}",
                pointer="lane",
            )
        if handler is not None:
            served = await reader.fetchval(SQL.served_lane, handler, UNSERVED)
            check_served(handler, lane, served)

    async def _store(self, jobs: Sequence[Submission]) -> list[UUID | Exception]:
        await self._write(columns(jobs))
        self._wakeups.send(TOPIC)
        return [job.id for job in jobs]

    async def _write(self, arrays: Sequence[Sequence[Any]]) -> None:
        """Store jobs by one statement, and by the function if they need more than rows."""
        rows = rows_of(arrays)
        if rows is None or not await self._database.write(SQL.submit_rows, *rows):
            await self._database.write(*statement(arrays))


def statement(arrays: Sequence[Sequence[Any]]) -> tuple[Any, ...]:
    """The statement that stores jobs, and its arguments."""
    ids, handlers, datas, *others = arrays
    return (SQL.submit, *arrays) if any(others) else (SQL.submit_plain, ids, handlers, datas)


def rows_of(arrays: Sequence[Sequence[Any]]) -> tuple[Any, ...] | None:
    """The arguments of the statement for rows of one handler; None if it cannot store the jobs."""
    ids, handlers, datas, names, tokens, starts, lanes, priorities, owners, options = arrays
    if len(handlers) > 1 or len(ids) > ROWS_MAX or tokens or starts or owners or options:
        return None
    name, lane, priority = (one[0] if one else None for one in (names, lanes, priorities))
    return (handlers[0], name, lane, priority, ids, datas)


def check_served(handler: str, lane: str, served: str | None) -> None:
    """Refuse a lane other than the one that serves the handler: the job would not run there."""
    if served is not None and served != lane:
        raise InvalidValue(
            f"jobs of {handler!r} run in the lane {served!r}, where its handler is registered, not"
            f" in {lane!r}; leave lane out",
            pointer="lane",
        )


def batches(jobs: Sequence[Submission]) -> list[tuple[Sequence[Any], ...]]:
    """Return the arrays of all statements that the jobs need."""
    return [columns(jobs[n : n + BULK_ROWS]) for n in range(0, len(jobs), BULK_ROWS)]


def batches_alike(
    common: Submission, ids: Sequence[UUID], datas: Sequence[str]
) -> list[tuple[Sequence[Any], ...]]:
    """Return the same for jobs that differ only in key and data."""
    return [
        alike(common, ids[n : n + BULK_ROWS], datas[n : n + BULK_ROWS])
        for n in range(0, len(ids), BULK_ROWS)
    ]


def columns(jobs: Sequence[Submission]) -> tuple[Sequence[Any], ...]:
    """Return the arrays of the statement; a column without values is empty."""
    ids, datas = [job.id for job in jobs], [job.data for job in jobs]
    kinds = [_kind(job) for job in jobs]
    if kinds.count(kinds[0]) == len(kinds):
        return alike(jobs[0], ids, datas)
    handlers, *others = map(list, zip(*kinds, strict=True))
    return (
        ids,
        handlers,
        datas,
        *([] if other.count(None) == len(other) else other for other in others),
    )


def alike(
    common: Submission, ids: Sequence[UUID], datas: Sequence[str]
) -> tuple[Sequence[Any], ...]:
    """Return the arrays of jobs that differ only in key and data.

    Plain jobs share one handler entry, which is cheapest; most jobs are plain.
    """
    handler, *others = _kind(common)
    special = common.token or common.start or common.owner or common.options
    times = len(ids) if special else 1
    return (
        ids,
        [handler] * times,
        datas,
        *([] if other is None else [other] * times for other in others),
    )


def _kind(job: Submission) -> tuple[Any, ...]:
    """Return every field except id and data, in the order of the function's arguments."""
    options = None if job.options is None else _ENCODER.encode(job.options).decode()
    return (job.handler, job.name, job.token, job.start, job.lane, job.priority, job.owner, options)


async def submit_in(tx: Any, *jobs: Submission) -> str:
    """Store jobs in a transaction of the caller; returns its number. Nothing is locked."""
    number: str = await IN_TRANSACTION.call(tx, columns(jobs))
    return number
