"""`/v1/feeds`: the processors of containers' feeds, and how far they are behind."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Final

from msgspec import Meta, Struct

from relevo import limits
from relevo.errors import NotFound
from relevo.feed.model import Mode
from relevo.http import paging
from relevo.http.paging import Cursor, Limit, Page
from relevo.kernel.operation import Operations
from relevo.kernel.pages import Fetched, first
from relevo.kernel.postgres import catalog
from relevo.store.http.containers import SCOPE, ByContainer
from relevo.store.http.items import container_of

if TYPE_CHECKING:
    from relevo.feed import LeaseLag
    from relevo.http.access.authenticator import Principal
    from relevo.http.services import Services

SQL = catalog.load("relevo.feed")
UNITS_MAX: Final = 100
"""Units of a page: each is counted lease by lease."""


operation = Operations()


class FeedView(Struct, frozen=True, kw_only=True):
    """A processor, as a unit of all hosts that serve it, and how far it is behind."""

    container: str
    name: str
    mode: Mode
    leases: int
    estimated_lag: int
    """Changes that are waiting."""
    exact: bool
    """False if there are more than were counted."""
    lag_seconds: float
    """Age of the oldest of them."""
    leases_in: str


class ListFeeds(Struct, frozen=True, kw_only=True):
    """Which page of units."""

    cursor: Cursor | None = None
    limit: Annotated[
        int, Meta(ge=1, le=UNITS_MAX, description="The largest number of items to return.")
    ] = UNITS_MAX


@operation("feeds.list", "GET /v1/feeds", "feeds:read")
async def list_feeds(services: Services, _: Principal, command: ListFeeds) -> Page[FeedView]:
    """List the processors of all containers, and how far they are behind."""
    after = paging.decode(command.cursor, str) or ""
    rows = await services.app.database.fetch(SQL.feed_units, after, command.limit + 1)
    shown: list[tuple[str, FeedView]] = []
    for row in rows[: command.limit]:
        leases_in, _, name = row["unit"].partition(f"/{row['container']}/")
        container = services.app.container(row["container"])
        try:
            total = await container.change_feed_estimator(name, leases_in).total()
        except NotFound:  # gone since
            continue
        view = FeedView(
            container=row["container"],
            name=name,
            mode=row["mode"],
            leases=total.leases,
            estimated_lag=total.estimated_lag,
            exact=total.exact,
            lag_seconds=total.lag_seconds,
            leases_in=leases_in,
        )
        shown.append((row["unit"], view))
    found = Fetched(shown, len(rows) > command.limit)
    end = rows[command.limit - 1]["unit"] if found.more else None
    return paging.page(
        services.page_bytes, found, lambda one: one[0], show=lambda one: one[1], end=end
    )


class ByFeed(ByContainer, frozen=True, kw_only=True):
    """Which unit."""

    name: Annotated[
        str,
        Meta(min_length=1, max_length=limits.NAME_LENGTH_MAX, description="The processor's name."),
    ]
    leases_in: Annotated[
        str,
        Meta(
            max_length=limits.NAME_LENGTH_MAX,
            description="Which set of leases, where a processor has several.",
        ),
    ] = "leases"


class UnitLeaseView(Struct, frozen=True, kw_only=True):
    """One lease of a unit, and its lag."""

    lease_token: str
    """The part of the feed that it covers."""
    owner: str | None
    state: str
    estimated_lag: int
    exact: bool
    lag_seconds: float
    attempts: int
    """How often the batch at the head has failed."""
    stalled_for: float
    """Seconds for which a call runs that takes too long; 0 if none does."""
    position_ts: datetime | None
    """Time of the last change that was processed."""
    properties: dict[str, str]
    """Data that users store with it."""


class ListFeedLeases(ByFeed, frozen=True, kw_only=True):
    """Which page of a unit's leases."""

    cursor: Cursor | None = None
    limit: Limit = limits.PAGE_ROWS_MAX


@operation(
    "feeds.get", "GET /v1/feeds/{container}/{name}", "feeds:read", errors=(NotFound,), scope=SCOPE
)
async def get_feed(
    services: Services, _: Principal, command: ListFeedLeases
) -> Page[UnitLeaseView]:
    """Show the leases of a processor, their owners and their lag.

    Takes no lease.
    """
    container = container_of(services, command)
    estimator = container.change_feed_estimator(command.name, command.leases_in)
    after = paging.decode(command.cursor, str) or ""
    state = sorted(await estimator.current_state(), key=lambda one: one.lease_token)
    found = [_lease(one) for one in state if one.lease_token > after]
    return paging.page(
        services.page_bytes, first(found, command.limit), lambda one: one.lease_token
    )


def _lease(one: LeaseLag) -> UnitLeaseView:
    return UnitLeaseView(
        lease_token=one.lease_token,
        owner=one.instance_name,
        state=one.state,
        estimated_lag=one.estimated_lag,
        exact=one.exact,
        lag_seconds=one.lag_seconds,
        attempts=one.attempts,
        stalled_for=one.stalled_for,
        position_ts=one.position_ts,
        properties=one.properties,
    )
