"""Submitting: what is asked for is checked, then rides in groups or in a caller's transaction."""

from __future__ import annotations

import inspect
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

import msgspec

from relevo.errors import InvalidValue, TooLarge
from relevo.jobs import series
from relevo.jobs.model import (
    DATA_BYTES_MAX,
    MISFIRE_GRACE_MAX,
    NAME_LENGTH_MAX,
    TOKEN_LENGTH_MAX,
    Recurrence,
    Submission,
    aware,
    new_id,
)
from relevo.postgres import catalog
from relevo.postgres.grouping import Group

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime
    from uuid import UUID

    from relevo.postgres import Database, Wakeups

SQL = catalog.load("relevo.jobs")
TOPIC: Final = "jobs"
"""Wakes hosts: there may be something to claim."""
BULK_ROWS: Final = 1_000
_ENCODER = msgspec.json.Encoder()
FOREIGN: Final = (
    "select relevo.submit_jobs(array[{0}]::uuid[], array[{1}]::text[], array[{2}]::text[],"
    " array[{3}]::text[], array[{4}]::text[], array[{5}]::timestamptz[],"
    " array[{6}]::text[], array[{7}]::smallint[],"
    " array[{8}]::uuid[], array[{9}]::text[]::jsonb[])"
)


def checked(
    handler: str,
    data: Any = None,
    *,
    name: str | None = None,
    token: str | None = None,
    start: datetime | None = None,
    lane: str | None = None,
    priority: int | None = None,
    owner: UUID | None = None,
    id: UUID | None = None,  # noqa: A002 - the word of the API
    options: dict[str, Any] | None = None,
) -> Submission:
    """Return a job to be made, or refuse it by name before anything is written."""
    for what, value, most in (
        ("handler", handler, NAME_LENGTH_MAX), ("name", name, NAME_LENGTH_MAX),
        ("token", token, TOKEN_LENGTH_MAX),
    ):  # fmt: skip
        if value is not None and (
            len(value) > most or "\0" in value or (what == "handler" and not value)
        ):
            raise InvalidValue(
                f"the {what} of a job is text of at most {most} characters, not {value[:100]!r}",
                pointer=what,
            )
    if priority is not None and not 0 <= priority <= 9:
        raise InvalidValue(f"a job's priority is 0 to 9, not {priority}", pointer="priority")
    return Submission(
        id=id or new_id(), handler=handler, data=encoded(data), name=name, token=token or None,
        start=None if start is None else aware(start, "start"), lane=lane, priority=priority,
        owner=owner, options=options or None,
    )  # fmt: skip


def encoded(data: Any) -> str:
    """Return data of a job as it is stored, or refuse it."""
    try:
        found = _ENCODER.encode({} if data is None else data)
    except (TypeError, ValueError, msgspec.MsgspecError) as error:
        raise InvalidValue(f"data of a job must be JSON: {error}", pointer="data") from error
    if len(found) > DATA_BYTES_MAX:
        raise TooLarge(f"data of a job has {len(found)} bytes; at most {DATA_BYTES_MAX} are taken")
    if b"\\u0000" in found:
        raise InvalidValue(
            "data of a job has a null character, which cannot be stored", pointer="data"
        )
    return found.decode()


def recurring(
    job: Submission, recurrence: Recurrence, now: datetime, operation_type: int
) -> Submission:
    """Return the first waiting row of a series."""
    if not 0 <= recurrence.misfire_grace <= MISFIRE_GRACE_MAX:
        raise InvalidValue(
            f"misfire_grace is 0 to {MISFIRE_GRACE_MAX:g} s, not {recurrence.misfire_grace:g}",
            pointer="recurrence",
        )
    anchor = now if recurrence.start is None else aware(recurrence.start, "recurrence.start")
    plan = series.plan(
        recurrence.pattern, anchor=anchor, operation_type=operation_type, zone=recurrence.timezone,
        missed=recurrence.missed, overlap=recurrence.overlap,
        misfire_grace=timedelta(seconds=recurrence.misfire_grace),
    )  # fmt: skip
    first = series.first(plan)
    options = dict(job.options or {})
    options["details"] = {
        **options.get("details", {}), "overlap": recurrence.overlap, "missed": recurrence.missed,
        "misfire_grace": recurrence.misfire_grace, "stop_on_failure": recurrence.stop_on_failure,
        "ordinal": first.ordinal,
    }  # fmt: skip
    options |= {
        "series": str(job.id), "pattern": recurrence.pattern, "zone": recurrence.timezone,
        "anchor": anchor.isoformat(), "nominal": first.nominal.isoformat(), "deferred": True,
    }  # fmt: skip
    return msgspec.structs.replace(job, start=job.start or first.nominal, options=options)


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
        await self._check_lanes([job])
        return await self._group.call(job, order=job.token)

    async def many(self, common: Submission, ids: Sequence[UUID], datas: Sequence[str]) -> None:
        """Store jobs that differ in their data alone, in order, in one transaction."""
        await self._check_lanes([common])
        statements = [
            alike(common, ids[first : first + BULK_ROWS], datas[first : first + BULK_ROWS])
            for first in range(0, len(ids), BULK_ROWS)
        ]

        async def work(tx: Any) -> None:
            for arrays in statements:
                await tx.execute(SQL.submit, *arrays)

        if len(statements) == 1:
            await self._database.write(SQL.submit, *statements[0])
        else:
            await self._database.run(work)
        self._wakeups.send(TOPIC)

    async def close(self) -> None:
        """Wait for what is under way."""
        await self._group.close()

    async def _check_lanes(self, jobs: Sequence[Submission]) -> None:
        """Refuse a lane that no host has configured, before it can spoil a group; lanes stay."""
        named = {one.lane for one in jobs if one.lane is not None}
        if named - self._lanes:
            rows = await self._database.fetch(SQL.lanes)
            self._lanes = frozenset(row["name"] for row in rows)
        if strange := named - self._lanes:
            raise InvalidValue(
                f"there is no lane {min(strange)!r}; configure it on a host, or use one of"
                f" {', '.join(sorted(self._lanes))}",
                pointer="lane",
            )

    async def _store(self, jobs: Sequence[Submission]) -> list[UUID | Exception]:
        await self._database.write(SQL.submit, *columns(jobs))
        self._wakeups.send(TOPIC)
        return [one.id for one in jobs]


