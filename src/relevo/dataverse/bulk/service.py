"""`app.bulk`: submits bulk operations, which run as jobs."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, TypeVar, Unpack

import msgspec

from relevo.dataverse.bulk import children, default_series, imports
from relevo.dataverse.bulk.conditions import rows_of
from relevo.dataverse.bulk.deletion import Deletion
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
from relevo.dataverse.bulk.imports import LANE
from relevo.dataverse.bulk.mail import Mailing, Propagation, Sink, Transport
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
from relevo.dataverse.bulk.sources import SQL, OwnJob, asker_of, opened, plan, table_of
from relevo.errors import Conflict, InvalidValue
from relevo.jobs.querying.query import JobQuery
from relevo.jobs.submitting.submission import TOPIC, new_id
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
    from relevo.pipeline.registry import PipelineRegistry

F = TypeVar("F")
Asked = RowQuery | Query | JobQuery
"""The forms of a query for rows."""
CONTENT_BYTES_MAX: Final = 128 * 1024 * 1024
FAILURES_SHOWN: Final = 1_000
SAMPLE_ROWS: Final = 10
FORGET_ROWS: Final = 1_000
SETTLED_SECONDS: Final = 60.0
"""How long a host leads before it creates the default series."""
IMPORTS_KEPT: Final = timedelta(days=90)
"""How long an import can be undone."""


class Bulk:
    """Submits bulk operations. They run on hosts whose app has used `app.bulk`.

    >>> paid = RowQuery(container="orders", where=(("paid", "=", True),))
    >>> job = await app.bulk.delete(paid)  # doctest: +SKIP
    """

    def __init__(
        self, jobs: Jobs, rights_of: RightsOf, registry: PipelineRegistry | None = None
    ) -> None:
        self._jobs = jobs
        self._registry = registry
        self._transports: dict[str, Transport] = {}
        self._sinks: dict[str, Sink] = {}
        Handlers(jobs, registry, rights_of, self._transports, self._sinks).register()

    # Registration.

    def transport(self, name: str) -> Callable[[Transport], Transport]:
        """Register a function that sends mails, under a name."""
        return _register(self._transports, name, "transport", "mail")

    def sink(self, name: str) -> Callable[[Sink], Sink]:
        """Register a function that writes activities, under a name."""
        return _register(self._sinks, name, "sink", "tx", "member", "activity")

    # Operations.

    async def delete(
        self, queries: Asked | Sequence[Asked], *, name: str = "Bulk delete",
        recurrence: str | Recurrence | None = None, timezone: str | None = None,
        max_failures: int | None = None, notify: Sequence[str] = (), **options: Unpack[JobOptions],
    ) -> JobHandle[dict[str, Any]]:  # fmt: skip
        """Delete the rows of queries, one query after the other; a series runs daily or less often.

        A query may also be `app.jobs.query()…` or a `relevo.kernel.querying` query; its conditions
        are fixed when the job is created. Jobs that are not completed are left alone unless a
        condition names `statecode` or `statuscode`, and the job never deletes itself. The addresses
        in `notify` get a mail at the end of each run, through the first registered transport.
        """
        several = isinstance(queries, tuple | list)
        some: Sequence[Any] = queries if several else (queries,)  # type: ignore[assignment]
        if not some:
            raise InvalidValue("a bulk delete needs at least one query", pointer="queries")
        deletion = Deletion(
            queries=tuple([await self.checked(one) for one in some]), max_failures=max_failures,
            notice=noticed(notify, list(self._transports)),
        )  # fmt: skip
        return await self._submit(
            DELETE, deletion, name, deletion.queries, recurrence=recurrence,
            timezone=timezone, **options,
        )  # fmt: skip

    async def checked(self, query: Asked, asker: Asker | None = None) -> RowQuery:
        """Return a query as it is stored; raises `InvalidQuery` if `asker` could never run it.

        A table that only hosts know is looked up when the job runs.
        """
        row_query = await self._rows(query)
        if row_query.is_planned and (
            row_query.of_jobs or table_of(self._registry, row_query) or asker
        ):
            asker = asker or await self._asker(query, row_query)
            await cpu.off_loop(self._tried, row_query, asker)
        return row_query

    def _tried(self, row_query: RowQuery, asker: Asker) -> None:
        conditions = plan(row_query, self._registry, asker)
        assert conditions is not None
        conditions.sql("r", 1)

    async def _asker(self, query: Asked, row_query: RowQuery) -> Asker:
        database = self._jobs.database
        now = await clock.now(database)
        if isinstance(query, JobQuery):
            return Asker(query.caller, now)
        return await asker_of(database, None, row_query, now)

    async def _rows(self, query: Asked) -> RowQuery:
        if isinstance(query, JobQuery):
            return rows_of(await query.ready(), query.caller).checked()
        return rows_of(query).checked()

    async def preview(self, query: Asked, asker: Asker | None = None) -> Preview:
        """Return how many rows a query finds now, and the first ten."""
        row_query = await self._rows(query)
        asker = asker or await self._asker(query, row_query)
        source = await opened(self._jobs.database, row_query, OwnJob(), self._registry, asker)
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
        """Send each recipient at most one mail; `$field` in a text is replaced from its row."""
        if per_second is not None and not per_second > 0:
            raise InvalidValue(
                f"per_second must be above 0, not {per_second}", pointer="per_second"
            )
        mailing = Mailing(
            transport=transport, recipients=recipients.checked(), address=address, subject=subject,
            body=body, per_second=per_second, max_failures=max_failures,
        )  # fmt: skip
        return await self._submit(MAIL, mailing, name, [mailing.recipients], **options)

    async def propagate(
        self, sink: str, members: RowQuery, activity: Mapping[str, Any], *, quick: bool = False,
        unique: str | None = None, name: str = "Activity propagation",
        max_failures: int | None = None, **options: Unpack[JobOptions],
    ) -> JobHandle[dict[str, Any]]:  # fmt: skip
        """Write one activity for each member; members with the same `unique` field count as one.

        Members whose field is missing, null or empty count separately.
        """
        propagation = Propagation(
            sink=sink, members=members.checked(), activity=dict(activity), unique=unique,
            max_failures=max_failures,
        )  # fmt: skip
        handler = CAMPAIGN if quick else PROPAGATE
        return await self._submit(handler, propagation, name, [propagation.members], **options)

    async def import_(
        self, container: Any, content: bytes | str, *, name: str = "Import",
        lookups: Mapping[str, tuple[str, str]] | None = None, owner: UUID | None = None,
        **options: Unpack[ImportArguments],
    ) -> tuple[UUID, JobHandle[dict[str, Any]]]:  # fmt: skip
        """Import a file into a container; return the import's id and its last job.

        Options are those of `ImportOptions`: format, encoding, delimiter, columns, defaults, kind.
        `lookups` maps a field to the (container, field) that its values refer to.
        """
        info = await container.describe()
        raw = content.encode() if isinstance(content, str) else content
        if len(raw) > CONTENT_BYTES_MAX:
            raise InvalidValue(f"the file has {len(raw)} bytes; the limit is {CONTENT_BYTES_MAX}")
        how = imports.checked(options, lookups or {})
        if how.kind == "upsert" and table_of(self._registry, RowQuery(container=info.name)):
            raise InvalidValue("an import into a pipeline table only creates; use kind='create'")
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
        """Delete the items an import created; items it replaced stay, and the job counts them."""
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
        """Define which fields make items of a container duplicates, and compute all codes."""
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
        """Record which items have duplicates by a published rule.

        The codes of all items of its container are computed again first. `by_key` is as in
        `RowQuery`.
        """
        row_query = RowQuery(table="rule", where=tuple(where)).checked()
        data = {"rule": rule, "where": row_query.where, "criteria": criteria, "by_key": by_key}
        return await self._order(
            DETECT, data, name=name, recurrence=recurrence, timezone=timezone, **options
        )

    async def duplicates(self, job: UUID) -> list[tuple[str, str]]:
        """Return the pairs of ids that a detection found, each pair in both directions."""
        rows = await self._jobs.database.fetch(SQL.duplicates, job, FAILURES_SHOWN)
        return [(row["base_id"], row["duplicate_id"]) for row in rows]

    async def failures(self, job: UUID) -> list[RowFailure]:
        """Return the rows that a job could not process, oldest first, at most 1,000."""
        recorded = await self.recorded_failures(job)
        return [RowFailure(one.row_id, one.code, one.message) for one in recorded]

    async def recorded_failures(
        self, job: UUID, rows: int = FAILURES_SHOWN, after: tuple[datetime, UUID] | None = None
    ) -> list[RecordedFailure]:
        """Return recorded failures, oldest first, after the one of (`at`, `id`)."""
        at, id_ = after or (None, None)
        records = await self._jobs.database.fetch(SQL.failures, job, rows, at, id_)
        return [RecordedFailure(**dict(row)) for row in records]

    async def counts(self, job: UUID) -> tuple[int, int]:
        """Return the numbers of succeeded and failed rows of a job so far."""
        return (await self.counts_of([job])).get(job, (0, 0))

    async def counts_of(self, jobs: Sequence[UUID]) -> dict[UUID, tuple[int, int]]:
        """Return the counts of many jobs; jobs that are not bulk operations are left out."""
        rows = await self._jobs.database.fetch(SQL.counts, jobs) if jobs else []
        return {row["job"]: (row["success_count"], row["failure_count"]) for row in rows}

    async def _order(
        self, handler: str, data: Any, *, options: Mapping[str, Any] | None = None, **more: Any
    ) -> JobHandle[dict[str, Any]]:
        """Submit a job with its operation type, which no host need have registered yet."""
        return await self._jobs.submit(
            handler, data, lane=LANE, options={"operation_type": KINDS[handler], **(options or {})},
            **more,
        )  # fmt: skip

    async def _submit(
        self, handler: str, parameters: Any, name: str, queries: Sequence[RowQuery],
        **options: Any,
    ) -> JobHandle[dict[str, Any]]:  # fmt: skip
        """Submit a job together with the row that shows its progress."""

        async def work(tx: Transaction) -> JobHandle[dict[str, Any]]:
            job = await self._order(
                handler, msgspec.to_builtins(parameters), name=name, tx=tx, **options
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
    """Ends orphaned children, removes old records, and creates the default series."""

    def __init__(self, service: Bulk) -> None:
        super().__init__(service)
        self._settled = False

    def duties(self) -> list[Duty]:
        """Return the periodic duties of the leader."""
        return [
            Duty("bulk.orphans", 2.0, lambda: children.end_orphans(self.service._jobs)),
            Duty("bulk.forget", 3_600.0, self.forget),
            Duty("bulk.standing", SETTLED_SECONDS, self._establish_later),
        ]

    async def establish(self) -> bool:
        """Create the suspended bulk delete of succeeded jobs; return whether this call did."""
        return await default_series.establish(self.service._jobs.database, DELETE, LANE)

    async def _establish_later(self) -> None:
        """Create it at the second tick, so that a short-lived script does not."""
        if self._settled:
            await self.establish()
        self._settled = True

    async def forget(self) -> int:
        """Remove the bulk records of jobs that no longer exist; return of how many jobs."""
        database = self.service._jobs.database
        return len(await database.write(SQL.forget, FORGET_ROWS, IMPORTS_KEPT))


def _register(known: dict[str, F], name: str, what: str, *taken: str) -> Callable[[F], F]:
    def register(function: F) -> F:
        callables.check(function, f"the {what} {name!r}", *taken)
        if name in known:
            raise Conflict(f"{what} {name!r} is already registered; use another name")
        known[name] = function
        return function

    return register
