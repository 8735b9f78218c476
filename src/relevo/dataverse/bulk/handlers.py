"""What hosts run: the handler of each kind of bulk operation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from relevo.dataverse.bulk import deleting, parts
from relevo.dataverse.bulk.deleting import Deleting, Deletion, Removing
from relevo.dataverse.bulk.duplicates import Matching
from relevo.dataverse.bulk.engine import Walk, add, told, worded
from relevo.dataverse.bulk.importing import LANE, PART, Importing, part_of
from relevo.dataverse.bulk.mailing import Mailer, Mailing, Propagation, Sink, Transport, propagating
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
    from relevo.pipeline.registry import Registry

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
    DELETE: types.BULK_DELETE, deleting.PART: types.BULK_DELETE_SUBPROCESS,
    MAIL: types.BULK_EMAIL, PARSE: types.IMPORT_PARSE,
    TRANSFORM: types.IMPORT_TRANSFORM, WRITE: types.IMPORT, PART: types.IMPORT_SUBPROCESS,
    PROPAGATE: types.ACTIVITY_PROPAGATION, CAMPAIGN: types.QUICK_CAMPAIGN,
    PUBLISH: types.DUPLICATE_RULE_PUBLISH, DETECT: types.DUPLICATE_DETECTION,
}  # fmt: skip
"""The operation type of each handler."""


class Handlers:
    """The handlers of an app, with what its users registered."""

    def __init__(
        self, jobs: Jobs, registry: Registry | None, rights_of: RightsOf,
        transports: Mapping[str, Transport], sinks: Mapping[str, Sink],
    ) -> None:  # fmt: skip
        self._jobs = jobs
        self._registry = registry
        self._rights_of = rights_of
        self._transports = transports
        self._sinks = sinks

    def register(self) -> None:
        """Let hosts of the app run all kinds."""
        known = self._jobs.registry
        if parts.PARTS_LANE not in known.lanes:
            lane = msgspec.structs.replace(known.lanes[LANE], name=parts.PARTS_LANE)
            known.configure(lane)
        for name, function in (
            (DELETE, self._delete), (deleting.PART, self._delete_part), (MAIL, self._mail),
            (PARSE, self._parse), (TRANSFORM, self._transform), (WRITE, self._write),
            (PART, self._part), (PROPAGATE, self._propagate), (CAMPAIGN, self._propagate),
            (PUBLISH, self._publish), (DETECT, self._detect),
        ):  # fmt: skip
            place = parts.PARTS_LANE if name in (deleting.PART, PART) else LANE
            known.add(
                Handler(
                    name=name, function=worded(function), lane=place, raw=True,
                    operation_type=KINDS[name],
                )
            )  # fmt: skip

    def _walk(self, ctx: JobContext, max_failures: int | None = None) -> Walk:
        return Walk(
            self._jobs.database, self._registry, ctx, rights_of=self._rights_of,
            max_failures=max_failures,
        )  # fmt: skip

    async def _delete(self, ctx: JobContext) -> dict[str, Any] | None:
        asked = msgspec.convert(ctx.data, Deletion)
        notices = Notices(self._jobs.database, ctx, asked.notice, self._transports)
        try:
            counts = await Deleting(self._jobs, ctx, asked).run()
        except Fail as error:
            await notices.send(f"failed, {error.text}", {})
            raise
        if counts is None:
            return None
        result = told(ctx, counts, "deleted")
        imports = [one.imported for one in asked.queries if one.imported is not None]
        if imports and (stay := await self._jobs.database.fetchval(SQL.replaced_rows, imports)):
            add(ctx, f"{stay} rows had replaced items instead of creating them; these items stay")
        await notices.send(ctx.friendly or f"{counts['success']} rows were deleted", counts)
        return result

    async def _delete_part(self, ctx: JobContext) -> dict[str, Any] | None:
        counts = await Removing(self._jobs, self._registry, self._rights_of, ctx).run()
        return None if counts is None else told(ctx, counts, "deleted")

    async def _mail(self, ctx: JobContext) -> dict[str, Any]:
        asked = msgspec.convert(ctx.data, Mailing)
        transport = _registered(self._transports, asked.transport, "transport")
        mailer = Mailer(self._jobs.database, ctx, asked, transport)
        return told(ctx, await mailer.run(self._walk(ctx, asked.max_failures)), "mailed")

    async def _propagate(self, ctx: JobContext) -> dict[str, Any]:
        asked = msgspec.convert(ctx.data, Propagation)
        apply = propagating(ctx, asked, _registered(self._sinks, asked.sink, "sink"))
        walk = self._walk(ctx, asked.max_failures)
        return told(ctx, await walk.over([asked.members], apply), "propagated")

    def _importing(self, ctx: JobContext) -> Importing:
        return Importing(self._jobs.database, self._registry, ctx)

    async def _parse(self, ctx: JobContext) -> dict[str, Any]:
        return told(ctx, await self._importing(ctx).parse(), "parsed")

    async def _transform(self, ctx: JobContext) -> dict[str, Any]:
        return told(ctx, await self._importing(ctx).transform(self._walk(ctx)), "transformed")

    async def _write(self, ctx: JobContext) -> dict[str, Any] | None:
        counts = await self._importing(ctx).write(self._jobs)
        return None if counts is None else told(ctx, counts, "imported")

    async def _part(self, ctx: JobContext) -> dict[str, Any] | None:
        part = part_of(ctx)
        walk = Walk(
            self._jobs.database, self._registry, ctx, rights_of=self._rights_of, part=part,
            heed=lambda: parts.heed(self._jobs, ctx, part.parent),
        )  # fmt: skip
        try:
            counts = await self._importing(ctx).part(walk)
        except parts.Held:
            return None
        await self._jobs.database.write(SQL.end_part, part.parent, ctx.id, idempotent=True)
        return told(ctx, counts, "imported")

    async def _publish(self, ctx: JobContext) -> dict[str, Any]:
        return told(ctx, await Matching(self._jobs.database, ctx).publish(self._walk(ctx)), "coded")

    async def _detect(self, ctx: JobContext) -> dict[str, Any]:
        return told(
            ctx, await Matching(self._jobs.database, ctx).detect(self._walk(ctx)), "compared"
        )


def _registered(known: Mapping[str, F], name: str, what: str) -> F:
    if name not in known:
        raise InvalidValue(
            f"this host has no {what} {name!r}; register it with @app.bulk.{what}({name!r})"
        )
    return known[name]
