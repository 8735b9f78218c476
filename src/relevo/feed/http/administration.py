"""Operations on a processor: pause, resume, rewind, split leases, delete."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Final

from msgspec import Meta, Struct, field

from relevo import limits
from relevo.errors import (
    Conflict,
    ContainerRecreated,
    FeedExpired,
    FeedRegressed,
    InvalidValue,
    LeaseCoverage,
    ModeMismatch,
    NotFound,
)
from relevo.feed.http.units import ByFeed
from relevo.feed.model import Mode
from relevo.feed.operating.operations import Export, Snapshot
from relevo.feed.operating.states import UnitPhase
from relevo.http import paging
from relevo.http.paging import Cursor, Limit, Page
from relevo.kernel.operation import Operations
from relevo.kernel.pages import Fetched, first, fitting, json_bytes
from relevo.store.http.containers import SCOPE
from relevo.store.http.items import container_of

if TYPE_CHECKING:
    from relevo.feed.operating.operations import UnitHandle
    from relevo.http.access.authenticator import Principal
    from relevo.http.services import Services

PAUSE_SECONDS_MAX: Final = limits.REQUEST_SECONDS_MAX / 2
"""How long `pause` waits for handlers; after that the answer says that they still run."""

Tokens = Annotated[
    tuple[str, ...],
    Meta(
        max_length=limits.RANGES_PER_CONTAINER_MAX,
        description="Only these leases, by their tokens. Default: all.",
    ),
]


Force = Annotated[bool, Meta(description="Take leases that are not paused from their owners.")]


operation = Operations(scope=SCOPE)


class ByLeases(ByFeed, frozen=True, kw_only=True):
    """Some leases of a unit."""

    lease_tokens: Tokens = ()


class FeedUnitView(Struct, frozen=True, kw_only=True):
    """A unit as it is."""

    container: str
    name: str
    state: UnitPhase
    """`pausing` until nothing runs any more."""
    mode: Mode
    generation: int
    """Grows with every rewind."""


def handle_of(services: Services, command: ByFeed) -> UnitHandle:
    """Return the unit that a command names."""
    return container_of(services, command).unit(command.name, command.leases_in)


async def shown(unit: UnitHandle, command: ByFeed) -> FeedUnitView:
    """Return a unit as it is."""
    found = await unit.state()
    return FeedUnitView(
        container=command.container,
        name=command.name,
        state=found.state,
        mode=found.mode,
        generation=found.generation,
    )


@operation(
    "feeds.pause", "POST /v1/feeds/{container}/{name}:pause", "feeds:manage", errors=(NotFound,)
)
async def pause_feed(services: Services, _: Principal, command: ByLeases) -> FeedUnitView:
    """Pause a processor after the calls under way.

    Owners finish, checkpoint and release their leases; no host takes them until it is resumed.
    """
    unit = handle_of(services, command)
    with suppress(TimeoutError):  # the pause stands, and the answer says that handlers still run
        async with asyncio.timeout(PAUSE_SECONDS_MAX):
            await unit.pause(command.lease_tokens or None)
    return await shown(unit, command)


@operation(
    "feeds.resume", "POST /v1/feeds/{container}/{name}:resume", "feeds:manage", errors=(NotFound,)
)
async def resume_feed(services: Services, _: Principal, command: ByLeases) -> FeedUnitView:
    """Let a processor go on; a blocked lease goes on only if it is named."""
    unit = handle_of(services, command)
    await unit.resume(command.lease_tokens or None)
    return await shown(unit, command)


class RewindFeed(ByLeases, frozen=True, kw_only=True):
    """The position where a unit goes on."""

    to: Annotated[
        str,
        Meta(
            min_length=1,
            description="`beginning`, `now`, a time such as `2031-05-30T18:00:00Z`, the name of a"
            " snapshot, or a continuation.",
        ),
    ]
    force: Force = False


@operation(
    "feeds.rewind",
    "POST /v1/feeds/{container}/{name}:rewind",
    "feeds:manage",
    errors=(NotFound, Conflict, ContainerRecreated, FeedExpired, FeedRegressed),
)
async def rewind_feed(services: Services, _: Principal, command: RewindFeed) -> FeedUnitView:
    """Let a paused processor go on from somewhere else.

    Backwards or forwards.
    """
    unit = handle_of(services, command)
    tokens = command.lease_tokens or None
    await unit.rewind(start_of(command.to), tokens, force=command.force)
    return await shown(unit, command)


def start_of(text: str) -> datetime | str:
    """Return the position that a text names: an instant, `now`, `beginning` or a snapshot."""
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return text


class SetProperties(ByFeed, frozen=True, kw_only=True):
    """Data to store with a lease."""

    lease_token: Annotated[
        str, Meta(max_length=200, description="The lease, as `feeds.get` shows it.")
    ]
    properties: Annotated[
        dict[str, str],
        Meta(max_length=limits.LABELS_MAX, description="Texts by name, instead of those it has."),
    ] = field(default_factory=dict)


@operation(
    "feeds.properties",
    "POST /v1/feeds/{container}/{name}:properties",
    "feeds:manage",
    errors=(NotFound,),
)
async def set_properties(services: Services, _: Principal, command: SetProperties) -> FeedUnitView:
    """Keep texts of yours with a lease of a processor.

    The leases that take its place keep them, too.
    """
    unit = handle_of(services, command)
    await unit.set_properties(command.lease_token, command.properties)
    return await shown(unit, command)


class ListSnapshots(ByFeed, frozen=True, kw_only=True):
    """Which page of a unit's snapshots."""

    cursor: Cursor | None = None
    limit: Limit = limits.PAGE_ROWS_DEFAULT


