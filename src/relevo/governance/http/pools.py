"""`/v1/pools`: pools for operators, and permits for programs in any language."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
from msgspec import Meta, Struct

from relevo import limits
from relevo.errors import InUse, InvalidValue, NoHost, NotFound, OutcomeUnknown
from relevo.governance.core.permits import SIZE_MAX
from relevo.governance.core.pools import WAITERS_MAX, PoolOptions
from relevo.governance.errors import PoolExhausted
from relevo.governance.holders import PERMIT_SECONDS
from relevo.governance.http.models import ByName, UseKey, WaitSeconds
from relevo.governance.operating.pools import (
    PermitInUse,
    PoolDetails,
    PoolService,
    PoolSummary,
    instant,
)
from relevo.http import paging
from relevo.http.paging import Cursor, Limit, Page
from relevo.kernel.operation import Operations, OtherStatus

if TYPE_CHECKING:
    from relevo.governance.calls.pool_calls import GrantedPermit
    from relevo.http.access.authenticator import Principal
    from relevo.http.services import Services

TTL_SECONDS_MAX: Final = 3_600.0
ITEMS_MAX: Final = 10_000

operation = Operations(scope="pool:{name}", errors=(NotFound, NoHost, OutcomeUnknown))

Size = Annotated[int, Meta(ge=0, le=SIZE_MAX, description="How much may be in use at once.")]
TimeToLive = Annotated[
    float,
    Meta(
        ge=1,
        le=TTL_SECONDS_MAX,
        description="Seconds after which the permit ends unless it is renewed.",
    ),
]


class ListGoverned(Struct, frozen=True, kw_only=True):
    """Which page of a list."""

    cursor: Cursor | None = None
    limit: Limit = limits.PAGE_ROWS_DEFAULT


@operation("pools.list", "GET /v1/pools", "governance:read", scope=None)
async def list_pools(services: Services, _: Principal, command: ListGoverned) -> Page[PoolSummary]:
    """List pools by name, with how much is in use and how many callers wait."""
    after = paging.decode(command.cursor, str) or ""
    found, end = await _pools(services).list(after, command.limit)
    return paging.page(services.page_bytes, found, lambda one: one.name, end=end)


@operation("pools.get", "GET /v1/pools/{name}", "governance:read")
async def get_pool(services: Services, _: Principal, command: ByName) -> PoolDetails:
    """Show a pool: its settings, how much is in use, and which keys wait."""
    return await _pools(services).get(command.name)


class PutPool(ByName, frozen=True, kw_only=True):
    """What a pool has."""

    size: Size | None = None
    items: (
        Annotated[
            tuple[str, ...],
            Meta(max_length=ITEMS_MAX, description="Named things instead of a size."),
        ]
        | None
    ) = None
    per_key: (
        Annotated[int, Meta(ge=1, description="How much a key may have at once; null is no cap.")]
        | None
    ) = None
    burst: Annotated[
        bool, Meta(description="Whether a key may have more while no other key waits.")
    ] = False
    max_waiters: Annotated[
        int, Meta(ge=0, le=WAITERS_MAX, description="How many callers may wait.")
    ] = WAITERS_MAX

    @property
    def options(self) -> PoolOptions:
        """Its settings; raises `InvalidValue`."""
        if (self.size is None) == (self.items is None):
            raise InvalidValue("give either size or items", pointer="size")
        size = self.size if self.items is None else len(self.items)
        return PoolOptions(
            size=size or 0, items=self.items, per_key=self.per_key, burst=self.burst,
            max_waiters=self.max_waiters,
        )  # fmt: skip


class PutDone(Struct, frozen=True):
    """The answer to a PUT."""

    created: bool
    """Whether it is new."""


CREATED: Final = (OtherStatus(201, lambda done: done.created, "It is new."),)


@operation("pools.put", "PUT /v1/pools/{name}", "governance:manage", outcomes=CREATED)
async def put_pool(services: Services, principal: Principal, command: PutPool) -> PutDone:
    """Make a pool, or change its settings; permits in use stay."""
    created = await _pools(services).put(command.name, command.options, by=principal.name)
    return PutDone(created)


class ResizePool(ByName, frozen=True, kw_only=True):
    """Which pool gets which size."""

    size: Size


@operation("pools.resize", "POST /v1/pools/{name}:resize", "governance:manage")
async def resize_pool(services: Services, principal: Principal, command: ResizePool) -> None:
    """Change the size of a pool; nothing is revoked, and grants stop until it fits."""
    await _pools(services).resize(command.name, command.size, by=principal.name)


@operation("pools.delete", "DELETE /v1/pools/{name}", "governance:manage", errors=(NotFound, InUse))
async def delete_pool(services: Services, principal: Principal, command: ByName) -> None:
    """Remove a pool of which no permit is in use; programs that declare it make it anew."""
    await _pools(services).delete(command.name, by=principal.name)


class ListPermits(ByName, frozen=True, kw_only=True):
    """Which page of the permits of which pool."""

    cursor: Cursor | None = None
    limit: Limit = limits.PAGE_ROWS_DEFAULT


@operation("pools.permits", "GET /v1/pools/{name}/permits", "governance:read")
async def list_permits(services: Services, _: Principal, command: ListPermits) -> Page[PermitInUse]:
    """List the permits of a pool that are in use, and who has them."""
    after = paging.decode(command.cursor, int) or 0
    found = await _pools(services).permits(command.name, after, command.limit)
    return paging.page(services.page_bytes, found, lambda one: one.number)


class LeasePermit(ByName, frozen=True, kw_only=True):
    """For whom, and for how long."""

    use_key: UseKey = msgspec.field(default="", name="key")
    weight: Annotated[int, Meta(ge=1, le=SIZE_MAX, description="How much of the pool.")] = 1
    priority: Annotated[
        int, Meta(ge=0, le=9, description="Among callers of the same key; 9 goes first.")
    ] = 4
    ttl_seconds: TimeToLive = PERMIT_SECONDS
    wait_seconds: WaitSeconds = 0.0
    repeat: (
        Annotated[
            str,
            Meta(
                min_length=1,
                max_length=128,
                pattern=r"^[\x21-\x7e]+$",
                description="A repeat with the same key gets the same permit while that is in use.",
            ),
        ]
        | None
    ) = None


class LeasedPermit(Struct, frozen=True, kw_only=True):
    """A permit that its holder renews and releases."""

    id: str
    """Names it in `:renew` and `:release`."""
    number: int
    """Numbers of a pool only grow: pass it on to what the permit is for, as a fence."""
    item: str | None
    """The named thing that it is for."""
    expires_at: datetime | None
    """When it ends, by Relevo's clock."""
    seconds_left: float
    """How long that is from now."""


