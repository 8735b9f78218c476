"""`app.bulk`: bulk operations as jobs."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, TypeVar, Unpack

import msgspec

from relevo.dataverse.bulk import importing, parts, standing
from relevo.dataverse.bulk.conditions import rows_of
from relevo.dataverse.bulk.deleting import Deletion
from relevo.dataverse.bulk.handlers import (
    CAMPAIGN,
    DELETE,
    DETECT,
    KINDS,
    MAIL,
    PARSE,
    PROPAGATE,
    PUBLISH,
    TRANSFORM,
    WRITE,
    Handlers,
)
from relevo.dataverse.bulk.importing import LANE
from relevo.dataverse.bulk.mailing import Mailing, Propagation, Sink, Transport
from relevo.dataverse.bulk.model import (
    Criteria,
    ImportArguments,
    MatchField,
    Preview,
    RecordedFailure,
    RowFailure,
    RowQuery,
)
from relevo.dataverse.bulk.notices import noticed
from relevo.dataverse.bulk.sources import SQL, Own, acting, opened, plan, table_of
from relevo.errors import Conflict, InvalidValue
from relevo.jobs.querying.query import JobQuery
from relevo.jobs.submission import TOPIC, new_id
from relevo.kernel import callables, cpu
from relevo.kernel.leases.loops import Duty
from relevo.kernel.part import Part
from relevo.kernel.postgres import clock
from relevo.kernel.querying.fetchxml.conditions import Asker
from relevo.kernel.querying.model import Query

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime
    from uuid import UUID

    from relevo.dataverse.bulk.rights import RightsOf
    from relevo.jobs.model import JobOptions, Recurrence
    from relevo.jobs.service import JobHandle, Jobs
    from relevo.kernel.postgres import Transaction
    from relevo.pipeline.registry import Registry

F = TypeVar("F")
Asked = RowQuery | Query | JobQuery
"""What says which rows are meant."""
CONTENT_BYTES_MAX: Final = 128 * 1024 * 1024
FAILURES_SHOWN: Final = 1_000
SAMPLE_ROWS: Final = 10
FORGET_ROWS: Final = 1_000
SETTLED_SECONDS: Final = 60.0
"""How long a host leads before its installation gets what every one has."""
IMPORTS_KEPT: Final = timedelta(days=90)
"""How long an import can be undone."""


class Bulk:
    """Submits bulk operations, and runs them on hosts whose app was asked for `app.bulk`.

    >>> paid = RowQuery(container="orders", where=(("paid", "=", True),))
    >>> job = await app.bulk.delete(paid)  # doctest: +SKIP
    """

    def __init__(self, jobs: Jobs, rights_of: RightsOf, registry: Registry | None = None) -> None:
        self._jobs = jobs
        self._registry = registry
        self._transports: dict[str, Transport] = {}
        self._sinks: dict[str, Sink] = {}
        Handlers(jobs, registry, rights_of, self._transports, self._sinks).register()

    # What users give.

    def transport(self, name: str) -> Callable[[Transport], Transport]:
        """Make a function the way in which mails of a name are sent."""
        return _register(self._transports, name, "transport", "mail")

    def sink(self, name: str) -> Callable[[Sink], Sink]:
        """Make a function the way in which activities of a name are written."""
        return _register(self._sinks, name, "sink", "tx", "member", "activity")

    # What is asked for.

    async def delete(
        self, queries: Asked | Sequence[Asked], *, name: str = "Bulk delete",
        recurrence: str | Recurrence | None = None, timezone: str | None = None,
        max_failures: int | None = None, notify: Sequence[str] = (), **options: Unpack[JobOptions],
    ) -> JobHandle[dict[str, Any]]:  # fmt: skip
        """Delete what queries find, one query after the other; daily or less often if it recurs.

        Queries over jobs, `app.jobs.query()…`, and those of `relevo.kernel.querying` are taken as
        well, with the conditions that they have by now. Jobs that are not completed are left
        alone unless a condition names `statecode` or `statuscode`, and the job never deletes
        itself. The addresses in `notify` get a mail at the end of each run, by the first transport
        that was registered.
        """
        several = isinstance(queries, tuple | list)
        some: Sequence[Any] = queries if several else (queries,)  # type: ignore[assignment]
        if not some:
            raise InvalidValue("a bulk delete needs at least one query", pointer="queries")
        asked = Deletion(
            queries=tuple([await self.checked(one) for one in some]), max_failures=max_failures,
            notice=noticed(notify, list(self._transports)),
        )  # fmt: skip
        return await self._submit(
            DELETE, asked, name, asked.queries, recurrence=recurrence,
            timezone=timezone, **options,
        )  # fmt: skip

    async def checked(self, query: Asked, asker: Asker | None = None) -> RowQuery:
        """Return a query as it is stored; what no run could ask, or `asker` may not, is refused.

        A table that only hosts know is looked up when the job runs.
        """
        asked = await self._rows(query)
        if asked.is_planned and (asked.of_jobs or table_of(self._registry, asked) or asker):
            asker = asker or await self._asker(query, asked)
            await cpu.off_loop(self._tried, asked, asker)
        return asked

    def _tried(self, asked: RowQuery, asker: Asker) -> None:
        found = plan(asked, self._registry, asker)
        assert found is not None
        found.sql("r", 1)

    async def _asker(self, query: Asked, asked: RowQuery) -> Asker:
        database = self._jobs.database
        now = await clock.now(database)
        if isinstance(query, JobQuery):
            return Asker(query.caller, now)
        return await acting(database, None, asked, now)

    async def _rows(self, query: Asked) -> RowQuery:
        if isinstance(query, JobQuery):
            return rows_of(await query.ready(), query.caller).checked()
        return rows_of(query).checked()

    async def preview(self, query: Asked, asker: Asker | None = None) -> Preview:
        """Return how many rows a query finds now, and the first of them, before it is run."""
        asked = await self._rows(query)
        asker = asker or await self._asker(query, asked)
        source = await opened(self._jobs.database, asked, Own(), self._registry, asker)
        bounds = await source.bounds()
        if bounds is None:
            return Preview(0)
        rows = await source.page(None, bounds.highest, SAMPLE_ROWS)
        return Preview(bounds.total, tuple(rows))

    async def mail(
        self, transport: str, recipients: RowQuery, *, subject: str, body: str,
        address: str = "email", per_second: float | None = None, name: str = "Bulk mail",
        max_failures: int | None = None, **options: Unpack[JobOptions],
    ) -> JobHandle[dict[str, Any]]:  # fmt: skip
        """Send a mail to each recipient, at most one; `$field` in texts is a field of its row."""
        if per_second is not None and not per_second > 0:
            raise InvalidValue(f"per_second is above 0, not {per_second}", pointer="per_second")
        asked = Mailing(
            transport=transport, recipients=recipients.checked(), address=address, subject=subject,
            body=body, per_second=per_second, max_failures=max_failures,
        )  # fmt: skip
        return await self._submit(MAIL, asked, name, [asked.recipients], **options)

    async def propagate(
        self, sink: str, members: RowQuery, activity: Mapping[str, Any], *, quick: bool = False,
        unique: str | None = None, name: str = "Activity propagation",
        max_failures: int | None = None, **options: Unpack[JobOptions],
    ) -> JobHandle[dict[str, Any]]:  # fmt: skip
        """Write one activity for each member; those with the same `unique` field count as one.

        Members whose field is missing, null or empty are each their own.
        """
        asked = Propagation(
            sink=sink, members=members.checked(), activity=dict(activity), unique=unique,
            max_failures=max_failures,
        )  # fmt: skip
        handler = CAMPAIGN if quick else PROPAGATE
        return await self._submit(handler, asked, name, [asked.members], **options)

    async def import_(
        self, container: Any, content: bytes | str, *, name: str = "Import",
        lookups: Mapping[str, tuple[str, str]] | None = None, owner: UUID | None = None,
        **options: Unpack[ImportArguments],
    ) -> tuple[UUID, JobHandle[dict[str, Any]]]:  # fmt: skip
        """Import a file into a container; returns the import's id and its last job.

        Options are those of `ImportOptions`: format, encoding, delimiter, columns, defaults, kind.
        `lookups` says of fields which (container, field) their values name.
        """
        info = await container.describe()
        raw = content.encode() if isinstance(content, str) else content
        if len(raw) > CONTENT_BYTES_MAX:
            raise InvalidValue(
                f"the file has {len(raw)} bytes; at most {CONTENT_BYTES_MAX} are taken"
            )
        how = importing.checked(options, lookups or {})
        if how.kind == "upsert" and table_of(self._registry, RowQuery(container=info.name)):
            raise InvalidValue("records of a table of the pipeline are created; say kind='create'")
        id_ = new_id()

        async def work(tx: Transaction) -> JobHandle[dict[str, Any]]:
            encoded = msgspec.json.encode(how).decode()
            await tx.execute(SQL.begin_import, id_, info.name, encoded, raw)
            data: dict[str, str] = {"import": str(id_)}
            for handler, step in ((PARSE, "parse"), (TRANSFORM, "transform"), (WRITE, "write")):
                made = await self._order(
                    handler, data, tx=tx, name=f"{name}: {step}", token=f"import {id_}", owner=owner
                )
                data = {**data, "after": str(made.id)}
            return made

        job = await self._jobs.database.run(work)
        self._jobs.wakeups.send(TOPIC)
        return id_, job

    async def undo_import(
        self,
        id: UUID,  # noqa: A002
        **options: Unpack[JobOptions],
    ) -> JobHandle[dict[str, Any]]:
        """Delete what an import created; what it replaced stays, and the job says how many."""
        return await self.delete(RowQuery(imported=id), name="Undo import", **options)

    async def import_errors(self, id: UUID) -> dict[int, str]:  # noqa: A002
        """Return the rows of an import that did not become items, by number, with the reasons."""
        rows = await self._jobs.database.fetch(SQL.import_errors, id, FAILURES_SHOWN)
        return {row["number"]: row["error"] for row in rows}

    async def publish_rule(
        self,
        rule: str,
        container: str,
        fields: Sequence[MatchField],
        **options: Unpack[JobOptions],
    ) -> JobHandle[dict[str, Any]]:
        """Define what makes items of a container duplicates, and give all of them their codes."""
        if not fields:
            raise InvalidValue("a rule needs at least one field", pointer="fields")
        encoded = msgspec.json.encode(list(fields)).decode()
        await self._jobs.database.write(SQL.save_rule, rule, container, encoded, idempotent=True)
        return await self._order(PUBLISH, {"rule": rule}, name=f"Publish {rule}", **options)

    async def detect_duplicates(
        self, rule: str, where: Sequence[Any] = (), *, name: str = "Duplicate detection",
        criteria: Criteria | None = None, recurrence: str | Recurrence | None = None,
        timezone: str | None = None, by_key: bool = False, **options: Unpack[JobOptions],
    ) -> JobHandle[dict[str, Any]]:  # fmt: skip
        """Write down which items have duplicates by a published rule.

        All items of its container get their codes anew before. `by_key` is as in `RowQuery`.
        """
        asked = RowQuery(table="rule", where=tuple(where)).checked()
        data = {"rule": rule, "where": asked.where, "criteria": criteria, "by_key": by_key}
        return await self._order(
            DETECT, data, name=name, recurrence=recurrence, timezone=timezone, **options
        )

    async def duplicates(self, job: UUID) -> list[tuple[str, str]]:
        """Return what a detection found, as pairs of ids; each pair of items comes both ways."""
        rows = await self._jobs.database.fetch(SQL.duplicates, job, FAILURES_SHOWN)
        return [(row["base_id"], row["duplicate_id"]) for row in rows]

    async def failures(self, job: UUID) -> list[RowFailure]:
        """Return the rows that a job could not process, oldest first, at most 1,000."""
        found = await self.recorded_failures(job)
        return [RowFailure(one.row_id, one.code, one.message) for one in found]

    async def recorded_failures(
        self, job: UUID, rows: int = FAILURES_SHOWN, after: tuple[datetime, UUID] | None = None
    ) -> list[RecordedFailure]:
        """Return failures in full, oldest first, behind the one of (`at`, `id`)."""
        at, id_ = after or (None, None)
        found = await self._jobs.database.fetch(SQL.failures, job, rows, at, id_)
        return [RecordedFailure(**dict(row)) for row in found]

    async def counts(self, job: UUID) -> tuple[int, int]:
        """Return how many rows of a job succeeded and failed so far."""
        return (await self.counts_of([job])).get(job, (0, 0))

    async def counts_of(self, jobs: Sequence[UUID]) -> dict[UUID, tuple[int, int]]:
        """Return the same for many jobs; those that are not bulk operations are left out."""
        rows = await self._jobs.database.fetch(SQL.counts, jobs) if jobs else []
        return {row["job"]: (row["success_count"], row["failure_count"]) for row in rows}

    async def _order(
        self, handler: str, data: Any, *, options: Mapping[str, Any] | None = None, **more: Any
    ) -> JobHandle[dict[str, Any]]:
        """Submit a job; what it is does not depend on whether a host has been there yet."""
        return await self._jobs.submit(
            handler, data, lane=LANE, options={"operation_type": KINDS[handler], **(options or {})},
            **more,
        )  # fmt: skip

    async def _submit(
        self, handler: str, asked: Any, name: str, queries: Sequence[RowQuery],
        **options: Any,
    ) -> JobHandle[dict[str, Any]]:  # fmt: skip
        """Submit a job together with the row that shows how far it is."""

        async def work(tx: Transaction) -> JobHandle[dict[str, Any]]:
            job = await self._order(
                handler, msgspec.to_builtins(asked), name=name, tx=tx, **options
            )
            await tx.execute(
                SQL.begin, job.id, KINDS[handler], name, msgspec.json.encode(queries).decode(),
                options.get("owner"),
            )  # fmt: skip
            return job

        job = await self._jobs.database.run(work)
        self._jobs.wakeups.send(TOPIC)
        return job


class BulkPart(Part[Bulk]):
    """Keeps bulk operations tidy, and gives an installation the one that every one has."""

    def __init__(self, service: Bulk) -> None:
        super().__init__(service)
        self._settled = False

    def duties(self) -> list[Duty]:
        """What is done every so often by one host."""
        return [
            Duty("bulk.orphans", 2.0, lambda: parts.end_orphans(self.service._jobs)),
            Duty("bulk.forget", 3_600.0, self.forget),
            Duty("bulk.standing", SETTLED_SECONDS, self._establish_later),
        ]

    async def establish(self) -> bool:
        """Make the bulk delete of succeeded jobs that an installation has, unless it was made.

        It waits until somebody resumes it. Returns whether it was made now.
        """
        return await standing.establish(self.service._jobs.database, DELETE, LANE)

    async def _establish_later(self) -> None:
        """Do so from the second look on: a demo or a script is no installation."""
        if self._settled:
            await self.establish()
        self._settled = True

    async def forget(self) -> int:
        """Remove what was noted for jobs whose records are gone; returns of how many."""
        database = self.service._jobs.database
        return len(await database.write(SQL.forget, FORGET_ROWS, IMPORTS_KEPT))


def _register(known: dict[str, F], name: str, what: str, *taken: str) -> Callable[[F], F]:
    def register(function: F) -> F:
        callables.check(function, f"the {what} {name!r}", *taken)
        if name in known:
            raise Conflict(f"there is one named {name!r} already; give each its own name")
        known[name] = function
        return function

    return register
