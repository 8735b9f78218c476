"""Caches of a back end's results: one load of a key at a time in the cluster, shared by all.

rates = app.governance.cache("rates", load=fetch_rate, ttl=60, refresh=5, stale=300)
cached = await rates.get("usd")
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from relevo.governance.calls.cache_calls import CACHE_TYPE, CacheCalls

if TYPE_CHECKING:
    from relevo.actors.service import Actors
    from relevo.governance.calls.cache_calls import Cached, CacheDefinition


class ResultCache:
    """A cache, as its users see it; having one does no I/O."""

    def __init__(self, definition: CacheDefinition, actors: Actors) -> None:
        self.definition = definition
        self._actors = actors

    async def get(self, key: str) -> Cached:
        """Return the result of a key with its age; raises `LoadFailed` if there is none to serve.

        Who asks while it is loaded shares that load.
        """
        return await self._of(key).get()

    async def invalidate(self, key: str) -> None:
        """Forget the result of a key: the next caller loads it."""
        await self._of(key).invalidate()

    def _of(self, key: str) -> CacheCalls:
        return self._actors.proxy(CacheCalls, f"{self.definition.name}:{key}", type=CACHE_TYPE)
