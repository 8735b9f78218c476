"""What travels between a cache and those who use it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

from msgspec import Struct

from relevo.actors.interfaces import Interface
from relevo.actors.markers import method
from relevo.errors import NotFound
from relevo.governance.core.ages import AgeRules
from relevo.governance.errors import LoadFailed

CACHE_TYPE: Final = "relevo.cache"


class CacheDefinition(Struct, frozen=True):
    """A cache as a program defines it."""

    name: str
    load: Callable[[str], Awaitable[Any]]
    rules: AgeRules


class Cached(Struct, frozen=True):
    """A result of a back end, and how old it is."""

    value: Any
    age: float
    """Seconds since its load began."""


class CacheCalls(Interface):
    """The methods of the actor that has one key of a cache."""

    @method(idempotent=True, raises=(LoadFailed, NotFound))
    async def get(self) -> Cached:
        """Return the result, loaded first if there is none that may be served."""

    @method(idempotent=True)
    async def invalidate(self) -> None:
        """Forget the result."""
