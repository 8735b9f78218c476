"""What operators do with the leases of a processor: move positions, fill gaps, cut, delete."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import msgspec
from msgspec import Meta, Struct

from relevo import limits
from relevo.errors import (
    Conflict,
    ContainerRecreated,
    FeedExpired,
    FeedRegressed,
    LeaseCoverage,
    ModeMismatch,
    NotFound,
)
from relevo.feed.http.operations import Force, UnitView, handle_of, shown, start_of
from relevo.feed.http.units import ByFeed
from relevo.feed.operating.operations import Export
from relevo.kernel.operation import Operation
from relevo.store.http.containers import SCOPE

if TYPE_CHECKING:
    from relevo.http.access.authenticator import Principal
    from relevo.http.services import Services


async def export_feed(services: Services, _: Principal, command: ByFeed) -> Export:
    """Return where a unit stands, in a form that another unit over the container can take."""
    text = await handle_of(services, command).export()
    return msgspec.json.decode(text, type=Export)


class ImportFeed(ByFeed, frozen=True, kw_only=True):
    """Where a unit is to go on."""

    positions: Annotated[Export, Meta(description="What `feeds.export` has returned.")]
    force: Force = False


async def import_feed(services: Services, _: Principal, command: ImportFeed) -> UnitView:
    """Let a unit go on where an exported one stood."""
    unit = handle_of(services, command)
    await unit.import_(command.positions, force=command.force)
    return await shown(unit, command)


class RepairFeed(ByFeed, frozen=True, kw_only=True):
    """From where on the missing leases are to read."""

    start: Annotated[
        str,
        Meta(
            min_length=1,
            description="`beginning`, `now`, a time such as `2031-05-30T18:00:00Z`, the name of a"
            " snapshot, or a continuation: a position up to which everything was processed.",
        ),
    ]


class RepairedFeed(Struct, frozen=True):
    """What a repair has added."""

    lease_tokens: list[str]
    """The leases that were missing; none if there was no gap."""


async def repair_feed(services: Services, _: Principal, command: RepairFeed) -> RepairedFeed:
    """Put leases into the gaps of a unit that does not cover its whole container."""
    return RepairedFeed(await handle_of(services, command).repair(start_of(command.start)))


class SplitLeases(ByFeed, frozen=True, kw_only=True):
    """Into how many leases."""

    at_least: Annotated[
        int,
        Meta(
            ge=1,
            le=limits.LEASES_PER_UNIT_MAX,
            description="So many leases or more, by halving those there are.",
        ),
    ]
    force: Force = False


async def split_leases(services: Services, _: Principal, command: SplitLeases) -> UnitView:
    """Cut the leases of a unit, so that more hosts can share the work."""
    unit = handle_of(services, command)
    await unit.split_leases(command.at_least, force=command.force)
    return await shown(unit, command)


async def delete_feed(services: Services, _: Principal, command: ByFeed) -> None:
    """Forget a unit with its positions, snapshots and dead letters."""
    await handle_of(services, command).delete()


OPERATIONS: Final = (
    Operation(
        name="feeds.export",
        method="GET",
        path="/v1/feeds/{container}/{name}:export",
        summary="Show the positions of a processor in a form that `feeds.import` takes.",
        request=ByFeed,
        response=Export,
        permission="feeds:read",
        handler=export_feed,
        errors=(NotFound, ContainerRecreated),
        scope=SCOPE,
    ),
    Operation(
        name="feeds.import",
        method="POST",
        path="/v1/feeds/{container}/{name}:import",
        summary="Let a paused processor go on where an exported one stood.",
        request=ImportFeed,
        response=UnitView,
        permission="feeds:manage",
        handler=import_feed,
        errors=(
            NotFound,
            Conflict,
            ContainerRecreated,
            ModeMismatch,
            FeedExpired,
            FeedRegressed,
        ),
        scope=SCOPE,
    ),
    Operation(
        name="feeds.repair",
        method="POST",
        path="/v1/feeds/{container}/{name}:repair",
        summary="Add the leases that a processor lacks to cover its whole container.",
        request=RepairFeed,
        response=RepairedFeed,
        permission="feeds:manage",
        handler=repair_feed,
        errors=(NotFound, Conflict, ContainerRecreated, FeedExpired, FeedRegressed, LeaseCoverage),
        scope=SCOPE,
    ),
    Operation(
        name="feeds.split_leases",
        method="POST",
        path="/v1/feeds/{container}/{name}:split-leases",
        summary="Cut the leases of a paused processor, so that more hosts can share its work.",
        request=SplitLeases,
        response=UnitView,
        permission="feeds:manage",
        handler=split_leases,
        errors=(NotFound, Conflict, ContainerRecreated),
        scope=SCOPE,
    ),
    Operation(
        name="feeds.delete",
        method="DELETE",
        path="/v1/feeds/{container}/{name}",
        summary="Forget a processor that no host serves, with its positions and dead letters.",
        request=ByFeed,
        response=None,
        permission="feeds:manage",
        handler=delete_feed,
        errors=(NotFound, Conflict),
        scope=SCOPE,
    ),
)
