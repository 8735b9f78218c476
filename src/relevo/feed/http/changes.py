"""The change feed: reading it page by page (the pull model)."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from relevo import limits
from relevo.errors import (
    BadContinuation,
    Conflict,
    ContainerRecreated,
    FeedExpired,
    FeedRegressed,
    InvalidValue,
    NotFound,
)
from relevo.feed.model import FeedRange
from relevo.feed.model import Operation as Happened
from relevo.feed.reading.filters import Filter
from relevo.feed.reading.start import check as checked_start
from relevo.kernel import cpu
from relevo.kernel.operation import Operations
from relevo.store.http.bulk import ItemCondition
from relevo.store.http.containers import SCOPE, ByContainer
from relevo.store.http.items import container_of, key_of, key_shown
from relevo.store.keys import SPACE_MAX
from relevo.store.query import CONDITIONS_MAX
from relevo.store.ranges import Interval

if TYPE_CHECKING:
    from relevo.feed import Change
    from relevo.feed.reading.start import Start
    from relevo.http.access.authenticator import Principal
    from relevo.http.services import Services

POLL_SECONDS: Final = 1.0
"""Seconds between two looks of a waiting reader, for writes that send no wake-up."""
ANSWER_SECONDS: Final = 5.0
"""Seconds of a request's time that are left for the answer."""
WAIT_SECONDS_MAX: Final = min(
    limits.FEED_WAIT_SECONDS_MAX, limits.REQUEST_SECONDS_MAX - ANSWER_SECONDS
)


Conditions = Annotated[
    tuple[ItemCondition, ...],
    Meta(
        max_length=CONDITIONS_MAX,
        description="Conditions that all have to hold for the item of a change. With a"
        " continuation, the same as before.",
    ),
]


operation = Operations(scope=SCOPE)


class ReadChanges(ByContainer, frozen=True, kw_only=True):
    """Where to read, and how much."""

    start: Annotated[
        str,
        Meta(
            max_length=2 * limits.NAME_LENGTH_MAX + 1,
            description="`beginning`, `now`, a time such as `2031-05-30T18:00:00Z`, or the name of"
            " a snapshot; counts without a continuation only.",
        ),
    ] = "beginning"
    mode: Annotated[
        Literal["latest", "all_versions"],
        Meta(
            description="`latest` has each item once, as it is; `all_versions` every version and"
            " delete that is kept."
        ),
    ] = "latest"
    feed_range: (
        Annotated[
            str,
            Meta(
                pattern=r"^[0-9A-F]*-[0-9A-F]+$",
                max_length=200,
                description="Only this part of the feed, such as `10-20`.",
            ),
        ]
        | None
    ) = None
    partition_key: (
        Annotated[
            Any,
            Meta(
                description="Only items with this partition key; of a hierarchical one the first"
                ' parts are enough, such as `["tenant-1"]`. `{}` stands for no value.'
            ),
        ]
        | UnsetType
    ) = UNSET
    where: Conditions = ()
    operations: Annotated[
        tuple[Happened, ...],
        Meta(
            max_length=3,
            description="Only changes of these kinds; in the mode `all_versions` only.",
        ),
    ] = ()
    continuation: (
        Annotated[
            str,
            Meta(description="That of the page before; it goes on there, whoever reads."),
        ]
        | None
    ) = None
    limit: Annotated[
        int,
        Meta(
            ge=1,
            le=limits.FEED_ITEMS_MAX,
            description="Changes at the most; what was written together is not cut.",
        ),
    ] = limits.FEED_ITEMS_DEFAULT
    wait_seconds: Annotated[
        float,
        Meta(
            ge=0.0,
            le=limits.FEED_WAIT_SECONDS_MAX,
            description="How long to wait if there is nothing to read; the answer may come"
            " earlier, without changes.",
        ),
    ] = 0.0


class ChangeView(Struct, frozen=True, kw_only=True):
    """One change of one item."""

    change_id: str
    """Stable over retries and readers: fits as an idempotency key."""
    id: str
    partition_key: list[Any]
    lsn: int
    """Position in the range that it belongs to."""
    ts: datetime
    etag: str
    operation: Happened | None
    """Known in the mode `all_versions` only."""
    item: Any
    """The item after the change; null for a delete."""
    previous: Any = None
    """The item before the change, where the container keeps previous images."""
    ttl_expired: bool = False


