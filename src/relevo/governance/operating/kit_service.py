"""How operators and other programs reach the actors of the kit."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, TypeVar

from relevo.actors import BY, ActorRef, checked_key
from relevo.errors import NotFound, RelevoError
from relevo.kernel.pages import Fetched

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from relevo.governance.service import Governance

VIEW_SECONDS: Final = 3.0
"""How long a list waits for one of its actors."""
V = TypeVar("V")
_REMOVED: Final = object()


class KitService:
    """Reaches the actors of one type of the kit."""

    type_name: str

    def __init__(self, governance: Governance) -> None:
        self.governance = governance

    async def proxy(self, interface: type[Any], name: str, by: str | None = None) -> Any:
        """Return the actor of a name; its events say that `by` has asked for changes.

        Raises `InvalidValue` for a name that none can have.
        """
        checked_key(name)
        await self.governance.reach.ensure()
        proxy = self.governance.actors.proxy(interface, name, type=self.type_name)
        return proxy if by is None else proxy.with_(headers={BY: by})

    async def views(
        self, after: str, limit: int, view: Callable[[str], Awaitable[V]]
    ) -> tuple[Fetched[tuple[str, V | None]], str]:
        """Return names beyond a name, each with a view of its actor; None if it gives none now.

        Those that were removed are left out. Also returns the name at which the page ends.
        """
        start = ActorRef.of(self.type_name, after).canonical if after else ""
        found = await self.governance.actors.list(self.type_name, start, limit)
        names = [str(ActorRef.read(one.id).key) for one in found.items]
        views = await asyncio.gather(*(self._view(name, view) for name in names))
        shown = [one for one in zip(names, views, strict=True) if one[1] is not _REMOVED]
        return Fetched(shown, found.more), names[-1] if names else after

    async def _view(self, name: str, view: Callable[[str], Awaitable[V]]) -> Any:
        try:
            async with asyncio.timeout(VIEW_SECONDS):
                return await view(name)
        except NotFound:
            return _REMOVED
        except (RelevoError, TimeoutError):
            return None
