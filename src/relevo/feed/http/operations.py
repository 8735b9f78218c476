"""What operators do with a processor: pause, resume, rewind, snapshots."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Final

from msgspec import Meta, Struct, field

from relevo import limits
from relevo.errors import Conflict, ContainerRecreated, FeedExpired, FeedRegressed, NotFound
from relevo.feed.http.units import ByFeed
from relevo.feed.model import Mode
from relevo.feed.operating.operations import Snapshot
from relevo.feed.operating.states import UnitPhase
from relevo.http import paging
from relevo.http.paging import Cursor, Limit, Page
from relevo.kernel.operation import Operation
from relevo.kernel.pages import first
from relevo.store.http.containers import SCOPE
from relevo.store.http.items import container_of

if TYPE_CHECKING:
    from relevo.feed.operating.operations import UnitHandle
    from relevo.http.access.authenticator import Principal
    from relevo.http.services import Services

PAUSE_SECONDS_MAX: Final = limits.REQUEST_SECONDS_MAX / 2
"""How long `pause` waits for handlers; then it answers that they still run."""

Tokens = Annotated[
    tuple[str, ...],
    Meta(
        max_length=limits.RANGES_PER_CONTAINER_MAX,
        description="Only these leases, by their tokens. Default: all.",
    ),
]


Force = Annotated[bool, Meta(description="Take leases that are not paused from their owners.")]


class ByLeases(ByFeed, frozen=True, kw_only=True):
    """Which leases of which unit."""

    lease_tokens: Tokens = ()


class UnitView(Struct, frozen=True, kw_only=True):
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


async def shown(unit: UnitHandle, command: ByFeed) -> UnitView:
    """Return a unit as it is."""
    found = await unit.state()
    return UnitView(
        container=command.container,
        name=command.name,
        state=found.state,
        mode=found.mode,
        generation=found.generation,
    )


async def pause_feed(services: Services, _: Principal, command: ByLeases) -> UnitView:
    """Have owners finish, checkpoint and let go; nobody takes over until it is resumed."""
    unit = handle_of(services, command)
    with suppress(TimeoutError):  # the pause stands, and the answer says that handlers still run
        async with asyncio.timeout(PAUSE_SECONDS_MAX):
            await unit.pause(command.lease_tokens or None)
    return await shown(unit, command)


async def resume_feed(services: Services, _: Principal, command: ByLeases) -> UnitView:
    """Let the work go on; a blocked lease goes on only if it is named."""
    unit = handle_of(services, command)
    await unit.resume(command.lease_tokens or None)
    return await shown(unit, command)


class RewindFeed(ByLeases, frozen=True, kw_only=True):
    """Where a unit is to go on."""

    to: Annotated[
        str,
        Meta(
            min_length=1,
            description="`beginning`, `now`, a time such as `2031-05-30T18:00:00Z`, the name of a"
            " snapshot, or a continuation.",
        ),
    ]
    force: Force = False


async def rewind_feed(services: Services, _: Principal, command: RewindFeed) -> UnitView:
    """Set the positions of a unit, backwards or forwards."""
    unit = handle_of(services, command)
    tokens = command.lease_tokens or None
    await unit.rewind(start_of(command.to), tokens, force=command.force)
    return await shown(unit, command)


def start_of(text: str) -> datetime | str:
    """Return the position that a text means: an instant, or what the feed knows by a name."""
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return text


class SetProperties(ByFeed, frozen=True, kw_only=True):
    """What to keep with a lease."""

    lease_token: Annotated[
        str, Meta(max_length=200, description="The lease, as `feeds.get` shows it.")
    ]
    properties: Annotated[
        dict[str, str],
        Meta(max_length=limits.LABELS_MAX, description="Texts by name, instead of those it has."),
    ] = field(default_factory=dict)


async def set_properties(services: Services, _: Principal, command: SetProperties) -> UnitView:
    """Keep texts with a lease, and with the leases that take its place."""
    unit = handle_of(services, command)
    await unit.set_properties(command.lease_token, command.properties)
    return await shown(unit, command)


class TakeSnapshot(ByFeed, frozen=True, kw_only=True):
    """What to call where a unit stands."""

    snapshot: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=limits.NAME_LENGTH_MAX,
            description="Its name; one of that name is replaced.",
        ),
    ]


async def take_snapshot(services: Services, _: Principal, command: TakeSnapshot) -> Snapshot:
    """Keep where a unit stands, so that it can be rewound to it."""
    return await handle_of(services, command).snapshot(command.snapshot)


class ListSnapshots(ByFeed, frozen=True, kw_only=True):
    """Which page of a unit's snapshots."""

    cursor: Cursor | None = None
    limit: Limit = limits.PAGE_ROWS_DEFAULT


async def list_snapshots(
    services: Services, _: Principal, command: ListSnapshots
) -> Page[Snapshot]:
    """Return the snapshots of a unit, oldest first."""
    after = paging.decode(command.cursor, tuple[datetime, str])
    known = await handle_of(services, command).snapshots()
    found = [one for one in known if after is None or (one.taken_at, one.name) > after]
    return paging.page(
        services.page_bytes, first(found, command.limit), lambda one: (one.taken_at, one.name)
    )


OPERATIONS: Final = (
    Operation(
        name="feeds.pause",
        method="POST",
        path="/v1/feeds/{container}/{name}:pause",
        summary="Have a processor finish what it does and rest.",
        request=ByLeases,
        response=UnitView,
        permission="feeds:manage",
        handler=pause_feed,
        errors=(NotFound,),
        scope=SCOPE,
    ),
    Operation(
        name="feeds.resume",
        method="POST",
        path="/v1/feeds/{container}/{name}:resume",
        summary="Let a processor go on; a blocked lease goes on only if it is named.",
        request=ByLeases,
        response=UnitView,
        permission="feeds:manage",
        handler=resume_feed,
        errors=(NotFound,),
        scope=SCOPE,
    ),
    Operation(
        name="feeds.rewind",
        method="POST",
        path="/v1/feeds/{container}/{name}:rewind",
        summary="Let a paused processor go on from somewhere else.",
        request=RewindFeed,
        response=UnitView,
        permission="feeds:manage",
        handler=rewind_feed,
        errors=(NotFound, Conflict, ContainerRecreated, FeedExpired, FeedRegressed),
        scope=SCOPE,
    ),
    Operation(
        name="feeds.properties",
        method="POST",
        path="/v1/feeds/{container}/{name}:properties",
        summary="Keep texts of yours with a lease of a processor.",
        request=SetProperties,
        response=UnitView,
        permission="feeds:manage",
        handler=set_properties,
        errors=(NotFound,),
        scope=SCOPE,
    ),
    Operation(
        name="feeds.snapshots",
        method="GET",
        path="/v1/feeds/{container}/{name}/snapshots",
        summary="List the snapshots of a processor's position.",
        request=ListSnapshots,
        response=Page[Snapshot],
        permission="feeds:read",
        handler=list_snapshots,
        errors=(NotFound,),
        scope=SCOPE,
    ),
    Operation(
        name="feeds.snapshot",
        method="PUT",
        path="/v1/feeds/{container}/{name}/snapshots/{snapshot}",
        summary="Keep where a processor stands, under a name.",
        request=TakeSnapshot,
        response=Snapshot,
        permission="feeds:manage",
        handler=take_snapshot,
        errors=(NotFound, ContainerRecreated),
        scope=SCOPE,
    ),
)