def columns(jobs: Sequence[Submission]) -> tuple[Sequence[Any], ...]:
    """Return the arrays of the statement; those of which no job has anything are empty."""
    ids, datas = [one.id for one in jobs], [one.data for one in jobs]
    kinds = [_kind(one) for one in jobs]
    if kinds.count(kinds[0]) == len(kinds):
        return alike(jobs[0], ids, datas)
    handlers, *others = map(list, zip(*kinds, strict=True))
    return ids, handlers, datas, *([] if one.count(None) == len(one) else one for one in others)


def alike(
    common: Submission, ids: Sequence[UUID], datas: Sequence[str]
) -> tuple[Sequence[Any], ...]:
    """Return the arrays of jobs that differ in their data alone.

    One handler stands for all if nothing is special; most jobs are like that, and cost least.
    """
    handler, *others = _kind(common)
    special = common.token or common.start or common.owner or common.options
    times = len(ids) if special else 1
    return ids, [handler] * times, datas, *([] if one is None else [one] * times for one in others)


def _kind(job: Submission) -> tuple[Any, ...]:
    """What there is to a job but its key and data, in the order of the function's arguments."""
    options = None if job.options is None else _ENCODER.encode(job.options).decode()
    return (job.handler, job.name, job.token, job.start, job.lane, job.priority, job.owner, options)


async def submit_in(tx: Any, job: Submission) -> None:
    """Store a job in a transaction of the caller: asyncpg, psycopg or SQLAlchemy, async or not.

    It exists when that transaction commits, and never did if it is rolled back. Nothing is locked.
    """
    options = None if job.options is None else _ENCODER.encode(job.options).decode()
    values = [
        job.id, job.handler, job.data, job.name, job.token, job.start, job.lane, job.priority,
        job.owner, options,
    ]  # fmt: skip
    module = type(tx).__module__.partition(".")[0]
    if module in ("asyncpg", "relevo"):
        await tx.execute(SQL.submit, *([] if value is None else [value] for value in values))
        return
    if module == "sqlalchemy":
        answer = tx.execute(*_for_sqlalchemy(values))
    elif module in ("psycopg", "psycopg2"):
        execute = tx.execute if hasattr(tx, "execute") else tx.cursor().execute
        answer = execute(FOREIGN.format(*["%s"] * len(values)), [_text(one) for one in values])
    else:
        raise InvalidValue(
            f"tx is a {type(tx).__qualname__} of {module!r}; give a connection of asyncpg, psycopg"
            " or SQLAlchemy, or call the SQL function relevo.submit_job yourself",
            pointer="tx",
        )
    if inspect.isawaitable(answer):
        await answer


def _for_sqlalchemy(values: Sequence[Any]) -> tuple[Any, dict[str, Any]]:
    import sqlalchemy  # only those who use it have it

    names = [f"v{n}" for n in range(len(values))]
    clause = sqlalchemy.text(FOREIGN.format(*(f"cast(:{name} as text)" for name in names)))
    return clause, {name: _text(value) for name, value in zip(names, values, strict=True)}


def _text(value: Any) -> str | None:
    """A value as text that the statement casts: no driver then has an opinion of its type."""
    if value is None:
        return None
    return value.isoformat() if hasattr(value, "isoformat") else str(value)
