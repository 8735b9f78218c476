"""The actor that has one key of a cache: at most one load of it is under way in the cluster."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from relevo.actors.definitions import NoState
from relevo.errors import NotFound
from relevo.governance.actors.kit import KitActor
from relevo.governance.calls.cache_calls import Cached
from relevo.governance.core.ages import Ages, Fail, LoadFirst, Serve
from relevo.governance.errors import LoadFailed
from relevo.kernel import error_text

if TYPE_CHECKING:
    from relevo.actors.running.deferred import Deferred, Offloaded
    from relevo.governance.core.ages import CacheAnswer


class CacheActor(KitActor[NoState]):
    """Keeps the result of one key of a cache, and loads it."""

    async def on_activate(self) -> None:
        name, _, self._key = str(self.ctx.key).partition(":")
        definition = self.kit.caches.get(name)
        if definition is None:
            raise NotFound(f"this program defines no cache {name!r}, and cannot serve it")
        self._load, self._ages = definition.load, Ages(definition.rules)
        self._waiting: list[Deferred[Cached]] = []

    async def get(self) -> Any:
        answer = self._ages.ask(self._key, _now())
        if isinstance(answer, LoadFirst) or (isinstance(answer, Serve) and answer.load):
            self._begin()
        if isinstance(answer, (Serve, Fail)):
            return _result(answer)
        deferred: Deferred[Cached] = self.defer()
        self._waiting.append(deferred)
        return deferred

    async def invalidate(self) -> None:
        self._ages.invalidate(self._key)

    def _begin(self) -> None:
        self.offload(_loaded(self._load, self._key), then=self._ended)

    async def _ended(self, outcome: Offloaded[Any]) -> None:
        waiting, self._waiting = self._waiting, []
        if outcome.error is None:
            self._ages.loaded(self._key, outcome.value, _now())
            answer: CacheAnswer = Serve(outcome.value, 0.0)
        else:
            text = error_text.shown(outcome.error)
            answer = self._ages.failed(self._key, text, _now())
        for deferred in waiting:
            try:
                deferred.resolve(_result(answer))
            except LoadFailed as error:
                deferred.fail(error)
        self._plan()

    def _plan(self) -> None:
        """Come back to load a result ahead of its end, if it is in use then."""
        rules = self._ages.rules
        if rules.refresh is not None:
            seconds = max(0.01, rules.ttl - rules.refresh)
            self.timers.set("refresh", self._refresh, after=seconds)

    async def _refresh(self) -> None:
        if self._ages.due(_now()):
            self._begin()


async def _loaded(load: Any, key: str) -> Any:
    return await load(key)


def _result(answer: CacheAnswer) -> Cached:
    if isinstance(answer, Serve):
        return Cached(answer.value, answer.age)
    assert isinstance(answer, Fail)
    raise LoadFailed(f"the back end failed: {answer.error}", retry_after=answer.retry_after)


def _now() -> float:
    return asyncio.get_running_loop().time()