@operation(
    "pools.lease",
    "POST /v1/pools/{name}/permits",
    "governance:use",
    status=201,
    headers={"repeat": "Idempotency-Key"},
    wait="wait_seconds",
    errors=(NotFound, NoHost, OutcomeUnknown, PoolExhausted),
)
async def lease_permit(
    services: Services, principal: Principal, command: LeasePermit
) -> LeasedPermit:
    """Take a permit of a pool, which ends after a time unless it is renewed."""
    repeat = None if command.repeat is None else f"{principal.id} {command.repeat}"
    granted = await _pools(services).lease(
        command.name, key=command.use_key, weight=command.weight, priority=command.priority,
        ttl=command.ttl_seconds, wait=command.wait_seconds, repeat=repeat,
    )  # fmt: skip
    return await _shown(services, granted)


class ByPermit(ByName, frozen=True, kw_only=True):
    """Which permit."""

    id: Annotated[str, Meta(min_length=1, max_length=64, description="The permit's id.")]


class RenewPermit(ByPermit, frozen=True, kw_only=True):
    """Which permit, and for how long."""

    ttl_seconds: TimeToLive = PERMIT_SECONDS


@operation("pools.renew", "POST /v1/pools/{name}/permits/{id}:renew", "governance:use")
async def renew_permit(services: Services, _: Principal, command: RenewPermit) -> LeasedPermit:
    """Put off the end of a permit; if it is not found, stop what it allowed."""
    granted = await _pools(services).renew(command.name, command.id, command.ttl_seconds)
    return await _shown(services, granted)


@operation("pools.release", "POST /v1/pools/{name}/permits/{id}:release", "governance:use")
async def release_permit(services: Services, _: Principal, command: ByPermit) -> None:
    """Give a permit back; one that has ended already is no error."""
    await _pools(services).release(command.name, command.id)


async def _shown(services: Services, granted: GrantedPermit) -> LeasedPermit:
    now = await services.app.governance.clock.now()
    ends: Any = granted.expires_at
    return LeasedPermit(
        id=granted.ticket, number=granted.number, item=granted.item, expires_at=instant(ends),
        seconds_left=max(0.0, round(ends - now, 3)),
    )  # fmt: skip


def _pools(services: Services) -> PoolService:
    return PoolService(services.app.governance)
