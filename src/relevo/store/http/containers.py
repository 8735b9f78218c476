"""`/v1/containers`: containers of items, and the ranges of their feeds."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Final

from msgspec import Meta, Struct

from relevo import limits
from relevo.errors import Conflict, NotFound
from relevo.http import paging
from relevo.http.paging import Cursor, Limit, Page
from relevo.kernel.operation import Operations
from relevo.kernel.pages import Fetched, first

if TYPE_CHECKING:
    from relevo.http.access.authenticator import Principal
    from relevo.http.services import Services
    from relevo.store import ContainerInfo, Range

VERSIONS_SECONDS_MAX: Final = 10 * 366 * 86_400
"""Ten years: further back there is no time that can be subtracted from every other."""
TTL_SECONDS_MAX: Final = 2**31 - 1
SCOPE: Final = "container:{container}"

Name = Annotated[
    str, Meta(min_length=1, max_length=limits.NAME_LENGTH_MAX, description="The container's name.")
]
Path = Annotated[str, Meta(max_length=limits.NAME_LENGTH_MAX)]


operation = Operations(scope=SCOPE)


class ContainerView(Struct, frozen=True, kw_only=True):
    """The properties of a container."""

    name: str
    partition_key: list[str]
    """One to three paths; their values decide where an item is stored."""
    ttl_seconds: int | None
    """Seconds until items expire by default; -1: only items with a `ttl`; null: never."""
    versions_seconds: float | None
    """How long the feed keeps all versions and deletes; null keeps the latest only."""
    previous_images: bool
    incarnation: str
    """New when the container is dropped and made again."""
    created_at: datetime


def view(info: ContainerInfo) -> ContainerView:
    """Return a container as the API shows it."""
    return ContainerView(
        name=info.name,
        partition_key=list(info.partition_key),
        ttl_seconds=info.ttl,
        versions_seconds=None if info.versions is None else info.versions.total_seconds(),
        previous_images=info.previous_images,
        incarnation=info.incarnation,
        created_at=info.created_at,
    )


class ListContainers(Struct, frozen=True, kw_only=True):
    """Which page of containers."""

    cursor: Cursor | None = None
    limit: Limit = limits.PAGE_ROWS_DEFAULT


@operation("containers.list", "GET /v1/containers", "containers:read", scope=None)
async def list_containers(
    services: Services, _: Principal, command: ListContainers
) -> Page[ContainerView]:
    """List containers."""
    after = paging.decode(command.cursor, str) or ""
    # One row more than the page shows whether there is another page.
    found = await services.app.store.containers(after, min(command.limit, limits.PAGE_ROWS_MAX))
    more = bool(found) and bool(await services.app.store.containers(found[-1].name, 1))
    return paging.page(services.page_bytes, Fetched(found, more), lambda one: one.name, show=view)


class CreateContainer(Struct, frozen=True, kw_only=True):
    """The properties of a new container."""

    name: Name
    partition_key: Annotated[
        tuple[Path, ...],
        Meta(
            min_length=1,
            max_length=3,
            description="Paths such as `/city`, whose values say where an item lies.",
        ),
    ]
    ttl_seconds: (
        Annotated[
            int,
            Meta(
                ge=-1,
                le=TTL_SECONDS_MAX,
                description="When items expire after their last write; -1: only as their own `ttl`"
                " says. Without it none do.",
            ),
        ]
        | None
    ) = None
    versions_seconds: (
        Annotated[
            int,
            Meta(
                ge=1,
                le=VERSIONS_SECONDS_MAX,
                description="How long the feed keeps all versions and deletes. Without it, it has"
                " the latest version of each item.",
            ),
        ]
        | None
    ) = None
    previous_images: Annotated[
        bool, Meta(description="Versions come with what was there before.")
    ] = False
    ranges: Annotated[
        int,
        Meta(
            ge=1,
            le=limits.RANGES_PER_CONTAINER_MAX,
            description="How many parts the feed has from the start.",
        ),
    ] = limits.RANGES_PER_CONTAINER


@operation(
    "containers.create",
    "POST /v1/containers",
    "containers:manage",
    errors=(Conflict,),
    status=201,
    scope="container:{name}",
)
async def create_container(
    services: Services, _: Principal, command: CreateContainer
) -> ContainerView:
    """Make a container; again, with the same options, changes nothing.

    One that is there already and has these options is returned.
    """
    seconds = command.versions_seconds
    handle = services.app.store.container(
        command.name,
        command.partition_key,
        ttl=command.ttl_seconds,
        versions=None if seconds is None else timedelta(seconds=seconds),
        previous_images=command.previous_images,
        ranges=command.ranges,
    )
    return view(await handle.describe())


class ByContainer(Struct, frozen=True, kw_only=True):
    """Which container."""

    container: Name


@operation(
    "containers.get", "GET /v1/containers/{container}", "containers:read", errors=(NotFound,)
)
async def get_container(services: Services, _: Principal, command: ByContainer) -> ContainerView:
    """Show a container."""
    return view(await services.app.store.container(command.container).describe())


@operation(
    "containers.drop", "DELETE /v1/containers/{container}", "containers:manage", errors=(NotFound,)
)
async def drop_container(services: Services, _: Principal, command: ByContainer) -> None:
    """Remove a container and all its items."""
    if not await services.app.store.container(command.container).drop():
        raise NotFound(f"there is no container named {command.container!r}")


class RangeView(Struct, frozen=True, kw_only=True):
    """A part of a container's feed, with an order of its own."""

    id: int
    low: str
    """The first hash of partition keys that belongs to it."""
    high: str
    """The first hash that does not."""
    open: bool
    """Whether it takes writes; one that was split does not any more."""
    parents: list[int]
    """The range that it was split from."""


