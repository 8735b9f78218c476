"""Caches of a back end's results: one load of a key at a time in the cluster, shared by all.

rates = app.governance.cache("rates", load=fetch_rate, ttl=60, refresh=5, stale=300)
cached = await rates.get("usd")
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

import msgspec

from relevo.errors import RelevoError
from relevo.governance.calls.cache_calls import CACHE_TYPE, CacheCalls, Cached
from relevo.governance.core.replicas import Replicas
from relevo.kernel import error_text
from relevo.kernel.telemetry.logs import get_logger

if TYPE_CHECKING:
    from relevo.actors import Actors
    from relevo.governance.calls.cache_calls import CacheDefinition, VersionedResult

log = get_logger(__name__)
PRELOAD_SECONDS: Final = 30.0
"""How often hosts look whether what is to be preloaded is there, at the least."""
PRELOADS_AT_ONCE: Final = 32


class ResultCache:
    """A cache, as its users see it; having one does no I/O."""

    def __init__(self, definition: CacheDefinition, actors: Actors) -> None:
        self.definition = definition
        self._actors = actors
        self._replicas = Replicas(definition.rules.ttl)
        self._asking: dict[str, asyncio.Task[Cached]] = {}

    async def get(self, key: str) -> Cached:
        """Return the result of a key with its age; raises `LoadFailed` if there is none to serve.

        Who asks while it is loaded shares that load.
        """
        if not self.definition.replicates:
            return await self._of(key).get()
        kept = self._replicas.get(key, _now())
        if kept is not None:
            return Cached(msgspec.msgpack.decode(kept.data), kept.age)
        task = self._asking.get(key)
        if task is None:
            task = self._asking[key] = asyncio.get_running_loop().create_task(self._ask(key))
            task.add_done_callback(lambda _: self._asking.pop(key, None))
        found = await asyncio.shield(task)
        return Cached(msgspec.msgpack.decode(msgspec.msgpack.encode(found.value)), found.age)

    async def invalidate(self, key: str) -> None:
        """Forget the result of a key: the next caller loads it.

        Other processes that keep results of their own hear of it within a second.
        """
        await self._of(key).invalidate()
        self._replicas.forget(key)

    async def keep_loaded(self) -> None:
        """Load what is to be preloaded, and see that it stays so, until canceled."""
        slots = asyncio.Semaphore(PRELOADS_AT_ONCE)

        async def preload(key: str) -> None:
            async with slots:
                try:
                    await self._of(key).preload()
                except RelevoError as error:
                    log.warning(
                        "cache.not_preloaded", cache=self.definition.name,
                        error=error_text.shown(error),
                    )  # fmt: skip

        while True:
            await asyncio.gather(*map(preload, self.definition.preload))
            await asyncio.sleep(min(PRELOAD_SECONDS, self.definition.rules.ttl))

    async def _ask(self, key: str) -> Cached:
        """Ask whether the version that is kept here still holds; take in a newer one."""
        begin, known = _now(), self._replicas.version(key)
        proxy: Any = self._of(key)
        found: VersionedResult = await proxy.get_newer(known)
        if found.is_same:
            kept = self._replicas.confirm(key, found.version, found.age, begin)
            if kept is not None:
                return Cached(msgspec.msgpack.decode(kept.data), found.age)
            found = await proxy.get_newer("")  # it was forgotten meanwhile
        data = msgspec.msgpack.encode(found.value)
        self._replicas.put(key, found.version, data, found.age, begin)
        return Cached(found.value, found.age)

    def _of(self, key: str) -> CacheCalls:
        return self._actors.proxy(CacheCalls, f"{self.definition.name}:{key}", type=CACHE_TYPE)


def _now() -> float:
    return asyncio.get_running_loop().time()
