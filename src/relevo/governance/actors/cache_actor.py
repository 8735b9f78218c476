"""The actor that has one key of a cache: at most one load of it is under way in the cluster."""

from __future__ import annotations

import asyncio
import secrets
from typing import TYPE_CHECKING, Any

from relevo.actors import NoState
from relevo.errors import NotFound
from relevo.governance.actors.kit import KitActor
from relevo.governance.calls.cache_calls import Cached, VersionedResult
from relevo.governance.core.ages import FAILURE_SECONDS, Ages, Fail, LoadFirst, Serve
from relevo.governance.errors import LoadFailed
from relevo.kernel import error_text

if TYPE_CHECKING:
    from relevo.actors import Deferred, Offloaded
    from relevo.governance.calls.cache_calls import CacheDefinition


class CacheActor(KitActor[NoState]):
    """Keeps the result of one key of a cache, and loads it."""

    async def on_activate(self) -> None:
        name, _, self._key = str(self.ctx.key).partition(":")
        definition = self.kit.caches.get(name)
        if definition is None:
            raise NotFound(f"this program defines no cache {name!r}, and cannot serve it")
        self._definition, self._ages = definition, Ages(definition.rules)
        self._waiting: list[tuple[Deferred[Any], str | None]] = []
        """Who waits for the load, and the version that it knows if it keeps results."""
        self._version = ""
        self._is_kept = False
        """Whether it is loaded ahead although nobody asks."""

    async def get(self) -> Any:
        return self._asked(None)

    async def get_newer(self, known: str) -> Any:
        return self._asked(known)

    def _asked(self, known: str | None) -> Any:
        answer = self._ages.ask(self._key, _now())
        if isinstance(answer, LoadFirst) or (isinstance(answer, Serve) and answer.load):
            self._begin()
        if isinstance(answer, (Serve, Fail)):
            return self._result(answer, known)
        deferred: Deferred[Any] = self.defer()
        self._waiting.append((deferred, known))
        return deferred

    async def preload(self) -> None:
        self._is_kept = True
        if self._ages.preload((self._key,), _now()):
            self._begin()

    async def invalidate(self) -> None:
        self._ages.invalidate(self._key)

    def _begin(self) -> None:
        self.offload(_loaded(self._definition, self._key), then=self._ended)

    async def _ended(self, outcome: Offloaded[Any]) -> None:
        waiting, self._waiting = self._waiting, []
        rules, again = self._ages.rules, FAILURE_SECONDS
        if outcome.error is None:
            self._ages.loaded(self._key, outcome.value, _now())
            self._version = secrets.token_hex(8)
            answer: Serve | Fail = Serve(outcome.value, 0.0)
            again = rules.ttl - (rules.refresh or 0.0)
        else:
            text = error_text.shown(outcome.error)
            answer = self._ages.failed(self._key, text, _now())
        for deferred, known in waiting:
            try:
                deferred.resolve(self._result(answer, known))
            except LoadFailed as error:
                deferred.fail(error)
        if rules.refresh is not None:  # come back to load it ahead of its end, if it is in use
            self.timers.set("refresh", self._refresh, after=max(0.01, again))

    async def _refresh(self) -> None:
        if self._is_kept:
            self._ages.keep(self._key, _now())
        if self._ages.due(_now()):
            self._begin()

    def _result(self, answer: Serve | Fail, known: str | None) -> Cached | VersionedResult:
        if isinstance(answer, Fail):
            raise LoadFailed(f"the back end failed: {answer.error}", retry_after=answer.retry_after)
        if known is None:
            return Cached(answer.value, answer.age)
        if known == self._version:
            return VersionedResult(known, answer.age, is_same=True)
        return VersionedResult(self._version, answer.age, answer.value)


async def _loaded(definition: CacheDefinition, key: str) -> Any:
    if definition.gate is None:
        return await definition.load(key)
    async with definition.gate():
        return await definition.load(key)


def _now() -> float:
    return asyncio.get_running_loop().time()