@operation(
    "feeds.snapshots",
    "GET /v1/feeds/{container}/{name}/snapshots",
    "feeds:read",
    errors=(NotFound,),
)
async def list_snapshots(
    services: Services, _: Principal, command: ListSnapshots
) -> Page[Snapshot]:
    """List the snapshots of a processor's position.

    Oldest first.
    """
    after = paging.decode(command.cursor, tuple[datetime, str])
    known = await handle_of(services, command).snapshots()
    found = [one for one in known if after is None or (one.taken_at, one.name) > after]
    return paging.page(
        services.page_bytes, first(found, command.limit), lambda one: (one.taken_at, one.name)
    )


class TakeSnapshot(ByFeed, frozen=True, kw_only=True):
    """The name for the present position of a unit."""

    snapshot: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=limits.NAME_LENGTH_MAX,
            description="Its name; one of that name is replaced.",
        ),
    ]


@operation(
    "feeds.snapshot",
    "PUT /v1/feeds/{container}/{name}/snapshots/{snapshot}",
    "feeds:manage",
    errors=(NotFound, ContainerRecreated),
)
async def take_snapshot(services: Services, _: Principal, command: TakeSnapshot) -> Snapshot:
    """Keep where a processor stands, under a name."""
    return await handle_of(services, command).snapshot(command.snapshot)


class ExportFeed(ByFeed, frozen=True, kw_only=True):
    """Which page of a unit's positions."""

    cursor: Cursor | None = None


class ExportPage(Export, frozen=True, kw_only=True):
    """Positions of a unit; without `next`, and joined with those of the pages before, all."""

    next: str | None = None
    """Send it as `cursor` to get the following page; null on the last one."""


@operation(
    "feeds.export",
    "GET /v1/feeds/{container}/{name}:export",
    "feeds:read",
    errors=(NotFound, ContainerRecreated),
)
async def export_feed(services: Services, _: Principal, command: ExportFeed) -> ExportPage:
    """Show the positions of a processor in a form that `feeds.import` takes.

    The `places` of all pages together are one export.
    """
    export = await handle_of(services, command).exported()
    after = paging.decode(command.cursor, str) or ""
    # A lease that was cut since the last page begins where that page ended, or later.
    places = sorted((one for one in export.places if one.low >= after), key=lambda one: one.low)
    page = paging.page(services.page_bytes, Fetched(places, more=False), lambda one: one.high)
    return ExportPage(
        container=export.container,
        incarnation=export.incarnation,
        mode=export.mode,
        places=tuple(page.items),
        next=page.next,
    )


class ImportFeed(ByFeed, frozen=True, kw_only=True):
    """The position where a unit goes on."""

    positions: Annotated[ExportPage, Meta(description="What `feeds.export` has returned.")]
    force: Force = False


@operation(
    "feeds.import",
    "POST /v1/feeds/{container}/{name}:import",
    "feeds:manage",
    errors=(
        NotFound,
        Conflict,
        ContainerRecreated,
        ModeMismatch,
        FeedExpired,
        FeedRegressed,
    ),
)
async def import_feed(services: Services, _: Principal, command: ImportFeed) -> FeedUnitView:
    """Let a paused processor go on where an exported one stood."""
    if command.positions.next is not None:
        raise InvalidValue(
            "this is one page of an export; put the places of all its pages into one document,"
            " without `next`",
            pointer="/positions/next",
        )
    unit = handle_of(services, command)
    await unit.import_(command.positions, force=command.force)
    return await shown(unit, command)


class RepairFeed(ByFeed, frozen=True, kw_only=True):
    """The position from which the missing leases read."""

    start: Annotated[
        str,
        Meta(
            min_length=1,
            description="`beginning`, `now`, a time such as `2031-05-30T18:00:00Z`, the name of a"
            " snapshot, or a continuation: a position up to which everything was processed.",
        ),
    ]


class RepairedFeed(Struct, frozen=True):
    """The leases that a repair added."""

    added: int
    """How many leases were missing; 0 if there was no gap."""
    lease_tokens: list[str]
    """The first of them, as many as fit into an answer; `feeds.get` lists all leases."""


@operation(
    "feeds.repair",
    "POST /v1/feeds/{container}/{name}:repair",
    "feeds:manage",
    errors=(NotFound, Conflict, ContainerRecreated, FeedExpired, FeedRegressed, LeaseCoverage),
)
async def repair_feed(services: Services, _: Principal, command: RepairFeed) -> RepairedFeed:
    """Add the leases that a processor lacks to cover its container completely."""
    added = await handle_of(services, command).repair(start_of(command.start))
    shown = fitting(map(json_bytes, added), services.page_bytes)
    return RepairedFeed(len(added), added[:shown])


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


@operation(
    "feeds.split_leases",
    "POST /v1/feeds/{container}/{name}:split-leases",
    "feeds:manage",
    errors=(NotFound, Conflict, ContainerRecreated),
)
async def split_leases(services: Services, _: Principal, command: SplitLeases) -> FeedUnitView:
    """Cut the leases of a paused processor, so that more hosts can share its work."""
    unit = handle_of(services, command)
    await unit.split_leases(command.at_least, force=command.force)
    return await shown(unit, command)


@operation(
    "feeds.delete",
    "DELETE /v1/feeds/{container}/{name}",
    "feeds:manage",
    errors=(NotFound, Conflict),
)
async def delete_feed(services: Services, _: Principal, command: ByFeed) -> None:
    """Forget a processor that no host serves, with its positions and dead letters."""
    await handle_of(services, command).delete()