class ChangePageView(Struct, frozen=True):
    """Some changes, and where to go on."""

    items: list[ChangeView]
    continuation: str
    caught_up: bool
    """Whether nothing was left that had been committed before."""


@operation(
    "feeds.changes",
    "POST /v1/containers/{container}/changes:read",
    "items:read",
    wait="wait_seconds",
    errors=(
        NotFound,
        Conflict,
        BadContinuation,
        FeedExpired,
        FeedRegressed,
        ContainerRecreated,
    ),
)
async def read_changes(services: Services, _: Principal, command: ReadChanges) -> ChangePageView:
    """Read the changes of a container: one page, and where the next one begins."""
    key: Any = command.partition_key
    clock = asyncio.get_running_loop().time
    until = clock() + min(command.wait_seconds, WAIT_SECONDS_MAX)
    pages = container_of(services, command).read_changes(
        start=_start(command.start),
        mode=command.mode,
        feed_range=_feed_range(command.feed_range),
        partition_key=key if key is UNSET else key_of(key),
        continuation=command.continuation,
        max_items=command.limit,
        max_bytes=services.page_bytes,
        wait=min(POLL_SECONDS, command.wait_seconds),
        filter=Filter(
            where=tuple((one.path, one.op, one.value) for one in command.where),
            operations=command.operations,
        ),
    )
    async with aclosing(pages):  # type: ignore[type-var]
        async for page in pages:
            if page.changes or clock() >= until:
                break
    size = sum(len(change.raw or "") + len(change.raw_previous or "") for change in page.changes)
    shown = await cpu.decoded(size, lambda: [_change(change) for change in page.changes])
    return ChangePageView(shown, page.continuation, page.caught_up)


def _start(text: str) -> Start:
    try:
        return checked_start(datetime.fromisoformat(text))
    except (ValueError, OverflowError):
        return checked_start(text)


def _feed_range(text: str | None) -> FeedRange | None:
    if text is None:
        return None
    low, _, high = text.partition("-")
    if not low < high <= SPACE_MAX:
        raise InvalidValue(
            f"a feed range looks like 10-20 and lies between '' and {SPACE_MAX}, not {text!r}",
            pointer="/feed_range",
        )
    return FeedRange(Interval(low, high))


def _change(one: Change[Any]) -> ChangeView:
    return ChangeView(
        change_id=one.change_id,
        id=one.id,
        partition_key=key_shown(one.partition_key),
        lsn=one.lsn,
        ts=one.ts,
        etag=one.etag,
        operation=one.operation,
        item=one.current,
        previous=one.previous,
        ttl_expired=one.ttl_expired,
    )


class ListFeedRanges(ByContainer, frozen=True, kw_only=True):
    """Into how many parts."""

    at_least: (
        Annotated[
            int,
            Meta(
                ge=1,
                le=limits.RANGES_PER_CONTAINER_MAX,
                description="So many parts or more, by halving. Default: as the feed is cut.",
            ),
        ]
        | None
    ) = None


class FeedRangeView(Struct, frozen=True, kw_only=True):
    """A part of a feed: every item whose partition key hashes into it."""

    feed_range: str
    """A value for `feed_range` of a reader."""
    low: str
    high: str


class FeedRanges(Struct, frozen=True):
    """Parts that cover the feed completely, without overlap."""

    items: list[FeedRangeView]


@operation(
    "feeds.ranges", "GET /v1/containers/{container}/feed-ranges", "feeds:read", errors=(NotFound,)
)
async def feed_ranges(services: Services, _: Principal, command: ListFeedRanges) -> FeedRanges:
    """List parts of a feed that can be read side by side."""
    found = await container_of(services, command).feed_ranges(command.at_least)
    return FeedRanges(
        [
            FeedRangeView(feed_range=str(one), low=one.low, high=one.high)
            for one in (each.interval for each in found)
        ]
    )
