"""What travels between a cache and those who use it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, Final

from msgspec import Struct

from relevo.actors import Interface, method
from relevo.errors import NotFound
from relevo.governance.core.ages import AgeRules
from relevo.governance.errors import LoadFailed

CACHE_TYPE: Final = "relevo.cache"


class CacheDefinition(Struct, frozen=True):
    """A cache as a program defines it."""

    name: str
    load: Callable[[str], Awaitable[Any]]
    rules: AgeRules
    preload: tuple[str, ...] = ()
    """Keys that are loaded without a caller, and loaded ahead as if they were in use."""
    gate: Callable[[], AbstractAsyncContextManager[object]] | None = None
    """What each load passes: the pool and the limit that it names."""
    replicates: bool = False
    """Whether processes keep results of their own, and ask now and then whether they hold."""


class Cached(Struct, frozen=True):
    """A result of a back end, and how old it is."""

    value: Any
    age: float
    """Seconds since its load began."""


class VersionedResult(Struct, frozen=True):
    """A result for a process that keeps it."""

    version: str
    """Of the load; another one for each."""
    age: float
    value: Any = None
    is_same: bool = False
    """The process has this version already; the value is left out."""


class CacheCalls(Interface):
    """The methods of the actor that has one key of a cache."""

    @method(idempotent=True, raises=(LoadFailed, NotFound))
    async def get(self) -> Cached:
        """Return the result, loaded first if there is none that may be served."""

    @method(idempotent=True, raises=(LoadFailed, NotFound))
    async def get_newer(self, known: str) -> VersionedResult:
        """Return the result, without its value if that is the known version."""

    @method(idempotent=True, raises=(NotFound,))
    async def preload(self) -> None:
        """Load the result unless there is a fresh one, and count it as in use from now on."""

    @method(idempotent=True)
    async def invalidate(self) -> None:
        """Forget the result."""
