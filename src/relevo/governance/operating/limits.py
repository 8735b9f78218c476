"""Rate limits as operators and other programs see them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct

from relevo.errors import NotFound
from relevo.governance.calls.limit_calls import LIMIT_TYPE, LimitCalls
from relevo.governance.core.windows import Rate
from relevo.governance.operating.kit_service import KitService
from relevo.governance.rate_limits import RateLimit

if TYPE_CHECKING:
    from relevo.governance.calls.limit_calls import LimitOptions, LimitView
    from relevo.kernel.pages import Fetched


class LimitDetails(Struct, frozen=True, kw_only=True):
    """A rate limit and its use."""

    name: str
    rates: tuple[Rate, ...] | None = None
    """Null, as the others, if it does not answer now."""
    burst: float | None = None
    """How much more may be admitted at once."""
    keys: int | None = None
    """Keys that were charged, as far back as it matters."""
    waiting: int | None = None
    """Callers that wait to be admitted."""


class LimitService(KitService):
    """Makes, changes and removes limits, and charges costs."""

    type_name = LIMIT_TYPE

    async def list(self, after: str, limit: int) -> tuple[Fetched[LimitDetails], str]:
        """Return limits beyond a name, and the name at which the page ends."""
        found, end = await self.views(after, limit, self._view_of)
        return found.each(lambda one: _state(*one)), end

    async def get(self, name: str) -> LimitDetails:
        """Return a limit; raises `NotFound`."""
        return _state(name, await self._view_of(name))

    async def _view_of(self, name: str) -> LimitView:
        view: LimitView = await (await self._proxy(name)).view()
        return view

    async def put(self, name: str, options: LimitOptions, *, by: str | None = None) -> bool:
        """Make a limit or change it; whether it is new. What was spent counts for the new rates."""
        return bool(await (await self._proxy(name, by)).put(options) == "created")

    async def delete(self, name: str, *, by: str | None = None) -> None:
        """Remove a limit; raises `NotFound`. One of its name still counts what was spent."""
        if not await (await self._proxy(name, by)).remove():
            raise NotFound(f"there is no limit {name!r}")

    async def acquire(
        self, name: str, cost: float, *, key: str = "", wait: float = 0.0,
        id: str | None = None,  # noqa: A002
    ) -> None:  # fmt: skip
        """Return when the cost is admitted; raises `PoolExhausted` if that takes too long.

        One that was charged under the same id is not charged again.
        """
        await self._proxy(name)
        governance = self.governance
        limit = RateLimit(name, None, governance.actors, governance.holders, governance.clock)
        await limit.acquire(cost, key=key, timeout=wait, id=id)

    async def _proxy(self, name: str, by: str | None = None) -> Any:
        return await self.proxy(LimitCalls, name, by)


def _state(name: str, view: LimitView | None) -> LimitDetails:
    if view is None:
        return LimitDetails(name=name)
    options = view.options
    return LimitDetails(
        name=name, rates=options.rates, burst=options.burst, keys=view.keys, waiting=view.waiting
    )
