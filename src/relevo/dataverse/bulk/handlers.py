"""The job handlers of all bulk operations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from relevo.dataverse.bulk import children, deletion
from relevo.dataverse.bulk.deletion import BulkDeleteJob, DeleteChild, Deletion
from relevo.dataverse.bulk.duplicates import DuplicateDetection
from relevo.dataverse.bulk.engine import BulkRun, add_message, explained, result_of
from relevo.dataverse.bulk.imports import LANE, PART, ImportSteps, part_of
from relevo.dataverse.bulk.mail import Mailer, Mailing, Propagation, Sink, Transport, propagating
from relevo.dataverse.bulk.notices import Notices
from relevo.dataverse.bulk.sources import SQL
from relevo.errors import InvalidValue
from relevo.jobs.core import operation_types as types
from relevo.jobs.registry import Handler
from relevo.kernel.running.verdicts import Fail

if TYPE_CHECKING:
    from collections.abc import Mapping

    from relevo.dataverse.bulk.rights import RightsOf
    from relevo.jobs.running.context import JobContext
    from relevo.jobs.service import Jobs
    from relevo.pipeline.registry import PipelineRegistry

F = TypeVar("F")
DELETE: Final = "relevo.dataverse.bulk.delete"
MAIL: Final = "relevo.dataverse.bulk.mail"
PARSE: Final = "relevo.import.parse"
TRANSFORM: Final = "relevo.import.transform"
WRITE: Final = "relevo.import.write"
PROPAGATE: Final = "relevo.dataverse.bulk.propagate"
CAMPAIGN: Final = "relevo.dataverse.bulk.campaign"
PUBLISH: Final = "relevo.duplicates.publish"
DETECT: Final = "relevo.duplicates.detect"
KINDS: Final = {
    DELETE: types.BULK_DELETE, deletion.PART: types.BULK_DELETE_SUBPROCESS,
    MAIL: types.BULK_EMAIL, PARSE: types.IMPORT_PARSE,
    TRANSFORM: types.IMPORT_TRANSFORM, WRITE: types.IMPORT, PART: types.IMPORT_SUBPROCESS,
    PROPAGATE: types.ACTIVITY_PROPAGATION, CAMPAIGN: types.QUICK_CAMPAIGN,
    PUBLISH: types.DUPLICATE_RULE_PUBLISH, DETECT: types.DUPLICATE_DETECTION,
}  # fmt: skip
"""The operation type of each handler."""


class Handlers:
    """The handlers of an app, with its registered transports and sinks."""

    def __init__(
        self, jobs: Jobs, registry: PipelineRegistry | None, rights_of: RightsOf,
        transports: Mapping[str, Transport], sinks: Mapping[str, Sink],
    ) -> None:  # fmt: skip
        self._jobs = jobs
        self._registry = registry
        self._rights_of = rights_of
        self._transports = transports
        self._sinks = sinks

    def register(self) -> None:
        """Register all handlers, so that hosts of the app run them."""
        known = self._jobs.registry
        if children.PARTS_LANE not in known.lanes:
            lane = msgspec.structs.replace(known.lanes[LANE], name=children.PARTS_LANE)
            known.configure(lane)
        for name, function in (
            (DELETE, self._delete), (deletion.PART, self._delete_part), (MAIL, self._mail),
            (PARSE, self._parse), (TRANSFORM, self._transform), (WRITE, self._write),
            (PART, self._part), (PROPAGATE, self._propagate), (CAMPAIGN, self._propagate),
            (PUBLISH, self._publish), (DETECT, self._detect),
        ):  # fmt: skip
            place = children.PARTS_LANE if name in (deletion.PART, PART) else LANE
            known.add(
                Handler(
                    name=name, function=explained(function), lane=place, raw=True,
                    operation_type=KINDS[name],
                )
            )  # fmt: skip

    def _walk(self, ctx: JobContext, max_failures: int | None = None) -> BulkRun:
        return BulkRun(
            self._jobs.database, self._registry, ctx, rights_of=self._rights_of,
            max_failures=max_failures,
        )  # fmt: skip

    async def _delete(self, ctx: JobContext) -> dict[str, Any] | None:
        parameters = msgspec.convert(ctx.data, Deletion)
        notices = Notices(self._jobs.database, ctx, parameters.notice, self._transports)
        try:
            counts = await BulkDeleteJob(self._jobs, ctx, parameters).run()
        except Fail as error:
            await notices.send(f"failed, {error.text}", {})
            raise
        if counts is None:
            return None
        result = result_of(ctx, counts, "deleted")
        imports = [query.imported for query in parameters.queries if query.imported is not None]
        if imports and (stay := await self._jobs.database.fetchval(SQL.replaced_rows, imports)):
            add_message(ctx, f"{stay} rows replaced existing items, which are kept")
        await notices.send(ctx.friendly or f"{counts['success']} rows were deleted", counts)
        return result

    async def _delete_part(self, ctx: JobContext) -> dict[str, Any] | None:
        counts = await DeleteChild(self._jobs, self._registry, self._rights_of, ctx).run()
        return None if counts is None else result_of(ctx, counts, "deleted")

    async def _mail(self, ctx: JobContext) -> dict[str, Any]:
        parameters = msgspec.convert(ctx.data, Mailing)
        transport = _registered(self._transports, parameters.transport, "transport")
        mailer = Mailer(self._jobs.database, ctx, parameters, transport)
        return result_of(ctx, await mailer.run(self._walk(ctx, parameters.max_failures)), "mailed")

    async def _propagate(self, ctx: JobContext) -> dict[str, Any]:
        parameters = msgspec.convert(ctx.data, Propagation)
        apply = propagating(ctx, parameters, _registered(self._sinks, parameters.sink, "sink"))
        walk = self._walk(ctx, parameters.max_failures)
        return result_of(ctx, await walk.over([parameters.members], apply), "propagated")

    def _importing(self, ctx: JobContext) -> ImportSteps:
        return ImportSteps(self._jobs.database, self._registry, ctx)

    async def _parse(self, ctx: JobContext) -> dict[str, Any]:
        return result_of(ctx, await self._importing(ctx).parse(), "parsed")

    async def _transform(self, ctx: JobContext) -> dict[str, Any]:
        return result_of(ctx, await self._importing(ctx).transform(self._walk(ctx)), "transformed")

    async def _write(self, ctx: JobContext) -> dict[str, Any] | None:
        counts = await self._importing(ctx).write(self._jobs)
        return None if counts is None else result_of(ctx, counts, "imported")

    async def _part(self, ctx: JobContext) -> dict[str, Any] | None:
        part = part_of(ctx)
        walk = BulkRun(
            self._jobs.database, self._registry, ctx, rights_of=self._rights_of, part=part,
            follow_parent=lambda: children.follow_parent(self._jobs, ctx, part.parent),
        )  # fmt: skip
        try:
            counts = await self._importing(ctx).part(walk)
        except children.WaitsForOther:
            return None
        await self._jobs.database.write(SQL.end_part, part.parent, ctx.id, idempotent=True)
        return result_of(ctx, counts, "imported")

    async def _publish(self, ctx: JobContext) -> dict[str, Any]:
        return result_of(
            ctx,
            await DuplicateDetection(self._jobs.database, ctx).publish(self._walk(ctx)),
            "coded",
        )

    async def _detect(self, ctx: JobContext) -> dict[str, Any]:
        return result_of(
            ctx,
            await DuplicateDetection(self._jobs.database, ctx).detect(self._walk(ctx)),
            "compared",
        )


def _registered(known: Mapping[str, F], name: str, what: str) -> F:
    if name not in known:
        raise InvalidValue(
            f"this host has no {what} {name!r}; register it with @app.bulk.{what}({name!r})"
        )
    return known[name]