def view_range(one: Range) -> RangeView:
    """Return a range as the API shows it."""
    return RangeView(
        id=one.id,
        low=one.interval.low,
        high=one.interval.high,
        open=one.open,
        parents=list(one.parents),
    )


class ListRanges(ByContainer, frozen=True, kw_only=True):
    """Which page of a container's ranges."""

    cursor: Cursor | None = None
    limit: Limit = limits.PAGE_ROWS_DEFAULT


@operation(
    "containers.ranges",
    "GET /v1/containers/{container}/ranges",
    "containers:read",
    errors=(NotFound,),
)
async def list_ranges(services: Services, _: Principal, command: ListRanges) -> Page[RangeView]:
    """List the ranges of a container.

    In the order they were made, also those that were split.
    """
    ranges = await services.app.store.container(command.container).ranges()
    after = paging.decode(command.cursor, int) or 0
    found = [one for number, one in sorted(ranges.by_id.items()) if number > after]
    shown = first(found, command.limit).each(view_range)
    return paging.page(services.page_bytes, shown, lambda one: one.id)


class SplitRange(ByContainer, frozen=True, kw_only=True):
    """Which range is cut where."""

    range_id: Annotated[int, Meta(description="The range's id.")]
    at: (
        Annotated[
            str,
            Meta(
                pattern=r"^[0-9A-F]*$",
                max_length=96,
                description="The hash at which the second one begins. Default: in the middle.",
            ),
        ]
        | None
    ) = None


class RangeSplit(Struct, frozen=True):
    """The ranges that replaced a split one."""

    items: list[RangeView]


@operation(
    "containers.split",
    "POST /v1/containers/{container}/ranges/{range_id}:split",
    "containers:manage",
    errors=(NotFound, Conflict),
)
async def split_range(services: Services, _: Principal, command: SplitRange) -> RangeSplit:
    """Put two ranges in the place of one; no item is moved.

    Writers and readers go on.
    """
    container = services.app.store.container(command.container)
    return RangeSplit(
        [view_range(one) for one in await container.split(command.range_id, command.at)]
    )
