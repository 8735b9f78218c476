"""`/v1/limits`: rate limits for operators, and for programs in any language."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import msgspec
from msgspec import Meta, Struct

from relevo.errors import NoHost, NotFound, OutcomeUnknown, Overloaded
from relevo.governance.calls.limit_calls import LimitOptions
from relevo.governance.core.windows import AMOUNT_MAX, PER_SECONDS_MAX, RATES_MAX, Rate
from relevo.governance.errors import PoolExhausted
from relevo.governance.http.models import ByName, UseKey, WaitSeconds
from relevo.governance.http.pools import CREATED, ListGoverned, PutDone
from relevo.governance.operating.limits import LimitDetails, LimitService
from relevo.http import paging
from relevo.http.paging import Page
from relevo.kernel.operation import Operations
from relevo.limits import LIMIT_ID_LENGTH_MAX

if TYPE_CHECKING:
    from relevo.http.access.authenticator import Principal
    from relevo.http.services import Services

operation = Operations(scope="limit:{name}", errors=(NotFound, NoHost, OutcomeUnknown))


@operation("limits.list", "GET /v1/limits", "governance:read", scope=None)
async def list_limits(
    services: Services, _: Principal, command: ListGoverned
) -> Page[LimitDetails]:
    """List rate limits by name, with how many callers wait."""
    after = paging.decode(command.cursor, str) or ""
    found, end = await _limits(services).list(after, command.limit)
    return paging.page(services.page_bytes, found, lambda one: one.name, end=end)


@operation("limits.get", "GET /v1/limits/{name}", "governance:read")
async def get_limit(services: Services, _: Principal, command: ByName) -> LimitDetails:
    """Show a rate limit and how many callers wait."""
    return await _limits(services).get(command.name)


class RateBody(Struct, frozen=True):
    """So much in any `per` seconds."""

    amount: Annotated[float, Meta(gt=0, le=AMOUNT_MAX)]
    per: Annotated[float, Meta(gt=0, le=PER_SECONDS_MAX, description="Seconds.")] = 1.0


class PutLimit(ByName, frozen=True, kw_only=True):
    """What a limit admits."""

    rates: Annotated[
        tuple[RateBody, ...],
        Meta(
            min_length=1,
            max_length=RATES_MAX,
            description='Such as `[{"amount": 10, "per": 1}]`. All of them must admit.',
        ),
    ]
    burst: Annotated[
        float, Meta(ge=0, le=AMOUNT_MAX, description="How much more may be admitted at once.")
    ] = 0.0


@operation("limits.put", "PUT /v1/limits/{name}", "governance:manage", outcomes=CREATED)
async def put_limit(services: Services, principal: Principal, command: PutLimit) -> PutDone:
    """Make a rate limit, or change its rates; what was spent counts for the new ones."""
    rates = tuple(Rate(one.amount, one.per) for one in command.rates)
    options = LimitOptions(rates=rates, burst=command.burst)
    return PutDone(await _limits(services).put(command.name, options, by=principal.name))


@operation("limits.delete", "DELETE /v1/limits/{name}", "governance:manage")
async def delete_limit(services: Services, principal: Principal, command: ByName) -> None:
    """Remove a rate limit; programs that declare it make it anew, and what was spent counts."""
    await _limits(services).delete(command.name, by=principal.name)


RequestId = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=LIMIT_ID_LENGTH_MAX,
        description="Names the request: repeated within ten minutes it is charged once.",
    ),
]


class AcquireCost(ByName, frozen=True, kw_only=True):
    """How much is asked of a limit, and for whom."""

    cost: Annotated[float, Meta(gt=0, le=AMOUNT_MAX, description="How much.")] = 1.0
    use_key: UseKey = msgspec.field(default="", name="key")
    wait_seconds: WaitSeconds = 0.0
    id: RequestId | None = None


class Admitted(Struct, frozen=True):
    """The answer to a cost that was charged."""

    cost: float


@operation(
    "limits.acquire",
    "POST /v1/limits/{name}:acquire",
    "governance:use",
    wait="wait_seconds",
    errors=(NotFound, NoHost, OutcomeUnknown, Overloaded, PoolExhausted),
)
async def acquire_cost(services: Services, _: Principal, command: AcquireCost) -> Admitted:
    """Charge a cost to a limit; `Retry-After` says when it may be admitted if it is not now."""
    await _limits(services).acquire(
        command.name, command.cost, key=command.use_key, wait=command.wait_seconds, id=command.id
    )
    return Admitted(command.cost)


def _limits(services: Services) -> LimitService:
    return LimitService(services.app.governance)
