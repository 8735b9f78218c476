"""What travels between a pool and those who use it."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from relevo.actors.interfaces import Interface
from relevo.actors.markers import method
from relevo.errors import InvalidValue, NotFound, SettingsMismatch
from relevo.governance.core.lending import ChunkAsk, Loan
from relevo.governance.core.permits import Permit
from relevo.governance.core.pools import PoolOptions
from relevo.governance.errors import PoolExhausted

POOL_TYPE: Final = "relevo.pool"
ANSWER_SECONDS: Final = 20.0
"""A pool answers after so long at the latest, if only that nothing has come free."""


class PermitAsk(Struct, frozen=True, kw_only=True):
    """A request for one permit for each ticket; asked again it is the same request."""

    tickets: tuple[str, ...]
    """Made by the caller, who releases and asks again by them."""
    key: str = ""
    weight: int = 1
    priority: int = 4
    host: str | None = None
    """The life of the host with which the permits end; None for a client."""
    ttl: float | None = None
    """Seconds after which the permits of a client end, unless it renews them."""
    wait: float = ANSWER_SECONDS
    """Seconds after which the pool answers although nothing has come free."""


class GrantedPermit(Struct, frozen=True):
    """A permit, by the ticket that asked for it."""

    ticket: str
    number: int
    item: str | None = None


class StoredPermit(Struct, frozen=True):
    """A permit and its ticket, as a pool stores them."""

    permit: Permit
    ticket: str
    returned: int = 0
    """Of a chunk: all that its host has given back."""


class PoolView(Struct, frozen=True):
    """A pool at one moment."""

    size: int
    in_use: int
    waiting: int
    permits: tuple[StoredPermit, ...] = ()


_ERRORS = (PoolExhausted, InvalidValue, NotFound, SettingsMismatch)


class PoolCalls(Interface):
    """The methods of the actor that is a pool."""

    @method(idempotent=True, raises=_ERRORS)
    async def declare(self, options: PoolOptions) -> None:
        """Make the pool; raises `SettingsMismatch` if it exists with others."""

    @method(idempotent=True, raises=_ERRORS)
    async def ask(self, ask: PermitAsk) -> list[GrantedPermit]:
        """Return the permits that were granted, at least one unless the time to wait has passed."""

    @method(idempotent=True, raises=_ERRORS)
    async def lend(self, ask: ChunkAsk) -> Loan:
        """Return what a host is to know of its chunk, once there is news, or after a while."""

    @method(idempotent=True)
    async def release(self, tickets: list[str]) -> None:
        """Take permits back, and forget requests that wait; one that is unknown is nothing new."""

    @method(idempotent=True)
    async def renew(self, tickets: list[str], ttl: float) -> list[str]:
        """Put off the end of permits of clients; returns the tickets that have none any more."""

    @method(idempotent=True, raises=_ERRORS)
    async def resize(self, size: int) -> None:
        """Change how much may be in use at once."""

    @method(idempotent=True, raises=_ERRORS)
    async def view(self) -> PoolView:
        """Return what is in use, and how many wait."""
